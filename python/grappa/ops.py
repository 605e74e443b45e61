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

from ._operators import edge_products, pair_logits, softmax, sort, sum_logits, sum_rows_of_sources, transpose

__all__ = ["Edges", "attention", "dot_logits", "edge_softmax", "gat_logits", "gatv2_logits", "sort_edges", "weighted_sum"]


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
    """Sorts edges by destination, by counting. Edges of a batch are sorted already, which makes it faster.

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
    num_sources, num_destinations = size
    loops = min(size) if self_loops else -1
    offsets, indices, places = sort(edge_index, num_sources, num_destinations, loops)
    if loops > 0 and not torch.compiler.is_compiling():
        # An operator knows its number of results without values of tensors. Without that limit, no place is left unused.
        count = int(offsets[-1])
        indices, places = indices[:count], places[:count]
    transposed = transpose(offsets, indices, num_sources) if torch.is_grad_enabled() else None
    return Edges(offsets, indices, places, num_sources, transposed)


def attention(x: Tensor, logits: Tensor, edges: Edges, *, dropout: float = 0.0, shared: bool = False) -> Tensor:
    """Weighted sums of rows, with the softmax of logits over the edges of each destination as weights.

    Args:
        x: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        logits: A number for each edge and head: shape (e, heads), in the order of `edges`.
        edges: The edges.
        dropout: The probability that a weight becomes 0. Others are divided by ``1 - dropout``. Give 0 in evaluation.
        shared: Whether each head adds up whole rows.

    Returns:
        Shape (destinations, width), or (destinations, heads * width) if rows are shared. Zeros for a destination without edges.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> x, logits = torch.tensor([[1.0, 10.0], [3.0, 30.0]]), torch.tensor([[0.0, -100.0], [0.0, 0.0]])
        >>> grappa.ops.attention(x, logits, edges)
        tensor([[ 2., 30.]])
        >>> grappa.ops.attention(x, logits, edges, shared=True)
        tensor([[ 2., 20.,  3., 30.]])
    """
    weights = edge_softmax(logits, edges)
    if dropout:
        weights = torch.nn.functional.dropout(weights, dropout)
    return weighted_sum(x, weights, edges, shared=shared)


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
    return softmax(logits, edges.offsets)


def weighted_sum(x: Tensor, weights: Tensor, edges: Edges, *, shared: bool = False) -> Tensor:
    """The sum of the rows of each destination's sources, weighted by edge and head.

    Args:
        x: The rows of sources: shape (sources, width). A row has the values of the first head, then those of the second, and so on.
        weights: Shape (e, heads), in the order of `edges`.
        edges: The edges.
        shared: Whether each head adds up whole rows.

    Returns:
        Shape (destinations, width), or (destinations, heads * width) if rows are shared.

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
    _check_heads(x, weights.shape[1] if not shared else 1)
    x, weights = _of_one_type(x, weights)
    return sum_rows_of_sources(x, weights, edges.offsets, edges.indices, edges.transposed, shared)


def dot_logits(keys: Tensor, queries: Tensor, edges: Edges, heads: int) -> Tensor:
    """For each edge and head, the product of the source's row and the destination's row: logits of `torch_geometric.nn.TransformerConv`.

    Args:
        keys: The rows of sources: shape (sources, width).
        queries: The rows of destinations: shape (destinations, width), or (destinations, heads * width) if all heads use whole keys.
        edges: The edges.
        heads: The number of heads.

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
    _check("keys", keys, edges.num_sources)
    _check("queries", queries, edges.offsets.shape[0] - 1)
    shared = queries.shape[1] != keys.shape[1]
    if shared and queries.shape[1] != heads * keys.shape[1]:
        raise ValueError(f"queries have {queries.shape[1]} values and keys {keys.shape[1]}; give as many, or {heads} times as many")
    _check_heads(keys, 1 if shared else heads)
    keys, queries = _of_one_type(keys, queries)
    return edge_products(keys, queries, edges.offsets, edges.indices, edges.transposed, heads)


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
    return sum_logits(sources, destinations, edges.offsets, edges.indices, edges.transposed)


def gatv2_logits(sources: Tensor, destinations: Tensor, weight: Tensor, edges: Edges, heads: int) -> Tensor:
    """For each edge and head, the sum of ``weight * leaky_relu(source + destination)`` (slope 0.2): logits of
    `torch_geometric.nn.GATv2Conv`.

    Args:
        sources: The rows of sources: shape (sources, width).
        destinations: The rows of destinations: shape (destinations, width).
        weight: The attention vectors of all heads, one after another: shape (width,).
        edges: The edges.
        heads: The number of heads.

    Returns:
        Shape (e, heads), in the order of `edges`.

    Raises:
        ValueError: Shapes do not fit.

    Example:
        >>> edges = grappa.ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (2, 1))
        >>> rows, own = torch.tensor([[1.0, 2.0], [-3.0, 4.0]]), torch.tensor([[1.0, 1.0]])
        >>> grappa.ops.gatv2_logits(rows, own, torch.tensor([1.0, 10.0]), edges, heads=1).flatten()
        tensor([32.0000, 49.6000])
    """
    _check("sources", sources, edges.num_sources)
    _check("destinations", destinations, edges.offsets.shape[0] - 1, sources.shape[1])
    if weight.shape != sources.shape[1:]:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; give ({sources.shape[1]},)")
    _check_heads(sources, heads)
    sources, destinations, weight = _of_one_type(sources, destinations, weight)
    return pair_logits(sources, destinations, weight, edges.offsets, edges.indices, edges.transposed, heads)


def _check(name: str, rows: Tensor, count: int, width: int | None = None) -> None:
    if rows.dim() != 2 or rows.shape[0] != count or width not in (None, rows.shape[1]):
        raise ValueError(f"{name} has shape {tuple(rows.shape)}; give ({count}, {'...' if width is None else width})")


def _check_heads(rows: Tensor, heads: int) -> None:
    if heads < 1 or rows.shape[1] % heads != 0:
        raise ValueError(f"rows of {rows.shape[1]} values cannot be divided among {heads} heads")


def _of_one_type(*tensors: Tensor) -> list[Tensor]:
    """Under autocast, some have fewer bits than others."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return [tensor.to(dtype) for tensor in tensors]
