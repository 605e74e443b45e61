"""Masks, missing values and indexes belong to values: they are used, or an error says what to give instead."""

import numpy as np
import pytest

import grappa

EDGES = np.array([[0, 1], [1, 2], [2, 0]])
MASK = [True, False, False]
#: An index that says that the mask is true at node 2.
INDEX = [2, 1, 0]


def pandas():
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pandas")


@pytest.fixture
def small(tmp_path):
    """A store of three nodes, whose features are their numbers."""
    return grappa.ingest(EDGES, features=np.arange(3.0)[:, None], labels=[0, 1, 0], out=tmp_path / "small.grappa")


MASK_TYPES = ["bool", "boolean", "bool[pyarrow]", "object", "category"]


@pytest.mark.parametrize("dtype", MASK_TYPES)
@pytest.mark.parametrize("split", ["train", "val", "test"])
def test_a_mask_with_an_index_is_not_read_by_position(dtype, split, tmp_path):
    series = pandas().Series(MASK, INDEX).astype(dtype)
    with pytest.raises(ValueError, match=rf"{split}=series\.index\[series\]"):
        grappa.ingest(EDGES, out=tmp_path / "x.grappa", **{split: series})
    # What the message says.
    series = series.astype(bool) if dtype == "category" else series
    store = grappa.ingest(EDGES, out=tmp_path / "x.grappa", **{split: series.index[series]})
    assert store.split(split).tolist() == [2]


@pytest.mark.parametrize("dtype", MASK_TYPES)
def test_a_mask_that_counts_rows_is_a_mask(dtype, small, tmp_path):
    for index in (None, [0, 1, 2]):
        mask = pandas().Series([False, False, True], index).astype(dtype)
        assert grappa.ingest(EDGES, train=mask, out=tmp_path / "x.grappa", force=True).split("train").tolist() == [2]
        assert small.features[mask].ravel().tolist() == [2]


@pytest.mark.parametrize("dtype", MASK_TYPES)
@pytest.mark.parametrize(
    "use",
    [
        lambda store, mask: store.features[mask],
        lambda store, mask: store.labels[mask],
        lambda store, mask: store.ids(mask),
        lambda store, mask: store.in_edges(mask),
        lambda store, mask: grappa.NeighborLoader(store, [2], input_nodes=mask),
    ],
)
def test_stores_and_loaders_do_not_read_a_mask_by_position(use, dtype, small):
    mask = pandas().Series(MASK, INDEX).astype(dtype)
    with pytest.raises(ValueError, match=r"store\.nodes\(mask\.index\[mask\]\).*mask\.to_numpy\(\)"):
        use(small, mask)
    # What the message says.
    mask = mask.astype(bool) if dtype == "category" else mask
    assert small.nodes(mask.index[mask]).tolist() == [2]
    use(small, small.nodes(mask.index[mask]))
    use(small, mask.to_numpy())


def test_loaders_of_pyg_do_not_read_a_mask_by_position(small):
    pytest.importorskip("torch_geometric")
    mask = pandas().Series(MASK, INDEX).astype("bool[pyarrow]")
    with pytest.raises(ValueError, match="mask"):
        grappa.pyg.NeighborLoader(small, [2], mask)
    loader = grappa.pyg.NeighborLoader(small, [2], mask.sort_index())
    assert [batch.input_id.tolist() for batch in loader] == [[2]]


def tables_of_masks():
    pd, pl, pa = pandas(), pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"mask": [False, False, True]}
    return [pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)]


def test_a_table_of_a_mask_is_a_mask(tmp_path):
    for table in tables_of_masks():
        assert grappa.ingest(EDGES, train=table, out=tmp_path / "x.grappa", force=True).split("train").tolist() == [2]
    with pytest.raises(ValueError, match="train is a mask with an index"):
        grappa.ingest(EDGES, train=tables_of_masks()[0].set_axis(INDEX), out=tmp_path / "y.grappa")


