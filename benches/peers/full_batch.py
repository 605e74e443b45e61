"""Full-batch training with PyTorch Geometric, as `grappa-train --method full` trains a partitioned graph.

    full_batch.py FOLDER [EPOCHS]    needs torch-sparse

FOLDER has edges.npy, features.npy, labels.npy and splits. GraphSAGE has 2 layers of 64, no dropout, Adam with 0.01. The model is scored
every 10 epochs. Prints the seconds of the epochs, of the whole script, and the best validation accuracy with its test accuracy.
"""

import json
import sys
import time
from pathlib import Path

BEGIN = time.perf_counter()

import numpy
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import coalesce, to_undirected
from torch_sparse import SparseTensor

HIDDEN, EVERY = 64, 10


def main():
    folder, *rest = sys.argv[1:]
    epochs = int(rest[0]) if rest else 100
    array = {path.stem: numpy.load(path) for path in Path(folder).glob("*.npy")}
    x, labels = torch.from_numpy(array["features"]).float(), torch.from_numpy(array["labels"])
    splits = {name: torch.from_numpy(array[name]) for name in ("train", "val", "test")}
    index = coalesce(to_undirected(torch.from_numpy(array["edges"].T.copy())))
    # A fused product: otherwise, the messages of all edges are in memory.
    index = SparseTensor.from_edge_index(index, sparse_sizes=(len(x), len(x))).t()
    torch.manual_seed(1)
    model = GraphSAGE(x.shape[1], HIDDEN, 2, int(labels.max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    begin, best = time.perf_counter(), (0, 0)
    for epoch in range(1, epochs + 1):
        optimizer.zero_grad()
        F.cross_entropy(model(x, index)[splits["train"]], labels[splits["train"]]).backward()
        optimizer.step()
        if epoch % EVERY == 0:
            with torch.no_grad():
                right = model(x, index).argmax(1) == labels
            best = max(best, tuple(right[splits[name]].float().mean().item() for name in ("val", "test")))
    end = time.perf_counter()
    print(json.dumps({"epochs": end - begin, "whole": end - BEGIN, "val": best[0], "test": best[1]}))


if __name__ == "__main__":
    main()
