#!/usr/bin/env python3
"""Seconds of a training step (forward, backward, Adam) of models of PyTorch Geometric: as they are, trimmed by `trim_to_layer`, and
fused. All have the same batches, which take turns in one process, and the loader is included in a second figure. A second table has
single convolutions on the block of the last hop, forward and backward: PyTorch Geometric's, and with kernels.

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
from grappa.fast_convolutions import convolve_fast
from torch_geometric import nn
from torch_geometric.utils import trim_to_layer

RELATIONS = 8
HEADS = 4


class Chain(torch.nn.Module):
    """Convolutions one after another, with relu between them."""

    def __init__(self, convs, has_relations):
        super().__init__()
        self.convs, self.has_relations = torch.nn.ModuleList(convs), has_relations

    def forward(self, x, edge_index, edge_type, num_sampled_nodes_per_hop=None, num_sampled_edges_per_hop=None):
        for index, conv in enumerate(self.convs):
            if num_sampled_nodes_per_hop is not None:
                hops = (num_sampled_nodes_per_hop, num_sampled_edges_per_hop)
                x, edge_index, edge_type = trim_to_layer(index, *hops, x, edge_index, edge_type)
            x = conv(x, edge_index, edge_type) if self.has_relations else conv(x, edge_index)
            x = x if index + 1 == len(self.convs) else x.relu()
        return x


def chain(first, last, has_relations=False):
    """A function that makes a model of inputs, outputs and layers."""

    def make(inputs, outputs, layers):
        convs = [first(inputs if layer == 0 else 128) for layer in range(layers - 1)]
        return Chain([*convs, last(128, outputs)], has_relations)

    return make


def stock(kind, **options):
    class Stock(kind):
        def forward(self, x, edge_index, edge_type, **hops):
            return super().forward(x, edge_index, **hops)

    return lambda inputs, outputs, layers: Stock(inputs, 128, num_layers=layers, out_channels=outputs, **options)


MODELS = {
    "SAGE": stock(nn.GraphSAGE),
    "GCN": stock(nn.GCN),
    "GIN": stock(nn.GIN),
    f"GAT, {HEADS} heads": stock(nn.GAT, heads=HEADS),
    f"GATv2, {HEADS} heads": stock(nn.GAT, heads=HEADS, v2=True),
    f"transformer, {HEADS} heads": chain(
        lambda inputs: nn.TransformerConv(inputs, 128 // HEADS, heads=HEADS),
        lambda inputs, outputs: nn.TransformerConv(inputs, outputs, heads=HEADS, concat=False),
    ),
    f"RGCN, {RELATIONS} relations": chain(
        lambda inputs: nn.RGCNConv(inputs, 128, RELATIONS), lambda inputs, outputs: nn.RGCNConv(inputs, outputs, RELATIONS), True
    ),
}
CONVOLUTIONS = {
    "`GATConv`, 4 heads of 32": lambda: nn.GATConv(128, 32, heads=4),
    "`GATConv`, 1 head of 128": lambda: nn.GATConv(128, 128),
    "`GATv2Conv`, 4 heads of 32": lambda: nn.GATv2Conv(128, 32, heads=4),
    "`GATv2Conv`, 1 head of 128": lambda: nn.GATv2Conv(128, 128),
    "`TransformerConv`, 4 heads of 32": lambda: nn.TransformerConv(128, 32, heads=4),
    "`TransformerConv`, 1 head of 128": lambda: nn.TransformerConv(128, 128),
    "`RGCNConv`, 8 relations": lambda: nn.RGCNConv(128, 128, RELATIONS),
    "`RGCNConv`, 8 relations, 4 bases": lambda: nn.RGCNConv(128, 128, RELATIONS, num_bases=4),
    "`FastRGCNConv`, 8 relations": lambda: nn.FastRGCNConv(128, 128, RELATIONS),
}
WAYS = ("stock", "trimmed", "fused")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the generated store")
    parser.add_argument("--scale", type=int, default=20, help="scale of R-MAT, with edge factor 16")
    parser.add_argument("--steps", type=int, default=5, help="steps of each model and way")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--models", nargs="*", default=[], help="words of the names of models; all without")
    options = parser.parse_args()
    out = options.work / f"fused-{options.scale}.grappa"
    if not out.exists():
        grappa.generate("rmat", scale=options.scale, edge_factor=16, feature_dim=128, classes=16, train_fraction=0.1, out=out)
    store = grappa.open(out)
    loader = grappa.pyg.NeighborLoader(store, options.fanouts, "train", batch_size=1024, shuffle=True)
    compare_models(store, loader, options)
    compare_convolutions(next(iter(loader)), options)


def compare_models(store, loader, options):
    print("| model | stock, s | `trim_to_layer`, s | fused, s | stock / fused | trimmed / fused | loader, s |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, make in MODELS.items():
        if not all(word in name for word in options.models):
            continue
        contenders = {}
        for way in WAYS:
            torch.manual_seed(0)
            model = make(store.num_features, store.num_classes, len(options.fanouts))
            model = grappa.pyg.fuse(model) if way == "fused" else model
            contenders[way] = (model, torch.optim.Adam(model.parameters()))
        seconds, waits = {way: [] for way in WAYS}, []
        batches = iter(loader)
        for turn in range(options.steps + 1):
            begin = time.perf_counter()
            batch = next(batches)
            waited = time.perf_counter() - begin
            edge_type = relations(batch)
            hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
            for way, (model, optimizer) in contenders.items():
                begin = time.perf_counter()
                out = model(batch.x, batch.edge_index, edge_type, **(hops if way == "trimmed" else {}))[: batch.batch_size]
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


def relations(batch):
    """A relation for each edge, which follows from its ends."""
    sources, destinations = batch.n_id[batch.edge_index]
    return (sources * 7 + destinations) % RELATIONS


def compare_convolutions(batch, options):
    destinations = len(batch.x) - batch.num_sampled_nodes[-1]
    print(f"\n{len(batch.x)} sources, {destinations} destinations, {batch.edge_index.shape[1]} edges\n")
    print("| convolution | forward: PyG, ms | kernels, ms | ratio | backward: PyG, ms | kernels, ms | ratio | of sources too: PyG, ms | kernels, ms | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, make in CONVOLUTIONS.items():
        torch.manual_seed(0)
        conv = make()
        edge_type = (relations(batch),) if "RGCN" in name else ()
        cells = []
        times = [[convolution_times(one, batch, destinations, edge_type, grad, options.steps) for one in (conv, lambda *args: convolve_fast(conv, *args))] for grad in (False, True)]
        for pyg, kernels in ((times[0][0][0], times[0][1][0]), (times[0][0][1], times[0][1][1]), (times[1][0][1], times[1][1][1])):
            cells += [f"{1e3 * pyg:.1f}", f"{1e3 * kernels:.1f}", f"{pyg / kernels:.1f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def convolution_times(conv, batch, destinations, edge_type, needs_gradient, steps):
    """Median seconds of the forward and of the backward pass; the gradient of rows if it is needed."""
    forward, backward = [], []
    for _ in range(steps):
        x = batch.x.detach().requires_grad_(needs_gradient)
        begin = time.perf_counter()
        out = conv((x, x[:destinations]), batch.edge_index, *edge_type)
        middle = time.perf_counter()
        out.backward(torch.ones_like(out))
        forward.append(middle - begin)
        backward.append(time.perf_counter() - middle)
    return statistics.median(forward), statistics.median(backward)


if __name__ == "__main__":
    main()
