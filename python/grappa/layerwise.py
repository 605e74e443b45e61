"""Whole-graph inference, layer by layer: each state of a node is computed once, and states are on disk."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import tempfile
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _grappa
from ._tensors import arrays
from ._types import Nodes
from .loader import _bytes
from .partitions import partition_options
from .store import Store, _numbers
from .temporary import create_beside, explained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

#: The states that are read together, and the pass that counts in-degrees, take up to 1/SHARE of the memory each.
SHARE = 4


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


def inference(
    store: Store | str | os.PathLike[str],
    model: torch.nn.Module,
    layers: Sequence[Callable[..., Any]] | None = None,
    *,
    nodes: Nodes = None,
    out: str | os.PathLike | None = None,
    batch_size: int = 1024,
    memory: int | str | None = None,
    scratch: str | os.PathLike | None = None,
    threads: int | None = None,
    edge_weights: bool | None = None,
) -> np.ndarray:
    """Computes a model's outputs with all in-neighbors of each node, out of core.

    Each layer is computed for all nodes that the outputs depend on before the next layer begins. States of a layer are in a scratch
    file that has no name and goes away with the process. The model is in evaluation mode meanwhile.

    Args:
        store: A `Store` with features, or the path of one.
        model: A `torch.nn.Module`. Batches go to the device of its parameters.
        layers: The layers in order. Each is a convolution of PyTorch Geometric, or a function of ``(x, batch)``: ``x`` has the rows
            of sources and the rows of destinations, ``batch`` is a `LayerBatch`, and it returns a row per destination. Not needed
            for models like `torch_geometric.nn.GraphSAGE`.
        nodes: The nodes to compute: node numbers, a mask over all nodes, the name of a split, or None for all nodes.
        out: A ``.npy`` file for the result. An earlier file is replaced when the result is complete. Default: the result is in
            memory.
        batch_size: The number of destinations that a layer computes together. The memory of a layer grows with it, and with the
            in-degrees of the nodes.
        memory: The budget for adjacency lists, features and buffers, in bytes or like ``"4GiB"``. States that are read together
            take up to a quarter more, and the computation of a layer is not part of it. Default: half of the free memory.
        scratch: The folder of the scratch file. Default: the folder of `out`, or the folder that has the store.
        threads: Number of threads that read adjacency lists. Default: one per processor.
        edge_weights: Whether layers get the weights of edges: `LayerBatch.edge_weight`, and the ``edge_weight`` of convolutions.
            Must be given if the store has some.

    Returns:
        A row for each of `nodes`, in their order: an array, or a read-only `numpy.memmap` of `out`.

    Raises:
        ValueError: An argument is impossible, or a layer needs more than the in-edges of its destinations.
        TypeError: The model or what a layer returned is of a wrong type.
        grappa.Error: The memory is too small, the scratch file cannot be written, or the store is damaged.

    Example:
        >>> import torch
        >>> linear = torch.nn.Linear(store.num_features, 4)
        >>> def mean(x, batch):
        ...     sources, destinations = batch.edge_index
        ...     total = torch.zeros_like(x[1]).index_add(0, destinations, x[0][sources])
        ...     return linear(total / batch.in_degree[: batch.batch_size, None])
        >>> grappa.inference(store, linear, layers=[mean], nodes=[3, 0]).shape
        (2, 4)
    """
    import torch

    store = store if isinstance(store, Store) else Store(store)
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; give a torch.nn.Module, and its layers as layers=[...]")
    if store.num_features == 0:
        raise ValueError(f"{store.path} has no features; ingest with features=...")
    if edge_weights is None and store.has_edge_weights:
        raise ValueError(
            f"{store.path} has edge weights; give edge_weights=True if the model was trained with them, or edge_weights=False"
        )
    if edge_weights and not store.has_edge_weights:
        raise ValueError(f"edge_weights=True: {store.path} has no edge weights; ingest with weights=..., or leave edge_weights out")
    if store.num_edge_features:
        warnings.warn(f"{store.path} has edge features, and inference does not pass them to layers", stacklevel=2)
    layers = _layers(model, layers)
    folder = os.path.dirname(os.path.abspath(store.path if out is None else out))
    scratch = folder if scratch is None else scratch
    run = _Run(store, batch_size, _bytes(memory) or _grappa.default_memory(), threads, scratch, bool(edge_weights))
    wanted, order = None, None
    if nodes is not None:
        wanted, order = run.positions(store.split(nodes) if isinstance(nodes, str) else nodes)
    with _evaluating(torch, model) as device, _Result(out, wanted, order, store.num_nodes) as result:
        run.compute(layers, wanted, device, result)
        return result.finish()


def _layers(model, layers):
    """The layers as functions of (x, batch)."""
    if layers is None:
        if "torch_geometric" not in sys.modules:
            raise ValueError("layers is missing; give the layers of the model as functions of (x, batch): layers=[...]")
        from .convolutions import layers_of

        return layers_of(model)
    if len(layers) == 0:
        raise ValueError("layers is empty; give at least one layer")
    if "torch_geometric" not in sys.modules:
        return list(layers)
    from torch_geometric.nn import MessagePassing

    from .convolutions import convolve

    return [functools.partial(convolve, item) if isinstance(item, MessagePassing) else item for item in layers]


@contextlib.contextmanager
def _evaluating(torch, model) -> Iterator[torch.device]:
    """Puts a model into evaluation mode, without gradients. Returns the device of its parameters."""
    modes = [(module, module.training) for module in model.modules()]
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    model.eval()
    try:
        with torch.inference_mode():
            yield device
    finally:
        for module, training in modes:
            module.training = training


class _Run:
    """An inference: its options, and the in-degrees if a layer has asked for them.

    Sets of nodes are ascending positions in the store, or None for all nodes: adjacency lists are read front to back, and rows of
    states are written in this order.
    """

    def __init__(self, store, batch_size, memory, threads, scratch, edge_weights):
        self.store, self.batch_size, self.memory, self.threads, self.scratch = store, batch_size, memory, threads, scratch
        self.edge_weights = edge_weights
        #: The inputs of the first layer.
        self.inputs = None
        self._degrees = None

    def positions(self, nodes) -> tuple[np.ndarray, np.ndarray]:
        """The ascending positions of nodes, and the index of each of them in `nodes`."""
        numbers = _numbers(nodes, self.store.num_nodes)
        if not numbers.size:
            raise ValueError("nodes is empty; give at least one node, or None for all nodes")
        positions = np.asarray(self.store._store.positions(numbers))
        order = np.argsort(positions, kind="stable")
        ascending = positions[order]
        repeated = np.flatnonzero(ascending[1:] == ascending[:-1])
        if repeated.size:
            raise ValueError(f"node {numbers[order[repeated[0]]]} is in nodes twice; give each node once")
        return ascending, order

    def batches(self, nodes, *, memory=None, features=False, edge_weights=False):
        """Batches of some nodes with all their in-neighbors."""
        loader = _grappa.Loader(
            self.store._store,
            nodes,
            {
                "fanouts": [-1],
                "replace": False,
                "by_weight": False,
                "edge_weights": edge_weights,
                "edge_ids": False,
                "edge_features": False,
                "layout": "hops",
                "disjoint": False,
            },
            {
                "batch_size": self.batch_size,
                "shuffle": False,
                "seed": 0,
                "memory": memory or self.memory,
                "threads": self.threads,
                "features": features,
                "labels": None,
                "full_batches": False,
                "drop_last": False,
                "by_position": True,
            },
            partition_options(),
        )
        try:
            for batch in loader.epoch(0):
                yield arrays(batch)
        finally:
            loader.close()

    def with_sources(self, nodes) -> np.ndarray | None:
        """A set of nodes and all their in-neighbors."""
        if nodes is None:
            return None
        is_member = np.zeros(self.store.num_nodes, bool)
        for batch in self.batches(nodes):
            is_member[batch["positions"]] = True
        return np.flatnonzero(is_member)

    def compute(self, layers, wanted, device, result):
        """Computes all layers. `result` gets the rows of the last layer."""
        sets = [wanted]
        for _ in layers[1:]:
            sets.insert(0, self.with_sources(sets[0]))
        self.inputs = sets[0]
        states = None
        for index, (layer, nodes) in enumerate(zip(layers, sets)):
            is_last = index + 1 == len(layers)
            sink = result if is_last else _States(self.scratch, nodes)
            if states is None:
                batches = self.batches(nodes, features=True, edge_weights=self.edge_weights)
                read = ((batch, batch["x"]) for batch in batches)
            else:
                read = states.read(self.batches(nodes, edge_weights=self.edge_weights), self.memory // SHARE)
            for batch, x in read:
                sink.add(batch, self.rows(layer, f"layer {index}", batch, x, device))
            if not is_last:
                sink.finish()
            states = sink

    def rows(self, layer, name, batch, x, device) -> np.ndarray:
        """What a layer returns for a batch."""
        import torch

        def tensor(name):
            return torch.from_numpy(batch[name]).to(device)

        def degrees():
            counts = self.degrees()[:, batch["positions"]]
            return tuple(torch.from_numpy(counts).to(device))

        size = batch["batch_size"]
        x = torch.as_tensor(x).to(device)
        weights = tensor("edge_weight") if self.edge_weights else None
        rows = layer((x, x[:size]), LayerBatch(tensor("edge_index"), tensor("n_id"), size, weights, degrees))
        if not isinstance(rows, torch.Tensor):
            raise TypeError(f"{name} returned a {type(rows).__name__}; return a tensor with a row per destination")
        if rows.dim() == 0 or rows.shape[0] != size:
            raise ValueError(
                f"{name} returned a tensor of shape {tuple(rows.shape)} for {size} destinations; return a row for each, in "
                f"order, for example rows[:batch.batch_size]"
            )
        if rows.dtype not in (torch.float16, torch.float32, torch.float64):
            raise TypeError(f"{name} returned values of type {rows.dtype}; return rows.float()")
        return rows.detach().cpu().contiguous().numpy()

    def degrees(self) -> np.ndarray:
        """The in-degrees and the numbers of self-loops of all nodes that a layer can meet, or the sums of their weights, and the
        weight of the last self-loop, by position: shape (3, N)."""
        if self._degrees is None:
            counts = np.zeros((3, self.store.num_nodes), np.float32)
            counts[2] = np.nan
            memory = self.memory // SHARE
            for batch in self.batches(self.with_sources(self.inputs), memory=memory, edge_weights=self.edge_weights):
                sources, destinations = batch["edge_index"]
                positions = batch["positions"][: batch["batch_size"]]
                weights = batch["edge_weight"] if self.edge_weights else np.ones(len(sources), np.float32)
                counts[0, positions] = np.bincount(destinations, weights, len(positions))
                is_loop = sources == destinations
                counts[1, positions] = np.bincount(destinations, weights * is_loop, len(positions))
                # Of several loops of a node, the last one stays.
                counts[2, positions[destinations[is_loop]]] = weights[is_loop]
            self._degrees = counts
        return self._degrees


class _States:
    """The states of a set of nodes after a layer, in a file without a name."""

    def __init__(self, folder, nodes):
        self.folder, self.nodes = folder, nodes
        self.shape = self.dtype = self.rows = None
        self.count = 0
        with self._explained():
            self.file = tempfile.TemporaryFile(dir=folder)

    @contextlib.contextmanager
    def _explained(self):
        try:
            yield
        except OSError as error:
            raise _grappa.Error(
                f"{os.fspath(self.folder)}: the scratch file of states cannot be written: {error}; give scratch=... a folder "
                "with free space"
            ) from error

    def add(self, batch, rows):
        """Appends the rows of the next nodes of the set."""
        # Written, not mapped: a full disk is an error of the write, but would end the process at an assignment.
        with self._explained():
            self.file.write(memoryview(rows).cast("B"))
        self.shape, self.dtype = rows.shape[1:], rows.dtype
        self.count += len(rows)

    def finish(self):
        import torch

        with self._explained():
            self.file.flush()
        # The mode is for PyTorch, which wants writable arrays. Nothing is written.
        self.rows = torch.from_numpy(np.memmap(self.file, self.dtype, "c", shape=(self.count, *self.shape)))

    def read(self, batches, memory):
        """Yields batches with the states of their nodes.

        States that exceed the memory are read for many batches together, in the order of the file: then each page is read once for
        all of them, and not once per row."""
        import torch

        row_bytes = self.rows[0].nbytes
        if self.rows.nbytes <= memory:
            for batch in batches:
                yield batch, self.rows.index_select(0, torch.from_numpy(self._indices(batch)))
            return
        for window in _windows(batches, row_bytes, memory):
            indices = [self._indices(batch) for batch in window]
            distinct, inverse = np.unique(np.concatenate(indices), return_inverse=True)
            rows = self.rows.index_select(0, torch.from_numpy(distinct))
            ends = np.cumsum([len(of_batch) for of_batch in indices])
            for batch, of_batch in zip(window, np.split(inverse, ends[:-1])):
                yield batch, rows.index_select(0, torch.from_numpy(of_batch))

    def _indices(self, batch):
        positions = batch["positions"]
        return positions if self.nodes is None else np.searchsorted(self.nodes, positions)


def _windows(batches, row_bytes, memory):
    """Lists of successive batches: as many as fit the memory with their rows, but at least one."""
    window, used = [], 0
    for batch in batches:
        size = len(batch["positions"]) * row_bytes + batch["edge_index"].nbytes
        if window and used + size > memory:
            yield window
            window, used = [], 0
        window.append(batch)
        used += size
    if window:
        yield window


class _Result:
    """The rows of the last layer, in memory or in a file that gets its name when it is complete."""

    def __init__(self, out, wanted, order, nodes):
        self.out, self.order = None if out is None else os.fspath(out), order
        self.count = nodes if wanted is None else len(wanted)
        self.rows = None
        self.done = 0
        self.partial = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.partial is not None:
            with contextlib.suppress(OSError):
                os.remove(self.partial)

    def add(self, batch, rows):
        if self.rows is None:
            self.rows = self._create((self.count, *rows.shape[1:]), rows.dtype)
        end = self.done + len(rows)
        # With all nodes, a row is at the number of its node.
        at = batch["n_id"][: len(rows)] if self.order is None else self.order[self.done : end]
        self.rows[at] = rows
        self.done = end

    def _create(self, shape, dtype):
        if self.out is None:
            return np.empty(shape, dtype)
        remedy = "give out= in a folder with free space"
        descriptor, self.partial = create_beside(self.out, remedy)
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        with open(descriptor, "r+b") as file, explained(self.out, remedy):
            np.lib.format.write_array_header_1_0(file, header)
            begin = file.tell()
            # Reserves the space: a full disk is an error here, but would end the process at an assignment.
            os.posix_fallocate(descriptor, 0, begin + dtype.itemsize * math.prod(shape))
            return np.memmap(file, dtype, "r+", begin, shape)

    def finish(self):
        if self.out is None:
            return self.rows
        self.rows.flush()
        with explained(self.out, "give another out="):
            os.replace(self.partial, self.out)
        self.partial = None
        return np.load(self.out, mmap_mode="r")
