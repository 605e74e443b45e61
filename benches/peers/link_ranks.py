"""Ranks of held-out edges after training with Grappa, in one partition and in 16, and with PyTorch Geometric: the same edges, model and steps.

    link_ranks.py FOLDER SEEDS [PEER...]    PEER is grappa, grappa-messages, grappa-16 or pyg; all of them by default

FOLDER has edges.npy and features.npy. Edges are undirected; 80/10/10 percent of them are for training, validation and test, by seed.
GraphSAGE has 2 layers of 64, fanouts are 10, 10; each of 20 epochs has 50 steps of 1024 edges with one uniform negative destination each;
binary cross-entropy of products, Adam with 0.003. The score is the mean reciprocal rank among 100 uniform destinations that have no edge
from the source, with states from all in-neighbors, at the epoch that is best for validation. `grappa-messages` keeps the edges of a
minibatch among its messages, as PyTorch Geometric's loader does.

Prints a JSON object for each run. `grappa-ingest` and `grappa-train` must be on the PATH.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy

EPOCHS, STEPS, BATCH, HIDDEN, EVERY, CANDIDATES = 20, 50, 1024, 64, 4, 100
OPTIONS = {
    "grappa": ["--batch", BATCH],
    "grappa-messages": ["--batch", BATCH, "--exclude-targets", "none"],
    "grappa-16": ["--batch", BATCH // 16, "--partitions", 16],
}


def split(edges, seed):
    """Undirected edges for training, validation and test; each is in one direction, at random."""
    draws = numpy.random.default_rng(seed)
    pairs = numpy.unique(numpy.sort(edges[edges[:, 0] != edges[:, 1]], axis=1), axis=0)
    pairs = draws.permuted(draws.permutation(pairs), axis=1)
    tenth = len(pairs) // 10
    return pairs[2 * tenth :], pairs[:tenth], pairs[tenth : 2 * tenth]


def programs(*command):
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_grappa(store, seed, peer, scratch):
    run = scratch / f"{peer}.run"
    programs(
        "grappa-train", store, "--task", "link", "--fanouts", "10,10", "--hidden", HIDDEN, "--dropout", 0, "--lr", 0.003, "--seed", seed,
        "--epochs", EPOCHS, "--edges-per-epoch", STEPS * BATCH, "--eval-every", EVERY, "--evaluate", "exact", *OPTIONS[peer], "--out", run, "--force",
    )  # fmt: skip
    return json.loads((run / "summary.json").read_text())


def candidates(sources, known, nodes):
    """Destinations without an edge from each source, [edges, candidates]; `known` are the edges of all parts, ascending, as source * nodes + destination."""
    draws = numpy.random.default_rng(0)
    sources = numpy.repeat(sources, CANDIDATES)
    found = draws.integers(nodes, size=len(sources))
    wrong = numpy.arange(len(sources))
    while wrong.size:
        pairs = sources[wrong] * nodes + found[wrong]
        is_edge = known[numpy.searchsorted(known, pairs).clip(max=len(known) - 1)] == pairs
        wrong = wrong[is_edge | (sources[wrong] == found[wrong])]
        found[wrong] = draws.integers(nodes, size=wrong.size)
    return found.reshape(-1, CANDIDATES)


def mean_reciprocal_rank(z, pairs, others):
    sources = z[pairs[0]]
    ahead = (sources * z[pairs[1]]).sum(1)
    # One candidate of each edge at a time: all of them need gigabytes.
    behind = numpy.stack([(sources * z[column]).sum(1).numpy() for column in others.T], 1)
    ahead = ahead.numpy()[:, None]
    return (1 / (1 + (behind > ahead).sum(1) + (behind == ahead).sum(1) / 2)).mean().item()


def run_pyg(edges, features, parts, seed):
    import torch
    import torch.nn.functional as F
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader
    from torch_geometric.nn import GraphSAGE

    torch.manual_seed(seed)
    training, validation, test = (torch.from_numpy(part.T.copy()) for part in parts)
    x = torch.from_numpy(features.astype(numpy.float32))
    messages = torch.cat([training, training.flip(0)], 1)
    nodes = len(x)
    known = numpy.unique(numpy.concatenate([edges[:, 0] * nodes + edges[:, 1], edges[:, 1] * nodes + edges[:, 0]]))
    model = GraphSAGE(x.shape[1], HIDDEN, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    held_out = [(pairs, candidates(pairs[0].numpy(), known, nodes)) for pairs in (validation, test)]
    best = (0, 0)
    for epoch in range(1, EPOCHS + 1):
        chosen = training[:, torch.randperm(training.shape[1])[: STEPS * BATCH]]
        loader = LinkNeighborLoader(
            Data(x=x, edge_index=messages), [10, 10], chosen, neg_sampling={"mode": "triplet", "amount": 1}, batch_size=BATCH, shuffle=True
        )
        for batch in loader:
            optimizer.zero_grad()
            z = model(batch.x, batch.edge_index)
            sources = z[batch.src_index]
            scores = torch.cat([(sources * z[batch.dst_pos_index]).sum(1), (sources * z[batch.dst_neg_index]).sum(1)])
            labels = torch.arange(len(scores)) < len(sources)
            F.binary_cross_entropy_with_logits(scores, labels.float()).backward()
            optimizer.step()
        if epoch % EVERY == 0:
            with torch.no_grad():
                z = model(x, messages)
                best = max(best, tuple(mean_reciprocal_rank(z, *part) for part in held_out))
    return best


def main():
    folder, seeds, *peers = sys.argv[1:]
    folder = Path(folder)
    edges = numpy.load(folder / "edges.npy")
    features = numpy.load(folder / "features.npy")
    for seed in range(1, int(seeds) + 1):
        parts = split(edges, seed)
        with tempfile.TemporaryDirectory() as scratch:
            scratch = Path(scratch)
            for name, part in zip(("train", "val", "test"), parts):
                numpy.save(scratch / f"{name}.npy", part)
            numpy.save(scratch / "features.npy", features)
            store = scratch / "store.grappa"
            programs(
                "grappa-ingest", "--edges", scratch / "train.npy", "--val-edges", scratch / "val.npy", "--test-edges", scratch / "test.npy",
                "--undirected", "--nodes", len(features), "--features", scratch / "features.npy", "--out", store,
            )  # fmt: skip
            for peer in peers or [*OPTIONS, "pyg"]:
                begin = time.perf_counter()
                if peer == "pyg":
                    result = dict(zip(("validation", "test"), run_pyg(edges, features, parts, seed)))
                else:
                    result = {"summary": run_grappa(store, seed, peer, scratch)}
                print(json.dumps({"peer": peer, "seed": seed, **result, "seconds": time.perf_counter() - begin}), flush=True)


if __name__ == "__main__":
    main()
