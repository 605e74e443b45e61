"""Open stores."""

import os

import numpy as np

from . import _grappa
from .command import run


class Store:
    """A store that is open for reading.

    Args:
        path: A folder that `grappa.ingest`, `grappa-ingest` or `grappa-gen` wrote.

    Raises:
        grappa.Error: There is no store, or it is damaged.

    Example:
        >>> store = grappa.open(cora)
        >>> store.num_nodes, store.num_features, store.num_classes
        (2708, 1433, 7)
    """

    def __init__(self, path):
        self._store = _grappa.Store(os.fspath(path))
        self.ingested = None

    @property
    def path(self):
        """The folder."""
        return self._store.path

    @property
    def num_nodes(self):
        """Number of nodes."""
        return self._store.num_nodes

    @property
    def num_edges(self):
        """Number of directed edges; an undirected edge is two."""
        return self._store.num_edges

    @property
    def has_edge_weights(self) -> bool:
        """Whether edges have weights."""
        return self._store.has_edge_weights

    @property
    def num_features(self):
        """Values per feature row; 0 without features."""
        return self._store.num_features

    @property
    def num_classes(self):
        """Number of classes; 0 without labels, and if labels are numbers."""
        return self._store.num_classes

    @property
    def num_targets(self):
        """Numbers per node to predict, if the store was ingested with ``label_type="float"``; else 0."""
        return self._store.num_targets

    @property
    def num_partitions(self):
        """Number of partitions of the current assignment."""
        return self._store.num_partitions

    @property
    def splits(self):
        """The names of splits, with the number of nodes of each."""
        return dict(self._store.splits)

    @property
    def feature_names(self):
        """A name per feature value; empty if the input had none."""
        return self._store.feature_names

    @property
    def class_names(self):
        """A name per class; empty if classes are numbers."""
        return self._store.class_names

    @property
    def features(self):
        """Feature rows: ``store.features[ids]`` reads an array of shape (len(ids), num_features), float32.

        Example:
            >>> store.features[[0, 5]].shape
            (2, 1433)
        """
        return _Rows(self.num_nodes, self._store.features)

    @property
    def labels(self):
        """Labels: ``store.labels[ids]`` reads an array of shape (len(ids),), int64, -1 for none; or (len(ids), num_classes),
        uint8, if nodes have sets of classes. With ``label_type="partial"``, such a row is float32, NaN where it is unknown. With
        ``label_type="float"``, labels are float32 of shape (len(ids),), or (len(ids), num_targets) for several; NaN for none.

        Example:
            >>> store.labels[:3].dtype
            dtype('int64')
        """
        return _Rows(self.num_nodes, self._store.labels)

    def split(self, name):
        """The nodes of a split, ascending: shape (n,), int64.

        Example:
            >>> len(store.split("train")) == store.splits["train"]
            True
        """
        return np.asarray(self._store.split(name))

    def in_neighbors(self, node):
        """The sources of the edges to a node: shape (in-degree,), int64.

        Example:
            >>> len(store.in_neighbors(0))
            3
        """
        return np.asarray(self._store.in_neighbors(int(node)))

    def ids(self, nodes):
        """The ids of nodes in the input, as a list of integers or strings.

        Example:
            >>> store.ids([7])
            [7]
        """
        return self._store.ids(_numbers(nodes, self.num_nodes))

    def nodes(self, ids):
        """The nodes with these ids of the input: shape (len(ids),), int64.

        Example:
            >>> store.nodes([7])
            array([7])
        """
        return np.asarray(self._store.nodes(list(ids)))

    def info(self, *, progress=False, **options):
        """Counts, sizes on disk, degrees and partitions, as ``grappa-store info --json`` prints them.

        Args:
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store info --help``, with ``_`` for ``-``.

        Example:
            >>> store.info()["degree_max"]
            168
        """
        return self._run("info", options, progress)

    def verify(self, *, progress=False, **options):
        """Checks every byte of the store, and that its files agree.

        Args:
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store verify --help``, with ``_`` for ``-``.

        Returns:
            The number of ``files`` and ``bytes``, and the time.

        Raises:
            grappa.Error: The store is damaged. The message has the file, the offset and the description of each problem.

        Example:
            >>> store.verify()["problems"]
            []
        """
        return self._run("verify", options, progress)

    def repartition(self, partitions, **options):
        """Groups the chunks of the store into `partitions` partitions. No edge moves, so it takes milliseconds.

        Args:
            partitions: Number of partitions.
            **options: Those of ``grappa-store repartition --help``: ``schedule``, ``seed``, ``super_epoch``.

        Returns:
            The partitions, with their chunks, nodes and edges.

        Example:
            >>> blocks = grappa.generate("sbm", nodes=1000, out=folder / "parts.grappa")
            >>> blocks.repartition(4)["partitions"], blocks.num_partitions
            (4, 4)
        """
        return self._run("repartition", {"partitions": partitions, **options})

    def preaggregate(self, kind, *, progress=False, **options):
        """Aggregates the features of each node's in-neighbors once, and stores the result for training.

        Args:
            kind: ``"mean"`` for GraphSAGE, ``"gcn"`` for GCN, ``"sum"`` for GIN.
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store preaggregate --help``, with ``_`` for ``-``: ``dtype``, ``with_features``, ``replace``,
                ``memory``.

        Returns:
            The number of nodes and bytes, and the time.

        Example:
            >>> blocks = grappa.generate("sbm", nodes=1000, feature_dim=8, out=folder / "blocks.grappa")
            >>> blocks.preaggregate("mean")["nodes"]
            1000
        """
        return self._run("preaggregate", {"kind": kind, **options}, progress)

    def add_features(self, kind, *, progress=False, **options):
        """Computes features from the graph, and adds them to a store that has none.

        Args:
            kind: ``"fastrp"`` (node embeddings by random projection) or ``"degrees"``.
            progress: Whether to show a progress bar (needs tqdm).
            **options: Those of ``grappa-store add-features --help``, with ``_`` for ``-``: ``dim``, ``dtype``, ``hops``, ``seed``, ``memory``.

        Returns:
            The dimension, the number of nodes and bytes, and the time.

        Raises:
            grappa.Error: The store has features.

        Example:
            >>> bare = grappa.generate("er", nodes=100, edge_factor=4, out=folder / "er.grappa")
            >>> bare.add_features("fastrp", dim=8)["dim"], bare.num_features
            (8, 8)
        """
        return self._run("add-features", {"kind": kind, **options}, progress)

    def _run(self, command, options, progress=False):
        """Runs a command of ``grappa-store``. It may change the store, which is opened again."""
        answer = run("grappa-store", command, self.path, options=options, progress=progress)
        self._store = _grappa.Store(self.path)
        return answer

    def __reduce__(self):
        return Store, (os.fspath(self.path),)

    def __repr__(self):
        splits = ", ".join(f"{name} {nodes:,}" for name, nodes in self.splits.items())
        return (
            f"grappa.Store({os.fspath(self.path)!r}: {self.num_nodes:,} nodes, {self.num_edges:,} edges, "
            f"{self.num_features} features, {self.num_classes} classes, splits: {splits or 'none'})"
        )


def open(path):
    """Opens the store at `path`; see `Store`."""
    return Store(path)


class _Rows:
    """What ``[ids]`` reads for nodes."""

    def __init__(self, nodes, read):
        self._nodes = nodes
        self._read = read

    def __len__(self):
        return self._nodes

    def __getitem__(self, ids):
        if isinstance(ids, slice):
            return np.asarray(self._read(list(range(*ids.indices(self._nodes)))))
        rows = np.asarray(self._read(_numbers(ids, self._nodes)))
        return rows[0] if np.ndim(ids) == 0 else rows


def _numbers(nodes, count):
    """Node numbers as a list: from an integer, a list, an array of integers, or a mask over all nodes."""
    array = np.atleast_1d(np.asarray(nodes.cpu() if hasattr(nodes, "cpu") else nodes))
    if array.dtype == bool:
        if array.shape != (count,):
            raise ValueError(f"a mask of nodes has shape {array.shape}; expected ({count},), one value per node")
        return np.flatnonzero(array).tolist()
    if array.size == 0:
        return []
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"node numbers are integers of shape (n,), not {array.dtype} of shape {array.shape}")
    return array.tolist()
