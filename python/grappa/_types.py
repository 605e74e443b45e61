"""Types of arguments that several functions have."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Literal, Sequence, TypeAlias, TypedDict

if TYPE_CHECKING:
    import numpy.typing
    import torch

    from .embedding import Embedding
    from .store import Store

#: A store, or the path of one.
StoreLike: TypeAlias = "Store | str | os.PathLike[str]"
#: Numbers: an array, a tensor, a list, or a column of pandas, Polars or Arrow.
Numbers: TypeAlias = "numpy.typing.ArrayLike | torch.Tensor"
#: Nodes: their numbers, a mask over all nodes, a slice, or the name of a split.
Nodes: TypeAlias = "Numbers | slice | str | None"
#: Times: integers in the unit of the store, or dates. One for all, or one for each.
Times: TypeAlias = "Numbers | int | Any"
#: Edges: sources and destinations, of shape (2, e), or the name of a split of edges.
Links: TypeAlias = "Numbers | tuple[Numbers, Numbers] | str | None"

#: In-neighbors that each hop draws per node, from the seeds outwards; -1 takes all.
Fanouts = Sequence[int] | int
#: A device of PyTorch.
Device = Any
Layout = Literal["hops", "blocks", "induced"]
Halo = Literal["auto", "neighbors", "stop", "none"]
Correction = Literal["none", "batch", "node"]
FirstHop = Literal["sampled", "mean", "sum", "gcn", "weighted-mean", "weighted-sum", "weighted-gcn"]
LabelScope = Literal["seeds", "all"]
TimeHops = Literal["seed", "edge"]
TimeStrategy = Literal["uniform", "last"]
Exclusion = Literal["both", "forward", "none"]


class LoaderOptions(TypedDict, total=False):
    """The arguments of `grappa.NeighborLoader` that `grappa.LinkNeighborLoader` passes on."""

    memory: int | str | None
    shuffle: bool | None
    sampler: Iterable[int] | None
    batch_sampler: Iterable[Sequence[int]] | None
    replace: bool
    seed: int
    threads: int | None
    features: bool
    by_weight: bool
    edge_weights: bool | None
    edge_features: bool | None
    layout: Layout
    disjoint: bool
    full_batches: bool
    drop_last: bool
    device: Device
    pin_memory: bool
    num_workers: int
    distributed: bool | None
    partitions: int | None
    rank: int | None
    world_size: int | None
    repartition_every: int | None
    halo: Halo
    halo_neighbors: int | None
    correction: Correction
    shrinkage: float | None
    first_hop: FirstHop
    embeddings: Embedding | Sequence[Embedding] | None
    time_equal: bool
    time_hops: TimeHops
    time_window: int | None
    time_strategy: TimeStrategy
