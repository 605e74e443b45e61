#!/usr/bin/env python3
"""Steps of a typed model with PyTorch Geometric's layers, for benches/typed_training.py. Prints the seconds of a step.

    peers/typed_training.py FOLDER '{"model": "rsage", "steps": 50, "workers": 2, ...}'

FOLDER has the arrays of benches/typed.py, and `features-TYPE.npy` for the other types. With `"trims": true`, batches come from Grappa's
loader, and the model computes what later layers need (`trim_to_layer`), for which torch-sparse's batches lack the numbers.
"""

import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import HeteroConv, HGTConv, SAGEConv
from torch_geometric.utils import trim_to_layer


class Model(torch.nn.Module):
    """Two layers of relational GraphSAGE, or of HGT after a linear layer for each type and before one for the outputs."""

    def __init__(self, kind, data, hidden, classes, trims):
        super().__init__()
        self.kind, self.trims = kind, trims
        types, relations = data.metadata()
        if kind == "hgt":
            self.first = torch.nn.ModuleDict({name: torch.nn.Linear(data[name].num_features, hidden) for name in types})
            self.layers = torch.nn.ModuleList([HGTConv(hidden, hidden, data.metadata(), heads=4) for _ in range(2)])
            self.last = torch.nn.Linear(hidden, classes)
        else:
            widths = [hidden, classes]
            convs = [{relation: SAGEConv((-1, -1), width) for relation in relations} for width in widths]
            self.layers = torch.nn.ModuleList([HeteroConv(conv, aggr="sum") for conv in convs])

    def forward(self, batch):
        x, edges = batch.x_dict, batch.edge_index_dict
        if self.kind == "hgt":
            x = {name: self.first[name](rows).relu() for name, rows in x.items()}
        for number, layer in enumerate(self.layers):
            if self.trims:
                x, edges, _ = trim_to_layer(number, batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict, x, edges)
            x = layer(x, edges)
            if number == 0:
                x = {name: torch.nn.functional.dropout(rows if self.kind == "hgt" else rows.relu(), 0.5) for name, rows in x.items()}
        out = x["paper"][: batch["paper"].batch_size]
        return self.last(out) if self.kind == "hgt" else out


def main():
    folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    torch.set_num_threads(2)
    graph = json.loads((folder / "graph.json").read_text())
    data = HeteroData()
    for name in graph["nodes"]:
        file = "features.npy" if name == "paper" else f"features-{name}.npy"
        data[name].x = torch.from_numpy(np.load(folder / file))
    data["paper"].y = torch.from_numpy(np.load(folder / "labels.npy"))
    for number, relation in enumerate(graph["relations"]):
        data[tuple(relation)].edge_index = torch.from_numpy(np.load(folder / f"edges-{number}.npy"))
    seeds = torch.from_numpy(np.load(folder / "seeds.npy"))
    more = {"num_workers": options["workers"], "persistent_workers": True} if options["workers"] else {}
    trims = options.get("trims", False)
    if trims:
        import grappa

        graph = grappa.Graph(folder / "graph.grappa")
        loader = grappa.pyg.NeighborLoader(graph, options["fanouts"], ("paper", seeds.numpy()), batch_size=options["batch"], shuffle=True)
    else:
        loader = NeighborLoader(data, options["fanouts"], ("paper", seeds), batch_size=options["batch"], shuffle=True, **more)
    model = Model(options["model"], data, options["hidden"], 349, trims)
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    with torch.no_grad():
        model(next(batches))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    model.train()
    begun = None
    for step in range(options["steps"] + 5):
        if step == 5:
            begun = time.perf_counter()
        batch = next(batches)
        optimizer.zero_grad()
        out = model(batch)
        torch.nn.functional.cross_entropy(out, batch["paper"].y[: batch["paper"].batch_size]).backward()
        optimizer.step()
    print(json.dumps({"seconds": (time.perf_counter() - begun) / options["steps"]}))


if __name__ == "__main__":
    main()
