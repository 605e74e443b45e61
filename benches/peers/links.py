"""Link prediction on Cora, as in Kipf and Welling, "Variational Graph Auto-Encoders" (arXiv 1611.07308): the non-probabilistic GAE.

    python benches/peers/links.py [SEEDS]

A GCN with 32 and 16 units encodes, the product of two states decodes. 85/5/10 percent of the edges are for training, validation and test.
Area under the ROC curve and average precision over the test edges and as many negatives, at the epoch that is best for validation.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.nn import GCNConv

import grappa
import grappa.pyg

CORA = Path(__file__).resolve().parents[2] / "tests" / "data" / "cora"
EPOCHS = 200


class Encoder(torch.nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first, self.second = GCNConv(features, 32), GCNConv(32, 16)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def logits(model, batch):
    x = batch.x / batch.x.sum(1, keepdim=True).clamp(min=1)
    z = model(x, batch.edge_index)
    source, target = batch.edge_label_index
    return (z[source] * z[target]).sum(-1)


@torch.no_grad()
def scores(model, loader):
    """The area under the ROC curve and the average precision."""
    loader.set_epoch(0)
    model.eval()
    pairs = [(logits(model, batch), batch.edge_label) for batch in loader]
    out, label = (torch.cat(part).numpy() for part in zip(*pairs))
    label = label[np.argsort(-out, kind="stable")]
    positives, negatives = label.sum(), len(label) - label.sum()
    found = np.cumsum(label)
    auc = (found[label == 0].sum()) / (positives * negatives)
    precision = (found / np.arange(1, len(label) + 1))[label == 1].mean()
    return 100 * auc, 100 * precision


def run(seed, folder, batch_size, exclude_targets):
    store = grappa.ingest(
        CORA / "edges.tsv",
        features=CORA / "features.npz",
        undirected=True,
        dedup=True,
        edge_split="85/5/10",
        edge_split_seed=seed,
        out=folder / "cora.grappa",
        force=True,
    )
    torch.manual_seed(seed)
    options = {"num_neighbors": [-1, -1], "neg_sampling": "binary", "seed": seed, "threads": 1}
    loaders = {
        part: grappa.pyg.LinkNeighborLoader(store, edge_label_index=part, batch_size=1 << 20, **options) for part in ("val", "test")
    }
    train = grappa.pyg.LinkNeighborLoader(
        store, edge_label_index="train", batch_size=batch_size, shuffle=True, exclude_targets=exclude_targets, **options
    )
    model = Encoder(store.num_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best = (0, None)
    for _ in range(EPOCHS if len(train) == 1 else EPOCHS // len(train)):
        model.train()
        for batch in train:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logits(model, batch), batch.edge_label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        val = sum(scores(model, loaders["val"]))
        if val > best[0]:
            best = (val, scores(model, loaders["test"]))
    return best[1]


def main():
    torch.set_num_threads(1)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, batch_size, exclude_targets in (("all edges, as in the paper", 1 << 20, "none"), ("512 edges", 512, "both")):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = np.array([run(seed, Path(folder), batch_size, exclude_targets) for seed in range(seeds)])
        (auc, ap), deviation = found.mean(0), found.std(0, ddof=1)
        seconds = (time.monotonic() - begin) / seeds
        print(
            f"{name}, messages without targets: {exclude_targets}: AUC {auc:.1f} +- {deviation[0]:.1f}, "
            f"AP {ap:.1f} +- {deviation[1]:.1f}, {seconds:.0f} s per seed"
        )


if __name__ == "__main__":
    main()
