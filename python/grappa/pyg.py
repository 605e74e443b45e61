"""Loaders, samplers and feature stores in the place of PyTorch Geometric's."""

from __future__ import annotations

import itertools
from typing import Any, Callable, Iterable

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.sampler.utils import to_bidirectional

from ._types import StoreLike
from .convolutions import convolve, convolve_types
from .fused import fuse, mark_hops, unfuse
from .orders import Order
from .arguments import integer
from .hetero import HeteroLinkNeighborLoader, HeteroNeighborLoader
from .samplers import Block, FeatureStore, Sampler, store_of
from .pyg_loaders import EdgeLoader, NodeLoader

__all__ = [
    "Block",
    "ClusterLoader",
    "FeatureStore",
    "HeteroLinkNeighborLoader",
    "HeteroNeighborLoader",
    "LinkNeighborLoader",
    "NeighborLoader",
    "Sampler",
    "convolve",
    "convolve_types",
    "fuse",
    "unfuse",
]


class NeighborLoader(NodeLoader[Data]):
    """In the place of `torch_geometric.loader.NeighborLoader`, with the graph in a store.

    Batches are `torch_geometric.data.Data` with ``x``, ``y`` of all nodes, ``edge_index``, ``edge_weight`` and ``edge_attr`` if the
    store has them, and then ``e_id``, the places of edges in the store; ``n_id``, ``input_id``, ``batch_size``,
    ``num_sampled_nodes``, ``num_sampled_edges`` and ``loss_weight``. As in PyTorch, all batches but the last one have
    ``batch_size`` seeds.

    Of a graph with types, batches are `torch_geometric.data.HeteroData` with all types and relations of the graph: ``x``, ``y``,
    ``n_id`` and ``num_sampled_nodes`` of each type, ``edge_index``, ``edge_weight``, ``edge_attr``, ``e_id`` and ``num_sampled_edges`` of
    each relation, as far as it has them.
    The types of seeds have ``batch_size`` and ``input_id``. A node draws in-neighbors by each relation into its type.

    Args:
        data: A `grappa.Store` or `grappa.Graph`, or the path of one.
        num_neighbors: The maximum number of in-neighbors that a node draws at each hop, from the seeds outwards; -1 takes all, and
            0 none. Of a graph with types, by each relation; or a dict with a list for each relation.
        input_nodes: The seeds: node numbers, which may repeat, a mask over all nodes, the name of a split, or None for all nodes. Of a
            graph with types: a type, or a pair of a type and its nodes, or a list of these for seeds of several types.
        input_time: The time of each seed, for a graph whose edges have times: int64 in the unit of the store, or dates, in the order of
            the seeds; or one time for all. With seeds of several types, a dict by type. No edge of a batch is later than its seed, at no
            hop. Relations without times are not limited. Seeds have neighborhoods of their own, as with ``disjoint``, and batches have
            ``batch`` and ``seed_time``.
        temporal_strategy: ``"uniform"`` draws any edges up to the time of the seed, ``"last"`` the last ones.
        time_attr: The name that the times of edges have in batches. Default: ``"edge_time"``. The store knows its times, so any name will
            do; without ``input_time``, or if the edges of the store have no times, it is an error.
        replace: Whether to draw with replacement.
        subgraph_type: ``"directional"``, ``"bidirectional"`` for each sampled edge in both directions, or ``"induced"`` for all
            edges among the sampled nodes. Only directional batches have ``num_sampled_nodes`` and ``num_sampled_edges``.
        disjoint: Whether each seed has a neighborhood of its own, and ``batch.batch`` has the index of each node's seed. In a graph with
            types, each type has ``batch``.
        weight_attr: ``"edge_weight"`` draws in-neighbors with probabilities proportional to edge weights.
        transform: A function that gets each batch and returns another one.
        is_sorted: Has no effect: adjacency lists of a store are sorted.
        filter_per_worker: Has no effect: there are no worker processes.
        directed: False is ``subgraph_type="induced"``.
        batch_size: The maximum number of seeds of a batch.
        shuffle: Whether each epoch has the seeds in another order.
        drop_last: Whether to leave out the last batch if it is smaller.
        num_workers: A number above 0 has no effect, and a warning says so: threads of the loader sample.
        pin_memory: Whether tensors are in pinned memory.
        layout: ``"blocks"`` gives batches ``blocks`` instead of ``edge_index``: a `Block` per hop, as DGL has it.
        **options: As `grappa.NeighborLoader`: ``sampler``, ``batch_sampler``, ``memory``, ``seed``, ``threads``, ``features``,
            ``labels``, ``edge_weights``, ``edge_features``, ``device``, ``distributed``, ``partitions`` and what belongs to them,
            ``time_equal``, ``time_hops`` and ``time_window``.
            Other options of `torch.utils.data.DataLoader` are accepted if they have no effect here, and refused otherwise.

    Raises:
        ValueError: An argument is impossible here. The message names what to use instead.
        grappa.Error: The memory is too small, or the store is damaged.

    Example:
        >>> loader = grappa.pyg.NeighborLoader(store, [10, 5], "train", batch_size=64, shuffle=True)
        >>> next(iter(loader)).x.dtype
        torch.float32
    """

    _with_types = HeteroNeighborLoader

    @property
    def data(self) -> Graph:
        """The graph, with ``num_nodes``, ``x`` and ``y``. Batches have no ``x`` after ``del loader.data.x``, and no ``y`` after
        ``del loader.data.y``."""
        return Graph(self)

    def _batch(self, entries: dict[str, Any]) -> Data:
        blocks = entries.pop("blocks", None)
        data = Data(num_nodes=len(entries["n_id"]), **self._named(entries))
        if blocks is not None:
            data.blocks = [Block(**block) for block in blocks]
        if self._input_id is not None:
            data.input_id = self._input_id[entries["input_id"].cpu()].to(entries["input_id"].device)
        if self.subgraph_type == "bidirectional":
            _add_reverse_edges(data, self._time_attr or "edge_time")
        mark_hops(data)
        return data if self.transform is None else self.transform(data)


