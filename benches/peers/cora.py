"""PyTorch Geometric's accuracy on Cora with its published settings, for the presets `pyg-cora-gcn`, `pyg-cora-sage` and `pyg-cora-gat`.

    cora.py tests/data/cora MODEL SEEDS

MODEL is gcn, sage or gat. As in PyTorch Geometric's examples gcn.py and gat.py: the whole graph in each step, 200 epochs, and the test
accuracy at the first epoch with the best validation accuracy. `sage` is gcn.py with SAGEConv. It prints a line for each seed, and the mean
with the standard deviation. Needs torch, torch_geometric and numpy.
"""

import statistics
import sys

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric import nn as pyg


def load(folder):
    sparse = numpy.load(f"{folder}/features.npz")
    x = numpy.zeros(sparse["shape"], numpy.float32)
    rows = numpy.repeat(numpy.arange(len(x)), numpy.diff(sparse["indptr"]))
    x[rows, sparse["indices"]] = sparse["data"]
    x /= numpy.maximum(x.sum(1, keepdims=True), 1)  # NormalizeFeatures
    edges = numpy.loadtxt(f"{folder}/edges.tsv", dtype=numpy.int64).T
    edges = numpy.ascontiguousarray(numpy.concatenate([edges, edges[::-1]], 1))
    split = [numpy.load(f"{folder}/{name}.npy") for name in ("labels", "train", "val", "test")]
    return [torch.from_numpy(array) for array in (x, edges, *split)]


class Model(nn.Module):
    def __init__(self, model, inputs, classes):
        super().__init__()
        if model == "gat":
            self.dropout, self.activation = 0.6, F.elu
            self.first = pyg.GATConv(inputs, 8, heads=8, dropout=0.6)
            self.second = pyg.GATConv(64, classes, heads=1, concat=False, dropout=0.6)
        else:
            self.dropout, self.activation = 0.5, F.relu
            convolution = {"gcn": pyg.GCNConv, "sage": pyg.SAGEConv}[model]
            self.first, self.second = convolution(inputs, 16), convolution(16, classes)

    def forward(self, x, edges):
        x = F.dropout(x, self.dropout, self.training)
        x = self.activation(self.first(x, edges))
        return self.second(F.dropout(x, self.dropout, self.training), edges)


def accuracy(kind, data, seed):
    x, edges, labels, train, val, test = data
    torch.manual_seed(seed)
    model = Model(kind, x.shape[1], int(labels.max()) + 1)
    of_gat = kind == "gat"
    groups = [
        {"params": model.first.parameters(), "weight_decay": 5e-4},
        {"params": model.second.parameters(), "weight_decay": 5e-4 if of_gat else 0},
    ]
    optimizer = torch.optim.Adam(groups, lr=0.005 if of_gat else 0.01)
    best = (0, 0)
    for _ in range(200):
        model.train()
        optimizer.zero_grad()
        F.cross_entropy(model(x, edges)[train], labels[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = model(x, edges).argmax(1) == labels
        now = tuple(right[nodes].float().mean().item() for nodes in (val, test))
        best = now if now[0] > best[0] else best
    return 100 * best[1]


def main():
    folder, model, seeds = sys.argv[1:]
    data = load(folder)
    found = []
    for seed in range(1, int(seeds) + 1):
        found.append(accuracy(model, data, seed))
        print(f"{model}, seed {seed}: {found[-1]:.1f}", flush=True)
    print(f"{model}: {statistics.mean(found):.2f} ± {statistics.stdev(found):.2f}")


if __name__ == "__main__":
    main()
