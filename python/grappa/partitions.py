"""The partitions that a process serves, of several that train together."""

import operator
import os
import sys

HALO_MODES = ("auto", "neighbors", "stop", "none")
CORRECTIONS = ("none", "batch", "node")
FIRST_HOPS = ("mean", "sum", "gcn", "weighted-mean", "weighted-sum", "weighted-gcn")


def partition_options(
    partitions=None,
    rank=None,
    world_size=None,
    repartition_every=None,
    halo="auto",
    halo_neighbors=None,
    correction="none",
    shrinkage=None,
    first_hop="sampled",
) -> dict:
    """The options of `NeighborLoader` about partitions and the first hop, checked and complete."""
    if first_hop not in ("sampled", *FIRST_HOPS):
        raise ValueError(f"first_hop={first_hop!r}: give one of 'sampled', {', '.join(map(repr, FIRST_HOPS))}")
    if correction not in CORRECTIONS:
        raise ValueError(f"correction={correction!r}: give one of {', '.join(map(repr, CORRECTIONS))}")
    if shrinkage is not None and correction == "none":
        raise ValueError(f'shrinkage={shrinkage!r} has no effect with correction="none"; give "batch" or "node"')
    if shrinkage is not None and not 0 <= shrinkage <= 1:
        raise ValueError(f"shrinkage={shrinkage!r}: give 0 (no correction) to 1 (full)")
    given = {
        "rank": rank,
        "world_size": world_size,
        "repartition_every": repartition_every,
        "halo": None if halo == "auto" else halo,
        "halo_neighbors": halo_neighbors,
        "correction": None if correction == "none" else correction,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if partitions is None:
        if given:
            names = " and ".join(f"{name}={value!r}" for name, value in given.items())
            raise ValueError(f"{names} without partitions=...: give the number of partitions, or leave these out")
        rank, world_size = 0, 1
    else:
        rank, world_size = _place(rank, world_size)
    if halo not in HALO_MODES:
        raise ValueError(f"halo={halo!r}: give one of {', '.join(map(repr, HALO_MODES))}")
    if halo_neighbors is not None and halo in ("stop", "none"):
        raise ValueError(f'halo_neighbors={halo_neighbors!r} has no effect with halo={halo!r}; use halo="neighbors"')
    return {
        "partitions": 1 if partitions is None else _at_least(1, "partitions", partitions),
        "rank": rank,
        "world_size": world_size,
        "local_world_size": min(world_size, _local_world_size(world_size)),
        "repartition_every": None if repartition_every is None else _at_least(1, "repartition_every", repartition_every),
        "halo": halo,
        "halo_neighbors": None if halo_neighbors is None else _at_least(1, "halo_neighbors", halo_neighbors),
        "correction": None if correction == "none" else correction,
        "shrinkage": 1.0 if shrinkage is None else float(shrinkage),
        "first_hop": None if first_hop == "sampled" else first_hop,
    }


def _place(rank, world_size) -> tuple[int, int]:
    """This process and the number of processes: as given, or as `torch.distributed` has them, or one alone."""
    if rank is None and world_size is None:
        # A program without torch.distributed does not load it.
        distributed = sys.modules.get("torch.distributed")
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1
    if rank is None or world_size is None:
        raise ValueError(f"rank={rank!r} and world_size={world_size!r}: give both, or neither")
    rank, world_size = _at_least(0, "rank", rank), _at_least(1, "world_size", world_size)
    if rank >= world_size:
        raise ValueError(f"rank={rank} and world_size={world_size}: ranks are 0 to {world_size - 1}")
    return rank, world_size


def _local_world_size(world_size) -> int:
    """The processes of this machine, as torchrun tells them. Otherwise all are on this machine."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    except ValueError:
        return world_size


def _at_least(least, name, value) -> int:
    number = operator.index(value)
    if number < least:
        raise ValueError(f"{name}={value!r}; give at least {least}")
    return number
