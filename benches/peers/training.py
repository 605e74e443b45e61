"""Peers' training: the same model on the same minibatches' sizes, all in memory.

    training.py PEER EDGES FEATURES LABELS SEEDS BATCHES THREADS     prints one JSON object

PEER is `dgl`, `graphbolt` or `pyg` (which needs pyg-lib or torch-sparse). EDGES is an array of rows (source, destination), FEATURES one of
f32, LABELS and SEEDS of int64. The model is three layers of GraphSAGE with means, 128 values wide, dropout 0.5, Adam; fanouts 15, 10, 5
from the seeds outwards, batches of 1024 seeds in random order. `seconds` are those of BATCHES batches after the first three: sampling,
gathering, forward, backward, and the step.
"""

import itertools
import json
import sys
import time

import numpy
import torch
import torch.nn.functional as F

FANOUTS, BATCH, HIDDEN, WARMUP = [15, 10, 5], 1024, 128, 3


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


def run_dgl(indptr, indices, features, labels, seeds):
    """DGL's own data loader, in this process."""
    import dgl

    # In 32 bits, this DGL crashes at the first layer.
    graph = dgl.graph(("csc", (indptr, indices.long(), [])))
    # DGL counts fanouts from the input.
    sampler = dgl.dataloading.NeighborSampler(FANOUTS[::-1])
    for nodes, outputs, blocks in dgl.dataloading.DataLoader(graph, seeds, sampler, batch_size=BATCH, shuffle=True):
        yield blocks, features[nodes], labels[outputs]


def run_graphbolt(indptr, indices, features, labels, seeds):
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
            blocks.insert(0, dgl.create_block(csc, num_src_nodes=len(sources), num_dst_nodes=len(nodes)))
            nodes = sources
        yield blocks, torch.index_select(features, 0, nodes), labels[batch.long()]


def run_pyg(indptr, indices, features, labels, seeds):
    """PyG's own neighbour loader, in this process."""
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    destinations = torch.repeat_interleave(torch.arange(len(features)), indptr.diff())
    data = Data(x=features, y=labels, edge_index=torch.stack([indices.long(), destinations]))
    loader = NeighborLoader(data, FANOUTS, input_nodes=seeds, batch_size=BATCH, shuffle=True, is_sorted=True)
    for batch in loader:
        yield batch.edge_index, batch.x, batch.y[: batch.batch_size]


class OfDgl(torch.nn.Module):
    def __init__(self, inputs, classes):
        from dgl.nn import SAGEConv

        super().__init__()
        sizes = [inputs, HIDDEN, HIDDEN, classes]
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in itertools.pairwise(sizes))

    def forward(self, blocks, rows):
        for i, (layer, block) in enumerate(zip(self.layers, blocks)):
            rows = layer(block, rows)
            if i < 2:
                rows = F.dropout(F.relu(rows), 0.5)
        return rows


class OfPyg(torch.nn.Module):
    def __init__(self, inputs, classes):
        from torch_geometric.nn import SAGEConv

        super().__init__()
        sizes = [inputs, HIDDEN, HIDDEN, classes]
        self.layers = torch.nn.ModuleList(SAGEConv(a, b) for a, b in itertools.pairwise(sizes))

    def forward(self, edges, rows):
        for i, layer in enumerate(self.layers):
            rows = layer(rows, edges)
            if i < 2:
                rows = F.dropout(F.relu(rows), 0.5)
        return rows[:BATCH]


def main():
    peer, *files, batches, threads = sys.argv[1:]
    batches = int(batches)
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    run, model = {"dgl": (run_dgl, OfDgl), "graphbolt": (run_graphbolt, OfDgl), "pyg": (run_pyg, OfPyg)}[peer]
    arrays = load(*files)
    model = model(arrays[2].shape[1], int(arrays[3].max()) + 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    # An epoch has enough batches, or there are several.
    stream = itertools.chain.from_iterable(run(*arrays) for _ in itertools.count())
    begin, loss = None, None
    for index, (blocks, rows, wanted) in enumerate(stream):
        loss = F.cross_entropy(model(blocks, rows)[: len(wanted)], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if index + 1 == WARMUP:
            begin = time.perf_counter()
        if index + 1 == WARMUP + batches:
            break
    seconds = time.perf_counter() - begin
    print(json.dumps({"batches": batches, "seconds": seconds, "loss": loss.item()}))


main()
