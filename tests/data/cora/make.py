"""Makes the files beside this script from the Cora graph as arrays.

    python3 make.py FOLDER

FOLDER holds Planetoid's Cora with its public split, converted to
edges.npy     int64 [E, 2], each citation in both directions, no self-loops
features.npy  float32 [N, 1433], 0 or 1: whether a word is in a paper
labels.npy    int64 [N], the paper's subject
train.npy, val.npy, test.npy  int64, node ids

The same input gives the same bytes. Needs numpy.
"""

import sys
from pathlib import Path

import numpy as np


def main():
    source, target = Path(sys.argv[1]), Path(__file__).parent

    edges = np.load(source / "edges.npy")
    one_way = edges[edges[:, 0] < edges[:, 1]]
    both_ways = np.concatenate([one_way, one_way[:, ::-1]])
    assert np.array_equal(np.unique(edges, axis=0), np.unique(both_ways, axis=0)), "edges must be symmetric"
    one_way = np.unique(one_way, axis=0)
    with open(target / "edges.tsv", "w", encoding="ascii", newline="\n") as file:
        file.write("# Cora: each citation once, as two paper ids; read it with --undirected\n")
        np.savetxt(file, one_way, fmt="%d", delimiter="\t")

    dense = np.load(source / "features.npy")
    rows, columns = np.nonzero(dense)
    np.savez_compressed(
        target / "features.npz",
        data=dense[rows, columns].astype("<f4"),
        indices=columns.astype("<i4"),
        indptr=np.concatenate([[0], np.bincount(rows, minlength=len(dense)).cumsum()]).astype("<i8"),
        shape=np.array(dense.shape, dtype="<i8"),
        format=np.array(b"csr"),  # scipy.sparse.load_npz asks for it
    )

    for name in ("labels", "train", "val", "test"):
        np.save(target / f"{name}.npy", np.load(source / f"{name}.npy").astype("<i8"))


if __name__ == "__main__":
    main()
