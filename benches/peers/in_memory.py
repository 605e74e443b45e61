"""SciPy's way from an edge list to CSR by destination: in memory, in one thread, nothing written.

    in_memory.py EDGES NODES

EDGES is a .npy array of int64, one row (source, destination) an edge, or text with a tab between the two, which pandas reads.
SciPy merges parallel edges. Prints one JSON object; `seconds` leaves out the start of Python and its imports.
"""

import json
import sys
import time

import numpy
import scipy.sparse


def read(path):
    if path.endswith(".npy"):
        return numpy.load(path)
    import pandas

    begin = time.perf_counter()
    table = pandas.read_csv(path, sep="\t", header=None, dtype="int64", engine="c")
    print(f"read in {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    return table.to_numpy()


def main():
    path, nodes = sys.argv[1], int(sys.argv[2])
    version = f"scipy {scipy.__version__}, numpy {numpy.__version__}"
    if not path.endswith(".npy"):
        import pandas

        version = f"pandas {pandas.__version__}, {version}"

    begin = time.perf_counter()
    edges = read(path)
    # The narrowest values: only where they stand matters.
    ones = numpy.ones(len(edges), dtype=numpy.int8)
    matrix = scipy.sparse.coo_matrix((ones, (edges[:, 1], edges[:, 0])), shape=(nodes, nodes)).tocsr()
    seconds = time.perf_counter() - begin

    print(json.dumps({"edges": matrix.nnz, "seconds": seconds, "version": version}))


if __name__ == "__main__":
    main()
