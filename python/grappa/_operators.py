"""Custom operators of PyTorch that run kernels, for `grappa.ops`. They take tensors in the memory of the processor, of float32 or fewer bits.

Edges are a CSR with a row per destination: `offsets` and `indices`. `transposed` are the same edges by source, which gradients of
rows of sources need; None computes it. Results for places of edges after the last offset are zeros.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.library import custom_op

from . import _grappa


def _array(tensor: Tensor) -> Any:
    """The memory of a tensor."""
    return tensor.detach().contiguous().numpy()


def _floats(tensor: Tensor) -> Any:
    return tensor.detach().float().contiguous().numpy()


def _result(*shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device="cpu")


def _csr(offsets: Tensor, indices: Tensor) -> tuple[Any, Any]:
    return _array(offsets), _array(indices)


@custom_op("grappa::sort_edges", mutates_args=())
def sort_edges(edge_index: Tensor, num_sources: int, num_destinations: int, loops: int) -> tuple[Tensor, Tensor, Tensor]:
    """The offsets, indices and former places of edges. With `loops` of at least 0, the first destinations get one each."""
    count = edge_index.shape[1] + max(loops, 0)
    results = [torch.empty(size, dtype=torch.int32, device="cpu") for size in (num_destinations + 1, count, count)]
    ends = (_array(edge_index[0]), _array(edge_index[1]))
    _grappa.sort_edges(ends, num_sources, None if loops < 0 else loops, tuple(result.numpy() for result in results))
    return results[0], results[1], results[2]


@sort_edges.register_fake
def _(edge_index, num_sources, num_destinations, loops):
    count = edge_index.shape[1] + max(loops, 0)
    return tuple(edge_index.new_empty(size, dtype=torch.int32) for size in (num_destinations + 1, count, count))


@custom_op("grappa::transpose_edges", mutates_args=())
def transpose_edges(offsets: Tensor, indices: Tensor, num_sources: int) -> Tensor:
    """Edges sorted by source: the offsets of sources, the destinations, and the places of the edges in `indices`, one after another."""
    transposed = offsets.new_empty(num_sources + 1 + 2 * indices.shape[0])
    _grappa.transpose_edges(_array(offsets), _array(indices), transposed.numpy())
    return transposed


@transpose_edges.register_fake
def _(offsets, indices, num_sources):
    return offsets.new_empty(num_sources + 1 + 2 * indices.shape[0])


def _by_source(transposed: Optional[Tensor], offsets: Tensor, indices: Tensor, num_sources: int) -> Tensor:
    return transpose_edges(offsets, indices, num_sources) if transposed is None else transposed


def _save_tensors(ctx, inputs, output):
    """Keeps all inputs; the last one is a number."""
    *tensors, ctx.number = inputs
    ctx.save_for_backward(*tensors)


@custom_op("grappa::edge_softmax", mutates_args=())
def edge_softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    weights = _result(*logits.shape)
    _grappa.edge_softmax(torch.get_num_threads(), _array(offsets), logits.shape[1], _floats(logits), weights.numpy())
    return weights.to(logits.dtype)


@custom_op("grappa::edge_softmax_backward", mutates_args=())
def edge_softmax_backward(weights: Tensor, gradient: Tensor, offsets: Tensor) -> Tensor:
    result = _result(*weights.shape)
    arrays = (_floats(weights), _floats(gradient))
    _grappa.edge_softmax_backward(torch.get_num_threads(), _array(offsets), weights.shape[1], arrays, result.numpy())
    return result.to(weights.dtype)


@edge_softmax.register_fake
@edge_softmax_backward.register_fake
def _(logits, *_):
    return logits.new_empty(logits.shape)


def _save_softmax(ctx, inputs, output):
    ctx.save_for_backward(output, inputs[1])


def _softmax_gradients(ctx, gradient):
    weights, offsets = ctx.saved_tensors
    return edge_softmax_backward(weights, gradient, offsets), None


edge_softmax.register_autograd(_softmax_gradients, setup_context=_save_softmax)


@custom_op("grappa::weighted_sum", mutates_args=())
def weighted_sum(
    rows: Tensor, weights: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], num_sources: int
) -> Tensor:
    result = _result(offsets.shape[0] - 1, rows.shape[1])
    shape, arrays = (rows.shape[1], weights.shape[1]), (_floats(rows), _floats(weights))
    _grappa.weighted_sum(torch.get_num_threads(), _csr(offsets, indices), shape, arrays, result.numpy())
    return result.to(rows.dtype)


@weighted_sum.register_fake
def _(rows, weights, offsets, indices, transposed, num_sources):
    return rows.new_empty((offsets.shape[0] - 1, rows.shape[1]))


@custom_op("grappa::weighted_sum_backward", mutates_args=())
def weighted_sum_backward(gradient: Tensor, weights: Tensor, transposed: Tensor, num_sources: int) -> Tensor:
    """The gradient of the rows of `weighted_sum`."""
    result = _result(num_sources, gradient.shape[1])
    shape, arrays = (gradient.shape[1], weights.shape[1]), (_floats(gradient), _floats(weights))
    by_source = (_array(transposed), num_sources)
    _grappa.weighted_sum_backward(torch.get_num_threads(), by_source, shape, arrays, result.numpy())
    return result.to(gradient.dtype)


@weighted_sum_backward.register_fake
def _(gradient, weights, transposed, num_sources):
    return gradient.new_empty((num_sources, gradient.shape[1]))


@custom_op("grappa::edge_products", mutates_args=())
def edge_products(
    rows: Tensor, destinations: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], heads: int
) -> Tensor:
    """For each edge and head, the product of the rows of its source and its destination."""
    result = _result(indices.shape[0], heads)
    shape, arrays = (rows.shape[1], heads), (_floats(rows), _floats(destinations))
    _grappa.edge_products(torch.get_num_threads(), _csr(offsets, indices), shape, arrays, result.numpy())
    return result.to(rows.dtype)


@edge_products.register_fake
def _(rows, destinations, offsets, indices, transposed, heads):
    return rows.new_empty((indices.shape[0], heads))


def _weighted_sum_gradients(ctx, gradient):
    rows, weights, offsets, indices, transposed = ctx.saved_tensors
    of_rows = of_weights = None
    if ctx.needs_input_grad[0]:
        by_source = _by_source(transposed, offsets, indices, ctx.number)
        of_rows = weighted_sum_backward(gradient, weights, by_source, ctx.number)
    if ctx.needs_input_grad[1]:
        of_weights = edge_products(rows, gradient, offsets, indices, transposed, weights.shape[1])
    return of_rows, of_weights, None, None, None, None


def _products_gradients(ctx, gradient):
    rows, destinations, offsets, indices, transposed = ctx.saved_tensors
    of_rows = of_destinations = None
    if ctx.needs_input_grad[0]:
        by_source = _by_source(transposed, offsets, indices, rows.shape[0])
        of_rows = weighted_sum_backward(destinations, gradient, by_source, rows.shape[0])
    if ctx.needs_input_grad[1]:
        of_destinations = weighted_sum(rows, gradient, offsets, indices, transposed, rows.shape[0])
    return of_rows, of_destinations, None, None, None, None


weighted_sum.register_autograd(_weighted_sum_gradients, setup_context=_save_tensors)
edge_products.register_autograd(_products_gradients, setup_context=_save_tensors)


@custom_op("grappa::linear_sum", mutates_args=())
def linear_sum(
    rows: Tensor, weights: Tensor, weight: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], num_sources: int
) -> Tensor:
    """`weighted_sum` of ``rows @ weight.T``."""
    result = _result(offsets.shape[0] - 1, weight.shape[0])
    arrays, layer = (_floats(rows), _floats(weights)), (_floats(weight), weight.shape[1], weights.shape[1])
    _grappa.linear_sum(torch.get_num_threads(), _csr(offsets, indices), layer, arrays, result.numpy())
    return result.to(rows.dtype)


@linear_sum.register_fake
def _(rows, weights, weight, offsets, indices, transposed, num_sources):
    return rows.new_empty((offsets.shape[0] - 1, weight.shape[0]))


@custom_op("grappa::linear_sum_backward", mutates_args=())
def linear_sum_backward(
    gradient: Tensor, rows: Tensor, weights: Tensor, weight: Tensor, offsets: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the weights of edges and of the matrix."""
    results = (_result(*weights.shape), _result(*weight.shape))
    arrays = (_floats(rows), _floats(weights), _floats(gradient))
    layer, into = (_floats(weight), weight.shape[1], weights.shape[1]), (results[0].numpy(), results[1].numpy())
    _grappa.linear_sum_backward(torch.get_num_threads(), _csr(offsets, indices), layer, arrays, into)
    return results[0].to(weights.dtype), results[1].to(weight.dtype)


