"""Steps of link prediction on a large graph, with Grappa, PyTorch Geometric and DGL: the same model, and the same loss.

    link_steps.py grappa STORE NEGATIVES MODE    MODE is triplet or shared; trimmed layers with triplet-trimmed and shared-trimmed
    link_steps.py program STORE NEGATIVES MODE   `grappa-train` on the PATH; MODE is uniform or shared
    link_steps.py pyg EDGES NEGATIVES            triplets; needs pyg-lib or torch-sparse
    link_steps.py dgl EDGES NEGATIVES            triplets; needs DGL 2.1

Prints one JSON object. EDGES is what `grappa-gen --as npy` writes: edges.npy, with edges.features.npy beside it. GraphSAGE has 2 layers of
128, fanouts are 10, 10, batches have 1024 positives with NEGATIVES destinations each; shared ones are drawn once per batch. The loss is the
binary cross-entropy of products. `seconds` are the time of 50 steps after the first three: sampling, gathering, forward, backward, and
Adam. `sampling` is the time of as many batches without the model. A trimmed layer leaves out what its outputs do not need; it needs the
sizes of hops, which PyTorch Geometric has with pyg-lib only. `grappa-train` and DGL always leave it out. The seconds of
`grappa-train` are an epoch of 50 steps, with the draw of its edges; the store needs edges for validation.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F

FANOUTS, BATCH, HIDDEN, WARMUP, STEPS = [10, 10], 1024, 128, 3, int(os.environ.get("STEPS", "50"))


def of_grappa(path, negatives, mode):
    import grappa.pyg

    store = grappa.open(path)
    options = {"neg_sampling": {"mode": mode, "amount": negatives}, "exclude_targets": "none", "memory": "8GiB"}
    edges = (WARMUP + STEPS) * BATCH
    # PyTorch Geometric's `neg_sampling` has no shared negatives, so this takes the loader below `grappa.pyg`.
    loader = grappa.LinkNeighborLoader(
        store, FANOUTS, BATCH, "train", edges_per_epoch=edges, shuffle=True, labels=None, device="cpu", **options
    )
    return loader, store.num_features


def of_pyg(edges, negatives):
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader

    pairs = numpy.load(edges)
    # Sorted by destination: the loader then makes no copy.
    index = torch.from_numpy(numpy.ascontiguousarray(pairs[numpy.argsort(pairs[:, 1], kind="stable")].T))
    del pairs
    x = torch.from_numpy(numpy.load(f"{edges.removesuffix('.npy')}.features.npy", mmap_mode="c"))
    torch.manual_seed(1)
    chosen = index[:, torch.randperm(index.shape[1])[: (WARMUP + STEPS) * BATCH]]
    loader = LinkNeighborLoader(
        Data(x=x.clone(), edge_index=index),
        FANOUTS,
        edge_label_index=chosen,
        neg_sampling={"mode": "triplet", "amount": negatives},
        batch_size=BATCH,
        shuffle=True,
        is_sorted=True,
    )
    return loader, x.shape[1]


def of_dgl(edges, negatives):
    import dgl

    pairs = torch.from_numpy(numpy.load(edges))
    x = torch.from_numpy(numpy.load(f"{edges.removesuffix('.npy')}.features.npy"))
    graph = dgl.graph((pairs[:, 0].contiguous(), pairs[:, 1].contiguous()), num_nodes=len(x))
    del pairs
    graph.create_formats_()
    graph.ndata["x"] = x
    torch.manual_seed(1)
    chosen = torch.randperm(graph.num_edges())[: (WARMUP + STEPS) * BATCH]
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler(FANOUTS), negative_sampler=dgl.dataloading.negative_sampler.Uniform(negatives)
    )
    return dgl.dataloading.DataLoader(graph, chosen, sampler, batch_size=BATCH, shuffle=True), x.shape[1]


class DglSage(torch.nn.Module):
    def __init__(self, width):
        from dgl.nn import SAGEConv

        super().__init__()
        self.layers = torch.nn.ModuleList([SAGEConv(width, HIDDEN, "mean"), SAGEConv(HIDDEN, HIDDEN, "mean")])

    def forward(self, blocks):
        x = blocks[0].srcdata["x"]
        x = self.layers[0](blocks[0], x).relu()
        return self.layers[1](blocks[1], x)


def loss_of_dgl(model, batch):
    _, positives, negatives, blocks = batch
    z = model(blocks)
    logits = []
    for pairs in (positives, negatives):
        source, destination = pairs.edges()
        logits.append((z[source] * z[destination]).sum(-1))
    return sum(F.binary_cross_entropy_with_logits(part, torch.full_like(part, label)) for part, label in zip(logits, (1.0, 0.0)))


def run_program(store, negatives, mode):
    """The second epoch of `grappa-train`, of 50 steps: drawing its edges, then steps."""
    with tempfile.TemporaryDirectory() as run:
        command = [
            "grappa-train", store, "--task", "link", "--fanouts", ",".join(map(str, FANOUTS)), "--batch", BATCH, "--hidden", HIDDEN,
            "--lr", 0.003, "--dropout", 0, "--negatives", negatives, "--negative-sampling", mode, "--exclude-targets", "none",
            "--epochs", 2, "--eval-every", 2, "--edges-per-epoch", STEPS * BATCH, "--memory", "8GiB", "--out", run, "--force",
        ]  # fmt: skip
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        with open(f"{run}/metrics.jsonl") as file:
            epoch = json.loads(file.readlines()[1])
    stages = epoch["seconds_by_stage"]
    seconds = epoch["seconds"] - sum(stages[stage] for stage in ("evaluate", "checkpoint", "report"))
    return {
        "seconds": seconds,
        "evaluate": stages["evaluate"],
        "edges": epoch["sampled_edges"] / STEPS,
        "peak MiB": epoch["peak_rss_bytes"] >> 20,
    }


def loss_of(model, batch, trims):
    hops = {f"num_sampled_{what}_per_hop": getattr(batch, f"num_sampled_{what}") for what in ("nodes", "edges")} if trims else {}
    z = model(batch.x, batch.edge_index, **hops)
    sources, positives, negatives = z[batch.src_index], z[batch.dst_pos_index], z[batch.dst_neg_index]
    ahead = (sources * positives).sum(-1)
    mask = getattr(batch, "neg_mask", None)
    if mask is None:
        behind = (sources.unsqueeze(1) * negatives.view(len(sources), -1, z.shape[1])).sum(-1).flatten()
    else:
        behind = (sources @ negatives.T)[mask.bool()]
    return F.binary_cross_entropy_with_logits(ahead, torch.ones_like(ahead)) + F.binary_cross_entropy_with_logits(
        behind, torch.zeros_like(behind)
    )


def timed(loader, step):
    """Seconds of the steps after the first ones, and the edges of a batch."""
    edges = 0
    for index, batch in enumerate(loader):
        if index == WARMUP:
            begin, edges = time.perf_counter(), 0
        step(batch)
        edges += batch.edge_index.shape[1] if hasattr(batch, "edge_index") else sum(block.num_edges() for block in batch[3])
        if index + 1 == WARMUP + STEPS:
            break
    return time.perf_counter() - begin, edges / STEPS


def main():
    peer, source, negatives, *rest = sys.argv[1:]
    negatives, mode = int(negatives), rest[0] if rest else "triplet"
    if peer == "program":
        print(json.dumps(run_program(source, negatives, mode)))
        return
    mode, *trims = mode.split("-")
    torch.manual_seed(1)
    if peer == "dgl":
        loader, width = of_dgl(source, negatives)
        model = DglSage(width)
    else:
        from torch_geometric.nn import GraphSAGE

        loader, width = of_pyg(source, negatives) if peer == "pyg" else of_grappa(source, negatives, mode)
        model = GraphSAGE(width, HIDDEN, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def read(batch):
        return batch[3][0].srcdata["x"] if peer == "dgl" else batch.x

    def step(batch):
        optimizer.zero_grad()
        loss = loss_of_dgl(model, batch) if peer == "dgl" else loss_of(model, batch, bool(trims))
        loss.backward()
        optimizer.step()

    sampling, _ = timed(loader, read)
    seconds, edges = timed(loader, step)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": seconds, "sampling": sampling, "edges": edges, "peak MiB": memory}))


if __name__ == "__main__":
    main()
