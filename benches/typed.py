#!/usr/bin/env python3
"""Batches per second of typed loaders, next to PyTorch Geometric's NeighborLoader on the same graph in memory.

    benches/typed.py --work DIR --edges 20000000

The graph is like OGB-MAG: papers with features, authors, institutions and fields of study, and reverse relations. Degrees have a heavy
tail. It needs a Python with the packages grappa, PyTorch Geometric and pyg-lib or torch-sparse.
"""

import argparse
import statistics
import time
from pathlib import Path

import grappa
import grappa.pyg
import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader

#: Of all edges, the share of each relation; and nodes per edge of all, as in OGB-MAG.
RELATIONS = {
    ("author", "writes", "paper"): 0.34,
    ("paper", "cites", "paper"): 0.26,
    ("author", "affiliated_with", "institution"): 0.05,
    ("paper", "has_topic", "field_of_study"): 0.35,
}
NODES = {"paper": 0.035, "author": 0.054, "institution": 0.0004, "field_of_study": 0.003}


def graph_of(edges, dim, seed=1):
    """A graph with about this number of edges, before reverse relations."""
    random = np.random.default_rng(seed)
    data = HeteroData()
    for name, share in NODES.items():
        data[name].num_nodes = max(int(edges * share), 10)
    data["paper"].x = torch.from_numpy(random.standard_normal((data["paper"].num_nodes, dim), np.float32))
    data["paper"].y = torch.from_numpy(random.integers(0, 349, data["paper"].num_nodes))
    data["paper"].train_mask = torch.from_numpy(random.random(data["paper"].num_nodes) < 0.85)
    for (source, name, destination), share in RELATIONS.items():
        count = int(edges * share)
        ends = []
        for end in (source, destination):
            nodes = data[end].num_nodes
            # The square of a uniform number: the first nodes have most edges.
            ends.append((nodes * random.random(count) ** 2).astype(np.int64))
        edge_index = torch.from_numpy(np.stack(ends))
        data[source, name, destination].edge_index = edge_index
        data[destination, f"rev_{name}", source].edge_index = edge_index.flip(0)
    return data


def seconds_per_batch(loader, batches):
    """The median time of a batch, without the first ones, and the edges of a batch."""
    times, edges, count = [], 0, 0
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    begin = time.perf_counter()
    for batch in iterator:
        times.append(time.perf_counter() - begin)
        edges += sum(batch[edge_type].edge_index.shape[1] for edge_type in batch.edge_types)
        count += 1
        if count == batches:
            break
        begin = time.perf_counter()
    return statistics.mean(times), edges / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the store")
    parser.add_argument("--edges", type=int, default=20_000_000, help="edges with their reverses")
    parser.add_argument("--dim", type=int, default=128, help="values of a paper's features")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="numbers of workers of the peer; the best counts")
    parser.add_argument("--memory", help="budget of our loader")
    options = parser.parse_args()
    data = graph_of(options.edges // 2, options.dim)
    out = options.work / f"typed-{options.edges}-{options.dim}.grappa"
    if not out.exists():
        begin = time.perf_counter()
        grappa.ingest(data, out=out)
        print(f"ingest: {time.perf_counter() - begin:.1f} s, {data.num_edges:,} edges")
    seeds = ("paper", data["paper"].train_mask)
    shared = {"batch_size": options.batch, "shuffle": True}
    ours = grappa.pyg.NeighborLoader(out, options.fanouts, ("paper", "train"), memory=options.memory, **shared)
    peers = {
        f"PyTorch Geometric, {workers} workers": NeighborLoader(
            data, options.fanouts, seeds, num_workers=workers, persistent_workers=workers > 0, **shared
        )
        for workers in options.workers
    }
    results = {}
    for _ in range(options.turns):
        for name, loader in {"Grappa": ours, **peers}.items():
            results.setdefault(name, []).append(seconds_per_batch(loader, options.batches))
    print("| loader | ms per batch | edges of a batch |")
    print("|---|---:|---:|")
    for name, turns in results.items():
        best = min(turns)
        print(f"| {name} | {best[0] * 1e3:.1f} | {best[1]:,.0f} |")
    peer = min(min(turns)[0] for name, turns in results.items() if name != "Grappa")
    print(f"\n{peer / min(results['Grappa'])[0]:.1f} times the best peer")


if __name__ == "__main__":
    main()
