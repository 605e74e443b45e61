"""Temporary files and folders.

Others may be able to write where a temporary file is made, and know its name. So each file is new and private, no link is followed, and
nothing is removed but what was made here. Whatever else has the name of a folder is an error that names it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import secrets
import shutil
import stat
import tempfile
from contextlib import contextmanager
from typing import Any, BinaryIO, Iterator

from ._grappa import Error

#: New files: never one that exists, never the target of a link.
NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: The file that marks a folder of this module, so that a killed process's folder is known from a user's.
MARK = "made-by-grappa"
#: Bytes of a name that may have more before and after it: file systems allow 255.
OWN_NAME_BYTES_MAX = 200
#: What a full disk answers. NumPy has no number for it.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
#: What a file system without locks answers.
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


class Folder:
    """A private folder, which is made for its first file, and removed with its files at the end.

    Args:
        path: Its path, which only one process uses at a time. Default: a new folder among the temporary files of the system.
        remedy: What to do if the path cannot be used: the end of an error.
        busy: The error if another process uses it.
    """

    def __init__(self, path: str | None = None, remedy: str = "", busy: str = ""):
        if path is None:
            self.path = os.path.join(tempfile.gettempdir(), f"grappa-inputs-{secrets.token_hex(8)}")
        else:
            self.path = path
        self._remedy, self._busy = remedy, busy
        self._descriptor: int | None = None
        self._names: list[str] = []

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._descriptor is None:
            return
        try:
            # The mark comes last: without it, files are not known as ours.
            for name in reversed(self._names):
                _try(os.unlink, name, dir_fd=self._descriptor)
            if _is_at(self._descriptor, self.path):
                _try(os.rmdir, self.path)
        finally:
            os.close(self._descriptor)
            self._descriptor = None

    def file(self, name: str) -> str:
        """The path of a file in the folder."""
        return os.path.join(self.path, name)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Makes a file, and opens it for writing.

        Raises:
            grappa.Error: The file exists, or cannot be written.
        """
        if self._descriptor is None:
            self._open()
        path = self.file(name)
        with explained(path, self._remedy):
            descriptor = os.open(name, NEW | os.O_WRONLY, 0o600, dir_fd=self._descriptor)
        self._names.append(name)
        with _Writer(descriptor) as file:
            try:
                yield file  # type: ignore[misc]
            except Exception:
                # NumPy, PyArrow and Polars have errors of their own for it.
                if file.failure is None:
                    raise
                raise unwritten(path, file.failure, self._remedy) from file.failure

    def stamp(self, stamp_of: Any) -> None:
        """Gives each file the time ``stamp_of(file)``, in nanoseconds."""
        for name in self._names[1:]:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._descriptor)
            with open(descriptor, "rb") as file:
                time = stamp_of(file)
                os.utime(file.fileno(), ns=(time, time))

    def _open(self) -> None:
        while self._descriptor is None:
            with explained(self.path, self._remedy):
                try:
                    os.mkdir(self.path, 0o700)
                except FileExistsError:
                    pass
            descriptor = self._opened()
            try:
                self._lock(descriptor)
                # A process that has just ended may have removed it.
                if _is_at(descriptor, self.path):
                    self._empty(descriptor)
                    self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        with self.create(MARK):
            pass

    def _opened(self) -> int:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._refusal("it was removed while it was made") from None
        except PermissionError:
            raise self._refusal("this user may not open it") from None
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise self._refusal("it is a link or a file, and no folder") from None
            raise unwritten(self.path, error, self._remedy) from error
        found = os.fstat(descriptor)
        why = None
        if found.st_uid != os.geteuid():
            why = "it belongs to another user"
        elif found.st_mode & 0o077:
            why = f"other users may use it (mode {stat.S_IMODE(found.st_mode):04o})"
        if why is not None:
            os.close(descriptor)
            raise self._refusal(why)
        return descriptor

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Error(self._busy) from None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise

    def _empty(self, descriptor: int) -> None:
        """Removes the files of a process that was killed."""
        names = os.listdir(descriptor)
        if not names:
            return
        if MARK not in names:
            raise self._refusal(f"it has files that Grappa did not write, such as {min(names)!r}")
        names.remove(MARK)
        for name in [*names, MARK]:
            if not stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                raise self._refusal(f"it has {name!r}, which is no file that Grappa wrote")
        for name in [*names, MARK]:
            os.unlink(name, dir_fd=descriptor)

    def _refusal(self, why: str) -> Error:
        return Error(
            f"{self.path}: temporary files go to a folder of this name, but there is something else: {why}; nothing was changed. "
            f"Move it away, or {self._remedy}"
        )


class _Writer(io.RawIOBase):
    """A file that writes all bytes, and keeps its failure."""

    def __init__(self, descriptor: int):
        self._file = open(descriptor, "wb", buffering=0)
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        size = len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError as error:
            self.failure = error
            raise
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


@contextmanager
def private_folder(prefix: str) -> Iterator[str]:
    """A new folder among the temporary files of the system, which is removed with all that is in it.

    Raises:
        grappa.Error: The disk is full.
    """
    remedy = "set the environment variable TMPDIR to a folder with free space"
    with explained(tempfile.gettempdir(), remedy):
        path = tempfile.mkdtemp(prefix=prefix)
    try:
        yield path
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise unwritten(error.filename or path, error, remedy) from error
    finally:
        shutil.rmtree(path, ignore_errors=True)


def create_beside(path: str, remedy: str) -> tuple[int, str]:
    """Makes a file that gets the name `path` when it is complete. Returns its descriptor, for reading and writing, and its path.

    Raises:
        grappa.Error: It cannot be made.
    """
    folder, name = os.path.split(path)
    partial = os.path.join(folder, name_beside("", name) + f".partial-{secrets.token_hex(8)}")
    with explained(path, remedy):
        return os.open(partial, NEW | os.O_RDWR, 0o666), partial


def name_beside(prefix: str, name: str) -> str:
    """The prefix and a name, or what stands for the name if that would be too long."""
    encoded = os.fsencode(name)
    return prefix + (name if len(encoded) <= OWN_NAME_BYTES_MAX else hashlib.sha256(encoded).hexdigest())


@contextmanager
def explained(path: str, remedy: str) -> Iterator[None]:
    """Makes an `OSError` an error that names the file."""
    try:
        yield
    except OSError as error:
        raise unwritten(path, error, remedy) from error


def unwritten(path: str, error: OSError, remedy: str) -> Error:
    """The error for a file that cannot be made or written."""
    return Error(f"{path}: this cannot be written: {error.strerror or error}; {remedy}")


def _is_at(descriptor: int, path: str) -> bool:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _try(remove: Any, *arguments: Any, **options: Any) -> None:
    """Removes a file or folder, unless it is gone or not ours to remove."""
    try:
        remove(*arguments, **options)
    except OSError:
        pass
