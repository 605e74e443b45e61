"""Minibatches of sampled neighborhoods."""

from __future__ import annotations

import operator
import os
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Generic, Iterable, Iterator, Sequence, TypeVar, get_args

from . import _grappa
from ._tensors import Destination, arrays
from ._types import Correction, Device, Fanouts, FirstHop, Halo, LabelScope, Layout, Nodes, StoreLike, TimeHops, Times, TimeStrategy
from .arguments import choice, flag, integer
from .command import tell_warnings
from .orders import order_of
from .neighborhoods import NODE
from .partitions import partition_options
from .ranks import Ranks
from .store import Store, _numbers
from .times import is_own, own_times, require_limits, require_times, time_options, time_unit, times_of, warn_of_times

if TYPE_CHECKING:
    from .batch_rows import BatchRows
    from .embedding import Embedding

#: The type of a loader's batches.
BatchT = TypeVar("BatchT")

UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass
class Block:
    """A hop as a bipartite graph from sources to destinations, as DGL has it. The first sources are the destinations.

    Example:
        >>> batch = next(iter(grappa.NeighborLoader(store, [5], layout="blocks")))
        >>> batch.blocks[0].size[1] == batch.batch_size
        True
    """

    #: Indices of sources and of destinations: shape (2, e), int64.
    edge_index: Any
    #: The number of sources and of destinations.
    size: tuple[int, int]
    #: Weights of the edges: shape (e,), float32. None if the batch has no edge weights.
    edge_weight: Any = field(default=None, repr=False)
    #: The features of the edges: shape (e, num_edge_features), float32. None if the store has none, or with
    #: ``edge_features=False``.
    edge_attr: Any = field(default=None, repr=False)
    #: The number of the type of each edge, as `Store.relation_names` names them: shape (e,), int64. None if edges have no types.
    edge_type: Any = field(default=None, repr=False)
    #: The places of the edges in the store: shape (e,), int64. None if the batch has neither weights nor features of edges.
    e_id: Any = field(default=None, repr=False)
    #: The times of the edges in the unit of the store: shape (e,), int64. None unless seeds have times.
    edge_time: Any = field(default=None, repr=False)


@dataclass
class Batch:
    """A minibatch. Arrays are NumPy arrays of memory that the loader wrote once, or tensors if the loader has a ``device``; they
    stay valid while they are used.

    Nodes are numbered within the batch: seeds first, then the nodes that each hop reached first. With the layout ``"hops"``, a node
    draws in-neighbors once. A seed that is given twice is there twice, and each draws in-neighbors; edges from it come from the
    first.

    Example:
        >>> batch = next(iter(grappa.NeighborLoader(store, [5], batch_size=8)))
        >>> batch.x.shape[1], len(batch.y) == batch.batch_size, len(batch.num_sampled_nodes)
        (1433, True, 2)
    """

    #: The nodes of the batch in the store: shape (n,), int64.
    n_id: Any
    #: The number of seeds, which are the first nodes.
    batch_size: int
    #: The position of each seed in `input_nodes`: shape (batch_size,), int64.
    input_id: Any
    #: Multiply the batch's mean loss by this factor so that every seed has equal weight, including under DDP. With a
    #: ``correction``, a factor for the loss of each seed: shape (batch_size,), float32.
    loss_weight: Any
    #: Sources and destinations, numbered within the batch, hop by hop: shape (2, e), int64. None with the layout ``"blocks"``.
    edge_index: Any = None
    #: Weights of the edges: shape (e,), float32. None if the store has none, or with ``edge_weights=False``.
    edge_weight: Any = field(default=None, repr=False)
    #: The features of the edges: shape (e, num_edge_features), float32. None if the store has none, or with
    #: ``edge_features=False``.
    edge_attr: Any = field(default=None, repr=False)
    #: The number of the type of each edge, as `Store.relation_names` names them: shape (e,), int64. None if edges have no types.
    edge_type: Any = field(default=None, repr=False)
    #: The places of the edges in the store: shape (e,), int64. None if the batch has neither weights nor features of edges.
    e_id: Any = field(default=None, repr=False)
    #: The times of the edges in the unit of the store: shape (e,), int64. None unless seeds have times.
    edge_time: Any = field(default=None, repr=False)
    #: The time of each seed in the unit of the store: shape (batch_size,), int64. None unless seeds have times.
    seed_time: Any = field(default=None, repr=False)
    #: The time of each node in the unit of the store: shape (n,), int64. None unless seeds and nodes have times.
    node_time: Any = field(default=None, repr=False)
    #: With ``disjoint=True`` or times, the index of each node's seed: shape (n,), int64. Otherwise None.
    batch: Any = field(default=None, repr=False)
    #: The number of seeds, then the number of nodes that each hop reached first. None with other layouts than ``"hops"``.
    num_sampled_nodes: list[int] | None = None
    #: The number of edges of each hop. None with other layouts than ``"hops"``.
    num_sampled_edges: list[int] | None = None
    #: With the layout ``"blocks"``: a `Block` per hop, the outermost first, which is the one of a model's first layer.
    blocks: list[Block] | None = None
    #: Feature rows: shape (n, num_features), float32; followed by the rows of ``embeddings``, if the loader has them. None without both.
    x: Any = field(default=None, repr=False)
    #: The pre-aggregated features of all in-neighbors of each node: shape (n, num_features), float32. None with
    #: ``first_hop="sampled"``.
    x_aggregated: Any = field(default=None, repr=False)
    #: Labels of the seeds, or of all nodes with ``labels="all"``. None if the store has no labels.
    y: Any = field(default=None, repr=False)


