"""Open stores."""

from __future__ import annotations

import html
import operator
import os
from typing import Any, Callable, NamedTuple

import numpy as np

from . import _grappa
from .columns import array_of, mask_in, require_int64
from .commands import StoreCommands
from .optional import needed

#: Bytes that `Store.to_pyg` and `Store.to_scipy` make at most, unless `max_bytes` says otherwise.
SMALL_BYTES = 8 << 30


class InEdges(NamedTuple):
    """The in-edges of a list of nodes. The k-th node has the sources ``sources[offsets[k]:offsets[k + 1]]``.

    Example:
        >>> edges = store.in_edges([7, 5])
        >>> edges.sources[edges.offsets[1] : edges.offsets[2]].tolist() == sorted(store.in_neighbors(5))
        True
    """

    #: Where the edges of each node begin, and at last their number: shape (n + 1,), int64.
    offsets: np.ndarray
    #: The sources, ascending for each node: shape (e,), int64.
    sources: np.ndarray
    #: The weights of the edges: shape (e,), float32. None if they have none.
    weights: np.ndarray | None


class Store(StoreCommands):
    """A store that is open for reading.

    Args:
        path: A folder that `grappa.ingest`, `grappa-ingest` or `grappa-gen` wrote.

    Raises:
        grappa.Error: There is no store, or it is damaged.

    Example:
        >>> store = grappa.open(cora)
        >>> store.num_nodes, store.num_features, store.num_classes
        (2708, 1433, 7)
        >>> store.num_edges, store.splits
        (10556, {'train': 140, 'val': 500, 'test': 1000})
        >>> store.has_edge_weights, store.num_edge_features, store.edge_feature_names, store.num_targets
        (False, 0, [], 0)
        >>> store.class_names, store.feature_names, store.num_partitions, store.path.name
        ([], [], 1, 'cora.grappa')
    """

    #: How `grappa.ingest` or `grappa.generate` made it; None if it was opened.
    ingested: dict[str, Any] | None

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"{path!r} is no path of a store; give the folder that grappa.ingest wrote")
        self._store = _grappa.Store(os.fspath(path))
        self.ingested = None

    @classmethod
    def _of(cls, store: _grappa.Store) -> Store:
        """A store that the compiled module has opened."""
        opened = cls.__new__(cls)
        opened._store, opened.ingested = store, None
        return opened

    @property
    def path(self) -> os.PathLike[str]:
        """The folder."""
        return self._store.path

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._store.num_nodes

    @property
    def num_edges(self) -> int:
        """Number of directed edges; an undirected edge is two."""
        return self._store.num_edges

    @property
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""
        return self._store.has_edge_weights

    @property
    def has_edge_times(self) -> bool:
        """Whether edges have times."""
        return self._store.has_edge_times

    @property
    def has_node_times(self) -> bool:
        """Whether nodes have times."""
        return self._store.has_node_times

    @property
    def time_unit(self) -> str | None:
        """The unit of the times of edges or nodes: ``"integer"``, ``"days"``, ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``. None without times."""
        return self._store.time_unit

    @property
    def num_edge_features(self) -> int:
        """Values per row of edge features; 0 without them."""
        return self._store.num_edge_features

    @property
    def edge_feature_names(self) -> list[str]:
        """The names of the edge features; empty if they have none."""
        return self._store.edge_feature_names

    @property
    def relation_names(self) -> list[str]:
        """The names of the types of edges, as of the triples of a knowledge graph: batches have their numbers in ``edge_type``. They are the
        first feature of edges that is the index of a category. Empty if there is none."""
        return self._store.edge_types

    @property
    def num_features(self) -> int:
        """Values per feature row; 0 without features."""
        return self._store.num_features

    @property
    def num_classes(self) -> int:
        """Number of classes; 0 without labels, and if labels are numbers."""
        return self._store.num_classes

    @property
    def num_targets(self) -> int:
        """Numbers per node to predict, if the store was ingested with ``label_type="float"``; else 0."""
        return self._store.num_targets

    @property
    def num_partitions(self) -> int:
        """Number of partitions of the current assignment."""
        return self._store.num_partitions

    @property
    def splits(self) -> dict[str, int]:
        """The names of splits, with the number of nodes of each."""
        return dict(self._store.splits)

    @property
    def feature_names(self) -> list[str]:
        """A name per feature value; empty if the input had none."""
        return self._store.feature_names

    @property
    def class_names(self) -> list[str]:
        """A name per class; empty if classes are numbers."""
        return self._store.class_names

    @property
    def features(self) -> Rows:
        """Feature rows: ``store.features[ids]`` reads an array of shape (len(ids), num_features), float32.

        Example:
            >>> store.features[[0, 5]].shape
            (2, 1433)
        """
        return Rows("features", self.num_nodes, self._store.features)

    @property
    def labels(self) -> Rows:
        """Labels: ``store.labels[ids]`` reads an array of shape (len(ids),), int64, -1 for none; or (len(ids), num_classes),
        uint8, if nodes have sets of classes. With ``label_type="partial"``, such a row is float32, NaN where it is unknown. With
        ``label_type="float"``, labels are float32 of shape (len(ids),), or (len(ids), num_targets) for several; NaN for none.

        Example:
            >>> store.labels[:3].dtype
            dtype('int64')
        """
        return Rows("labels", self.num_nodes, self._store.labels)

    @property
    def node_times(self) -> Rows:
        """Times: ``store.node_times[ids]`` reads an array of shape (len(ids),), int64, in the unit of `Store.time_unit`.

        Example:
            >>> import pyarrow
            >>> table = pyarrow.table({"at": [20, 10], "price": [1.5, 2.5]})
            >>> orders = grappa.ingest(np.array([[0, 1], [1, 0]]), features=table, node_time="at", out=folder / "orders.grappa")
            >>> orders.node_times[[0, 1]].tolist()
            [20, 10]
        """
        return Rows("node_times", self.num_nodes, self._store.node_times)

    def split(self, name: str) -> np.ndarray:
        """The nodes of a split, ascending: shape (n,), int64.

        Example:
            >>> len(store.split("train")) == store.splits["train"]
            True
        """
        return np.asarray(self._store.split(name))

    def edge_split(self, name: str) -> np.ndarray:
        """The edges of a part of ``grappa.ingest(edge_split="80/10/10")``: sources and destinations, shape (2, e), int64.

        The order is that of `LinkNeighborLoader`: the ``input_id`` of its batches are columns of this array, and so are the positions
        that its ``sampler`` gives. A store has no negatives; loaders draw them.

        Args:
            name: ``"val"`` or ``"test"`` for the edges that are held out, or ``"train"`` for the edges of the graph; of an
                undirected graph, each once.

        Raises:
            ValueError: There is no such part.
            grappa.Error: The store holds no edges out.

        Example:
            >>> sources, destinations = store.edge_split("train")
            >>> len(sources), store.num_edges
            (5278, 10556)
        """
        return np.asarray(self._store.edge_split(name))

    def in_neighbors(self, node: int) -> np.ndarray:
        """The sources of the edges to a node: shape (in-degree,), int64.

        Example:
            >>> len(store.in_neighbors(0))
            3
        """
        return np.asarray(self._store.in_neighbors(int(_numbers(_number(node), self.num_nodes)[0])))

    def in_edges(self, nodes: Any = None) -> InEdges:
        """The in-edges of nodes, and their weights, in memory.

        Args:
            nodes: Node numbers, a mask over all nodes, a slice, or None for all nodes.

        Raises:
            IndexError: There is no such node.

        Example:
            >>> offsets, sources, weights = store.in_edges([0, 5])
            >>> len(offsets), len(sources) == int(offsets[-1]), weights
            (3, True, None)
        """
        numbers = _numbers(slice(None) if nodes is None else nodes, self.num_nodes)
        offsets, sources, weights, _ = self._store.in_edges(numbers, False)
        return InEdges(np.asarray(offsets), np.asarray(sources), None if weights is None else np.asarray(weights))

    def ids(self, nodes: Any) -> Any:
        """The ids of nodes in the input: shape (n,), of integers (int64; uint64 if one exceeds that) or of strings (object; `bytes`
        where an id is not UTF-8). The id of a single node is no array.

        Args:
            nodes: As for `in_edges`.

        Example:
            >>> store.ids([7, 5])
            array([7, 5])
        """
        ids = self._store.ids(_numbers(nodes, self.num_nodes))
        ids = np.array(ids, dtype=object) if isinstance(ids, list) else np.asarray(ids)
        return ids[0] if np.ndim(nodes) == 0 and not isinstance(nodes, slice) else ids

    def nodes(self, ids: Any) -> Any:
        """The nodes with these ids of the input: shape (n,), int64. The node of a single id is no array.

        Args:
            ids: Integers or strings, as a list, array, column of pandas or Polars, or tensor.

        Raises:
            KeyError: No node has such an id.
            TypeError: The store's ids are integers and these are not, or strings and these are not.

        Example:
            >>> store.nodes([7, 5]), int(store.nodes(7))
            (array([7, 5]), 7)
        """
        array = np.atleast_1d(array_of(ids, "ids"))
        has_strings = self._store.has_string_ids
        if array.ndim != 1 or array.size and array.dtype.kind not in ("OUST" if has_strings else "iu"):
            kind = "strings" if has_strings else "integers"
            raise TypeError(f"the ids of this store are {kind}, given as shape (n,), not {array.dtype} of shape {array.shape}")
        if has_strings:
            nodes = self._store.nodes(array.tolist())
        else:
            if array.size and array.min() < 0:
                raise KeyError(f"{self.path} has no node with the id {array.min()}: ids are not negative")
            nodes = self._store.nodes(np.ascontiguousarray(array, np.uint64))
        return np.asarray(nodes)[0] if np.ndim(ids) == 0 else np.asarray(nodes)

    def to_scipy(self, max_bytes: int = SMALL_BYTES) -> Any:
        """The whole graph as a `scipy.sparse.csc_array` of shape (num_nodes, num_nodes): ``A[i, j]`` is the weight of the edge from
        i to j, or 1. Column j has the in-neighbors of j. Parallel edges are several entries, which SciPy adds up when it computes.

        Args:
            max_bytes: The largest matrix that is made.

        Raises:
            ValueError: The matrix is larger.

        Example:
            >>> adjacency = store.to_scipy()
            >>> adjacency.shape, adjacency.nnz == store.num_edges
            ((2708, 2708), True)
        """
        sparse = needed("scipy.sparse", "to_scipy")
        size = 12 * self.num_edges + 8 * self.num_nodes
        self._require_small(size, max_bytes, "grappa.NeighborLoader(store, ...) reads parts of it")
        offsets, sources, weights = self.in_edges()
        values = np.ones(len(sources), np.float32) if weights is None else weights
        return sparse.csc_array((values, sources, offsets), (self.num_nodes, self.num_nodes))

    def to_pyg(self, max_bytes: int = SMALL_BYTES) -> Any:
        """The whole graph as a `torch_geometric.data.Data`, with ``edge_index`` in the order of the store, and ``x``, ``y``, a mask for
        each split (``train_mask``, ...), ``edge_weight`` and ``edge_attr`` if the store has them. The ``e_id`` of a batch are places in
        this order: ``store.to_pyg().edge_attr[batch.e_id]`` are the rows of its edges.

        Args:
            max_bytes: The largest graph that is read.

        Raises:
            ValueError: The graph is larger.

        Example:
            >>> store.to_pyg().validate()
            True
        """
        torch, data = needed("torch", "to_pyg"), needed("torch_geometric.data", "to_pyg")
        row_bytes = 4 * self.num_features + 8 * max(1, self.num_classes, self.num_targets)
        loader = "grappa.pyg.NeighborLoader(store, ...) reads minibatches of it"
        edge_bytes = (48 if self.has_edge_weights else 40) + 8 * self.num_edge_features
        self._require_small(edge_bytes * self.num_edges + row_bytes * self.num_nodes, max_bytes, loader)
        read = self._store.in_edges(_numbers(slice(None), self.num_nodes), True)
        offsets, sources = np.asarray(read[0]), np.asarray(read[1])
        _, _, weights, features = read
        destinations = np.repeat(np.arange(self.num_nodes), np.diff(offsets))
        # The order of the places of edges: parallel edges have it already.
        positions = np.asarray(self._store.positions(np.arange(self.num_nodes)))
        order = np.lexsort((positions[sources], positions[destinations]))
        graph = data.Data(
            edge_index=torch.from_numpy(np.stack([sources[order], destinations[order]])), num_nodes=self.num_nodes
        )
        if weights is not None:
            graph.edge_weight = torch.from_numpy(np.asarray(weights)[order])
        if features is not None:
            graph.edge_attr = torch.from_numpy(np.asarray(features)[order])
        if self.num_features:
            graph.x = torch.from_numpy(self.features[:])
        if self.num_classes or self.num_targets:
            graph.y = torch.from_numpy(self.labels[:])
        for name in self.splits:
            mask = np.zeros(self.num_nodes, dtype=bool)
            mask[self.split(name)] = True
            graph[f"{name}_mask"] = torch.from_numpy(mask)
        return graph

    def _require_small(self, size: int, max_bytes: int, remedy: str) -> None:
        if size > max_bytes:
            raise ValueError(
                f"{self.path} takes {_size(size)} in memory, and max_bytes={max_bytes} allows {_size(max_bytes)}; {remedy}, or give "
                "a larger max_bytes"
            )

    def _reopen(self) -> None:
        self._store = _grappa.Store(self.path)

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (os.fspath(self.path),)

    def _edges(self) -> str:
        weights = " with weights" if self.has_edge_weights else ""
        features = f" with {self.num_edge_features} features each" if self.num_edge_features else ""
        return f"{self.num_edges:,} edges" + " and".join(filter(None, (weights, features)))

    def _labels(self) -> str:
        return f"{self.num_targets:,} targets" if self.num_targets else f"{self.num_classes:,} classes"

    def __repr__(self) -> str:
        splits = ", ".join(f"{name} {nodes:,}" for name, nodes in self.splits.items())
        return (
            f"grappa.Store({os.fspath(self.path)!r}: {self.num_nodes:,} nodes, {self._edges()}, "
            f"{self.num_features} features, {self._labels()}, splits: {splits or 'none'})"
        )

    def _repr_html_(self) -> str:
        dtype = self._store.feature_dtype
        rows = {
            "nodes": f"{self.num_nodes:,}",
            "edges": self._edges().replace(" edges", "", 1),
            "features": "none" if dtype is None else f"{self.num_features:,}, {dtype}",
            "labels": self._labels(),
            "splits": ", ".join(f"{name} {nodes:,}" for name, nodes in self.splits.items()) or "none",
            "partitions": f"{self.num_partitions:,}",
            "on disk": _size(self._store.num_bytes),
            "path": os.fspath(self.path),
        }
        cells = "".join(f"<tr><th>{name}</th><td>{html.escape(value)}</td></tr>" for name, value in rows.items())
        return f"<table>{cells}</table>"


