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


def encoded(model, batch):
    return model(batch.x / batch.x.sum(1, keepdim=True).clamp(min=1), batch.edge_index)


def logits(z, pairs):
    return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def pairs_of(store, part, seed):
    """The pairs of a part, as nodes of the store, and their labels."""
    loader = grappa.pyg.LinkNeighborLoader(store, [1], part, neg_sampling="binary", batch_size=1 << 20, seed=seed)
    batch = next(iter(loader))
    return batch.n_id[batch.edge_label_index], batch.edge_label.numpy()


def scores(z, pairs, label):
    """The area under the ROC curve and the average precision."""
    label = label[np.argsort(-logits(z, pairs).numpy(), kind="stable")]
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
    options = {"num_neighbors": [-1, -1], "seed": seed, "threads": 1}
    # Degrees of a GCN are right where the batch has all edges, so scores are of states in the whole graph.
    whole = next(iter(grappa.pyg.NeighborLoader(store, batch_size=store.num_nodes, **options)))
    val, test = pairs_of(store, "val", seed), pairs_of(store, "test", seed)
    train = grappa.pyg.LinkNeighborLoader(
        store,
        edge_label_index="train",
        neg_sampling="binary",
        batch_size=batch_size,
        shuffle=True,
        exclude_targets=exclude_targets,
        **options,
    )
    model = Encoder(store.num_features)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best = (0, None)
    for _ in range(EPOCHS):
        model.train()
        for batch in train:
            out = logits(encoded(model, batch), batch.edge_label_index)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(out, batch.edge_label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            z = torch.empty(store.num_nodes, 16)
            z[whole.n_id] = encoded(model, whole)
            found = sum(scores(z, *val))
            if found > best[0]:
                best = (found, scores(z, *test))
    return best[1]


def run_peer(seed, folder, batch_size, exclude_targets):
    """The same with the graph in memory: PyTorch Geometric's split, negatives and GAE, as in its example."""
    from torch_geometric.data import Data
    from torch_geometric.nn import GAE
    from torch_geometric.transforms import RandomLinkSplit
    from torch_geometric.utils import coalesce, to_undirected

    store = grappa.ingest(CORA / "edges.tsv", features=CORA / "features.npz", out=folder / "peer.grappa", force=True)
    edges = torch.from_numpy(np.loadtxt(CORA / "edges.tsv", dtype=np.int64).T)
    x = torch.from_numpy(store.features[np.arange(store.num_nodes)])
    data = Data(x=x / x.sum(1, keepdim=True).clamp(min=1), edge_index=coalesce(to_undirected(edges)))
    torch.manual_seed(seed)
    split = RandomLinkSplit(0.05, 0.1, is_undirected=True, split_labels=True, add_negative_train_samples=False)
    train, val, test = split(data)
    model = GAE(Encoder(x.shape[1]))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best = (0, None)
    for _ in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        model.recon_loss(model.encode(train.x, train.edge_index), train.pos_edge_label_index).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            z = model.encode(train.x, train.edge_index)
            of_parts = []
            for part in (val, test):
                pairs = torch.cat([part.pos_edge_label_index, part.neg_edge_label_index], dim=1)
                label = np.repeat([1.0, 0.0], [part.pos_edge_label_index.shape[1], part.neg_edge_label_index.shape[1]])
                of_parts.append(scores(z, pairs, label))
            if sum(of_parts[0]) > best[0]:
                best = (sum(of_parts[0]), of_parts[1])
    return best[1]


def main():
    torch.set_num_threads(1)
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, of_seed, batch_size, exclude_targets in (
        ("PyG, all edges", run_peer, None, "none"),
        ("all edges", run, 1 << 20, "none"),
        ("1024 edges", run, 1024, "both"),
    ):
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            found = np.array([of_seed(seed, Path(folder), batch_size, exclude_targets) for seed in range(seeds)])
        (auc, ap), deviation = found.mean(0), found.std(0, ddof=1)
        seconds = (time.monotonic() - begin) / seeds
        print(
            f"{name}, excluded from messages: {exclude_targets}: AUC {auc:.1f} +- {deviation[0]:.1f}, "
            f"AP {ap:.1f} +- {deviation[1]:.1f}, {seconds:.0f} s per seed"
        )


if __name__ == "__main__":
    main()
