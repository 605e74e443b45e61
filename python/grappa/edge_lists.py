"""Graphs with types as DGL has them: a dict with the edges of each relation, or a `dgl.DGLGraph`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from . import inputs
from .arguments import choice, integer
from .columns import array_of
from .command import warn
from .graph import EdgeType, Graph
from .inputs import Array
from .typed import relation_named
from .typed_inputs import ingest_members, nodes_entry, relation_entry, require_options, timed_entry, timed_member

#: Options with the data of node types, and of relations.
OF_NODES, OF_EDGES = ("features", "labels", "train", "val", "test"), ("weights", "edge_features")
#: Names of data in graphs of DGL, and the options that they are.
OF_DGL_NODES = {"feat": "features", "label": "labels", "train_mask": "train", "val_mask": "val", "test_mask": "test"}
OF_DGL_EDGES = {"weight": "weights", "feat": "edge_features"}
#: The relation of graphs of DGL without types.
WITHOUT_TYPES = ("_N", "_E", "_N")


class Pairs(NamedTuple):
    """The sources and destinations of edges, which the engine reads as rows of pairs without a copy of all."""

    sources: np.ndarray
    destinations: np.ndarray

    def rows(self) -> Array:
        # Rows of two edges could be columns.
        if len(self.sources) == 2:
            return inputs._numbers(np.stack(self), is_edge_index=True)
        dtype = np.result_type(self.sources, self.destinations)
        return inputs._rows(_Rows(self), dtype, lambda block: block)


class _Rows:
    def __init__(self, pairs: Pairs) -> None:
        self._pairs = pairs
        self.shape = (len(pairs.sources), 2)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return np.stack([end[rows] for end in self._pairs], axis=1)



def ingest_dgl(graph: Any, out: str | os.PathLike[str] | None, progress: bool, options: dict[str, Any]) -> Graph:
    """Ingests a `dgl.DGLGraph` with types, and opens the graph. `options` may have data, as in `ingest_edge_lists`, which takes the place
    of the data in the graph.

    Raises:
        ValueError: The graph has no types, or an option is unknown.
    """
    edge_types = [tuple(edge_type) for edge_type in graph.canonical_etypes]
    if edge_types == [WITHOUT_TYPES]:
        raise ValueError(
            "this DGLGraph has no types; give its edges and data: grappa.ingest(torch.stack(graph.edges()), "
            'features=graph.ndata["feat"], labels=graph.ndata["label"], out=...)'
        )
    left_out: set[str] = set()
    data: dict[str, dict[Any, Any]] = {option: {} for option in (*OF_NODES, *OF_EDGES)}
    members: list[tuple[Any, Any, dict[str, str]]] = [(name, graph.nodes[name].data, OF_DGL_NODES) for name in graph.ntypes]
    members += [(edge_type, graph.edges[edge_type].data, OF_DGL_EDGES) for edge_type in edge_types]
    for key, of_member, names in members:
        left_out |= set(of_member.keys()) - names.keys()
        for name in names.keys() & set(of_member.keys()):
            data[names[name]][key] = of_member[name]
    if left_out:
        warn(
            f"a store does not keep {', '.join(sorted(left_out))} of this DGLGraph; it keeps {', '.join(OF_DGL_NODES)} of nodes and "
            f"{', '.join(OF_DGL_EDGES)} of edges, and what features={{...}} and other options give"
        )
    edges = {edge_type: graph.edges(etype=edge_type) for edge_type in edge_types}
    num_nodes = {name: int(graph.num_nodes(name)) for name in graph.ntypes}
    return ingest_edge_lists(edges, num_nodes, out, progress, {**{name: of for name, of in data.items() if of}, **options})


def ingest_edge_lists(
    edges: Mapping[Any, Any],
    num_nodes_dict: Mapping[str, int] | None,
    out: str | os.PathLike[str] | None,
    progress: bool,
    options: dict[str, Any],
) -> Graph:
    """Ingests the edges of each relation, as `dgl.heterograph` accepts them, and opens the graph. A relation with the edges of an earlier
    one in the other direction is its reverse.

    Args:
        edges: Sources and destinations by relation: ``{("user", "follows", "user"): (sources, destinations)}``.
        num_nodes_dict: The number of nodes of each type. Without it, it is the number of rows of features or labels, or else follows from
            the largest number in edges.
        options: Options of the run, and ``features``, ``labels``, ``train``, ``val`` and ``test`` by node type and ``weights`` and
            ``edge_features`` by relation.

    Raises:
        TypeError: A relation, its edges or its data have another form.
        ValueError: An option is unknown, or a number of nodes is missing.
    """
    if not edges:
        raise ValueError('edges has no relations; give {("user", "follows", "user"): (sources, destinations)}')
    ends = {_edge_type(key): _pairs(key, value) for key, value in edges.items()}
    require_options(
        {name: value for name, value in options.items() if name not in (*OF_NODES, *OF_EDGES)},
        "a dict of edges or a DGLGraph",
        f"data of nodes and edges is in {', '.join((*OF_NODES, *OF_EDGES))}, dicts by node type or relation",
    )
    names = dict.fromkeys(num_nodes_dict or ())
    names |= dict.fromkeys(name for source, _, destination in ends for name in (source, destination))
    of_nodes = {option: _by_type(option, options.pop(option), list(names)) for option in OF_NODES if option in options}
    of_edges = {option: _by_relation(option, options.pop(option), list(ends)) for option in OF_EDGES if option in options}
    times = _times(options.pop("time", None), list(ends), list(names))
    nodes = [
        nodes_entry(name, _count(name, num_nodes_dict, ends, of_nodes), _of_member(name, of_nodes), times.get(name)) for name in names
    ]
    relations = [_relation(edge_type, pairs, _of_member(edge_type, of_edges), times.get(edge_type)) for edge_type, pairs in ends.items()]
    return ingest_members(nodes, relations, list(ends.values()), out, progress, options)


def _times(time: Any, edge_types: list[EdgeType], node_types: list[str]) -> dict[EdgeType | str, tuple[str, Any]]:
    """The times by relation and node type, with their names in messages."""
    if time is None:
        return {}
    if not isinstance(time, Mapping):
        raise TypeError(
            f"time is {_described(time)}; give a dict by relation or node type, such as time={{{edge_types[0]!r}: ...}} or "
            f"time={{{node_types[0]!r}: ...}}"
        )
    return {timed_member(key, edge_types, node_types): (f"time[{key!r}]", value) for key, value in time.items()}


def _relation(
    edge_type: EdgeType, pairs: Pairs, given: dict[str, tuple[str, Any]], time: tuple[str, Any] | None
) -> dict[str, Any]:
    edges = f"edges[{edge_type}]", pairs.rows()
    if time is None:
        return relation_entry(edge_type, {"edges": edges, **given})
    return timed_entry(edge_type, {"edges": edges, **given}, pairs, time)


def _edge_type(key: Any) -> EdgeType:
    if not isinstance(key, tuple) or len(key) != 3 or not all(isinstance(part, str) for part in key):
        raise TypeError(
            f"edges is a dict with the key {key!r}; a relation is a tuple of the type of sources, a name and the type of destinations, such as "
            '("user", "follows", "user"). A table of edges is a pandas.DataFrame or a pyarrow.table'
        )
    return key


def _pairs(key: Any, value: Any) -> Pairs:
    """The edges of a relation."""
    shown = f"edges[{key!r}]"
    layout, ends = value if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) else ("coo", value)
    if choice(f"the layout of {shown}", layout, ("coo", "csr", "csc")) != "coo":
        return _of_compressed(shown, layout, ends)
    if not isinstance(ends, tuple) or len(ends) != 2:
        raise TypeError(
            f"{shown} is {_described(ends)}; give a tuple of sources and destinations, such as tuple(edge_index) of an edge_index of "
            "shape (2, E), or tuple(zip(*pairs)) of pairs"
        )
    pairs = Pairs(*(_numbers(end, f"the {of} of {shown}") for of, end in zip(("sources", "destinations"), ends, strict=True)))
    if len(pairs.sources) != len(pairs.destinations):
        raise ValueError(
            f"{shown} has {len(pairs.sources)} sources and {len(pairs.destinations)} destinations; give each edge both"
        )
    return pairs


def _of_compressed(shown: str, layout: str, parts: Any) -> Pairs:
    """The edges of offsets, indices and edge numbers, in the order of edge numbers."""
    if not isinstance(parts, tuple) or len(parts) != 3:
        raise TypeError(f"{shown} is {_described(parts)}; with the layout {layout!r}, give a tuple of indptr, indices and edge ids")
    offsets, indices, ids = (_numbers(part, f"the {of} of {shown}") for of, part in zip(("indptr", "indices", "ids"), parts, strict=True))
    degrees = np.diff(offsets)
    if degrees.sum() != len(indices) or (len(ids) and not np.array_equal(np.sort(ids), np.arange(len(indices)))):
        raise ValueError(f"{shown} has {len(indices)} indices; give offsets that end with this number, and each edge id once, or none")
    lines = np.repeat(np.arange(len(degrees)), degrees)
    if len(ids):
        order = np.argsort(ids)
        lines, indices = lines[order], indices[order]
    return Pairs(lines, indices) if layout == "csr" else Pairs(indices, lines)


def _numbers(values: Any, name: str) -> np.ndarray:
    array = array_of(values, name)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise TypeError(f"{name} are {_described(array)}; give numbers of nodes, from 0: integers of shape (E,)")
    return array if array.size else array.astype(np.int64)


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"a {type(value).__name__}" if shape is None else f"an array of {value.dtype} of shape {tuple(shape)}"


def _by_type(option: str, values: Any, names: list[str]) -> dict[str, Any]:
    """The data of an option by node type."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{option} is {_described(values)}; give a dict by node type, such as {option}={{{names[0]!r}: ...}}")
    unknown = next((key for key in values if key not in names), None)
    if unknown is not None:
        raise KeyError(f"{option} has {unknown!r}, and the graph has no such node type; it has {names}")
    return dict(values)


