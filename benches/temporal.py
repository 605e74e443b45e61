#!/usr/bin/env python3
"""Edges per second of minibatches of seeds at a time, next to the untimed loader, PyTorch Geometric and GraphBolt.

The graph is R-MAT with the parameters of Graph500, so its in-degrees have a long tail, and each edge has a random second of half a year.
Seeds are random nodes at the middle of that time; fanouts are 10,10, and a batch has 600 seeds. Contenders take turns. Needs
`grappa-ingest` and `grappa-store` (`cargo build --release -p grappa-ingest -p grappa-store`) and a Python with NumPy and PyArrow.

`cold` drops the page cache before each run and gives `--memory`; it needs root.
"""

import argparse
import json
import os
import statistics
import subprocess
from pathlib import Path

import numpy as np
import page
import pyarrow
import pyarrow.parquet

ROOT = Path(__file__).resolve().parent.parent
PEER = Path(__file__).resolve().parent / "peers" / "temporal.py"
FIRST, LAST = 1_700_000_000, 1_716_000_000
LIMIT = (FIRST + LAST) // 2
BATCH = 600
SEED_BATCHES = 700
WARM_BATCHES = 20


def write_graph(folder, scale, edges):
    """Writes edges.parquet, and graph.npz with adjacency lists for peers."""
    random = np.random.default_rng(1)
    source, target = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
    for bit in range(scale):
        draw = random.random(edges, dtype=np.float32)
        source |= (draw >= 0.76).astype(np.int64) << bit
        target |= ((draw >= 0.57) & (draw < 0.76) | (draw >= 0.95)).astype(np.int64) << bit
    names = random.permutation(1 << scale)
    source, target = names[source], names[target]
    times = random.integers(FIRST, LAST, edges)
    columns = pyarrow.table({"source": source, "target": target, "time": times})
    pyarrow.parquet.write_table(columns, folder / "edges.parquet")
    order = np.argsort(target * (LAST - FIRST) + (times - FIRST))
    indptr = np.zeros((1 << scale) + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=1 << scale), out=indptr[1:])
    nodes = np.unique(np.concatenate([source, target]))
    seeds = np.random.default_rng(2).permutation(nodes)[: BATCH * SEED_BATCHES]
    lists = {"indptr": indptr, "indices": source[order], "time": times[order]}
    np.savez(folder / "graph.npz", **lists, seeds=seeds, limit=LIMIT)


def ingest(folder):
    columns = ["--src", "source", "--dst", "target", "--time", "time", "--time-unit", "s", "--ids", "sparse"]
    program = ROOT / "target/release/grappa-ingest"
    subprocess.run([program, "--edges", folder / "edges.parquet", *columns, "--out", folder / "graph.grappa"], check=True)


def sample(program, folder, options, batches, cold):
    """Edges, seconds, and seconds of the processor of the whole program."""
    if cold:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
    command = [program, "sample", folder / "graph.grappa", "--fanouts", "10,10", "--batch", BATCH, "--batches", batches]
    run = subprocess.Popen([*map(str, [*command, "--seeds", "all", "--json", *options])], stdout=subprocess.PIPE)
    with run.stdout as out:
        found = json.load(out)
    _, status, usage = os.wait4(run.pid, 0)
    if status != 0:
        raise SystemExit(f"{program} failed")
    return found["sampled_edges"], found["seconds"], usage.ru_utime + usage.ru_stime


def measure_grappa(program, folder, options, batches, cold):
    """Millions of edges per second, and per second of the processor. What opening takes is subtracted."""
    edges, seconds, processor = sample(program, folder, options, WARM_BATCHES + batches, cold)
    if cold:
        return edges / seconds / 1e6, edges / processor / 1e6
    before, _, opening = sample(program, folder, options, WARM_BATCHES, cold)
    return edges / seconds / 1e6, (edges - before) / (processor - opening) / 1e6


def measure_peer(python, peer, folder, batches, threads, strategy):
    command = [python, PEER, peer, folder / "graph.npz", batches, threads, strategy]
    out = subprocess.run([*map(str, command)], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(out.splitlines()[-1])
    return found["edges"] / found["seconds"] / 1e6, found["edges"] / found["processor"] / 1e6


def contenders_of(options):
    """The name of each contender, and the function that measures it."""
    folder, batches = options.work, options.batches
    programs = {"grappa": ROOT / "target/release/grappa-store"}
    if options.before:
        programs["grappa before"] = options.before
    at = ["--seed-time", str(LIMIT)]
    draws = {"untimed": [], "uniform": at, "last": [*at, "--time-strategy", "last"]}
    views = ["mapped"] if options.cold else ["memory", "mapped"]
    memory = ["--memory", options.memory] if options.memory else []
    for threads in options.threads:
        for name, program in programs.items():
            for view in views:
                for draw, arguments in draws.items():
                    arguments = [*arguments, "--view", view, "--threads", str(threads), *memory]
                    yield (
                        [name, view, draw, threads],
                        lambda program=program, arguments=arguments: measure_grappa(program, folder, arguments, batches, options.cold),
                    )
        for peer, python, strategies in [
            ("pyg", options.pyg_python, ["uniform", "last"]),
            ("graphbolt", options.graphbolt_python, ["uniform"]),
        ]:
            for strategy in strategies if python and not options.cold else []:
                yield (
                    [peer, "memory", strategy, threads],
                    lambda python=python, peer=peer, threads=threads, strategy=strategy: measure_peer(
                        python, peer, folder, options.peer_batches, threads, strategy
                    ),
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the graph; it stays there for the next run")
    parser.add_argument("--scale", type=int, default=20, help="2 to this number of nodes")
    parser.add_argument("--edges", type=float, default=1e7)
    parser.add_argument("--batches", type=int, default=600)
    parser.add_argument("--peer-batches", type=int, default=30)
    parser.add_argument("--threads", type=lambda text: [int(word) for word in text.split(",")], default=[1])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="drop the page cache before each run; lists are mapped")
    parser.add_argument("--memory", help="memory of grappa-store")
    parser.add_argument("--before", type=Path, help="another grappa-store, to compare with")
    parser.add_argument("--pyg-python", help="a Python with PyTorch Geometric and pyg-lib")
    parser.add_argument("--graphbolt-python", help="a Python with DGL")
    parser.add_argument("--record", type=Path, help="append the section to this page")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "graph.npz").exists():
        write_graph(options.work, options.scale, int(options.edges))
    if not (options.work / "graph.grappa").exists():
        ingest(options.work)
    contenders = list(contenders_of(options))
    found = [[] for _ in contenders]
    for _ in range(options.turns):
        for results, (_, run) in zip(found, contenders):
            results.append(run())
    rows = []
    for (name, _), results in zip(contenders, found):
        seconds, processor = zip(*results)
        rows.append([*name, f"{statistics.median(seconds):.2f}", f"{min(seconds):.2f} to {max(seconds):.2f}", f"{statistics.median(processor):.2f}"])
    header = ["contender", "lists", "draws", "threads", "million edges per second", "range", "per second of the processor"]
    question = "How many edges per second does a loader draw for seeds at a time, next to peers?"
    page.finish(question, options.work, [page.table(header, rows)], options.record)


if __name__ == "__main__":
    main()
