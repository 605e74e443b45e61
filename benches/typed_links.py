#!/usr/bin/env python3
"""Movies for users of MovieLens-100k: MRR of the links of a relation, by grappa-train whole and in partitions, and by PyTorch Geometric.

    benches/typed_links.py --seeds 3

One model everywhere: two layers of SAGEConv for each relation, added up, 64 values, dropout 0.1, the dot product, binary cross-entropy with
one uniform negative, Adam at 0.01, 1024 edges a step (the partitions of a step divide them), fanouts 10 and 10. With embeddings, each node has
32 learned values after its features. Edges are ranked among all movies without those that the user has rated otherwise. The best epoch by the
validation edges counts. It needs a Python with the packages grappa, pytest, PyTorch Geometric and pyg-lib or torch-sparse.
"""

import argparse
import copy
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.loader
from torch_geometric.nn import HeteroConv, SAGEConv

import grappa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
import test_typed_scripts as scripts  # noqa: E402

RATES, REVERSE = ("user", "rates", "movie"), ("movie", "rev_rates", "user")
HIDDEN, VALUES, BATCH, RATE, DROPOUT = 64, 32, 1024, 0.01, 0.1
FANOUTS = [10, 10]
WITH = f"user={VALUES},movie={VALUES}"


class Peer(torch.nn.Module):
    """The model of `--model rsage --node-embeddings`."""

    def __init__(self, data, has_embeddings):
        super().__init__()
        self.tables = torch.nn.ModuleDict()
        if has_embeddings:
            self.tables = torch.nn.ModuleDict({name: torch.nn.Embedding(data[name].num_nodes, VALUES) for name in data.node_types})
            for table in self.tables.values():
                bound = (3 / VALUES) ** 0.5
                torch.nn.init.uniform_(table.weight, -bound, bound)
        widths = {name: data[name].x.size(1) + (VALUES if has_embeddings else 0) for name in data.node_types}
        self.convs = torch.nn.ModuleList()
        for _ in range(2):
            convs = {edge_type: SAGEConv((widths[edge_type[0]], widths[edge_type[2]]), HIDDEN) for edge_type in data.edge_types}
            self.convs.append(HeteroConv(convs, aggr="sum"))
            widths = dict.fromkeys(widths, HIDDEN)

    def forward(self, data):
        x = {name: data[name].x for name in data.node_types}
        for name, table in self.tables.items():
            n_id = data[name].get("n_id", torch.arange(data[name].num_nodes))
            x[name] = torch.cat([x[name], table(n_id)], 1)
        x = {name: F.dropout(rows.relu(), DROPOUT, self.training) for name, rows in self.convs[0](x, data.edge_index_dict).items()}
        return self.convs[1](x, data.edge_index_dict)


def mrr_of(users, movies, links, known):
    """The mean of 1/rank of links among all movies, without other known ones of the user; ties count half."""
    scores = users[links[0]] @ movies.T
    own = scores[torch.arange(links.shape[1]), links[1]]
    masked = scores.masked_fill(known[links[0]], -torch.inf)
    ranks = 1 + (masked > own[:, None]).sum(1) + 0.5 * (masked == own[:, None]).sum(1)
    return float((1 / ranks).mean())


def by_pyg(data, parts, has_embeddings, epochs, seed):
    torch.manual_seed(seed)
    model = Peer(data, has_embeddings)
    loader = torch_geometric.loader.LinkNeighborLoader(
        data, FANOUTS, edge_label_index=(RATES, data[RATES].edge_index), neg_sampling="binary", batch_size=BATCH, shuffle=True
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    known = torch.zeros(data["user"].num_nodes, data["movie"].num_nodes, dtype=torch.bool)
    for part in parts.values():
        known[part[0], part[1]] = True
    best = (0.0, 0.0)
    for _ in range(epochs):
        model.train()
        for batch in loader:
            # Neither a target nor its reverse is a message.
            row, col = batch[RATES].edge_label_index
            targets = batch[RATES].edge_label == 1
            pairs = batch["user"].n_id[row[targets]] * data["movie"].num_nodes + batch["movie"].n_id[col[targets]]
            for edge_type, (user, movie) in {RATES: (0, 1), REVERSE: (1, 0)}.items():
                index = batch[edge_type].edge_index
                ends = batch["user"].n_id[index[user]] * data["movie"].num_nodes + batch["movie"].n_id[index[movie]]
                batch[edge_type].edge_index = index[:, ~torch.isin(ends, pairs)]
            out = model(batch)
            scores = (out["user"][row] * out["movie"][col]).sum(1)
            loss = F.binary_cross_entropy_with_logits(scores, batch[RATES].edge_label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(data)
        scores = [mrr_of(out["user"], out["movie"], parts[part], known) for part in ("val", "test")]
        best = max(best, tuple(scores))
    return best[1]


def by_grappa(graph, folder, has_embeddings, partitions, epochs, seed):
    options = {"node_embeddings": WITH} if has_embeddings else {}
    run = grappa.train(
        graph,
        out=folder / "run",
        force=True,
        task="link",
        target=":".join(RATES),
        model="rsage",
        partitions=partitions,
        batch=BATCH // partitions,
        fanouts=FANOUTS,
        hidden=HIDDEN,
        dropout=DROPOUT,
        lr=RATE,
        epochs=epochs,
        candidates="all",
        seed=seed,
        **options,
    )
    return run.summary["test_mrr"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True, help="train by PyTorch Geometric, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data = scripts.read_movielens(folder)
        graph = grappa.ingest(data, edge_split={RATES: "80/10/10"}, chunks=32, out=folder / "movies.grappa")
        parts = {part: torch.from_numpy(graph.edge_split(RATES, part)) for part in ("train", "val", "test")}
        learned = copy.copy(data)
        learned[RATES].edge_index = parts["train"]
        learned[REVERSE].edge_index = torch.from_numpy(np.ascontiguousarray(graph.edge_split(RATES, "train")[::-1]))
        for edge_type in learned.edge_types:
            learned[edge_type].pop("edge_label", None)
        names = ["PyTorch Geometric"] * arguments.peer + ["whole graph", "4 partitions", "16 partitions"]
        print(f"| inputs | {' | '.join(names)} |\n|---|{'---:|' * len(names)}")
        for has_embeddings in (False, True):
            columns = []
            if arguments.peer:
                columns.append(lambda seed: by_pyg(learned, parts, has_embeddings, arguments.epochs, seed))
            for partitions in (1, 4, 16):
                columns.append(lambda seed, partitions=partitions: by_grappa(graph, folder, has_embeddings, partitions, arguments.epochs, seed))
            shown = []
            for column in columns:
                scores = [column(seed) for seed in range(1, arguments.seeds + 1)]
                spread = f" ± {statistics.stdev(scores):.4f}" if len(scores) > 1 else ""
                shown.append(f"{statistics.mean(scores):.4f}{spread}")
            name = f"features, and {VALUES} learned values" if has_embeddings else "features"
            print(f"| {name} | {' | '.join(shown)} |", flush=True)


if __name__ == "__main__":
    main()
