"""What a store gives is what was ingested."""

import pickle

import numpy as np
import pytest
from conftest import CORA

import grappa


def edges():
    pairs = np.loadtxt(CORA / "edges.tsv", dtype=np.int64)
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return np.unique(both, axis=0)


def test_counts_and_splits(store):
    assert (store.num_nodes, store.num_features, store.num_classes) == (2708, 1433, 7)
    assert store.num_edges == len(edges())
    for name, nodes in store.splits.items():
        assert np.array_equal(store.split(name), np.sort(np.load(CORA / f"{name}.npy"))), name
        assert nodes == len(store.split(name))
    assert "2,708 nodes" in repr(store)


def test_rows_are_those_of_the_input(store):
    labels = np.load(CORA / "labels.npy")
    nodes = np.array([2707, 0, 5, 5, 1354])
    assert np.array_equal(store.labels[nodes], labels[nodes])
    assert np.array_equal(store.labels[:], labels)
    rows = store.features[nodes]
    assert rows.shape == (5, 1433) and rows.dtype == np.float32
    assert np.array_equal(rows[2], rows[3]) and not np.array_equal(rows[0], rows[1])
    assert np.array_equal(store.features[5], rows[2])
    mask = np.zeros(2708, dtype=bool)
    mask[nodes] = True
    assert np.array_equal(store.features[mask], store.features[np.unique(nodes)])


def test_neighbors_are_the_sources_of_edges(store):
    pairs = edges()
    for node in (0, 7, 2707):
        assert np.array_equal(np.sort(store.in_neighbors(node)), np.sort(pairs[pairs[:, 1] == node, 0]))


def test_strings_are_ids(tmp_path):
    file = tmp_path / "edges.tsv"
    file.write_text("ada\tbob\nbob\tcy\ncy\tada\n")
    store = grappa.ingest(file, ids="string", out=tmp_path / "s.grappa")
    nodes = store.nodes(["cy", "ada"])
    assert store.ids(nodes).tolist() == ["cy", "ada"]
    assert store.ids(store.in_neighbors(nodes[0])).tolist() == ["bob"]
    with pytest.raises(KeyError, match="no node with the id eve"):
        store.nodes(["eve"])


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda store: store.features[[-1]], IndexError, "there is no node -1"),
        (lambda store: store.labels[[2708]], IndexError, "2708 nodes"),
        (lambda store: store.features[[0.5]], TypeError, "integers"),
        (lambda store: store.labels[np.ones(3, dtype=bool)], ValueError, "expected \\(2708,\\)"),
        (lambda store: store.split("tset"), KeyError, "no split is named"),
        (lambda store: grappa.open("nothing.grappa"), grappa.Error, "there is no such store"),
    ],
)
def test_mistakes_say_what_is_expected(store, use, error, message):
    with pytest.raises(error, match=message):
        use(store)


@pytest.mark.parametrize("nodes", [5, [5], np.array([5], np.uint8), slice(5, 6), np.arange(2708) == 5])
def test_nodes_are_named_in_each_way(store, nodes):
    assert np.array_equal(np.atleast_2d(store.features[nodes]), store.features[[5]])
    assert np.array_equal(np.atleast_1d(store.ids(nodes)), [5])


def test_ids_may_exceed_signed_integers(tmp_path):
    ids = [3, 2**63 + 1]
    store = grappa.ingest(np.array([ids], dtype=np.uint64), ids="sparse", out=tmp_path / "s.grappa")
    assert store.ids(slice(None)).tolist() == ids and store.nodes(np.array(ids, np.uint64)).tolist() == [0, 1]
    for wrong, error in ((5, KeyError), (-3, KeyError), ("x", TypeError), (0.5, TypeError)):
        with pytest.raises(error):
            store.nodes([wrong])


def test_a_whole_graph_that_is_too_large_names_the_loader(store):
    pytest.importorskip("torch_geometric")
    with pytest.raises(ValueError, match="MiB in memory.*NeighborLoader.*max_bytes"):
        store.to_pyg(max_bytes=1 << 20)


def test_a_notebook_shows_what_a_store_has(store):
    shown = store._repr_html_()
    for value in ("2,708", "1,433, f32", "train 140", "KiB</td>"):
        assert value in shown.replace("MiB</td>", "KiB</td>"), value


def test_a_store_can_be_pickled(store):
    assert np.array_equal(pickle.loads(pickle.dumps(store)).labels[:9], store.labels[:9])


def test_numbers_to_predict_are_float_labels(tmp_path):
    targets = np.array([[0.5, 1], [np.nan, 2], [3, np.nan]], np.float32)
    features = np.ones((3, 2), np.float32)
    nodes = {"features": features, "labels": targets, "label_type": "float"}
    store = grappa.ingest(np.array([[0, 1], [1, 2]]), out=tmp_path / "t.grappa", **nodes)
    np.testing.assert_array_equal(store.labels[:], targets)
    assert (store.num_targets, store.num_classes) == (2, 0) and "2 targets" in repr(store)
    batch = next(iter(grappa.NeighborLoader(store, [-1], batch_size=3, input_nodes=None, shuffle=False)))
    np.testing.assert_array_equal(batch.y, targets)
    pytest.importorskip("torch_geometric")
    np.testing.assert_array_equal(store.to_pyg().y.numpy(), targets)
