"""A sampler and a feature store for the stock loaders of PyTorch Geometric, and arguments that all loaders share."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.data import Data, FeatureStore as _FeatureStore, TensorAttr
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from . import _grappa
from ._tensors import converted, tensor
from ._types import Fanouts, StoreLike
from .loader import _bytes, _fanouts
from .store import Store, _numbers

#: Why times are refused.
NO_TIMES = "grappa.pyg.Sampler samples without times; give grappa.pyg.NeighborLoader input_time=..."
#: What takes the place of parameters that stores and native threads have no use for.
INSTEAD = {
    "neighbor_sampler": "give torch_geometric.loader.NodeLoader a sampler of your own, with grappa.pyg.FeatureStore",
    "transform_sampler_output": "features are read together with the sample; change batches with transform=..., or give "
    "torch_geometric.loader.NodeLoader a grappa.pyg.Sampler",
    "custom_cls": "change batches with transform=...",
    "collate_fn": "change batches with transform=...",
    "worker_init_fn": "there are no worker processes; seed=... decides all random choices",
    "generator": "give seed=... for other random choices",
}


class Block(NamedTuple):
    """A hop as a bipartite graph from sources to destinations, as DGL has it. The first sources are the destinations.

    Example:
        >>> loader = grappa.pyg.NeighborLoader(store, [5], "train", batch_size=8, layout="blocks")
        >>> next(iter(loader)).blocks[0].size[1]
        8
    """

    #: Indices of sources and of destinations: shape (2, e), int64.
    edge_index: torch.Tensor
    #: The number of sources and of destinations.
    size: tuple[int, int]
    #: Weights of the edges: shape (e,), float32. None if the batch has no edge weights.
    edge_weight: torch.Tensor | None = None
    #: The features of the edges: shape (e, num_edge_features), float32. None if the batch has none.
    edge_attr: torch.Tensor | None = None
    #: The number of the type of each edge: shape (e,), int64. None if edges have no types.
    edge_type: torch.Tensor | None = None
    #: The places of the edges in the store: shape (e,), int64. None if the batch has neither weights nor features of edges.
    e_id: torch.Tensor | None = None
    #: The times of the edges: shape (e,), int64. None unless seeds have times.
    edge_time: torch.Tensor | None = None


class Sampler(BaseSampler):
    """Samples for the stock `torch_geometric.loader.NodeLoader`, with the graph in a store. If edges have weights or features,
    batches have ``e_id``, the places of their edges in the store; `FeatureStore.add_edge_data` reads these.

    It samples in the process and thread that asks, so worker processes can be forked or spawned. `grappa.pyg.NeighborLoader` reads
    ahead on threads of its own, and is faster. Random draws follow PyTorch's generator (``torch.manual_seed``).

    Args:
        data: A `grappa.Store`, or the path of one.
        num_neighbors: As `NeighborLoader`.
        replace: Whether to draw with replacement.
        subgraph_type: As `NeighborLoader`.
        weight_attr: As `NeighborLoader`.
        memory: Adjacency lists are held in memory if they take at most this many bytes, and mapped otherwise. Default: half of the
            free memory.

    Example:
        >>> from torch_geometric.loader import NodeLoader
        >>> sampler, features = grappa.pyg.Sampler(store, [10, 5]), grappa.pyg.FeatureStore(store)
        >>> seeds = torch.from_numpy(store.split("train"))
        >>> loader = NodeLoader((features, None), sampler, input_nodes=seeds, batch_size=64)
        >>> next(iter(loader)).x.shape[1]
        1433
    """

    def __init__(
        self,
        data: StoreLike,
        num_neighbors: Fanouts | NumNeighbors,
        *,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        weight_attr: str | None = None,
        memory: int | str | None = None,
    ):
        self.store = store_of(data)
        self.subgraph_type = subgraph_kind(subgraph_type, True)
        self._arguments = {
            "num_neighbors": num_neighbors,
            "replace": replace,
            "subgraph_type": subgraph_type,
            "weight_attr": weight_attr,
            "memory": memory,
        }
        drawing = {
            "fanouts": _fanouts(homogeneous(num_neighbors)),
            "replace": bool(replace),
            "by_weight": draws_by_weight(weight_attr),
            "edge_weights": False,
            "edge_ids": self.store.has_edge_weights or self.store.num_edge_features > 0,
            "edge_features": False,
            "layout": "induced" if self.subgraph_type == "induced" else "hops",
            "disjoint": False,
            "times": None,
        }
        self._sampler = _grappa.Sampler(self.store._store, drawing, _bytes(memory))

    def sample_from_nodes(self, index: NodeSamplerInput, **_: Any) -> SamplerOutput:
        """The neighborhood of ``index.node``, a tensor of node numbers.

        Example:
            >>> from torch_geometric.sampler import NodeSamplerInput
            >>> nodes = torch.tensor([7, 5])
            >>> grappa.pyg.Sampler(store, [-1]).sample_from_nodes(NodeSamplerInput(None, nodes)).node[:2]
            tensor([7, 5])
        """
        if index.time is not None:
            raise ValueError(f"input_time: {NO_TIMES}")
        key = int(torch.randint(1 << 62, ()))
        entries = converted(self._sampler.sample(_numbers(index.node, self.store.num_nodes, "index.node"), key), tensor)
        row, col = entries["edge_index"]
        output = SamplerOutput(
            node=entries["n_id"],
            row=row,
            col=col,
            edge=entries.get("e_id"),
            num_sampled_nodes=entries.get("num_sampled_nodes"),
            num_sampled_edges=entries.get("num_sampled_edges"),
            metadata=(index.input_id, None),
        )
        return output.to_bidirectional() if self.subgraph_type == "bidirectional" else output

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        """Raises `NotImplementedError`."""
        raise NotImplementedError("grappa.pyg.Sampler samples neighborhoods of nodes only, for NodeLoader")

    def __reduce__(self):
        return _sampler_again, (self.store.path, self._arguments)


def _sampler_again(path, arguments):
    return Sampler(path, **arguments)


class FeatureStore(_FeatureStore):
    """Features and labels of a store for the stock loaders of PyTorch Geometric, read from disk when they are indexed.

    It has the tensors ``x`` and ``y``, if the store has features and labels. ``edge_attr`` and ``edge_weight`` are read by the
    places of edges, ``e_id``. It is read-only.

    Args:
        data: A `grappa.Store`, or the path of one.

    Example:
        >>> features = grappa.pyg.FeatureStore(store)
        >>> features.get_tensor(group_name=None, attr_name="x", index=torch.tensor([0, 5])).shape
        torch.Size([2, 1433])
    """

    def __init__(self, data: StoreLike):
        super().__init__()
        self.store = store_of(data)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The attributes that the store has: of ``x``, and of ``y``.

        Example:
            >>> [attribute.attr_name for attribute in grappa.pyg.FeatureStore(store).get_all_tensor_attrs()]
            ['x', 'y']
        """
        has = {"x": self.store.num_features, "y": self.store.num_classes or self.store.num_targets}
        names = [name for name, is_there in has.items() if is_there]
        return [TensorAttr(group_name=None, attr_name=name) for name in names]

    def add_edge_data(self, batch: Data) -> Data:
        """Gives a batch of a `Sampler` the ``edge_attr`` and ``edge_weight`` of its ``e_id``, as far as the store has them.

        The stock loaders of PyTorch Geometric read data of nodes alone, so this is their ``transform``.

        Example:
            >>> graph = grappa.ingest(np.array([[0, 1], [1, 2]]), weights=np.array([0.5, 2.0]), out=folder / "weights.grappa")
            >>> sampler, features = grappa.pyg.Sampler(graph, [-1]), grappa.pyg.FeatureStore(graph)
            >>> batch = features.add_edge_data(Data(e_id=torch.tensor([1, 0])))
            >>> sorted(batch.edge_weight.tolist())
            [0.5, 2.0]
        """
        weights, features = self._edge_values(batch.e_id)
        if weights is not None:
            batch.edge_weight = weights
        if features is not None:
            batch.edge_attr = features
        return batch

    def _edge_values(self, places):
        places = slice(None) if places is None else places
        values = self.store._store.edge_values(_numbers(places, self.store.num_edges, "e_id"))
        return [None if value is None else torch.from_numpy(np.asarray(value)) for value in values]

    def _get_tensor(self, attr):
        if attr.attr_name in ("edge_weight", "edge_attr"):
            value = self._edge_values(attr.index)[attr.attr_name == "edge_attr"]
            if value is None:
                raise KeyError(f"{self.store.path} has no {attr.attr_name}")
            return value
        rows = {"x": self.store.features, "y": self.store.labels}.get(attr.attr_name)
        if rows is None:
            raise KeyError(f"{self.store.path} has no tensor {attr.attr_name!r}; there are x, y, edge_weight and edge_attr")
        return torch.from_numpy(rows[slice(None) if attr.index is None else attr.index])

    def _get_tensor_size(self, attr):
        if attr.attr_name == "x":
            return (self.store.num_nodes, self.store.num_features)
        return tuple(self._get_tensor(TensorAttr(None, attr.attr_name, torch.tensor([], dtype=torch.long))).shape)

    def _put_tensor(self, tensor, attr):
        raise TypeError("a store is read-only; ingest it again with other features=... or labels=...")

    def _remove_tensor(self, attr):
        raise TypeError("a store is read-only")

    def __reduce__(self):
        return FeatureStore, (self.store.path,)