@pytest.mark.parametrize("option", ["weights", "edge_features"])
def test_values_of_edges_have_the_index_of_the_edges_or_none(option, tmp_path):
    pd = pandas()
    values, edges = pd.Series([0.5, 1.5, 2.5]), pd.DataFrame(EDGES, columns=["source", "target"])

    def ingest(edges, values):
        store = grappa.ingest(edges, out=tmp_path / "x.grappa", force=True, **{option: values})
        _, sources, weights, features = store._store.in_edges(np.arange(3), True)
        read = weights if option == "weights" else features
        return dict(zip(np.asarray(sources).tolist(), np.asarray(read).ravel().tolist()))

    right = {0: 0.5, 1: 1.5, 2: 2.5}
    assert ingest(edges, values) == ingest(EDGES, values) == right
    assert ingest(edges.set_axis([9, 5, 7]), values.set_axis([9, 5, 7])) == right
    assert ingest(edges.set_axis([9, 5, 7]), values) == right
    for wrong in ((EDGES, values.set_axis(INDEX)), (edges, values.set_axis([9, 5, 7])), (edges.set_axis(INDEX), values)):
        with pytest.raises(ValueError, match=rf"{option}=series\.to_numpy\(\)"):
            ingest(*wrong)
        assert ingest(wrong[0], wrong[1].to_numpy()) == right


def test_ids_of_rows_have_no_other_order(tmp_path):
    with pytest.raises(ValueError, match=r"node_ids=series\.to_numpy\(\)"):
        grappa.ingest(EDGES, node_ids=pandas().Series([0, 1, 2], INDEX), ids="sparse", out=tmp_path / "x.grappa")


def test_the_index_of_a_list_of_nodes_says_nothing(small, tmp_path):
    nodes = pandas().Series([2, 0], index=[7, 5])
    assert small.features[nodes].ravel().tolist() == [2, 0]
    assert grappa.ingest(EDGES, train=nodes, out=tmp_path / "x.grappa").split("train").tolist() == [0, 2]


MASKED = {
    "edges": np.ma.array(EDGES, mask=EDGES == 2),
    "features": np.ma.array(np.full((3, 2), 999.0), mask=[[0, 0], [0, 1], [0, 0]]),
    "labels": np.ma.array([0, 1, 999], mask=[0, 0, 1]),
    "train": np.ma.array([True, True, False], mask=[0, 1, 0]),
    "val": np.ma.array([0, 1], mask=[0, 1]),
    "weights": np.ma.array([1.0, 999, 1], mask=[0, 1, 0]),
    "edge_features": np.ma.array(np.ones((3, 2)), mask=np.eye(3, 2)),
    "node_ids": np.ma.array([0, 1, 2], mask=[0, 1, 0]),
}


@pytest.mark.parametrize("option", MASKED)
def test_masked_values_are_not_values(option, tmp_path):
    options = {"edges": EDGES, option: MASKED[option]}
    with pytest.raises(ValueError, match=f"{option} is a masked array with . masked values.*{option}={option}"):
        grappa.ingest(out=tmp_path / "x.grappa", **options)
    assert not list(tmp_path.iterdir())


def test_masked_arrays_without_masked_values_are_arrays(small, tmp_path):
    assert small.features[np.ma.array([2, 0])].ravel().tolist() == [2, 0]
    store = grappa.ingest(np.ma.array(EDGES), labels=MASKED["labels"].filled(-1), out=tmp_path / "x.grappa")
    assert store.labels[:].tolist() == [0, 1, -1]
    for nodes in (np.ma.array([2, 0], mask=[0, 1]), np.ma.array(MASK, mask=[0, 1, 0])):
        with pytest.raises(ValueError, match="nodes is a masked array with 1 masked values"):
            small.features[nodes]


