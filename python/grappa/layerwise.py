"""Whole-graph inference, layer by layer: each state of a node is computed once, and states are on disk."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _grappa
from .graph import Graph
from .layers import LayerBatch, TypedLayerBatch
from .loader import _bytes
from .neighborhoods import NODE, GraphReader, Neighborhood, Reader, StoreReader
from .store import Store
from .temporary import create_beside, explained
from .typed import seed_groups, typed_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from .embedding import Embedding

#: The states that are read together, and the pass that counts in-degrees, take up to 1/SHARE of the memory each.
SHARE = 4


def inference(
    store: Store | Graph | str | os.PathLike[str],
    model: torch.nn.Module,
    layers: Sequence[Callable[..., Any]] | None = None,
    *,
    nodes: Any = None,
    out: str | os.PathLike | None = None,
    batch_size: int = 1024,
    memory: int | str | None = None,
    scratch: str | os.PathLike | None = None,
    threads: int | None = None,
    edge_weights: bool | None = None,
    embeddings: Embedding | Sequence[Embedding] | None = None,
) -> np.ndarray:
    """Computes a model's outputs with all in-neighbors of each node, out of core.

    Each layer is computed for all nodes that the outputs depend on before the next layer begins. States of a layer are in a scratch
    file that has no name and goes away with the process. The model is in evaluation mode meanwhile.

    Args:
        store: A `Store` with features, or a `Graph`, or the path of one.
        model: A `torch.nn.Module`. Batches go to the device of its parameters.
        layers: The layers in order. Each is a convolution of PyTorch Geometric, or a function of ``(x, batch)``: ``x`` has the rows
            of sources and the rows of destinations, ``batch`` is a `LayerBatch`, and it returns a row per destination. Not needed
            for models like `torch_geometric.nn.GraphSAGE`. Of a graph with types, a layer is a ``HeteroConv``, or a function of
            ``(x, batch)``: ``x`` has the rows of each type, with destinations first, ``batch`` is a `TypedLayerBatch`, and it returns
            a row for each destination, or a dict with rows of the type of destinations.
        nodes: The nodes to compute: node numbers, a mask over all nodes, the name of a split, or None for all nodes. Of a graph with
            types: a type, or a pair of a type and its nodes.
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
        embeddings: As for the loader of the training: the first layer gets the rows of these `grappa.Embedding` after the features of their
            nodes, or without them.

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

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model is a {type(model).__name__}; give a torch.nn.Module, and its layers as layers=[...]")
    graph = typed_graph(store)
    if graph is not None:
        path, relations = graph.path, [graph[edge_type] for edge_type in graph.edge_types]
        reader: Reader = GraphReader(graph, batch_size, threads)
        node_type, nodes = _type_and_nodes(graph, nodes)
        has_weights = any(relation.has_edge_weights for relation in relations)
        has_edge_features = any(relation.num_edge_features for relation in relations)
    else:
        opened = store if isinstance(store, Store) else Store(store)  # type: ignore[arg-type]
        path, node_type, reader = opened.path, NODE, StoreReader(opened, batch_size, threads)
        if opened.num_features == 0 and embeddings is None:
            raise ValueError(f"{path} has no features; ingest with features=..., or give embeddings=...")
        has_weights, has_edge_features = opened.has_edge_weights, opened.num_edge_features > 0
    if edge_weights is None and has_weights:
        raise ValueError(
            f"{path} has edge weights; give edge_weights=True if the model was trained with them, or edge_weights=False"
        )
    if edge_weights and not has_weights:
        raise ValueError(f"edge_weights=True: {path} has no edge weights; ingest with weights=..., or leave edge_weights out")
    if has_edge_features:
        warnings.warn(f"{path} has edge features, and inference does not pass them to layers", stacklevel=2)
    layers = _layers(model, layers, graph)
    folder = os.path.dirname(os.path.abspath(path if out is None else out))
    scratch = folder if scratch is None else scratch
    rows = None
    if embeddings is not None:
        from .batch_rows import BatchRows

        rows = BatchRows(embeddings, path, list(reader.sizes))
    run = _Run(reader, _bytes(memory) or _grappa.default_memory(), scratch, bool(edge_weights), rows)
    wanted, order = (None, None) if nodes is None else reader.positions(node_type, nodes)
    with _evaluating(torch, model) as device, _Result(out, wanted, order, reader.sizes[node_type]) as result:
        run.compute(layers, node_type, wanted, device, result)
        return result.finish()


