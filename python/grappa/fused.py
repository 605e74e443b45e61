"""Models of PyTorch Geometric that compute, of a batch, only the rows that the seeds need."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, MessagePassing, PNAConv, norm as norms
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from .fast_convolutions import convolve_fast

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)

#: The attribute of a batch's `edge_index` with its hops.
HOPS = "_grappa_hops"
#: Convolutions that take no pair of sources and destinations, but whose rows depend on nothing but the in-edges of a node.
ROWS_OF_ALL = (PNAConv,)
#: Functions whose operands are aligned by their rows.
ALIGNED = {
    "add", "sub", "mul", "div", "true_divide", "maximum", "minimum", "lerp", "where", "addcmul", "cat", "concat", "stack",
    "__add__", "__radd__", "__iadd__", "__sub__", "__rsub__", "__isub__", "__mul__", "__rmul__", "__imul__", "__truediv__",
    "add_", "sub_", "mul_", "div_",
}  # fmt: skip
#: Functions that choose rows.
CHOICES = {"__getitem__", "index_select", "narrow", "select", "split", "chunk", "unbind", "masked_select"}
#: Functions that reduce dimensions, and the place of the dimension among their arguments. Without one they reduce all.
REDUCTIONS = {
    **dict.fromkeys(["mean", "sum", "prod", "std", "var", "std_mean", "var_mean", "max", "min", "amax", "amin", "median"], 1),
    **dict.fromkeys(["softmax", "log_softmax", "logsumexp", "cumsum", "sort", "argsort", "argmax", "argmin", "all", "any"], 1),
    **dict.fromkeys(["flip", "nonzero", "item", "tolist"], 1),
    **dict.fromkeys(["norm", "vector_norm", "linalg_vector_norm", "linalg_norm", "roll", "topk", "kthvalue"], 2),
}


class Hops(NamedTuple):
    """The nodes and the edges of a batch up to each hop. A node draws in-neighbors once, so an edge of hop h leads to a node of hop h."""

    nodes: list[int]
    edges: list[int]

    @classmethod
    def of(cls, num_sampled_nodes: list[int], num_sampled_edges: list[int]) -> Hops:
        return cls(list(accumulate(num_sampled_nodes)), list(accumulate(num_sampled_edges)))


def mark_hops(data: Data) -> None:
    """Notes the hops of a batch at its `edge_index`, by which a fused model knows them."""
    if data.get("num_sampled_edges") is not None and data.get("edge_index") is not None:
        setattr(data.edge_index, HOPS, Hops.of(data.num_sampled_nodes, data.num_sampled_edges))


def fuse(model: ModuleT) -> ModuleT:
    """Lets a model compute, of each batch of a `grappa.pyg.NeighborLoader`, only the rows that its seeds need.

    A model of PyTorch Geometric computes all nodes of a batch in each layer. The last layer needs the seeds alone, the layer before it
    the nodes of the first hop, and so on. The fused model is the same module, with the same parameters and the same call
    ``model(batch.x, batch.edge_index)``. It returns the rows of the seeds.

    Convolutions are called one after another. What is between them (linear layers, activations, dropout, norms of rows, skip
    connections, jumping knowledge) follows row by row. A model that mixes rows, such as a batch norm in training, or that calls its
    convolutions with other edges, computes all rows as before, and a warning says why. So do calls with an `edge_index` that is not
    the one of a batch: a copy on another device, for which a loader has ``device=...``, or the result of a transform.

    Args:
        model: A module with convolutions of PyTorch Geometric, such as `torch_geometric.nn.GraphSAGE`.

    Returns:
        The model itself.

    Raises:
        ValueError: The model has no convolution.

    Example:
        >>> from torch_geometric.nn import GraphSAGE
        >>> batch = next(iter(grappa.pyg.NeighborLoader(store, [5, 5], batch_size=8)))
        >>> model = GraphSAGE(store.num_features, 16, num_layers=2, out_channels=7)
        >>> rows = model(batch.x, batch.edge_index)
        >>> seeds = grappa.pyg.fuse(model)(batch.x, batch.edge_index)
        >>> seeds.shape, torch.allclose(seeds, rows[:8], atol=1e-5)
        (torch.Size([8, 7]), True)
    """
    convs = _convolutions(model)
    if not convs:
        raise ValueError(f"{type(model).__name__} has no convolution of PyTorch Geometric, so there is nothing to fuse")
    unfuse(model)
    fused = _Fused(model)
    # Attributes of the instance: parameters, `state_dict` and the type of the module stay as they are.
    model.forward = fused
    for conv in convs:
        conv.forward = _Convolution(fused, conv)
    return model


def unfuse(model: ModuleT) -> ModuleT:
    """Undoes `fuse`. Returns the model itself.

    Example:
        >>> from torch_geometric.nn import GCN
        >>> model = GCN(store.num_features, 16, num_layers=2, out_channels=7)
        >>> batch = next(iter(grappa.pyg.NeighborLoader(store, [5, 5], batch_size=8)))
        >>> fused = len(grappa.pyg.fuse(model)(batch.x, batch.edge_index))
        >>> fused, len(grappa.pyg.unfuse(model)(batch.x, batch.edge_index)) == len(batch.x)
        (8, True)
    """
    for module in model.modules():
        if isinstance(module.__dict__.get("forward"), (_Fused, _Convolution)):
            del module.__dict__["forward"]
    return model


def _convolutions(model: torch.nn.Module) -> list[MessagePassing]:
    """The convolutions of a model, without those that are parts of another one."""
    if isinstance(model, MessagePassing):
        return [model]
    return [conv for child in model.children() for conv in _convolutions(child)]


class _CannotFuse(Exception):
    """The model needs more rows. Its message says why."""


@dataclass
class _Call:
    """A call of the model, while it runs."""

    edge_index: torch.Tensor
    hops: Hops
    #: The number of calls of convolutions of the whole model. None if this call counts them.
    layers: int | None
    #: How many were called so far.
    done: int = 0
    #: The edges and the weights of graph convolutions, by what they depend on.
    norms: dict[Any, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def expanded(self) -> int:
        """The number of hops whose nodes the next convolution computes, after the seeds."""
        last = len(self.hops.edges)
        return last if self.layers is None else min(last, self.layers - 1 - self.done)


class _Fused:
    """The `forward` of a fused model."""

    def __init__(self, model: torch.nn.Module):
        self.model = model
        self.call: _Call | None = None
        #: The number of calls of convolutions, in training and in evaluation; 0 if the model computes all rows.
        self.layers: dict[bool, int] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        forward = functools.partial(type(self.model).forward, self.model)
        edge_index = next((value for value in (*args, *kwargs.values()) if hasattr(value, HOPS)), None)
        training = self.model.training
        layers = self.layers.get(training)
        if edge_index is None or layers == 0 or self.call is not None:
            return forward(*args, **kwargs)
        hops = getattr(edge_index, HOPS)
        call = self.call = _Call(edge_index, hops, layers)
        try:
            out = forward(
                *(_as_rows(value, hops) for value in args), **{name: _as_rows(value, hops) for name, value in kwargs.items()}
            )
            if layers is not None and call.done != layers:
                raise _CannotFuse("the number of its convolutions changes from call to call")
        except (_CannotFuse, RuntimeError, IndexError) as reason:
            self.call = None
            # If the model itself is wrong, this raises as well.
            out = forward(*args, **kwargs)
            self.layers[training] = 0
            warnings.warn(f"{type(self.model).__name__} computes all rows of a batch: {reason}", stacklevel=4)
            return out
        finally:
            self.call = None
        self.layers[training] = call.done
        return out.as_subclass(torch.Tensor)[: hops.nodes[0]] if isinstance(out, _Rows) else out


class _Convolution:
    """The `forward` of a convolution of a fused model."""

    def __init__(self, fused: _Fused, conv: MessagePassing):
        self.fused, self.conv = fused, conv

    def __call__(self, x: Any, edge_index: Any = None, *args: Any, **kwargs: Any) -> Any:
        forward = functools.partial(type(self.conv).forward, self.conv)
        call = self.fused.call
        if call is None:
            return forward(x, edge_index, *args, **kwargs)
        name = type(self.conv).__name__
        if edge_index is not call.edge_index or not isinstance(x, _Rows):
            raise _CannotFuse(f"{name} is called with other edges or nodes than those of the batch")
        if self.conv.flow != "source_to_target":
            raise _CannotFuse(f"{name} has flow={self.conv.flow!r}")
        # Rows inside of a convolution are plain tensors, so what mixes them there is found by its type.
        if norm := next((module for module in self.conv.modules() if _mixes_rows(module)), None):
            raise _CannotFuse(f"{type(norm).__name__} in {name} mixes the rows of all nodes")
        hop = call.expanded()
        call.done += 1
        if hop < 0:
            raise _CannotFuse("the number of its convolutions changes from call to call")
        nodes, edges = call.hops
        size = (nodes[min(hop + 1, len(edges))], nodes[hop])
        rows, count = x.as_subclass(torch.Tensor)[: size[0]], edges[min(hop, len(edges) - 1)]
        if isinstance(self.conv, GCNConv):
            return _graph_convolution(self.conv, rows, call, count, size, *args, **kwargs).as_subclass(_Rows)
        first = functools.partial(_of_first_edges, of_all=edge_index.shape[1], count=count)
        args, kwargs = tuple(map(first, args)), {key: first(value) for key, value in kwargs.items()}
        if isinstance(self.conv, ROWS_OF_ALL):
            return forward(rows, edge_index[:, :count], *args, **kwargs)[: size[1]].as_subclass(_Rows)
        if (out := convolve_fast(self.conv, (rows, rows[: size[1]]), edge_index[:, :count], *args, **kwargs)) is not None:
            return out.as_subclass(_Rows)
        if not _takes_pairs(type(self.conv)):
            raise _CannotFuse(f"{name} takes no pair of sources and destinations, so its rows may depend on other edges")
        return forward((rows, rows[: size[1]]), edge_index[:, :count], *args, **kwargs).as_subclass(_Rows)


def _mixes_rows(module: torch.nn.Module) -> bool:
    """Whether a norm computes a row from the rows of other nodes, too."""
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        return module.training or not module.track_running_stats
    if isinstance(module, (norms.BatchNorm, norms.HeteroBatchNorm)):
        # The batch norm of PyTorch inside it decides.
        return isinstance(module, norms.HeteroBatchNorm) and module.training
    if isinstance(module, (norms.LayerNorm, norms.HeteroLayerNorm)):
        return getattr(module, "mode", "node") != "node"
    return type(module).__module__.startswith(norms.__name__)


def _takes_pairs(kind: type[MessagePassing]) -> bool:
    """Whether a convolution says that it takes a pair of the rows of sources and of destinations."""
    annotation = str(list(inspect.signature(kind.forward).parameters.values())[1].annotation)
    return any(word in annotation for word in ("Tuple", "tuple", "PairTensor"))


def _of_first_edges(value: Any, of_all: int, count: int) -> Any:
    """A value for each of the first edges, if it is one for each edge of the batch."""
    if not isinstance(value, torch.Tensor) or value.dim() == 0:
        return value
    value = value.as_subclass(torch.Tensor)
    return value[:count] if value.shape[0] == of_all else value


def _graph_convolution(conv, rows, call, count, size, edge_weight=None):
    """A `GCNConv`. A node has its degree in the whole batch, as the stock model computes it."""
    if conv.cached:
        raise _CannotFuse("GCNConv has cached=True, which is for one graph")
    rows = conv.lin(rows)
    if not conv.normalize:
        weight = None if edge_weight is None else edge_weight[:count]
        some = call.edge_index[:, :count]
    else:
        key = (id(edge_weight), conv.improved, conv.add_self_loops, rows.dtype)
        if key not in call.norms:
            nodes = call.hops.nodes[-1]
            call.norms[key] = gcn_norm(
                call.edge_index, edge_weight, nodes, conv.improved, conv.add_self_loops, conv.flow, rows.dtype
            )
        edges, weights = call.norms[key]
        if conv.add_self_loops:
            # The loops of the graph are left out, and a loop of each node comes behind all edges.
            sources, destinations = call.edge_index[:, :count]
            kept, loops = int((sources != destinations).sum()), edges.shape[1] - call.hops.nodes[-1]
            some = torch.cat([edges[:, :kept], edges[:, loops : loops + size[1]]], dim=1)
            weight = torch.cat([weights[:kept], weights[loops : loops + size[1]]])
        else:
            some, weight = edges[:, :count], weights[:count]
    out = conv.propagate(some, x=(rows, None), edge_weight=weight, size=size)
    return out if conv.bias is None else out + conv.bias


class _Rows(torch.Tensor):
    """A row for each of the first nodes of a batch. Where more and fewer rows meet, the first ones are used."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            counts = {value.shape[0] for value in _rows_in((args, kwargs))}
            if name == "batch_norm" and (kwargs.get("training") or args[5:6] == (True,)):
                raise _CannotFuse("a batch norm in training mixes the rows of all nodes")
            if name in REDUCTIONS and _dimension_is_rows(args, kwargs, REDUCTIONS[name]):
                raise _CannotFuse(f"{name} mixes the rows of all nodes")
            if name in ("cat", "concat", "stack") and _dimension_is_rows(args, {"dim": 0, **kwargs}, 1):
                raise _CannotFuse(f"{name} makes one list of the rows of several layers")
            if len(counts) > 1:
                if name not in ALIGNED:
                    raise _CannotFuse(f"{name or func} joins rows of several layers")
                args, kwargs = _aligned((args, kwargs), min(counts))
        out = super().__torch_function__(func, types, args, kwargs)
        if not isinstance(out, _Rows):
            return out
        with torch._C.DisableTorchFunctionSubclass():
            if out.dim() > 0 and out.shape[0] == min(counts, default=0):
                return out
            if name not in CHOICES:
                raise _CannotFuse(f"{name or func} does not keep the rows of nodes apart")
            return out.as_subclass(torch.Tensor)


