"""Temporary files are new and private: whatever has their names already is neither followed, changed nor removed."""

import os
import subprocess
import sys

import numpy as np
import pytest

import grappa

EDGES = np.array([[0, 1], [1, 2], [2, 0]])


def tree(folder):
    """The content, kind, mode and time of all that is below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_ino, status.st_mtime_ns, content)
    return found


def plant_link(path, victim):
    path.symlink_to(victim)


def plant_dangling_link(path, victim):
    path.symlink_to(victim / "nothing")


def plant_file(path, _):
    path.write_text("mine")


def plant_pipe(path, _):
    os.mkfifo(path)


def stream(ids):
    """A stream that can be read once, of edges from each id to itself."""
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"source": ids, "target": ids})
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def lazy(ids):
    return pytest.importorskip("polars").LazyFrame({"source": ids, "target": ids})


@pytest.mark.parametrize("make", [stream, lazy, np.array])
def test_ingest_leaves_nothing_beside_the_store(make, tmp_path):
    edges = make([0, 1, 2]) if make is not np.array else EDGES
    assert grappa.ingest(edges, out=tmp_path / "x.grappa").num_edges == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.grappa"]


def test_a_stream_has_a_file_without_a_name(tmp_path):
    pa = pytest.importorskip("pyarrow")
    names = []

    def batches():
        for first in range(0, 600_000, 100_000):
            ids = np.arange(first, first + 100_000)
            yield pa.record_batch({"source": ids, "target": ids})
            names.extend(path.name for path in tmp_path.iterdir())

    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    store = grappa.ingest(pa.RecordBatchReader.from_batches(schema, batches()), out=tmp_path / "x.grappa")
    assert store.num_edges == 600_000 and not names


@pytest.mark.parametrize("plant", [plant_link, plant_dangling_link, plant_file, plant_pipe])
def test_a_result_of_inference_follows_no_link(plant, store, tmp_path):
    torch = pytest.importorskip("torch")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    out = tmp_path / "rows.npy"
    plant(tmp_path / f"rows.npy.partial-{os.getpid()}", victim)
    before = tree(tmp_path)
    rows = grappa.inference(store, torch.nn.Identity(), layers=[lambda x, batch: x[1]], nodes=[3, 0], out=out)
    assert np.array_equal(rows, store.features[[3, 0]])
    after = tree(tmp_path)
    assert after.pop("rows.npy") and after == before


FULL_DISK = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from test_temporary import lazy, np, stream
import grappa
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    grappa.ingest({edges}, {options} out=sys.argv[1] + '/x')
except grappa.Error as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ("np.arange(20000).reshape(-1, 2)", "features=np.ones((20000, 200)),", "/x.partial/"),
        ("stream(list(map(str, range(20000))))", "ids='string',", ": this cannot be written"),
        ("lazy(list(range(20000)))", "", ": this cannot be written"),
    ],
)
def test_a_full_disk_is_an_error_that_names_the_place(edges, options, message, tmp_path):
    for name in ("pyarrow", "polars"):
        pytest.importorskip(name)
    script = FULL_DISK.format(edges=edges, options=options)
    line = [sys.executable, "-c", script, str(tmp_path), os.path.dirname(__file__)]
    shown = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    assert str(tmp_path) in shown and message in shown


@pytest.mark.parametrize("length", [230, 245])
def test_a_long_name_is_a_name(length, store, tmp_path):
    name = "n" * length
    assert grappa.ingest(EDGES, out=tmp_path / name).num_edges == 3
    torch = pytest.importorskip("torch")
    out = tmp_path / f"{name}.npy"
    grappa.inference(store, torch.nn.Identity(), layers=[lambda x, batch: x[1]], nodes=[3], out=out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, f"{name}.npy"]


def test_a_name_that_is_too_long_is_an_error(store, tmp_path):
    torch = pytest.importorskip("torch")
    with pytest.raises(grappa.Error, match="too long"):
        grappa.ingest(EDGES, out=tmp_path / ("n" * 300))
    with pytest.raises(grappa.Error, match="too long"):
        grappa.inference(store, torch.nn.Identity(), layers=[lambda x, batch: x[1]], nodes=[3], out=tmp_path / ("n" * 300))
    assert not list(tmp_path.iterdir())
