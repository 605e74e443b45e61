"""Peers' training: the same model on the same minibatches' sizes, the graph and its features in memory.

    training.py check PEER DEVICE MODELS                                                   train on a tiny graph; prints the versions
    training.py run PEER DEVICE MODEL EDGES FEATURES LABELS SEEDS BATCHES THREADS          prints one JSON object

PEER is `dgl`, `graphbolt` or `pyg` (which needs pyg-lib or torch-sparse). DEVICE is `cpu` or `cuda`, where the model is. EDGES is an array of
rows (source, destination), FEATURES one of f32, LABELS and SEEDS of int64. MODELS are separated by commas; a MODEL is
`sage` (with means), `gcn`, `gin`, `gat` or `gatv2`, of three layers, 128 values wide (attention: 4 heads of 32), with ReLU, dropout 0.5, Adam; fanouts 15, 10, 5 from the seeds outwards, batches of 1024 seeds in random order. `seconds` are the time of BATCHES batches
after the first three: sampling, gathering, copies to the device, forward, backward, and the step.
"""

import itertools
import json
import sys
import time

import numpy
import torch
import torch.nn.functional as F

FANOUTS, BATCH, HIDDEN, HEADS, WARMUP = [15, 10, 5], 1024, 128, 4, 3


def load(edges, features, labels, seeds):
    """Edges by destination as CSR, features, labels, and seeds."""
    features = torch.from_numpy(numpy.load(features))
    nodes = len(features)
    edges = numpy.load(edges, mmap_mode="r")
    sources, destinations = numpy.ascontiguousarray(edges[:, 0]), numpy.ascontiguousarray(edges[:, 1])
    order = numpy.argsort(destinations, kind="stable")
    indices = torch.from_numpy(sources[order].astype(numpy.int32))
    del sources, order
    indptr = torch.zeros(nodes + 1, dtype=torch.int64)
    torch.cumsum(torch.from_numpy(numpy.bincount(destinations, minlength=nodes)), 0, out=indptr[1:])
    return indptr, indices, features, torch.from_numpy(numpy.load(labels)), torch.from_numpy(numpy.load(seeds))


def shuffled(seeds):
    order = torch.randperm(len(seeds), generator=torch.Generator().manual_seed(1))
    return seeds[order].split(BATCH)


def run_dgl(indptr, indices, features, labels, seeds, device):
    """DGL's own data loader, in this process. For a GPU as in DGL's example: it samples there, and reads the graph and the features in the
    machine's memory (`use_uva`)."""
    import dgl

    # In 32 bits, this DGL crashes at the first layer.
    graph = dgl.graph(("csc", (indptr, indices.long(), [])))
    loader = {"batch_size": BATCH, "shuffle": True}
    # DGL counts fanouts from the input.
    fanouts = FANOUTS[::-1]
    if device == "cpu":
        sampler = dgl.dataloading.NeighborSampler(fanouts)
        for nodes, outputs, blocks in dgl.dataloading.DataLoader(graph, seeds, sampler, **loader):
            yield blocks, features[nodes], labels[outputs]
        return
    graph.ndata["feat"], graph.ndata["label"] = features, labels
    sampler = dgl.dataloading.NeighborSampler(fanouts, prefetch_node_feats=["feat"], prefetch_labels=["label"])
    seeds = seeds.to(device)
    for _, _, blocks in dgl.dataloading.DataLoader(graph, seeds, sampler, device=device, use_uva=True, **loader):
        yield blocks, blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]


def run_graphbolt(indptr, indices, features, labels, seeds, device):
    """GraphBolt's graph and operators, without its pipeline of threads."""
    import dgl
    import dgl.graphbolt as gb

    graph = gb.fused_csc_sampling_graph(indptr.to(torch.int32), indices)
    for batch in shuffled(seeds.to(torch.int32)):
        nodes, blocks = batch, []
        for fanout in FANOUTS:
            sampled = graph.sample_neighbors(nodes, torch.LongTensor([fanout])).sampled_csc
            sources, compacted = gb.unique_and_compact_csc_formats(sampled, nodes)
            csc = ("csc", (compacted.indptr, compacted.indices, torch.tensor([], dtype=torch.int32)))
            blocks.insert(0, dgl.create_block(csc, num_src_nodes=len(sources), num_dst_nodes=len(nodes)).to(device))
            nodes = sources
        yield blocks, torch.index_select(features, 0, nodes).to(device), labels[batch.long()].to(device)


