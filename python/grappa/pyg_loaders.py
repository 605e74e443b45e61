"""What loaders in the place of PyTorch Geometric's share, whether their graph has types or not."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch_geometric.sampler.base import NegativeSampling, SubgraphType

from ._types import Layout, Links, Numbers, StoreLike, Times, TimeStrategy
from .columns import array_of
from .graph import Graph
from .links import LinkLoader
from .loader import BatchT, Loader
from .samplers import draws_by_weight, homogeneous, refuse, store_of, subgraph_kind
from .times import require_times
from .typed import typed_graph


#: Names of other values of batches.
NOT_TIMES = (
    "x", "y", "batch", "batch_size", "n_id", "e_id", "edge_index", "edge_weight", "edge_attr", "edge_type", "input_id", "seed_time",
    "loss_weight", "num_nodes", "num_sampled_nodes", "num_sampled_edges", "edge_label", "edge_label_index", "edge_label_time", "blocks",
)  # fmt: skip


class DropIn(Loader[BatchT]):
    """A loader with the arguments of PyTorch Geometric."""

    #: The class of loaders of graphs with types. None in this class itself.
    _with_types: type | None = None
    _strategy_argument = "temporal_strategy"
    #: The name of the times of edges and nodes in batches, as it was given.
    _time_attr: str | None = None

    def _choose_class(self, data: Any) -> None:
        """Makes this a loader of graphs with types, if `data` is one."""
        if self._with_types is not None and typed_graph(data) is not None:
            self.__class__ = self._with_types  # type: ignore[assignment]

    def _check(self, layout: str, options: dict[str, Any]) -> None:
        """`ValueError` for options that are impossible in this class."""

    def _check_time_attr(self, timed_by: str | None) -> None:
        """`ValueError` if the times of edges cannot have the name that was given."""
        if self._time_attr is not None:
            require_times(self.store, f"time_attr={self._time_attr!r}")
            if timed_by is None:
                raise ValueError(f"time_attr={self._time_attr!r}: give the seeds their times, {self._time_argument}=...")
            if self._time_attr in NOT_TIMES:
                raise ValueError(f"time_attr={self._time_attr!r}: a batch has other values of this name; give \"time\" or \"edge_time\"")

    def _named(self, entries: dict[str, Any]) -> dict[str, Any]:
        """The entries of a batch, a node type or a relation, with the name of times that was given."""
        for name in ("edge_time", "node_time"):
            if self._time_attr is not None and name in entries:
                entries[self._time_attr] = entries.pop(name)
        return entries

    def _graph_of(self, data: Any) -> Any:
        return store_of(data)

    def _fanouts_of(self, num_neighbors: Any) -> Any:
        return homogeneous(num_neighbors)


class NodeLoader(DropIn[BatchT]):
    """Samples batches of nodes of any type; see `grappa.pyg.NeighborLoader`."""

    def __init__(
        self,
        data: StoreLike | Graph,
        num_neighbors: Any,
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: TimeStrategy = "uniform",
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[BatchT], Any] | None = None,
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
        self._choose_class(data)
        refuse(
            options,
            num_workers,
            transform_sampler_output=transform_sampler_output,
            neighbor_sampler=neighbor_sampler,
        )
        self._time_attr = time_attr
        kind = subgraph_kind(subgraph_type, directed)
        if layout is not None and kind != "directional":
            raise ValueError(f'layout={layout!r} and subgraph_type="{kind}"; give one of them')
        self._check(layout or kind, options)
        self.transform = transform
        self.subgraph_type = kind
        self.num_workers, self.drop_last, self.batch_size = 0, bool(drop_last), batch_size
        #: The order of the seeds, as it was given.
        self.sampler, self.batch_sampler = options.get("sampler"), options.get("batch_sampler")
        #: The seeds, as they were given.
        self.input_nodes = input_nodes
        given_ids = options.pop("input_id", None)
        super().__init__(
            self._graph_of(data),
            self._fanouts_of(num_neighbors),
            batch_size,
            input_nodes,
            **{
                "shuffle": bool(shuffle),
                "replace": replace,
                "labels": "all",
                "by_weight": draws_by_weight(weight_attr),
                "layout": layout or ("induced" if kind == "induced" else "hops"),
                "disjoint": disjoint,
                "input_time": input_time,
                "time_strategy": temporal_strategy,
                # Partitions divide their seeds evenly, and a sampler of batches does it itself.
                "full_batches": options.get("partitions") is None and self.batch_sampler is None,
                "drop_last": drop_last,
                "device": "cpu",
                **options,
            },
        )
        self._input_id = self._ids_of(input_nodes, given_ids)
        self._arguments = {**arguments, "data": self.store.path, **options, **self._place}
        if given_ids is not None:
            self._arguments["input_id"] = given_ids

    @property
    def dataset(self) -> range:
        """The positions of the seeds in `input_nodes`."""
        return range(self._listed()[0])

    def _timed_by(self, input_time: Any) -> str | None:
        timed_by = super()._timed_by(input_time)
        self._check_time_attr(timed_by)
        return timed_by

    def _ids_of(self, input_nodes: Any, given_ids: Any) -> Any:
        """What `input_id` of batches refers to instead of positions in `input_nodes`."""
        return nodes_of_mask(input_nodes) if given_ids is None else torch.as_tensor(given_ids)


class EdgeLoader(LinkLoader[BatchT], DropIn[BatchT]):
    """Samples batches of links of any type; see `grappa.pyg.LinkNeighborLoader`."""

    def __init__(
        self,
        data: StoreLike | Graph,
        num_neighbors: Any,
        edge_label_index: Any = None,
        edge_label: Numbers | None = None,
        edge_label_time: Times | None = None,
        replace: bool = False,
        subgraph_type: SubgraphType | str = "directional",
        disjoint: bool = False,
        temporal_strategy: TimeStrategy = "uniform",
        neg_sampling: str | NegativeSampling | None = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[BatchT], Any] | None = None,
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
        **options: Any,
    ):
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__", "options")}
        self._choose_class(data)
        #: Whether the neighborhoods of links are to be apart, which times see to.
        self._asks_disjoint = disjoint
        self._time_attr = time_attr
        refuse(
            options,
            num_workers,
            transform_sampler_output=transform_sampler_output,
            neighbor_sampler=neighbor_sampler,
        )
        self.transform = transform
        self.subgraph_type = subgraph_kind(subgraph_type, directed)
        self.num_workers, self.drop_last, self.batch_size = 0, bool(drop_last), batch_size
        #: The order of the positives, as it was given.
        self.sampler, self.batch_sampler = options.get("sampler"), options.get("batch_sampler")
        #: The positives, as they were given.
        self.edge_label_index = edge_label_index
        if self.subgraph_type == "bidirectional" and options.get("exclude_targets") == "forward":
            raise ValueError(
                'subgraph_type="bidirectional" adds the reverses that exclude_targets="forward" keeps; give "both" or "none"'
            )
        self._check(self.subgraph_type, options)
        graph = self._graph_of(data)
        given_ids = options.pop("input_id", None)
        self._input_id = None if given_ids is None else torch.as_tensor(given_ids)
        if neg_sampling_ratio:
            neg_sampling = {"mode": "binary", "amount": neg_sampling_ratio}
        self._has_labels = neg_sampling is not None or edge_label is not None
        super().__init__(
            graph,
            self._fanouts_of(num_neighbors),
            batch_size,
            self._positives_of(graph, edge_label_index),
            edge_label=edge_label,
            edge_label_time=edge_label_time,
            neg_sampling=neg_sampling,
            **{
                "shuffle": bool(shuffle),
                "replace": replace,
                "time_strategy": temporal_strategy,
                "by_weight": draws_by_weight(weight_attr),
                "layout": "induced" if self.subgraph_type == "induced" else "hops",
                "full_batches": self.batch_sampler is None,
                "drop_last": drop_last,
                "device": "cpu",
                **options,
            },
        )
        self._arguments = {**arguments, "data": self.store.path, **options, **self._place}
        if given_ids is not None:
            self._arguments["input_id"] = given_ids

    def _timed_by(self, input_time: Any) -> str | None:
        timed_by = super()._timed_by(input_time)
        if self._asks_disjoint and timed_by is None:
            raise ValueError(
                "disjoint=True: without times, a batch of links has the neighborhood of each end once; leave it out, or give batch_size=1 "
                "or edge_label_time"
            )
        self._check_time_attr(timed_by)
        return timed_by

    def _positives_of(self, graph: Any, edge_label_index: Any) -> Links:
        """The positives. A class for graphs with types finds their relation, too."""
        return edge_label_index


def nodes_of_mask(nodes: Any) -> torch.Tensor | None:
    """The nodes of a mask, to which `input_id` refers, as in PyTorch Geometric."""
    if isinstance(nodes, str) or nodes is None:
        return None
    mask = array_of(nodes, "input_nodes")
    return torch.from_numpy(mask.nonzero()[0]) if mask.dtype == bool else None
