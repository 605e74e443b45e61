"""Convolutions of PyTorch Geometric with the operators of `grappa.ops`: attention, and relations.

Linear layers of sources come after the weighted sum where that is less work, because ``sum(w * (W x)) = W sum(w * x)``, and a batch
has several times as many sources as destinations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import FastRGCNConv, GATConv, GATv2Conv, MessagePassing, RGCNConv, TransformerConv
from torch_geometric.nn.dense.linear import Linear

from . import ops

#: The hooks of `MessagePassing`, which need its own steps.
HOOKS = [
    f"_{step}_forward_{hooks}"
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
    for hooks in ("pre_hooks", "hooks")
]


def convolve_fast(conv: MessagePassing, x: tuple[Tensor, Tensor], edge_index: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
    """The rows that ``conv(x, edge_index, *args, **kwargs)`` returns, or None if PyTorch Geometric has to compute them: `conv` is of
    another class, has other options, or is called with features of edges or for attention weights."""
    forward = FORWARDS.get(type(conv))
    if forward is None or not _is_plain(conv) or not all(map(_is_plain_tensor, (*x, edge_index))):
        return None
    return forward(conv, x, edge_index, *args, **kwargs)


def _is_plain(conv: MessagePassing) -> bool:
    has_hooks = any(getattr(conv, name, None) for name in HOOKS)
    return not has_hooks and not getattr(conv, "explain", None) and conv.flow == "source_to_target"


def _is_plain_tensor(value: Any) -> bool:
    """Whether it is a matrix in the memory of the processor that kernels take."""
    return (
        isinstance(value, Tensor)
        and value.dim() == 2
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and value.dtype in (torch.int64, *ops.TYPES)
    )


def _is_plain_linear(layer: Any) -> bool:
    """Whether it does nothing but a product with its weight, which has its shape."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    uninitialized = torch.nn.parameter.UninitializedParameter
    return type(layer) is Linear and "forward" not in vars(layer) and not any(hooks) and not isinstance(layer.weight, uninitialized)


def _joined(conv, rows: Tensor) -> Tensor:
    """The rows of all heads, one after another, or their mean."""
    return rows if conv.concat else rows.view(len(rows), conv.heads, -1).mean(1)


def _weights(conv, logits: Tensor, edges: ops.Edges) -> Tensor:
    weights = ops.edge_softmax(logits, edges)
    return torch.nn.functional.dropout(weights, conv.dropout, conv.training)


def _gat(conv: GATConv, x, edge_index, edge_attr=None, size=None, return_attention_weights=None):
    linears = (conv.lin, conv.lin) if conv.lin is not None else (conv.lin_src, conv.lin_dst)
    if not (edge_attr is size is return_attention_weights is None and _is_attention(conv) and all(map(_is_plain_linear, linears))):
        return None
    sources, destinations = x
    edges = ops.sort_edges(edge_index, (len(sources), len(destinations)), self_loops=conv.add_self_loops)
    # The score of a row is a product with one vector per head.
    of_sources, of_destinations = (
        rows @ torch.einsum("hoi,ho->ih", layer.weight.view(conv.heads, conv.out_channels, -1), attention[0])
        for rows, layer, attention in zip(x, linears, (conv.att_src, conv.att_dst))
    )
    weights = _weights(conv, ops.gat_logits(of_sources, of_destinations, edges), edges)
    out = _joined(conv, ops.weighted_sum(sources, weights, edges, weight=linears[0].weight))
    if conv.res is not None:
        out = out + conv.res(destinations)
    return out if conv.bias is None else out + conv.bias


def _is_attention(conv) -> bool:
    return conv.aggr in ("add", "sum") and getattr(conv, "negative_slope", ops.SLOPE) == ops.SLOPE


def _gatv2(conv: GATv2Conv, x, edge_index, edge_attr=None, return_attention_weights=None):
    if not (edge_attr is return_attention_weights is None and _is_attention(conv)):
        return None
    sources, destinations = x
    edges = ops.sort_edges(edge_index, (len(sources), len(destinations)), self_loops=conv.add_self_loops)
    left, right, dropout = conv.lin_l(sources), conv.lin_r(destinations), conv.dropout if conv.training else 0.0
    out = _joined(conv, ops.gatv2_attention(left, right, conv.att.flatten(), edges, conv.heads, dropout=dropout))
    if conv.res is not None:
        out = out + conv.res(destinations)
    return out if conv.bias is None else out + conv.bias


