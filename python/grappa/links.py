"""Minibatches of links, with negatives and the neighborhoods of all ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_args

from . import _grappa
from ._types import Exclusion, Fanouts, LabelScope, Links, LoaderOptions, Nodes, Numbers, StoreLike, Times
from .arguments import choice, flag, integer
from .columns import array_of, require_int64
from .loader import Batch, BatchT, Loader
from .store import _numbers
from .times import relation_is_timed, time_unit, times_of

if TYPE_CHECKING:
    from torch_geometric.sampler import NegativeSampling

#: The rule for negatives: a mode, or a mode with its amount.
Negatives: TypeAlias = "Literal['none', 'binary', 'triplet', 'shared'] | dict[str, Any] | NegativeSampling | None"
#: Where the destinations of negatives come from: a rule, or pairs.
Candidates: TypeAlias = "Literal['uniform', 'degree', 'in-batch'] | Links"

#: Bytes that a negative of a batch takes at least: its ends, their numbers, and their places in the batch.
NEGATIVE_BYTES = 32
_WHOLE = "links are sampled from the whole graph"
#: Parameters of `NeighborLoader` that loaders of links do not have.
INSTEAD = {
    "input_nodes": "seeds are the ends of edge_label_index",
    "input_time": "seeds are at the times of edge_label_time",
    "disjoint": "a batch has the neighborhood of each end once",
    **dict.fromkeys(
        ("partitions", "repartition_every", "halo", "halo_neighbors", "correction", "shrinkage"), _WHOLE
    ),
}


@dataclass
class LinkBatch(Batch):
    """A minibatch of links. Seeds are the distinct ends of all pairs, so ``batch_size`` is their number. Indices are of nodes of
    the batch.

    Example:
        >>> batch = next(iter(grappa.LinkNeighborLoader(store, [10, 5], batch_size=8, full_batches=True)))
        >>> batch.edge_label_index.shape, batch.input_id.shape
        ((2, 16), (8,))
    """

    #: Sources and destinations, positives first: shape (2, p + n), int64. None with triplets and shared negatives.
    edge_label_index: Any = field(default=None, repr=False)
    #: 1 for positives and 0 for negatives, or as the loader's ``edge_label`` says: shape (p + n,).
    edge_label: Any = field(default=None, repr=False)
    #: With triplets and shared negatives, the source of each positive: shape (p,), int64.
    src_index: Any = field(default=None, repr=False)
    #: With triplets and shared negatives, the destination of each positive: shape (p,), int64.
    dst_pos_index: Any = field(default=None, repr=False)
    #: The destinations of negatives: with triplets of shape (p,), or (p, amount) if the amount is above 1; shared ones of shape
    #: (amount,).
    dst_neg_index: Any = field(default=None, repr=False)
    #: Whether a shared negative has no edge from the source of each positive: shape (p, amount), uint8. None without shared
    #: negatives.
    neg_mask: Any = field(default=None, repr=False)
    #: The times of pairs in the unit of the store: shape (p + n,), int64; with triplets, of positives: shape (p,). None without times.
    edge_label_time: Any = field(default=None, repr=False)


class LinkLoader(Loader[BatchT]):
    """Samples batches of links of any type; see `LinkNeighborLoader`."""

    #: The number of the relation that links are edges of.
    _relation = 0
    _time_argument = "edge_label_time"

    def __init__(
        self,
        store: StoreLike,
        num_neighbors: Fanouts,
        batch_size: int = 1,
        edge_label_index: Links = "train",
        *,
        edge_label: Numbers | None = None,
        edge_label_time: Times | None = None,
        neg_sampling: Negatives = "binary",
        candidates: Candidates = "uniform",
        among: Nodes = None,
        exclude_edges: bool = True,
        exclude_targets: Exclusion = "both",
        edges_per_epoch: int | None = None,
        labels: LabelScope | None = "all",
        **options: Unpack[LoaderOptions],
    ):
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__", "options")}
        for name, why in INSTEAD.items():
            if name in options:
                raise TypeError(f"{name}: {why}; leave it out")
        if options.get("layout") == "induced" and exclude_targets != "none":
            raise ValueError(
                'the layout "induced" has all edges among nodes, so positives too; give exclude_targets="none", or another layout'
            )
        part, edges = _edges("train" if edge_label_index is None else edge_label_index, 'give "train", "val" or "test"')
        named, listed = _edges(candidates, 'give "uniform", "degree" or "in-batch"', name="candidates")
        if listed is not None and not listed[0].size:
            raise ValueError("candidates has no pairs; give at least one")
        if edges is not None and edges_per_epoch is not None:
            raise ValueError("edges_per_epoch is for the edges of the store; leave it out, or give edge_label_index a name")
        ordered_by = next((name for name in ("sampler", "batch_sampler") if options.get(name) is not None), None)
        if ordered_by is not None and edges_per_epoch is not None:
            raise ValueError(f"edges_per_epoch and {ordered_by}: both decide which edges an epoch has; give one of them")
        mode, amount = _negatives(neg_sampling)
        self._edge_label = _labels(edge_label, mode, edges)
        self._links = {
            "relation": self._relation,
            "part": part,
            "edges": edges,
            "times": None,
            "at_stored_times": False,
            "edges_per_epoch": None if edges_per_epoch is None else integer("edges_per_epoch", edges_per_epoch, 1),
            "negatives": mode,
            "amount": amount,
            "candidates": named,
            "listed": listed,
            "among": among,
            "exclude_edges": flag("exclude_edges", exclude_edges),
            "exclude_targets": choice("exclude_targets", exclude_targets, get_args(Exclusion)),
        }
        self._edge_label_time = edge_label_time
        super().__init__(store, num_neighbors, batch_size, None, labels=labels, **options)
        self._arguments = {**arguments, "store": self.store.path, **options, **self._place}

    def _timed_by(self, input_time: Any) -> str | None:
        times, edges = self._edge_label_time, self._links["edges"]
        if isinstance(times, str) and times == "none":
            return None
        if times is None:
            self._links["at_stored_times"] = edges is None and relation_is_timed(self.store, self._relation)
            if not self._links["at_stored_times"]:
                return None
        elif edges is None:
            raise ValueError(
                f"edge_label_time: the positives {self._links['part']!r} are edges of the store, at their times there; leave it out, give "
                '"none" for batches without times, or give edge_label_index as an array'
            )
        argument = self._time_argument if times is not None else f"{self._links['part']!r}, whose edges have times"
        if self._links["negatives"] == "shared":
            raise ValueError(
                f"neg_sampling=\"shared\" and {argument}: edges at different times cannot share negatives; give \"triplet\", or "
                'edge_label_time="none" for batches without times'
            )
        return argument

    def _times_of_seeds(self, input_time: Any) -> Any:
        # Links have the times, and not their ends.
        return None

    def _open(self):
        times, edges = self._edge_label_time, self._links["edges"]
        if edges is not None and self._drawing["times"] is not None:
            self._links["times"] = times_of(times, "edge_label_time", len(edges[0]), time_unit(self.store), "edges in edge_label_index")
        self._check_amount()
        among = self._links["among"]
        among = None if among is None else _numbers(among, self._sizes()[1], "among")
        self._open_with({**self._links, "among": among})

    def _warn_of_times(self) -> None:
        if not isinstance(self._edge_label_time, str):
            super()._warn_of_times()

    def _sizes(self) -> tuple[int, int]:
        """The number of edges that links are among, and of the nodes that destinations are among."""
        return self.store.num_edges, self.store.num_nodes

    def _check_amount(self):
        """Refuses more negatives than the memory can have, before any are drawn."""
        mode, amount, edges = self._links["negatives"], self._links["amount"], self._links["edges"]
        memory = self._options["memory"] or _grappa.default_memory()
        positives = min(self._options["batch_size"], self._sizes()[0] if edges is None else len(edges[0]))
        in_batch = amount * (1 if mode == "shared" else positives)
        if mode != "none" and in_batch * NEGATIVE_BYTES > memory:
            each = "" if mode == "shared" else f" for each of {positives} positives"
            raise ValueError(
                f"neg_sampling has the amount {amount:g}{each}: a batch takes at least {in_batch * NEGATIVE_BYTES:.2g} bytes for its "
                f"negatives, and memory={memory}; give a smaller amount{'' if mode == 'shared' else ' or batch_size'}"
            )

    def _divided(self, input_nodes):
        return [self._links["part"], *(self._links["edges"] or ())]

    def _listed(self):
        # The number of positives is known when the loader is open.
        return self.num_edges, "edge_label_index"

    @property
    def num_edges(self) -> int:
        """Number of positives of an epoch, or those that a sampler chooses from."""
        return self._loader.num_seeds

    def _batch(self, entries):
        return super()._batch(self._labelled(entries))

    def _labelled(self, entries):
        """The entries with the labels that were given."""
        if self._edge_label is None or "edge_label" not in entries:
            return entries
        ids, ones = entries["input_id"], entries["edge_label"]
        if hasattr(ids, "cpu"):
            import torch

            labels = torch.from_numpy(self._edge_label[ids.cpu().numpy()]).to(ones.device)
            entries["edge_label"] = torch.cat([labels, labels.new_zeros(len(ones) - len(ids))])
        else:
            import numpy as np

            labels = self._edge_label[ids]
            entries["edge_label"] = np.concatenate([labels, np.zeros(len(ones) - len(ids), labels.dtype)])
        return entries


class LinkNeighborLoader(LinkLoader[LinkBatch]):
    """Samples edges with negatives, and the neighborhoods of their ends, on threads of its own.

    Messages never use the edges that a batch is asked about: the edges of validation and test are not in the graph, and the
    positives of a batch and their reverses are left out of its ``edge_index``.

    Args:
        store: A `Store`, or the path of one.
        num_neighbors: As `NeighborLoader`.
        batch_size: The maximum number of positives of a batch.
        edge_label_index: The positives: ``"train"`` for the edges of the graph (of an undirected graph, each once), ``"val"`` or
            ``"test"`` for the edges that ``grappa.ingest(edge_split="80/10/10")`` holds out, or an integer array of shape (2, e), which
            may have an edge twice.
        edge_label: Labels of the positives in an array of shape (e,), or (e, d) without negatives. With binary negatives, labels from 0 are counted from 1, as
            in PyTorch Geometric, and negatives have 0.
        edge_label_time: The times of the positives, for a graph whose edges have times: integers in the unit of the store, or dates, in the
            order of `edge_label_index`; or one time for all. Both ends of a positive and of its negatives see the edges up to this time,
            in a neighborhood that no other positive shares. Edges of the store that `edge_label_index` names are at their stored times.
            ``"none"`` for batches without times, whose messages may be later than their positives.
        neg_sampling: ``"binary"``: pairs of random nodes; ``"triplet"``: destinations for the source of each positive;
            ``"shared"``: destinations that all positives of a batch share; None for none. With a number for each positive (for each
            batch, if they are shared): ``{"mode": "triplet", "amount": 5}``, or `torch_geometric.sampler.NegativeSampling`.
        candidates: ``"uniform"`` draws from all nodes, ``"degree"`` too, in proportion to in-degree^0.75, ``"in-batch"`` from the
            ends of the batch's positives. Or pairs that are hard to tell from edges, in an integer array of shape (2, n): triplets
            draw among the pairs of their source, which must have one; otherwise, ends are drawn from all pairs.
        among: Nodes that destinations are among, such as the items that a user may buy: an integer array, or a mask of all nodes.
            Positives of the store are the edges to them; in an undirected graph, an edge with one end among them points to it,
            because such a store does not keep the direction of the file. Negatives have their destination among them, and binary
            ones the source of a positive. Default: all nodes.
        exclude_edges: Whether true edges, and pairs of a node with itself, are never negatives: edges of the graph and of
            `edge_label_index`; for ``"val"`` and ``"test"``, all edges that are held out. Edges count whatever their time is.
        exclude_targets: ``"both"`` leaves the positives of a batch and their reverses out of its messages, ``"forward"`` only the
            positives, ``"none"`` nothing. At a time, messages keep other events between the same
            nodes.
        edges_per_epoch: Draws this many edges of the store in each epoch, by reading all of them once. Default: all, in memory (16
            bytes each).
        labels: ``"all"`` for the labels of all nodes of a batch, ``"seeds"``, or None.
        **options: As `NeighborLoader`: ``memory``, ``shuffle``, ``replace``, ``seed``, ``threads``, ``features``, ``by_weight``,
            ``edge_weights``, ``edge_features``, ``layout``, ``full_batches``, ``drop_last``, ``sampler``, ``batch_sampler``,
            ``device``, ``pin_memory``, ``distributed``, ``rank``, ``world_size``, ``time_equal``, ``time_hops``, ``time_window``,
            ``time_strategy``. Ranks divide the positives, and samplers give
            positions in `edge_label_index`, in the order of `Store.edge_split` if that is a name.

    Raises:
        ValueError: An argument is impossible.
        IndexError: `edge_label_index` has a node that does not exist.
        grappa.Error: The store has no such edges, the memory is too small, or the store is damaged.

    Example:
        >>> loader = grappa.LinkNeighborLoader(store, [10, 5], batch_size=64, neg_sampling={"mode": "triplet", "amount": 3})
        >>> next(iter(loader)).dst_neg_index.shape[1]
        3
    """

    _kind = LinkBatch


def _edges(value, names, name="edge_label_index"):
    """A name, and sources and destinations: one of them is None."""
    import numpy as np

    if isinstance(value, str):
        return value, None
    return None, _pairs(value, name, f"{names}, or ")


def _pairs(value, name="links", instead="give "):
    """Sources and destinations of an array of pairs. `instead` begins the remedy of an error."""
    import numpy as np

    array = array_of(value, name)
    if array.ndim != 2 or array.shape[0] != 2 or array.dtype.kind not in "iu":
        raise ValueError(f"{name} is an array of {array.dtype} of shape {array.shape}; {instead}integers of shape (2, e)")
    require_int64(array, name)
    return tuple(np.ascontiguousarray(ends, np.int64) for ends in array)


def _negatives(neg_sampling):
    """The mode and the amount of negatives."""
    if neg_sampling is None:
        return "none", 1.0
    if isinstance(neg_sampling, str):
        return neg_sampling, 1.0
    if isinstance(neg_sampling, dict):
        unknown = set(neg_sampling) - {"mode", "amount"}
        if "mode" not in neg_sampling or unknown:
            raise ValueError(f'neg_sampling={neg_sampling!r}; give a dict with "mode" and "amount"')
        return str(neg_sampling["mode"]), _amount(neg_sampling.get("amount", 1))
    if not hasattr(neg_sampling, "mode"):
        raise TypeError(
            f'neg_sampling={neg_sampling!r}; give "binary", "triplet", "shared", None, or a dict with "mode" and "amount"'
        )
    if neg_sampling.src_weight is not None or neg_sampling.dst_weight is not None:
        raise ValueError('neg_sampling has weights of nodes; give candidates="degree" for a draw by degree')
    return neg_sampling.mode.value, _amount(neg_sampling.amount)


def _amount(value):
    if isinstance(value, (str, bytes, bool)) or not hasattr(value, "__float__"):
        raise TypeError(f"neg_sampling has the amount {value!r}; give a number of negatives for each positive")
    return float(value)


def _labels(edge_label, mode, edges):
    import numpy as np

    if edge_label is None:
        return None
    if mode in ("triplet", "shared"):
        raise ValueError(f"edge_label and {mode} negatives: such batches have no labels; leave edge_label out")
    labels = array_of(edge_label, "edge_label", by_row=True)
    if labels.dtype.kind not in "biuf":
        raise TypeError(f"edge_label is an array of {labels.dtype}; give numbers")
    count = None if edges is None else len(edges[0])
    if count is None or labels.shape[:1] != (count,):
        expected = "give edge_label_index as an array" if count is None else f"expected ({count},), a label per edge"
        raise ValueError(f"edge_label has shape {labels.shape}; {expected}")
    if mode == "binary" and labels.ndim > 1:
        raise ValueError(
            f"edge_label has shape {labels.shape}, and binary negatives get the label 0: give edge_label of shape ({count},), or "
            "neg_sampling=None"
        )
    return labels + 1 if mode == "binary" and count and labels.min() == 0 else labels
