"""Operators of attention for own layers: softmax over the in-edges of a node, and weighted sums of the rows of its in-neighbors.

On a processor they are kernels, which load the row of a source once per edge and write no row per edge. PyTorch's own operators do
the same on other devices and for float64. All of them have gradients (of first order), and work under `torch.compile` and in
`DistributedDataParallel`. Sums are in float32, also for bfloat16 and float16.

>>> edge_index = torch.tensor([[1, 2, 0], [0, 0, 1]])
>>> edges = grappa.ops.sort_edges(edge_index, (3, 2))
>>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
>>> grappa.ops.attention(x, torch.zeros(3, 1), edges)
tensor([[4., 5.],
        [1., 2.]])
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from . import _operators as kernels

__all__ = ["Edges", "attention", "dot_logits", "edge_softmax", "gat_logits", "gatv2_attention", "sort_edges", "weighted_sum"]

#: The types of values that kernels take.
TYPES = (torch.float32, torch.bfloat16, torch.float16)
#: Slope of the leaky relu of GAT and GATv2 for negative values, as in the papers.
SLOPE = 0.2
#: The place of a self-loop that was added.
LOOP = -1
#: The work of a layer before and after a sum, forward and backward: of a node, for each value of the matrix, and of an edge, for each
#: value of its rows. Measured on one core with 52 K sources, 20 K destinations and 109 K edges (benches/record/python.md).
COSTS_BEFORE, COSTS_AFTER = (1, 40), (2.3, 14)


class Edges(NamedTuple):
    """Edges sorted by destination: a sparse matrix in CSR with a row per destination. `sort_edges` makes it.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[1, 2, 0], [1, 0, 0]]), (3, 2))
        >>> edges.offsets, edges.indices, edges.places
        (tensor([0, 2, 3], dtype=torch.int32), tensor([2, 0, 1], dtype=torch.int32), tensor([1, 2, 0], dtype=torch.int32))
    """

    #: The edges of destination i are those from ``offsets[i]`` to ``offsets[i + 1]``: shape (destinations + 1,), int32.
    offsets: Tensor
    #: The source of each edge: shape (e,), int32. Under `torch.compile`, edges after the last offset are unused.
    indices: Tensor
    #: The place of each edge before it was sorted: shape (e,), int32; -1 for an added self-loop.
    places: Tensor
    #: The number of sources.
    num_sources: int
    #: The edges sorted by source, for gradients; None if gradients were off.
    transposed: Optional[Tensor] = None


def sort_edges(edge_index: Tensor, size: tuple[int, int], *, self_loops: bool = False) -> Edges:
    """Sorts edges by destination. The edges of a destination stay in order.

    Args:
        edge_index: The sources and the destinations: shape (2, e), int64.
        size: The number of sources and of destinations.
        self_loops: Whether each destination that is a source too is its own neighbor, once. It takes the place of edges from a node
            to itself, as in `torch_geometric.nn.GATConv`.

    Raises:
        IndexError: An edge has an end that is no node.
        ValueError: The edges have another shape or type.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[1, 2, 0], [1, 0, 0]]), (3, 2), self_loops=True)
        >>> edges.indices, edges.places
        (tensor([2, 0, 1], dtype=torch.int32), tensor([ 1, -1, -1], dtype=torch.int32))
    """
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"edge_index has shape {tuple(edge_index.shape)} and type {edge_index.dtype}; give (2, e) of torch.int64")
    loops = min(size) if self_loops else -1
    if edge_index.device.type != "cpu":
        return Edges(*_sort_by_operators(edge_index, size, loops), size[0])
    offsets, indices, places = kernels.sort_edges(edge_index, *size, loops)
    if loops > 0 and not torch.compiler.is_compiling():
        # A compiled operator knows its number of results without values of tensors. Otherwise no place is left unused.
        count = int(offsets[-1])
        indices, places = indices[:count], places[:count]
    transposed = kernels.transpose_edges(offsets, indices, size[0]) if torch.is_grad_enabled() else None
    return Edges(offsets, indices, places, size[0], transposed)


def attention(x: Tensor, logits: Tensor, edges: Edges, *, dropout: float = 0.0, weight: Tensor | None = None) -> Tensor:
    """Weighted sums of the rows of sources. The weights are the softmax of logits over the edges of each destination.

    Args:
        x: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        logits: A number for each edge and head: shape (e, heads), in the order of `edges`.
        edges: The edges.
        dropout: The probability that a weight becomes 0. Others are divided by ``1 - dropout``. Give 0 in evaluation.
        weight: The matrix of a linear layer: shape (outputs, width). ``x @ weight.T`` takes the place of `x`.

    Returns:
        Shape (destinations, width), or (destinations, outputs). Zeros for a destination without edges.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> x, logits = torch.tensor([[1.0, 10.0], [3.0, 30.0]]), torch.tensor([[0.0, -100.0], [0.0, 0.0]])
        >>> grappa.ops.attention(x, logits, edges)
        tensor([[ 2., 30.]])
    """
    weights = edge_softmax(logits, edges)
    return weighted_sum(x, torch.nn.functional.dropout(weights, dropout) if dropout else weights, edges, weight=weight)


def edge_softmax(logits: Tensor, edges: Edges) -> Tensor:
    """The softmax of logits over the edges of each destination, head by head.

    Args:
        logits: Shape (e, heads), in the order of `edges`.
        edges: The edges.

    Returns:
        Shape (e, heads). The weights of a destination's edges have sum 1.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1, 1], [0, 0, 1]]), (2, 2))
        >>> grappa.ops.edge_softmax(torch.tensor([[3.0], [3.0], [7.0]]), edges).flatten()
        tensor([0.5000, 0.5000, 1.0000])
    """
    _check("logits", logits, edges.indices.shape[0])
    if _has_kernels(logits):
        return kernels.edge_softmax(logits, edges.offsets)
    destinations = _destinations(edges)
    index = destinations.unsqueeze(1).expand_as(logits)
    zeros = logits.new_zeros((edges.offsets.shape[0], logits.shape[1]))
    largest = zeros.scatter_reduce(0, index, logits.detach(), "amax", include_self=False)
    powers = (logits - largest.index_select(0, destinations)).exp()
    return powers / zeros.index_add(0, destinations, powers).index_select(0, destinations)


def weighted_sum(x: Tensor, weights: Tensor, edges: Edges, *, weight: Tensor | None = None) -> Tensor:
    """The sum of the rows of each destination's sources, weighted by edge and head.

    Args:
        x: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        weights: Shape (e, heads), in the order of `edges`.
        edges: The edges.
        weight: The matrix of a linear layer: shape (outputs, width). ``x @ weight.T`` takes the place of `x`. If that is less work, the
            layer is computed after the sums, for each destination and not for each source.

    Returns:
        Shape (destinations, width), or (destinations, outputs).

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 2))
        >>> grappa.ops.weighted_sum(torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [1.0]]), edges)
        tensor([[12.],
                [ 0.]])
    """
    _check("x", x, edges.num_sources)
    _check("weights", weights, edges.indices.shape[0])
    heads = weights.shape[1]
    if weight is not None:
        _check("weight", weight, weight.shape[0], x.shape[1])
        _check_heads(weight.shape[0], heads)
        if _has_kernels(x) and _is_after(edges, weight, heads):
            x, weights, weight = _of_one_type(x, weights, weight)
            return kernels.linear_sum(x, weights, weight, edges.offsets, edges.indices, edges.transposed, edges.num_sources)
        x = torch.nn.functional.linear(x, weight)
    _check_heads(x.shape[1], heads)
    x, weights = _of_one_type(x, weights)
    if _has_kernels(x):
        return kernels.weighted_sum(x, weights, edges.offsets, edges.indices, edges.transposed, edges.num_sources)
    weighted = x.index_select(0, edges.indices).unflatten(1, (heads, -1)) * weights.unsqueeze(2)
    zeros = x.new_zeros((edges.offsets.shape[0] - 1, x.shape[1]))
    return zeros.index_add(0, _destinations(edges), weighted.flatten(1))


def dot_logits(x: Tensor, queries: Tensor, edges: Edges, heads: int, *, weight: Tensor | None = None) -> Tensor:
    """For each edge and head, the product of the source's row and the destination's row: logits of `torch_geometric.nn.TransformerConv`.

    Args:
        x: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        queries: The rows of destinations: shape (destinations, width).
        edges: The edges.
        heads: The number of heads.
        weight: The matrix of a linear layer: shape (outputs, width of x). ``x @ weight.T`` takes the place of `x`, and queries have
            `outputs` values. If that is less work, the layer is computed for each destination and not for each source.

    Returns:
        Shape (e, heads), in the order of `edges`.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> keys, queries = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[10.0, 1.0]])
        >>> grappa.ops.dot_logits(keys, queries, edges, heads=2)
        tensor([[10.,  2.],
                [30.,  4.]])
    """
    _check("x", x, edges.num_sources)
    _check("queries", queries, edges.offsets.shape[0] - 1, x.shape[1] if weight is None else weight.shape[0])
    _check_heads(queries.shape[1], heads)
    if weight is not None:
        _check("weight", weight, weight.shape[0], x.shape[1])
        if _has_kernels(x) and _is_after(edges, weight, heads):
            x, queries, weight = _of_one_type(x, queries, weight)
            return kernels.linear_products(x, queries, weight, edges.offsets, edges.indices, edges.transposed, heads)
        x = torch.nn.functional.linear(x, weight)
    x, queries = _of_one_type(x, queries)
    if _has_kernels(x):
        return kernels.edge_products(x, queries, edges.offsets, edges.indices, edges.transposed, heads)
    products = x.index_select(0, edges.indices) * queries.index_select(0, _destinations(edges))
    return products.unflatten(1, (heads, -1)).sum(2)


def gat_logits(sources: Tensor, destinations: Tensor, edges: Edges) -> Tensor:
    """For each edge and head, the leaky relu (slope 0.2) of the sum of two scores: logits of `torch_geometric.nn.GATConv`.

    Args:
        sources: The scores of sources: shape (sources, heads).
        destinations: The scores of destinations: shape (destinations, heads).
        edges: The edges.

    Returns:
        Shape (e, heads), in the order of `edges`.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> grappa.ops.gat_logits(torch.tensor([[1.0], [-4.0]]), torch.tensor([[2.0]]), edges).flatten()
        tensor([ 3.0000, -0.4000])
    """
    _check("sources", sources, edges.num_sources)
    _check("destinations", destinations, edges.offsets.shape[0] - 1, sources.shape[1])
    sources, destinations = _of_one_type(sources, destinations)
    if _has_kernels(sources):
        return kernels.sum_logits(sources, destinations, edges.offsets, edges.indices, edges.transposed)
    sums = sources.index_select(0, edges.indices) + destinations.index_select(0, _destinations(edges))
    return torch.nn.functional.leaky_relu(sums, SLOPE)


def gatv2_attention(
    sources: Tensor, destinations: Tensor, weight: Tensor, edges: Edges, heads: int, *, dropout: float = 0.0
) -> Tensor:
    """Weighted sums of the rows of sources, as in `torch_geometric.nn.GATv2Conv`. The logit of an edge and a head is the sum of
    ``weight * leaky_relu(source + destination)`` (slope 0.2) over the values of the head.

    Args:
        sources: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        destinations: The rows of destinations: shape (destinations, width).
        weight: The attention vectors of all heads, one after another: shape (width,).
        edges: The edges.
        heads: The number of heads.
        dropout: The probability that a weight of an edge becomes 0. Others are divided by ``1 - dropout``. Give 0 in evaluation.

    Returns:
        Shape (destinations, width). Zeros for a destination without edges.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> rows, own = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 1.0]])
        >>> grappa.ops.gatv2_attention(rows, own, torch.tensor([0.0, 100.0]), edges, heads=2)
        tensor([[2., 4.]])
    """
    _check("sources", sources, edges.num_sources)
    _check("destinations", destinations, edges.offsets.shape[0] - 1, sources.shape[1])
    if weight.shape != sources.shape[1:]:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; give ({sources.shape[1]},)")
    _check_heads(sources.shape[1], heads)
    sources, destinations, weight = _of_one_type(sources, destinations, weight)
    if _has_kernels(sources):
        factors = None
        if dropout:
            ones = torch.ones((edges.indices.shape[0], heads), dtype=torch.float32)
            factors = torch.nn.functional.dropout(ones, dropout)
        return kernels.pair_attention(
            sources, destinations, weight, factors, edges.offsets, edges.indices, edges.transposed, heads
        )[0]
    sums = sources.index_select(0, edges.indices) + destinations.index_select(0, _destinations(edges))
    values = torch.nn.functional.leaky_relu(sums, SLOPE) * weight
    return attention(sources, values.unflatten(1, (heads, -1)).sum(2), edges, dropout=dropout)


def _check(name: str, rows: Tensor, count: int, width: int | None = None) -> None:
    if rows.dim() != 2 or rows.shape[0] != count or width not in (None, rows.shape[1]):
        raise ValueError(f"{name} has shape {tuple(rows.shape)}; give ({count}, {'...' if width is None else width})")


def _check_heads(width: int, heads: int) -> None:
    if heads < 1 or width % heads != 0:
        raise ValueError(f"rows of {width} values cannot be divided among {heads} heads")


def _of_one_type(*tensors: Tensor) -> list[Tensor]:
    """Under autocast, some have fewer bits than others."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]