def _type_and_nodes(graph, nodes):
    """The type of the outputs, and its nodes."""
    if nodes is None or isinstance(nodes, tuple) and not (len(nodes) == 2 and isinstance(nodes[0], str)):
        raise TypeError(
            f"nodes={nodes!r}: the graph has the node types {graph.node_types}; name the type of the outputs, such as "
            f"nodes={graph.node_types[0]!r}, or give a pair of a type and its nodes"
        )
    groups = seed_groups(nodes, graph)
    if len(groups) != 1:
        raise ValueError("nodes has several types; call inference once for each of them")
    return groups[0]


def _layers(model, layers, graph):
    """The layers as functions of (x, batch)."""
    if layers is None:
        if "torch_geometric" not in sys.modules or graph is not None:
            raise ValueError("layers is missing; give the layers of the model as functions of (x, batch): layers=[...]")
        from .convolutions import layers_of

        return layers_of(model)
    if len(layers) == 0:
        raise ValueError("layers is empty; give at least one layer")
    if "torch_geometric" not in sys.modules:
        return list(layers)
    from torch_geometric.nn import HeteroConv, MessagePassing

    from .convolutions import convolve, convolve_types

    functions = {HeteroConv: convolve_types, MessagePassing: convolve}
    kind = HeteroConv if graph is not None else MessagePassing
    return [functools.partial(functions[kind], item) if isinstance(item, kind) else item for item in layers]


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

    Sets of nodes are ascending positions in the store of their type, or None for all nodes: adjacency lists are read front to back, and
    rows of states are written in this order.
    """

    def __init__(self, reader, memory, scratch, edge_weights, rows):
        self.reader, self.memory, self.scratch, self.edge_weights = reader, memory, scratch, edge_weights
        #: The rows of embeddings. None without embeddings.
        self.embedding_rows = rows
        #: The inputs of the first layer, of each type.
        self.inputs = {}
        self._degrees = None

    def read(self, node_type, nodes, *, memory=None, features=False, edge_weights=False):
        """Some nodes with all their in-neighbors."""
        return self.reader.neighborhoods(node_type, nodes, memory or self.memory, features, edge_weights)

    def with_sources(self, sets) -> dict[str, np.ndarray | None]:
        """Sets of nodes of each type, and all their in-neighbors."""
        sizes = self.reader.sizes
        if all(sets.get(name, ()) is None for name in sizes):
            return sets
        members = {name: np.zeros(count, bool) for name, count in sizes.items()}
        for node_type, nodes in sets.items():
            members[node_type][slice(None) if nodes is None else nodes] = True
            for neighborhood in self.read(node_type, nodes):
                for name, of_type in neighborhood.nodes.items():
                    members[name][of_type["positions"]] = True
        # A type without members has no states.
        members = {name: is_member for name, is_member in members.items() if is_member.any()}
        return {name: None if is_member.all() else np.flatnonzero(is_member) for name, is_member in members.items()}

    def compute(self, layers, node_type, wanted, device, result):
        """Computes all layers. `result` gets the rows of the last layer."""
        sets = [{node_type: wanted}]
        for _ in layers[1:]:
            sets.insert(0, self.with_sources(sets[0]))
        self.inputs = sets[0]
        states: dict[str, _States] = {}
        for index, (layer, destinations) in enumerate(zip(layers, sets)):
            is_last, sinks = index + 1 == len(layers), {}
            for name, nodes in destinations.items():
                sink = result if is_last else _States(self.scratch, nodes)
                if index == 0:
                    read = self.read(name, nodes, features=True, edge_weights=self.edge_weights)
                    batches = ((batch, self.inputs_of(batch)) for batch in read)
                else:
                    batches = _with_states(states, self.read(name, nodes, edge_weights=self.edge_weights), self.memory // SHARE)
                for batch, x in batches:
                    rows = self.rows(layer, f"layer {index}", batch, x, device)
                    if rows is None and is_last:
                        raise ValueError(f"layer {index} returned no rows of the type {name!r}, which nodes= asks for")
                    if rows is None:
                        break
                    sink.add(batch.nodes[name]["n_id"], rows)
                else:
                    if not is_last:
                        sink.finish()
                        sinks[name] = sink
            states = sinks

    def inputs_of(self, batch) -> dict[str, Any]:
        """The inputs of the first layer: features, rows of embeddings, or both."""
        inputs = {name: part["x"] for name, part in batch.nodes.items() if "x" in part}
        return inputs if self.embedding_rows is None else self.embedding_rows.inputs(inputs, batch.nodes)

    def rows(self, layer, name, batch, x, device) -> np.ndarray | None:
        """What a layer returns for a neighborhood. None if it returns a dict without the destinations' type, to which no relation may lead."""
        import torch

        size, node_type = batch.batch_size, batch.node_type
        x = {other: torch.as_tensor(rows).to(device) for other, rows in x.items()}
        if isinstance(self.reader, StoreReader):
            rows = layer((x[NODE], x[NODE][:size]), self._layer_batch(batch, device))
        else:
            rows = layer(x, TypedLayerBatch.from_neighborhood(batch, device))
            if isinstance(rows, dict):
                if node_type not in rows:
                    return None
                rows = rows[node_type][:size]
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

    def _layer_batch(self, batch, device) -> LayerBatch:
        import torch

        entries = batch.nodes[NODE]

        def tensor(name):
            return torch.from_numpy(entries[name]).to(device)

        def degrees():
            counts = self.degrees()[:, entries["positions"]]
            return tuple(torch.from_numpy(counts).to(device))

        weights = tensor("edge_weight") if self.edge_weights else None
        return LayerBatch(tensor("edge_index"), tensor("n_id"), batch.batch_size, weights, degrees)

    def degrees(self) -> np.ndarray:
        """The in-degrees and the numbers of self-loops of all nodes of a store that a layer can meet, or the sums of their weights, and
        the weight of the last self-loop, by position: shape (3, N)."""
        if self._degrees is None:
            counts = np.zeros((3, self.reader.sizes[NODE]), np.float32)
            counts[2] = np.nan
            nodes, memory = self.with_sources(self.inputs)[NODE], self.memory // SHARE
            for batch in self.read(NODE, nodes, memory=memory, edge_weights=self.edge_weights):
                entries = batch.nodes[NODE]
                sources, destinations = entries["edge_index"]
                positions = entries["positions"][: batch.batch_size]
                weights = entries["edge_weight"] if self.edge_weights else np.ones(len(sources), np.float32)
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

    def add(self, numbers, rows):
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

    def row_bytes(self) -> int:
        return self.rows[0].nbytes

    def indices(self, of_type):
        """Where the rows of the nodes of a type are."""
        positions = of_type["positions"]
        return positions if self.nodes is None else np.searchsorted(self.nodes, positions)


