"""Training from disk: the features take more memory than the process may have.

    pip install grappa torch torch_geometric
    python out_of_core.py [NODES]

It makes the store large.grappa in the current folder, with 2 KiB of features for each node. Then it starts itself again in a
control group whose limit counts the page cache too, and trains. If it may not make a control group, only the loader's own budget
holds.
"""

import os
import subprocess
import sys
from pathlib import Path

import grappa

NODES = int(sys.argv[1]) if len(sys.argv) > 1 else 500_000
FEATURES, CLASSES = 512, 8
LIMIT = 900 << 20
GROUP = Path(f"/sys/fs/cgroup/memory/grappa-example-{os.getpid()}")  # version 1; version 2 calls its file memory.max


def train():
    import torch
    from torch_geometric.nn import GraphSAGE

    import grappa.pyg

    store = grappa.open("large.grappa")
    loader = grappa.pyg.NeighborLoader(store, [5, 5], "train", batch_size=256, shuffle=True, memory="150MiB")
    model = GraphSAGE(store.num_features, 64, num_layers=2, out_channels=CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for step, batch in enumerate(loader):
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step} of {len(loader)}: loss {loss.item():.3f}")
    print(f"trained on {NODES * FEATURES * 4 >> 20} MiB of features")


if os.environ.get("GRAPPA_EXAMPLE") == "train":
    train()
    sys.exit()
if not Path("large.grappa").exists():
    # Communities: in-neighbors are often of the same class. Features alone say little.
    options = {"nodes": NODES, "classes": CLASSES, "feature_dim": FEATURES, "edge_factor": 8, "train_fraction": 0.1}
    print(grappa.generate("sbm", out="large.grappa", **options))
command = [sys.executable, __file__, str(NODES)]
try:
    GROUP.mkdir()
    (GROUP / "memory.limit_in_bytes").write_text(str(LIMIT))
    command = ["sh", "-c", 'echo $$ > "$0"/cgroup.procs && exec "$@"', str(GROUP), *command]
    print(f"a control group limits memory and page cache to {LIMIT >> 20} MiB")
except OSError as error:
    print(f"no control group, so the limit is the loader's own: {error}")
code = subprocess.call(command, env={**os.environ, "GRAPPA_EXAMPLE": "train"})
if GROUP.exists():
    peak = int((GROUP / "memory.max_usage_in_bytes").read_text())
    print(f"a peak of {peak >> 20} MiB of memory and page cache")
    GROUP.rmdir()
sys.exit(code)