def _has_kernels(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in TYPES


def _is_after(edges: Edges, weight: Tensor, heads: int) -> bool:
    """Whether a linear layer for destinations, on rows that all heads share, is less work than for sources."""
    outputs, inputs = weight.shape
    count, destinations = edges.indices.shape[0], edges.offsets.shape[0] - 1
    before = COSTS_BEFORE[0] * edges.num_sources * inputs * outputs + COSTS_BEFORE[1] * count * outputs
    after = COSTS_AFTER[0] * destinations * inputs * outputs + COSTS_AFTER[1] * count * heads * inputs
    return after < before


def _destinations(edges: Edges) -> Tensor:
    """The destination of each edge."""
    places = torch.arange(edges.indices.shape[0], dtype=torch.int32, device=edges.offsets.device)
    return torch.searchsorted(edges.offsets[1:].contiguous(), places, right=True)


def _sort_by_operators(edge_index: Tensor, size: tuple[int, int], loops: int) -> tuple[Tensor, Tensor, Tensor]:
    sources, destinations = edge_index
    for name, ends, count in (("source", sources, size[0]), ("destination", destinations, size[1])):
        if ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < count:
            raise IndexError(f"an edge has a {name} that is not among the {count} {name}s")
    places = torch.arange(edge_index.shape[1], device=edge_index.device)
    if loops >= 0:
        kept, own = (sources != destinations).nonzero().flatten(), torch.arange(loops, device=edge_index.device)
        sources, destinations = torch.cat([sources[kept], own]), torch.cat([destinations[kept], own])
        places = torch.cat([kept, torch.full_like(own, LOOP)])
    ordered, order = destinations.sort(stable=True)
    offsets = torch.searchsorted(ordered, torch.arange(size[1] + 1, device=edge_index.device))
    return offsets.int(), sources[order].int(), places[order].int()
