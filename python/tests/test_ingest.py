"""Files and arrays make the same store."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import CORA

import grappa


def test_arrays_are_ingested_as_files_are(cora, store, tmp_path):
    edges = np.loadtxt(CORA / "edges.tsv", dtype=np.int64)
    other = grappa.ingest(
        edges,
        features=store.features[:],
        labels=np.load(CORA / "labels.npy"),
        train=np.load(CORA / "train.npy"),
        undirected=True,
        dedup=True,
        out=tmp_path / "arrays.grappa",
    )
    assert other.num_edges == store.num_edges
    assert np.array_equal(other.labels[:], store.labels[:])
    assert np.array_equal(other.features[[3, 2000]], store.features[[3, 2000]])
    assert np.array_equal(other.split("train"), store.split("train"))
    assert other.ingested["edges_read"] == len(edges)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["arrays.grappa"]


def test_unknown_options_are_named(tmp_path):
    with pytest.raises(ValueError, match="undirectd="):
        grappa.ingest(CORA / "edges.tsv", undirectd=True, out=tmp_path / "x.grappa")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"ids": "strings"}, {"option": "ids", "found": "strings", "expected": "dense, sparse, string"}),
        ({"memory": "lots"}, {"option": "memory", "found": "lots"}),
        ({"undirectd": True}, {"option": "undirectd"}),
        ({"memory": "1MiB"}, {"option": "memory", "found": str(1 << 20)}),
        ({"ids": "sparse", "nodes": 5}, {"remedy": "omit nodes="}),
    ],
)
def test_errors_about_arguments_have_fields(options, fields, tmp_path):
    with pytest.raises((ValueError, grappa.Error)) as raised:
        grappa.ingest(**{"edges": CORA / "edges.tsv", "out": tmp_path / "x.grappa", **options})
    assert fields.items() <= vars(raised.value).items(), vars(raised.value)


def test_bad_input_is_named_with_its_place(tmp_path):
    file = tmp_path / "edges.tsv"
    file.write_text("0\t1\n1\tx\n")
    with pytest.raises(grappa.Error, match="edges.tsv:2"):
        grappa.ingest(file, out=tmp_path / "x.grappa")


def test_warnings_name_arguments_of_python_and_the_line_that_called(tmp_path):
    ring = np.stack([np.arange(100), (np.arange(100) + 1) % 100], axis=1)
    both = np.concatenate([ring, ring[:, ::-1]])
    with pytest.warns(UserWarning, match="^undirected=True: .* omit undirected=True, or merge .* dedup=True$") as told:
        grappa.ingest(both, undirected=True, out=tmp_path / "ring.grappa")
    assert [warning.filename for warning in told] == [__file__]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ingest with --edge-split, such as --edge-split 80/10/10", 'ingest with edge_split=, such as edge_split="80/10/10"'),
        ("raise --memory, or give fewer --chunks", "raise memory=, or give fewer chunks="),
        ("give --chunks 40 or less; --ids string (or sparse)", 'give chunks=40 or less; ids="string" (or sparse)'),
        ("rerun with --resume or use --as store", 'rerun with resume=True or use as_="store"'),
        ("give --full-graph, --exclude-known or --halo stop", 'give full_graph=True, exclude_known=True or halo="stop"'),
        ("'--epochs <N>' or --weights for weights", "'epochs=<N>' or weights= for weights"),
        ("such as --src a --dst b; there are a, b", 'such as src="a", dst="b"; there are a, b'),
        ("give --src a --dst 2 --weight km if that is", 'give src="a", dst=2, weight="km" if that is'),
        ("--src and --dst are both needed", "src= and dst= are both needed"),
        ("--ids sparse --node-ids IDS", 'ids="sparse", node_ids=IDS'),
        ("`grappa-store preaggregate x --kind mean`; a--b/--c -- d", "`grappa-store preaggregate x --kind mean`; a--b/--c -- d"),
    ],
)
def test_messages_name_arguments_of_python(text, expected):
    assert grappa._grappa.in_python(text) == expected


def test_messages_about_arrays_name_the_argument(tmp_path):
    with pytest.raises(grappa.Error, match=r"^features: this file has 2 rows, but .*\(edges at row 1\)"):
        grappa.ingest(np.array([[0, 1], [1, 2], [2, 0]]), features=np.ones((2, 3)), out=tmp_path / "x.grappa")


def test_arrays_of_objects_are_refused(tmp_path):
    with pytest.raises(TypeError, match="astype"):
        grappa.ingest(np.array([[0, "a"]], dtype=object), out=tmp_path / "x.grappa")


def test_an_exception_of_the_progress_report_stops(tmp_path):
    edges = np.random.default_rng(0).integers(0, 200_000, (4_000_000, 2))
    np.save(tmp_path / "edges.npy", edges)

    def report(stage, done, total, unit):
        raise KeyboardInterrupt

    arguments = ["--edges", str(tmp_path / "edges.npy"), "--out", str(tmp_path / "x.grappa"), "--memory", "64MiB"]
    with pytest.raises(KeyboardInterrupt):
        grappa._grappa.run("grappa-ingest", arguments, report, [])
    assert not (tmp_path / "x.grappa").exists()


@pytest.fixture
def ctrl_c():
    """Ctrl-C raises. Shells ignore it in background jobs, and Python leaves that as it is."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_once_there_is(path):
    """Sends Ctrl-C to this process when `path` appears, or after 10 s."""
    deadline = time.monotonic() + 10
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_leaves_what_a_resumed_ingest_continues(tmp_path, ctrl_c):
    edges = np.random.default_rng(0).integers(0, 200_000, (6_000_000, 2))
    np.save(tmp_path / "edges.npy", edges)
    options = {"edges": tmp_path / "edges.npy", "out": tmp_path / "x.grappa", "memory": "64MiB"}
    threading.Thread(target=interrupt_once_there_is, args=(tmp_path / "x.grappa.partial",)).start()
    with pytest.raises(KeyboardInterrupt):
        grappa.ingest(**options)
    assert not options["out"].exists()
    assert grappa.ingest(**options, resume=True).num_edges == len(edges)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["edges.npy", "x.grappa"]


