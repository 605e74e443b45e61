"""Rows of learned embeddings on disk.

A folder has generations, each in a folder of its own::

    generation-00000001/
        header.json    the graph, the node type and the shape that the rows belong to, and a checksum of each other file
        values.npy     rows: shape (num_nodes, dim), float32
        first.npy      first moments of Adam, as values
        second.npy     second moments of Adam, as values
        updates.npy    updates of each row: shape (num_nodes,), int64

Rows that were never trained have no moments and updates. A generation is complete when it has its name, and is never modified. Training
changes a copy in files without names, which the first step makes and which go away with the process. So a kill leaves all generations as
they were.
"""

from __future__ import annotations

import errno
import fcntl
import io
import json
import math
import mmap
import os
import re
import secrets
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, Any, NamedTuple

import numpy as np
import torch

from ._grappa import Error
from .temporary import NEW, explained

FORMAT = "grappa embedding"
VERSION = 1
#: Bytes that are copied at once.
PIECE = 8 << 20
REMEDY = "give path=... a folder with free space"
_GENERATION = re.compile(r"generation-(\d{8,})")
_UNFINISHED = re.compile(r"generation-\d{8,}\.partial-[0-9a-f]+")


class Table(NamedTuple):
    """Rows with the state of their optimizer."""

    #: Shape (num_nodes, dim), float32.
    values: torch.Tensor
    #: First moments, of the same shape.
    first: torch.Tensor
    #: Second moments, of the same shape.
    second: torch.Tensor
    #: Updates of each row: shape (num_nodes,), int64.
    updates: torch.Tensor


class Owner(NamedTuple):
    """What rows belong to."""

    #: The digest of the graph.
    graph: str
    node_type: str
    num_nodes: int
    dim: int


