#!/usr/bin/env python3
"""Batches per second of loaders of a graph with several node types.

    benches/typed.py memory --work DIR --graphbolt-python peers/bin/python
    benches/typed.py cold --work DIR --papers 2000000 --dim 768 --edges 24000000 --batches 10 --graphbolt-python peers/bin/python
    benches/typed.py untyped --work DIR --turns 8

`memory` measures Grappa, PyTorch Geometric and GraphBolt with the graph in memory. `cold` measures them with features on disk: nothing is
cached, and a control group allows memory for a quarter of the features, page cache included. `untyped` measures Grappa alone, on a
graph with one type and one relation, ingested with types and without.

The graph is like OGB-MAG: papers with features, authors, institutions and fields of study, and reverse relations. Degrees have a heavy
tail. Each contender is a process of its own (peers/typed.py), and they take turns. It needs a Python with the packages grappa, PyTorch
Geometric and pyg-lib or torch-sparse.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import grappa
import numpy as np
import page
import torch
from torch_geometric.data import Data, HeteroData

#: Of all edges, the share of each relation; and nodes per paper, as in OGB-MAG.
RELATIONS = {
    ("author", "writes", "paper"): 0.34,
    ("paper", "cites", "paper"): 0.26,
    ("author", "affiliated_with", "institution"): 0.05,
    ("paper", "has_topic", "field_of_study"): 0.35,
}
NODES = {"paper": 1, "author": 1.54, "institution": 0.0114, "field_of_study": 0.0857}
UNTYPED = {("paper", "cites", "paper"): 1}
PEERS = Path(__file__).parent / "peers" / "typed.py"
#: Rows of features that are drawn at once.
ROWS = 1 << 16


def write_graph(folder, edges, papers, dim, untyped):
    """Writes the arrays of a graph, edges sorted by destination, and a CSC of all relations for GraphBolt."""
    random = np.random.default_rng(1)
    nodes = {name: max(int(papers * share), 10) for name, share in NODES.items() if not untyped or name == "paper"}
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float32, (papers, dim))
    for first in range(0, papers, ROWS):
        rows = features[first : first + ROWS]
        rows[:] = random.standard_normal(rows.shape, np.float32)
    del features
    np.save(folder / "labels.npy", random.integers(0, 349, papers))
    np.save(folder / "seeds.npy", np.flatnonzero(random.random(papers) < 0.85))
    relations = []
    for (source, name, destination), share in (UNTYPED if untyped else RELATIONS).items():
        count = int(edges * share if untyped else edges * share / 2)
        # The square of a uniform number: the first nodes have most edges.
        ends = np.stack([(nodes[end] * random.random(count) ** 2).astype(np.int64) for end in (source, destination)])
        relations.append(((source, name, destination), ends))
        if not untyped:
            relations.append(((destination, f"rev_{name}", source), ends[::-1]))
    for number, (relation, ends) in enumerate(relations):
        ends = np.ascontiguousarray(ends[:, np.argsort(ends[1], kind="stable")])
        relations[number] = (relation, ends)
        np.save(folder / f"edges-{number}.npy", ends)
    write_csc(folder, nodes, relations)
    graph = {"nodes": nodes, "relations": [relation for relation, _ in relations], "seeds": "paper"}
    (folder / "graph.json").write_text(json.dumps(graph))


def write_csc(folder, nodes, relations):
    """One CSC for GraphBolt: nodes of all types are numbered one after another, and in-edges of a node are sorted by relation."""
    first = dict(zip(nodes, np.cumsum([0, *nodes.values()]), strict=False))
    destinations = np.concatenate([ends[1] + first[relation[2]] for relation, ends in relations])
    order = np.argsort(destinations, kind="stable")
    indices = np.concatenate([(ends[0] + first[relation[0]]).astype(np.int32) for relation, ends in relations])
    np.save(folder / "indices.npy", indices[order])
    types = np.repeat(np.arange(len(relations), dtype=np.uint8), [ends.shape[1] for _, ends in relations])
    np.save(folder / "types.npy", types[order])
    counts = np.bincount(destinations, minlength=sum(nodes.values()))
    np.save(folder / "indptr.npy", np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


def ingest(folder, untyped):
    """Makes the stores of a graph."""
    graph = json.loads((folder / "graph.json").read_text())
    data, plain = HeteroData(), Data(num_nodes=graph["nodes"]["paper"])
    for name, count in graph["nodes"].items():
        data[name].num_nodes = count
    mask = torch.zeros(graph["nodes"]["paper"], dtype=torch.bool)
    mask[torch.from_numpy(np.load(folder / "seeds.npy"))] = True
    for papers in (data["paper"], plain):
        papers.x = torch.from_numpy(np.load(folder / "features.npy", mmap_mode="c"))
        papers.y = torch.from_numpy(np.load(folder / "labels.npy"))
        papers.train_mask = mask
    for number, relation in enumerate(graph["relations"]):
        data[tuple(relation)].edge_index = plain.edge_index = torch.from_numpy(np.load(folder / f"edges-{number}.npy"))
    grappa.ingest(data, out=folder / "graph.grappa")
    if untyped:
        grappa.ingest(plain, out=folder / "untyped.grappa")


@contextlib.contextmanager
def memory_limit(size):
    """A control group that limits memory, page cache included: a shell command that moves the shell into it. Needs root."""
    if size is None:
        yield "true"
        return
    root, limit = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
    if not os.path.exists(root):
        root, limit = "/sys/fs/cgroup", "memory.max"
    group = Path(root) / f"grappa-bench-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(size))
        yield f"echo $$ > {group}/cgroup.procs"
    finally:
        group.rmdir()


def drop_from_cache(folder):
    """Drops all files of a folder from the page cache."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(python, contender, folder, options, limit):
    """What a contender prints, or None if it failed."""
    with memory_limit(limit) as enter:
        if limit is not None:
            drop_from_cache(folder)
        command = [python, str(PEERS), contender, str(folder), json.dumps(options)]
        child = subprocess.run(["sh", "-c", f'{enter} && exec "$@"', "sh", *command], stdout=subprocess.PIPE, text=True)
    return json.loads(child.stdout.splitlines()[-1]) if child.returncode == 0 else None


