"""Orders of seeds that samplers of `torch.utils.data` decide."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from .columns import array_of


class Order:
    """The order of the seeds of each epoch, as a sampler gives it.

    Args:
        sampler: Gives the positions of seeds.
        batch_sampler: Gives a list of positions for each batch, instead of `sampler`.
        seeds: The number of seeds, so positions are below.
        among: The name of the argument that has them.
        batch_size: The maximum number of seeds of a batch, with `sampler`.
        drop_last: Whether a smaller last batch is left out, with `sampler`.
    """

    def __init__(self, sampler: Any, batch_sampler: Any, seeds: int, among: str, batch_size: int, drop_last: bool):
        self._name = "sampler" if batch_sampler is None else "batch_sampler"
        self._sampler = sampler if batch_sampler is None else batch_sampler
        self._seeds, self._among = seeds, among
        self._batch_size, self._drop_last = batch_size, drop_last
        if isinstance(self._sampler, Iterator) or not hasattr(self._sampler, "__iter__"):
            raise TypeError(
                f"{self._name} is a {type(self._sampler).__name__}; give an object that every epoch can iterate over, such as a "
                "list or a sampler of torch.utils.data"
            )

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        length = len(self._sampler)
        if self._name == "batch_sampler":
            return length
        return length // self._batch_size if self._drop_last else -(-length // self._batch_size)

    def draw(self) -> tuple[np.ndarray, np.ndarray | None]:
        """The positions of the seeds of an epoch, and where each batch ends among them, if a batch sampler gives these.

        Raises:
            TypeError: The sampler gives other things than positions.
            IndexError: A position is not below the number of seeds.
            ValueError: A batch has no positions.
        """
        if self._name == "sampler":
            return self._positions(self._sampler, "a position"), None
        batches = [self._positions(batch, "a list of positions") for batch in self._sampler]
        ends = np.cumsum([len(batch) for batch in batches], dtype=np.int64)
        empty = next((number for number, batch in enumerate(batches) if not len(batch)), None)
        if empty is not None:
            raise ValueError(f"batch {empty} of batch_sampler has no positions; leave such a batch out")
        return np.concatenate([np.empty(0, np.int64), *batches]), ends

    def _positions(self, values: Any, expected: str) -> np.ndarray:
        try:
            positions = _integers(values)
        except TypeError:
            found = repr(values if self._name == "batch_sampler" else next(iter(values)))
            instead = "; give lists of positions as batch_sampler" if self._name == "sampler" else ""
            raise TypeError(f"{self._name} gives {found[:80]}, and not {expected} in {self._among}{instead}") from None
        wrong = positions[(positions < 0) | (positions >= self._seeds)]
        if wrong.size:
            raise IndexError(
                f"{self._name} gives the position {wrong[0]}, and {self._among} has {self._seeds} seeds, with positions from 0; make "
                f"the sampler for {self._seeds} items"
            )
        return positions


def order_of(
    sampler: Any,
    batch_sampler: Any,
    seeds: int,
    among: str,
    *,
    batch_size: int,
    drop_last: bool,
    shuffle: bool | None,
    full_batches: bool,
    distributed: bool,
    partitions: int | None,
) -> Order | None:
    """The order that a loader's arguments ask for. None if its own options decide.

    Raises:
        ValueError: Other options decide the same thing.
    """
    if sampler is None and batch_sampler is None:
        return None
    name = "sampler" if batch_sampler is None else "batch_sampler"
    others = {"shuffle=True": bool(shuffle)}
    if batch_sampler is not None:
        others |= {
            "sampler": sampler is not None,
            f"batch_size={batch_size}": batch_size != 1,
            "drop_last=True": drop_last,
            "full_batches=True": full_batches,
        }
    both = [option for option, is_given in others.items() if is_given]
    if both:
        decides = "the order of seeds" if batch_sampler is None else "the batches"
        raise ValueError(f"{name} and {both[0]}: {name} decides {decides}; leave out {both[0].partition('=')[0]}")
    if distributed:
        raise ValueError(
            f"distributed=True and {name}: {name} decides which seeds a rank has; leave out distributed, and give each rank a sampler "
            f"of its part, such as torch.utils.data.DistributedSampler(range({seeds}))"
        )
    if partitions is not None:
        raise ValueError(
            f"partitions={partitions} and {name}: partitions divide their seeds themselves; leave out partitions, or {name}"
        )
    return Order(sampler, batch_sampler, seeds, among, batch_size, drop_last)


def _integers(values: Any) -> np.ndarray:
    if not hasattr(values, "dtype"):
        return np.fromiter(map(_position, values), np.int64)
    array = array_of(values, "positions")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError
    return np.ascontiguousarray(array, np.int64)


def _position(value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return operator.index(value)