COLUMNS = {
    "Index": lambda values: pandas().Index(values),
    "Series": lambda values: pandas().Series(values),
    "array": lambda values: pandas().array(values),
    "Categorical": lambda values: pandas().Categorical(values),
    "CategoricalIndex": lambda values: pandas().CategoricalIndex(values),
    "pyarrow": lambda values: pytest.importorskip("pyarrow").array(values),
    "dictionary": lambda values: pytest.importorskip("pyarrow").array(values).dictionary_encode(),
    "chunked": lambda values: pytest.importorskip("pyarrow").chunked_array([values[:1], values[1:]]),
    "polars": lambda values: pytest.importorskip("polars").Series(values),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_each_kind_are_ids_masks_and_labels(kind, small, tmp_path):
    pytest.importorskip("pyarrow")
    column = COLUMNS[kind]
    options = {"train": column([2, 0]), "val": column([False, True, False]), "labels": column([5, 7, 5])}
    store = grappa.ingest(EDGES, out=tmp_path / "x.grappa", **options)
    assert (store.split("train").tolist(), store.split("val").tolist()) == ([0, 2], [1])
    assert store.labels[:].tolist() == [5, 7, 5]
    assert small.nodes(column([2, 0])).tolist() == [2, 0]
    assert small.features[column([2, 0])].ravel().tolist() == [2, 0]
    assert small.features[column([True, False, True])].ravel().tolist() == [0, 2]
    names = {"ids": "string", "node_ids": column(["c", "a", "b"]), "labels": column(["x", "y", "x"])}
    store = grappa.ingest(np.array([["a", "b"], ["b", "c"], ["c", "a"]]), out=tmp_path / "y.grappa", **names)
    assert store.class_names == ["x", "y"] and store.labels[:].tolist() == [1, 0, 0]
    assert store.nodes(column(["c", "a"])).tolist() == [2, 0]


def test_a_range_of_pandas_is_ids_and_labels(small, tmp_path):
    numbers = pandas().RangeIndex(3)
    store = grappa.ingest(EDGES, train=numbers[1:], labels=numbers, out=tmp_path / "x.grappa")
    assert store.split("train").tolist() == [1, 2] and store.labels[:].tolist() == [0, 1, 2]
    assert small.ids(numbers).tolist() == [0, 1, 2]


@pytest.mark.parametrize("kind", ["Series", "array", "pyarrow", "chunked", "polars", "list"])
@pytest.mark.parametrize(
    ("values", "labels", "names"),
    [([True, None, False], [1, -1, 0], []), ([1, None, 0], [1, -1, 0], []), (["x", None, "y"], [0, -1, 1], ["x", "y"])],
)
def test_missing_labels_are_none(kind, values, labels, names, tmp_path):
    pytest.importorskip("pyarrow")
    if kind == "Series":
        kinds = {True: "boolean", 1: "Int64", "x": "string"}
        column = pandas().Series(values, dtype=kinds[values[0]])
    else:
        column = values if kind == "list" else COLUMNS[kind](values)
    store = grappa.ingest(EDGES, labels=column, out=tmp_path / "x.grappa")
    assert store.labels[:].tolist() == labels and store.class_names == names


@pytest.mark.parametrize("kind", ["array", "pyarrow", "chunked", "polars"])
@pytest.mark.parametrize("values", [[True, None, False], [2, None, 0]])
def test_missing_values_of_masks_and_ids_are_errors_with_a_remedy(kind, values, small, tmp_path):
    train = COLUMNS[kind](values)
    with pytest.raises(ValueError, match="train has 1 missing values; leave them out, such as train=(.*)$") as caught:
        grappa.ingest(EDGES, train=train, out=tmp_path / "x.grappa")
    with pytest.raises(ValueError, match="nodes has 1 missing values"):
        small.features[train]
    # What the message says. An array of pandas is filled without `fillna(False)` only in old versions.
    remedy = str(caught.value).partition("train=")[2]
    store = grappa.ingest(EDGES, train=eval(remedy), out=tmp_path / "x.grappa")
    assert store.split("train").tolist() == ([0] if values[0] is True else [0, 2])


def edges_of(store):
    offsets, sources, _ = store.in_edges()
    return sorted(zip(sources.tolist(), np.repeat(np.arange(store.num_nodes), np.diff(offsets)).tolist()))


def two_edges(kind):
    torch = pytest.importorskip("torch")
    index = torch.tensor([[0, 0], [1, 2]])
    if kind == "EdgeIndex":
        return pytest.importorskip("torch_geometric").EdgeIndex(index)
    if kind == "list of EdgeIndex":
        return [pytest.importorskip("torch_geometric").EdgeIndex(index)]
    if kind == "DiGraph":
        return pytest.importorskip("networkx").DiGraph([(0, 1), (0, 2)])
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=index, num_nodes=3)
    return data


