"""Trains a PyG model in partitions that exchange nothing but gradients, with DistributedDataParallel.

    torchrun --nproc-per-node 4 python/examples/ddp_partitions.py graph.grappa --model gat
    python python/examples/ddp_partitions.py graph.grappa --model gat --partitions 1        # the whole graph, for comparison

Each process serves some of the partitions. Without a store, the script ingests Cora from the files of a clone.
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GAT, GraphSAGE

import grappa
import grappa.pyg

CORA = Path(__file__).resolve().parents[2] / "tests" / "data" / "cora"


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", nargs="?", default="cora.grappa", help="default: Cora, ingested if it is missing")
    parser.add_argument("--model", choices=("sage", "gat"), default="sage")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--num-neighbors", type=int, nargs="+", default=[15, 10])
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds of a step, over all partitions")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--memory", help="of each process; default: its share of half of the free memory")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def ingest_cora(path):
    splits = {name: CORA / f"{name}.npy" for name in ("train", "val", "test")}
    files = {"features": CORA / "features.npz", "labels": CORA / "labels.npy", **splits}
    grappa.ingest(CORA / "edges.tsv", undirected=True, out=path, **files)


def accuracy(model, store, split, layers):
    """The share of nodes whose class is predicted right, with all their neighbors in the whole graph."""
    model.eval()
    right = nodes = 0
    with torch.no_grad():
        for batch in grappa.pyg.NeighborLoader(store, [-1] * layers, split, batch_size=4096):
            predicted = model(batch.x, batch.edge_index)[: batch.batch_size].argmax(dim=1)
            right += int((predicted == batch.y[: batch.batch_size]).sum())
            nodes += batch.batch_size
    model.train()
    return right / nodes


def main():
    args = options()
    if "RANK" in os.environ:  # torchrun
        dist.init_process_group("gloo")
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    if is_first and args.store == "cora.grappa" and not Path(args.store).exists():
        ingest_cora(args.store)
    if dist.is_initialized():
        dist.barrier()

    store = grappa.open(args.store)
    # Rank and number of processes are as torch.distributed has them.
    loader = grappa.pyg.NeighborLoader(
        store,
        args.num_neighbors,
        "train",
        batch_size=-(-args.batch_size // args.partitions),
        shuffle=True,
        partitions=args.partitions,
        memory=args.memory,
        seed=args.seed,
    )
    torch.manual_seed(args.seed)
    kind, heads = {"sage": (GraphSAGE, {}), "gat": (GAT, {"heads": 4})}[args.model]
    layers = len(args.num_neighbors)
    model = kind(store.num_features, args.hidden, layers, store.num_classes, dropout=0.5, **heads)
    trained = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        for batch in loader:
            optimizer.zero_grad()
            out = trained(batch.x, batch.edge_index)[: batch.batch_size]
            # With this weight, all seeds count alike in the mean that DistributedDataParallel takes over processes.
            loss = F.cross_entropy(out, batch.y[: batch.batch_size]) * batch.loss_weight
            loss.backward()
            optimizer.step()
        if is_first and (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: validation accuracy {accuracy(model, store, 'val', layers):.4f}", flush=True)
    if is_first:
        print(f"test accuracy {accuracy(model, store, 'test', layers):.4f}")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
