#!/usr/bin/env python3
"""Test accuracy of models of a graph with types: PyTorch Geometric, Grappa on the whole graph, and Grappa in partitions.

    benches/typed_models.py dblp.grappa --work DIR --target author

All contenders train with the splits of the graph and the same options, and report the test accuracy at the best validation accuracy, by
exact inference. PyTorch Geometric's layers are HeteroConv of SAGEConv or GATConv, RGCNConv and HGTConv; its minibatches are of its
NeighborLoader. It needs a Python with the packages grappa, PyTorch Geometric and pyg-lib or torch-sparse.
"""

import argparse
import shutil
import statistics
from pathlib import Path

import grappa
import numpy as np
import torch
from torch.nn.functional import cross_entropy, dropout
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GATConv, HeteroConv, HGTConv, RGCNConv, SAGEConv

#: Options that all contenders share. A step has STEP_NODES training nodes, of all partitions.
HIDDEN, HEADS, FANOUTS, DROPOUT, LEARNING_RATE, STEP_NODES = 64, 4, [10, 10], 0.5, 0.003, 256
MODELS = ("rsage", "rgcn", "rgat", "hgt")


def read(graph, target):
    """The graph as PyTorch Geometric's HeteroData."""
    data = HeteroData()
    types, relations = graph.metadata()
    for name in types:
        data[name].x = torch.from_numpy(graph[name].features[:])
    for relation in relations:
        data[relation].edge_index = torch.from_numpy(np.asarray(graph.edge_split(relation, "train")))
    data[target].y = torch.from_numpy(graph[target].labels[:]).long()
    return data


class Model(torch.nn.Module):
    """Two layers. R-GCN and HGT take the features of each type after a linear layer, and HGT makes logits with another one."""

    def __init__(self, kind, data, target, classes):
        super().__init__()
        self.kind, self.target = kind, target
        types, self.relations = data.metadata()
        widths = [HIDDEN, classes]
        if kind in ("rgcn", "hgt"):
            self.first = torch.nn.ModuleDict({name: torch.nn.Linear(data[name].num_features, HIDDEN) for name in types})
        if kind == "rgcn":
            self.layers = torch.nn.ModuleList([RGCNConv(HIDDEN, width, len(self.relations)) for width in widths])
        elif kind == "hgt":
            self.layers = torch.nn.ModuleList([HGTConv(HIDDEN, HIDDEN, data.metadata(), HEADS) for _ in widths])
            self.last = torch.nn.Linear(HIDDEN, classes)
        else:
            self.layers = torch.nn.ModuleList([self.by_relation(last, width) for last, width in enumerate(widths)])

    def by_relation(self, last, width):
        def convolution():
            if self.kind == "rsage":
                return SAGEConv((-1, -1), width)
            return GATConv((-1, -1), width if last else width // HEADS, HEADS, concat=not last, add_self_loops=False)

        return HeteroConv({relation: convolution() for relation in self.relations}, aggr="sum")

    def forward(self, x, edges):
        if self.kind in ("rgcn", "hgt"):
            x = {name: self.first[name](rows) for name, rows in x.items()}
        if self.kind == "rgcn":
            return self.of_rgcn(x, edges)
        if self.kind == "hgt":
            x = {name: rows.relu() for name, rows in x.items()}
        for number, layer in enumerate(self.layers):
            x = layer(x, edges)
            if number == 0:
                x = {name: dropout(rows if self.kind == "hgt" else rows.relu(), DROPOUT, self.training) for name, rows in x.items()}
        return self.last(x[self.target]) if self.kind == "hgt" else x[self.target]

    def of_rgcn(self, x, edges):
        """All nodes in one matrix, and all edges with their relations."""
        starts, start = {}, 0
        for name, rows in x.items():
            starts[name], start = start, start + len(rows)
        rows, ends, numbers = torch.cat(list(x.values())), [], []
        for number, relation in enumerate(self.relations):
            ends.append(edges[relation] + torch.tensor([[starts[relation[0]]], [starts[relation[2]]]]))
            numbers.append(torch.full((edges[relation].shape[1],), number))
        ends, numbers = torch.cat(ends, 1), torch.cat(numbers)
        rows = dropout(self.layers[0](rows, ends, numbers).relu(), DROPOUT, self.training)
        out = self.layers[1](rows, ends, numbers)
        return out[starts[self.target] : starts[self.target] + len(x[self.target])]


def train_pyg(kind, data, graph, target, seed, epochs):
    """The test accuracy of the epoch with the best validation accuracy."""
    torch.manual_seed(seed)
    splits = {name: torch.from_numpy(graph[target].split(name)) for name in ("train", "val", "test")}
    loader = NeighborLoader(data, FANOUTS, (target, splits["train"]), batch_size=STEP_NODES, shuffle=True)
    model = Model(kind, data, target, graph[target].num_classes)
    with torch.no_grad():
        model(data.x_dict, data.edge_index_dict)
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
    best = (-1.0, 0.0)
    for _ in range(epochs):
        model.train()
        for batch in loader:
            optimizer.zero_grad()
            seeds = batch[target].batch_size
            cross_entropy(model(batch.x_dict, batch.edge_index_dict)[:seeds], batch[target].y[:seeds]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(data.x_dict, data.edge_index_dict).argmax(1) == data[target].y
        val, test = (right[splits[name]].float().mean().item() for name in ("val", "test"))
        best = max(best, (val, test), key=lambda scores: scores[0])
    return best[1]


def train_grappa(kind, graph, target, seed, epochs, partitions, folder):
    batch = STEP_NODES // partitions
    options = {"hidden": HIDDEN, "heads": HEADS, "fanouts": FANOUTS, "dropout": DROPOUT, "lr": LEARNING_RATE, "batch": batch}
    if kind in ("rsage", "rgcn"):
        del options["heads"]
    more = {"epochs": epochs, "eval_every": 1, "partitions": partitions, "seed": seed, "target": target, "force": True}
    run = grappa.train(graph, out=folder / "run", model=kind, evaluate="exact", **options, **more)
    return run.summary["test_accuracy"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for runs")
    parser.add_argument("--target", required=True, help="the node type with labels")
    parser.add_argument("--models", type=lambda text: text.split(","), default=MODELS)
    parser.add_argument("--seeds", type=int, default=3, help="runs of each contender")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--partitions", type=int, default=16)
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    graph = grappa.Graph(arguments.graph)
    data = read(graph, arguments.target)
    print(f"| model | PyTorch Geometric | Grappa, whole graph | Grappa, {arguments.partitions} partitions |")
    print("|---|---:|---:|---:|")
    for kind in arguments.models:
        rows = []
        for seed in range(1, arguments.seeds + 1):
            fixed = (graph, arguments.target, seed, arguments.epochs)
            by_partitions = [train_grappa(kind, *fixed, count, arguments.work) for count in (1, arguments.partitions)]
            rows.append([train_pyg(kind, data, *fixed), *by_partitions])
        shown = [f"{100 * statistics.mean(scores):.2f} ± {100 * statistics.stdev(scores):.2f}" for scores in zip(*rows)]
        print(f"| {kind} | {' | '.join(shown)} |", flush=True)
    shutil.rmtree(arguments.work / "run")


if __name__ == "__main__":
    main()
