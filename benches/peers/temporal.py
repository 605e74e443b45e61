"""Minibatches of seeds at a time, by a peer.

    temporal.py PEER GRAPH BATCHES THREADS STRATEGY

PEER is `pyg` (which needs pyg-lib) or `graphbolt`. GRAPH is an .npz as `benches/temporal.py` writes it: adjacency lists in the order of
time, and seeds. Prints one JSON object: edges, and the seconds and the processor's seconds of all batches after the first one, without
the start of Python, the imports, and the conversion of the graph.

PyTorch Geometric draws once for a node, GraphBolt and Grappa at each hop, so edges per second are compared, not batches. GraphBolt only
draws: it does not remove the nodes that the tree of a seed has twice, which favors it. It has no strategy `last`.
"""

import json
import sys
import time

import numpy as np
import torch

FANOUT = 10
BATCH = 600


def graphbolt_batches(graph, limit, batches):
    import dgl.graphbolt

    lists = [torch.from_numpy(graph[name]) for name in ("indptr", "indices")]
    times = torch.from_numpy(graph["time"])
    sampled = dgl.graphbolt.fused_csc_sampling_graph(*lists, edge_attributes={"time": times})
    fanout = torch.tensor([FANOUT])
    for seeds in batches:
        edges = 0
        for _ in range(2):
            limits = torch.full((len(seeds),), limit)
            sources = sampled.temporal_sample_neighbors(seeds, limits, fanout, edge_timestamp_attr_name="time").sampled_csc.indices
            edges += len(sources)
            seeds = torch.cat([seeds, sources])
        yield edges


def pyg_batches(graph, limit, batches, strategy):
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    indptr = graph["indptr"]
    targets = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    edges = torch.from_numpy(np.stack([graph["indices"], targets]))
    data = Data(edge_index=edges, time=torch.from_numpy(graph["time"]), num_nodes=len(indptr) - 1)
    seeds = torch.cat(batches)
    loader = NeighborLoader(
        data,
        num_neighbors=[FANOUT, FANOUT],
        input_nodes=seeds,
        input_time=torch.full((len(seeds),), limit),
        time_attr="time",
        temporal_strategy=strategy,
        batch_size=BATCH,
        is_sorted=True,
        filter_per_worker=False,
    )
    for batch in loader:
        yield batch.edge_index.shape[1]


def main():
    peer, path, count, threads, strategy = sys.argv[1:]
    torch.set_num_threads(int(threads))
    graph = np.load(path)
    limit = int(graph["limit"])
    seeds = torch.from_numpy(graph["seeds"])
    batches = [seeds[first : first + BATCH] for first in range(0, BATCH * (1 + int(count)), BATCH)]
    if peer == "pyg":
        sampled = pyg_batches(graph, limit, batches, strategy)
    else:
        sampled = graphbolt_batches(graph, limit, batches)
    next(sampled)
    begin, begin_processor = time.perf_counter(), time.process_time()
    edges = sum(sampled)
    seconds, processor = time.perf_counter() - begin, time.process_time() - begin_processor
    print(json.dumps({"edges": edges, "seconds": seconds, "processor": processor}))


if __name__ == "__main__":
    main()
