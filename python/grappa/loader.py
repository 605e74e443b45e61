"""Minibatches of sampled neighborhoods."""

import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _grappa
from .partitions import partition_options
from .store import Store, _numbers

UNITS = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


@dataclass
class Batch:
    """A minibatch. Arrays are NumPy arrays of memory that the loader wrote once; they stay valid while they are used.

    Nodes are numbered within the batch: seeds first, then the nodes that each hop reached first. A node draws in-neighbors once.
    """

    #: The nodes of the batch in the store: shape (n,), int64.
    n_id: np.ndarray
    #: Sources and destinations, numbered within the batch, hop by hop: shape (2, e), int64.
    edge_index: np.ndarray
    #: The number of seeds, which are the first nodes.
    batch_size: int
    #: The position of each seed in `input_nodes`: shape (batch_size,), int64.
    input_id: np.ndarray
    #: The number of seeds, then the number of nodes that each hop reached first.
    num_sampled_nodes: list
    #: The number of edges of each hop.
    num_sampled_edges: list
    #: The factor for the mean loss of the seeds. With it, all seeds of an epoch count alike, also where processes average gradients.
    loss_weight: float
    #: Feature rows: shape (n, num_features), float32. None if the store has no features.
    x: np.ndarray | None = field(default=None, repr=False)
    #: Labels of the seeds, or of all nodes with ``labels="all"``. None if the store has no labels.
    y: np.ndarray | None = field(default=None, repr=False)


class NeighborLoader:
    """Samples neighborhoods of seed nodes, and reads their features, on threads of its own.

    Args:
        store: A `Store`, or the path of one.
        num_neighbors: The maximum number of in-neighbors that a node draws at each hop, from the seeds outwards; -1 takes all.
        batch_size: The maximum number of seeds of a batch. Seeds are divided evenly among batches.
        input_nodes: The seeds: the name of a split, node numbers, a mask over all nodes, or None for all nodes.
        memory: The budget for adjacency lists, features and buffers, in bytes or like ``"4GiB"``. Default: half of the free memory.
        shuffle: Whether each epoch has the seeds in another order.
        replace: Whether to draw with replacement.
        seed: Seed of all random choices. The same seed and epoch give the same batches.
        threads: Number of threads. Default: one per processor.
        labels: ``"seeds"``, or ``"all"`` for the labels of all nodes of a batch.
        num_workers: Must be 0. Threads of the loader sample, and no other process is needed.
        partitions: Number of partitions of the graph, each of which sees its own part only. Default: none, the whole graph.
        rank: The number of this process, of those that divide the partitions. Default: as `torch.distributed` is initialized, or 0.
        world_size: The number of these processes. Default: as `torch.distributed` is initialized, or 1.
        repartition_every: Number of epochs between two repartitionings. Default: 5.
        halo: How sources are treated that a partition does not own. ``"auto"`` and ``"neighbors"`` sample in-neighbors of theirs
            at each repartitioning, ``"stop"`` takes their features and nothing else, ``"none"`` leaves them out.
        halo_neighbors: The maximum number of sampled in-neighbors of such a source. Default: 25.

    With partitions, `batch_size` is the maximum number of seeds of each partition in a step. A batch has the seeds of all
    partitions of this process in a step. Every process has a batch in every step.

    Raises:
        ValueError: An argument is impossible.
        grappa.Error: The memory is too small, or the store is damaged.

    Example:
        >>> loader = grappa.NeighborLoader(store, [10, 5], batch_size=64, seed=7)
        >>> batch = next(iter(loader))
        >>> batch.x.shape[0] == len(batch.n_id), batch.edge_index.shape[0]
        (True, 2)
    """

    def __init__(
        self,
        store,
        num_neighbors,
        batch_size=1,
        input_nodes="train",
        *,
        memory=None,
        shuffle=True,
        replace=False,
        seed=0,
        threads=None,
        labels="seeds",
        num_workers=0,
        partitions=None,
        rank=None,
        world_size=None,
        repartition_every=None,
        halo="auto",
        halo_neighbors=None,
    ):
        if num_workers:
            raise ValueError(
                f"num_workers={num_workers}: threads of the loader sample, and no other process is needed; leave it out, or "
                "give threads=..."
            )
        if labels not in ("seeds", "all"):
            raise ValueError(f'labels={labels!r}; give "seeds" or "all"')
        of_partitions = partition_options(partitions, rank, world_size, repartition_every, halo, halo_neighbors)
        self.store = store if isinstance(store, Store) else Store(store)
        self._options = {
            "num_neighbors": list(num_neighbors),
            "batch_size": int(batch_size),
            "input_nodes": input_nodes,
            "memory": memory,
            "shuffle": bool(shuffle),
            "replace": bool(replace),
            "seed": int(seed),
            "threads": threads,
            "labels": labels,
            "partitions": partitions,
            "rank": None if partitions is None else of_partitions["rank"],
            "world_size": None if partitions is None else of_partitions["world_size"],
            "repartition_every": repartition_every,
            "halo": halo,
            "halo_neighbors": halo_neighbors,
        }
        self._epoch = 0
        self._loader = _grappa.Loader(
            self.store._store,
            self._options["num_neighbors"],
            self._options["batch_size"],
            self._seeds(input_nodes),
            memory=_bytes(memory),
            threads=threads,
            shuffle=self._options["shuffle"],
            replace=self._options["replace"],
            seed=self._options["seed"],
            labels_all=labels == "all",
            partitions=of_partitions,
        )
        # Threads end before the interpreter does.
        weakref.finalize(self, self._loader.close)

    def _seeds(self, input_nodes):
        if input_nodes is None:
            return None
        if isinstance(input_nodes, str):
            return self.store.split(input_nodes).tolist()
        return _numbers(input_nodes, self.store.num_nodes)

    def __len__(self):
        """Number of batches of an epoch."""
        return len(self._loader)

    def set_epoch(self, epoch):
        """The next iteration is epoch `epoch`. Otherwise epochs count from 0."""
        self._epoch = int(epoch)

    def __iter__(self):
        batches = self._loader.epoch(self._epoch)
        self._epoch += 1
        return map(self._batch, batches)

    def _batch(self, arrays):
        counts = ("batch_size", "num_sampled_nodes", "num_sampled_edges", "loss_weight")
        fields: dict[str, Any] = {name: value if name in counts else np.asarray(value) for name, value in arrays.items()}
        return Batch(**fields)

    def __reduce__(self):
        options = {name: value for name, value in self._options.items() if name != "num_neighbors"}
        return _reopened, (type(self), self.store.path, self._options["num_neighbors"], options, self._epoch)


def _reopened(kind, path, num_neighbors, options, epoch):
    loader = kind(path, num_neighbors, **options)
    loader.set_epoch(epoch)
    return loader


def _bytes(memory):
    """Bytes from a number, or a text like ``4GiB``."""
    if memory is None or isinstance(memory, int):
        return memory
    text = str(memory).strip()
    number = text.rstrip("BKMGTibkmgt")
    unit = text[len(number) :].strip().upper()
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError):
        raise ValueError(f'memory={memory!r}: give bytes, or a text like "512MiB" or "4GiB"') from None
