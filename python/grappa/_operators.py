"""Custom operators of PyTorch for `grappa.ops`: kernels on a processor, PyTorch's operators on other devices and for float64.

Edges are a CSR with a row per destination: `offsets` and `indices`. `transposed` are the same edges by source, which gradients need.
Results for places of edges after the last offset are zeros.
"""

from __future__ import annotations

from typing import Optional

import torch
from torch import Tensor
from torch.library import custom_op

from . import _grappa

#: Slope of the leaky relu of `gat_logits` and `gatv2_logits` for negative values, as in the papers.
SLOPE = 0.2
#: The types of values that kernels take.
TYPES = (torch.float32, torch.bfloat16, torch.float16)
#: The place of a self-loop that was added.
LOOP = -1


def _has_kernels(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype in TYPES


def _array(tensor: Tensor):
    """The memory of a tensor."""
    return tensor.detach().contiguous().numpy()


def _floats(tensor: Tensor):
    return tensor.detach().float().contiguous().numpy()


def _destinations(offsets: Tensor, count: int) -> Tensor:
    """The destination of each edge. Unused places have the one after the last."""
    places = torch.arange(count, dtype=offsets.dtype, device=offsets.device)
    return torch.searchsorted(offsets[1:].contiguous(), places, right=True)


def _sum_rows(rows: Tensor, destinations: Tensor, count: int) -> Tensor:
    """The sum of the rows of each destination's edges."""
    return rows.new_zeros((count + 1, *rows.shape[1:])).index_add_(0, destinations, rows)[:count]


def _by_destination(rows: Tensor, destinations: Tensor) -> Tensor:
    """The row of each edge's destination. Unused places have zeros."""
    return torch.cat([rows, rows.new_zeros((1, *rows.shape[1:]))]).index_select(0, destinations)


@custom_op("grappa::sort_edges", mutates_args=())
def sort(edge_index: Tensor, num_sources: int, num_destinations: int, loops: int) -> tuple[Tensor, Tensor, Tensor]:
    count = edge_index.shape[1] + max(loops, 0)
    if edge_index.device.type == "cpu":
        offsets, indices, places = (torch.empty(size, dtype=torch.int32) for size in (num_destinations + 1, count, count))
        ends = (_array(edge_index[0]), _array(edge_index[1]))
        into = (offsets.numpy(), indices.numpy(), places.numpy())
        _grappa.sort_edges(ends, num_sources, None if loops < 0 else loops, into)
        return offsets, indices, places
    sources, destinations = edge_index
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(sources.max()) >= num_sources):
        raise IndexError(f"an edge has a source that is not among the {num_sources} sources")
    if edge_index.numel() and int(destinations.max()) >= num_destinations:
        raise IndexError(f"an edge has a destination that is not among the {num_destinations} destinations")
    places = torch.arange(edge_index.shape[1], device=edge_index.device)
    if loops >= 0:
        own = torch.arange(loops, device=edge_index.device)
        # Loops of the graph come last, behind the last offset.
        destinations = torch.cat([destinations.where(sources != destinations, num_destinations), own])
        sources, places = torch.cat([sources, own]), torch.cat([places, torch.full_like(own, LOOP)])
    ordered, order = destinations.sort(stable=True)
    offsets = torch.searchsorted(ordered, torch.arange(num_destinations + 1, device=edge_index.device))
    return offsets.int(), sources[order].int(), places[order].int()


@sort.register_fake
def _(edge_index, num_sources, num_destinations, loops):
    count = edge_index.shape[1] + max(loops, 0)
    return tuple(edge_index.new_empty(size, dtype=torch.int32) for size in (num_destinations + 1, count, count))


@custom_op("grappa::transpose_edges", mutates_args=())
def transpose(offsets: Tensor, indices: Tensor, num_sources: int) -> Tensor:
    """Edges sorted by source: the offsets of sources, the destinations, and the places of the edges in `indices`, one after another."""
    transposed = offsets.new_empty(num_sources + 1 + 2 * indices.shape[0])
    if offsets.device.type == "cpu":
        _grappa.transpose_edges(_array(offsets), _array(indices), transposed.numpy())
        return transposed
    destinations = _destinations(offsets, indices.shape[0])
    is_used = destinations < offsets.shape[0] - 1
    ordered, places = indices.where(is_used, num_sources).sort(stable=True)
    starts = torch.searchsorted(ordered, torch.arange(num_sources + 1, dtype=ordered.dtype, device=ordered.device))
    return torch.cat([starts.int(), destinations[places].int(), places.int()], out=transposed)


@transpose.register_fake
def _(offsets, indices, num_sources):
    return offsets.new_empty(num_sources + 1 + 2 * indices.shape[0])