def contenders_of(options):
    """By name: a Python, a contender of peers/typed.py, and its options."""
    if options.mode == "untyped":
        return {f"Grappa, {name}": (sys.executable, "grappa", {"untyped": name == "untyped"}) for name in ("typed", "untyped")}
    contenders = {"Grappa": (sys.executable, "grappa", {})}
    for workers in options.workers:
        contenders[f"PyTorch Geometric, {workers} workers"] = (sys.executable, "pyg", {"workers": workers})
    for workers in options.workers if options.graphbolt_python else []:
        contenders[f"GraphBolt, {workers} workers"] = (options.graphbolt_python, "graphbolt", {"workers": workers})
    return contenders


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=["memory", "cold", "untyped"], nargs="?", default="memory")
    parser.add_argument("--work", type=Path, required=True, help="folder of the graph and its store")
    parser.add_argument("--edges", type=int, default=20_000_000, help="edges with their reverses")
    parser.add_argument("--papers", type=int, default=350_000)
    parser.add_argument("--dim", type=int, default=128, help="values of a paper's features")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 10])
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=40, help="batches of a turn, of Grappa 4 times as many")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2], help="numbers of workers of peers; the best counts")
    parser.add_argument("--memory", help="budget of our loader")
    parser.add_argument("--graphbolt-python", help="a Python with GraphBolt")
    parser.add_argument("--record", type=Path, help="append the section to this page")
    options = parser.parse_args()
    untyped, cold = options.mode == "untyped", options.mode == "cold"
    folder = options.work / f"typed-{'plain-' if untyped else ''}{options.edges}-{options.papers}-{options.dim}"
    if not (folder / "graph.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_graph(folder, options.edges, options.papers, options.dim, untyped)
    if not (folder / "graph.grappa").exists():
        ingest(folder, untyped)
    limit = options.papers * options.dim if cold else None
    contenders, results = contenders_of(options), {}
    for _ in range(options.turns):
        for name, (python, contender, settings) in contenders.items():
            batches = options.batches * (4 if contender == "grappa" else 1)
            settings = {"workers": 0, "untyped": False, "mapped": cold, "warmup": 0 if cold else 5, "batches": batches, **settings}
            settings |= {"fanouts": options.fanouts, "batch": options.batch, "memory": options.memory}
            results.setdefault(name, []).append(measure(python, contender, folder, settings, limit))
            print(name, results[name][-1], file=sys.stderr, flush=True)
    rows, medians = [], {}
    for name, turns in results.items():
        if None in turns:
            rows.append([name, "failed", "", "", ""])
            continue
        rates = [1 / turn["seconds"] for turn in turns]
        medians[name] = statistics.median(rates)
        edges = f"{statistics.mean(turn['edges'] for turn in turns):,.0f}"
        row = [name, f"{medians[name]:.2f}", f"{min(rates):.2f}-{max(rates):.2f}", edges, max(turn["peak_mib"] for turn in turns)]
        rows.append(row + [f"{statistics.median(turn['processor_ms'] for turn in turns):.1f}"] * untyped)
    header = ["", "batches/s", "range", "edges of a batch", "peak RSS, MiB"]
    paragraphs = [page.table(header + ["processor ms per batch"] * untyped, rows)]
    ours = medians.pop(next(iter(contenders)), None)
    for name in ["Grappa, untyped"] if untyped else ["PyTorch Geometric", "GraphBolt"]:
        best = max((rate for peer, rate in medians.items() if peer.startswith(name)), default=None)
        if ours and best:
            paragraphs.append(f"- {ours / best:.2f} times {name}.")
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    paragraphs.append(f"Load at the end: {load}.")
    page.finish("How many batches per second does a loader of a typed graph give, next to peers?", options.work, paragraphs, options.record)


if __name__ == "__main__":
    main()
