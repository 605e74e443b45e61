"""A model of PyTorch Geometric, fed by Grappa and by PyTorch Geometric: speed, waiting, accuracy, and inference of all nodes.

    python_training.py speed grappa STORE BATCHES MEMORY      train BATCHES batches; `trimmed` instead of `grappa` trims layers, and
                                                              `blocks` gives each layer a bipartite graph
    python_training.py speed pyg EDGES BATCHES                the same; needs pyg-lib or torch-sparse
    python_training.py accuracy STORE SEEDS                   both, on a small store; needs pyg-lib or torch-sparse
    python_training.py inference grappa STORE MEMORY          outputs of all nodes
    python_training.py inference pyg EDGES                    the same; needs pyg-lib or torch-sparse

Each prints one JSON object. EDGES is what `grappa-gen --as npy` writes: edges.npy, with edges.features.npy and so on beside it. For
`speed`, GraphSAGE has 3 layers of 128, batches have 1024 seeds, fanouts are 15, 10, 5. `seconds` are the time of BATCHES batches
after the first three: sampling, gathering, forward, backward and the step. A trimmed layer leaves out nodes and edges that its
outputs do not need (`trim_to_layer`), which needs the sizes of hops: PyTorch Geometric has them with pyg-lib only. With `blocks`
(`layout="blocks"`), a layer computes its destinations alone; it has the same parameters, and more edges, because every node draws
at each hop. `waiting` is the
part of them in which the loop waits for the next batch. For `accuracy`, GraphSAGE has 2 layers of 64 and dropout 0.5; the accuracy
on test nodes is from the epoch with the best validation, with the whole graph.
"""

import json
import resource
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE

WARMUP = 3
INFERENCE_BATCH = 4096


def load(edges):
    """The graph of a generator in memory."""
    stem = edges.removesuffix(".npy")
    pairs = numpy.load(edges)
    # Sorted by destination: PyTorch Geometric's loader then makes no copy.
    order = numpy.argsort(pairs[:, 1], kind="stable")
    index = torch.from_numpy(numpy.ascontiguousarray(pairs[order].T))
    features, labels, train = (torch.from_numpy(numpy.load(f"{stem}.{name}.npy")) for name in ("features", "labels", "train"))
    return Data(x=features, y=labels.long(), edge_index=index), train


def batches(peer, source, memory):
    """The batches of an epoch, and the widths of the features and of the output."""
    if peer != "pyg":
        import grappa.pyg

        store = grappa.open(source)
        options = {"batch_size": 1024, "shuffle": True, "memory": memory, "layout": "blocks" if peer == "blocks" else None}
        return grappa.pyg.NeighborLoader(store, [15, 10, 5], "train", **options), store.num_features, store.num_classes
    data, train = load(source)
    options = {"batch_size": 1024, "shuffle": True, "is_sorted": True}
    loader = NeighborLoader(data, [15, 10, 5], input_nodes=train, **options)
    return loader, data.x.shape[1], int(data.y.max()) + 1


def outputs_of_blocks(model, batch):
    x = batch.x
    for conv, block in zip(model.convs, batch.blocks, strict=True):
        x = conv((x, x[: block.size[1]]), block.edge_index)
        if conv is not model.convs[-1]:
            x = model.dropout(model.act(x))
    return x


def step(model, optimizer, batch, peer=None):
    optimizer.zero_grad()
    if peer == "blocks":
        out = outputs_of_blocks(model, batch)
    else:
        trims = ("nodes", "edges") if peer == "trimmed" else ()
        hops = {f"num_sampled_{what}_per_hop": batch[f"num_sampled_{what}"] for what in trims}
        out = model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
    loss = F.cross_entropy(out, batch.y[: batch.batch_size])
    loss.backward()
    optimizer.step()
    return loss


