"""The rows of embeddings in the batches of a loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .embedding import Embedding


class BatchRows:
    """The rows of embeddings for the nodes of batches.

    Args:
        embeddings: An `Embedding`, or several.
        path: The graph of the batches.
        node_types: Its node types.
        pins: Whether rows on the CPU go to pinned memory.

    Raises:
        TypeError: There are other things than embeddings among `embeddings`.
        ValueError: An embedding is of another graph, or two are of one type.
    """

    def __init__(self, embeddings: Any, path: Any, node_types: list[str], pins: bool = False):
        given = [embeddings] if isinstance(embeddings, (Embedding, torch.Tensor)) else list(embeddings)
        self._embeddings: dict[str, Embedding] = {}
        for embedding in given:
            if not isinstance(embedding, Embedding):
                raise TypeError(f"embeddings has a {type(embedding).__name__}, expected grappa.Embedding; give embeddings=[embedding]")
            embedding._check_graph(path)
            if embedding.node_type in self._embeddings:
                raise ValueError(
                    f"embeddings has two of the node type {embedding.node_type!r}, expected one; give one of them, with the sum of both dim"
                )
            self._embeddings[embedding.node_type] = embedding
        self._node_types, self._pins = node_types, pins

    def each(self, batches: Iterator[Any], nodes: Callable[[Any], list[dict[str, Any]]]) -> Iterator[Any]:
        """Batches with rows, which are read when a batch is asked for: batches that were sampled ahead have the current ones. `nodes` finds the
        entries of each node type in a batch."""

        def with_leaves(entries: Any) -> Any:
            for name, part in zip(self._node_types, nodes(entries), strict=True):
                if name in self._embeddings:
                    part["x"] = _joined(part.get("x"), self._leaf(self._embeddings[name], part["n_id"]))
            return entries

        return map(with_leaves, batches)

    def inputs(self, features: dict[str, Any], nodes: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """The features of some nodes of each type with their rows, without gradients."""
        rows = {name: of_type._read(torch.from_numpy(nodes[name]["n_id"])) for name, of_type in self._embeddings.items() if name in nodes}
        return {**features, **{name: _joined(features.get(name), of_type) for name, of_type in rows.items()}}

    def _leaf(self, embedding: Embedding, nodes: torch.Tensor) -> torch.Tensor:
        def to_device(rows: torch.Tensor) -> torch.Tensor:
            return rows.pin_memory() if self._pins else rows.to(nodes.device)

        return embedding._leaf(nodes.cpu(), to_device)


def _joined(features: Any, rows: torch.Tensor) -> torch.Tensor:
    """Inputs of nodes: their features, if they have some, and then their rows."""
    return rows if features is None else torch.cat([torch.as_tensor(features), rows], dim=1)
