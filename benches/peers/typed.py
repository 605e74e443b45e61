"""Batches per second of a loader of a graph with node types.

    typed.py CONTENDER FOLDER OPTIONS

CONTENDER is `grappa`, `pyg` (which needs pyg-lib or torch-sparse) or `graphbolt`. FOLDER has the graph as `benches/typed.py` writes it. OPTIONS
is a JSON object: `fanouts`, `batch`, `batches`, `warmup` (batches that are not timed), `workers`, `memory` (Grappa's budget), and
`mapped`: features are mapped with MADV_RANDOM, since read-ahead would read what nobody wants, and the time includes the start of the
loader's workers. `untyped` is a store without types for Grappa.

Prints one JSON object, with means of a batch. `processor_ms` leaves out workers, and so does `read_mib`, which
the process has read from the disk from its start.
"""

import json
import mmap
import sys
import time
from pathlib import Path

import numpy
import torch


def features_of(folder, mapped):
    array = numpy.load(folder / "features.npy", mmap_mode="c" if mapped else None)
    if mapped:
        array._mmap.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(array)


def read(folder, name):
    return torch.from_numpy(numpy.load(folder / f"{name}.npy"))


def grappa(folder, graph, options):
    """Our loader, and how to count the edges of a batch."""
    import grappa.pyg

    store, seeds = ("untyped.grappa", "train") if options["untyped"] else ("graph.grappa", (graph["seeds"], "train"))
    shared = {"batch_size": options["batch"], "shuffle": True, "memory": options["memory"]}
    loader = grappa.pyg.NeighborLoader(folder / store, options["fanouts"], seeds, **shared)
    return loader, lambda batch: batch.num_edges


def pyg(folder, graph, options):
    from torch_geometric.data import HeteroData
    from torch_geometric.loader import NeighborLoader

    data = HeteroData()
    for name, count in graph["nodes"].items():
        data[name].num_nodes = count
    data[graph["seeds"]].x = features_of(folder, options["mapped"])
    data[graph["seeds"]].y = read(folder, "labels")
    for number, relation in enumerate(graph["relations"]):
        data[tuple(relation)].edge_index = read(folder, f"edges-{number}")
    workers = {"num_workers": options["workers"], "persistent_workers": options["workers"] > 0}
    seeds = (graph["seeds"], read(folder, "seeds"))
    loader = NeighborLoader(data, options["fanouts"], seeds, batch_size=options["batch"], shuffle=True, is_sorted=True, **workers)
    return loader, lambda batch: batch.num_edges


def graphbolt(folder, graph, options):
    import dgl.graphbolt as gb

    types = {name: number for number, name in enumerate(graph["nodes"])}
    relations = {":".join(relation): number for number, relation in enumerate(graph["relations"])}
    offsets = torch.tensor([0, *graph["nodes"].values()]).cumsum(0)
    sampled = gb.fused_csc_sampling_graph(
        read(folder, "indptr"),
        read(folder, "indices"),
        node_type_offset=offsets,
        type_per_edge=read(folder, "types"),
        node_type_to_id=types,
        edge_type_to_id=relations,
    )
    features = gb.TorchBasedFeature(features_of(folder, options["mapped"]))
    labels = gb.TorchBasedFeature(read(folder, "labels").unsqueeze(1))
    seeds = gb.ItemSet((read(folder, "seeds").to(torch.int32),), names=("seed_nodes",))
    pipe = gb.ItemSampler(gb.ItemSetDict({graph["seeds"]: seeds}), batch_size=options["batch"], shuffle=True)
    pipe = pipe.sample_neighbor(sampled, [torch.full((len(relations),), fanout) for fanout in options["fanouts"]])
    store = gb.BasicFeatureStore({("node", graph["seeds"], "x"): features, ("node", graph["seeds"], "y"): labels})
    pipe = pipe.fetch_feature(store, node_feature_keys={graph["seeds"]: ["x", "y"]})
    loader = gb.DataLoader(pipe, num_workers=options["workers"])
    return loader, lambda batch: sum(len(csc.indices) for hop in batch.sampled_subgraphs for csc in hop.sampled_csc.values())


def main():
    contender, folder, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    graph = json.loads((folder / "graph.json").read_text())
    loader, count_edges = {"grappa": grappa, "pyg": pyg, "graphbolt": graphbolt}[contender](folder, graph, options)
    begin, processor, edges, count = time.perf_counter(), time.process_time(), 0, 0
    for batch in loader:
        count += 1
        if count == options["warmup"]:
            begin, processor, edges = time.perf_counter(), time.process_time(), 0
            continue
        edges += count_edges(batch)
        if count == options["warmup"] + options["batches"]:
            break
    timed = count - options["warmup"]
    if timed <= 0:
        sys.exit(f"an epoch has {count} batches, and {options['warmup']} are not timed; enlarge the graph, or give a smaller --batch")
    seconds, processor = (time.perf_counter() - begin) / timed, (time.process_time() - processor) / timed
    # Unlike `ru_maxrss`, this does not start at the peak of the process that started this one.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) >> 10
    storage = Path("/proc/self/io").read_text().splitlines()
    read = next(int(line.split()[1]) for line in storage if line.startswith("read_bytes:")) >> 20
    result = {"seconds": seconds, "processor_ms": 1e3 * processor, "edges": edges // timed, "peak_mib": peak, "read_mib": read}
    print(json.dumps(result), flush=True)


# Worker processes import this file again where they are not forked.
if __name__ == "__main__":
    main()
