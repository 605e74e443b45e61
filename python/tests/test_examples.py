"""The examples of docstrings run."""

import doctest
import importlib.util
import inspect
import pathlib
import sys

import numpy as np
import pytest

import grappa
from grappa import generation, graph, ingestion, links, loader, runs, store

MODULES = [generation, graph, ingestion, links, loader, store]
try:
    from grappa import convolutions, embedding, hetero, layers, layerwise, model, ops, pyg, samplers, sparse_adam
except ImportError:
    pass
else:
    MODULES += [convolutions, embedding, hetero, layers, layerwise, model, ops, pyg, runs, samplers, sparse_adam]


#: The package that an item's example needs.
NEEDED = {"to_pyg": "torch_geometric", "to_scipy": "scipy", "node_times": "pyarrow", "NeighborLoader": "pyarrow"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module, cora, typed, tmp_path, request):
    names = {"grappa": grappa, "np": np, "cora": cora, "folder": pathlib.Path(tmp_path), "store": grappa.open(cora)}
    names["typed"] = grappa.Graph(typed)
    if module.__name__ in ("grappa.model", "grappa.runs"):
        names["run"] = request.getfixturevalue("run")
    failed = attempted = 0
    for example in doctest.DocTestFinder().find(module, extraglobs=names):
        package = NEEDED.get(example.name.rpartition(".")[2])
        if package is not None and importlib.util.find_spec(package) is None:
            continue
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example)
        failed, attempted = failed + result.failed, attempted + result.attempted
    assert failed == 0 and attempted > 0


def test_every_public_item_has_an_example():
    items = [getattr(grappa, name) for name in grappa.__all__] + [runs.BestLinks, store.InEdges]
    if "grappa.pyg" in sys.modules:
        items += [grappa.Embedding, grappa.SparseAdam, model.load, *(getattr(pyg, name) for name in pyg.__all__), *(getattr(ops, name) for name in ops.__all__)]
    for item in items:
        if not callable(item) or inspect.isclass(item) and issubclass(item, Exception):
            continue
        methods = vars(item).items() if inspect.isclass(item) else ()
        public = [value for name, value in methods if inspect.isfunction(value) and not name.startswith("_")]
        # An error that a method raises always is no example.
        for one in [item, *public]:
            assert ">>>" in one.__doc__ or one.__doc__.startswith("Raises"), one