class Loader(Generic[BatchT]):
    """Samples batches of any type; see `NeighborLoader`."""

    #: Makes a batch of its parts.
    _kind: Callable[..., BatchT]
    #: The arguments that give seeds their times, and choose among the edges within the limits, in errors.
    _time_argument, _strategy_argument = "input_time", "time_strategy"

    def __init__(
        self,
        store: StoreLike,
        num_neighbors: Fanouts,
        batch_size: int = 1,
        input_nodes: Nodes = "train",
        *,
        memory: int | str | None = None,
        shuffle: bool | None = None,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        replace: bool = False,
        seed: int = 0,
        threads: int | None = None,
        features: bool = True,
        labels: LabelScope | None = "seeds",
        by_weight: bool = False,
        edge_weights: bool | None = None,
        edge_features: bool | None = None,
        layout: Layout = "hops",
        disjoint: bool = False,
        full_batches: bool = False,
        drop_last: bool = False,
        device: Device = None,
        pin_memory: bool = False,
        num_workers: int = 0,
        distributed: bool | None = None,
        partitions: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        repartition_every: int | None = None,
        halo: Halo = "auto",
        halo_neighbors: int | None = None,
        correction: Correction = "none",
        shrinkage: float | None = None,
        first_hop: FirstHop = "sampled",
        embeddings: Embedding | Sequence[Embedding] | None = None,
        input_time: Times | None = None,
        time_equal: bool = True,
        time_hops: TimeHops = "seed",
        time_window: int | None = None,
        time_strategy: TimeStrategy = "uniform",
    ):
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        if num_workers:
            raise ValueError(
                f"num_workers={num_workers}: threads of the loader sample, and no other process is needed; leave it out, or "
                "give threads=..."
            )
        choice("labels", labels, (*get_args(LabelScope), None))
        choice("layout", layout, get_args(Layout))
        self._partitions = partition_options(
            partitions, rank, world_size, repartition_every, halo, halo_neighbors, correction, shrinkage, first_hop, distributed
        )
        if partitions is not None:
            if full_batches or drop_last:
                raise ValueError("full_batches and drop_last: partitions divide their seeds evenly, so that all have as many steps")
            if layout == "induced":
                raise ValueError('layout="induced": partitions see no edges between them; give "hops" or "blocks"')
        if disjoint and layout == "induced":
            raise ValueError('disjoint=True and layout="induced": edges join the nodes of different seeds; give "hops" or "blocks"')
        is_divided = bool(distributed) or partitions is not None
        #: This process, as another one that gets a pickled loader has to know it.
        self._place = {name: self._partitions[name] for name in ("rank", "world_size")} if is_divided else {}
        arguments |= self._place
        self.store = self._opened(store)
        #: The arguments of `__init__`, for pickle.
        self._arguments = {**arguments, "store": self.store.path}
        has_tensors = device is not None or pin_memory or embeddings is not None
        self._destination = Destination(device or "cpu", pin_memory) if has_tensors else None
        #: What brings rows of embeddings with batches. None without embeddings.
        self._rows = None if embeddings is None else self._rows_of(embeddings, first_hop)
        self._epoch = 0
        self._input_nodes = input_nodes
        #: Whether the user wants no times of seeds.
        self._leaves_out_times = isinstance(input_time, str) and input_time == "none"
        timed_by = self._timed_by(input_time)
        limits = time_options(
            timed_by, self._time_argument, time_equal, time_hops, time_window, (self._strategy_argument, time_strategy)
        )
        if timed_by is not None:
            require_times(self.store, timed_by)
            has = {"by_weight": by_weight, "layout": layout == "induced", "first_hop": first_hop != "sampled"}
            require_limits(timed_by, self._time_argument, has)
        self._drawing = {
            "replace": flag("replace", replace),
            "by_weight": flag("by_weight", by_weight),
            "layout": layout,
            "disjoint": flag("disjoint", disjoint) or limits is not None,
            "times": limits,
            **self._drawn(num_neighbors, edge_weights, edge_features),
        }
        has_order = sampler is not None or batch_sampler is not None
        self._options = {
            "batch_size": integer("batch_size", batch_size, 1),
            "shuffle": not has_order if shuffle is None else flag("shuffle", shuffle),
            "seed": integer("seed", seed, 0),
            "memory": _bytes(memory),
            "threads": None if threads is None else integer("threads", threads, 1, bits=32),
            "features": flag("features", features),
            "labels": labels,
            "full_batches": flag("full_batches", full_batches),
            "drop_last": flag("drop_last", drop_last),
            "by_position": False,
            "seed_times": None,
        }
        self._seeds = self._seeds_of(input_nodes)
        if timed_by is not None:
            self._options["seed_times"] = self._times_of_seeds(input_time)
        self._open()
        self._order = order_of(
            sampler,
            batch_sampler,
            *self._listed(),
            batch_size=self._options["batch_size"],
            drop_last=bool(drop_last),
            shuffle=shuffle,
            full_batches=bool(full_batches),
            distributed=bool(distributed),
            partitions=partitions,
        )
        self._ranks = Ranks(
            divides=None if not is_divided else "distributed=True" if distributed else f"partitions={partitions}",
            world_size=None if rank is not None else self._partitions["world_size"],
            may_repeat=distributed is not None or not self._options["shuffle"],
            seeds=self._divided(input_nodes),
            options={name: self._options[name] for name in ("batch_size", "shuffle", "seed", "full_batches", "drop_last")}
            | {"partitions": partitions},
        )

    def _opened(self, store):
        return store if isinstance(store, Store) else Store(store)

    def _drawn(self, num_neighbors, edge_weights, edge_features):
        """The fanouts, and what batches have of edges."""
        weights = self.store.has_edge_weights if edge_weights is None else flag("edge_weights", edge_weights)
        features = self.store.num_edge_features > 0 if edge_features is None else flag("edge_features", edge_features)
        return {
            "fanouts": _fanouts(num_neighbors),
            "edge_weights": weights,
            "edge_ids": weights or features,
            "edge_features": features,
        }

    def _open(self):
        """Opens the loader of the options."""
        self._open_with(None)

    def _open_with(self, links):
        try:
            self._loader = _grappa.Loader(self.store._store, self._seeds, self._drawing, self._options, self._partitions, links)
        finally:
            tell_warnings()
        self._warn_of_times()
        # Threads end before the interpreter does.
        self._close = weakref.finalize(self, self._loader.close)

    def _timed_by(self, input_time: Any) -> str | None:
        """The argument that gives seeds their times; None if none does."""
        has_times = self._seeds_have_times() if input_time is None else not self._leaves_out_times
        return self._time_argument if has_times else None

    def _seeds_have_times(self) -> bool:
        """Whether all seeds have times of their own."""
        return self.store.has_node_times

    def _warn_of_times(self) -> None:
        if self._drawing["times"] is None and not self._leaves_out_times:
            warn_of_times(self.store, self._time_argument)

    def _times_of_seeds(self, input_time: Any) -> Any:
        """The time of each seed, in the order of seeds."""
        count, items = self._listed()
        if is_own(input_time):
            return own_times(self.store, self._seeds, f"the nodes of {os.fspath(self.store.path)}")
        return times_of(input_time, self._time_argument, count, time_unit(self.store), f"seeds in {items}")

    def _seeds_of(self, input_nodes):
        if input_nodes is None:
            return None
        if isinstance(input_nodes, str):
            return self.store.split(input_nodes)
        return _numbers(input_nodes, self.store.num_nodes, "input_nodes")

    def _rows_of(self, embeddings: Any, first_hop: FirstHop) -> BatchRows:
        """What brings rows with batches."""
        from .batch_rows import BatchRows
        from .sparse_adam import require_one_process

        if first_hop != "sampled":
            raise ValueError(
                f'first_hop={first_hop!r} and embeddings: pre-aggregated features have no rows of embeddings; give first_hop="sampled"'
            )
        require_one_process("embeddings", self._partitions["world_size"])
        pins = self._destination is not None and self._destination.pins
        return BatchRows(embeddings, self.store.path, self._node_types(), pins)

    def _node_types(self) -> list[str]:
        """The names of the node types, in the order of `_nodes_of_types`."""
        return [NODE]

    def _nodes_of_types(self, entries: dict[str, Any]) -> list[dict[str, Any]]:
        """The entries of a batch about the nodes of each type."""
        return [entries]

    def _listed(self) -> tuple[int, str]:
        """The number of seeds that a sampler may give, and the argument that has them."""
        return self.store.num_nodes if self._seeds is None else len(self._seeds), "input_nodes"

    def _divided(self, input_nodes):
        """What ranks may divide: names, None for all, or arrays."""
        return [input_nodes if input_nodes is None or isinstance(input_nodes, str) else self._seeds]

    def __len__(self) -> int:
        """Number of batches of an epoch.

        Raises:
            TypeError: A sampler decides it, and has no length.
        """
        return len(self._loader) if self._order is None else len(self._order)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch `epoch`. Otherwise epochs count from 0.

        Example:
            >>> loader = grappa.NeighborLoader(store, [5], batch_size=64)
            >>> loader.set_epoch(3)
        """
        self._epoch = integer("epoch", epoch, 0)

    def __iter__(self) -> Iterator[BatchT]:
        self._ranks.check()
        batches = self._loader.epoch(self._epoch, *((None, None) if self._order is None else self._order.draw()))
        self._epoch += 1
        if self._destination is None:
            return map(self._batch, map(arrays, batches))
        delivered = self._destination.deliver(batches)
        # Rows are read last, when the batch is asked for.
        return map(self._batch, delivered if self._rows is None else self._rows.each(delivered, self._nodes_of_types))

    def __getitem__(self, index: int):
        raise TypeError(
            "a loader has no batch by number: iterate over it, or next(iter(loader)); it needs no torch.utils.data.DataLoader "
            "around it"
        )

    def _batch(self, entries: dict[str, Any]) -> BatchT:
        blocks = entries.pop("blocks", None)
        return self._kind(**entries, blocks=None if blocks is None else [Block(**block) for block in blocks])

    def __repr__(self) -> str:
        module = type(self).__module__.removesuffix(".loader").removesuffix(".links")
        batches = f" in {len(self._loader):,} batches" if self._order is None else ""
        return (
            f"{module}.{type(self).__name__}({str(self.store.path)!r}: {self._loader.num_seeds:,} seeds{batches}, "
            f"num_neighbors={self._drawing['fanouts']}, batch_size={self._options['batch_size']})"
        )

    def __reduce__(self):
        if self._rows is not None:
            raise TypeError("a loader with embeddings cannot be pickled: another process would train a copy of the rows; make it there")
        return _reopened, (type(self), self._arguments, self._epoch)


class NeighborLoader(Loader[Batch]):
    """Samples neighborhoods of seed nodes, and reads their features, on threads of its own.

    Args:
        store: A `Store`, or the path of one.
        num_neighbors: The maximum number of in-neighbors that a node draws at each hop, from the seeds outwards; -1 takes all, and
            0 none.
        batch_size: The maximum number of seeds of a batch.
        input_nodes: The seeds: the name of a split, node numbers, which may repeat, a mask over all nodes, or None for all nodes.
        memory: The budget for adjacency lists, features and buffers, in bytes or like ``"4GiB"``. Default: half of the free memory.
        shuffle: Whether each epoch has the seeds in another order. Default: yes, unless a sampler decides.
        sampler: Decides the order of seeds, how often each is there, and which are missing: a list of positions in `input_nodes`,
            or an object that gives them in each epoch, such as `torch.utils.data.WeightedRandomSampler`.
        batch_sampler: Decides the batches, too: it gives a list of positions for each batch, such as
            `torch.utils.data.BatchSampler`. In the place of `batch_size`, `shuffle`, `drop_last` and `sampler`.
        replace: Whether to draw with replacement.
        seed: Seed of all random choices. The same seed and epoch give the same batches.
        threads: Number of threads. Default: one per processor.
        features: Whether batches have features.
        labels: ``"seeds"``, ``"all"`` for the labels of all nodes of a batch, or None.
        by_weight: Whether to draw in-neighbors with probabilities proportional to edge weights.
        edge_weights: Whether batches have the weights of their edges. Default: if the store has edge weights.
        edge_features: Whether batches have the features of their edges. Default: if the store has some.
        layout: ``"hops"``: one list of edges, as PyTorch Geometric has it; a node draws once, at the hop after the one that reached
            it. ``"blocks"``: a bipartite `Block` per hop, as DGL has it; every node draws at each hop. ``"induced"``: as
            ``"hops"``, with all edges among the sampled nodes.
        disjoint: Whether each seed has a neighborhood of its own, and ``batch.batch`` has the index of each node's seed. A node is
            in the neighborhoods of several seeds as often.
        full_batches: Whether all batches but the last one have ``batch_size`` seeds. By default seeds are divided evenly, so that
            no batch has only a few.
        drop_last: Whether to leave out that smaller last batch, as PyTorch's loaders do.
        device: ``"cpu"`` or ``"cuda"`` for tensors there instead of NumPy arrays. Copies to a GPU run on a stream of their own.
        pin_memory: Whether tensors on the CPU are in pinned memory. Implies ``device="cpu"`` if no device is given.
        num_workers: Must be 0. Threads of the loader sample, and no other process is needed.
        distributed: Whether the ranks of `torch.distributed` divide the seeds, as PyTorch's ``DistributedSampler`` does: all have the
            same number of batches, for which the first seeds of an epoch's order may be there again at its end. False says that each rank
            is to see all seeds. By default a rank does, and a loader that shuffles warns about it.
        partitions: Number of partitions of the graph. Each sees its own part only. Default: none, the whole graph.
        rank: The number of this process, of those that divide the seeds or partitions. Default: as `torch.distributed` is initialized, or 0.
        world_size: The number of these processes. Default: as `torch.distributed` is initialized, or 1.
        repartition_every: Number of epochs between two repartitionings. Default: 5.
        halo: How sources are treated that a partition does not own. ``"auto"`` and ``"neighbors"`` sample in-neighbors of theirs
            at each repartitioning, ``"stop"`` takes their features and nothing else, ``"none"`` leaves them out.
        halo_neighbors: The maximum number of sampled in-neighbors of such a source. Default: ten times the largest number of
            ``num_neighbors`` after the first, or fewer if they would fill the memory, and at least 10.
        correction: Loss weights by coverage, the share of its neighborhood that a seed sees in its partition: ``"none"``,
            ``"batch"`` for the mean coverage of the seeds of a partition in a step, or ``"node"`` for the coverage of each seed.
        shrinkage: The strength of the correction, from 0 (none) to 1 (full). Default: 1.
        first_hop: ``"sampled"``; or a kind of `Store.preaggregate`, such as ``"mean"``, for batches that also have the aggregates of each node's
            in-neighbors as ``x_aggregated``. In a graph with types, the relations of a batch have ``x_aggregated``, a row for each
            destination. A model's first layer takes these instead of edges, so give `num_neighbors` one hop less than the model has layers.
        embeddings: A `grappa.Embedding`, or several of different node types, whose current rows batches have as ``x``, after the features
            if there are some. Batches are tensors then.
        input_time: The time of each seed, for a graph whose edges or nodes have times: integers in the unit of the store (`Store.time_unit`),
            or dates, in the order of `input_nodes`; or one time for all seeds. A batch has no edge from after the time of its seed, so
            each seed has a neighborhood of its own, as with ``disjoint``. A seed may be there several times, at different times. Relations
            without times are not limited. Batches have ``seed_time``, and ``edge_time`` or ``node_time``. Default: ``"own"``, the times of
            the nodes, if the seeds are nodes with times; ``"none"`` gives batches without times.
        time_equal: Whether edges at the time of the seed count, as in PyTorch Geometric.
        time_hops: The limit of later hops: ``"seed"`` for the time of the seed, as in PyTorch Geometric, or ``"edge"`` for the time of
            the edge over which the node was reached.
        time_window: Edges are at most this much earlier than the limit, in the unit of the store. Default: any time.
        time_strategy: The edges within the limits that are drawn: ``"uniform"``, any of them, or ``"last"``, the last ones.

    With partitions, `batch_size` is the maximum number of seeds of each partition in a step. A batch has the seeds of all
    partitions of this process in a step. Every process has a batch in every step.

    Raises:
        ValueError: An argument is impossible.
        grappa.Error: The memory is too small, or the store is damaged.

    Example:
        >>> loader = grappa.NeighborLoader(store, [10, 5], batch_size=64, seed=7)
        >>> batch = next(iter(loader))
        >>> batch.x.shape[0] == len(batch.n_id), batch.edge_index.shape[0]
        (True, 2)
        >>> loader = grappa.NeighborLoader(store, [10, 5], batch_size=64, layout="blocks")
        >>> batch = next(iter(loader))
        >>> batch.blocks[0].size[0] == len(batch.n_id), batch.blocks[-1].size[1] == batch.batch_size
        (True, True)
        >>> loader = grappa.NeighborLoader(store, [5], batch_size=2, input_nodes=[7, 5], sampler=[0, 0, 1])
        >>> [batch.n_id[: batch.batch_size].tolist() for batch in loader]
        [[7], [7, 5]]
        >>> events = grappa.ingest(np.array([[1, 0], [2, 0]]), time=np.array([10, 20]), out=folder / "events.grappa")
        >>> loader = grappa.NeighborLoader(events, [5], 2, [0, 0], input_time=[15, 20], shuffle=False)
        >>> batch = next(iter(loader))
        >>> batch.seed_time.tolist(), batch.edge_time.tolist(), batch.batch[batch.edge_index[1]].tolist()
        ([15, 20], [10, 10, 20], [0, 1, 1])
    """

    _kind = Batch


def _reopened(kind, arguments, epoch):
    loader = kind(**arguments)
    loader.set_epoch(epoch)
    return loader


def _fanouts(num_neighbors):
    try:
        fanouts = [operator.index(fanout) for fanout in num_neighbors]
    except TypeError:
        raise TypeError(
            f"num_neighbors={num_neighbors!r}; give a list with an integer for each hop, such as [15, 10], where -1 takes all "
            "in-neighbors"
        ) from None
    wrong = next((fanout for fanout in fanouts if not -1 <= fanout < 1 << 32), None)
    if wrong is not None:
        raise ValueError(f"num_neighbors has {wrong}; give numbers from 0, and below 2**32, or -1 for all in-neighbors")
    if not fanouts:
        raise ValueError("num_neighbors has no hops; give an integer for each hop, such as [15, 10]")
    return fanouts


def _bytes(memory):
    """Bytes from a number, or a text like ``4GiB``."""
    if memory is None or isinstance(memory, int):
        return memory if memory is None else integer("memory", memory, 1)
    text = str(memory).strip()
    number = text.rstrip("BKMGTibkmgt")
    unit = text[len(number) :].strip().upper()
    try:
        return integer("memory", int(float(number) * UNITS[unit]), 1)
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f'memory={memory!r}: give bytes, or a text like "512MiB" or "4GiB"') from None
