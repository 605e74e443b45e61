"""Temporary files are new and private: whatever has their names already is neither followed, changed nor removed."""

import os
import subprocess
import sys

import numpy as np
import pytest

import grappa
from grappa.temporary import MARK

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


def plant_open_folder(path, _):
    path.mkdir()
    path.chmod(0o777)


def plant_folder_of_a_group(path, _):
    path.mkdir()
    path.chmod(0o750)


def plant_folder_with_files(path, _):
    path.mkdir(mode=0o700)
    (path / "edges.npy").write_text("mine")


def plant_folder_with_a_link(path, victim):
    path.mkdir(mode=0o700)
    (path / "edges.npy").symlink_to(victim / "edges.npy")


def plant_marked_folder_with_a_folder(path, _):
    path.mkdir(mode=0o700)
    (path / MARK).touch()
    (path / "edges.npy").mkdir()


PLANTS = [value for name, value in list(globals().items()) if name.startswith("plant_")]


@pytest.mark.parametrize("plant", PLANTS)
def test_what_others_have_put_there_stays_as_it_is(plant, tmp_path):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "edges.npy").write_text("precious")
    (victim / "other").write_text("precious")
    work = tmp_path / "work"
    work.mkdir()
    plant(work / ".grappa-inputs-x.grappa", victim)
    before = tree(tmp_path)
    with pytest.raises(grappa.Error, match=r"\.grappa-inputs-x\.grappa: .*nothing was changed\. Move it away, or give out="):
        grappa.ingest(EDGES, out=work / "x.grappa")
    assert tree(tmp_path) == before
    # What the message says.
    (work / ".grappa-inputs-x.grappa").rename(work / "moved")
    assert grappa.ingest(EDGES, out=work / "x.grappa").num_edges == 3


def test_files_of_an_ingest_that_was_killed_are_removed(tmp_path):
    folder = tmp_path / ".grappa-inputs-x.grappa"
    folder.mkdir(mode=0o700)
    for name in (MARK, "edges.npy", "labels.parquet"):
        (folder / name).write_text("old")
    assert grappa.ingest(EDGES, out=tmp_path / "x.grappa").num_edges == 3
    assert [path.name for path in tmp_path.iterdir()] == ["x.grappa"]


def test_files_need_no_folder(tmp_path):
    np.save(tmp_path / "edges.npy", EDGES)
    plant_pipe(tmp_path / ".grappa-inputs-x.grappa", None)
    assert grappa.ingest(tmp_path / "edges.npy", out=tmp_path / "x.grappa").num_edges == 3


def test_files_are_private_while_they_are_needed(tmp_path):
    modes = []

    class Edges:
        """Looks at its file while it is read."""

        shape, dtype, ndim = EDGES.shape, EDGES.dtype, 2
        __array__ = None

        def __getitem__(self, rows):
            folder = tmp_path / ".grappa-inputs-x.grappa"
            modes.extend(path.stat().st_mode & 0o777 for path in (folder, folder / "edges.npy"))
            return EDGES[rows]

    grappa.ingest(Edges(), out=tmp_path / "x.grappa")
    assert modes == [0o700, 0o600]


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
import numpy as np, grappa
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    {call}
except grappa.Error as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("grappa.ingest(np.zeros((10000, 2), np.int64), out=sys.argv[1] + '/x')", "/.grappa-inputs-x/edges.npy: this cannot be written"),
        (
            "grappa.ingest([[0, 1]], features=np.ones((10000, 9)), out=sys.argv[1] + '/x')",
            "/.grappa-inputs-x/features.npy: this cannot be written",
        ),
        (
            "pa = __import__('pyarrow'); ids = list(map(str, range(20000))); "
            "grappa.ingest(pa.table({'source': ids, 'target': ids}), ids='string', out=sys.argv[1] + '/x')",
            "/.grappa-inputs-x/edges.parquet: this cannot be written",
        ),
        (
            "pl = __import__('polars'); ids = list(range(20000)); "
            "grappa.ingest(pl.DataFrame({'source': ids, 'target': ids}), out=sys.argv[1] + '/x')",
            "/.grappa-inputs-x/edges.parquet: this cannot be written",
        ),
    ],
)
def test_a_full_disk_is_an_error_that_names_the_file(call, message, tmp_path):
    for name in ("pyarrow", "polars"):
        if name in call:
            pytest.importorskip(name)
    script = FULL_DISK.format(call=call)
    shown = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True).stdout
    assert message in shown and "give out=" in shown
    assert not list(tmp_path.iterdir())


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
