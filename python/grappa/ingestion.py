"""Ingest: files and arrays in, a store out."""

import os
import tempfile

import numpy as np

from .command import run
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
        for name in ARRAYS:
            if _is_array(options.get(name)):
                path = os.path.join(scratch, name + ".npy")
                np.save(path, _as_numpy(options[name]))
                options[name] = path
        summary = run("grappa-ingest", options={"out": out, **options}, progress=progress)
    store = Store(out)
    store.ingested = summary
    return store


def _is_array(value):
    return hasattr(value, "__array__") and not isinstance(value, (str, bytes))


def _as_numpy(value):
    array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    if array.dtype == object:
        raise TypeError("an array of Python objects has no type of its own; convert it, for example with .astype(np.int64)")
    return array