def test_a_stopped_ingest_of_arrays_continues_with_the_same_data_only(tmp_path, ctrl_c):
    edges = np.random.default_rng(0).integers(0, 200_000, (6_000_000, 2))
    out = tmp_path / "x.grappa"
    threading.Thread(target=interrupt_once_there_is, args=(tmp_path / "x.grappa.partial",)).start()
    with pytest.raises(KeyboardInterrupt):
        grappa.ingest(edges, out=out, memory="64MiB")
    assert [path.name for path in tmp_path.iterdir()] == ["x.grappa.partial"]
    other = edges.copy()
    other[-1] += 1
    with pytest.raises(grappa.Error, match="edges"):
        grappa.ingest(other, out=out, memory="64MiB", resume=True)
    assert grappa.ingest(edges, out=out, memory="64MiB", resume=True).num_edges == len(edges)
    assert [path.name for path in tmp_path.iterdir()] == ["x.grappa"]


def test_loaders_warn_of_times_that_seeds_do_not_have(tmp_path):
    (tmp_path / "events.csv").write_text("src,dst,at\n0,1,2024-01-01\n1,0,2024-01-03\n0,2,2024-01-02\n")
    store = grappa.ingest(tmp_path / "events.csv", time="at", out=tmp_path / "events.grappa")
    assert store.has_edge_times and store.num_edges == 3
    with pytest.warns(UserWarning, match="events.grappa: the edges have times, and the seeds of this loader have none"):
        grappa.NeighborLoader(store, [2], batch_size=2, input_nodes=[0, 1], features=False)
