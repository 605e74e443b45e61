"""Outputs of all nodes, layer by layer: each state is computed once, with all in-neighbors, and states are on disk.

    pip install grappa torch torch_geometric
    python inference.py [FOLDER WITH CORA]

Models like torch_geometric.nn.GraphSAGE need nothing else. The layers of any other model are its convolutions, or functions. It
makes the store cora.grappa in the current folder, and scores.npy with a row for each node.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GATConv, GCNConv

import grappa
import grappa.pyg

CORA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "tests/data/cora")


class Model(torch.nn.Module):
    """A model of one's own: a graph convolution, attention with a skip connection, and a linear layer."""

    def __init__(self, inputs, classes):
        super().__init__()
        self.first = GCNConv(inputs, 32)
        self.second = GATConv(32, 32, heads=2, concat=False)
        self.last = torch.nn.Linear(32, classes)

    def forward(self, x, edge_index):
        x = self.first(x, edge_index).relu()
        return self.last(self.second(x, edge_index) + x)

    def layers(self):
        """The same as functions. `x` has the rows of the sources and the rows of the destinations of a batch."""
        return [
            # A GCNConv needs degrees of the whole graph, which `convolve` has.
            lambda x, batch: grappa.pyg.convolve(self.first, x, batch).relu(),
            lambda x, batch: self.last(self.second(x, batch.edge_index) + x[1]),
        ]


if Path("cora.grappa").exists():
    store = grappa.open("cora.grappa")
else:
    files = {"features": CORA / "features.npz", "labels": CORA / "labels.npy", "train": CORA / "train.npy"}
    store = grappa.ingest(CORA / "edges.tsv", undirected=True, out="cora.grappa", **files)

torch.manual_seed(1)
model = Model(store.num_features, store.num_classes)
scores = grappa.inference(store, model, layers=model.layers(), out="scores.npy")
print("scores.npy:", scores.shape, scores.dtype)

# This graph is small enough to compare: the whole graph in one pass.
nodes = np.arange(store.num_nodes)
sources = [store.in_neighbors(node) for node in nodes]
edge_index = np.stack([np.concatenate(sources), np.repeat(nodes, [len(of_node) for of_node in sources])])
model.eval()
with torch.no_grad():
    expected = model(torch.from_numpy(store.features[nodes]), torch.from_numpy(edge_index)).numpy()
print("largest difference:", np.abs(scores - expected).max())
np.testing.assert_allclose(scores, expected, atol=1e-4)

# Some nodes only: layers compute what their outputs depend on.
some = grappa.inference(store, model, layers=model.layers(), nodes=[7, 100, 2000])
np.testing.assert_allclose(some, scores[[7, 100, 2000]], atol=1e-5)
