"""Times of seeds: neighborhoods without edges from after the moment of a prediction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from ._types import TimeHops, TimeStrategy
from .arguments import choice, flag, integer
from .columns import array_of
from .command import warn
from .graph import Graph, NodeType
from .store import Store

#: NumPy's units of time, by the names that stores have for them.
UNITS = {"s": "s", "ms": "ms", "us": "us", "ns": "ns", "days": "D"}
#: What takes no part in batches at a time, and why.
WITHOUT_TIMES = {
    "by_weight": "draws by edge weight do not know times",
    "first_hop": "pre-aggregated features have all edges, also later ones",
    "layout": "induced edges may be later than the seeds",
}


def is_timed(graph: Store | Graph) -> bool:
    """Whether a graph has times of edges or of nodes, by which batches can be limited."""
    return any(_timed_relations(graph)) or _nodes_are_timed(graph)


def _nodes_are_timed(graph: Store | Graph) -> bool:
    """Whether nodes of some type have times."""
    if isinstance(graph, Graph):
        return any(graph[node_type].has_node_times for node_type in graph.node_types)
    return graph.has_node_times


def relation_is_timed(graph: Store | Graph, number: int) -> bool:
    """Whether the edges of a relation have times."""
    return _timed_relations(graph)[number]


def _timed_relations(graph: Store | Graph) -> list[bool]:
    """Whether the edges of each relation have times."""
    if isinstance(graph, Graph):
        return [graph[edge_type].has_edge_times for edge_type in graph.edge_types]
    return [graph.has_edge_times]


def time_unit(graph: Store | Graph) -> str:
    """The unit of the times of a graph, one of ``"integer"``, ``"days"``, ``"s"``, ``"ms"``, ``"us"`` and ``"ns"``: all have the same."""
    return next(unit for unit in _units(graph) if unit is not None)


def _units(graph: Store | Graph) -> Sequence[str | None]:
    """The units of the times of relations and of nodes."""
    return graph._graph.time_units if isinstance(graph, Graph) else [graph._store.time_unit]


def require_times(graph: Store | Graph, name: str) -> None:
    """Fails if an argument asks for times, and the graph has none.

    Raises:
        ValueError: It does.
    """
    if not is_timed(graph):
        raise ValueError(f"{name}: the edges of {os.fspath(graph.path)} have no times; ingest them with time=..., or leave {name} out")


def time_options(
    seeds_by: str | None, argument: str, time_equal: bool, time_hops: TimeHops, time_window: int | None, strategy: tuple[str, TimeStrategy]
) -> dict[str, Any] | None:
    """The limits of draws by time. None if seeds have no times.

    Args:
        seeds_by: The argument that gives seeds their times; None if none does.
        argument: The argument that could.
        strategy: The name of the argument, and its value.

    Raises:
        ValueError: A value is impossible, or has no effect.
    """
    strategy_name, time_strategy = strategy
    options = {
        "equal": flag("time_equal", time_equal),
        "hops": choice("time_hops", time_hops, get_args(TimeHops)),
        "window": None if time_window is None else integer("time_window", time_window, 0, bits=63),
        "strategy": choice(strategy_name, time_strategy, get_args(TimeStrategy)),
    }
    if seeds_by is not None:
        return options
    defaults = {"time_equal": time_equal is True, "time_hops": time_hops == "seed", "time_window": time_window is None}
    defaults[strategy_name] = time_strategy == "uniform"
    changed = next((name for name, is_default in defaults.items() if not is_default), None)
    if changed is not None:
        raise ValueError(f"{changed}: seeds have no times; give {argument}=..., or leave {changed} out")
    return None


def is_own(times: Any) -> bool:
    """Whether each seed has the time of its node."""
    return times is None or isinstance(times, str) and times == "own"


def own_times(nodes: Store | NodeType, numbers: np.ndarray | None, noun: str) -> np.ndarray:
    """The times of some nodes; of all for None. `noun` is their name in errors.

    Raises:
        ValueError: They have none.
    """
    if not nodes.has_node_times:
        raise ValueError(f'input_time="own": {noun} have no times; give input_time=..., or leave it out')
    return nodes.node_times[np.arange(nodes.num_nodes) if numbers is None else numbers]


def require_limits(timed_by: str, argument: str, options: Mapping[str, Any]) -> None:
    """Fails if another argument would show what is later than the seeds.

    Args:
        timed_by: What gives seeds their times.
        argument: The argument that could leave the times out.
        options: Whether each of the other arguments is used.

    Raises:
        ValueError: It would.
    """
    wrong = next((name for name, is_given in options.items() if is_given), None)
    if wrong is not None:
        raise ValueError(f'{wrong} and {timed_by}: {WITHOUT_TIMES[wrong]}; leave out {wrong}, or give {argument}="none"')


def times_of(value: Any, name: str, count: int, unit: str, items: str) -> np.ndarray:
    """Times as integers in the unit of a store: one for all, or one for each of `count` items.

    Args:
        value: Integers, or dates of NumPy, pandas, Polars or Arrow.
        name: The argument, in errors.
        items: What has times, in errors.

    Raises:
        TypeError: These are no times.
        ValueError: There are not as many times as items, or a time is not whole in the unit.
    """
    times = array_of(value, name, by_row=True)
    if times.dtype == object:
        times = _of_objects(times, name)
    if times.dtype.kind == "M":
        times = _in_unit(times, name, unit)
    elif times.size and times.dtype.kind not in "iu":
        raise TypeError(
            f"{name} is an array of {times.dtype}; times are integers in the unit of the store, {unit}: give {name}.astype(np.int64), "
            "or dates of NumPy"
        )
    elif times.dtype.kind == "u" and times.size and times.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name} has {times.max()}, and times are below 2**63")
    if times.ndim == 0:
        return np.full(count, times, np.int64)
    if times.shape != (count,):
        raise ValueError(f"{name} has shape {times.shape}, and there are {count} {items}; give a time for each, or one for all")
    return np.ascontiguousarray(times, np.int64)


def _of_objects(times: np.ndarray, name: str) -> np.ndarray:
    """Dates of Python or pandas."""
    try:
        return times.astype("datetime64[us]")
    except (TypeError, ValueError):
        raise TypeError(f"{name} has values such as {times.flat[0]!r}; give integers, or dates of NumPy") from None


def _in_unit(times: np.ndarray, name: str, unit: str) -> np.ndarray:
    if unit not in UNITS:
        raise TypeError(
            f"{name} has dates, and the times of the store are integers without a unit; give integers, or ingest with time_unit=..."
        )
    if np.isnat(times).any():
        raise ValueError(f"{name} has missing dates; give each seed a time")
    whole = times.astype(f"datetime64[{UNITS[unit]}]")
    if not bool((whole == times).all()):
        raise ValueError(
            f"{name} has {times[whole != times].flat[0] if times.ndim else times}, which is not whole in the unit of the store, {unit}; "
            f'round it: {name}.astype("datetime64[{UNITS[unit]}]")'
        )
    return whole.astype(np.int64)


def warn_of_times(graph: Store | Graph, argument: str) -> None:
    """A warning that a loader ignores the times of a graph, if it has some."""
    if is_timed(graph):
        timed = "edges" if any(_timed_relations(graph)) else "nodes"
        warn(
            f"{os.fspath(graph.path)}: the {timed} have times, and the seeds of this loader have none: batches have edges that are later "
            f"than what they predict. Give {argument}=..., or load a store of the earlier events"
        )
