"""Out-of-core graph stores, and minibatches from them, for PyTorch and PyTorch Geometric.

>>> import grappa
>>> grappa.ingest("edges.tsv", features="features.npy", labels="labels.npy", split="60/20/20", out="g.grappa")
>>> store = grappa.open("g.grappa")
>>> loader = grappa.NeighborLoader(store, num_neighbors=[15, 10], batch_size=1024, input_nodes="train")

Node numbers are those of the input: node k is the one with the k-th smallest id, which is k itself if ids are dense.
"""

from ._grappa import Error, __version__
from .ingestion import ingest
from .loader import Batch, NeighborLoader
from .store import Store, open

__all__ = ["Batch", "Error", "NeighborLoader", "Store", "__version__", "ingest", "open"]
