"""Times of edges and nodes in memory: arrays become tables, whose columns the engine reads times from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import array_of
from .optional import needed
from .whole_graphs import EdgeIndex, is_sparse

#: The columns of such tables.
SOURCE, TARGET, TIME, ID = "source", "target", "time", "id"
#: NumPy's units that Arrow has no column for, and the ones that take their place.
COARSE = {"Y": "D", "M": "D", "W": "D", "h": "s", "m": "s"}


@dataclass(frozen=True)
class Column:
    """A column of integers, or of dates in a unit of NumPy."""

    name: str
    values: np.ndarray
    unit: str | None = None


@dataclass(frozen=True)
class Columns:
    """A table of such columns, which needs no PyArrow."""

    columns: list[Column]


def with_times(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with edges that are an array and their times as one table. Other edges have a column of times.

    Raises:
        TypeError: Times are given in another form than edges have.
        ValueError: There are not as many times as edges.
    """
    time, edges = options.get("time"), options.get("edges")
    if time is None:
        return options
    ends = ends_of(edges)
    if ends is None:
        if not isinstance(time, str):
            raise TypeError(
                f"time is {_described(time)}, and edges is no array; give the name of a column of edges, such as time=\"at\""
            )
        return options
    if isinstance(time, str):
        raise TypeError(f"time={time!r} names a column, and edges is an array; give an array with the time of each edge")
    for name in ("val_edges", "test_edges"):
        if options.get(name) is not None:
            raise ValueError(f"{name} and an array of times: edges that are held out need times too; give tables with a column of times")
    return {**options, "edges": timed_table(*ends, time, "time"), "time": TIME}


def timed_table(sources: Any, targets: Any, time: Any, name: str) -> Any:
    """A table of edges and their times.

    Args:
        time: Integers or dates, one for each edge.
        name: The name of the times in errors.
    """
    ends = [np.ascontiguousarray(array_of(end, "edges")) for end in (sources, targets)]
    times = _exact(time, name, len(ends[0]), "edge")
    if all(_fits_int64(end) for end in ends):
        return Columns([_integers(SOURCE, ends[0]), _integers(TARGET, ends[1]), _times(times, name)])
    pa = needed("pyarrow", "edges between ids that are no integers, with times")
    return pa.table({SOURCE: ends[0], TARGET: ends[1], TIME: pa.array(times)})


def node_table(time: Any, name: str, count: int) -> Any:
    """A table of the numbers of nodes and their times.

    Args:
        time: Integers or dates, one for each node.
        name: The name of the times in errors.
    """
    return Columns([_integers(ID, np.arange(count)), _times(_exact(time, name, count, "node"), name)])


def _fits_int64(array: np.ndarray) -> bool:
    return array.dtype.kind in "iu" and (array.dtype != np.uint64 or not array.size or array.max() <= np.iinfo(np.int64).max)


def _integers(name: str, array: np.ndarray) -> Column:
    return Column(name, np.ascontiguousarray(array, np.int64))


def _times(times: np.ndarray, name: str) -> Column:
    """The column of times. `name` is their name in errors.

    Raises:
        TypeError: They are no integers or dates.
        ValueError: Some are missing, or exceed 64 bits.
    """
    if times.dtype == object:
        times = _of_objects(times, name)
    if times.dtype.kind == "M":
        if np.isnat(times).any():
            raise ValueError(f"{name} has missing dates; leave out what has none")
        return Column(TIME, np.ascontiguousarray(times).view(np.int64), np.datetime_data(times.dtype)[0])
    if not _fits_int64(times):
        raise ValueError(f"{name} has {times.max()}, and times are below 2**63")
    return _integers(TIME, times)


def _of_objects(times: np.ndarray, name: str) -> np.ndarray:
    """Integers or dates of Python or pandas."""
    try:
        if all(isinstance(time, (int, np.integer)) and not isinstance(time, bool) for time in times):
            return times.astype(np.int64)
        if any(time is None for time in times):
            raise ValueError(f"{name} has missing dates; leave out what has none")
        return times.astype("datetime64[us]")
    except (TypeError, OverflowError):
        raise TypeError(f"{name} has values such as {times.flat[0]!r}; give integers, or dates of NumPy") from None


def _exact(time: Any, name: str, count: int, item: str) -> np.ndarray:
    """Times that a store keeps exactly, one for each of `count` items.

    Raises:
        TypeError: They are no integers or dates.
        ValueError: There are not as many times as items.
    """
    if hasattr(time, "detach"):
        time = time.detach().cpu().numpy()
    times = array_of(time, name, by_row=True)
    if times.ndim == 2 and times.shape[1] == 1:
        times = times[:, 0]
    if times.shape != (count,):
        raise ValueError(f"{name} has shape {times.shape}, and there are {count} {item}s; give a time for each {item}")
    if times.dtype.kind == "f":
        raise TypeError(
            f"{name} is an array of {times.dtype}, and times are exact integers; give {name}.astype(np.int64), or a smaller unit, such as "
            f"({name} * 1000).astype(np.int64) with time_unit=\"ms\""
        )
    if times.dtype.kind not in "iuMO":
        raise TypeError(f"{name} is an array of {times.dtype}; give integers, or dates such as numpy.datetime64")
    if times.dtype.kind == "M":
        times = times.astype(f"datetime64[{COARSE.get(np.datetime_data(times.dtype)[0], np.datetime_data(times.dtype)[0])}]")
    return times


def ends_of(edges: Any) -> tuple[Any, Any] | None:
    """The sources and targets of edges that are an array; None of other edges."""
    is_edge_index = isinstance(edges, EdgeIndex)
    if is_edge_index:
        edges = edges.array
    is_tensor = hasattr(edges, "detach") and not is_sparse(edges)
    if not (is_edge_index or is_tensor or isinstance(edges, np.ndarray)):
        return None
    array = array_of(edges, "edges")
    if array.ndim != 2 or 2 not in array.shape or array.dtype.names:
        return None
    by_row = is_edge_index or is_tensor or array.shape[1] != 2
    sources, targets = array if by_row else array.T
    return sources, targets


def _described(value: Any) -> str:
    return f"an array of shape {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"
