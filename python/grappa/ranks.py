"""The processes of `torch.distributed` that train together: which of them this is, and whether their loaders agree."""

from __future__ import annotations

import hashlib
import itertools
import os
import sys
import warnings
from datetime import timedelta
from typing import Any

from .arguments import integer

#: How long a loader waits for those of the other ranks before it says so, and before it gives up.
PATIENCE = timedelta(seconds=20)
WAIT_MAX = timedelta(minutes=5)

#: Numbers of the loaders of this process that divide their seeds or partitions among ranks.
_numbers = itertools.count()


def current() -> tuple[int, int] | None:
    """This rank and the number of ranks. None if `torch.distributed` is not initialized."""
    # A program without torch.distributed does not load it.
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def place(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """This process and the number of processes: as given, or as `torch.distributed` has them, or one alone."""
    if rank is None and world_size is None:
        ranks = current()
        if ranks is None and os.environ.get("WORLD_SIZE", "1") not in ("", "1"):
            raise ValueError(
                f"this is one of WORLD_SIZE={os.environ['WORLD_SIZE']} processes, but torch.distributed is not initialized; call "
                "torch.distributed.init_process_group before the loader is made, or give rank=... and world_size=..."
            )
        return ranks or (0, 1)
    if rank is None or world_size is None:
        raise ValueError(f"rank={rank!r} and world_size={world_size!r}: give both, or neither")
    rank, world_size = integer("rank", rank, 0, bits=32), integer("world_size", world_size, 1, bits=32)
    if rank >= world_size:
        raise ValueError(f"rank={rank} and world_size={world_size}: ranks are 0 to {world_size - 1}")
    return rank, world_size


def local_world_size(world_size: int) -> int:
    """The processes of this machine, as torchrun tells them. Otherwise all are on this machine."""
    try:
        return max(1, int(os.environ.get("LOCAL_WORLD_SIZE", world_size)))
    except ValueError:
        return world_size


class Ranks:
    """A loader as one of those that the ranks of `torch.distributed` have.

    Args:
        divides: What is divided among the ranks, in words: ``"distributed=True"`` or ``"partitions=4"``. None if nothing is.
        world_size: The number of ranks that divide it. None if the caller said which rank this is.
        may_repeat: Whether all ranks may have the same batches.
        seeds: What may be divided: names, None for all, or arrays.
        options: The options in which all ranks have to agree, by name.
    """

    def __init__(
        self,
        divides: str | None,
        world_size: int | None,
        may_repeat: bool,
        seeds: list[Any],
        options: dict[str, Any],
    ):
        self._divides, self._world_size, self._may_repeat = divides, world_size, may_repeat
        self._seeds, self._options = seeds, options
        self._is_checked = False
        checks = divides is not None and world_size is not None and world_size > 1
        self._key = f"grappa/loaders/{next(_numbers)}" if checks else None
        store, ranks = _store(), current()
        if self._key is not None and store is not None and ranks is not None:
            store.set(f"{self._key}/{ranks[0]}", self._summary())

    def check(self) -> None:
        """Checks before an epoch that no rank has the batches of another one by mistake.

        Raises:
            RuntimeError: The loader was made before `torch.distributed` was initialized, or the loaders of other ranks differ.
        """
        if self._is_checked:
            return
        rank, world_size = current() or (0, 1)
        if self._divides is not None:
            if self._world_size is not None and world_size != self._world_size:
                raise RuntimeError(
                    f"{self._divides}: this loader was made for {self._world_size} ranks, and torch.distributed has {world_size}; "
                    "make it after torch.distributed.init_process_group"
                )
            if self._key is not None:
                self._compare(rank, world_size)
            self._is_checked = True
        elif not self._may_repeat and world_size > 1 and self._is_repeated(rank, world_size):
            self._is_checked = True
            warnings.warn(
                f"all {world_size} ranks of torch.distributed get the same batches from a loader that shuffles; give "
                "distributed=True to divide the seeds among the ranks, partitions=... to divide the graph, or distributed=False "
                "if each rank is to see all seeds",
                stacklevel=3,
            )

    def _summary(self) -> str:
        options = ", ".join(f"{name}={value!r}" for name, value in self._options.items())
        return f"{_digest(self._seeds)} {options}"

    def _compare(self, rank: int, world_size: int) -> None:
        """Compares the loaders of all ranks."""
        store = _store()
        if store is None:
            return
        for other in (other for other in range(world_size) if other != rank):
            seeds, options = self._wait_for(store, other).split(" ", 1)
            own_seeds, own_options = self._summary().split(" ", 1)
            if options != own_options:
                raise RuntimeError(
                    f"{self._divides}: the loaders of the ranks differ: rank {rank} has {own_options}, and rank {other} has "
                    f"{options}; give all ranks the same"
                )
            if seeds != own_seeds:
                raise RuntimeError(
                    f"{self._divides} divides the seeds among the ranks, but ranks {rank} and {other} gave different ones; give all "
                    "ranks the same seeds and do not divide them yourself, or leave it out"
                )

    def _wait_for(self, store, other: int) -> str:
        key, waited = f"{self._key}/{other}", timedelta()
        while True:
            try:
                store.wait([key], PATIENCE)
                return store.get(key).decode()
            except RuntimeError:
                # PyTorch's errors of stores are of this type: the time is over.
                waited += PATIENCE
            if waited >= WAIT_MAX:
                raise RuntimeError(f"{self._divides}: rank {other} has made no such loader in {WAIT_MAX}; {self._remedy()}")
            if waited == PATIENCE:
                warnings.warn(f"{self._divides}: waiting for rank {other}, which has made no such loader; {self._remedy()}", stacklevel=5)

    def _remedy(self) -> str:
        return "make it in all ranks, in the same order; for one rank alone, leave it out or give rank=0, world_size=1"

    def _is_repeated(self, rank: int, world_size: int) -> bool:
        """Whether another rank has a loader with the same seeds. A later epoch finds loaders that are made meanwhile."""
        store = _store()
        is_named = not any(hasattr(value, "tobytes") for value in self._seeds)
        if is_named or store is None:
            return True
        key = f"grappa/seeds/{_digest(self._seeds)}"
        store.set(f"{key}/{rank}", "")
        return any(store.check([f"{key}/{other}"]) for other in range(world_size) if other != rank)


def _store():
    """The table that all ranks share. None if there is none."""
    if current() is None:
        return None
    get = getattr(sys.modules["torch.distributed"].distributed_c10d, "_get_default_store", None)
    return None if get is None else get()


def _digest(values: list[Any]) -> str:
    """A hash of arrays, names and None."""
    digest = hashlib.blake2b(digest_size=16)
    for value in values:
        if hasattr(value, "tobytes"):
            digest.update(f"{value.dtype} {value.shape} ".encode())
            digest.update(value.tobytes())
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()
