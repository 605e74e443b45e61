"""Peers' minibatches, with features or without.

    feed.py prepare FOLDER                                          make arrays of FOLDER/edges.npy, rows (source, destination), for `run`
    feed.py check PEER                                              sample a graph of two nodes; prints the versions as a JSON object
    feed.py run PEER FOLDER SEEDS BATCHES THREADS FEATURES          sample, and gather, BATCHES batches; prints one JSON object

PEER is `graphbolt`, `dgl` or `pyg` (which needs pyg-lib or torch-sparse). FEATURES is `none`, `memory`, or `mapped`: FOLDER/features.npy is then
mapped with MADV_RANDOM, since read-ahead would read what nobody wants. The graph is in memory. Fanouts 15, 10, 5 from the seeds outwards,
batches of 1024 seeds, without replacement; nodes are relabelled. Unless features are mapped, three batches come first that are not timed.
"""

import itertools
import json
import mmap
import sys
import time

import numpy
import torch

FANOUTS, BATCH, WARMUP = [15, 10, 5], 1024, 3


def prepare(folder):
    edges = numpy.load(f"{folder}/edges.npy", mmap_mode="r")
    nodes = numpy.load(f"{folder}/features.npy", mmap_mode="r").shape[0]
    destinations = numpy.ascontiguousarray(edges[:, 1])
    order = numpy.argsort(destinations, kind="stable")
    numpy.save(f"{folder}/indices.npy", edges[:, 0][order].astype(numpy.int32))
    counts = numpy.bincount(destinations, minlength=nodes)
    numpy.save(f"{folder}/indptr.npy", numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int64))


def load_features(path, kind):
    """The array in a file; if it is mapped, nothing of it is read ahead."""
    if kind == "none":
        return None
    array = numpy.load(path, mmap_mode="r" if kind == "mapped" else None)
    if kind == "mapped":
        array._mmap.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(array)


def gather(features, nodes):
    if features is not None:
        torch.index_select(features, 0, nodes)


def run_graphbolt(indptr, indices, features, seeds, threads):
    """GraphBolt's graph and operators, without its pipeline of threads."""
    import dgl.graphbolt as gb

    graph = gb.fused_csc_sampling_graph(indptr.to(torch.int32), indices)
    for nodes in itertools.cycle(seeds.to(torch.int32).split(BATCH)):
        edges = 0
        for fanout in FANOUTS:
            sampled = graph.sample_neighbors(nodes, torch.LongTensor([fanout]))
            edges += len(sampled.sampled_csc.indices)
            nodes, _ = gb.unique_and_compact_csc_formats(sampled.sampled_csc, nodes)
        gather(features, nodes)
        yield edges


def run_dgl(indptr, indices, features, seeds, threads):
    """DGL's sampler, without its data loader."""
    import dgl

    dgl.utils.set_num_threads(threads)
    graph = dgl.graph(("csc", (indptr, indices.long(), [])))
    # DGL counts fanouts from the input.
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
    for batch in itertools.cycle(seeds.split(BATCH)):
        nodes, _, blocks = sampler.sample_blocks(graph, batch)
        gather(features, nodes)
        yield sum(block.num_edges() for block in blocks)


def run_pyg(indptr, indices, features, seeds, threads):
    """PyG's neighbor loader, whose sampler has one thread: in this process, or in as many worker processes as there are to be threads."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    destinations = torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())
    data = Data(x=features, edge_index=torch.stack([indices.long(), destinations]), num_nodes=len(indptr) - 1)
    del destinations
    workers = threads if threads > 1 else 0
    loader = NeighborLoader(data, FANOUTS, input_nodes=seeds, batch_size=BATCH, is_sorted=True, num_workers=workers)
    while True:
        yield from (batch.num_edges for batch in loader)


PEERS = {"graphbolt": run_graphbolt, "dgl": run_dgl, "pyg": run_pyg}


def check(peer):
    ring = torch.tensor([1, 0], dtype=torch.int32)
    next(PEERS[peer](torch.tensor([0, 1, 2]), ring, torch.ones(2, 1), torch.tensor([0, 1]), 1))
    module = __import__("torch_geometric" if peer == "pyg" else "dgl")
    print(json.dumps({"version": f"{module.__name__} {module.__version__}, torch {torch.__version__}"}))


def run(peer, folder, seeds, batches, threads, kind):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    indptr, indices = (torch.from_numpy(numpy.load(f"{folder}/{name}.npy")) for name in ["indptr", "indices"])
    seeds = torch.from_numpy(numpy.loadtxt(seeds, dtype=numpy.int64))
    seeds = seeds[torch.randperm(len(seeds), generator=torch.Generator().manual_seed(1))]
    stream = PEERS[peer](indptr, indices, load_features(f"{folder}/features.npy", kind), seeds, threads)
    for _ in range(0 if kind == "mapped" else WARMUP):
        next(stream)
    begin = time.perf_counter()
    edges = sum(itertools.islice(stream, batches))
    seconds = time.perf_counter() - begin
    rates = {"batches_per_second": batches / seconds, "sampled_edges_per_second": edges / seconds}
    print(json.dumps({"batches": batches, "seconds": seconds, **rates}))


def main():
    task, *arguments = sys.argv[1:]
    if task == "run":
        peer, folder, seeds, batches, threads, kind = arguments
        run(peer, folder, seeds, int(batches), int(threads), kind)
    else:
        {"prepare": prepare, "check": check}[task](*arguments)


# Worker processes import this file again where they are not forked.
if __name__ == "__main__":
    main()
