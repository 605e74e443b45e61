"""Neighborhoods that inference reads: some nodes of a type with all their in-neighbors, from a store or a graph with types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _grappa
from ._tensors import arrays
from .partitions import partition_options
from .store import Store, _numbers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .graph import Graph

#: The type of all nodes of a store.
NODE = "node"


@dataclass
class Neighborhood:
    """Some nodes of a type, and the sources of their in-edges."""

    #: The type of the destinations, and their number.
    node_type: str
    batch_size: int
    #: Of each node type: ``n_id``, ``positions``, and ``x`` if it was asked for and the type has features. Destinations come first.
    nodes: dict[str, dict[str, Any]]
    #: Of each relation: ``edge_index``, and ``edge_weight`` if it was asked for.
    edges: dict[Any, dict[str, Any]]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types."""
        return sum(len(of_type["positions"]) for of_type in self.nodes.values())

    @property
    def edge_bytes(self) -> int:
        """Bytes of the ends of all edges."""
        return sum(of_relation["edge_index"].nbytes for of_relation in self.edges.values())


class Reader:
    """Reads neighborhoods of nodes, which are ascending positions in the store, or None for all nodes of a type."""

    #: The number of nodes of each type.
    sizes: dict[str, int]

    def __init__(self, batch_size: int, threads: int | None):
        self.batch_size, self.threads = batch_size, threads

    def neighborhoods(self, node_type: str, nodes: Any, memory: int, features: bool, edge_weights: bool) -> Iterator[Neighborhood]:
        """The neighborhoods of some nodes, in order."""
        loader = self._loader(node_type, nodes, edge_weights, self._options(memory, features))
        try:
            for batch in loader.epoch(0):
                yield self._neighborhood(node_type, batch)
        finally:
            loader.close()

    def nodes_of(self, node_type: str) -> Store:
        """The nodes of a type, as a store has them."""
        raise NotImplementedError

    def positions(self, node_type: str, nodes: Any) -> tuple[np.ndarray, np.ndarray]:
        """The ascending positions of nodes, and the index of each of them in `nodes`."""
        store = self.nodes_of(node_type)
        numbers = _numbers(store.split(nodes) if isinstance(nodes, str) else nodes, store.num_nodes)
        if not numbers.size:
            raise ValueError("nodes is empty; give at least one node, or None for all nodes")
        positions = np.asarray(store._store.positions(numbers))
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        repeated = np.flatnonzero(ascending[1:] == ascending[:-1])
        if repeated.size:
            raise ValueError(f"node {numbers[order[repeated[0]]]} is in nodes twice; give each node once")
        return ascending, order

    def _loader(self, node_type: str, nodes: Any, edge_weights: bool, options: dict[str, Any]) -> _grappa.Loader:
        raise NotImplementedError

    def _neighborhood(self, node_type: str, batch: dict[str, Any]) -> Neighborhood:
        raise NotImplementedError

    def _drawing(self, fanouts: Any, edge_weights: bool) -> dict[str, Any]:
        return {
            "fanouts": fanouts,
            "replace": False,
            "by_weight": False,
            "edge_weights": edge_weights,
            "edge_ids": False,
            "edge_features": False,
            "layout": "hops",
            "disjoint": False,
            "times": None,
        }

    def _options(self, memory: int, features: bool) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "shuffle": False,
            "seed": 0,
            "memory": memory,
            "threads": self.threads,
            "features": features,
            "labels": None,
            "full_batches": False,
            "drop_last": False,
            "by_position": True,
            "seed_times": None,
        }


class StoreReader(Reader):
    """Reads a store, which has one type and one relation."""

    def __init__(self, store: Store, batch_size: int, threads: int | None):
        super().__init__(batch_size, threads)
        self.store = store
        self.sizes = {NODE: store.num_nodes}

    def nodes_of(self, node_type):
        return self.store

    def _loader(self, node_type, nodes, edge_weights, options):
        return _grappa.Loader(self.store._store, nodes, self._drawing([-1], edge_weights), options, partition_options())

    def _neighborhood(self, node_type, batch):
        entries = arrays(batch)
        return Neighborhood(node_type, entries["batch_size"], {node_type: entries}, {None: entries})


class GraphReader(Reader):
    """Reads a graph with types."""

    def __init__(self, graph: Graph, batch_size: int, threads: int | None):
        super().__init__(batch_size, threads)
        self.graph = graph
        self.sizes = {name: graph[name].num_nodes for name in graph.node_types}

    def nodes_of(self, node_type):
        return self.graph[node_type]._nodes

    def _loader(self, node_type, nodes, edge_weights, options):
        positions = np.arange(self.sizes[node_type]) if nodes is None else nodes
        seeds = [(self.graph.node_types.index(node_type), positions)]
        drawing = self._drawing([[-1]] * len(self.graph.edge_types), edge_weights)
        return _grappa.Loader.of_graph(self.graph._graph, seeds, drawing, options, partition_options())

    def _neighborhood(self, node_type, batch):
        entries = arrays(batch)
        nodes = dict(zip(self.graph.node_types, entries["types"], strict=True))
        edges = dict(zip(self.graph.edge_types, entries["relations"], strict=True))
        into = {edge_type: of_relation for edge_type, of_relation in edges.items() if edge_type[2] == node_type}
        return Neighborhood(node_type, nodes[node_type]["batch_size"], nodes, into)
