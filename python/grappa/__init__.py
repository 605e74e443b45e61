"""Out-of-core graph stores, and minibatches from them, for PyTorch and PyTorch Geometric.

>>> import grappa
>>> grappa.ingest("edges.tsv", features="features.npy", labels="labels.npy", split="60/20/20", out="g.grappa")
>>> store = grappa.open("g.grappa")
>>> loader = grappa.NeighborLoader(store, num_neighbors=[15, 10], batch_size=1024, input_nodes="train")

Node numbers follow the ids of the input: node k is the one with the k-th smallest id, which is k itself if ids are dense.
"""

from . import _processor

_processor.require()

#: The module of each public name. It is imported when the name is first used: NumPy alone takes longer than `import grappa` may.
#: ``__init__.pyi`` has the same names for type checkers.
_MODULES = {
    "Batch": "loader",
    "Block": "loader",
    "Error": "_grappa",
    "Graph": "graph",
    "LayerBatch": "layers",
    "LinkBatch": "links",
    "LinkNeighborLoader": "links",
    "NeighborLoader": "loader",
    "NodeType": "graph",
    "Relation": "graph",
    "Run": "runs",
    "Store": "store",
    "TypedLayerBatch": "layers",
    "__version__": "_grappa",
    "generate": "generation",
    "inference": "layerwise",
    "ingest": "ingestion",
    "open": "graph",
    "train": "runs",
}
#: The module of each public name that needs PyTorch, which the first use imports; ``from grappa import *`` leaves them out.
_WITH_TORCH = {"Embedding": "embedding", "SparseAdam": "sparse_adam"}
#: Modules that need other packages; ``from grappa import *`` leaves them out, too.
_SUBMODULES = ("model", "ops", "pyg")

__all__ = list(_MODULES)


def __getattr__(name):
    import importlib

    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = _MODULES.get(name) or _WITH_TORCH.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted([*_MODULES, *_WITH_TORCH, *_SUBMODULES])
