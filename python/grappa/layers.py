"""What a layer of inference gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .neighborhoods import Neighborhood


@dataclass
class LayerBatch:
    """The in-edges of some nodes, the destinations, for a layer. Sources are numbered from 0, and destinations are the first
    sources.

    Example:
        >>> import torch
        >>> def count(x, batch):
        ...     return torch.bincount(batch.edge_index[1], minlength=batch.batch_size).float()
        >>> grappa.inference(store, torch.nn.Identity(), layers=[count], nodes=[0])
        array([3.], dtype=float32)
    """

    #: Sources and destinations of all in-edges, in ascending order of destinations: shape (2, e), int64.
    edge_index: torch.Tensor
    #: The sources in the store: shape (n,), int64.
    n_id: torch.Tensor
    #: The number of destinations.
    batch_size: int
    #: The weights of the edges with ``edge_weights=True``: shape (e,), float32. Otherwise None.
    edge_weight: torch.Tensor | None
    _degrees: Callable[[], tuple[torch.Tensor, ...]]

    @property
    def in_degree(self) -> torch.Tensor:
        """The in-degree of each source in the whole graph, or the sum of the weights of its in-edges: shape (n,), float32. The
        first use reads all adjacency lists."""
        return self._degrees()[0]

    @property
    def self_loops(self) -> torch.Tensor:
        """The number of edges from each source to itself, or the sum of their weights: shape (n,), float32. The first use reads all
        adjacency lists."""
        return self._degrees()[1]

    @property
    def loop_weight(self) -> torch.Tensor:
        """The weight of the last edge from each source to itself, 1 if edges have no weights, and NaN if there is no such edge: shape
        (n,), float32. The first use reads all adjacency lists."""
        return self._degrees()[2]


@dataclass
class TypedLayerBatch:
    """The in-edges of some nodes of a type, the destinations, for a layer of a model with types. Nodes of each type are numbered from 0.
    Destinations are the first nodes of their type. Sources lack their own in-edges and degrees, so a layer that divides by degrees of
    sources, such as ``GCNConv``, cannot be computed.

    Example:
        >>> import torch
        >>> def count(x, batch):
        ...     edges = batch.edge_index_dict["author", "writes", "paper"]
        ...     return torch.bincount(edges[1], minlength=batch.batch_size).float()
        >>> grappa.inference(typed, torch.nn.Identity(), layers=[count], nodes="paper")
        array([2., 2.], dtype=float32)
    """

    #: The type of the destinations.
    node_type: str
    #: The number of destinations.
    batch_size: int
    #: Sources and destinations of all in-edges by each relation into the type: shape (2, e), int64.
    edge_index_dict: dict[tuple[str, str, str], torch.Tensor]
    #: The nodes of each type in the graph: shape (n,), int64.
    n_id_dict: dict[str, torch.Tensor]
    #: The weights of the edges of relations that have them, with ``edge_weights=True``: shape (e,), float32.
    edge_weight_dict: dict[tuple[str, str, str], torch.Tensor]

    @classmethod
    def from_neighborhood(cls, batch: Neighborhood, device: torch.device) -> TypedLayerBatch:
        import torch

        def tensors(parts, name):
            return {key: torch.from_numpy(part[name]).to(device) for key, part in parts.items() if name in part}

        return cls(
            batch.node_type,
            batch.batch_size,
            tensors(batch.edges, "edge_index"),
            tensors(batch.nodes, "n_id"),
            tensors(batch.edges, "edge_weight"),
        )
