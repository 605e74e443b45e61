"""Temporary files and folders.

Others may be able to write where a temporary file is made, and know its name. So each file is new and private, no link is followed, and
nothing is removed but what was made here. Whatever else has the name of a folder is an error that names it."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
import tempfile
from contextlib import contextmanager
from typing import Iterator

from ._grappa import Error

#: New files: never one that exists, never the target of a link.
NEW = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Bytes of a name that may have more before and after it: file systems allow 255.
OWN_NAME_BYTES_MAX = 200
#: What a full disk answers. NumPy has no number for it.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, None)
#: What gives temporary files another folder.
REMEDY = "set the environment variable TMPDIR to a folder with free space"


@contextmanager
def private_folder(prefix: str, beside: str | None = None, remedy: str = REMEDY) -> Iterator[str]:
    """A new folder among the temporary files of the system, or in the folder `beside`, which is removed with all that is in it.

    Raises:
        grappa.Error: The disk is full.
    """
    with explained(beside or tempfile.gettempdir(), remedy):
        path = tempfile.mkdtemp(prefix=prefix, dir=beside)
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
