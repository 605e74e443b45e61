"""DistDGL's training on several hosts, as its example node_classification.py does it: each host has a part of the graph, and fetches the
features of other hosts' nodes for each minibatch.

    distdgl.py check                                    import DistDGL; prints the versions
    distdgl.py divide FOLDER PARTS METHOD OUT           divide the graph into parts; METHOD is `metis` or `random`
    distdgl.py host PARTS SETTINGS OUT                  serve a part, train, and write the figures of this host to the file OUT

FOLDER has the arrays that `time_to_accuracy.py prepare` leaves. SETTINGS is a JSON object. The environment of `host` has RANK, WORLD_SIZE,
MASTER_ADDR and MASTER_PORT, as torchrun sets them, and GLOO_SOCKET_IFNAME. Servers of one host share memory by name, so each host needs a
/dev/shm of its own.

`host` writes a JSON object: the seconds of each epoch, the bytes that the interface sent meanwhile, the steps, and the test accuracy of
the last epoch. The evaluation samples neighbors with the fanouts of training, and is not timed.
"""

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy

NAME = "graph"


def check():
    import dgl
    import dgl.distributed
    import torch

    print(f"DistDGL {dgl.__version__}, torch {torch.__version__}")


def divide(folder, parts, method, out):
    import dgl
    import torch

    arrays = {name: numpy.load(f"{folder}/{name}.npy") for name in ["indptr", "indices", "features", "labels", "train", "val", "test"]}
    graph = dgl.graph(("csc", (torch.from_numpy(arrays["indptr"]), torch.from_numpy(arrays["indices"]), [])))
    # The layers have f32 parameters, and take no other features.
    graph.ndata["features"] = torch.from_numpy(arrays["features"].astype(numpy.float32))
    graph.ndata["labels"] = torch.from_numpy(arrays["labels"].astype(numpy.int64))
    for split in ["train", "test"]:
        mask = torch.zeros(graph.num_nodes(), dtype=torch.bool)
        mask[torch.from_numpy(arrays[split])] = True
        graph.ndata[split] = mask
    balance = {"balance_ntypes": graph.ndata["train"], "balance_edges": True} if method == "metis" else {}
    dgl.distributed.partition_graph(graph, NAME, int(parts), out, part_method=method, **balance)
    numpy.save(f"{out}/classes.npy", arrays["labels"].max() + 1)


def host(parts, settings, out):
    """Runs a server in a process of its own, and a trainer here."""
    import dgl

    settings = SimpleNamespace(**json.loads(settings))
    hosts = f"{out}.hosts"
    with open(hosts, "w") as file:
        file.writelines(f"{address} {settings.port}\n" for address in settings.addresses)
    os.environ.update(
        DGL_DIST_MODE="distributed",
        DGL_IP_CONFIG=hosts,
        DGL_NUM_SERVER="1",
        DGL_NUM_CLIENT=os.environ["WORLD_SIZE"],
        DGL_NUM_SAMPLER="0",
        DGL_CONF_PATH=f"{parts}/{NAME}.json",
        DGL_GRAPH_FORMAT="csc",
    )
    serve = "import sys, dgl; dgl.distributed.initialize(sys.argv[1])"
    roles = {"DGL_ROLE": "server", "DGL_SERVER_ID": os.environ["RANK"]}
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", serve, hosts], env=os.environ | roles, stdout=sys.stderr, preexec_fn=end_with_parent
    )
    os.environ["DGL_ROLE"] = "client"
    figures = train(parts, hosts, settings)
    with open(out, "w") as file:
        json.dump(figures, file)
    # The servers end when all trainers have left.
    dgl.distributed.exit_client()
    server.wait()


def end_with_parent():
    """Asks the kernel to kill this process when its parent ends (PR_SET_PDEATHSIG): a server does not end by itself if a trainer fails."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def sent_bytes():
    """What the interface of this host has sent."""
    with open("/proc/self/net/dev") as lines:
        row = next(line for line in lines if line.strip().startswith(os.environ["GLOO_SOCKET_IFNAME"] + ":"))
    return int(row.split(":")[1].split()[8])


def train(parts, hosts, settings):
    import dgl
    import torch
    import torch.nn.functional as F
    from dgl.nn import SAGEConv

    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    dgl.distributed.initialize(hosts)
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(NAME, part_config=f"{parts}/{NAME}.json")
    book = graph.get_partition_book()
    mine = {split: dgl.distributed.node_split(graph.ndata[split], book, force_even=True) for split in ["train", "test"]}

    def loader(split, shuffle):
        # DGL counts fanouts from the input.
        sampler = dgl.dataloading.NeighborSampler(settings.fanouts[::-1])
        return dgl.dataloading.DistNodeDataLoader(
            graph, mine[split], sampler, batch_size=settings.batch, shuffle=shuffle, drop_last=False
        )

    def read(inputs, seeds):
        return graph.ndata["features"][inputs], graph.ndata["labels"][seeds]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            inputs, classes = graph.ndata["features"].shape[1], int(numpy.load(f"{parts}/classes.npy"))
            sizes = [inputs] + [settings.hidden] * (settings.layers - 1) + [classes]
            self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in itertools.pairwise(sizes))

        def forward(self, blocks, rows):
            for i, (layer, block) in enumerate(zip(self.layers, blocks)):
                rows = layer(block, rows)
                if i + 1 < len(self.layers):
                    rows = F.dropout(F.relu(rows), 0.5, training=self.training)
            return rows

    model = Model()
    shared = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(shared.parameters(), lr=settings.lr)
    batches = loader("train", shuffle=True)
    epochs = []
    for _ in range(settings.epochs):
        torch.distributed.barrier()
        begin, before, steps = time.perf_counter(), sent_bytes(), 0
        with shared.join():
            for inputs, seeds, blocks in batches:
                rows, labels = read(inputs, seeds)
                loss = F.cross_entropy(shared(blocks, rows), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps += 1
        torch.distributed.barrier()
        epochs.append({"seconds": time.perf_counter() - begin, "bytes": sent_bytes() - before, "steps": steps})

    model.eval()
    right = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for inputs, seeds, blocks in loader("test", shuffle=False):
            rows, labels = read(inputs, seeds)
            right += torch.tensor([(model(blocks, rows).argmax(1) == labels).sum(), len(labels)])
    torch.distributed.all_reduce(right)
    return {"epochs": epochs, "test_accuracy": (right[0] / right[1]).item()}


if __name__ == "__main__":
    {"check": check, "divide": divide, "host": host}[sys.argv[1]](*sys.argv[2:])
