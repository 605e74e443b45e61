#!/usr/bin/env python3
"""Seconds of a training step of typed models, loader included: grappa-train next to PyTorch Geometric.

    benches/typed_training.py --work DIR --edges 20000000 --papers 740000

The graph is that of benches/typed.py. Authors, institutions and fields of study get the mean features of their neighbors, which both
sides use. "Trimmed" is the same with what later layers need alone (`trim_to_layer`). Each contender is a process of its own, and they take turns. PyTorch Geometric samples with its best number of workers of 0
and 2. It needs a Python with the packages grappa, PyTorch Geometric and pyg-lib or torch-sparse.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import typed

import grappa

PEER = Path(__file__).parent / "peers" / "typed_training.py"
#: The other types, in the order in which their neighbors have features.
MEANS = {"author": ["paper:rev_writes:author"], "institution": None, "field_of_study": None}


def prepare(folder, edges, papers, dim):
    """Writes the graph and its stores, and gives all types features."""
    typed.write_graph(folder, edges, papers, dim, False)
    typed.ingest(folder, False)
    graph = grappa.Graph(folder / "graph.grappa")
    for name, relations in MEANS.items():
        graph.add_features("mean", type=name, **({"relations": relations} if relations else {}))
        np.save(folder / f"features-{name}.npy", graph[name].features[:])


def pyg(folder, model, options, workers, trims=False):
    command = [sys.executable, str(PEER), str(folder), json.dumps({**options, "model": model, "workers": workers, "trims": trims})]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(child.stdout.splitlines()[-1])["seconds"]


def ours(folder, model, options):
    """The mean of a step in the second epoch."""
    fixed = {"fanouts": options["fanouts"], "batch": options["batch"], "hidden": options["hidden"], "steps_per_epoch": options["steps"]}
    more = {"epochs": 2, "eval_every": 2, "evaluate": "sampled", "memory": "8GiB", "threads": 2, "force": True}
    run = grappa.train(folder / "graph.grappa", out=folder / "run", model=model, **fixed, **more)
    metrics = run.metrics
    stages = ("load", "sample", "forward", "backward", "exchange")
    return sum(float(metrics[f"seconds_by_stage.{stage}"][1]) for stage in stages if f"seconds_by_stage.{stage}" in metrics) / options["steps"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the graph")
    parser.add_argument("--edges", type=int, default=20_000_000, help="edges of all relations and their reverses")
    parser.add_argument("--papers", type=int, default=740_000, help="papers")
    parser.add_argument("--dim", type=int, default=128, help="features of a paper")
    parser.add_argument("--steps", type=int, default=50, help="steps that are measured")
    parser.add_argument("--turns", type=int, default=3, help="turns of all contenders")
    arguments = parser.parse_args()
    folder = arguments.work
    if not (folder / "features-field_of_study.npy").exists():
        folder.mkdir(parents=True, exist_ok=True)
        prepare(folder, arguments.edges, arguments.papers, arguments.dim)
    options = {"fanouts": [10, 10], "batch": 1024, "hidden": 128, "steps": arguments.steps}
    print("| model | PyTorch Geometric, s/step | its layers, trimmed, on Grappa's loader | Grappa, s/step | ratio of medians | of trimmed |")
    print("|---|---:|---:|---:|---:|---:|")
    for model in ("rsage", "hgt"):
        best = min((0, 2), key=lambda workers: pyg(folder, model, options, workers))
        turns = [
            (pyg(folder, model, options, best), pyg(folder, model, options, 0, True), ours(folder, model, options))
            for _ in range(arguments.turns)
        ]
        medians = [statistics.median(times) for times in zip(*turns)]
        shown = " | ".join(f"{median:.3f} ({min(times):.3f} to {max(times):.3f})" for median, times in zip(medians, zip(*turns)))
        print(f"| {model} | {shown} | {medians[0] / medians[2]:.1f} | {medians[1] / medians[2]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
