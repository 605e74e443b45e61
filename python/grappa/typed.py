"""Minibatches of graphs with types."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from . import _grappa
from .arguments import flag
from .command import tell_warnings
from .graph import EdgeType, Graph, has_types
from .loader import BatchT, Loader, _fanouts
from .store import _numbers
from .times import is_own, own_times, time_unit, times_of


def typed_graph(data: Any) -> Graph | None:
    """The graph, if `data` is one with types, or the path of one."""
    if isinstance(data, Graph):
        return data
    return Graph(data) if isinstance(data, (str, os.PathLike)) and has_types(data) else None


class TypedLoader(Loader[BatchT]):
    """What loaders of graphs with types share. A subclass makes its batches of the entries."""

    #: The graph.
    store: Graph  # type: ignore[assignment]

    def _opened(self, store):
        return store

    def _drawn(self, num_neighbors, edge_weights, edge_features):
        relations = [self.store[edge_type] for edge_type in self.store.edge_types]
        any_weights = any(relation.has_edge_weights for relation in relations)
        weights = any_weights if edge_weights is None else flag("edge_weights", edge_weights)
        if weights and not any_weights:
            raise ValueError("edge_weights: no relation has edge weights; leave it out")
        any_features = any(relation.num_edge_features for relation in relations)
        features = any_features if edge_features is None else flag("edge_features", edge_features)
        if features and not any_features:
            raise ValueError("edge_features: no relation has features of edges; leave it out")
        return {
            "fanouts": relation_fanouts(num_neighbors, self.store.edge_types),
            "edge_weights": weights,
            "edge_ids": any_weights or any_features,
            "edge_features": features,
        }

    def _open_with(self, links):
        types = {name: number for number, name in enumerate(self.store.node_types)}
        seeds = [(types[name], numbers) for name, numbers in self._seeds]
        if self._partitions["correction"] is not None and len(seeds) > 1:
            raise ValueError("correction: the loss weights are of seeds of one type; give input_nodes of one type, or leave it out")
        try:
            self._loader = _grappa.Loader.of_graph(
                self.store._graph, seeds, self._drawing, self._options, self._partitions, links
            )
        finally:
            tell_warnings()
        self._warn_of_times()
        self._close = weakref.finalize(self, self._loader.close)

    def _seeds_of(self, input_nodes):
        """The type and the numbers of each group of seeds."""
        return [(name, self._seeds_of_type(name, nodes)) for name, nodes in seed_groups(input_nodes, self.store)]

    def _seeds_of_type(self, name, nodes):
        nodes_of_type = self.store[name]
        if nodes is None:
            return np.arange(nodes_of_type.num_nodes)
        if isinstance(nodes, str):
            return nodes_of_type.split(nodes)
        return _numbers(nodes, nodes_of_type.num_nodes, f"input_nodes of {name!r}")

    def _seeds_have_times(self) -> bool:
        names = [name for name, _ in seed_groups(self._input_nodes, self.store)]
        return bool(names) and all(self.store[name].has_node_times for name in names)

    def _times_of_seeds(self, input_time: Any) -> Any:
        if is_own(input_time):
            return np.concatenate([own_times(self.store[name], numbers, f"nodes of type {name!r}") for name, numbers in self._seeds])
        if not isinstance(input_time, Mapping):
            if len(self._seeds) > 1 and np.ndim(input_time):
                raise TypeError(
                    f"input_time: seeds are of {len(self._seeds)} types; give a dict with the times of each, such as "
                    f"{{{self._seeds[0][0]!r}: ...}}, or one time for all"
                )
            input_time = {name: input_time for name, _ in self._seeds}
        missing = next((name for name, _ in self._seeds if name not in input_time), None)
        other = next((name for name in input_time if name not in dict(self._seeds)), None)
        if missing is not None or other is not None:
            found = f"has no times of {missing!r}" if missing is not None else f"has times of {other!r}, and no seed has this type"
            raise ValueError(f"input_time {found}; give the times of {', '.join(repr(name) for name, _ in self._seeds)}")
        unit = time_unit(self.store)
        times = [
            times_of(input_time[name], "input_time", len(numbers), unit, f"seeds of {name!r}") for name, numbers in self._seeds
        ]
        return np.concatenate(times)

    def _node_types(self) -> list[str]:
        return self.store.node_types

    def _nodes_of_types(self, entries: dict[str, Any]) -> list[dict[str, Any]]:
        return entries["types"]

    def _listed(self) -> tuple[int, str]:
        return sum(len(numbers) for _, numbers in self._seeds), "input_nodes"

    def _divided(self, input_nodes):
        return [item for name, numbers in self._seeds for item in (name, numbers)]


def seed_groups(input_nodes: Any, graph: Graph) -> list[tuple[str, Any]]:
    """The node types among `input_nodes`, each with its nodes.

    Raises:
        TypeError: `input_nodes` names no type.
        KeyError: The graph has no such type.
    """
    if isinstance(input_nodes, str):
        groups = [(input_nodes, None)]
    elif isinstance(input_nodes, Mapping):
        groups = list(input_nodes.items())
    elif isinstance(input_nodes, tuple) and len(input_nodes) == 2 and isinstance(input_nodes[0], str):
        groups = [input_nodes]
    elif isinstance(input_nodes, Iterable) and not hasattr(input_nodes, "dtype"):
        groups = [seed_group for item in input_nodes for seed_group in seed_groups(item, graph)]
    else:
        raise TypeError(
            f"input_nodes={input_nodes!r}: the graph has the node types {graph.node_types}; name the type of the seeds, such as "
            f"input_nodes={graph.node_types[0]!r}, or give a pair of a type and its nodes"
        )
    for name, _ in groups:
        graph[name]
    return groups


def relation_named(key: Any, edge_types: list[EdgeType]) -> EdgeType | None:
    """The relation with a name: its three parts, or these with ``:`` or ``__`` between them."""
    known: dict[Any, EdgeType] = {
        name: edge_type for edge_type in edge_types for name in (edge_type, "__".join(edge_type), ":".join(edge_type))
    }
    return known.get(key if isinstance(key, str) else tuple(key))


def relation_fanouts(num_neighbors: Any, edge_types: list[EdgeType]) -> list[list[int]]:
    """The fanouts of each relation: one list for all, or a dict with a list for each.

    Raises:
        ValueError: A relation has no fanouts, there are fanouts of an unknown one, or relations differ in their hops.
    """
    values, default = num_neighbors, None
    if hasattr(num_neighbors, "values") and not isinstance(num_neighbors, Mapping):
        # torch_geometric.sampler.NumNeighbors
        values, default = num_neighbors.values, num_neighbors.default
    if not isinstance(values, Mapping):
        return [_fanouts(values)] * len(edge_types)
    fanouts = {}
    for key, of_relation in values.items():
        edge_type = relation_named(key, edge_types)
        if edge_type is None:
            raise ValueError(f"num_neighbors has {key!r}, and the graph has no such relation; it has {edge_types}")
        fanouts[edge_type] = _fanouts(of_relation)
    missing = [edge_type for edge_type in edge_types if edge_type not in fanouts]
    if missing and default is None:
        raise ValueError(f"num_neighbors has no fanouts for {missing[0]}; give [0, ...] for a relation that is not sampled")
    fanouts |= {edge_type: _fanouts(default) for edge_type in missing}
    first = edge_types[0]
    for edge_type in edge_types:
        if len(fanouts[edge_type]) != len(fanouts[first]):
            raise ValueError(
                f"num_neighbors has {len(fanouts[first])} hops for {first}, and {len(fanouts[edge_type])} for {edge_type}; give "
                "each relation as many, with 0 where none are drawn"
            )
    return [fanouts[edge_type] for edge_type in edge_types]
