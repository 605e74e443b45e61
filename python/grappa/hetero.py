"""Loaders of graphs with types in the place of PyTorch Geometric's."""

from __future__ import annotations

from typing import Any

from torch_geometric.data import HeteroData

from ._types import Links
from .graph import EdgeType, Graph
from .pyg_loaders import DropIn, EdgeLoader, NodeLoader, nodes_of_mask
from .samplers import Block
from .typed import TypedLoader, relation_named, seed_groups, typed_graph


class _HeteroLoader(TypedLoader[HeteroData], DropIn[HeteroData]):
    """What both loaders share."""

    def _check(self, layout: str, options: dict[str, Any]) -> None:
        if layout not in ("directional", "hops", "blocks"):
            raise ValueError(f'subgraph_type="{layout}": batches of a graph with types have sampled edges only; leave it out')

    def _graph_of(self, data: Any) -> Graph:
        graph = typed_graph(data)
        if graph is None:
            raise TypeError(f"{data!r} is no graph with types; give it to grappa.pyg.NeighborLoader or LinkNeighborLoader")
        return graph

    def _fanouts_of(self, num_neighbors: Any) -> Any:
        return num_neighbors

    def _data(self, entries: dict[str, Any]) -> HeteroData:
        """The nodes and edges of a batch."""
        data = HeteroData()
        for name, part in zip(self.store.node_types, entries["types"], strict=True):
            if "x" not in part:
                part["num_nodes"] = len(part["n_id"])
            data[name].update(self._named(part))
        for edge_type, part in zip(self.store.edge_types, entries["relations"], strict=True):
            part = self._named(part)
            if "blocks" in part:
                part["blocks"] = [Block(**block) for block in part["blocks"]]
            data[edge_type].update(part)
        data.loss_weight = entries["loss_weight"]
        return data


class HeteroNeighborLoader(_HeteroLoader, NodeLoader[HeteroData]):
    """What `grappa.pyg.NeighborLoader` is for a graph with types, and what it becomes if it gets one. Batches are
    `torch_geometric.data.HeteroData`. Arguments are as there.

    Example:
        >>> loader = grappa.pyg.HeteroNeighborLoader(typed, [2], input_nodes="paper", batch_size=2)
        >>> batch = next(iter(loader))
        >>> batch["paper"].batch_size, batch["author"].n_id.tolist(), batch["author", "writes", "paper"].num_sampled_edges
        (2, [0, 1, 2], [4])
    """

    def _ids_of(self, input_nodes: Any, given_ids: Any) -> dict[str, Any]:
        if given_ids is not None:
            raise ValueError("input_id: input_id of a graph with types are positions in input_nodes; leave it out")
        return {name: nodes_of_mask(nodes) for name, nodes in seed_groups(input_nodes, self.store)}

    def _batch(self, entries: dict[str, Any]) -> HeteroData:
        data = self._data(entries)
        for name, nodes in self._input_id.items():
            if nodes is not None and "input_id" in data[name]:
                data[name].input_id = nodes[data[name].input_id.cpu()].to(data[name].input_id.device)
        return data if self.transform is None else self.transform(data)


class HeteroLinkNeighborLoader(EdgeLoader[HeteroData], _HeteroLoader):
    """What `grappa.pyg.LinkNeighborLoader` is for a graph with types, and what it becomes if it gets one. Batches are
    `torch_geometric.data.HeteroData`. Arguments are as there.

    Example:
        >>> relation = ("author", "writes", "paper")
        >>> loader = grappa.pyg.HeteroLinkNeighborLoader(typed, [2], relation, batch_size=4)
        >>> next(iter(loader))[relation].edge_label_index.shape
        torch.Size([2, 4])
    """

    def _positives_of(self, graph: Graph, edge_label_index: Any) -> Links:
        #: The relation of the positives.
        self.edge_type, positives = _relation_and_positives(edge_label_index, graph)
        self._relation = graph.edge_types.index(self.edge_type)
        return positives

    def _seeds_of(self, input_nodes):
        # Seeds are the ends of links.
        return []

    def _sizes(self) -> tuple[int, int]:
        return self.store[self.edge_type].num_edges, self.store[self.edge_type[2]].num_nodes

    def _batch(self, entries: dict[str, Any]) -> HeteroData:
        data, links = self._data(entries), self._labelled(entries["links"])
        if not self._has_labels:
            links.pop("edge_label", None)
        if self._input_id is not None:
            links["input_id"] = self._input_id[links["input_id"].cpu()].to(links["input_id"].device)
        source, _, destination = self.edge_type
        if "src_index" in links and "edge_label_time" in links:
            data[source].seed_time = data[destination].seed_time = links.pop("edge_label_time")
        places = {"src_index": source, "dst_pos_index": destination, "dst_neg_index": destination}
        for name, value in links.items():
            data[places.get(name, self.edge_type)][name] = value
        return data if self.transform is None else self.transform(data)


def _relation_and_positives(edge_label_index: Any, graph: Graph) -> tuple[EdgeType, Links]:
    """The relation among the forms that PyTorch Geometric knows, and its positives.

    Raises:
        TypeError: No relation is named.
        KeyError: The graph has no such relation.
    """
    value = edge_label_index
    if isinstance(value, (tuple, list)) and len(value) == 2 and isinstance(value[0], (tuple, list, str)):
        return _known_relation(value[0], graph), value[1]
    if isinstance(value, str) or isinstance(value, (tuple, list)) and all(isinstance(part, str) for part in value):
        return _known_relation(value, graph), "train"
    raise TypeError(
        f"edge_label_index: name the relation of the positives, such as edge_label_index={graph.edge_types[0]!r}, or give a pair of a "
        'relation and its positives: an array of shape (2, e), or "train", "val" or "test"'
    )


def _known_relation(name: Any, graph: Graph) -> EdgeType:
    edge_type = relation_named(name, graph.edge_types)
    if edge_type is None:
        raise KeyError(f"the graph has no relation {name!r}; it has {graph.edge_types}")
    return edge_type
