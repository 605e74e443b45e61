"""A graph attention network on Debian's packages: which section is a package in? Nodes have names instead of numbers.

    pip install grappa torch torch_geometric
    python tools/debian.py debian debian        # in a clone: tables from apt's index of this machine
    python gat_debian.py debian                 # the folder with the tables

It makes the store debian.grappa in the current folder. Sections have few packages or many, so it prints the accuracy beside the
share of the largest section.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GAT

import grappa
import grappa.pyg

tables = Path(sys.argv[1] if len(sys.argv) > 1 else "debian")
if not (tables / "edges.tsv").exists():
    sys.exit(f"{tables} has no tables of packages; `python tools/debian.py debian {tables}` makes them where apt has an index")

if Path("debian.grappa").exists():
    store = grappa.open("debian.grappa")
else:
    # A line of edges.tsv has the names of two packages: the first depends on the second.
    store = grappa.ingest(
        tables / "edges.tsv",
        ids="string",
        self_loops="drop",
        undirected=True,
        dedup=True,
        features=tables / "features.npy",
        labels=tables / "labels.npy",
        out="debian.grappa",
        **{split: tables / f"{split}.txt" for split in ("train", "val", "test")},
    )
print(store)
sections = (tables / "classes.txt").read_text().split()

torch.manual_seed(1)
model = GAT(store.num_features, 32, num_layers=2, out_channels=store.num_classes, heads=4, v2=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = grappa.pyg.NeighborLoader(store, [8, 4], "train", batch_size=1024, shuffle=True)
for epoch in range(1, 4):
    model.train()
    losses = []
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"epoch {epoch}: loss {np.mean(losses):.3f}")

classes = grappa.inference(store, model).argmax(axis=1)
test = store.split("test")
labels = store.labels[test]
largest = np.bincount(labels).max() / len(labels)
print(f"test accuracy {(classes[test] == labels).mean():.1%}, where the largest section has {largest:.1%}")

# Names to nodes and back.
nodes = store.nodes(["bash", "apt"])
for name, node in zip(store.ids(nodes), nodes):
    known = store.labels[[node]][0]
    print(f"{name}: {sections[classes[node]]}, in truth {sections[known] if known >= 0 else 'unknown'}")
