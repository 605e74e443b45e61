"""Convolutions of PyTorch Geometric, for inference layer by layer."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable

import torch
from torch_geometric.nn import BatchNorm, GCNConv, GINConv, GraphConv, HeteroConv, LayerNorm, MessagePassing, SAGEConv
from torch_geometric.nn.conv.hetero_conv import group
from torch_geometric.nn.models.basic_gnn import BasicGNN

from .fast_convolutions import convolve_fast
from .layers import LayerBatch, TypedLayerBatch

#: Convolutions that take a sparse matrix as well as edges. The product needs no memory per edge.
SPARSE = (SAGEConv, GINConv, GraphConv)
#: Normalizations of single rows. Others need all nodes of the graph at the same time.
ROWWISE = (torch.nn.Identity, torch.nn.BatchNorm1d, torch.nn.LayerNorm, BatchNorm)


def convolve(conv: MessagePassing, x: tuple[torch.Tensor, torch.Tensor], batch: LayerBatch) -> torch.Tensor:
    """Applies a convolution of PyTorch Geometric in a layer of `grappa.inference`. Graph convolutions (GCN) get the degrees of the
    whole graph.

    Args:
        conv: The convolution. It takes pairs of sources and destinations, as most do, or is a ``GCNConv``.
        x: The rows of sources, and the rows of destinations.
        batch: The edges, a `grappa.LayerBatch`.

    Returns:
        A row per destination.

    Raises:
        ValueError: The convolution needs more than the in-edges of its destinations.

    Example:
        >>> from torch_geometric.nn import GCNConv
        >>> model = torch.nn.ModuleList([GCNConv(store.num_features, 16), GCNConv(16, store.num_classes)])
        >>> hidden = lambda x, batch: grappa.pyg.convolve(model[0], x, batch).relu()
        >>> grappa.inference(store, model, layers=[hidden, model[1]], nodes="test").shape
        (1000, 7)
    """
    name = type(conv).__name__
    if conv.flow != "source_to_target":
        raise ValueError(f"{name} has flow={conv.flow!r}; inference has in-edges only: give a layer with flow='source_to_target'")
    if isinstance(conv, GCNConv):
        return _graph_convolution(conv, x, batch)
    if next(iter(inspect.signature(conv.forward).parameters.values())).annotation in (torch.Tensor, "Tensor"):
        raise ValueError(
            f"{name} takes no pair of sources and destinations. If a row depends on nothing but the in-neighbors of its node, give "
            "the layer as a function: lambda x, batch: conv(x[0], batch.edge_index)[:batch.batch_size]"
        )
    weighted = batch.edge_weight is not None
    if weighted and "edge_weight" not in inspect.signature(conv.forward).parameters:
        raise ValueError(f"{name} takes no edge weights; give edge_weights=False, or the layer as a function of (x, batch)")
    if isinstance(conv, SPARSE) and conv.fuse and conv.aggr in ("add", "sum", "mean"):
        return conv(x, _matrix(batch, _weights(batch, x[0])))
    if weighted:
        return conv(x, batch.edge_index, edge_weight=batch.edge_weight)
    rows = convolve_fast(conv, x, batch.edge_index)
    return conv(x, batch.edge_index) if rows is None else rows


def convolve_types(conv: HeteroConv, x: dict[str, torch.Tensor], batch: TypedLayerBatch) -> dict[str, torch.Tensor]:
    """Applies a `torch_geometric.nn.HeteroConv` in a layer of `grappa.inference` of a graph with types.

    Args:
        conv: The convolutions of all relations.
        x: The rows of each type, with destinations first.
        batch: The edges, a `grappa.TypedLayerBatch`.

    Returns:
        A row per destination, in a dict by their type. Empty if no convolution has edges to the type.

    Raises:
        ValueError: A convolution needs more than the in-edges of its destinations.

    Example:
        >>> from torch_geometric.nn import HeteroConv, SAGEConv
        >>> conv = HeteroConv({edge_type: SAGEConv((-1, -1), 4) for edge_type in typed.edge_types})
        >>> layer = lambda x, batch: grappa.pyg.convolve_types(conv, x, batch)
        >>> grappa.inference(typed, conv, layers=[layer], nodes=("paper", [1])).shape
        (1, 4)
    """
    rows = []
    for edge_type, own in conv.convs.items():
        source, _, destination = edge_type
        if edge_type not in batch.edge_index_dict or source not in x or destination not in x:
            continue
        if isinstance(own, GCNConv):
            raise ValueError(
                f"the relation {edge_type} has a GCNConv, which divides by degrees of sources; give another convolution, such as "
                "SAGEConv or GraphConv"
            )
        edges = LayerBatch(
            batch.edge_index_dict[edge_type],
            batch.n_id_dict[source],
            batch.batch_size,
            batch.edge_weight_dict.get(edge_type),
            _no_degrees,
        )
        rows.append(convolve(own, (x[source], x[destination][: batch.batch_size]), edges))
    return {batch.node_type: group(rows, conv.aggr)} if rows else {}


def _no_degrees():
    raise ValueError("layers of a graph with types have no in_degree; give another convolution")


def _weights(batch: LayerBatch, rows: torch.Tensor) -> torch.Tensor:
    """The weights of edges, or ones, of the type of `rows`: an array that may be changed."""
    if batch.edge_weight is None:
        return torch.ones(batch.edge_index.shape[1], dtype=rows.dtype, device=rows.device)
    return batch.edge_weight.to(rows.dtype, copy=True)


def layers_of(model: torch.nn.Module) -> list[Callable]:
    """The layers of a model that is built like `torch_geometric.nn.GraphSAGE`."""
    name = type(model).__name__
    if not isinstance(model, BasicGNN):
        raise ValueError(
            f"the layers of a {name} are unknown; give them in order, each a convolution or a function of (x, batch): layers=[...]"
        )
    if model.jk_mode not in (None, "last"):
        raise ValueError(
            f"{name} has jk={model.jk_mode!r}: its output needs the states of all layers; build the model with jk=None or jk='last'"
        )
    for norm in model.norms:
        if not isinstance(norm, ROWWISE) and not (isinstance(norm, LayerNorm) and norm.mode == "node"):
            raise ValueError(
                f"{name} has {norm}, which needs all nodes at the same time; build the model with norm='BatchNorm', or "
                "norm='LayerNorm' and norm_kwargs={'mode': 'node'}"
            )
    return [functools.partial(_layer, model, index) for index in range(model.num_layers)]


def _layer(model, index, x, batch):
    """A layer of a `BasicGNN`, in evaluation mode."""
    rows = convolve(model.convs[index], x, batch)
    is_last = index + 1 == model.num_layers
    if is_last and model.jk_mode is None:
        return rows
    if model.act is not None and model.act_first:
        rows = model.act(rows)
    rows = model.norms[index](rows)
    if model.act is not None and not model.act_first:
        rows = model.act(rows)
    return model.lin(rows) if is_last else rows


def _graph_convolution(conv, x, batch):
    """A `GCNConv` with the degrees of the whole graph."""
    if conv.aggr not in ("add", "sum"):
        raise ValueError(
            f"GCNConv has aggr={conv.aggr!r}; inference knows its sum only: give the layer as a function of (x, batch)"
        )
    rows = conv.lin(x[0])
    sources, destinations = batch.edge_index
    weights = _weights(batch, rows)
    own = None
    if conv.normalize:
        degree = batch.in_degree
        if conv.add_self_loops:
            # One loop per node takes the place of the loops of the graph. If edges have weights, it has the weight of the last one.
            loop = torch.ones_like(degree)
            if batch.edge_weight is not None:
                loop = torch.where(batch.loop_weight.isnan(), 2 if conv.improved else 1, batch.loop_weight)
            degree = degree - batch.self_loops + loop
            weights[sources == destinations] = 0
        scale = degree.pow(-0.5).masked_fill(degree == 0, 0).to(rows.dtype)
        weights *= scale[sources] * scale[destinations]
        if conv.add_self_loops:
            factors = loop.to(rows.dtype) * scale.square()
            own = factors[: batch.batch_size].unsqueeze(1) * rows[: batch.batch_size]
    summed = torch.sparse.mm(_matrix(batch, weights), rows)
    if own is not None:
        summed += own
    return summed if conv.bias is None else summed + conv.bias


def _matrix(batch, weights):
    """The edges as a sparse matrix in CSR: a row per destination, a column per source."""
    sources, destinations = batch.edge_index
    counts = torch.bincount(destinations, minlength=batch.batch_size)
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        # The switch below does not silence it.
        warnings.filterwarnings("ignore", message="Sparse invariant checks are implicitly disabled")
        size = (batch.batch_size, len(batch.n_id))
        return torch.sparse_csr_tensor(offsets, sources, weights, size, check_invariants=False)