def _rows_in(value: Any) -> Iterator[_Rows]:
    if isinstance(value, _Rows):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _rows_in(part)
    elif isinstance(value, dict):
        yield from _rows_in(list(value.values()))


def _aligned(value: Any, count: int) -> Any:
    """A value with the first rows of each of its tensors of rows."""
    if isinstance(value, _Rows):
        return value[:count]
    if isinstance(value, (list, tuple)):
        return type(value)([_aligned(part, count) for part in value])
    if isinstance(value, dict):
        return {key: _aligned(part, count) for key, part in value.items()}
    return value


def _dimension_is_rows(args: tuple, kwargs: dict[str, Any], place: int) -> bool:
    """Whether a function works along the rows: along dimension 0, or along all."""
    dim = kwargs.get("dim", kwargs.get("axis", args[place] if len(args) > place else None))
    if isinstance(dim, torch.Tensor):
        # Not a dimension: `torch.max` of two tensors.
        return False
    if dim is None:
        return True
    first = next(_rows_in(args), None)
    dimensions = 1 if first is None else first.dim()
    return any(number % dimensions == 0 for number in (dim if isinstance(dim, (list, tuple)) else [dim]))


def _as_rows(value: Any, hops: Hops) -> Any:
    is_of_nodes = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == hops.nodes[-1]
    return value.as_subclass(_Rows) if is_of_nodes and value.is_floating_point() else value
