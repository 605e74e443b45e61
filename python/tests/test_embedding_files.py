"""Rows of embeddings on disk: generations are never modified, and belong to a graph, a type and a dimension."""

import copy
import errno
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import grappa

torch = pytest.importorskip("torch")

from grappa import embedding_files  # noqa: E402

DIM = 5


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "rows"


def step(embedding, nodes=(0, 1), lr=0.1):
    embedding(list(nodes)).sum().backward()
    grappa.SparseAdam(embedding, lr=lr).step()


def contents(folder):
    """The bytes of all files of a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_step_modifies_no_generation(store, folder):
    embedding = grappa.Embedding(store, None, DIM, path=folder)
    assert (embedding.generation, str(embedding.path)) == (1, str(folder))
    first = contents(folder)
    assert sorted(path.name for path in first) == ["header.json", "values.npy"]
    step(embedding)
    assert contents(folder) == first
    assert embedding.save() == 2 == embedding.save()
    step(embedding)
    second = contents(folder)
    assert {path: second[path] for path in first} == first
    assert np.array_equal(np.load(folder / "generation-00000001/values.npy"), grappa.Embedding(store, None, DIM).rows)
    assert np.load(folder / "generation-00000002/updates.npy")[:3].tolist() == [1, 1, 0]
    assert embedding.save(keep=2) == 3
    assert sorted(os.listdir(folder)) == ["generation-00000002", "generation-00000003"]
    step(embedding)
    assert embedding.save() == 4 and len(os.listdir(folder)) == 3
    for number in (2, 3, 4):
        opened = grappa.Embedding(store, None, DIM, path=folder, generation=number)
        saved = np.load(folder / f"generation-{number:08}/values.npy")
        assert opened.generation == number and np.array_equal(opened.rows, saved)


def test_an_earlier_generation_continues_as_a_new_one(store, folder):
    with grappa.Embedding(store, None, DIM, path=folder) as embedding:
        for _ in range(2):
            step(embedding)
            embedding.save()
    with grappa.Embedding(store, None, DIM, path=folder, generation=2) as embedding:
        step(embedding)
    assert embedding.generation == 4
    rows = [np.load(folder / f"generation-{number:08}/values.npy") for number in (3, 4)]
    assert np.array_equal(*rows)


def test_a_killed_process_loses_what_was_not_saved_and_nothing_else(store, folder):
    script = f"""
import grappa, os, signal
embedding = grappa.Embedding({str(store.path)!r}, None, {DIM}, path={str(folder)!r})
optimizer = grappa.SparseAdam(embedding, lr=0.1)
for number in range(2):
    embedding([0, 1]).sum().backward()
    optimizer.step()
    if number == 0:
        embedding.save()
os.mkdir({str(folder)!r} + "/generation-00000003.partial-0123")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    embedding = grappa.Embedding(store, None, DIM, path=folder)
    expected = grappa.Embedding(store, None, DIM)
    step(expected)
    assert embedding.generation == 2 and torch.equal(embedding.rows, expected.rows)
    step(embedding)
    step(expected)
    assert embedding.save() == 3 and torch.equal(embedding.rows, expected.rows)
    assert not [name for name in os.listdir(folder) if "partial" in name]


def test_a_folder_of_other_rows_is_refused(store, typed, folder, tmp_path):
    graph = grappa.Graph(typed)
    grappa.Embedding(graph, "author", DIM, path=folder)
    before = contents(folder)
    others = [(graph, "author", 4, "dim 4, found 5"), (graph, "paper", DIM, "node_type 'paper', found 'author'")]
    for other, name, dim, message in [*others, (store, None, DIM, "graph '[0-9a-f]{16}', found '[0-9a-f]{16}'")]:
        with pytest.raises(grappa.Error, match=f"has rows of another embedding: expected {message}; .* or give another path="):
            grappa.Embedding(other, name, dim, path=folder)
    with pytest.raises(grappa.Error, match=r"generation=7: .* has the generations \[1\]; give one of them"):
        grappa.Embedding(graph, "author", DIM, path=folder, generation=7)
    assert contents(folder) == before
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/text").write_text("mine")
    with pytest.raises(grappa.Error, match=r"has files, and no rows of an embedding; give path=\.\.\. a new or an empty folder"):
        grappa.Embedding(graph, "author", DIM, path=tmp_path / "notes")
    with pytest.raises(grappa.Error, match="text: this cannot be written: File exists; give another path="):
        grappa.Embedding(graph, "author", DIM, path=tmp_path / "notes/text")


def test_damaged_rows_are_found_before_they_are_trained(store, folder):
    grappa.Embedding(store, None, DIM, path=folder)
    values, header = folder / "generation-00000001/values.npy", folder / "generation-00000001/header.json"
    sound = values.read_bytes()
    values.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(grappa.Error, match=r"values.npy: damaged: expected the checksum \d+, found \d+"):
        step(grappa.Embedding(store, None, DIM, path=folder))
    values.write_bytes(sound[:-4])
    with pytest.raises(grappa.Error, match=rf"values.npy: expected {len(sound)} bytes, found {len(sound) - 4}"):
        grappa.Embedding(store, None, DIM, path=folder)
    values.unlink()
    with pytest.raises(grappa.Error, match="values.npy: this cannot be read: No such file"):
        grappa.Embedding(store, None, DIM, path=folder)
    text = json.loads(header.read_text())
    header.write_text(json.dumps({**text, "version": 2}))
    with pytest.raises(grappa.Error, match="expected grappa embedding of version 1, found version 2"):
        grappa.Embedding(store, None, DIM, path=folder)
    header.write_text("{")
    with pytest.raises(grappa.Error, match="header.json: expected the header of rows"):
        grappa.Embedding(store, None, DIM, path=folder)


def test_two_embeddings_cannot_train_the_same_rows(store, folder):
    first, second = (grappa.Embedding(store, None, DIM, path=folder) for _ in range(2))
    step(first)
    with pytest.raises(grappa.Error, match="another embedding trains these rows; close it first"):
        step(second)
    first.close()
    assert torch.equal(second.rows, grappa.Embedding(store, None, DIM).rows)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        copy.deepcopy(second)


def test_a_full_disk_is_an_error_and_leaves_the_rows(store, folder, monkeypatch):
    embedding = grappa.Embedding(store, None, DIM, path=folder)
    before = contents(folder)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(embedding_files.os, "posix_fallocate", full)
    with pytest.raises(grappa.Error, match=r"No space left on device; give path=\.\.\. a folder with free space"):
        step(embedding)
    monkeypatch.undo()
    step(embedding)
    monkeypatch.setattr(embedding_files.os, "fsync", full)
    with pytest.raises(grappa.Error, match="generation-00000002: this cannot be written: No space left"):
        embedding.save()
    monkeypatch.undo()
    assert contents(folder) == before and embedding.save() == 2
