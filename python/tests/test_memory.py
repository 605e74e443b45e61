"""A failed allocation is an exception, and the interpreter lives on."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import grappa

#: Runs a case in the addresses that are left: its preparation, the limit, and what needs more.
PROGRAM = """
import resource, sys
import numpy as np
import grappa

folder, case, mebibytes = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = grappa.Store(folder + "/store")
many = np.tile(np.arange(store.num_nodes), 40_000)
drawn = dict(memory="1GiB", threads=2)
loaders = {
    "batches": lambda: grappa.NeighborLoader(store, [-1, -1], 300, None, **drawn),
    "disjoint": lambda: grappa.NeighborLoader(store, [-1, -1], 300, None, disjoint=True, **drawn),
    "triplets": lambda: grappa.LinkNeighborLoader(store, [5], 20_000, neg_sampling={"mode": "triplet", "amount": 500}, **drawn),
    "pairs": lambda: grappa.LinkNeighborLoader(store, [5], 20_000, neg_sampling={"mode": "binary", "amount": 500}, **drawn),
}
loader = loaders[case]() if case in loaders else None
unsigned = many.astype(np.uint64)
with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (mebibytes << 20), resource.RLIM_INFINITY))
cases = {
    "rows": lambda: store.features[many],
    "ids": lambda: store.ids(many),
    "nodes": lambda: store.nodes(unsigned),
    "ingest": lambda: grappa.ingest(folder + "/edges.npy", out=folder + f"/{mebibytes}.grappa", memory="512MiB", threads=2, force=True),
}
try:
    cases.get(case, lambda: list(loader))()
except MemoryError as error:
    print("refused:", error)
print("alive:", store.features[np.arange(3)].shape[0])
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("memory")
    random = np.random.default_rng(3)
    edges = np.unique(random.integers(0, 300, (20_000, 2)), axis=0)
    features = np.ones((300, 64), dtype=np.float32)
    grappa.ingest(edges, out=folder / "store", features=features)
    np.save(folder / "edges.npy", random.integers(0, 1 << 20, (2_000_000, 2)))
    return folder


@pytest.mark.parametrize(
    "case,mebibytes",
    [
        *(("rows", size) for size in (8, 96)),
        *(("ids", size) for size in (8, 96)),
        *(("nodes", size) for size in (8, 96)),
        ("batches", 4),
        *(("disjoint", size) for size in (8, 32)),
        *(("triplets", size) for size in (8, 96)),
        *(("pairs", size) for size in (8, 96)),
        ("ingest", 48),
    ],
)
def test_memory_that_the_system_refuses_is_a_memory_error(case: str, mebibytes: int, folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), case, str(mebibytes)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    refused, alive = ran.stdout.splitlines()
    assert refused.startswith("refused: cannot ") and "ulimit" in refused
    assert alive == "alive: 3"