def _transformer(conv: TransformerConv, x, edge_index, edge_attr=None, return_attention_weights=None):
    if not (edge_attr is return_attention_weights is None and conv.lin_edge is None and _is_attention(conv)):
        return None
    sources, destinations = x
    edges, heads = ops.sort_edges(edge_index, (len(sources), len(destinations))), conv.heads
    queries = conv.lin_query(destinations) / math.sqrt(conv.out_channels)
    key, value = conv.lin_key, conv.lin_value
    if all(map(_is_plain_linear, (key, value))):
        if key.bias is not None:
            # A softmax does not depend on the bias of keys. Its gradient is 0, and not missing.
            queries = queries + 0 * key.bias.sum()
        weights = _weights(conv, ops.dot_logits(sources, queries, edges, heads, weight=key.weight), edges)
        out = ops.weighted_sum(sources, weights, edges, weight=value.weight)
        if value.bias is not None:
            out = out + _sum_of_bias(conv, value.bias, weights, edges)
    else:
        weights = _weights(conv, ops.dot_logits(key(sources), queries, edges, heads), edges)
        out = ops.weighted_sum(value(sources), weights, edges)
    out = _joined(conv, out)
    if not conv.root_weight:
        return out
    own = conv.lin_skip(destinations)
    if conv.lin_beta is None:
        return out + own
    beta = conv.lin_beta(torch.cat([out, own, out - own], dim=-1)).sigmoid()
    return beta * own + (1 - beta) * out


def _sum_of_bias(conv, bias: Tensor, weights: Tensor, edges: ops.Edges) -> Tensor:
    """The weighted sums of a bias of all sources: the bias times the sum of weights, which is 1 without dropout."""
    if not (conv.dropout and conv.training):
        return bias * (edges.offsets.diff() > 0).to(bias.dtype).unsqueeze(1)
    of_one = edges._replace(indices=torch.zeros_like(edges.indices), num_sources=1, transposed=None)
    sums = ops.weighted_sum(weights.new_ones((1, conv.heads)), weights, of_one)
    return (sums.unsqueeze(2) * bias.view(conv.heads, -1)).flatten(1)


def _relations(conv: RGCNConv, x, edge_index, edge_type=None):
    sources, destinations = x
    is_typed = isinstance(edge_type, Tensor) and edge_type.dtype == torch.int64 and edge_type.dim() == 1
    if not is_typed or not sources.is_floating_point() or conv.aggr not in ("add", "sum", "mean"):
        return None
    # Edges of a relation and a destination are one group, whose rows are summed before the product with the weights of the relation.
    count, relations = len(destinations), conv.num_relations
    ends = torch.stack([edge_index[0], edge_type * count + edge_index[1]])
    edges = ops.sort_edges(ends, (len(sources), relations * count))
    counts = edges.offsets.diff()
    groups = counts.nonzero().flatten()
    counts = counts[groups]
    offsets = torch.cat([edges.offsets[groups], edges.offsets[-1:]])
    weights = sources.new_ones(len(edges.indices))
    if conv.aggr == "mean":
        weights = torch.repeat_interleave(1 / counts.to(sources.dtype), counts, output_size=len(weights))
    edges = ops.Edges(offsets, edges.indices, edges.places, len(sources))
    sums = ops.weighted_sum(sources, weights.unsqueeze(1), edges)
    sizes = torch.bincount(groups // count, minlength=relations).tolist()
    products = [_of_relation(part, weight) for part, weight in zip(sums.split(sizes), _weights_of_relations(conv))]
    places = torch.stack([torch.arange(len(groups)), groups % count])
    joined = ops.sort_edges(places, (len(groups), count))
    out = ops.weighted_sum(torch.cat(products), sums.new_ones((len(groups), 1)), joined)
    if conv.root is not None:
        out = out + destinations @ conv.root
    return out if conv.bias is None else out + conv.bias


def _weights_of_relations(conv) -> Tensor:
    """The weights of each relation, which may be sums of bases."""
    if conv.num_bases is None:
        return conv.weight
    return (conv.comp @ conv.weight.flatten(1)).view(conv.num_relations, *conv.weight.shape[1:])


def _of_relation(rows: Tensor, weight: Tensor) -> Tensor:
    """The product with a matrix, or with the blocks of one."""
    if weight.dim() == 2:
        return rows @ weight
    return torch.einsum("nbi,bio->nbo", rows.unflatten(1, weight.shape[:2]), weight).flatten(1)


FORWARDS: dict[type[MessagePassing], Callable[..., Tensor | None]] = {
    GATConv: _gat,
    GATv2Conv: _gatv2,
    TransformerConv: _transformer,
    RGCNConv: _relations,
    FastRGCNConv: _relations,
}