# Arguments that loaders and samplers share.


def store_of(data: Any) -> Store:
    if hasattr(data, "edge_types"):
        raise TypeError(
            f"data is a {type(data).__name__} in memory; make a graph of it once, and give its path: "
            'grappa.ingest(data, out="graph.grappa")'
        )
    if isinstance(data, Data) or hasattr(data, "edge_stores"):
        raise TypeError(
            f"data is a {type(data).__name__} in memory; make a store of it once, and give its path: "
            'grappa.ingest(data.edge_index, features=data.x, labels=data.y, out="graph.grappa")'
        )
    return data if isinstance(data, Store) else Store(data)


def homogeneous(num_neighbors: Fanouts | NumNeighbors | dict[Any, Any]) -> Any:
    if isinstance(num_neighbors, NumNeighbors):
        num_neighbors = num_neighbors.values
    if isinstance(num_neighbors, dict):
        raise ValueError("num_neighbors is a dict, but a store has one type of edges; give a list such as [15, 10]")
    return num_neighbors


def subgraph_kind(subgraph_type: SubgraphType | str, directed: bool) -> str:
    kinds = [kind.value for kind in SubgraphType]
    try:
        kind = SubgraphType(subgraph_type).value
    except ValueError:
        raise ValueError(f"subgraph_type={subgraph_type!r}; give one of {kinds}") from None
    return kind if directed else "induced"


def draws_by_weight(weight_attr: str | None) -> bool:
    if weight_attr not in (None, "edge_weight"):
        raise ValueError(f'weight_attr={weight_attr!r}; a store calls its edge weights "edge_weight"')
    return weight_attr is not None


def refuse(options, num_workers, **parameters):
    """`ValueError` for a parameter that is impossible here. Takes parameters without an effect out of `options`."""
    parameters |= {name: options.pop(name) for name in INSTEAD if name in options}
    for name, value in parameters.items():
        if value is not None:
            raise ValueError(f"{name}: {INSTEAD[name]}")
    without_workers(num_workers, options)


def without_workers(num_workers, options):
    """Takes the options of worker processes out of `options`."""
    for name in ("persistent_workers", "prefetch_factor", "multiprocessing_context", "in_order", "pin_memory_device"):
        options.pop(name, None)
    if options.pop("timeout", 0):
        raise ValueError("timeout: a loader waits for its own threads; leave it out")
    if num_workers:
        warnings.warn(
            f"num_workers={num_workers} has no effect: threads of the loader sample; threads=... is their number", stacklevel=4
        )
