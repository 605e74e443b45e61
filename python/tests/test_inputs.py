"""Arrays, matrices, tables and graphs make the store that their files make."""

import warnings

import numpy as np
import pytest

import grappa

#: Edges from the first column to the second, among five nodes. Node 4 has none.
PAIRS = np.array([[0, 1], [1, 2], [2, 0], [3, 0]])
WEIGHTS = np.array([0.5, 1.5, 2.5, 3.5], dtype=np.float32)
NAMES = np.array(["ada", "bob", "cy", "dan"])


def edges_of(store):
    """Source, destination and weight of each edge, sorted."""
    offsets, sources, weights = store.in_edges()
    destinations = np.repeat(np.arange(store.num_nodes), np.diff(offsets))
    weights = np.ones(len(sources)) if weights is None else weights
    return sorted(zip(sources.tolist(), destinations.tolist(), weights.tolist()))


def expected(weights=np.ones(4)):
    return sorted(zip(*PAIRS.T.tolist(), weights.tolist()))


def matrix(kind, shape=(5, 5)):
    sparse = pytest.importorskip("scipy.sparse")
    return getattr(sparse, kind)(sparse.coo_array((WEIGHTS, tuple(PAIRS.T)), shape))


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "lil_matrix"])
def test_matrices_have_edges_from_rows_to_columns(kind, tmp_path):
    store = grappa.ingest(matrix(kind), out=tmp_path / "plain.grappa")
    assert store.num_nodes == 5 and not store.has_edge_weights
    assert edges_of(store) == expected()
    store = grappa.ingest(matrix(kind), weights=True, out=tmp_path / "weighted.grappa")
    assert edges_of(store) == expected(WEIGHTS)
    assert (store.to_scipy() != matrix("csc_array")).nnz == 0


def test_features_may_be_sparse(tmp_path):
    features = matrix("csr_array", (5, 7))
    store = grappa.ingest(PAIRS, features=features, out=tmp_path / "s.grappa")
    assert np.array_equal(store.features[:], features.toarray())


@pytest.mark.parametrize("layout", ["strided", "coo", "csr", "csc"])
def test_tensors_are_ingested_as_arrays_are(layout, tmp_path):
    torch = pytest.importorskip("torch")
    pairs = torch.from_numpy(PAIRS)
    x = torch.arange(10, dtype=torch.bfloat16).view(5, 2)
    options = {"features": x, "train": torch.tensor([0, 3])}
    if layout == "strided":
        store = grappa.ingest(pairs.t(), weights=torch.from_numpy(WEIGHTS), out=tmp_path / "t.grappa", **options)
    else:
        pytest.importorskip("scipy")
        tensor = torch.sparse_coo_tensor(pairs.t(), torch.from_numpy(WEIGHTS), (5, 5))
        tensor = {"coo": tensor, "csr": tensor.to_sparse_csr(), "csc": tensor.to_sparse_csc()}[layout]
        store = grappa.ingest(tensor, weights=True, out=tmp_path / "t.grappa", **options)
    assert edges_of(store) == expected(WEIGHTS)
    assert np.array_equal(store.features[:], x.float().numpy())
    assert store.split("train").tolist() == [0, 3]


