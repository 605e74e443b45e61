"""The partitions that a process serves, of several that train together."""

from __future__ import annotations

from typing import Any, get_args

from ._types import Correction, FirstHop, Halo
from .arguments import flag, integer
from .ranks import local_world_size, place

HALO_MODES = get_args(Halo)
CORRECTIONS = get_args(Correction)
FIRST_HOPS = get_args(FirstHop)[1:]


def partition_options(
    partitions: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    repartition_every: int | None = None,
    halo: Halo = "auto",
    halo_neighbors: int | None = None,
    correction: Correction = "none",
    shrinkage: float | None = None,
    first_hop: FirstHop = "sampled",
    distributed: bool | None = None,
) -> dict[str, Any]:
    """The options of `NeighborLoader` about partitions and the first hop, checked and complete."""
    distributed = None if distributed is None else flag("distributed", distributed)
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
    if distributed and partitions is not None:
        raise ValueError(
            f"distributed={distributed!r} and partitions={partitions!r}: partitions divide their seeds among the ranks; give one of them"
        )
    if partitions is None:
        of_partitions = {name: value for name, value in given.items() if not distributed or name not in ("rank", "world_size")}
        if of_partitions:
            names = " and ".join(f"{name}={value!r}" for name, value in of_partitions.items())
            other = ", distributed=True to divide the seeds of the whole graph" if set(of_partitions) <= {"rank", "world_size"} else ""
            raise ValueError(f"{names} without partitions=...: give the number of partitions{other}, or leave these out")
    rank, world_size = place(rank, world_size) if distributed or partitions is not None else (0, 1)
    if halo not in HALO_MODES:
        raise ValueError(f"halo={halo!r}: give one of {', '.join(map(repr, HALO_MODES))}")
    if halo_neighbors is not None and halo in ("stop", "none"):
        raise ValueError(f'halo_neighbors={halo_neighbors!r} has no effect with halo={halo!r}; use halo="neighbors"')
    return {
        "partitions": 1 if partitions is None else integer("partitions", partitions, 1, bits=32),
        "rank": rank,
        "world_size": world_size,
        "divides_seeds": bool(distributed),
        "local_world_size": min(world_size, local_world_size(world_size)),
        "repartition_every": None if repartition_every is None else integer("repartition_every", repartition_every, 1),
        "halo": halo,
        "halo_neighbors": None if halo_neighbors is None else integer("halo_neighbors", halo_neighbors, 1, bits=32),
        "correction": None if correction == "none" else correction,
        "shrinkage": 1.0 if shrinkage is None else float(shrinkage),
        "first_hop": None if first_hop == "sampled" else first_hop,
    }
