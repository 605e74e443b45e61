"""Open graphs with types."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from . import _grappa
from .commands import StoreCommands
from .store import Rows, Store

#: The types of a relation's ends, and its name: ``("author", "writes", "paper")``.
EdgeType = tuple[str, str, str]


class Relation(NamedTuple):
    """The edges from nodes of one type to nodes of one type.

    Example:
        >>> typed["author", "writes", "paper"].num_edges
        4
    """

    #: The type of sources, the name, and the type of destinations.
    edge_type: EdgeType
    #: Number of edges.
    num_edges: int
    #: Whether edges have weights.
    has_edge_weights: bool
    #: Values per row of edge features; 0 without them.
    num_edge_features: int
    #: Whether edges have times.
    has_edge_times: bool
    #: The relation whose edges these are, in the other direction; None if it is no reverse.
    reverse_of: EdgeType | None


class NodeType:
    """The nodes of a type. They have numbers of their own: node k is the one with the k-th smallest id of the type.

    Example:
        >>> authors = typed["author"]
        >>> authors.num_nodes, authors.num_features
        (3, 2)
    """

    def __init__(self, name: str, store: _grappa.Store) -> None:
        self._nodes = Store._of(store)
        #: The name of the type.
        self.name = name

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._nodes.num_nodes

    @property
    def num_features(self) -> int:
        """Values per feature row; 0 without features."""
        return self._nodes.num_features

    @property
    def has_node_times(self) -> bool:
        """Whether nodes have times, as `Store.has_node_times`."""
        return self._nodes.has_node_times

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels, and if labels are numbers."""
        return self._nodes.num_classes

    @property
    def num_targets(self) -> int:
        """Numbers per node to predict; 0 if labels are classes."""
        return self._nodes.num_targets

    @property
    def splits(self) -> dict[str, int]:
        """The names of splits, with the number of nodes of each."""
        return self._nodes.splits

    @property
    def feature_names(self) -> list[str]:
        """A name per feature value; empty if the input had none."""
        return self._nodes.feature_names

    @property
    def class_names(self) -> list[str]:
        """A name per class; empty if classes are numbers."""
        return self._nodes.class_names

    @property
    def features(self) -> Rows:
        """Feature rows, as `Store.features`.

        Example:
            >>> typed["author"].features[[0, 2]].shape
            (2, 2)
        """
        return self._nodes.features

    @property
    def labels(self) -> Rows:
        """Labels, as `Store.labels`.

        Example:
            >>> typed["paper"].labels[[0, 1]].tolist()
            [0, 1]
        """
        return self._nodes.labels

    @property
    def node_times(self) -> Rows:
        """Times, as `Store.node_times`."""
        return self._nodes.node_times

    @property
    def time_unit(self) -> str | None:
        """The unit of times, as `Store.time_unit`. None without times."""
        return self._nodes.time_unit

    def split(self, name: str) -> np.ndarray:
        """The nodes of a split, ascending.

        Raises:
            KeyError: The type has no such split.

        Example:
            >>> typed["paper"].split("train").tolist()
            [0]
        """
        return self._nodes.split(name)

    def ids(self, nodes: Any) -> Any:
        """The ids of nodes in the input, as `Store.ids`.

        Example:
            >>> typed["author"].ids([0]).tolist()
            ['ada']
        """
        return self._nodes.ids(nodes)

    def nodes(self, ids: Any) -> np.ndarray:
        """The nodes with these ids of the input, as `Store.nodes`.

        Example:
            >>> typed["author"].nodes(["ada"]).tolist()
            [0]
        """
        return self._nodes.nodes(ids)

    def __repr__(self) -> str:
        return f"grappa.NodeType({self.name!r}: {self.num_nodes:,} nodes, {self.num_features} features)"