@custom_op("grappa::edge_softmax", mutates_args=())
def softmax(logits: Tensor, offsets: Tensor) -> Tensor:
    if _has_kernels(logits):
        weights = torch.empty_like(logits, dtype=torch.float32, memory_format=torch.contiguous_format)
        threads = torch.get_num_threads()
        _grappa.edge_softmax(threads, _array(offsets), logits.shape[1], _floats(logits), weights.numpy())
        return weights.to(logits.dtype)
    destinations = _destinations(offsets, logits.shape[0])
    index = destinations.unsqueeze(1).expand_as(logits)
    largest = logits.new_zeros((offsets.shape[0], logits.shape[1]))
    largest = largest.scatter_reduce(0, index, logits, "amax", include_self=False)
    powers = (logits - largest.index_select(0, destinations)).exp()
    sums = _by_destination(_sum_rows(powers, destinations, offsets.shape[0] - 1), destinations)
    # Unused places have sum 0.
    return torch.where(sums > 0, powers / sums, 0)


@custom_op("grappa::edge_softmax_backward", mutates_args=())
def softmax_backward(weights: Tensor, gradient: Tensor, offsets: Tensor) -> Tensor:
    if _has_kernels(weights):
        result = torch.empty_like(weights, dtype=torch.float32, memory_format=torch.contiguous_format)
        arrays = (_floats(weights), _floats(gradient))
        _grappa.edge_softmax_backward(torch.get_num_threads(), _array(offsets), weights.shape[1], arrays, result.numpy())
        return result.to(weights.dtype)
    destinations = _destinations(offsets, weights.shape[0])
    means = _sum_rows(weights * gradient, destinations, offsets.shape[0] - 1)
    return weights * (gradient - _by_destination(means, destinations))


@softmax.register_fake
@softmax_backward.register_fake
def _(logits, *_):
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _save_softmax(ctx, inputs, output):
    ctx.save_for_backward(output, inputs[1])


def _softmax_gradients(ctx, gradient):
    weights, offsets = ctx.saved_tensors
    return softmax_backward(weights, gradient, offsets), None


softmax.register_autograd(_softmax_gradients, setup_context=_save_softmax)


@custom_op("grappa::weighted_sum", mutates_args=())
def sum_rows_of_sources(
    rows: Tensor, weights: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], shared: bool
) -> Tensor:
    heads, count = weights.shape[1], offsets.shape[0] - 1
    if _has_kernels(rows):
        result = torch.empty((count, rows.shape[1] * (heads if shared else 1)), dtype=torch.float32)
        csr, shape = (_array(offsets), _array(indices)), (rows.shape[1], heads, shared)
        _grappa.weighted_sum(torch.get_num_threads(), csr, shape, (_floats(rows), _floats(weights)), result.numpy())
        return result.to(rows.dtype)
    of_edges = rows.index_select(0, indices).unflatten(1, (1 if shared else heads, -1))
    return _sum_rows((of_edges * weights.unsqueeze(2)).flatten(1), _destinations(offsets, len(indices)), count)


@sum_rows_of_sources.register_fake
def _(rows, weights, offsets, indices, transposed, shared):
    return rows.new_empty((offsets.shape[0] - 1, rows.shape[1] * (weights.shape[1] if shared else 1)))


@custom_op("grappa::weighted_sum_backward", mutates_args=())
def sum_rows_backward(gradient: Tensor, weights: Tensor, transposed: Tensor, num_sources: int, shared: bool) -> Tensor:
    """The gradient of the rows of `weighted_sum`."""
    heads = weights.shape[1]
    width = gradient.shape[1] // (heads if shared else 1)
    if _has_kernels(gradient):
        result = torch.empty((num_sources, width), dtype=torch.float32)
        arrays = (_floats(gradient), _floats(weights))
        csr, shape = (_array(transposed), num_sources), (width, heads, shared)
        _grappa.weighted_sum_backward(torch.get_num_threads(), csr, shape, arrays, result.numpy())
        return result.to(gradient.dtype)
    offsets, destinations, places = _lists(transposed, num_sources)
    weighted = gradient.index_select(0, destinations).unflatten(1, (heads, -1)) * weights[places].unsqueeze(2)
    of_edges = weighted.sum(1) if shared else weighted.flatten(1)
    return _sum_rows(of_edges, _destinations(offsets, len(places)), num_sources)


