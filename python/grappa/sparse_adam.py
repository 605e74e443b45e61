"""Adam for rows of embeddings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from . import ranks
from .embedding import Embedding, RowGradient
from .embedding_files import Table

#: Rows that are updated together, so that their values stay in a cache.
ROWS = 2048


class SparseAdam(torch.optim.Optimizer):
    """Lazy Adam for `Embedding`: only rows with a gradient change, and the bias correction of a row counts its own updates, as with
    ``grappa-train --node-embeddings``. The arithmetic is that of `torch.optim.SparseAdam`, which counts the steps of the whole table.

    Gradients are those of the rows that loaders brought, or that the embedding was called for, since the last step; those of the same node
    are added up. So several ``backward()`` before a `step` accumulate. The moments are part of the embedding, so ``state_dict()`` has
    the learning rate and the other options alone. Schedulers of learning rates work.

    Args:
        embeddings: An `Embedding`, or several.
        lr: Learning rate.
        betas: Decay rates of the two moments.
        eps: Added to the denominator.

    Raises:
        TypeError: There are other things than embeddings among `embeddings`.
        ValueError: There are none, or the same twice, or another argument is out of its range.
        RuntimeError: Several processes train.

    Example:
        >>> embedding = grappa.Embedding(typed, "author", 4)
        >>> optimizer = grappa.SparseAdam(embedding, lr=0.1)
        >>> before = embedding.rows.clone()
        >>> embedding([2, 0]).sum().backward()
        >>> optimizer.step()
        >>> (embedding.rows - before).abs().sum(dim=1) > 0
        tensor([ True, False,  True])
    """

    def __init__(
        self,
        embeddings: Embedding | Iterable[Embedding],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        given: list[Any] = [embeddings] if isinstance(embeddings, (Embedding, torch.Tensor)) else list(embeddings)
        wrong = next((item for item in given if not isinstance(item, Embedding)), None)
        if wrong is not None:
            raise TypeError(
                f"embeddings has a {type(wrong).__name__}, expected grappa.Embedding; give the parameters of a model to an optimizer of "
                "torch.optim"
            )
        if not given or len({id(item) for item in given}) != len(given):
            raise ValueError(f"embeddings has {len(given)} items, expected at least one, and each once; give [embedding]")
        if not lr >= 0 or not eps > 0 or len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr={lr!r}, betas={betas!r}, eps={eps!r}: expected lr from 0, two betas from 0 to below 1, and eps above 0; give these"
            )
        #: The embeddings, one for each of ``param_groups``.
        self.embeddings: list[Embedding] = given
        require_one_process("SparseAdam")
        super().__init__([{"params": []} for _ in given], {"lr": lr, "betas": tuple(betas), "eps": eps})
        self._share_leaves()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Applies the gradients since the last step, once.

        Args:
            closure: Computes the loss again, with its gradients, and returns it.

        Returns:
            The loss of `closure`. None without one.

        Raises:
            RuntimeError: No row has a gradient, or several processes train.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4)
            >>> optimizer = grappa.SparseAdam(embedding, lr=0.1)
            >>> embedding([1]).sum().backward()
            >>> optimizer.step()
        """
        require_one_process("SparseAdam.step")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        read = [embedding._read_rows for embedding in self.embeddings if embedding._read_rows is not None]
        # A batch may have no node of these types.
        if not any(group["params"] for group in self.param_groups) and (not read or any(read)):
            names = ", ".join(repr(embedding.node_type) for embedding in self.embeddings)
            raise RuntimeError(
                f"step: expected gradients of the rows of {names}, found none since the last step; call loss.backward() first, and let the "
                "loss depend on the rows: x of batches of a loader with embeddings=..."
            )
        for group, embedding in zip(self.param_groups, self.embeddings, strict=True):
            if any(map(len, embedding._nodes)):
                # Rows on disk are copied first. If that fails, their gradients are still there.
                table = embedding._writable_table()
                gradient = embedding._take_gradient()
                if gradient is not None:
                    update(table, gradient, float(group["lr"]), group["betas"], group["eps"])
            embedding._forget()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients since the last step.

        Args:
            set_to_none: Has no effect: `grad` of the tensors becomes None.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4)
            >>> optimizer = grappa.SparseAdam(embedding)
            >>> rows = embedding([1])
            >>> rows.sum().backward()
            >>> optimizer.zero_grad()
            >>> rows.grad is None
            True
        """
        for embedding in self.embeddings:
            embedding._forget()

    def state_dict(self) -> dict[str, Any]:
        """The options of each embedding. The moments are part of the embedding.

        Example:
            >>> grappa.SparseAdam(grappa.Embedding(typed, "author", 4), lr=0.1).state_dict()["param_groups"][0]["lr"]
            0.1
        """
        state = super().state_dict()
        # Tensors of a batch that has no step yet are no state.
        return {**state, "param_groups": [{**group, "params": []} for group in state["param_groups"]]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the options that `state_dict` returned. Gradients since the last step are forgotten.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4)
            >>> optimizer = grappa.SparseAdam(embedding)
            >>> optimizer.load_state_dict(grappa.SparseAdam(embedding, lr=0.1).state_dict())
            >>> optimizer.param_groups[0]["lr"]
            0.1
        """
        self.zero_grad()
        super().load_state_dict(state_dict)
        self._share_leaves()

    def _share_leaves(self) -> None:
        """Makes the tensors with gradients the parameters of their groups, as what unscales or clips gradients expects."""
        for group, embedding in zip(self.param_groups, self.embeddings, strict=True):
            group["params"] = embedding._leaves


def update(table: Table, gradient: RowGradient, lr: float, betas: tuple[float, float], eps: float) -> None:
    """A step of rows in a table, which costs as much as their number."""
    for nodes, grad in zip(gradient.nodes.split(ROWS), gradient.values.split(ROWS), strict=True):
        updates = table.updates.index_select(0, nodes).add_(1)
        table.updates.index_copy_(0, nodes, updates)
        counts = updates.numpy().astype(np.float64)
        sizes = lr * np.sqrt(1 - betas[1] ** counts) / (1 - betas[0] ** counts)
        # As in PyTorch: old + (1 - beta) * (new - old).
        old = table.first.index_select(0, nodes)
        first = grad.sub(old).mul_(1 - betas[0]).add_(old)
        table.first.index_copy_(0, nodes, first)
        old = table.second.index_select(0, nodes)
        second = grad.pow(2).sub_(old).mul_(1 - betas[1]).add_(old)
        table.second.index_copy_(0, nodes, second)
        change = first.div_(second.sqrt_().add_(eps)).mul_(torch.from_numpy(-sizes.astype(np.float32))[:, None])
        table.values.index_copy_(0, nodes, change.add_(table.values.index_select(0, nodes)))


def require_one_process(name: str, world_size: int = 1) -> None:
    """Checks that no other process trains, of `torch.distributed` or as a loader was told.

    Raises:
        RuntimeError: There are several.
    """
    world_size = max(world_size, (ranks.current() or (0, 1))[1])
    if world_size > 1:
        raise RuntimeError(
            f"{name}: expected one process, found {world_size}, whose rows would differ: gradients of rows are not "
            "exchanged; train in one process, or give types without features the means of their neighbors' features (grappa-store "
            "add-features --kind mean)"
        )