@pytest.mark.parametrize("kind", ["Data", "EdgeIndex", "list of EdgeIndex", "DiGraph"])
@pytest.mark.filterwarnings("error")
def test_two_edges_of_a_graph_are_not_transposed(kind, tmp_path):
    assert edges_of(grappa.ingest(two_edges(kind), out=tmp_path / "x.grappa")) == [(0, 1), (0, 2)]


@pytest.mark.parametrize(
    "edges", [np.array([[0, 0], [1, 2]]), [[0, 0], [1, 2]], np.array([["a", "a"], ["b", "c"]]), np.array([[0, 0], [1, 2]], object)]
)
def test_two_edges_of_an_array_are_read_as_files_are_and_a_warning_says_so(edges, tmp_path):
    options = {}
    if np.asarray(edges).dtype.kind == "U":
        pytest.importorskip("pyarrow")
        options = {"ids": "string"}
    if np.asarray(edges).dtype == object:
        with pytest.raises(TypeError, match="astype"):
            grappa.ingest(edges, out=tmp_path / "x.grappa")
        edges = edges.astype(np.int64)
    with pytest.warns(UserWarning, match=r"edges: the array of shape \(2, 2\) .* give edges=np\.transpose\(edges\)$"):
        assert edges_of(grappa.ingest(edges, out=tmp_path / "x.grappa", **options)) == [(0, 0), (1, 2)]
    # What the message says.
    with pytest.warns(UserWarning, match="from .?[0a].? to .?[1b]"):
        store = grappa.ingest(np.transpose(edges), out=tmp_path / "x.grappa", force=True, **options)
    assert edges_of(store) == [(0, 1), (0, 2)]


def test_an_edge_index_has_two_rows(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").Data(edge_index=torch.from_numpy(EDGES), num_nodes=3)
    with pytest.raises(ValueError, match=r"data.edge_index has shape \(3, 2\)"):
        grappa.ingest(data, out=tmp_path / "x.grappa")


def test_types_in_memory_are_refused_with_a_remedy(tmp_path):
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    data["user"].x, data["item"].x = torch.eye(3), torch.ones(2, 3)
    data["user", "buys", "item"].edge_index = torch.tensor([[0, 1, 2], [0, 1, 1]])
    with pytest.raises(TypeError, match=r"give its path: grappa\.ingest\(data, out="):
        grappa.pyg.NeighborLoader(data, [2])
    with pytest.warns(UserWarning, match="does not keep edge_type, node_type"):
        store = grappa.ingest(data.to_homogeneous(), out=tmp_path / "x.grappa")
    assert (store.num_nodes, store.num_edges, store.num_features) == (5, 3, 3)


def test_columns_may_be_called_by_numbers_and_tuples(tmp_path):
    pd = pandas()
    table = pd.DataFrame(np.column_stack([EDGES, [5, 6, 7]]))
    with pytest.raises(grappa.Error, match="there are 0, 1, 2"):
        grappa.ingest(table, out=tmp_path / "x.grappa")
    right = sorted(map(tuple, EDGES.tolist()))
    assert edges_of(grappa.ingest(table, src=0, dst=1, out=tmp_path / "a.grappa")) == right
    table.columns = pd.MultiIndex.from_tuples([("end", "from"), ("end", "to"), ("km", "mean")])
    store = grappa.ingest(table, src=("end", "from"), dst=("end", "to"), weight=("km", "mean"), out=tmp_path / "b.grappa")
    assert edges_of(store) == right and sorted(store.in_edges().weights.tolist()) == [5, 6, 7]
    rows = pd.DataFrame(np.eye(3))
    store = grappa.ingest(EDGES, features=rows.set_axis(INDEX), out=tmp_path / "c.grappa")
    assert np.array_equal(store.features[:], np.eye(3)[::-1]) and store.feature_names == ["0", "1", "2"]
    assert grappa.ingest(EDGES, features=rows, features_from=[2], out=tmp_path / "d.grappa").features[:].ravel().tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match="two columns of this table are called '0'"):
        grappa.ingest(EDGES, features=rows.set_axis([0, "0", 1], axis=1), out=tmp_path / "e.grappa")
    with pytest.raises(ValueError, match="index of 2 levels"):
        levels = pd.MultiIndex.from_tuples([(0, 1), (1, 1), (2, 1)])
        grappa.ingest(EDGES, features=rows.set_axis(levels), out=tmp_path / "e.grappa")