@sum_rows_backward.register_fake
def _(gradient, weights, transposed, num_sources, shared):
    return gradient.new_empty((num_sources, gradient.shape[1] // (weights.shape[1] if shared else 1)))


@custom_op("grappa::edge_products", mutates_args=())
def edge_products(
    rows: Tensor, destinations: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor], heads: int
) -> Tensor:
    """For each edge and head, the product of the rows of its source and its destination. Rows of sources are shared if those of
    destinations are longer."""
    shared = destinations.shape[1] != rows.shape[1]
    if _has_kernels(rows):
        result = torch.empty((indices.shape[0], heads), dtype=torch.float32)
        csr, shape = (_array(offsets), _array(indices)), (rows.shape[1], heads, shared)
        _grappa.edge_products(torch.get_num_threads(), csr, shape, (_floats(rows), _floats(destinations)), result.numpy())
        return result.to(rows.dtype)
    of_edges = rows.index_select(0, indices).unflatten(1, (1 if shared else heads, -1))
    own = _by_destination(destinations, _destinations(offsets, len(indices)))
    return (of_edges * own.unflatten(1, (heads, -1))).sum(2)


@edge_products.register_fake
def _(rows, destinations, offsets, indices, transposed, heads):
    return rows.new_empty((indices.shape[0], heads))


def _lists(transposed: Tensor, num_sources: int) -> list[Tensor]:
    edges = (transposed.shape[0] - num_sources - 1) // 2
    return list(transposed.split([num_sources + 1, edges, edges]))


def _transposed(transposed: Optional[Tensor], offsets: Tensor, indices: Tensor, num_sources: int) -> Tensor:
    """Edges that were sorted without gradients are transposed here."""
    return transpose(offsets, indices, num_sources) if transposed is None else transposed


def _save_weighted_sum(ctx, inputs, output):
    *tensors, ctx.shared = inputs
    ctx.save_for_backward(*tensors)


def _weighted_sum_gradients(ctx, gradient):
    rows, weights, offsets, indices, transposed = ctx.saved_tensors
    of_rows = of_weights = None
    if ctx.needs_input_grad[0]:
        transposed = _transposed(transposed, offsets, indices, rows.shape[0])
        of_rows = sum_rows_backward(gradient, weights, transposed, rows.shape[0], ctx.shared)
    if ctx.needs_input_grad[1]:
        of_weights = edge_products(rows, gradient, offsets, indices, transposed, weights.shape[1])
    return of_rows, of_weights, None, None, None, None


sum_rows_of_sources.register_autograd(_weighted_sum_gradients, setup_context=_save_weighted_sum)


def _save_products(ctx, inputs, output):
    *tensors, _ = inputs
    ctx.save_for_backward(*tensors)


def _products_gradients(ctx, gradient):
    rows, destinations, offsets, indices, transposed = ctx.saved_tensors
    shared = destinations.shape[1] != rows.shape[1]
    of_rows = of_destinations = None
    if ctx.needs_input_grad[0]:
        transposed = _transposed(transposed, offsets, indices, rows.shape[0])
        of_rows = sum_rows_backward(destinations, gradient, transposed, rows.shape[0], shared)
    if ctx.needs_input_grad[1]:
        of_destinations = sum_rows_of_sources(rows, gradient, offsets, indices, transposed, shared)
    return of_rows, of_destinations, None, None, None, None


edge_products.register_autograd(_products_gradients, setup_context=_save_products)


@custom_op("grappa::sum_logits", mutates_args=())
def sum_logits(
    sources: Tensor, destinations: Tensor, offsets: Tensor, indices: Tensor, transposed: Optional[Tensor]
) -> Tensor:
    if _has_kernels(sources):
        result = torch.empty((indices.shape[0], sources.shape[1]), dtype=torch.float32)
        csr, scores = (_array(offsets), _array(indices)), (_floats(sources), _floats(destinations))
        _grappa.sum_logits(torch.get_num_threads(), csr, sources.shape[1], scores, result.numpy())
        return result.to(sources.dtype)
    own = _by_destination(destinations, _destinations(offsets, len(indices)))
    return torch.nn.functional.leaky_relu(sources.index_select(0, indices) + own, SLOPE)


@sum_logits.register_fake
def _(sources, destinations, offsets, indices, transposed):
    return sources.new_empty((indices.shape[0], sources.shape[1]))


@custom_op("grappa::sum_logits_backward", mutates_args=())
def sum_logits_backward(
    logits: Tensor, gradient: Tensor, offsets: Tensor, indices: Tensor, transposed: Tensor, num_sources: int
) -> tuple[Tensor, Tensor]:
    heads, count = logits.shape[1], offsets.shape[0] - 1
    if _has_kernels(logits):
        results = [torch.empty((size, heads), dtype=torch.float32) for size in (num_sources, count)]
        csr, by_source = (_array(offsets), _array(indices)), (_array(transposed), num_sources)
        arrays, into = (_floats(logits), _floats(gradient)), (results[0].numpy(), results[1].numpy())
        _grappa.sum_logits_backward(torch.get_num_threads(), csr, by_source, heads, arrays, into)
        return results[0].to(logits.dtype), results[1].to(logits.dtype)
    # The leaky relu keeps the sign.
    of_sums = torch.where(logits > 0, gradient, SLOPE * gradient)
    destinations = _destinations(offsets, len(indices))
    of_sums = of_sums.where((destinations < count).unsqueeze(1), 0)
    return _sum_rows(of_sums, indices, num_sources), _sum_rows(of_sums, destinations, count)


@sum_logits_backward.register_fake
def _(logits, gradient, offsets, indices, transposed, num_sources):
    return logits.new_empty((num_sources, logits.shape[1])), logits.new_empty((offsets.shape[0] - 1, logits.shape[1]))


def _save_sum_logits(ctx, inputs, output):
    sources, _, offsets, indices, transposed = inputs
    ctx.num_sources = sources.shape[0]
    ctx.save_for_backward(output, offsets, indices, transposed)


def _sum_logits_gradients(ctx, gradient):
    logits, offsets, indices, transposed = ctx.saved_tensors
    transposed = _transposed(transposed, offsets, indices, ctx.num_sources)
    of_scores = sum_logits_backward(logits, gradient, offsets, indices, transposed, ctx.num_sources)
    return *of_scores, None, None, None


sum_logits.register_autograd(_sum_logits_gradients, setup_context=_save_sum_logits)


@custom_op("grappa::pair_logits", mutates_args=())
def pair_logits(
    sources: Tensor,
    destinations: Tensor,
    weight: Tensor,
    offsets: Tensor,
    indices: Tensor,
    transposed: Optional[Tensor],
    heads: int,
) -> Tensor:
    if _has_kernels(sources):
        result = torch.empty((indices.shape[0], heads), dtype=torch.float32)
        csr, shape = (_array(offsets), _array(indices)), (sources.shape[1], heads, False)
        arrays = (_floats(sources), _floats(destinations), _floats(weight))
        _grappa.pair_logits(torch.get_num_threads(), csr, shape, arrays, result.numpy())
        return result.to(sources.dtype)
    own = _by_destination(destinations, _destinations(offsets, len(indices)))
    values = torch.nn.functional.leaky_relu(sources.index_select(0, indices) + own, SLOPE)
    return (values * weight).unflatten(1, (heads, -1)).sum(2)


@pair_logits.register_fake
def _(sources, destinations, weight, offsets, indices, transposed, heads):
    return sources.new_empty((indices.shape[0], heads))


@custom_op("grappa::pair_logits_backward", mutates_args=())
def pair_logits_backward(
    gradient: Tensor,
    sources: Tensor,
    destinations: Tensor,
    weight: Tensor,
    offsets: Tensor,
    indices: Tensor,
    transposed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    heads, count = gradient.shape[1], offsets.shape[0] - 1
    if _has_kernels(sources):
        results = [torch.empty(of.shape, dtype=torch.float32) for of in (sources, destinations, weight)]
        csr, by_source = (_array(offsets), _array(indices)), (_array(transposed), sources.shape[0])
        arrays, shape = (_floats(sources), _floats(destinations), _floats(weight)), (sources.shape[1], heads, False)
        into = (results[0].numpy(), results[1].numpy(), results[2].numpy())
        _grappa.pair_logits_backward(torch.get_num_threads(), csr, by_source, shape, arrays, _floats(gradient), into)
        return results[0].to(sources.dtype), results[1].to(sources.dtype), results[2].to(sources.dtype)
    of_edges = _destinations(offsets, len(indices))
    sums = sources.index_select(0, indices) + _by_destination(destinations, of_edges)
    gradient = gradient.where((of_edges < count).unsqueeze(1), 0).repeat_interleave(sources.shape[1] // heads, 1)
    of_values = gradient * torch.where(sums > 0, weight, SLOPE * weight)
    of_weight = (gradient * torch.nn.functional.leaky_relu(sums, SLOPE)).sum(0)
    return _sum_rows(of_values, indices, sources.shape[0]), _sum_rows(of_values, of_edges, count), of_weight


@pair_logits_backward.register_fake
def _(gradient, sources, destinations, weight, offsets, indices, transposed):
    return tuple(torch.empty_like(of, memory_format=torch.contiguous_format) for of in (sources, destinations, weight))


def _save_pair_logits(ctx, inputs, output):
    *tensors, _ = inputs
    ctx.save_for_backward(*tensors)


def _pair_logits_gradients(ctx, gradient):
    sources, destinations, weight, offsets, indices, transposed = ctx.saved_tensors
    transposed = _transposed(transposed, offsets, indices, sources.shape[0])
    gradients = pair_logits_backward(gradient, sources, destinations, weight, offsets, indices, transposed)
    return *gradients, None, None, None, None


pair_logits.register_autograd(_pair_logits_gradients, setup_context=_save_pair_logits)
