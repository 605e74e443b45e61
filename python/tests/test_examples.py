"""The examples of docstrings run."""

import doctest
import importlib.util
import inspect
import pathlib

import numpy as np
import pytest

import grappa
from grappa import generation, ingestion, loader, runs, store

MODULES = [generation, ingestion, loader, store]
try:
    from grappa import convolutions, layerwise, pyg
except ImportError:
    pass
else:
    MODULES += [convolutions, layerwise, pyg, runs]


#: The package that an item's example needs.
NEEDED = {"to_pyg": "torch_geometric", "to_scipy": "scipy"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module, cora, tmp_path, request):
    names = {"grappa": grappa, "np": np, "cora": cora, "folder": pathlib.Path(tmp_path), "store": grappa.open(cora)}
    if module is runs:
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
    for name in grappa.__all__:
        item = getattr(grappa, name)
        if inspect.isclass(item) and not issubclass(item, Exception) and name != "Batch":
            assert ">>>" in item.__doc__, name
