"""Steps of link prediction on a large graph, fed by Grappa and by PyTorch Geometric: the same model, and the same loss.

    link_steps.py grappa STORE NEGATIVES MODE    MODE is triplet or shared; trimmed layers with triplet-trimmed and shared-trimmed
    link_steps.py pyg EDGES NEGATIVES            triplets; needs pyg-lib or torch-sparse

Prints one JSON object. EDGES is what `grappa-gen --as npy` writes: edges.npy, with edges.features.npy beside it. GraphSAGE has 2 layers of
128, fanouts are 10, 10, batches have 1024 positives with NEGATIVES destinations each; shared ones are drawn once per batch. The loss is the
binary cross-entropy of products. `seconds` are the time of 50 steps after the first three: sampling, gathering, forward, backward, and
Adam. `sampling` is the time of as many batches without the model. A trimmed layer leaves out what its outputs do not need; it needs the
sizes of hops, which PyTorch Geometric has with pyg-lib only.
"""

import json
import os
import resource
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

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
        edges += batch.edge_index.shape[1]
        if index + 1 == WARMUP + STEPS:
            break
    return time.perf_counter() - begin, edges / STEPS


def main():
    peer, source, negatives, *rest = sys.argv[1:]
    mode, *trims = rest[0].split("-") if rest else ["triplet"]
    loader, width = of_pyg(source, int(negatives)) if peer == "pyg" else of_grappa(source, int(negatives), mode)
    torch.manual_seed(1)
    model = GraphSAGE(width, HIDDEN, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

    def step(batch):
        optimizer.zero_grad()
        loss_of(model, batch, bool(trims)).backward()
        optimizer.step()

    sampling, _ = timed(loader, lambda batch: batch.x)
    seconds, edges = timed(loader, step)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps({"seconds": seconds, "sampling": sampling, "edges": edges, "peak MiB": memory}))


if __name__ == "__main__":
    main()
