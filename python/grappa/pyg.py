"""Batches as those of PyTorch Geometric."""

import torch
from torch_geometric.data import Data

from .convolutions import convolve
from .loader import NeighborLoader as _NeighborLoader

__all__ = ["NeighborLoader", "convolve"]


class NeighborLoader(_NeighborLoader):
    """As `torch_geometric.loader.NeighborLoader`, from a store instead of a `Data` in memory.

    Batches are `torch_geometric.data.Data` with ``x``, ``y``, ``edge_index``, ``n_id``, ``input_id``, ``batch_size``,
    ``num_sampled_nodes`` and ``num_sampled_edges``; for partitions also ``loss_weight``. ``y`` has the labels of all nodes, and edges
    lead from sources to destinations, so the layers of PyTorch Geometric and ``trim_to_layer`` work without changes.

    Args:
        data: A `grappa.Store`, or the path of one.
        num_neighbors: As `grappa.NeighborLoader`.
        input_nodes: As `grappa.NeighborLoader`. Default: all nodes.
        transform: A function that gets each batch and returns another one.
        **options: As `grappa.NeighborLoader`; ``shuffle`` is False by default, as in PyTorch.

    Example:
        >>> loader = grappa.pyg.NeighborLoader(store, [10, 5], "train", batch_size=64, shuffle=True)
        >>> next(iter(loader)).x.dtype
        torch.float32
    """

    def __init__(self, data, num_neighbors, input_nodes=None, *, batch_size=1, shuffle=False, transform=None, **options):
        self.transform = transform
        super().__init__(
            data, num_neighbors, batch_size, input_nodes, shuffle=shuffle, **{"labels": "all", **options}
        )
        self._options["transform"] = transform

    def _batch(self, arrays):
        batch = super()._batch(arrays)
        data = Data(
            x=_tensor(batch.x),
            edge_index=_tensor(batch.edge_index),
            y=_tensor(batch.y),
            n_id=_tensor(batch.n_id),
            input_id=_tensor(batch.input_id),
            batch_size=batch.batch_size,
            num_sampled_nodes=batch.num_sampled_nodes,
            num_sampled_edges=batch.num_sampled_edges,
            num_nodes=len(batch.n_id),
            loss_weight=batch.loss_weight,
        )
        return data if self.transform is None else self.transform(data)


def _tensor(array):
    return None if array is None else torch.from_numpy(array)