@linear_sum_backward.register_fake
def _(gradient, rows, weights, weight, offsets, indices):
    return weights.new_empty(weights.shape), weight.new_empty(weight.shape)


@custom_op("grappa::linear_products", mutates_args=())
def linear_products(
    rows: Tensor, destinations: Tensor, weight: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], heads: int
) -> Tensor:
    """`edge_products` with ``rows @ weight.T``."""
    result = _result(indices.shape[0], heads)
    arrays, layer = (_floats(rows), _floats(destinations)), (_floats(weight), weight.shape[1], heads)
    _grappa.linear_products(torch.get_num_threads(), _csr(offsets, indices), layer, arrays, result.numpy())
    return result.to(rows.dtype)


@linear_products.register_fake
def _(rows, destinations, weight, offsets, indices, transposed, heads):
    return rows.new_empty((indices.shape[0], heads))


@custom_op("grappa::linear_products_backward", mutates_args=())
def linear_products_backward(
    gradient: Tensor, rows: Tensor, destinations: Tensor, weight: Tensor, offsets: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of the rows of destinations and of the matrix."""
    results = (_result(*destinations.shape), _result(*weight.shape))
    arrays = (_floats(rows), _floats(destinations), _floats(gradient))
    layer, into = (_floats(weight), weight.shape[1], gradient.shape[1]), (results[0].numpy(), results[1].numpy())
    _grappa.linear_products_backward(torch.get_num_threads(), _csr(offsets, indices), layer, arrays, into)
    return results[0].to(destinations.dtype), results[1].to(weight.dtype)


@linear_products_backward.register_fake
def _(gradient, rows, destinations, weight, offsets, indices):
    return destinations.new_empty(destinations.shape), weight.new_empty(weight.shape)


@custom_op("grappa::linear_rows_backward", mutates_args=())
def linear_rows_backward(gradient: Tensor, weights: Tensor, weight: Tensor, transposed: Tensor, num_sources: int) -> Tensor:
    """The gradient of the rows of `linear_sum`. That of `linear_products` has its gradient as weights, and rows of destinations here as
    gradient."""
    result = _result(num_sources, weight.shape[1])
    arrays, layer = (_floats(weights), _floats(gradient)), (_floats(weight), weight.shape[1], weights.shape[1])
    _grappa.linear_rows_backward(torch.get_num_threads(), (_array(transposed), num_sources), layer, arrays, result.numpy())
    return result.to(gradient.dtype)


@linear_rows_backward.register_fake
def _(gradient, weights, weight, transposed, num_sources):
    return gradient.new_empty((num_sources, weight.shape[1]))


def _linear_sum_gradients(ctx, gradient):
    rows, weights, weight, offsets, indices, transposed = ctx.saved_tensors
    of_rows = of_weights = of_weight = None
    if ctx.needs_input_grad[0]:
        by_source = _by_source(transposed, offsets, indices, ctx.number)
        of_rows = linear_rows_backward(gradient, weights, weight, by_source, ctx.number)
    if any(ctx.needs_input_grad[1:3]):
        of_weights, of_weight = linear_sum_backward(gradient, rows, weights, weight, offsets, indices)
    return of_rows, of_weights, of_weight, None, None, None, None


def _linear_products_gradients(ctx, gradient):
    rows, destinations, weight, offsets, indices, transposed = ctx.saved_tensors
    of_rows = of_destinations = of_weight = None
    if ctx.needs_input_grad[0]:
        by_source = _by_source(transposed, offsets, indices, rows.shape[0])
        of_rows = linear_rows_backward(destinations, gradient, weight, by_source, rows.shape[0])
    if any(ctx.needs_input_grad[1:3]):
        of_destinations, of_weight = linear_products_backward(gradient, rows, destinations, weight, offsets, indices)
    return of_rows, of_destinations, of_weight, None, None, None, None


linear_sum.register_autograd(_linear_sum_gradients, setup_context=_save_tensors)
linear_products.register_autograd(_linear_products_gradients, setup_context=_save_tensors)


@custom_op("grappa::sum_logits", mutates_args=())
def sum_logits(
    sources: Tensor, destinations: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor]
) -> Tensor:
    """The logits of GAT."""
    result = _result(indices.shape[0], sources.shape[1])
    scores = (_floats(sources), _floats(destinations))
    _grappa.sum_logits(torch.get_num_threads(), _csr(offsets, indices), sources.shape[1], scores, result.numpy())
    return result.to(sources.dtype)


@sum_logits.register_fake
def _(sources, destinations, offsets, indices, transposed):
    return sources.new_empty((indices.shape[0], sources.shape[1]))


@custom_op("grappa::sum_logits_backward", mutates_args=())
def sum_logits_backward(
    gradient: Tensor, logits: Tensor, offsets: Tensor, indices: Tensor, transposed: Tensor, num_sources: int
) -> tuple[Tensor, Tensor]:
    """The gradients of the scores of sources and of destinations."""
    heads = logits.shape[1]
    results = (_result(num_sources, heads), _result(offsets.shape[0] - 1, heads))
    by_source, arrays = (_array(transposed), num_sources), (_floats(logits), _floats(gradient))
    into = (results[0].numpy(), results[1].numpy())
    _grappa.sum_logits_backward(torch.get_num_threads(), _csr(offsets, indices), by_source, heads, arrays, into)
    return results[0].to(logits.dtype), results[1].to(logits.dtype)


@sum_logits_backward.register_fake
def _(gradient, logits, offsets, indices, transposed, num_sources):
    return logits.new_empty((num_sources, logits.shape[1])), logits.new_empty((offsets.shape[0] - 1, logits.shape[1]))


def _save_sum_logits(ctx, inputs, output):
    sources, _, offsets, indices, transposed = inputs
    ctx.number = sources.shape[0]
    ctx.save_for_backward(output, offsets, indices, transposed)


def _sum_logits_gradients(ctx, gradient):
    logits, offsets, indices, transposed = ctx.saved_tensors
    by_source = _by_source(transposed, offsets, indices, ctx.number)
    return *sum_logits_backward(gradient, logits, offsets, indices, by_source, ctx.number), None, None, None


sum_logits.register_autograd(_sum_logits_gradients, setup_context=_save_sum_logits)


@custom_op("grappa::pair_attention", mutates_args=())
def pair_attention(
    sources: Tensor,
    destinations: Tensor,
    weight: Tensor,
    factors: Optional[Tensor],
    offsets: Tensor,
    indices: Tensor,
    transposed: Optional[Tensor],
    heads: int,
) -> tuple[Tensor, Tensor]:
    """The attention of GATv2, and the weights of edges, which have no gradients. `factors` multiply the weights in the sums."""
    results = (_result(indices.shape[0], heads), _result(*destinations.shape))
    arrays, into = (_floats(sources), _floats(destinations), _floats(weight)), (results[0].numpy(), results[1].numpy())
    dropout = None if factors is None else _floats(factors)
    _grappa.pair_attention(torch.get_num_threads(), _csr(offsets, indices), heads, arrays, dropout, into)
    return results[1].to(sources.dtype), results[0]


@pair_attention.register_fake
def _(sources, destinations, weight, factors, offsets, indices, transposed, heads):
    return sources.new_empty(destinations.shape), sources.new_empty((indices.shape[0], heads), dtype=torch.float32)


@custom_op("grappa::pair_attention_backward", mutates_args=())
def pair_attention_backward(
    gradient: Tensor,
    sources: Tensor,
    destinations: Tensor,
    weight: Tensor,
    factors: Optional[Tensor],
    offsets: Tensor,
    indices: Tensor,
    transposed: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    results = [_result(*of.shape) for of in (sources, destinations, weight)]
    by_source = (_array(transposed), sources.shape[0])
    arrays = (_floats(sources), _floats(destinations), _floats(weight))
    of_edges = (weights.shape[1], _floats(weights), None if factors is None else _floats(factors))
    into = tuple(result.numpy() for result in results)
    csr, threads = _csr(offsets, indices), torch.get_num_threads()
    _grappa.pair_attention_backward(threads, csr, by_source, (arrays, _floats(gradient)), of_edges, into)
    return results[0].to(sources.dtype), results[1].to(sources.dtype), results[2].to(sources.dtype)


@pair_attention_backward.register_fake
def _(gradient, sources, destinations, weight, factors, offsets, indices, transposed, weights):
    return tuple(of.new_empty(of.shape) for of in (sources, destinations, weight))


def _save_pair_attention(ctx, inputs, output):
    *tensors, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.set_materialize_grads(False)


def _pair_attention_gradients(ctx, gradient, of_weights):
    sources, destinations, weight, factors, offsets, indices, transposed, weights = ctx.saved_tensors
    if gradient is None:
        return (None,) * 8
    by_source = _by_source(transposed, offsets, indices, sources.shape[0])
    gradients = pair_attention_backward(
        gradient, sources, destinations, weight, factors, offsets, indices, by_source, weights
    )
    return *gradients, None, None, None, None, None


pair_attention.register_autograd(_pair_attention_gradients, setup_context=_save_pair_attention)