def test_a_data_of_pyg_comes_back(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(
        edge_index=torch.from_numpy(PAIRS.T.copy()),
        edge_weight=torch.from_numpy(WEIGHTS),
        x=torch.rand(5, 3),
        y=torch.tensor([[0], [1], [0], [2], [1]]),
        train_mask=torch.tensor([True, False, True, False, False]),
        pos=torch.rand(5, 3),
    )
    with pytest.warns(UserWarning, match="does not keep pos"):
        store = grappa.ingest(data, out=tmp_path / "d.grappa")
    again = store.to_pyg()
    assert edges_of(store) == expected(WEIGHTS)
    assert torch.equal(again.x, data.x) and torch.equal(again.y, data.y.view(-1))
    assert torch.equal(again.train_mask, data.train_mask) and "val_mask" not in again
    # Edges are in the order of the store.
    order, back = np.lexsort(PAIRS.T), np.lexsort(again.edge_index.numpy())
    assert np.array_equal(again.edge_index[:, back], PAIRS[order].T) and np.array_equal(again.edge_weight[back], WEIGHTS[order])
    data.train_mask = torch.ones(5, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="choose one"):
        grappa.ingest(data, out=tmp_path / "e.grappa")


def test_graphs_of_networkx_keep_ids_directions_and_attributes(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.DiGraph()
    graph.add_nodes_from([4, 3, 2, 1, 0])
    graph.add_weighted_edges_from([*map(tuple, np.column_stack([PAIRS, WEIGHTS.astype(object)]))], weight="km")
    store = grappa.ingest(graph, features=np.arange(5.0)[:, None], weight="km", out=tmp_path / "directed.grappa")
    assert edges_of(store) == expected(WEIGHTS) and store.num_nodes == 5
    assert store.features[:].ravel().tolist() == [4, 3, 2, 1, 0]
    pytest.importorskip("pyarrow")
    graph = networkx.Graph([("bob", "ada"), ("cy", "bob")])
    graph.add_node("dan")
    for age, (node, attributes) in enumerate(graph.nodes(data=True)):
        attributes.update(age=age, plan="gold" if node == "cy" else "free")
    store = grappa.ingest(graph, features_from=["age"], label="plan", out=tmp_path / "undirected.grappa")
    assert store.ids(slice(None)).tolist() == ["ada", "bob", "cy", "dan"]
    assert edges_of(store) == [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1)]
    assert store.features[:].ravel().tolist() == [1, 0, 2, 3]
    assert store.class_names == ["free", "gold"] and store.labels[:].tolist() == [0, 0, 1, 0]


def table(library, columns):
    if library == "pandas":
        pytest.importorskip("pyarrow")
        return pytest.importorskip("pandas").DataFrame(columns)
    if library == "pyarrow":
        return pytest.importorskip("pyarrow").table(columns)
    polars = pytest.importorskip("polars")
    return polars.LazyFrame(columns) if library == "lazy" else polars.DataFrame(columns)


@pytest.mark.parametrize("library", ["pandas", "pyarrow", "polars", "lazy"])
def test_tables_are_read_as_their_files_are(library, tmp_path):
    edges = table(library, {"km": WEIGHTS, "to": NAMES[PAIRS[:, 1]], "from": NAMES[PAIRS[:, 0]]})
    plans, folds = ["x", "y", "x", None], ["train", "test", "", "val"]
    nodes = table(library, {"age": [4, 3, 2, 1], "user": NAMES[::-1], "plan": plans, "fold": folds})
    store = grappa.ingest(
        edges, src="from", dst="to", weight="km", ids="string", features=nodes, labels=nodes, id="user", features_from=["age"],
        label="plan", split_column="fold", out=tmp_path / "t.grappa",
    )  # fmt: skip
    assert edges_of(store) == expected(WEIGHTS)
    assert store.features[:].ravel().tolist() == [1, 2, 3, 4]
    assert store.labels[:].tolist() == [-1, 0, 1, 0] and store.class_names == ["x", "y"]
    assert store.splits == {"train": 1, "val": 1, "test": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["t.grappa"]


def test_the_index_of_pandas_has_ids_unless_it_counts_rows(tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    edges = pandas.DataFrame({"source": PAIRS[:, 0], "target": PAIRS[:, 1]}, index=[9, 8, 7, 6])
    rows = pandas.DataFrame({"age": np.arange(5.0)})
    store = grappa.ingest(edges, features=rows, out=tmp_path / "rows.grappa")
    assert edges_of(store) == expected() and store.features[:].ravel().tolist() == [0, 1, 2, 3, 4]
    for index in ([4, 3, 2, 1, 0], pandas.RangeIndex(4, -1, -1)):
        nodes = {"features": rows.set_axis(index), "labels": pandas.Series([5, 6], [1, 3])}
        store = grappa.ingest(edges, out=tmp_path / "ids.grappa", force=True, **nodes)
        assert store.features[:].ravel().tolist() == [4, 3, 2, 1, 0]
        assert store.labels[:].tolist() == [-1, 5, -1, 6, -1]
    with pytest.raises(ValueError, match="series.index\\[series\\]"):
        grappa.ingest(edges, train=pandas.Series([True, False], [1, 3]), out=tmp_path / "mask.grappa")


def test_a_stream_is_read_batch_by_batch(tmp_path):
    pa = pytest.importorskip("pyarrow")
    alive = []

    def batches():
        for first in range(0, 400_000, 1000):
            ids = np.arange(first, first + 1000)
            alive.append(pa.total_allocated_bytes())
            yield pa.record_batch({"source": ids, "target": (ids + 1) % 400_000})

    schema = pa.schema({"source": pa.int64(), "target": pa.int64()})
    store = grappa.ingest(pa.RecordBatchReader.from_batches(schema, batches()), nodes=400_000, out=tmp_path / "s.grappa")
    assert store.num_edges == 400_000 and len(alive) == 400
    assert max(alive) - alive[0] < 5 << 20


def test_arrays_on_disk_are_not_loaded_whole(tmp_path):
    edges = np.random.default_rng(1).integers(0, 1000, (2, 200_000))

    class OnDisk:
        """As datasets of h5py and zarr."""

        shape, dtype, ndim = edges.shape[::-1], edges.dtype, 2

        def __getitem__(self, rows):
            assert isinstance(rows, slice) and rows.stop - rows.start <= 1 << 20
            return edges.T[rows]

        def __array__(self, *_, **__):
            raise AssertionError("it is loaded whole")

    np.save(tmp_path / "edges.npy", np.asfortranarray(edges))
    mapped = np.load(tmp_path / "edges.npy", mmap_mode="r")
    assert mapped.flags.f_contiguous
    stores = [grappa.ingest(value, out=tmp_path / f"{at}.grappa") for at, value in enumerate([edges, mapped, OnDisk()])]
    assert edges_of(stores[0]) == edges_of(stores[1]) == edges_of(stores[2])


def test_lists_have_values_and_read_only_arrays_are_read(tmp_path):
    pairs = PAIRS.copy()
    pairs.flags.writeable = False
    store = grappa.ingest(pairs, nodes=5, train=[0, 3], out=tmp_path / "a.grappa")
    assert store.split("train").tolist() == [0, 3]
    of_list = edges_of(grappa.ingest(PAIRS.tolist(), out=tmp_path / "b.grappa"))
    assert of_list == edges_of(grappa.ingest([pairs], out=tmp_path / "c.grappa"))


def test_arrays_of_strings_are_ids_and_classes(tmp_path):
    pytest.importorskip("pyarrow")
    options = {"ids": "string", "node_ids": NAMES[::-1], "labels": NAMES[[0, 0, 1, 0]], "train": ["bob", "dan"]}
    for at, edges in enumerate([NAMES[PAIRS], NAMES[PAIRS].astype(object)]):
        store = grappa.ingest(edges, out=tmp_path / f"{at}.grappa", **options)
        assert edges_of(store) == expected() and store.class_names == ["ada", "bob"]
        assert store.labels[:].tolist() == [0, 1, 0, 0]
        assert store.ids(store.split("train")).tolist() == ["bob", "dan"]


def graph(kind, *edges):
    return getattr(pytest.importorskip("networkx"), kind)(edges)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (lambda: {"edges": np.array([[0, "a"]], dtype=object)}, TypeError, "astype"),
        (lambda: {"edges": np.array([[0.5, 1]])}, grappa.Error, "0.5"),
        (lambda: {"edges": np.array([[-1, 1]])}, grappa.Error, "-1"),
        (lambda: {"edges": np.zeros((3, 3), np.int64)}, grappa.Error, "shape"),
        (lambda: {"edges": PAIRS, "features": np.ones((3, 2))}, grappa.Error, "3"),
        (lambda: {"edges": PAIRS, "train": [0, 0]}, grappa.Error, "twice|more than once|0"),
        (lambda: {"edges": PAIRS, "train": [9]}, grappa.Error, "9"),
        (lambda: {"edges": PAIRS, "weights": True}, ValueError, "sparse matrix"),
        (lambda: {"edges": PAIRS, "weights": [1, 2]}, grappa.Error, "weights"),
        (lambda: {"edges": PAIRS, "edge_features": np.ones((3, 2))}, grappa.Error, "one per edge, found 3"),
        (lambda: {"edges": PAIRS, "edge_features": table("pandas", {"km": [1]})}, TypeError, "edge_features_from"),
        (lambda: {"edges": {0: 1}}, TypeError, "a relation is a tuple of the type of sources"),
        (lambda: {"edges": matrix("csr_array", (5, 4))}, grappa.Error, "square|5"),
        (lambda: {"edges": matrix("csr_array").astype(bool), "weights": True}, ValueError, "booleans"),
        (lambda: {"edges": graph("Graph", ((0, 0), 1))}, TypeError, "convert_node_labels_to_integers"),
        (lambda: {"edges": graph("Graph", (0, 1)), "undirected": False}, ValueError, "undirected"),
        (lambda: {"edges": graph("DiGraph", (0, 1)), "weight": "km"}, ValueError, "from 0 to 1 has no such attribute"),
        (lambda: {"edges": graph("DiGraph", (0, 1)), "label": "kind"}, ValueError, "'kind'"),
        (lambda: {"edges": table("polars", {"a": [1], "b": [2]})}, grappa.Error, "src"),
        (lambda: {"edges": table("pandas", {"a": [1], "b": [2]})}, grappa.Error, "src"),
        (lambda: {"edges": table("pyarrow", {"source": [0], "target": [1]}), "src": "who", "dst": "target"}, grappa.Error, "who"),
        (lambda: {"edges": table("pandas", {"source": [], "target": []})}, grappa.Error, "edges"),
        (lambda: {"edges": []}, ValueError, "edges=\\[\\] is empty"),
    ],
)
def test_wrong_inputs_are_named(options, error, message, tmp_path):
    with pytest.raises(error, match=message):
        grappa.ingest(out=tmp_path / "x.grappa", **options())
    assert not list(tmp_path.glob(".grappa-inputs-*")) and not (tmp_path / "x.grappa").exists()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("name", ["features", "labels", "edges"])
def test_durations_are_refused_and_their_seconds_are_read(name, unit, tmp_path):
    pd = pytest.importorskip("pandas")
    durations = np.array([1, 2, 3, 4, 5], "m8[s]").astype(f"m8[{unit}]")
    data = pd.DataFrame({"id": range(5), "wait": durations})
    options = {"edges": PAIRS, name: data, "nodes": 5}
    if name == "edges":
        data = pd.DataFrame({"src": PAIRS[:, 0], "dst": PAIRS[:, 1], "wait": durations[:4]})
        options = {"edges": data, "edge_features_from": ["wait"]}
    if name == "labels":
        options["label_type"] = "float"
    with pytest.raises(ValueError, match="'wait' has durations.*total_seconds"):
        grappa.ingest(out=tmp_path / "x.grappa", **options)
    data["wait"] = data["wait"].dt.total_seconds()
    store = grappa.ingest(out=tmp_path / "x.grappa", **options)
    if name == "features":
        assert store.features[np.arange(5)].ravel().tolist() == [1, 2, 3, 4, 5]


def test_old_timestamps_of_parquet_are_days_in_every_century(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    days = [-1, 0, 365_000]
    moments = np.array(days, "M8[D]").astype("M8[us]")
    table = pa.table({"seen": pa.array(moments), "first": [0.0, 1.0, 2.0]})
    parquet.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
    assert parquet.ParquetFile(tmp_path / "x.parquet").schema.column(0).physical_type == "INT96"
    store = grappa.ingest([[0, 1], [1, 2]], features=tmp_path / "x.parquet", nodes=3, out=tmp_path / "x.grappa")
    assert store.features[:].tolist() == [[float(day), row] for row, day in enumerate(days)]


def test_arrays_of_durations_are_refused(tmp_path):
    wait = np.array([1, 2, 3, 4, 5], "m8[ns]")
    with pytest.raises(ValueError, match=r"features=features / np.timedelta64\(1, 's'\)"):
        grappa.ingest(out=tmp_path / "x.grappa", edges=PAIRS, features=wait)


def test_only_a_column_called_weight_is_a_weight_unasked(tmp_path):
    pd = pytest.importorskip("pandas")
    for name, weighted in [("weight", True), ("amount", False), ("distance", False)]:
        edges = pd.DataFrame({"src": PAIRS[:, 0], "dst": PAIRS[:, 1], name: WEIGHTS})
        store = grappa.ingest(edges, src="src", dst="dst", out=tmp_path / f"{name}.grappa")
        assert edges_of(store) == expected(WEIGHTS if weighted else np.ones(4))


def test_targets_that_would_become_equal_are_refused_and_the_remedy_works(tmp_path):
    labels = np.array([1.7e9 + k for k in range(5)])
    with pytest.raises(grappa.Error, match="subtract one number from all of them, such as 1700000000"):
        grappa.ingest(PAIRS, labels=labels, label_type="float", nodes=5, out=tmp_path / "x.grappa")
    grappa.ingest(PAIRS, labels=labels - 1700000000, label_type="float", nodes=5, out=tmp_path / "x.grappa")


@pytest.mark.parametrize("container", ["array", "tensor", "pandas", "polars"])
def test_features_that_lose_their_differences_are_named_with_a_remedy_that_works(container, tmp_path):
    count = 200
    edges = np.stack([np.arange(count), (np.arange(count) + 1) % count])
    # Unix seconds, ordinary noise, and a large number in all rows.
    columns = {"at": 1.7e9 + np.arange(count), "noise": np.random.default_rng(1).normal(size=count), "flat": np.full(count, 1e9 + 1)}
    array = np.column_stack(list(columns.values()))
    features = {"array": array, "tensor": array, "pandas": columns, "polars": columns}[container]
    if container == "tensor":
        features = pytest.importorskip("torch").from_numpy(array)
    elif container != "array":
        features = table(container, columns)
    with pytest.warns(UserWarning) as told:
        grappa.ingest(edges, features=features, out=tmp_path / "lost.grappa")
    column = "0" if container in ("array", "tensor") else "at"
    assert [str(warning.message) for warning in told] == [
        f"features: the values of column {column}, from 1700000000 to 1700000199, lose up to 64 as 32-bit floats, so that different values "
        "become equal or nearly so; subtract 1700000000 from all of them"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = grappa.ingest(edges, features=array - [1_700_000_000, 0, 0], out=tmp_path / "kept.grappa")
    assert np.array_equal(store.features[:][:, 0], np.arange(count))


def test_features_of_edges_that_lose_their_differences_are_named(tmp_path):
    edges = np.stack([np.arange(200), (np.arange(200) + 1) % 200])
    seconds = 1.7e9 + np.arange(200)
    with pytest.warns(UserWarning, match="the values of edge feature 2, from 1700000000 to 1700000199, lose up to 64"):
        grappa.ingest(edges, edge_features=np.column_stack([np.arange(200), seconds]), out=tmp_path / "array.grappa")
    rows = table("polars", {"src": edges[0], "dst": edges[1], "at": seconds})
    with pytest.warns(UserWarning, match="the values of edge feature at, from 1700000000 to 1700000199, lose up to 64"):
        grappa.ingest(rows, edge_features_from=["at"], out=tmp_path / "table.grappa")
