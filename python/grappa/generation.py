"""Synthetic graphs of any size."""

from __future__ import annotations

import os
from typing import Any, Literal, Unpack

from ._options import GenerateOptions
from .command import run
from .store import Store


def generate(
    model: Literal["rmat", "er", "sbm"],
    *,
    out: str | os.PathLike[str],
    progress: bool = False,
    **options: Unpack[GenerateOptions],
) -> Store | dict[str, Any]:
    """Generates a graph straight into a store, and opens it.

    Options are as in ``grappa-gen MODEL --help``, with ``_`` for ``-``. The same options and seed give the same graph on any
    machine.

    Args:
        model: ``"rmat"`` (skewed degrees), ``"er"`` (all edges have the same probability) or ``"sbm"`` (classes with labels,
            features and splits).
        out: Folder of the new store.
        progress: Whether to show a progress bar (needs tqdm).
        **options: ``scale=20`` or ``nodes=1_000_000``, ``edge_factor=16``, ``classes=16``, ``feature_dim=64``, ``seed=0``,
            ``memory="2GiB"``, and so on.

    Returns:
        The store. ``store.ingested`` has its size and the time. With ``as_="tsv"`` or ``as_="npy"``, this summary alone; its
        ``"files"`` are the paths of the edges and of what nodes have.

    Raises:
        ValueError: An option is unknown or has an impossible value.
        grappa.Error: There is something at `out`, or the disk is too small.

    Example:
        >>> store = grappa.generate("sbm", nodes=1000, classes=4, feature_dim=8, out=folder / "sbm.grappa")
        >>> store.num_nodes, store.num_classes, store.num_features
        (1000, 4, 8)
    """
    given: dict[str, Any] = {"out": out, **options}
    summary: dict[str, Any] = run("grappa-gen", model, options=given, progress=progress)
    if (given.get("as_") or given.get("as") or "store") != "store":
        return summary
    store = Store(out)
    store.ingested = summary
    return store
