"""Loaders of graphs with types in the place of PyTorch Geometric's."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler.base import SubgraphType

from ._types import Layout
from .columns import array_of
from .graph import Graph
from .samplers import Block, draws_by_weight, refuse, subgraph_kind
from .typed import TypedLoader, seed_groups, typed_graph


class HeteroNeighborLoader(TypedLoader[HeteroData]):
    """What `grappa.pyg.NeighborLoader` is for a graph with types, and what it becomes if it gets one. Batches are
    `torch_geometric.data.HeteroData`. Arguments are as there.

    Example:
        >>> loader = grappa.pyg.HeteroNeighborLoader(typed, [2], input_nodes="paper", batch_size=2)
        >>> batch = next(iter(loader))
        >>> batch["paper"].batch_size, batch["author"].n_id.tolist(), batch["author", "writes", "paper"].num_sampled_edges
        (2, [0, 1, 2], [4])
    """

    def __init__(
        self,
        data: Graph | str | os.PathLike[str],
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: str = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[HeteroData], Any] | None = None,
        transform_sampler_output: Callable | None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: None = None,
        directed: bool = True,
        *,
        batch_size: int = 1,
        shuffle: bool | None = None,
        drop_last: bool = False,
        num_workers: int = 0,
        layout: Layout | None = None,
        **options: Any,
    ):
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__", "options")}
        graph: Any = typed_graph(data)
        if graph is None:
            raise TypeError(f"{data!r} is no graph with types; give grappa.pyg.NeighborLoader a store")
        refuse(
            options,
            temporal_strategy,
            num_workers,
            input_time=input_time,
            time_attr=time_attr,
            transform_sampler_output=transform_sampler_output,
            neighbor_sampler=neighbor_sampler,
        )
        kind = subgraph_kind(subgraph_type, directed)
        if kind != "directional" or layout == "induced":
            raise ValueError(f'subgraph_type="{kind}": batches of a graph with types have sampled edges only; leave it out')
        if disjoint:
            raise ValueError("disjoint=True: seeds of a graph with types share a neighborhood; leave it out, or give batch_size=1")
        if options.get("correction", "none") != "none" or options.get("first_hop", "sampled") != "sampled":
            raise ValueError("correction and first_hop: graphs with types have none; leave them out")
        self.transform = transform
        self.num_workers, self.drop_last, self.batch_size = 0, bool(drop_last), batch_size
        #: The order of the seeds, as it was given.
        self.sampler, self.batch_sampler = options.get("sampler"), options.get("batch_sampler")
        #: The seeds, as they were given.
        self.input_nodes = input_nodes
        super().__init__(
            graph,
            num_neighbors,
            batch_size,
            input_nodes,
            **{
                "shuffle": bool(shuffle),
                "replace": replace,
                "labels": "all",
                "by_weight": draws_by_weight(weight_attr),
                "layout": layout or "hops",
                "full_batches": options.get("partitions") is None and self.batch_sampler is None,
                "drop_last": drop_last,
                "device": "cpu",
                **options,
            },
        )
        self._input_ids = {name: _nodes_of_mask(nodes) for name, nodes in seed_groups(input_nodes, graph)}
        self._arguments = {**arguments, "data": graph.path, **options, **self._place}

    @property
    def dataset(self) -> range:
        """The positions of the seeds in `input_nodes`."""
        return range(self._listed()[0])

    def _batch(self, entries: dict[str, Any]) -> HeteroData:
        data = HeteroData()
        for name, part in zip(self.store.node_types, entries["types"], strict=True):
            if "x" not in part:
                part["num_nodes"] = len(part["n_id"])
            of_mask = self._input_ids.get(name)
            if "input_id" in part and of_mask is not None:
                part["input_id"] = of_mask[part["input_id"].cpu()].to(part["input_id"].device)
            data[name].update(part)
        for edge_type, part in zip(self.store.edge_types, entries["relations"], strict=True):
            if "blocks" in part:
                part["blocks"] = [Block(**block) for block in part["blocks"]]
            data[edge_type].update(part)
        data.loss_weight = entries["loss_weight"]
        return data if self.transform is None else self.transform(data)


def _nodes_of_mask(nodes: Any) -> torch.Tensor | None:
    """The nodes of a mask, to which `input_id` refers, as in PyTorch Geometric."""
    if isinstance(nodes, str) or nodes is None:
        return None
    mask = array_of(nodes, "input_nodes")
    return torch.from_numpy(mask.nonzero()[0]) if mask.dtype == bool else None