class Graph(StoreCommands):
    """A graph with types that is open for reading. ``graph["paper"]`` has the nodes of a type, and
    ``graph["author", "writes", "paper"]`` describes a relation.

    Args:
        path: A folder that `grappa.ingest` or `grappa-ingest` wrote. A store without types has one type, ``"node"``, and one
            relation, ``("node", "to", "node")``.

    Raises:
        grappa.Error: There is no graph, or it is damaged.

    Example:
        >>> typed.node_types, typed.edge_types
        (['author', 'paper'], [('author', 'writes', 'paper'), ('paper', 'rev_writes', 'author')])
        >>> typed.num_nodes, typed.num_edges
        (5, 8)
    """

    #: How `grappa.ingest` made it; None if it was opened.
    ingested: dict[str, Any] | None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.ingested = None
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"{path!r} is no path of a graph; give the folder that grappa.ingest wrote")
        self._open(path)

    def _open(self, path: str | os.PathLike[str]) -> None:
        self._graph = _grappa.Graph(os.fspath(path))
        names = self._graph.node_types
        relations = self._graph.relations
        #: The names of the node types.
        self.node_types: list[str] = names
        #: The source type, name and destination type of each relation.
        self.edge_types: list[EdgeType] = [(names[source], name, names[target]) for source, name, target, _ in relations]
        self._node_types = {name: NodeType(name, self._graph.nodes_of(index)) for index, name in enumerate(names)}
        self._relations = {
            edge_type: Relation(edge_type, *edges, None if relation[3] is None else self.edge_types[relation[3]])
            for edge_type, edges, relation in zip(self.edge_types, self._graph.edges, relations, strict=True)
        }

    @property
    def path(self) -> os.PathLike[str]:
        """The folder."""
        return self._graph.path

    @property
    def num_nodes(self) -> int:
        """Number of nodes of all types."""
        return sum(nodes.num_nodes for nodes in self._node_types.values())

    @property
    def num_edges(self) -> int:
        """Number of edges of all relations."""
        return sum(relation.num_edges for relation in self._relations.values())

    def edge_split(self, edge_type: EdgeType, name: str) -> np.ndarray:
        """The edges of a part of a relation, as `Store.edge_split` has them: sources and destinations, shape (2, e), int64.

        Args:
            edge_type: The relation.
            name: ``"train"`` for the edges of the graph, or ``"val"`` or ``"test"`` for those that are held out.

        Raises:
            KeyError: The graph has no such relation.
            grappa.Error: The relation holds no such edges out.

        Example:
            >>> typed.edge_split(("author", "writes", "paper"), "train").shape
            (2, 4)
        """
        relation = self[edge_type].edge_type
        return np.asarray(self._graph.edge_split(self.edge_types.index(relation), name))

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """The names of node types and relations, as `torch_geometric.nn.to_hetero` needs them.

        Example:
            >>> typed.metadata()[0]
            ['author', 'paper']
        """
        return self.node_types, self.edge_types

    def __getitem__(self, key: str | EdgeType) -> Any:
        known_by: dict[Any, Any] = {**self._node_types, **self._relations}
        found = known_by.get(key if isinstance(key, str) else tuple(key))
        if found is None:
            known = self.node_types if isinstance(key, str) else self.edge_types
            kind = "node type" if isinstance(key, str) else "relation"
            raise KeyError(f"the graph has no {kind} {key!r}; it has {known}")
        return found

    def __repr__(self) -> str:
        return (
            f"grappa.Graph({str(self.path)!r}: {self.num_nodes:,} nodes of {len(self.node_types)} types, {self.num_edges:,} edges of "
            f"{len(self.edge_types)} relations)"
        )

    def _reopen(self) -> None:
        self._open(self.path)

    def __reduce__(self):
        return Graph, (self.path,)


def has_types(path: str | os.PathLike[str]) -> bool:
    """Whether a folder has a graph with several node types or relations."""
    return _grappa.Graph(os.fspath(path)).has_types


def open(path: str | os.PathLike[str]) -> Store:
    """Opens the store at `path`; see `Store`. `Graph` opens one with several node types or relations.

    Example:
        >>> grappa.open(cora).num_nodes
        2708
    """
    try:
        return Store(path)
    except _grappa.Error:
        if os.path.isdir(path) and has_types(path):
            raise _grappa.Error(f"{path} has several node types or relations; open it with grappa.Graph({os.fspath(path)!r})") from None
        raise