def _by_relation(option: str, values: Any, edge_types: list[EdgeType]) -> dict[EdgeType, Any]:
    """The data of an option by relation."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{option} is {_described(values)}; give a dict by relation, such as {option}={{{edge_types[0]!r}: ...}}")
    by_relation = {}
    for key, value in values.items():
        edge_type = relation_named(key, edge_types)
        if edge_type is None:
            raise KeyError(f"{option} has {key!r}, and the graph has no such relation; it has {edge_types}")
        by_relation[edge_type] = value
    return by_relation


def _of_member(key: Any, given: dict[str, dict[Any, Any]]) -> dict[str, tuple[str, Any]]:
    """The data of a node type or relation, with its name in messages."""
    return {option: (f"{option}[{key!r}]", values[key]) for option, values in given.items() if key in values}


def _count(
    name: str, num_nodes_dict: Mapping[str, int] | None, ends: dict[EdgeType, Pairs], of_nodes: dict[str, dict[str, Any]]
) -> int:
    """The number of nodes of a type."""
    if num_nodes_dict is not None:
        if name not in num_nodes_dict:
            raise ValueError(f"num_nodes_dict has no number of nodes of {name!r}; give one for each node type, or leave it out")
        return integer(f"num_nodes_dict[{name!r}]", num_nodes_dict[name], 0)
    for option in ("features", "labels"):
        values = of_nodes.get(option, {}).get(name)
        if values is not None:
            return int(values.shape[0]) if hasattr(values, "shape") else len(values)
    numbers = [
        end
        for (source, _, destination), pairs in ends.items()
        for of, end in zip((source, destination), pairs, strict=True)
        if of == name
    ]
    return max((int(end.max()) + 1 for end in numbers if end.size), default=0)
