"""Share of cut edges: `grappa-ingest --assign ldg` and `fennel` next to METIS and random parts.

Usage: python partitioners.py FOLDER... [--parts 4,16]

A folder has `edges.npy`, of shape (2, E) or (E, 2). `grappa-ingest` is on the PATH; pymetis is installed.
"""

import argparse
import re
import subprocess
import tempfile
import time
from pathlib import Path

import numpy
import pymetis


def ends(folder):
    """Both ends of each edge, without self-loops and parallel edges."""
    edges = numpy.load(folder / "edges.npy")
    if edges.shape[0] != 2:
        edges = edges.T
    low, high = numpy.minimum(*edges), numpy.maximum(*edges)
    pairs = numpy.unique(numpy.stack([low, high])[:, low != high], axis=1)
    return pairs.astype(numpy.int64)


def metis(pairs, nodes, parts):
    """The part of each node."""
    sources, targets = numpy.concatenate([pairs, pairs[::-1]], axis=1)
    order = numpy.argsort(sources, kind="stable")
    starts = numpy.zeros(nodes + 1, dtype=numpy.int64)
    numpy.cumsum(numpy.bincount(sources, minlength=nodes), out=starts[1:])
    _, part = pymetis.part_graph(parts, pymetis.CSRAdjacency(starts, targets[order]))
    return numpy.array(part)


def streamed(folder, partitioner, parts):
    """The percentage of cut edges that ingest reports, its seconds, and the seconds of an ingest at random."""
    with tempfile.TemporaryDirectory() as out:
        command = ["grappa-ingest", "--edges", folder / "edges.npy", "--out", f"{out}/graph.grappa", "--force", "-v", "--assign"]
        seconds = []
        for assign in "random", f"{partitioner}:{parts}":
            start = time.time()
            done = subprocess.run([*command, assign], check=True, capture_output=True, text=True)
            seconds.append(time.time() - start)
    cut = re.search(r"([0-9.]+) % of the edges are between parts", done.stderr)
    return float(cut[1]), *seconds[::-1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--parts", default="4,16")
    options = parser.parse_args()
    print("| graph | parts | random | ldg | fennel | METIS | ldg, s | fennel, s | ingest at random, s | METIS, s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for folder in options.folders:
        pairs = ends(folder)
        nodes = int(pairs.max()) + 1
        for parts in map(int, options.parts.split(",")):
            ldg, ldg_s, random_s = streamed(folder, "ldg", parts)
            fennel, fennel_s, _ = streamed(folder, "fennel", parts)
            start = time.time()
            part = metis(pairs, nodes, parts)
            metis_s = time.time() - start
            cut = 100 * numpy.mean(part[pairs[0]] != part[pairs[1]])
            print(
                f"| {folder.name} | {parts} | {100 - 100 / parts:.1f} | {ldg:.1f} | {fennel:.1f} | {cut:.1f} | "
                f"{ldg_s:.1f} | {fennel_s:.1f} | {random_s:.1f} | {metis_s:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