class ClusterLoader(NeighborLoader):
    """In the place of `torch_geometric.loader.ClusterLoader`: batches of whole groups of nodes, with all edges among them.

    The groups are the chunks of the store. ``grappa.ingest(..., chunks=1500, assign="ldg:1500")`` makes as many, of neighboring nodes, as
    `torch_geometric.loader.ClusterData` does. Batches are `torch_geometric.data.Data` with the attributes of `NeighborLoader` for
    ``subgraph_type="induced"``. ``batch_size`` is there the number of nodes, which are all seeds, and ``input_id`` are their numbers.

    Args:
        data: A `grappa.Store`, or the path of one.
        batch_size: The number of groups of a batch.
        shuffle: Whether each epoch has the groups in another order, by PyTorch's generator (``torch.manual_seed``).
        sampler: Gives the numbers of groups instead: a list, or a sampler of `torch.utils.data`, such as
            ``DistributedSampler(range(loader.num_parts))`` for several ranks.
        drop_last: Whether to leave out the last batch if it has fewer groups.
        transform: A function that gets each batch and returns another one.
        **options: As `NeighborLoader`: ``memory``, ``threads``, ``features``, ``labels``, ``edge_weights``, ``edge_features``,
            ``device``, ``pin_memory``.

    Raises:
        ValueError: An argument is impossible here. The message names what to use instead.
        grappa.Error: The memory is too small, or the store is damaged.

    Example:
        >>> groups = grappa.generate("sbm", nodes=1000, chunks=8, out=folder / "groups.grappa")
        >>> loader = grappa.pyg.ClusterLoader(groups, batch_size=2, shuffle=True)
        >>> loader.num_parts, len(loader), sum(batch.num_nodes for batch in loader)
        (8, 4, 1000)
    """

    def __init__(
        self,
        data: StoreLike,
        *,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | None = None,
        drop_last: bool = False,
        transform: Callable[[Data], Any] | None = None,
        **options: Any,
    ):
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__", "options")}
        for name in ("num_neighbors", "input_nodes", "subgraph_type", "layout", "disjoint", "batch_sampler", "partitions"):
            if name in options:
                raise TypeError(f"{name}: a batch has whole groups of nodes, with all edges among them; leave it out")
        if options.get("distributed"):
            raise ValueError(
                "distributed=True: ranks divide the groups by a sampler; leave it out, and give "
                "sampler=torch.utils.data.DistributedSampler(range(loader.num_parts))"
            )
        if sampler is not None and shuffle:
            raise ValueError("sampler and shuffle=True: sampler decides the order of groups; leave out shuffle")
        store = store_of(data)
        nodes = np.argsort(np.asarray(store._store.positions(np.arange(store.num_nodes))))
        groups = _Groups(store._store.chunk_starts, sampler, integer("batch_size", batch_size, 1), bool(shuffle), bool(drop_last))
        super().__init__(
            store, [0], nodes, subgraph_type="induced", transform=transform, batch_sampler=groups, **options
        )
        #: Number of groups.
        self.num_parts = len(groups.parts)
        self._input_id = torch.from_numpy(nodes)
        self._arguments = {**arguments, "data": store.path, **options}