@pytest.mark.parametrize("node", [1.9, 1.0, True, np.True_, np.float32(1), "1", None])
def test_node_numbers_are_integers(node, small):
    for use in (small.in_neighbors, small.ids, small.features.__getitem__, small.labels.__getitem__):
        with pytest.raises(TypeError, match="a node number is an integer, not"):
            use(node)
    for nodes in ([True, 2], [1.5], [0, None]):
        with pytest.raises(TypeError):
            small.features[nodes]


@pytest.mark.parametrize("node", [1, np.int8(1), np.array(1)])
def test_integers_of_each_kind_are_node_numbers(node, small):
    assert small.in_neighbors(node).tolist() == [0] and small.ids(node) == 1 and small.features[node].tolist() == [1]


@pytest.mark.parametrize("memory", [float("inf"), float("nan"), "inf", "infGiB", "-5", -1, 0])
def test_impossible_memory_is_an_error(memory, small, tmp_path):
    with pytest.raises(ValueError, match="memory"):
        grappa.NeighborLoader(small, [2], memory=memory)
    with pytest.raises((ValueError, grappa.Error), match="memory"):
        grappa.ingest(EDGES, memory=memory, out=tmp_path / "x.grappa")


@pytest.mark.parametrize(
    ("option", "value", "remedy"),
    [
        ("edges", np.eye(4, k=1, dtype=int), "edges=np.argwhere(edges)"),
        ("edges", np.column_stack([EDGES, [5, 6, 7]]), "edges=edges[:, :2], weights=edges[:, 2]"),
        ("edges", np.column_stack([EDGES, [5, 6, 7]]).astype(np.float16)[:, :2], "edges=edges.astype(float)"),
        ("features", np.ones((3, 2, 2)), "features=features.reshape(len(features), -1)"),
        ("train", np.ones((3, 2), bool), "train=train[:, 0]"),
        ("train", np.ones((3, 1)), "train=train.astype(bool)"),
    ],
)
def test_remedies_for_arrays_are_expressions_and_name_no_files(option, value, remedy, tmp_path):
    options = {"edges": EDGES, option: value}
    with pytest.raises(grappa.Error) as caught:
        grappa.ingest(out=tmp_path / "x.grappa", **options)
    message = str(caught.value)
    assert remedy in message and "python3" not in message and str(tmp_path) not in message
    if option == "train" and value.ndim == 2 and value.dtype != bool:
        remedy = "train=train.astype(bool).ravel()"
    options |= eval(f"dict({remedy})", {"np": np, option: value})
    assert grappa.ingest(out=tmp_path / "x.grappa", **options).num_edges == 3


def test_rows_of_a_store_have_a_shape_and_a_type(small, tmp_path):
    assert (small.features.shape, small.features.dtype, small.features.ndim) == ((3, 1), np.float32, 2)
    assert (small.labels.shape, small.labels.dtype, len(small.labels)) == ((3,), np.int64, 3)
    assert repr(small.features) == "features of 3 nodes: shape (3, 1), float32, read by [ids]"
    bare = grappa.ingest(EDGES, weights=[1.0, 2, 3], out=tmp_path / "bare.grappa")
    assert repr(bare.features) == "features of 3 nodes: none" and "3 edges with weights, " in repr(bare)


def test_what_ingest_decided_is_printed_with_the_names_of_arguments(tmp_path):
    edges = pandas().DataFrame({"source": [0, 1], "target": [1, 2], "weight": [0.5, 1], "note": ["x", "y"]})
    store = grappa.ingest(edges, src="source", dst="target", out=tmp_path / "x.grappa")
    shown = str(store.ingested)
    assert shown.startswith("edges from edges: ") and "left out: note" in shown and shown == repr(store.ingested)
    assert shown.endswith("3 nodes, 2 edges (2 read)") and ".grappa-inputs-" not in str(dict(store.ingested))
