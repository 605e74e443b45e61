"""Minibatches of the Python package.

    python_loader.py rate STORE LAYOUT EPOCHS           batches a second of whole epochs, with features in memory; prints one JSON
    object per epoch
    python_loader.py cold STORE BATCHES MEMORY          batches a second of the first BATCHES, from an empty cache; bipartite blocks
    python_loader.py memory STORE                       growth of memory and threads over 1000 epochs, and over 200 loaders that are
    broken off

LAYOUT is `hops`, `blocks`, or `pyg` for `grappa.pyg.NeighborLoader`. The split `train` has the seeds. Fanouts 15, 10, 5 from the
seeds outwards, batches of 1024 seeds, two threads. For `rate`, an epoch before the first one opens the loader's files and loads
features, and is not timed. For `cold`, whoever starts it drops the store from the page cache, and limits memory.
"""

import gc
import itertools
import json
import os
import sys
import time

import grappa


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def threads():
    return len(os.listdir("/proc/self/task"))


def rate(store, layout, epochs):
    options = {"memory": "8GiB", "threads": 2}
    if layout == "pyg":
        from grappa import pyg

        loader = pyg.NeighborLoader(store, [15, 10, 5], "train", batch_size=1024, shuffle=True, **options)
    else:
        loader = grappa.NeighborLoader(store, [15, 10, 5], 1024, "train", layout=layout, **options)
    for epoch in range(epochs + 1):
        edges = nodes = batches = 0
        begin, processor = time.perf_counter(), time.process_time()
        for batch in loader:
            batches += 1
            nodes += batch.x.shape[0]
            if layout == "blocks":
                edges += sum(block.edge_index.shape[1] for block in batch.blocks)
            else:
                edges += batch.edge_index.shape[1]
        seconds = time.perf_counter() - begin
        if epoch > 0:
            print(
                json.dumps(
                    {
                        "batches_per_s": round(batches / seconds, 2),
                        "processor_ms_per_batch": round(1e3 * (time.process_time() - processor) / batches, 2),
                        "edges_per_batch": edges // batches,
                        "nodes_per_batch": nodes // batches,
                        "peak_rss_mib": resident() >> 20,
                    }
                ),
                flush=True,
            )


def cold(store, count, memory):
    loader = grappa.NeighborLoader(store, [15, 10, 5], 1024, "train", layout="blocks", memory=memory, threads=2)
    begin, edges = time.perf_counter(), 0
    for batch in itertools.islice(loader, count):
        edges += sum(block.edge_index.shape[1] for block in batch.blocks)
    seconds = time.perf_counter() - begin
    print(json.dumps({"batches": count, "batches_per_s": round(count / seconds, 2), "edges_per_batch": edges // count}))


def memory(store):
    loader = grappa.NeighborLoader(store, [10, 5], 64, "train")
    for epoch in range(1001):
        for batch in loader:
            pass
        if epoch in (1, 10, 100, 1000):
            print(json.dumps({"epochs": epoch, "rss_mib": round(resident() / 2**20, 1), "threads": threads()}))
    del loader, batch
    gc.collect()
    print(json.dumps({"loaders": 0, "rss_mib": round(resident() / 2**20, 1), "threads": threads()}))
    for _ in range(200):
        for batch in grappa.NeighborLoader(store, [10, 5], 8, "train"):
            break
    del batch
    gc.collect()
    print(json.dumps({"loaders": 200, "rss_mib": round(resident() / 2**20, 1), "threads": threads()}))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["rate", store, layout, epochs]:
            rate(store, layout, int(epochs))
        case ["cold", store, count, size]:
            cold(store, int(count), size)
        case ["memory", store]:
            memory(store)
        case _:
            sys.exit(__doc__)
