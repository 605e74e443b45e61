"""DGL GraphBolt's way from an edge list to its sampling graph on disk.

    graphbolt.py prepare EDGES NODES FOLDER     make a dataset folder of EDGES, in the shape that GraphBolt reads
    graphbolt.py ingest FOLDER                  preprocess it

EDGES is a .npy array of int64, one row (source, destination) an edge, or text with a tab between the two. GraphBolt reads arrays of
two rows and text with commas; making those is not measured. `ingest` prints one JSON object; `seconds` is the time of
`preprocess_ondisk_dataset` with its defaults, without the start of Python and the imports.
"""

import json
import os
import shutil
import sys
import time

METADATA = """\
dataset_name: rmat
graph:
  nodes:
    - num: {nodes}
  edges:
    - format: {format}
      path: {path}
feature_data: []
tasks: []
"""


def prepare(edges, nodes, folder):
    scratch = folder + ".new"
    shutil.rmtree(scratch, ignore_errors=True)
    os.makedirs(scratch)
    if edges.endswith(".npy"):
        import numpy

        form, path = "numpy", "edges.npy"
        pairs = numpy.load(edges, mmap_mode="r")
        numpy.save(os.path.join(scratch, path), numpy.ascontiguousarray(pairs.T))
    else:
        form, path = "csv", "edges.csv"
        with open(edges, "rb") as tabs, open(os.path.join(scratch, path), "wb") as commas:
            while block := tabs.read(1 << 22):
                commas.write(block.replace(b"\t", b","))
    with open(os.path.join(scratch, "metadata.yaml"), "w") as metadata:
        metadata.write(METADATA.format(nodes=nodes, format=form, path=path))
    os.rename(scratch, folder)


def ingest(folder):
    # Its progress goes to stdout, which is for the result.
    stdout = os.dup(1)
    os.dup2(2, 1)
    import dgl
    import dgl.graphbolt
    import torch

    begin = time.perf_counter()
    dgl.graphbolt.preprocess_ondisk_dataset(folder)
    seconds = time.perf_counter() - begin

    graph = torch.load(os.path.join(folder, "preprocessed", "fused_csc_sampling_graph.pt"))
    version = f"dgl {dgl.__version__}, torch {torch.__version__}"
    result = {"edges": graph.total_num_edges, "seconds": seconds, "version": version}
    os.write(stdout, (json.dumps(result) + "\n").encode())


def main():
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        ingest(sys.argv[2])


if __name__ == "__main__":
    main()
