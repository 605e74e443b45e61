"""A failed allocation is an exception, and the interpreter lives on."""

import subprocess
import sys
from pathlib import Path

import numpy as np

import grappa

PROGRAM = """
import resource, sys
import numpy as np
import grappa

store = grappa.Store(sys.argv[1])
nodes = np.tile(np.arange(store.num_nodes), 40_000)
with open("/proc/self/statm") as statm:
    size = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (96 << 20), resource.RLIM_INFINITY))
try:
    store.features[nodes]
except MemoryError as error:
    print("refused:", error)
print("alive:", store.features[np.arange(3)].shape[0])
"""


def test_rows_that_the_system_has_no_memory_for_are_a_memory_error(tmp_path: Path) -> None:
    edges = np.stack([np.arange(300), (np.arange(300) * 7 + 1) % 300])
    features = np.ones((300, 64), dtype=np.float32)
    grappa.ingest(edges, out=tmp_path / "store", features=features)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    refused, alive = ran.stdout.splitlines()
    assert refused.startswith("refused: cannot get ") and "ulimit" in refused
    assert alive == "alive: 3"
