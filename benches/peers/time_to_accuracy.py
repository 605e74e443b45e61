"""Peers' training to an accuracy, as their examples do it: load arrays, train an epoch, evaluate it, and so on.

    time_to_accuracy.py prepare FOLDER          make FOLDER/indptr.npy and indices.npy of edges.npy, for `run`
    time_to_accuracy.py check PEER MODE         import the peer, and sample if MODE is `minibatches`, not `full-graph`; prints the versions
    time_to_accuracy.py run PEER FOLDER OUT SETTINGS

PEER is `dgl` or `pyg`, which needs pyg-lib or torch-sparse for minibatches. FOLDER has edges.npy of rows (source, destination),
features.npy, labels.npy (-1: none), and train.npy, val.npy, test.npy with nodes. SETTINGS is a JSON object.

`run` writes JSON objects to the file OUT, a line each: {"ready": versions} after the imports, {"epoch": 1, "val_accuracy": 0.5} after each epoch and its
evaluation, and {"test_accuracy": 0.5} at the end. Evaluations sample neighbors with the fanouts of training, as DGL's example
node_classification.py does. If they say `full_graph`, a step and an evaluation are passes over the whole graph, as in the examples for Cora.
"""

import itertools
import json
import sys
from types import SimpleNamespace

import numpy


def prepare(folder):
    edges = numpy.load(f"{folder}/edges.npy", mmap_mode="r")
    nodes = numpy.load(f"{folder}/labels.npy", mmap_mode="r").shape[0]
    destinations = numpy.ascontiguousarray(edges[:, 1])
    order = numpy.argsort(destinations, kind="stable")
    numpy.save(f"{folder}/indices.npy", edges[:, 0][order])
    counts = numpy.bincount(destinations, minlength=nodes)
    numpy.save(f"{folder}/indptr.npy", numpy.concatenate([[0], numpy.cumsum(counts)]).astype(numpy.int64))


def load(folder):
    """The arrays of a folder as tensors."""
    import torch

    names = ["indptr", "indices", "features", "labels", "train", "val", "test"]
    arrays = SimpleNamespace(**{name: torch.from_numpy(numpy.load(f"{folder}/{name}.npy")) for name in names})
    # The layers of peers have f32 parameters, and take no other features.
    arrays.features = arrays.features.float()
    return arrays


class Dgl:
    """DGL's data loader and layers."""

    def __init__(self, data, settings):
        import dgl

        self.data, self.settings = data, settings
        self.graph = dgl.graph(("csc", (data.indptr, data.indices, [])))
        if settings.full_graph:
            self.graph = dgl.add_self_loop(self.graph)

    @staticmethod
    def version():
        import dgl.nn

        return dgl.__version__

    def layer(self, inputs, outputs):
        from dgl.nn import GraphConv, SAGEConv

        return SAGEConv(inputs, outputs, "mean") if self.settings.model == "sage" else GraphConv(inputs, outputs)

    def batches(self, nodes, shuffle):
        """The blocks of each minibatch, the features of their inputs, and the labels of the seeds."""
        import dgl

        # DGL counts fanouts from the input.
        sampler = dgl.dataloading.NeighborSampler(self.settings.fanouts[::-1])
        loader = dgl.dataloading.DataLoader(
            self.graph, nodes, sampler, batch_size=self.settings.batch, shuffle=shuffle, drop_last=False, num_workers=0
        )
        for inputs, seeds, blocks in loader:
            yield blocks, self.data.features[inputs], self.data.labels[seeds]

    def whole(self):
        return [self.graph] * self.settings.layers

    def apply(self, layer, block, rows):
        return layer(block, rows)