def _with_states(states, batches, memory):
    """Yields neighborhoods with the states of their nodes, of each type that has any.

    States that exceed the memory are read for many batches together, in the order of the file: then each page is read once for
    all of them, and not once per row."""
    import torch

    if sum(of_type.rows.nbytes for of_type in states.values()) <= memory:
        for batch in batches:
            yield batch, {
                name: of_type.rows.index_select(0, torch.from_numpy(of_type.indices(batch.nodes[name])))
                for name, of_type in states.items()
            }
        return
    for window in _windows(batches, {name: of_type.row_bytes() for name, of_type in states.items()}, memory):
        read: list[dict[str, Any]] = [{} for _ in window]
        for name, of_type in states.items():
            indices = [of_type.indices(batch.nodes[name]) for batch in window]
            distinct, inverse = np.unique(np.concatenate(indices), return_inverse=True)
            rows = of_type.rows.index_select(0, torch.from_numpy(distinct))
            ends = np.cumsum([len(of_batch) for of_batch in indices])
            for x, of_batch in zip(read, np.split(inverse, ends[:-1]), strict=True):
                x[name] = (rows, of_batch)
        for batch, x in zip(window, read, strict=True):
            yield batch, {name: rows.index_select(0, torch.from_numpy(of_batch)) for name, (rows, of_batch) in x.items()}


def _windows(batches, row_bytes, memory):
    """Lists of successive neighborhoods: as many as fit the memory with their rows, but at least one."""
    window, used = [], 0
    for batch in batches:
        size = batch.edge_bytes + sum(len(batch.nodes[name]["positions"]) * each for name, each in row_bytes.items())
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

    def add(self, numbers, rows):
        if self.rows is None:
            self.rows = self._create((self.count, *rows.shape[1:]), rows.dtype)
        end = self.done + len(rows)
        # With all nodes, a row is at the number of its node.
        at = numbers[: len(rows)] if self.order is None else self.order[self.done : end]
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
