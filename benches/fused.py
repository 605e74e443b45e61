#!/usr/bin/env python3
"""Seconds of a training step (forward, backward, Adam) of models of PyTorch Geometric: as they are, trimmed by `trim_to_layer`, which
`BasicGNN` has, and fused. All have the same batches, which take turns in one process, and their loader is included in a second figure.

    benches/fused.py --work DIR --scale 20

It needs a Python with the package grappa and PyTorch Geometric.
"""

import argparse
import statistics
import time
from pathlib import Path

import grappa
import grappa.pyg
import torch
from torch_geometric.nn import models

MODELS = {
    "SAGE": (models.GraphSAGE, {}),
    "GCN": (models.GCN, {}),
    "GIN": (models.GIN, {}),
    "GAT, 4 heads": (models.GAT, {"heads": 4}),
    "GATv2, 4 heads": (models.GAT, {"heads": 4, "v2": True}),
}
WAYS = ("stock", "trimmed", "fused")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the generated store")
    parser.add_argument("--scale", type=int, default=20, help="scale of R-MAT, with edge factor 16")
    parser.add_argument("--steps", type=int, default=5, help="steps of each model and way")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    options = parser.parse_args()
    out = options.work / f"fused-{options.scale}.grappa"
    if not out.exists():
        grappa.generate("rmat", scale=options.scale, edge_factor=16, feature_dim=128, classes=16, train_fraction=0.1, out=out)
    store = grappa.open(out)
    loader = grappa.pyg.NeighborLoader(store, options.fanouts, "train", batch_size=1024, shuffle=True)
    print("| model | stock, s | `trim_to_layer`, s | fused, s | stock / fused | trimmed / fused | loader, s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, (kind, more) in MODELS.items():
        contenders = {}
        for way in WAYS:
            torch.manual_seed(0)
            model = kind(store.num_features, 128, num_layers=len(options.fanouts), out_channels=store.num_classes, **more)
            model = grappa.pyg.fuse(model) if way == "fused" else model
            contenders[way] = (model, torch.optim.Adam(model.parameters()))
        seconds, waits = {way: [] for way in WAYS}, []
        batches = iter(loader)
        for turn in range(options.steps + 1):
            begin = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - begin
            hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
            for way, (model, optimizer) in contenders.items():
                begin = time.perf_counter()
                out = model(batch.x, batch.edge_index, **(hops if way == "trimmed" else {}))[: batch.batch_size]
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
                # In the first step, a fused model counts its layers.
                if turn > 0:
                    seconds[way].append(time.perf_counter() - begin)
            if turn > 0:
                waits.append(waited)
        stock, trimmed, fused = (statistics.median(seconds[way]) for way in WAYS)
        print(
            f"| {name} | {stock:.3f} | {trimmed:.3f} | {fused:.3f} | {stock / fused:.1f} | {trimmed / fused:.1f} | "
            f"{statistics.median(waits):.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
