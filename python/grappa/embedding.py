"""Learnable rows of nodes."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np
import torch

from ._types import StoreLike
from .arguments import integer
from .embedding_files import Generations, Owner, Table
from .graph import Graph
from .initial_rows import initial_rows
from .neighborhoods import NODE
from .store import Store, _numbers

if TYPE_CHECKING:
    from typing import Self

#: Where the digest of a manifest is: see ``formats/spec/container.md``.
_DIGEST = struct.Struct("<56xQ")
#: Parts of a table of rows in memory, as `torch.optim.SparseAdam` calls them.
_BUFFERS = ("weight", "exp_avg", "exp_avg_sq", "updates")


class RowGradient(NamedTuple):
    """The gradients of some rows."""

    #: The nodes, ascending and each once: shape (n,), int64.
    nodes: torch.Tensor
    #: The sums of their gradients: shape (n, dim), float32.
    values: torch.Tensor


class Embedding(torch.nn.Module):
    """Learnable rows for the nodes of a type, as their inputs instead of features or beside them.

    A loader that gets ``embeddings=[embedding]`` brings the rows of a batch's nodes with the batch: as ``batch["user"].x``, or after the
    features there if the type has some. The rows are read when the batch is handed over, so batches that are sampled ahead have the current
    ones. `SparseAdam` updates the rows that got gradients.

    Rows are of float32, and stay in the memory of the processor or on disk: ``to("cuda")`` does not move them, and batches have copies on
    the device of their loader. They are no parameters, so `torch.optim.Adam` and ``DistributedDataParallel`` do not see them. A row takes 12
    bytes per value with the state of its optimizer, and 8 bytes.

    The rows of one process are updated by this process alone. Training in several processes is an error.

    Args:
        store: A `Graph`, a `Store`, or the path of one.
        node_type: The type of the nodes. None, or ``"node"``, for a store without types.
        dim: The number of values of a row.
        seed: Seed of the initial rows. The row of a node follows from the seed, the type and the number of the node, as with
            ``grappa-train --node-embeddings``: values are uniform, and rows have length 1 on average.
        path: A folder for rows that exceed memory. Rows and the state of their optimizer are in memory-mapped files there: see `save`.
            If the folder has rows already, these are opened. Default: rows are in memory, and part of ``state_dict()``.
        generation: With `path`, the number of the saved rows to open. Default: the newest.

    Raises:
        ValueError: The graph has no such type, or `dim` is below 1.
        grappa.Error: The folder has rows of another graph, type or `dim`, or cannot be written.

    Example:
        >>> import torch
        >>> embedding = grappa.Embedding(typed, "author", 4)
        >>> optimizer = grappa.SparseAdam(embedding, lr=0.1)
        >>> loader = grappa.pyg.NeighborLoader(typed, [2], "paper", batch_size=2, embeddings=[embedding], features=False)
        >>> for batch in loader:
        ...     batch["author"].x.square().sum().backward()
        ...     optimizer.step()
        >>> batch["author"].x.shape, embedding([0]).shape
        (torch.Size([3, 4]), torch.Size([1, 4]))
    """

    def __init__(
        self,
        store: StoreLike | Graph,
        node_type: str | None,
        dim: int,
        *,
        seed: int = 0,
        path: str | os.PathLike[str] | None = None,
        generation: int | None = None,
    ) -> None:
        super().__init__()
        graph = store if isinstance(store, Graph) else Graph(store.path if isinstance(store, Store) else store)
        node_type = _known_type(graph, node_type)
        dim, seed = integer("dim", dim, 1, bits=32), integer("seed", seed, 0)
        if generation is not None and path is None:
            raise ValueError(f"generation={generation!r}: rows in memory have no generations; give path=..., or leave it out")
        #: The type of the nodes.
        self.node_type = node_type
        #: Number of rows.
        self.num_nodes = graph[node_type].num_nodes
        #: Values of a row.
        self.dim = dim
        #: The folder of the rows. None if they are in memory.
        self.path = None if path is None else os.fspath(path)
        self._graph_path, self._digest = os.fspath(graph.path), graph_digest(graph.path)
        #: Tensors of rows that got a gradient since the last step. An optimizer has this list as the parameters of a group.
        self._leaves: list[torch.Tensor] = []
        self._nodes: list[torch.Tensor] = []
        #: Number of rows that were read for training since the last step. None if none were asked for.
        self._read_rows: int | None = None
        blocks = initial_rows(seed, graph.node_types.index(node_type), self.num_nodes, dim)
        self._generations: Generations | None = None
        if self.path is not None:
            owner = Owner(self._digest, node_type, self.num_nodes, dim)
            number = None if generation is None else integer("generation", generation, 1)
            self._generations = Generations(self.path, owner, number, blocks)
            return
        rows = np.empty((self.num_nodes, dim), np.float32)
        done = 0
        for block in blocks:
            rows[done : done + len(block)] = block
            done += len(block)
        # Pages of zeros take memory when they are written.
        moments = [torch.from_numpy(np.zeros((self.num_nodes, dim), np.float32)) for _ in range(2)]
        parts = torch.from_numpy(rows), *moments, torch.zeros(self.num_nodes, dtype=torch.int64)
        for name, part in zip(_BUFFERS, parts, strict=True):
            self.register_buffer(name, part)

    @property
    def rows(self) -> torch.Tensor:
        """The rows of all nodes, by node number, for reading: shape (num_nodes, dim), float32. With `path`, they are on disk."""
        return self._table().values

    @property
    def generation(self) -> int | None:
        """With `path`, the number of the saved rows that were opened or written last. None for rows in memory."""
        return None if self._generations is None else self._generations.number

    def forward(self, nodes: Any) -> torch.Tensor:
        """The current rows of some nodes, as a leaf whose gradient `SparseAdam` applies. Loaders call it for the nodes of each batch.

        Args:
            nodes: Node numbers, which may repeat: shape (n,), such as ``batch["user"].n_id``.

        Returns:
            Shape (n, dim), float32, on the device of `nodes`. It requires no gradient where PyTorch records none.

        Raises:
            IndexError: There is no such node.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4)
            >>> embedding.forward([2, 0, 2]).requires_grad
            True
        """
        device = nodes.device if isinstance(nodes, torch.Tensor) else torch.device("cpu")
        numbers = _numbers(nodes.cpu() if isinstance(nodes, torch.Tensor) else nodes, self.num_nodes, "nodes")
        wrong = numbers[(numbers < 0) | (numbers >= self.num_nodes)]
        if wrong.size:
            raise IndexError(
                f"nodes has {wrong[0]}, expected numbers from 0 to {self.num_nodes - 1} of nodes of type {self.node_type!r}; give nodes of "
                "this type, such as n_id of a batch of the same graph"
            )
        return self._leaf(torch.from_numpy(numbers), lambda rows: rows.to(device))

    def save(self, keep: int | None = None) -> int:
        """Writes the rows and the state of their optimizer as a new generation in `path`, if they have changed. Earlier generations are not
        modified. ``Embedding(..., path=path, generation=number)`` opens it.

        Args:
            keep: The number of newest generations that stay. Default: all.

        Returns:
            The number of the generation.

        Raises:
            ValueError: The rows are in memory; ``state_dict()`` has them.
            grappa.Error: It cannot be written, for example because the disk is full.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4, path=folder / "rows")
            >>> embedding(torch.tensor([0])).sum().backward()
            >>> grappa.SparseAdam(embedding).step()
            >>> embedding.save()
            2
        """
        if self._generations is None:
            raise ValueError("save: these rows are in memory; save state_dict(), or give grappa.Embedding path=...")
        return self._generations.save(None if keep is None else integer("keep", keep, 1))

    def close(self) -> None:
        """Saves rows with `path` as `save` does, and lets go of their files. Rows in memory stay. At the end of a ``with`` block, rows are closed,
        and not saved if an exception ended it.

        Raises:
            grappa.Error: They cannot be written.

        Example:
            >>> embedding = grappa.Embedding(typed, "author", 4, path=folder / "closed")
            >>> embedding.close()
        """
        if self._generations is not None:
            self._generations.save(None)
            self._generations.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self.close()
        elif self._generations is not None:
            self._generations.close()

    def extra_repr(self) -> str:
        """What `repr` shows.

        Example:
            >>> grappa.Embedding(typed, "author", 4)
            Embedding('author', num_nodes=3, dim=4)
        """
        where = "" if self.path is None else f", path={self.path!r}"
        return f"{self.node_type!r}, num_nodes={self.num_nodes}, dim={self.dim}{where}"

    def _check_graph(self, path: str | os.PathLike[str]) -> None:
        """`ValueError` if the rows belong to another graph than the one at `path`."""
        if graph_digest(path) != self._digest:
            raise ValueError(
                f"embeddings: expected rows of {os.fspath(path)}, found rows of {self.node_type!r} of the graph {self._graph_path}; make the "
                "embedding of this graph"
            )

    def _table(self) -> Table:
        if self._generations is not None:
            return self._generations.table
        return Table(*(getattr(self, name) for name in _BUFFERS))

    def _writable_table(self) -> Table:
        return self._table() if self._generations is None else self._generations.train()

    def _read(self, nodes: torch.Tensor) -> torch.Tensor:
        """Copies of the rows of some nodes."""
        return self._table().values.index_select(0, nodes)

    def _leaf(self, nodes: torch.Tensor, to_device: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """The rows of some nodes, which are known to exist, as a leaf on a device."""
        leaf = to_device(self._read(nodes).detach())
        if not torch.is_grad_enabled():
            return leaf
        self._read_rows = (self._read_rows or 0) + len(nodes)

        def keep(leaf: torch.Tensor) -> None:
            # A leaf without a gradient, as of an evaluation, is not kept.
            if all(other is not leaf for other in self._leaves):
                self._leaves.append(leaf)
                self._nodes.append(nodes)

        leaf.requires_grad_().register_post_accumulate_grad_hook(keep)
        return leaf

    def _take_gradient(self) -> RowGradient | None:
        """The gradients since the last step, which are forgotten. None if there are none."""
        pairs = ((nodes, leaf.grad) for nodes, leaf in zip(self._nodes, self._leaves, strict=True))
        taken = [(nodes, gradient.detach().cpu()) for nodes, gradient in pairs if gradient is not None and len(nodes)]
        self._forget()
        if not taken:
            return None
        nodes, order = torch.sort(torch.cat([nodes for nodes, _ in taken]), stable=True)
        gradient = torch.cat([gradient for _, gradient in taken]).index_select(0, order)
        if bool((nodes[1:] > nodes[:-1]).all()):
            return RowGradient(nodes, gradient)
        nodes, places = torch.unique_consecutive(nodes, return_inverse=True)
        return RowGradient(nodes, torch.zeros(len(nodes), self.dim).index_add_(0, places, gradient))

    def _forget(self) -> None:
        for leaf in self._leaves:
            leaf.grad = None
        self._leaves.clear()
        self._nodes.clear()
        self._read_rows = None

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # Rows stay where they are, whatever becomes of the parameters of a model.
        return self

    def __getstate__(self) -> dict[str, Any]:
        if self._generations is not None:
            raise TypeError(f"the rows in {self.path} have one owner, and cannot be copied or pickled; save() them, and open path=... there")
        return {**self.__dict__, "_leaves": [], "_nodes": [], "_read_rows": None}


def graph_digest(path: str | os.PathLike[str]) -> str:
    """The digest of the graph or store at `path`, by which another one is known."""
    with open(os.path.join(path, "manifest"), "rb") as file:
        (digest,) = _DIGEST.unpack(file.read(_DIGEST.size))
    return f"{digest:016x}"


def _known_type(graph: Graph, node_type: Any) -> str:
    if node_type is None and graph.node_types == [NODE]:
        return NODE
    if node_type not in graph.node_types:
        raise ValueError(f"node_type={node_type!r}: expected one of {graph.node_types}, the node types of {graph.path}; give one of these")
    return str(node_type)
