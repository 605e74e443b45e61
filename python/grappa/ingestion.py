"""Ingest: files and arrays in, a store out."""

import json
import os
import tempfile

import numpy as np

from . import _grappa
from .store import Store

#: Options that take arrays as well as files.
ARRAYS = ("edges", "features", "labels", "node_ids", "weights", "train", "val", "test")


def ingest(edges=None, *, out, progress=False, **options):
    """Builds a store, and opens it.

    Options are those of ``grappa-ingest --help``, with ``_`` for ``-``: ``undirected=True``, ``split="60/20/20"``,
    ``memory="2GiB"``. A list gives an option several values.

    Args:
        edges: Files or folders with edges, or an integer array of shape (E, 2) or (2, E): source, destination.
        out: Folder of the new store.
        progress: Whether to show a progress bar (needs tqdm).
        **options: ``features``, ``labels``, ``node_ids``, ``weights``, ``train``, ``val`` and ``test`` are files or arrays;
            ``labels`` has shape (N,) or (N, C), ``features`` (N, D).

    Returns:
        The store. ``store.ingested`` says how the input was read.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        grappa.Error: The input cannot be read, or contradicts itself. The message names the place and a remedy.

    Example:
        >>> ring = np.stack([np.arange(10), (np.arange(10) + 1) % 10], axis=1)
        >>> store = grappa.ingest(ring, out=folder / "ring.grappa", undirected=True)
        >>> store.num_nodes, store.num_edges
        (10, 20)
    """
    if edges is not None:
        options["edges"] = edges
    folder = os.path.dirname(os.path.abspath(out))
    with tempfile.TemporaryDirectory(prefix=".grappa-arrays-", dir=folder) as scratch:
        arguments = ["--out", os.fspath(out)]
        for name, value in options.items():
            arguments += _arguments(name, value, scratch)
        with _Bar(progress) as bar:
            summary = _grappa.ingest(arguments, bar.report)
    store = Store(out)
    store.ingested = json.loads(summary)
    return store


def _arguments(name, value, scratch):
    """The arguments of an option."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if name in ARRAYS and _is_array(value):
        path = os.path.join(scratch, name + ".npy")
        np.save(path, _as_numpy(value))
        return [flag, path]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [flag, *(os.fspath(item) if isinstance(item, os.PathLike) else str(item) for item in values)]


def _is_array(value):
    return hasattr(value, "__array__") and not isinstance(value, (str, bytes))


def _as_numpy(value):
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype == object:
        raise TypeError("an array of Python objects has no type of its own; convert it, for example with .astype(np.int64)")
    return array


class _Bar:
    """A progress bar of tqdm, or none."""

    def __init__(self, shown):
        self.stage = None
        self.bar = None
        self.report = self._report if shown else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bar is not None:
            self.bar.close()

    def _report(self, stage, done, total):
        if stage != self.stage:
            self.__exit__()
            from tqdm.auto import tqdm

            self.stage = stage
            self.bar = tqdm(total=total, desc=stage, unit="B", unit_scale=True)
        self.bar.update(done - self.bar.n)