class _Part(NamedTuple):
    """A part of a table, as a file in NumPy's format has it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def header(self) -> bytes:
        file = io.BytesIO()
        described = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, described)
        return file.getvalue()

    def file_bytes(self) -> int:
        return len(self.header()) + self.dtype.itemsize * math.prod(self.shape)


class Generations:
    """The rows of a folder, open for reading, and for training once `train` was called.

    Args:
        folder: The folder. It is made if it is missing.
        owner: What the rows belong to.
        generation: The number of the generation to open. Default: the newest one.
        initial: The rows of a folder that has none, in blocks.

    Raises:
        grappa.Error: The folder has rows of something else, no such generation, or other files, or cannot be written.
    """

    def __init__(self, folder: str, owner: Owner, generation: int | None, initial: Iterable[np.ndarray]):
        self.folder, self.owner = folder, owner
        shape = owner.num_nodes, owner.dim
        values = [_Part(name, shape, np.dtype("<f4")) for name in ("values", "first", "second")]
        self._parts = [*values, _Part("updates", shape[:1], np.dtype("<i8"))]
        with explained(folder, "give another path="):
            os.makedirs(folder, exist_ok=True)
            others = [name for name in os.listdir(folder) if not _UNFINISHED.fullmatch(name)]
        found = self._found()
        if others and not found:
            raise Error(f"{folder} has files, and no rows of an embedding; give path=... a new or an empty folder")
        if not found and generation is None:
            header = self._parts[0].header()
            self._write(1, {"values": (piece for part in ([header], initial) for piece in part)})
            found = [1]
        if generation is not None and generation not in found:
            raise Error(f"generation={generation}: {folder} has the generations {found}; give one of them, or leave it out")
        #: The generation that was opened or saved last.
        self.number = found[-1] if generation is None else generation
        self._checksums: dict[str, int] = self._header()["checksums"]
        self._files: dict[str, IO[bytes]] | None = None
        #: Gives others the right to train these rows, if this process has it.
        self._release: weakref.finalize[Any, Any] | None = None
        self._has_changes = False
        self._table: Table | None = Table(*map(self._read, self._parts))

    @property
    def table(self) -> Table:
        """The table for reading.

        Raises:
            ValueError: It is closed.
        """
        if self._table is None:
            raise ValueError(f"the embedding of {self.folder} is closed; open it again with grappa.Embedding(..., path=...)")
        return self._table

    def train(self) -> Table:
        """The table to change.

        Raises:
            grappa.Error: There is no space for a copy, another process trains these rows, or they are damaged.
        """
        table = self.table
        if self._files is None:
            self._take()
            files = {part.name: self._copied(part) for part in self._parts}
            table = self._table = Table(*(_mapped(part, files[part.name]) for part in self._parts))
            self._files = files
        self._has_changes = True
        return table

    def save(self, keep: int | None) -> int:
        """Writes the rows as a new generation if they have changed, and removes all but the newest `keep`. Returns the number of the
        generation that has the rows.

        Raises:
            grappa.Error: It cannot be written.
        """
        if self._files is None or not self._has_changes:
            return self.number
        number = self._found()[-1] + 1
        self._checksums = self._write(number, {name: _pieces(file) for name, file in self._files.items()})
        self.number, self._has_changes = number, False
        for old in self._found()[: 0 if keep is None else -keep]:
            # It loses its name first, so a name means that all files are there.
            unnamed = _unfinished(self._path(old))
            os.rename(self._path(old), unnamed)
            shutil.rmtree(unnamed)
        return number

    def close(self) -> None:
        """Lets go of all files."""
        for file in (self._files or {}).values():
            file.close()
        if self._release is not None:
            self._release()
        self._files = self._release = self._table = None

    def _found(self) -> list[int]:
        matches = (_GENERATION.fullmatch(name) for name in os.listdir(self.folder))
        return sorted(int(match[1]) for match in matches if match)

    def _path(self, number: int, name: str = "") -> str:
        return os.path.join(self.folder, f"generation-{number:08}", name).rstrip(os.sep)

    def _take(self) -> None:
        """Makes this the only process that trains these rows, and removes what killed processes left."""
        if self._release is not None:
            return
        folder = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            raise Error(f"{self.folder}: another embedding trains these rows; close it first, or give another path=") from None
        self._release = weakref.finalize(self, os.close, folder)
        for name in os.listdir(self.folder):
            if _UNFINISHED.fullmatch(name):
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)

    def _header(self) -> dict[str, Any]:
        path = self._path(self.number, "header.json")
        try:
            with open(path, "rb") as file:
                header: dict[str, Any] = json.load(file)
            found = Owner(*(header[field] for field in Owner._fields))
            is_known = (header["format"], header["version"]) == (FORMAT, VERSION) and "values" in header["checksums"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise Error(f"{path}: expected the header of rows, found {error!r}; restore it from a copy, or give another path=") from error
        if not is_known:
            raise Error(f"{path}: expected {FORMAT} of version {VERSION}, found version {header['version']}; use the Grappa that wrote it")
        for field, expected, value in zip(Owner._fields, self.owner, found, strict=True):
            if value != expected:
                raise Error(
                    f"path={self.folder!r} has rows of another embedding: expected {field} {expected!r}, found {value!r}; open these rows "
                    "with the graph, node type and dim that they were made with, or give another path="
                )
        return header

    def _read(self, part: _Part) -> torch.Tensor:
        """A part of the table as the generation has it."""
        if part.name not in self._checksums:
            # No memory is behind it.
            return torch.zeros((), dtype=torch.int64 if part.dtype.kind == "i" else torch.float32).expand(part.shape)
        path = self._path(self.number, f"{part.name}.npy")
        try:
            with open(path, "rb") as file:
                return _mapped(part, file)
        except OSError as error:
            raise Error(f"{path}: this cannot be read: {error.strerror}; restore it from a copy, or give generation=... another one") from error

    def _copied(self, part: _Part) -> IO[bytes]:
        """A file without a name with a part of the generation, whose bytes are compared with their checksum."""
        with explained(self.folder, REMEDY):
            file = tempfile.TemporaryFile(dir=self.folder)
            # Reserves the space: a full disk is an error here, but would end the process at an assignment.
            os.posix_fallocate(file.fileno(), 0, part.file_bytes())
            if part.name not in self._checksums:
                _write_all(file, [part.header()])
                return file
            path = self._path(self.number, f"{part.name}.npy")
            with open(path, "rb") as source:
                checksum = _write_all(file, _pieces(source))
        if checksum != self._checksums[part.name]:
            raise Error(
                f"{path}: damaged: expected the checksum {self._checksums[part.name]}, found {checksum}; restore it from a copy, or give "
                "generation=... another one"
            )
        return file

    def _write(self, number: int, parts: dict[str, Iterable[Any]]) -> dict[str, int]:
        """Writes a generation of these bytes. Returns the checksum of each file."""
        folder = self._path(number)
        partial = _unfinished(folder)
        try:
            with explained(folder, REMEDY):
                os.mkdir(partial)
                checksums = {name: _write_new(os.path.join(partial, f"{name}.npy"), pieces) for name, pieces in parts.items()}
                header = {"format": FORMAT, "version": VERSION, **self.owner._asdict(), "checksums": checksums}
                _write_new(os.path.join(partial, "header.json"), [json.dumps(header, indent=1).encode()])
                _sync(partial)
                try:
                    os.rename(partial, folder)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
                    raise Error(f"{folder}: another process has written this generation meanwhile; open the embedding again") from None
                _sync(self.folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return checksums


def _unfinished(folder: str) -> str:
    """A name for a generation that is not complete."""
    return f"{folder}.partial-{secrets.token_hex(8)}"


def _mapped(part: _Part, file: IO[bytes]) -> torch.Tensor:
    """A part of a table on the pages of a file."""
    found = os.fstat(file.fileno()).st_size
    if found != part.file_bytes():
        raise Error(
            f"{file.name}: expected {part.file_bytes()} bytes, found {found}; restore it from a copy, or give generation=... another one"
        )
    # PyTorch wants writable arrays. A private map of a generation is one, and nothing is written to it.
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if file.writable() else mmap.ACCESS_COPY)
    # Rows are read here and there: the pages around them are of no use.
    pages.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(np.ndarray(part.shape, part.dtype, pages, len(part.header())))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    """The bytes of a file, from its begin."""
    file.seek(0)
    while piece := file.read(PIECE):
        yield piece


def _write_new(path: str, pieces: Iterable[Any]) -> int:
    """Writes a new file, which is on disk when this returns. Returns the checksum of its bytes."""
    with open(os.open(path, NEW | os.O_WRONLY, 0o666), "wb") as file:
        checksum = _write_all(file, pieces)
        os.fsync(file.fileno())
    return checksum


def _write_all(file: IO[bytes], pieces: Iterable[Any]) -> int:
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
        file.write(piece)
    file.flush()
    return checksum


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