class Pyg:
    """PyG's neighbor loader and layers."""

    def __init__(self, data, settings):
        import torch
        from torch_geometric.data import Data

        self.data, self.settings = data, settings
        destinations = torch.repeat_interleave(torch.arange(len(data.labels)), data.indptr.diff())
        self.edges = torch.stack([data.indices, destinations])
        self.graph = Data(x=data.features, y=data.labels, edge_index=self.edges)

    @staticmethod
    def version():
        import torch_geometric.loader
        import torch_geometric.nn

        return torch_geometric.__version__

    def layer(self, inputs, outputs):
        from torch_geometric.nn import GCNConv, SAGEConv

        if self.settings.model == "sage":
            return SAGEConv(inputs, outputs)
        return GCNConv(inputs, outputs, cached=self.settings.full_graph)

    def batches(self, nodes, shuffle):
        from torch_geometric.loader import NeighborLoader

        loader = NeighborLoader(
            self.graph,
            self.settings.fanouts,
            input_nodes=nodes,
            batch_size=self.settings.batch,
            shuffle=shuffle,
            is_sorted=True,
        )
        for batch in loader:
            yield [batch.edge_index] * self.settings.layers, batch.x, batch.y[: batch.batch_size]

    def whole(self):
        return [self.edges] * self.settings.layers

    def apply(self, layer, edges, rows):
        return layer(rows, edges)


PEERS = {"dgl": Dgl, "pyg": Pyg}


def versions(peer):
    import torch

    return f"{peer} {PEERS[peer].version()}, torch {torch.__version__}"


def check(peer, mode):
    import torch

    if mode == "minibatches":
        ring = SimpleNamespace(indptr=torch.tensor([0, 1, 2]), indices=torch.tensor([1, 0]))
        ring.features, ring.labels = torch.ones(2, 1), torch.tensor([0, 1])
        settings = SimpleNamespace(full_graph=False, layers=1, fanouts=[1], batch=1)
        next(PEERS[peer](ring, settings).batches(torch.tensor([0, 1]), shuffle=False))
    print(json.dumps({"version": versions(peer)}))


def run(peer, folder, out, settings):
    import torch
    import torch.nn.functional as F

    lines = open(out, "w")

    def say(**line):
        print(json.dumps(line), file=lines, flush=True)

    say(ready=versions(peer))
    settings = SimpleNamespace(**json.loads(settings))
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    data = load(folder)
    side = PEERS[peer](data, settings)
    sizes = [data.features.shape[1]] + [settings.hidden] * (settings.layers - 1) + [int(data.labels.max()) + 1]
    layers = torch.nn.ModuleList(side.layer(a, b) for a, b in itertools.pairwise(sizes))
    optimizer = torch.optim.Adam(layers.parameters(), lr=settings.lr)

    def forward(blocks, rows):
        for i, (layer, block) in enumerate(zip(layers, blocks)):
            rows = side.apply(layer, block, rows)
            if i + 1 < len(layers):
                rows = F.dropout(F.relu(rows), 0.5, training=layers.training)
        return rows

    def step(logits, labels):
        loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train():
        layers.train()
        if settings.full_graph:
            step(forward(side.whole(), data.features)[data.train], data.labels[data.train])
            return
        for blocks, rows, labels in side.batches(data.train, shuffle=True):
            step(forward(blocks, rows)[: len(labels)], labels)

    @torch.no_grad()
    def accuracies(*splits):
        layers.eval()
        if settings.full_graph:
            found = forward(side.whole(), data.features).argmax(1)
            return [(found[nodes] == data.labels[nodes]).float().mean().item() for nodes in splits]
        right = [
            sum(
                (forward(blocks, rows)[: len(labels)].argmax(1) == labels).sum().item()
                for blocks, rows, labels in side.batches(nodes, shuffle=False)
            )
            for nodes in splits
        ]
        return [right / len(nodes) for right, nodes in zip(right, splits)]

    for epoch in range(1, settings.epochs + 1):
        train()
        if settings.full_graph:
            # One pass scores all nodes.
            val, test = accuracies(data.val, data.test)
        else:
            [val] = accuracies(data.val)
        say(epoch=epoch, val_accuracy=val)
    if not settings.full_graph:
        [test] = accuracies(data.test)
    say(test_accuracy=test)


def main():
    task, *arguments = sys.argv[1:]
    {"prepare": prepare, "check": check, "run": run}[task](*arguments)


if __name__ == "__main__":
    main()
