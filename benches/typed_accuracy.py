#!/usr/bin/env python3
"""Scores of PyTorch Geometric's examples of graphs with several node types, with its loaders and with those of Grappa.

    benches/typed_accuracy.py --seeds 5

The models and the data are those of python/tests/test_typed_scripts.py: areas of authors in DBLP, ratings in MovieLens-100k, and pairs of
users and movies. It needs a Python with the packages grappa, pytest, PyTorch Geometric and pyg-lib or torch-sparse.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import torch_geometric.loader

import grappa.pyg

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
import test_typed_scripts as scripts  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = range(1, parser.parse_args().seeds + 1)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        dblp = scripts.read_dblp()
        train, test, learned = scripts.split_of(scripts.read_movielens(folder))
        authors, ratings = folder / "authors.grappa", folder / "ratings.grappa"
        grappa.ingest(dblp, out=authors)
        grappa.ingest(learned, out=ratings)
        jobs = {
            "areas of authors, accuracy in %": (100, authors, dblp, lambda *loader: scripts.accuracy_of_authors(*loader[:2], dblp, loader[2])),
            "ratings, root of the mean squared error": (1, ratings, learned, lambda *loader: scripts.error_of_ratings(*loader[:2], train, test, loader[2])),
            "pairs, accuracy in %": (100, ratings, learned, lambda *loader: scripts.accuracy_of_pairs(*loader[:2], train, test, loader[2])),
        }
        print("| score | PyTorch Geometric | Grappa | difference |")
        print("|---|---:|---:|---:|")
        for name, (scale, graph, data, score) in jobs.items():
            scores = {"pyg": [], "grappa": []}
            for seed in seeds:
                scores["pyg"].append(scale * score(torch_geometric.loader, data, seed))
                scores["grappa"].append(scale * score(grappa.pyg, grappa.Graph(graph), seed))
            means = [statistics.mean(values) for values in scores.values()]
            shown = [f"{statistics.mean(values):.3f} ± {statistics.stdev(values):.3f}" for values in scores.values()]
            print(f"| {name} | {' | '.join(shown)} | {means[1] - means[0]:+.3f} |", flush=True)


if __name__ == "__main__":
    main()