class _Groups:
    """The nodes of some chunks for each batch, as positions in the store."""

    def __init__(self, starts, sampler, batch_size, shuffle, drop_last):
        #: The positions of each chunk that has nodes.
        self.parts = [np.arange(start, end) for start, end in itertools.pairwise(starts) if start < end]
        kind = torch.utils.data.RandomSampler if shuffle else torch.utils.data.SequentialSampler
        self._order = Order(kind(self.parts) if sampler is None else sampler, None, len(self.parts), "the store", batch_size, drop_last)
        self._batch_size, self._drop_last = batch_size, drop_last

    def __len__(self):
        return len(self._order)

    def __iter__(self):
        parts, _ = self._order.draw()
        for first in range(0, len(parts), self._batch_size):
            of_batch = parts[first : first + self._batch_size]
            if len(of_batch) == self._batch_size or not self._drop_last:
                yield np.concatenate([self.parts[part] for part in of_batch])


class LinkNeighborLoader(EdgeLoader[Data]):
    """In the place of `torch_geometric.loader.LinkNeighborLoader`, with the graph in a store.

    Batches are `torch_geometric.data.Data` with the attributes of `NeighborLoader` but ``batch_size``, and ``edge_label_index`` and
    ``edge_label``; or, with triplets, ``src_index``, ``dst_pos_index`` and ``dst_neg_index``. ``input_id`` has the positions of the
    positives. Unlike there, negatives are never true edges, and messages do not use the positives of their batch: see
    ``exclude_edges`` and ``exclude_targets`` of `grappa.LinkNeighborLoader`.

    Of a graph with types, positives are edges of one relation, and batches are `torch_geometric.data.HeteroData`. The relation has
    ``edge_label_index``, ``edge_label`` and ``input_id``; with triplets, its source type has ``src_index``, and its destination type
    ``dst_pos_index`` and ``dst_neg_index``. Negatives have the types of the relation. Messages use the positives of a batch neither by
    the relation nor by its reverse.

    Args:
        data: A `grappa.Store` or `grappa.Graph`, or the path of one.
        num_neighbors: As `NeighborLoader`.
        edge_label_index: The positives, as `grappa.LinkNeighborLoader`. Default: ``"train"``, the edges of the graph. Of a graph with
            types: a relation, such as ``("user", "buys", "item")``, or a pair of a relation and its positives.
        edge_label: As `grappa.LinkNeighborLoader`.
        edge_label_time: As `grappa.LinkNeighborLoader`. Messages do not use a positive itself, so scripts need not subtract 1, as they do for PyTorch Geometric.
            Batches have ``edge_label_time`` of all pairs; with triplets, ``seed_time`` of the positives, as there.
        temporal_strategy: As `NeighborLoader`.
        time_attr: As `NeighborLoader`.
        neg_sampling: ``"binary"``, ``"triplet"``, or `torch_geometric.sampler.NegativeSampling`. Default: none.
        neg_sampling_ratio: Negatives per positive, as ``neg_sampling="binary"`` with this amount.
        replace: Whether to draw neighbors with replacement.
        weight_attr: As `NeighborLoader`.
        transform: A function that gets each batch and returns another one.
        batch_size: The maximum number of positives of a batch.
        shuffle: Whether each epoch has the positives in another order.
        drop_last: Whether to leave out the last batch if it is smaller.
        num_workers: As `NeighborLoader`.
        **options: As `grappa.LinkNeighborLoader`, and as `NeighborLoader`.

    Raises:
        ValueError: An argument is impossible here. The message names what to use instead.
        grappa.Error: The memory is too small, or the store is damaged.

    Example:
        >>> loader = grappa.pyg.LinkNeighborLoader(store, [10, 5], neg_sampling="binary", batch_size=64, shuffle=True)
        >>> next(iter(loader)).edge_label.sum()
        tensor(64.)
    """

    _with_types = HeteroLinkNeighborLoader

    def _batch(self, entries: dict[str, Any]) -> Data:
        entries = self._labelled(entries)
        del entries["batch_size"]
        if "src_index" in entries and "edge_label_time" in entries:
            entries["seed_time"] = entries.pop("edge_label_time")
        if not self._has_labels:
            del entries["edge_label"]
        if self._input_id is not None:
            entries["input_id"] = self._input_id[entries["input_id"].cpu()].to(entries["input_id"].device)
        data = Data(num_nodes=len(entries["n_id"]), **self._named(entries))
        if self.subgraph_type == "bidirectional":
            _add_reverse_edges(data, self._time_attr or "edge_time")
        return data if self.transform is None else self.transform(data)


