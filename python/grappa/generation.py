"""Synthetic graphs of any size."""

from __future__ import annotations

import os
from typing import Any, Literal, Unpack, overload

from ._options import GenerateGraphOptions, GenerateOptions
from .command import run
from .graph import Graph
from .store import Store


@overload
def generate(
    model: Literal["typed"], *, out: str | os.PathLike[str], progress: bool = False, **options: Unpack[GenerateGraphOptions]
) -> Graph: ...
@overload
def generate(
    model: Literal["rmat", "er", "sbm"], *, out: str | os.PathLike[str], progress: bool = False, **options: Unpack[GenerateOptions]
) -> Store | dict[str, Any]: ...
def generate(
    model: Literal["rmat", "er", "sbm", "typed"], *, out: str | os.PathLike[str], progress: bool = False, **options: Any
) -> Store | Graph | dict[str, Any]:
    """Generates a graph straight into a store, and opens it.

    Options are as in ``grappa-gen MODEL --help``, with ``_`` for ``-``. The same options and seed give the same graph on any
    machine.

    Args:
        model: ``"rmat"`` (skewed degrees), ``"er"`` (all edges have the same probability), ``"sbm"`` (classes with labels,
            features and splits) or ``"typed"`` (several node types and relations).
        out: Folder of the new store.
        progress: Whether to show a progress bar (needs tqdm).
        **options: ``scale=20`` or ``nodes=1_000_000``, ``edge_factor=16``, ``classes=16``, ``feature_dim=64``, ``seed=0``,
            ``memory="2GiB"``, and so on. With ``"typed"``, numbers by type and relation: ``nodes={"user": 1000}``,
            ``edges={("user", "buys", "item"): 5000}``, ``feature_dim={"item": 64}``, ``classes={"item": 10}``.

    Returns:
        The store; with ``"typed"``, the `Graph`. ``store.ingested`` has its size and the time. With ``as_="tsv"`` or ``as_="npy"``,
        this summary alone; its ``"files"`` are the paths of the edges and of what nodes have.

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
    store: Store | Graph = Graph(out) if model == "typed" else Store(out)
    store.ingested = summary
    return store
