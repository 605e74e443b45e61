"""Graphs with types in memory as inputs of ingest, and what PyTorch Geometric has in a `HeteroData`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import _grappa
from .arguments import choice, flag, integer
from .command import _Bar, tell_warnings, warn
from .edge_times import TIME, node_table, timed_table
from .graph import EdgeType, Graph
from .inputs import Array, Data, _Option, _value
from .loader import _bytes
from .typed import relation_named
from .whole_graphs import EdgeIndex

#: Attributes of node types and of relations, and the options that they are.
OF_NODES = {"x": "features", "y": "labels", "train_mask": "train", "val_mask": "val", "test_mask": "test"}
OF_EDGES = {"edge_index": "edges", "edge_weight": "weights", "edge_attr": "edge_features"}
#: The units of times of edges.
TIME_UNITS = ("integer", "days", "s", "ms", "us", "ns")
#: Options of the run, with their defaults.
OPTIONS: dict[str, Any] = {
    "memory": None, "threads": None, "tmp": None, "force": False, "resume": False, "chunks": None, "seed": 0, "edge_split": None,
    "time": None, "time_unit": None,
}  # fmt: skip


def ingest_typed(data: Any, out: str | os.PathLike[str] | None, progress: bool, options: dict[str, Any]) -> Graph:
    """Ingests a `torch_geometric.data.HeteroData`, and opens the graph. A relation with the edges of an earlier one in the other direction,
    as `torch_geometric.transforms.ToUndirected` adds it, is its reverse.

    Raises:
        ValueError: An option is unknown or impossible for a graph with types, or data has an impossible shape.
    """
    require_options(
        options,
        "a HeteroData",
        "change the data instead, for example with torch_geometric.transforms.ToUndirected() for reverse relations",
    )
    if not data.edge_types:
        raise ValueError("this HeteroData has no relations; set data['author', 'writes', 'paper'].edge_index")
    left_out: set[str] = set()
    times = _times(data, options.pop("time", None))
    nodes = [_nodes(data, name, times.get(name), left_out) for name in data.node_types]
    relations = [_relation(data, edge_type, times.get(edge_type), left_out) for edge_type in data.edge_types]
    if left_out:
        warn(f"a store does not keep {', '.join(sorted(left_out))} of this HeteroData")
    ends = [data[edge_type].edge_index for edge_type in data.edge_types]
    return ingest_members(nodes, relations, ends, out, progress, options)


def require_options(options: dict[str, Any], what: str, remedy: str) -> None:
    """Fails if an option is not for graphs in memory.

    Raises:
        ValueError: One is not.
    """
    unknown = next((name for name in options if name not in OPTIONS), None)
    if unknown is not None:
        raise ValueError(f"{unknown}: {what} is ingested with {', '.join(OPTIONS)} alone; {remedy}")


def ingest_members(
    nodes: list[dict[str, Any]],
    relations: list[dict[str, Any]],
    ends: Sequence[Any],
    out: str | os.PathLike[str] | None,
    progress: bool,
    options: dict[str, Any],
) -> Graph:
    """Ingests node types and relations in memory, and opens the graph.

    Args:
        nodes: What `nodes_entry` returns, for each node type.
        relations: What `relation_entry` returns, for each relation.
        ends: The sources and destinations of each relation.
    """
    if out is None:
        raise ValueError("out=...: give the folder of the new graph")
    edge_types = [(relation["source"], relation["name"], relation["destination"]) for relation in relations]
    _set_reverses(relations, edge_types, ends)
    run = OPTIONS | options
    run.pop("time")
    _set_time_unit(run.pop("time_unit"), nodes, relations)
    _hold_out(run.pop("edge_split"), relations, edge_types)
    run = {
        **run,
        "out": os.fspath(out),
        "memory": _bytes(run["memory"]),
        "threads": None if run["threads"] is None else integer("threads", run["threads"], 1),
        "tmp": None if run["tmp"] is None else os.fspath(run["tmp"]),
        "force": flag("force", run["force"]),
        "resume": flag("resume", run["resume"]),
        "chunks": None if run["chunks"] is None else integer("chunks", run["chunks"], 1, bits=32),
        "seed": integer("seed", run["seed"], 0),
    }
    try:
        with _Bar(progress) as bar:
            summary = _grappa.ingest_graph(nodes, relations, run, bar.report)
    finally:
        tell_warnings()
    graph = Graph(out)
    graph.ingested = summary
    return graph


def _nodes(data: Any, name: str, time: tuple[str, Any] | None, left_out: set[str]) -> dict[str, Any]:
    of_type = data[name]
    count = of_type.num_nodes
    if count is None:
        raise ValueError(f"data[{name!r}] has no number of nodes; set data[{name!r}].num_nodes")
    left_out.update(set(of_type.keys()) - set(OF_NODES) - {"num_nodes"} - ({time[0]} if time is not None else set()))
    given = {
        option: (f"data[{name!r}].{attribute}", of_type[attribute]) for attribute, option in OF_NODES.items() if attribute in of_type
    }
    return nodes_entry(name, int(count), given, None if time is None else _shown(f"data[{name!r}]", name, time))


def nodes_entry(name: str, count: int, given: Mapping[str, tuple[str, Any]], time: tuple[str, Any] | None = None) -> dict[str, Any]:
    """A node type for the engine. `given` has the name in messages and the value of each option, and `time` of the times."""
    entries: dict[str, Any] = {option: None for option in OF_NODES.values()}
    for option, (shown, value) in given.items():
        if option == "labels" and tuple(getattr(value, "shape", ()))[1:] == (1,) and hasattr(value, "reshape"):
            value = value.reshape(-1)
        entries[option] = _data(shown, option, value)
    entries["time"] = None if time is None else (_data(time[0], "time", node_table(time[1], time[0], count)), TIME, None)
    return {"name": name, "nodes": count, **entries}


def _times(data: Any, time: Any) -> dict[EdgeType | str, tuple[str, Any]]:
    """The attribute with the times of each relation and node type that has some, and the times. `time` is the name of an attribute, or a
    dict with the name or the times by relation or node type."""
    if time is None:
        return {}
    edge_types, node_types = list(data.edge_types), list(data.node_types)
    if isinstance(time, str):
        found = {member: (time, data[member][time]) for member in (*edge_types, *node_types) if time in data[member]}
        if not found:
            raise ValueError(f"time={time!r}: no relation and no node type of this HeteroData has such an attribute")
        return found
    if not isinstance(time, Mapping):
        raise TypeError(f"time is a {type(time).__name__}; give the name of an attribute, or a dict by relation or node type")
    times = {}
    for key, value in time.items():
        member = timed_member(key, edge_types, node_types)
        if isinstance(value, str) and value not in data[member]:
            raise ValueError(f"time[{key!r}]={value!r}: this {'node type' if member == key else 'relation'} has no such attribute")
        times[member] = (value, data[member][value]) if isinstance(value, str) else ("", value)
    return times


def timed_member(key: Any, edge_types: Sequence[EdgeType], node_types: Sequence[str]) -> EdgeType | str:
    """The relation or node type of a key of ``time``. A name that both have is the node type's.

    Raises:
        KeyError: There is none.
    """
    if key in node_types:
        return key
    edge_type = relation_named(key, list(edge_types))
    if edge_type is None:
        raise KeyError(f"time has {key!r}, and the graph has no such relation or node type; it has {[*edge_types, *node_types]}")
    return edge_type


def _shown(member: str, key: Any, time: tuple[str, Any]) -> tuple[str, Any]:
    """The name of times in messages, and the times."""
    return f"{member}.{time[0]}" if time[0] else f"time[{key!r}]", time[1]


def _relation(data: Any, edge_type: EdgeType, time: tuple[str, Any] | None, left_out: set[str]) -> dict[str, Any]:
    of_type = data[edge_type]
    shown = f"data[{', '.join(map(repr, edge_type))}]"
    if of_type.get("edge_index") is None:
        raise ValueError(
            f"{shown} has no edge_index; with adj_t, set edge_index = torch_geometric.utils.to_edge_index(adj_t.t())[0]"
        )
    left_out.update(set(of_type.keys()) - set(OF_EDGES) - ({time[0]} if time is not None else set()))
    given = {option: (f"{shown}.{attribute}", of_type[attribute]) for attribute, option in OF_EDGES.items() if attribute in of_type}
    given["edges"] = given["edges"][0], EdgeIndex.checked(of_type.edge_index, f"{shown}.edge_index")
    if time is None:
        return relation_entry(edge_type, given)
    return timed_entry(edge_type, given, tuple(of_type.edge_index), _shown(shown, edge_type, time))


def relation_entry(edge_type: EdgeType, given: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """A relation for the engine, as `nodes_entry`."""
    entries: dict[str, Any] = {option: None for option in OF_EDGES.values()}
    entries |= {option: _data(shown, option, value) for option, (shown, value) in given.items()}
    source, name, destination = edge_type
    return {
        "source": source, "name": name, "destination": destination, "reverse_of": None, "edge_split": None, "time": None, **entries,
    }  # fmt: skip


def timed_entry(
    edge_type: EdgeType, given: Mapping[str, tuple[str, Any]], ends: tuple[Any, Any], time: tuple[str, Any]
) -> dict[str, Any]:
    """A relation for the engine whose edges have times. `time` has their name in messages and the times."""
    table = timed_table(*ends, time[1], time[0])
    return {**relation_entry(edge_type, {**given, "edges": (given["edges"][0], table)}), "time": (TIME, None)}


def _set_time_unit(unit: Any, nodes: list[dict[str, Any]], relations: list[dict[str, Any]]) -> None:
    """Sets the unit of the times of all node types and relations, and fails if a reverse has no times: its edges would be seen at any
    time."""
    if unit is not None:
        choice("time_unit", unit, TIME_UNITS)
    timed = [relation for relation in relations if relation["time"] is not None]
    timed_nodes = [of_type for of_type in nodes if of_type["time"] is not None]
    if unit is not None and not timed and not timed_nodes:
        raise ValueError(f"time_unit={unit!r}: edges and nodes have no times; give time=..., or leave it out")
    for of_type in timed_nodes:
        of_type["time"] = (*of_type["time"][:2], unit)
    for relation in timed:
        relation["time"] = (TIME, unit)
    for relation in relations:
        earlier = relation["reverse_of"]
        if earlier is None or (relation["time"] is None) == (relations[earlier]["time"] is None):
            continue
        pair = [relation, relations[earlier]]
        without, other = pair if relation["time"] is None else pair[::-1]
        names = [(of["source"], of["name"], of["destination"]) for of in (without, other)]
        raise ValueError(
            f"{names[0]} has no times, and {names[1]}, which has the same edges in the other direction, has some: batches would have edges "
            f"of any time by {names[0]}; give its times, too"
        )


def _set_reverses(relations: list[dict[str, Any]], types: list[EdgeType], ends: Sequence[Any]) -> None:
    """Finds the relations with the edges of an earlier one, in the other direction and in the same order."""
    reversed_ones = set()
    for number, (source, _, destination) in enumerate(types):
        for earlier in range(number):
            is_free = earlier not in reversed_ones and relations[earlier]["reverse_of"] is None
            if not is_free or (types[earlier][2], types[earlier][0]) != (source, destination):
                continue
            (sources, destinations), (other_sources, other_destinations) = ends[earlier], ends[number]
            if len(sources) != len(other_sources):
                continue
            if bool((sources == other_destinations).all()) and bool((destinations == other_sources).all()):
                relations[number]["reverse_of"] = earlier
                reversed_ones.add(earlier)
                break


def _hold_out(edge_split: Any, relations: list[dict[str, Any]], edge_types: list[EdgeType]) -> None:
    """Sets the shares of edges that relations hold out, and their reverses too."""
    if edge_split is None:
        return
    if not isinstance(edge_split, Mapping):
        raise TypeError(
            f"edge_split={edge_split!r}: name the relations that hold edges out, such as edge_split={{{edge_types[0]!r}: \"80/10/10\"}}"
        )
    for key, shares in edge_split.items():
        edge_type = relation_named(key, edge_types)
        if edge_type is None:
            raise KeyError(f"edge_split has {key!r}, and the graph has no such relation; it has {edge_types}")
        number = edge_types.index(edge_type)
        pair = [number, relations[number]["reverse_of"]]
        pair += [place for place, relation in enumerate(relations) if relation["reverse_of"] == number]
        for place in pair:
            if place is not None:
                relations[place]["edge_split"] = str(shares)


def _data(name: str, option: str, value: Any) -> Data:
    value = value if isinstance(value, Array) else _value(value, _Option(option, option, ""))
    return Data(option, 0, name, value)