def run_pyg(indptr, indices, features, labels, seeds, device):
    """PyG's own neighbor loader: in this process, or for a GPU in a process per thread, as PyG's documentation advises."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    destinations = torch.repeat_interleave(torch.arange(len(features)), indptr.diff())
    data = Data(x=features, y=labels, edge_index=torch.stack([indices.long(), destinations]))
    ahead = {"pin_memory": True, "num_workers": torch.get_num_threads()} if device == "cuda" else {}
    loader = NeighborLoader(data, FANOUTS, input_nodes=seeds, batch_size=BATCH, shuffle=True, is_sorted=True, **ahead)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
        yield batch.edge_index, batch.x, batch.y[: batch.batch_size]


def perceptron(inputs, outputs):
    """The two layers of GIN."""
    return torch.nn.Sequential(torch.nn.Linear(inputs, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, outputs))


def dgl_layer(model, inputs, outputs, is_last):
    from dgl import nn

    # A node without in-neighbors gets zeros.
    bare = {"allow_zero_in_degree": True}
    heads = {"out_feats": outputs if is_last else outputs // HEADS, "num_heads": HEADS}
    match model:
        case "sage":
            return nn.SAGEConv(inputs, outputs, "mean")
        case "gcn":
            return nn.GraphConv(inputs, outputs, **bare)
        case "gin":
            return nn.GINConv(perceptron(inputs, outputs), "sum", learn_eps=True)
        case "gat":
            return nn.GATConv(inputs, **heads, **bare)
        case "gatv2":
            return nn.GATv2Conv(inputs, **heads, **bare)


def pyg_layer(model, inputs, outputs, is_last):
    from torch_geometric import nn

    heads = {"out_channels": outputs if is_last else outputs // HEADS, "heads": HEADS, "concat": not is_last}
    match model:
        case "sage":
            return nn.SAGEConv(inputs, outputs)
        case "gcn":
            return nn.GCNConv(inputs, outputs)
        case "gin":
            return nn.GINConv(perceptron(inputs, outputs), train_eps=True)
        case "gat":
            return nn.GATConv(inputs, **heads)
        case "gatv2":
            return nn.GATv2Conv(inputs, **heads)


class Model(torch.nn.Module):
    def __init__(self, layer, model, inputs, classes):
        super().__init__()
        sizes = itertools.pairwise([inputs, HIDDEN, HIDDEN, classes])
        self.layers = torch.nn.ModuleList(layer(model, a, b, i == 2) for i, (a, b) in enumerate(sizes))


class OfDgl(Model):
    def forward(self, blocks, rows):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            rows = layer(block, rows)
            if rows.dim() == 3:
                # [nodes, heads, values]: the last layer's heads are averaged.
                rows = rows.flatten(1) if i < 2 else rows.mean(1)
            if i < 2:
                rows = F.dropout(F.relu(rows), 0.5)
        return rows


class OfPyg(Model):
    def forward(self, edges, rows):
        for i, layer in enumerate(self.layers):
            rows = layer(rows, edges)
            if i < 2:
                rows = F.dropout(F.relu(rows), 0.5)
        return rows[:BATCH]


PEERS = {"dgl": (run_dgl, OfDgl, dgl_layer), "graphbolt": (run_graphbolt, OfDgl, dgl_layer), "pyg": (run_pyg, OfPyg, pyg_layer)}


def now(device):
    """The time when the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def train(peer, device, model, arrays, batches):
    """Returns the seconds of the batches and the last loss."""
    run, kind, layer = PEERS[peer]
    torch.manual_seed(1)
    model = kind(layer, model, arrays[2].shape[1], int(arrays[3].max()) + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    # An epoch has enough batches, or there are several.
    stream = itertools.chain.from_iterable(run(*arrays, device) for _ in itertools.count())
    begin, loss = None, None
    for index, (blocks, rows, wanted) in enumerate(stream):
        loss = F.cross_entropy(model(blocks, rows)[: len(wanted)], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if index + 1 == WARMUP:
            begin = now(device)
        if index + 1 == WARMUP + batches:
            break
    return now(device) - begin, loss.item()


def check(peer, device, models):
    ring = torch.tensor([1, 0], dtype=torch.int32)
    arrays = (torch.tensor([0, 1, 2]), ring, torch.ones(2, 1), torch.tensor([0, 1]), torch.tensor([0, 1]))
    for model in models.split(","):
        train(peer, device, model, arrays, 1)
    module = __import__("torch_geometric" if peer == "pyg" else "dgl")
    print(f"{module.__name__} {module.__version__}, torch {torch.__version__}")


def main():
    task, peer, device, *arguments = sys.argv[1:]
    if task == "check":
        return check(peer, device, *arguments)
    model, *files, batches, threads = arguments
    torch.set_num_threads(int(threads))
    seconds, loss = train(peer, device, model, load(*files), int(batches))
    print(json.dumps({"batches": int(batches), "seconds": seconds, "loss": loss}))


main()