def speed(peer, source, count, memory=None):
    begin = time.perf_counter()
    loader, inputs, outputs = batches(peer, source, memory)
    torch.manual_seed(1)
    model = GraphSAGE(inputs, 128, 3, outputs, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    iterator, waiting, edges = iter(loader), 0.0, 0
    opened = time.perf_counter() - begin
    for index in range(WARMUP + count):
        if index == WARMUP:
            begin, waiting, edges = time.perf_counter(), 0.0, 0
        asked = time.perf_counter()
        batch = next(iterator)
        waiting += time.perf_counter() - asked
        edges += sum(block.edge_index.shape[1] for block in batch.blocks) if peer == "blocks" else batch.edge_index.shape[1]
        loss = step(model, optimizer, batch, peer)
    seconds = time.perf_counter() - begin
    rates = {"seconds": seconds, "batches/s": count / seconds, "waiting": waiting / seconds}
    return {**rates, "edges": edges, "opened": opened, "loss": loss.item()}


def whole_graph(store):
    nodes = numpy.arange(store.num_nodes)
    sources = [store.in_neighbors(node) for node in nodes]
    edges = numpy.stack([numpy.concatenate(sources), numpy.repeat(nodes, [len(of_node) for of_node in sources])])
    return Data(
        x=torch.from_numpy(store.features[nodes]), y=torch.from_numpy(store.labels[nodes]), edge_index=torch.from_numpy(edges)
    )


def test_accuracy(peer, store, data, seed, epochs):
    import grappa.pyg

    torch.manual_seed(seed)
    model = GraphSAGE(store.num_features, 64, 2, store.num_classes, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4 if store.num_nodes < 10_000 else 0)
    batch = 64 if store.num_nodes < 10_000 else 1024
    options = {"batch_size": batch, "shuffle": True}
    if peer == "grappa":
        loader = grappa.pyg.NeighborLoader(store, [10, 10], "train", seed=seed, **options)
    else:
        loader = NeighborLoader(data, [10, 10], input_nodes=torch.from_numpy(store.split("train")), **options)
    best = (0, 0)
    for _ in range(epochs):
        model.train()
        for batch in loader:
            step(model, optimizer, batch)
        model.eval()
        with torch.no_grad():
            right = (model(data.x, data.edge_index).argmax(1) == data.y).numpy()
        val, test = (float(right[store.split(name)].mean()) for name in ("val", "test"))
        best = (val, test) if val > best[0] else best
    return round(100 * best[1], 2)


def accuracy(path, seeds):
    import grappa

    store = grappa.open(path)
    data = whole_graph(store)
    epochs = 30 if store.num_nodes < 10_000 else 15
    found = {peer: [test_accuracy(peer, store, data, seed, epochs) for seed in range(1, seeds + 1)] for peer in ("grappa", "pyg")}
    return {"epochs": epochs, **found, "mean": {peer: round(float(numpy.mean(values)), 2) for peer, values in found.items()}}


def inference(peer, source, memory=None):
    torch.manual_seed(1)
    if peer == "grappa":
        import grappa

        store = grappa.open(source)
        model = GraphSAGE(store.num_features, 128, 3, store.num_classes)
        begin = time.perf_counter()
        out = grappa.inference(store, model, batch_size=INFERENCE_BATCH, memory=memory)
    else:
        data, _ = load(source)
        model = GraphSAGE(data.x.shape[1], 128, 3, int(data.y.max()) + 1).eval()
        begin = time.perf_counter()
        out = model.inference(NeighborLoader(data, [-1], batch_size=INFERENCE_BATCH, is_sorted=True)).numpy()
    return {"seconds": time.perf_counter() - begin, "sum": float(numpy.abs(out).sum(dtype=float)), "rows": out.shape}


def main():
    task, *arguments = sys.argv[1:]
    if task == "speed":
        peer, source, count, *memory = arguments
        result = speed(peer, source, int(count), *memory)
    elif task == "accuracy":
        result = accuracy(arguments[0], int(arguments[1]))
    else:
        result = inference(*arguments)
    result["peak, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps(result))


main()