class Rows:
    """A row for each node, read from disk when it is indexed by node numbers, a mask or a slice.

    Example:
        >>> store.features
        features of 2708 nodes: shape (2708, 1433), float32, read by [ids]
        >>> store.labels.shape, store.labels.dtype
        ((2708,), dtype('int64'))
    """

    def __init__(self, name: str, nodes: int, read: Callable[[np.ndarray], Any]) -> None:
        self._name, self._nodes, self._read = name, nodes, read

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all rows."""
        return (self._nodes, *self._no_rows().shape[1:])

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """The type of values when they are read."""
        return self._no_rows().dtype

    def _no_rows(self) -> np.ndarray:
        return np.asarray(self._read(np.empty(0, np.int64)))

    def __len__(self) -> int:
        return self._nodes

    def __getitem__(self, ids: Any) -> np.ndarray:
        if isinstance(ids, tuple):
            raise TypeError(f"{self._name}[{', '.join(map(repr, ids))}]: rows are indexed by nodes alone; give a list of nodes")
        rows = np.asarray(self._read(_numbers(ids, self._nodes)))
        return rows[0] if np.ndim(ids) == 0 and not isinstance(ids, slice) else rows

    def __repr__(self) -> str:
        try:
            kind = f"shape {self.shape}, {self.dtype}, read by [ids]"
        except _grappa.Error:
            kind = "none"
        return f"{self._name} of {self._nodes} nodes: {kind}"


def _size(size: int) -> str:
    unit = next(unit for unit in range(5) if size < 1000 << 10 * unit or unit == 4)
    return f"{size / (1 << 10 * unit):.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[unit]}"


def _number(node: Any, name: str = "node") -> int:
    """The number of a node."""
    try:
        if not isinstance(node, (bool, np.bool_)):
            return operator.index(node)
    except TypeError:
        pass
    raise TypeError(f"{name}: a node number is an integer, not {node!r:.80}")


def _numbers(nodes: Any, count: int, name: str = "nodes") -> np.ndarray:
    """Node numbers as an array of int64: from an integer, a slice, a list, an array, tensor or column of integers, or a mask over
    all nodes. `name` is the name of the argument in errors."""
    if isinstance(nodes, slice):
        return np.arange(*nodes.indices(count), dtype=np.int64)
    array = array_of(nodes if not hasattr(nodes, "columns") else mask_in(nodes), name)
    if array.ndim == 0:
        array = np.array([_number(array[()], name)])
    if array.dtype == object:
        array = _of_objects(array, name)
    if array.dtype == bool:
        if array.shape != (count,):
            raise ValueError(f"{name} is a mask of shape {array.shape}; expected ({count},), one value per node")
        return np.flatnonzero(array)
    if array.shape == (0,):
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} has node numbers, integers of shape (n,), not {array.dtype} of shape {array.shape}")
    # PyTorch once had masks of bytes.
    if array.dtype == np.uint8 and array.shape == (count,) and count > 2 and array.max() <= 1:
        raise TypeError(f"{name} has zeros and ones of uint8, one per node; if it is a mask, give {name}={name}.astype(bool)")
    require_int64(array, name)
    return np.ascontiguousarray(array, np.int64)


def _of_objects(array: np.ndarray, name: str) -> np.ndarray:
    """Integers that are objects of Python."""
    numbers = [_number(item, name) for item in array.flat]
    wrong = next((number for number in numbers if not -(1 << 63) <= number < 1 << 63), None)
    if wrong is not None:
        raise IndexError(f"{name} has {wrong}, and there is no such node")
    return np.array(numbers, np.int64).reshape(array.shape)