class Graph:
    """The graph of a loader, as ``loader.data`` has it.

    Example:
        >>> loader = grappa.pyg.NeighborLoader(store, [-1], batch_size=512)
        >>> del loader.data.x
        >>> next(iter(loader)).x is None
        True
    """

    _loader: NeighborLoader

    def __init__(self, loader: NeighborLoader):
        self.__dict__["_loader"] = loader

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self._loader.store.num_nodes

    @property
    def x(self) -> torch.Tensor | None:
        """All feature rows, read from disk now: shape (num_nodes, num_features), float32."""
        return self._read("features")

    @property
    def y(self) -> torch.Tensor | None:
        """The labels of all nodes, read from disk now."""
        return self._read("labels")

    def _read(self, name):
        loader = self._loader
        store = loader.store
        has_values = store.num_features if name == "features" else store.num_classes or store.num_targets
        if not loader._options[name] or not has_values:
            return None
        return torch.from_numpy(getattr(store, name)[:])

    def __delattr__(self, name: str) -> None:
        option = {"x": "features", "y": "labels"}.get(name)
        if option is None:
            raise AttributeError(f"a batch has {name} always; only x and y can be deleted")
        loader = self._loader
        loader._options[option] = False if option == "features" else None
        loader._arguments[option] = loader._options[option]
        loader._close()
        loader._open()

    def __setattr__(self, name: str, value: Any) -> None:
        # Scripts for PyTorch Geometric set these two to what batches have anyway.
        if name == "num_nodes" and value == self.num_nodes:
            return
        if name == "n_id" and torch.equal(torch.as_tensor(value), torch.arange(self.num_nodes)):
            return
        raise AttributeError(
            f"batches get no {name} from loader.data; index your own tensor of all nodes with batch.n_id, for example in "
            "transform=..."
        )


def _add_reverse_edges(data, time_attr):
    """Each edge in both directions, once. A reversed edge has the weight, features, type, time and id of the sampled edge."""
    values = {name: data[name] for name in ("edge_weight", "edge_attr", "edge_type", "e_id", time_attr) if name in data}
    row, col = data.edge_index
    edges = torch.arange(len(row), device=row.device) if values else None
    row, col, edges = to_bidirectional(row, col, row, col, edges, edges)
    data.edge_index = torch.stack([row, col])
    for name, value in values.items():
        data[name] = value[edges]
    # The hops are mixed now.
    data.num_sampled_nodes = data.num_sampled_edges = None
