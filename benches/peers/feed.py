"""DGL GraphBolt's minibatches, with features or without.

    feed.py prepare FOLDER                                   make the sampling graph of FOLDER/edges.npy, rows (source, destination)
    feed.py run FOLDER SEEDS BATCHES THREADS FEATURES        sample, and gather, so many batches; prints one JSON object

FEATURES is `none`, `memory`, or `mapped`: FOLDER/features.npy is then mapped with MADV_RANDOM, since read-ahead would read what
nobody wants. The graph is in memory. Fanouts 15, 10, 5, batches of 1024 seeds, without replacement.
"""

import json
import mmap
import sys
import time

import numpy
import torch

FANOUTS, BATCH = [15, 10, 5], 1024


def prepare(folder):
    edges = numpy.load(f"{folder}/edges.npy", mmap_mode="r")
    nodes = numpy.load(f"{folder}/features.npy", mmap_mode="r").shape[0]
    destinations = numpy.ascontiguousarray(edges[:, 1])
    order = numpy.argsort(destinations, kind="stable")
    numpy.save(f"{folder}/indices.npy", edges[:, 0][order].astype(numpy.int32))
    counts = numpy.bincount(destinations, minlength=nodes)
    numpy.save(f"{folder}/indptr.npy", numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int64))


def mapped(path):
    """An array in a file, of which nothing is read ahead."""
    array = numpy.load(path, mmap_mode="r")
    array._mmap.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(array)


def run(folder, seeds, batches, threads, kind):
    import dgl.graphbolt as gb

    torch.set_num_threads(threads)
    graph = gb.fused_csc_sampling_graph(
        torch.from_numpy(numpy.load(f"{folder}/indptr.npy")).to(torch.int32),
        torch.from_numpy(numpy.load(f"{folder}/indices.npy")),
    )
    features = None
    if kind == "mapped":
        features = mapped(f"{folder}/features.npy")
    elif kind == "memory":
        features = torch.from_numpy(numpy.load(f"{folder}/features.npy"))
    seeds = torch.from_numpy(numpy.loadtxt(seeds, dtype=numpy.int32))
    seeds = seeds[torch.randperm(len(seeds), generator=torch.Generator().manual_seed(1))]
    edges = 0
    begin = time.perf_counter()
    for batch in range(batches):
        nodes = seeds[batch * BATCH : (batch + 1) * BATCH]
        for fanout in FANOUTS:
            sampled = graph.sample_neighbors(nodes, torch.LongTensor([fanout]))
            edges += len(sampled.sampled_csc.indices)
            nodes, _ = gb.unique_and_compact_csc_formats(sampled.sampled_csc, nodes)
        if features is not None:
            torch.index_select(features, 0, nodes)
    seconds = time.perf_counter() - begin
    rates = {"batches_per_second": batches / seconds, "sampled_edges_per_second": edges / seconds}
    print(json.dumps({"batches": batches, "seconds": seconds, **rates}))


if sys.argv[1] == "prepare":
    prepare(sys.argv[2])
else:
    run(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
