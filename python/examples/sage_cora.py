"""GraphSAGE of PyTorch Geometric on Cora, in minibatches: the loader is Grappa's, all else is as usual.

    pip install grappa torch torch_geometric
    python sage_cora.py [FOLDER WITH CORA]

It makes the store cora.grappa in the current folder, and prints the accuracy on the test nodes.
"""

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

import grappa
import grappa.pyg

CORA = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2] / "tests/data/cora")

# Papers with citations in both directions, words as features, and subjects as labels.
if Path("cora.grappa").exists():
    store = grappa.open("cora.grappa")
else:
    splits = {name: CORA / f"{name}.npy" for name in ("train", "val", "test")}
    store = grappa.ingest(
        CORA / "edges.tsv",
        features=CORA / "features.npz",
        labels=CORA / "labels.npy",
        undirected=True,
        out="cora.grappa",
        **splits,
    )
print(store)

torch.manual_seed(1)
model = GraphSAGE(store.num_features, hidden_channels=64, num_layers=2, out_channels=store.num_classes, dropout=0.5)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

# Threads of the loader sample the next batches and read their features while the model computes: no num_workers.
loader = grappa.pyg.NeighborLoader(store, [10, 10], "train", batch_size=64, shuffle=True)


def accuracy(split):
    """The share of correct classes. Each node has all its in-neighbors, and each layer is computed once."""
    scores = grappa.inference(store, model, nodes=split)
    return (scores.argmax(axis=1) == store.labels[store.split(split)]).mean()


best = (0, 0)
for epoch in range(1, 11):
    model.train()
    for batch in loader:
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    validation = accuracy("val")
    if validation > best[0]:
        best = (validation, accuracy("test"))
    if epoch % 5 == 0:
        print(f"epoch {epoch}: validation {validation:.1%}")
print(f"test accuracy at the best validation: {best[1]:.1%}")
