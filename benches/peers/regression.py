"""Regression on a synthetic target of neighbors, by grappa-train and by PyTorch Geometric: the same model, on the same data.

    regression.py FOLDER [SEEDS] [SCALE]    needs grappa-train, and pyg-lib or torch-sparse

The graph is R-MAT with 2^SCALE nodes (16), 16 edges each. A node has 16 normal features x. Its target is 100 + 10 tanh(mean over its
in-neighbors u of (a x_u + mean over the in-neighbors t of u of b x_t)) + 5 c x + noise, normal with deviation 2, for fixed vectors a, b and
c; 60/20/20 percent are for training, validation and test. GraphSAGE has 2 layers of 64 without dropout and norms, fanouts are 10, 10,
batches have 1024 nodes (64 of each of 16 partitions), Adam has 0.005, 30 epochs. Targets are standardized. Prints the test RMSE of the epoch that is best for validation,
with all in-neighbors, for each seed.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE

import grappa

FEATURES, HIDDEN, FANOUTS, BATCH, EPOCHS, LR = 16, 64, [10, 10], 1024, 30, 0.005


def made(folder, scale):
    """The store, and the same as arrays."""
    rng = np.random.default_rng(7)
    graph, nodes = grappa.generate("rmat", scale=scale, seed=1, out=folder / "graph.grappa", force=True), 1 << scale
    offsets, sources, *_ = graph.in_edges(slice(None))
    edges = np.stack([sources, np.repeat(np.arange(nodes), np.diff(offsets))], axis=1)
    x = rng.standard_normal((nodes, FEATURES), np.float32)
    a, b, c = rng.standard_normal((3, FEATURES))
    degrees = np.bincount(edges[:, 1], minlength=nodes).clip(min=1)

    def mean(values):
        return np.bincount(edges[:, 1], values[edges[:, 0]], nodes) / degrees

    y = 100 + 10 * np.tanh(mean(x @ a + mean(x @ b))) + 5 * (x @ c) + 2 * rng.standard_normal(nodes)
    y = y.astype(np.float32)
    parts = np.split(rng.permutation(nodes), [6 * nodes // 10, 8 * nodes // 10])
    splits = dict(zip(("train", "val", "test"), map(np.sort, parts), strict=True))
    store = grappa.ingest(edges, nodes=nodes, features=x, labels=y, label_type="float", **splits, out=folder / "y.grappa", force=True)
    return store, torch.from_numpy(edges.T.astype(np.int64)), torch.from_numpy(x), torch.from_numpy(y), splits


def of_grappa(store, folder, seed, **options):
    run = grappa.train(
        store,
        out=folder / "run",
        force=True,
        seed=seed,
        layers=2,
        hidden=HIDDEN,
        fanouts=FANOUTS,
        **{"batch": BATCH, **options},
        epochs=EPOCHS,
        lr=LR,
        dropout=0,
        norm="none",
        evaluate="exact",
    )
    return run.summary["test_rmse"]


def of_pyg(edge_index, x, y, splits, seed):
    torch.manual_seed(seed)
    data = Data(x=x, y=y, edge_index=edge_index)
    loader = NeighborLoader(data, FANOUTS, input_nodes=torch.from_numpy(splits["train"]), batch_size=BATCH, shuffle=True)
    mean, deviation = y[splits["train"]].mean(), y[splits["train"]].std()
    model = GraphSAGE(FEATURES, HIDDEN, 2, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    best = (float("inf"), None)
    for _ in range(EPOCHS):
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size, 0]
            optimizer.zero_grad()
            F.mse_loss(out, (batch.y[: batch.batch_size] - mean) / deviation).backward()
            optimizer.step()
        with torch.no_grad():
            errors = (model(x, edge_index)[:, 0] * deviation + mean - y) ** 2
        val, test = (errors[splits[name]].mean().sqrt().item() for name in ("val", "test"))
        best = min(best, (val, test))
    return best[1]


def main():
    folder, seeds, scale = Path(sys.argv[1]), *(int(value) for value in (sys.argv[2:] + ["3", "16"][len(sys.argv) - 2 :]))
    folder.mkdir(exist_ok=True)
    store, edge_index, x, y, splits = made(folder, scale)
    print("deviation of the target", float(y[splits["test"]].std()))
    for name, rmse in (
        ("PyG", lambda seed: of_pyg(edge_index, x, y, splits, seed)),
        ("grappa-train, first hop sampled", lambda seed: of_grappa(store, folder, seed, first_hop="sampled")),
        ("grappa-train", lambda seed: of_grappa(store, folder, seed)),
        ("grappa-train, 16 partitions", lambda seed: of_grappa(store, folder, seed, partitions=16, batch=BATCH // 16)),
    ):
        found = [rmse(seed) for seed in range(1, seeds + 1)]
        print(f"{name}: {np.mean(found):.3f}: " + ", ".join(f"{value:.3f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
