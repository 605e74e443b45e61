"""Odd inputs of every kind, as users of other libraries have them: each gives the right value, or an error that names the argument."""

from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pytest

import grappa

pd, pl, pa, torch = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow", "torch"))

#: A cycle of five nodes, and two edges whose array may be read in two ways.
CYCLE = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 0]])
TWO = np.array([[0, 1], [5, 6]])
BY_ROW, BY_COLUMN = [(0, 1), (5, 6)], [(0, 5), (1, 6)]
ROWS = np.arange(10.0).reshape(5, 2)
MASK, MASKED = [True, False, True, False, False], [0, 2]
UNORDERED = [4, 3, 2, 1, 0]


class Refused(NamedTuple):
    """An error of a type, and what its text contains."""

    kind: type[Exception]
    words: tuple[str, ...]


def refused(kind: type[Exception], *words: str) -> Refused:
    return Refused(kind, words)


MISSING, INDEX = refused(ValueError, "missing values", "False"), refused(ValueError, "with an index that is not 0, 1, 2, ...")

#: Masks of nodes 0 and 2, for every argument that takes masks.
MASKS = {
    "array": (np.array(MASK), MASKED),
    "list": (MASK, MASKED),
    "objects": (np.array(MASK, object), MASKED),
    "column of a matrix": (np.array(MASK + MASK).reshape(2, 5).T[:, 0], MASKED),
    "read-only": (np.frombuffer(bytes(MASK), bool), MASKED),
    "tensor": (torch.tensor(MASK), MASKED),
    "series": (pd.Series(MASK), MASKED),
    "nullable series": (pd.Series(MASK, dtype="boolean"), MASKED),
    "series of Arrow": (pd.Series(MASK, dtype="bool[pyarrow]"), MASKED),
    "series of objects": (pd.Series(MASK, dtype=object), MASKED),
    "categories": (pd.Categorical(MASK), MASKED),
    "index": (pd.Index(MASK), MASKED),
    "data frame": (pd.DataFrame({"mask": MASK}), MASKED),
    "Polars": (pl.Series(MASK), MASKED),
    "Polars frame": (pl.DataFrame({"mask": MASK}), MASKED),
    "Arrow": (pa.array(MASK), MASKED),
    "chunks of Arrow": (pa.chunked_array([MASK[:2], MASK[2:]]), MASKED),
    "unordered index": (pd.Series(MASK, UNORDERED), INDEX),
    "unordered nullable index": (pd.Series(MASK, UNORDERED, dtype="boolean"), INDEX),
    "index of names": (pd.Series(MASK, list("abcde")), INDEX),
    "missing in a list": ([True, None, True, False, False], MISSING),
    "missing in pandas": (pd.array([True, None, True, False, False], dtype="boolean"), MISSING),
    "missing in Polars": (pl.Series([True, None, True, False, False]), MISSING),
    "missing in Arrow": (pa.array([True, None, True, False, False]), MISSING),
    "masked": (np.ma.array(MASK, mask=[0, 1, 0, 0, 0]), refused(ValueError, "masked values", "filled(False)")),
    "short": (np.array(MASK[:3]), refused((ValueError, grappa.Error), "5", "3")),
    "bytes of zeros and ones": (np.array(MASK, np.uint8), refused((TypeError, grappa.Error), "astype(bool)")),
    "texts": (np.array(MASK).astype(str), refused((TypeError, grappa.Error))),
}

#: Nodes 0 and 2.
LISTS = {
    "list": ([0, 2], MASKED),
    "range": (range(0, 3, 2), MASKED),
    "byte-swapped": (np.array([0, 2], ">i4"), MASKED),
    "small integers": (np.array([0, 2], np.int8), MASKED),
    "tensor": (torch.tensor([2, 9, 0, 9])[::2].flip(0), MASKED),
    "index": (pd.Index([0, 2]), MASKED),
    "RangeIndex": (pd.RangeIndex(0, 3, 2), MASKED),
    "categories": (pd.Categorical([0, 2]), MASKED),
    "nullable": (pd.array([0, 2], dtype="Int64"), MASKED),
    "series": (pd.Series([0, 2], [7, 5]), MASKED),
    "Polars": (pl.Series([0, 2]), MASKED),
    "dictionary of Arrow": (pa.array([0, 2]).dictionary_encode(), MASKED),
    "missing": (pd.array([0, None], dtype="Int64"), refused(ValueError, "missing values")),
    "a fraction": ([0.5, 2], refused((TypeError, grappa.Error))),
    "NaN": ([0, np.nan], refused((TypeError, grappa.Error))),
    "durations": (np.array([0, 2], "m8[s]"), refused((TypeError, ValueError))),
    "dates": (np.array([0, 2], "M8[D]"), refused((TypeError, grappa.Error))),
    "complex": (np.array([0j, 2]), refused((TypeError, grappa.Error))),
    "negative": ([0, -1], refused((IndexError, grappa.Error), "-1")),
    "beyond": ([0, 99], refused((IndexError, grappa.Error), "99")),
    "huge": (np.array([0, 2**63], np.uint64), refused((IndexError, grappa.Error), "9223372036854775808")),
    "beyond 64 bits": ([0, 2**70], refused((IndexError, TypeError))),
    "a matrix": ([[0, 2]], refused((TypeError, grappa.Error), "(1, 2)")),
}


def seeds_of(loader: grappa.NeighborLoader) -> list[int]:
    return sorted(int(node) for batch in loader for node in batch.n_id[: batch.batch_size])


def neighbors(store: grappa.Store, **options: Any) -> grappa.NeighborLoader:
    return grappa.NeighborLoader(store, **{"num_neighbors": [2], "input_nodes": None, "memory": "64MiB", "threads": 1, **options})


def links(store: grappa.Store, **options: Any) -> grappa.LinkNeighborLoader:
    return grappa.LinkNeighborLoader(store, **{"num_neighbors": [2], "memory": "64MiB", "threads": 1, **options})


def edges_of(store: grappa.Store) -> list[tuple[int, int]]:
    offsets, sources, _ = store.in_edges()
    return sorted(zip(sources.tolist(), np.repeat(np.arange(store.num_nodes), np.diff(offsets)).tolist()))


#: What takes nodes: the name in its errors, and the nodes that it makes of its value.
TAKERS = {
    "train": ("train", lambda store, build, value: build(features=ROWS, train=value).split("train").tolist()),
    "input_nodes": ("input_nodes", lambda store, _, value: seeds_of(neighbors(store, input_nodes=value))),
    "features[]": ("nodes", lambda store, _, value: [row[0] // 2 for row in store.features[value].tolist()]),
    "among": ("among", lambda store, _, value: sorted({int(node) for node in among_of(store, value)})),
}


def among_of(store: grappa.Store, value: Any) -> list[int]:
    batch = next(iter(links(store, batch_size=5, among=value, neg_sampling=None)))
    return batch.n_id[batch.edge_label_index[1]].tolist()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    out = tmp_path_factory.mktemp("variants") / "cycle.grappa"
    return grappa.ingest(CYCLE, features=ROWS, labels=[0, 1, 0, 1, 0], train=[0, 1, 2], chunks=5, out=out)


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Ingests edges, a cycle unless others are given."""
    folder, number = tmp_path_factory.mktemp("built"), count()
    return lambda edges=CYCLE, **options: grappa.ingest(edges, out=folder / f"{next(number)}.grappa", **options)


def check(call: Any, expected: Any, name: str) -> None:
    """Calls, and compares the result with what is expected: a value, or an error whose text has `name`."""
    if not isinstance(expected, Refused):
        assert call() == expected
        return
    with pytest.raises(expected.kind) as error:
        call()
    assert type(error.value) is not OverflowError
    for word in (name, *expected.words):
        assert word in str(error.value)


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("variant", MASKS)
@pytest.mark.filterwarnings("ignore")
def test_masks(variant, taker, store, build):
    (value, expected), (name, nodes) = MASKS[variant], TAKERS[taker]
    check(lambda: nodes(store, build, value), expected, name)


@pytest.mark.parametrize("taker", TAKERS)
@pytest.mark.parametrize("variant", LISTS)
@pytest.mark.filterwarnings("ignore")
def test_lists_of_nodes(variant, taker, store, build):
    (value, expected), (name, nodes) = LISTS[variant], TAKERS[taker]
    # The error about a node that does not exist names the node.
    check(lambda: nodes(store, build, value), expected, "" if variant in ("negative", "beyond") else name)


def named(*names: Any) -> dict[Any, np.ndarray]:
    return dict(zip(names, TWO.T))


def data_of(edges: np.ndarray) -> Any:
    return pytest.importorskip("torch_geometric.data").Data(edge_index=torch.from_numpy(edges), num_nodes=7)


def matrix_of(edges: np.ndarray) -> Any:
    return pytest.importorskip("scipy.sparse").coo_array((np.ones(2), tuple(edges.T)), (7, 7))


STRINGS = {"ids": "string"}
LONG = "s" * 300
#: Edges, with options, and the edges of the store. Where the container says which end is which, nothing is guessed.
EDGES = {
    "array": (TWO, {}, BY_ROW),
    "lists": (TWO.tolist(), {}, BY_ROW),
    "Fortran order": (np.asfortranarray(TWO), {}, BY_ROW),
    "byte-swapped": (TWO.astype(">i4"), {}, BY_ROW),
    "floats": (TWO.astype(float), {}, BY_ROW),
    "tensor": (torch.from_numpy(TWO), {}, BY_ROW),
    "transposed tensor": (torch.from_numpy(TWO).t(), {}, BY_COLUMN),
    "tensor with gradient": (torch.tensor(TWO, dtype=torch.float64, requires_grad=True), {}, BY_ROW),
    "Data": (data_of, {}, BY_COLUMN),
    "matrix": (matrix_of, {}, BY_ROW),
    "pandas": (pd.DataFrame(named("src", "dst")), {}, BY_ROW),
    "numbered columns": (pd.DataFrame(TWO), {"src": 0, "dst": 1}, BY_ROW),
    "columns of two levels": (pd.DataFrame(named(("a", "x"), ("a", "y"))), {"src": ("a", "x"), "dst": ("a", "y")}, BY_ROW),
    "names of 300 characters": (pd.DataFrame(named(LONG, "t")), {"src": LONG, "dst": "t"}, BY_ROW),
    "Polars": (pl.DataFrame(named("src", "dst")), {}, BY_ROW),
    "lazy frame": (pl.LazyFrame(named("src", "dst")), {}, BY_ROW),
    "Arrow": (pa.table(named("src", "dst")), {}, BY_ROW),
    "two tables": ([pd.DataFrame(named("src", "dst")), pa.table(named("src", "dst"))], {}, sorted(2 * BY_ROW)),
    "strings": (TWO.astype(str), STRINGS, [(0, 1), (2, 3)]),
    "bytes": (np.array([[b"a", b"b"], [b"b", b"c"], [b"c", b"a"]]), STRINGS, [(0, 1), (1, 2), (2, 0)]),
    "categories": (pd.DataFrame({"src": pd.Categorical(["a", "b"]), "dst": ["b", "c"]}), STRINGS, [(0, 1), (1, 2)]),
    "strings as integers": (TWO.astype(str), {}, refused(grappa.Error, 'ids="string"')),
    "objects": (TWO.astype(object), {}, refused(TypeError, "astype(np.int64)")),
    "booleans": (TWO.astype(bool), {}, refused(grappa.Error, "integers")),
    "durations": (TWO.astype("m8[s]"), {}, refused((ValueError, grappa.Error))),
    "masked": (np.ma.array(TWO, mask=[[0, 0], [0, 1]]), {}, refused(ValueError, "masked")),
    "a fraction": (CYCLE + 0.5, {}, refused(grappa.Error, "fraction")),
    "NaN": (np.array([[0, np.nan], [1, 2], [2, 1]]), {}, refused(grappa.Error, "missing")),
    "negative": (CYCLE - 1, {}, refused(grappa.Error, "negative")),
    "missing": (pd.DataFrame({"src": pd.array([0, None], dtype="Int64"), "dst": [1, 2]}), {}, refused(grappa.Error, "missing")),
    "one column": (pd.DataFrame({"src": [0, 1]}), {}, refused(grappa.Error, "src", "dst")),
    "unknown names": (pl.DataFrame(named("a", "b")), {}, refused(grappa.Error, 'src="a", dst="b"')),
    "a name twice": (pd.DataFrame(TWO, columns=["a", "a"]), {}, refused(ValueError, "'a'")),
    "no edges": (np.empty((0, 2), int), {}, refused(grappa.Error, "no edges", "nodes=")),
    "a list of none": ([], {}, refused(ValueError, "empty")),
    "one dimension": (np.arange(4), {}, refused(grappa.Error, "(4,)")),
    "a dict": (named("src", "dst"), {}, refused(TypeError, "dict")),
    "a generator": ((pair for pair in TWO.tolist()), {}, refused(TypeError, "generator")),
}


@pytest.mark.parametrize("variant", EDGES)
@pytest.mark.filterwarnings("ignore")
def test_edges(variant, build):
    edges, options, expected = EDGES[variant]
    if callable(edges):
        edges = edges(TWO)
    check(lambda: edges_of(build(edges, **options)), expected, "" if variant == "a name twice" else "edges")


LABELS, CLASSES = [0, 1, 0, 2, 1], list("abaca")
WEIGHTS = [0.5, 1.5, 2.5, 3.5, 4.5]
#: In the order of destinations.
STORED = [4.5, 0.5, 1.5, 2.5, 3.5]
ONE_COLUMN = [[0], [1], [2], [3], [4]]
INFINITE = refused(grappa.Error, "allow_nan=True")
#: An argument of ingest with a value for each node or edge, and the features, labels or weights of the store.
COLUMNS = {
    "half precision": ("features", ROWS.astype(np.float16), ROWS.tolist()),
    "Fortran order": ("features", np.asfortranarray(ROWS), ROWS.tolist()),
    "byte-swapped": ("features", ROWS.astype(">f8"), ROWS.tolist()),
    "reversed": ("features", ROWS[::-1], ROWS[::-1].tolist()),
    "bfloat16": ("features", torch.tensor(ROWS).bfloat16(), ROWS.tolist()),
    "with gradient": ("features", torch.tensor(ROWS.T.copy(), requires_grad=True).t(), ROWS.tolist()),
    "unordered index": ("features", pd.DataFrame({"a": range(5)}, UNORDERED), ONE_COLUMN[::-1]),
    "numbered columns": ("features", pd.DataFrame(ROWS), ROWS.tolist()),
    "dates": ("features", pd.DataFrame({"a": pd.to_datetime(range(5), unit="D")}), ONE_COLUMN),
    "chunks of Arrow": ("features", pa.table({"a": pa.chunked_array([[0, 1], [2, 3, 4]])}), ONE_COLUMN),
    "categories": ("features", pl.DataFrame({"a": pl.Series(list("xxyxx"), dtype=pl.Categorical)}), [[i != 2, i == 2, 0] for i in range(5)]),
    "NaN": ("features", np.where(ROWS == 3, np.nan, ROWS), INFINITE),
    "infinity": ("features", np.where(ROWS == 3, np.inf, ROWS), INFINITE),
    "beyond f32": ("features", np.where(ROWS == 3, 1e300, ROWS), INFINITE),
    "missing": ("features", pd.DataFrame({"a": pd.array([1, None, 2, 3, 4], dtype="Int64")}), refused(grappa.Error, 'missing="mean"')),
    "durations": ("features", pa.table({"a": pa.array(range(5), pa.duration("s"))}), refused(ValueError, "seconds")),
    "mixed objects": ("features", pd.DataFrame({"a": [1, "x", 2, 3, 4]}), refused(TypeError, "a", "one type")),
    "sparse columns": ("features", pd.DataFrame({"a": pd.arrays.SparseArray([0, 0, 1, 0, 2])}), refused(TypeError, "column a")),
    "three dimensions": ("features", ROWS[:, :, None], refused(grappa.Error, "reshape(len(features), -1)")),
    "texts": ("features", ROWS.astype(str), refused(TypeError, "numbers")),
    "a name of 300 characters": ("features", pd.DataFrame({LONG: range(5)}), refused(grappa.Error, "255", "rename")),
    "few rows": ("features", ROWS[:3], refused(grappa.Error, "3 rows")),
    "no columns": ("features", np.empty((5, 0)), refused(grappa.Error, "columns")),
    "classes": ("labels", np.array(CLASSES), [0, 1, 0, 2, 0]),
    "categories of classes": ("labels", pd.Categorical(CLASSES), [0, 1, 0, 2, 0]),
    "an index": ("labels", pd.Index(CLASSES), [0, 1, 0, 2, 0]),
    "an enumeration": ("labels", pl.Series(CLASSES, dtype=pl.Enum(list("abc"))), [0, 1, 0, 2, 0]),
    "a dictionary": ("labels", pa.array(CLASSES).dictionary_encode(), [0, 1, 0, 2, 0]),
    "bytes": ("labels", np.array(CLASSES, "S"), [0, 1, 0, 2, 0]),
    "no class": ("labels", ["a", None, "a", "b", "a"], [0, -1, 0, 1, 0]),
    "nullable": ("labels", pd.array([0, None, 0, 2, 1], dtype="Int64"), [0, -1, 0, 2, 1]),
    "missing booleans": ("labels", pa.array([True, None, True, False, True]), [1, -1, 1, 0, 1]),
    "unordered labels": ("labels", pd.Series(LABELS, UNORDERED), LABELS[::-1]),
    "RangeIndex": ("labels", pd.RangeIndex(5), [0, 1, 2, 3, 4]),
    "fractions": ("labels", np.array(LABELS) + 0.5, refused(grappa.Error, 'label_type="float"')),
    "durations of labels": ("labels", np.array(LABELS, "m8[s]"), refused(ValueError, "seconds")),
    "masked labels": ("labels", np.ma.array(LABELS, mask=[0, 1, 0, 0, 0]), refused(ValueError, "filled(-1)")),
    "few labels": ("labels", LABELS[:3], refused(grappa.Error, "3 rows")),
    "a column of weights": ("weights", np.array(WEIGHTS)[:, None], STORED),
    "a series of weights": ("weights", pd.Series(WEIGHTS), STORED),
    "chunks of weights": ("weights", pa.chunked_array([WEIGHTS[:2], WEIGHTS[2:]]), STORED),
    "weights with gradient": ("weights", torch.tensor(WEIGHTS, requires_grad=True), STORED),
    "unordered weights": ("weights", pd.Series(WEIGHTS, UNORDERED), refused(ValueError, "index")),
    "texts of weights": ("weights", np.array(WEIGHTS).astype(str), refused(TypeError, "astype(float)")),
    "durations of weights": ("weights", np.arange(5).astype("m8[s]"), refused(ValueError, "seconds")),
    "tiny weights": ("weights", [1e-300, *WEIGHTS[1:]], refused(grappa.Error, "multiply all weights")),
    "few weights": ("weights", WEIGHTS[:3], refused(grappa.Error, "found 3")),
    "True without a matrix": ("weights", True, refused(ValueError, "sparse matrix")),
}


@pytest.mark.parametrize("variant", COLUMNS)
@pytest.mark.filterwarnings("ignore")
def test_columns(variant, build):
    name, value, expected = COLUMNS[variant]
    read = {
        "features": lambda store: store.features[:].tolist(),
        "labels": lambda store: store.labels[:].tolist(),
        "weights": lambda store: store.in_edges().weights.tolist(),
    }[name]
    argument = {"features": "column 'a'", "weights": "weight"} if variant in ("durations", "tiny weights") else {}
    check(lambda: read(build(**{name: value})), expected, argument.get(name, name))


@pytest.mark.parametrize("name", ["amount", "value", "score", "distance", "rating"])
def test_columns_are_weights_by_name_only_if_they_are_called_so(name, build):
    edges = pd.DataFrame({"src": [0, 1], "dst": [1, 2], name: [0.5, 2.0]})
    with pytest.raises(grappa.Error, match=f'weight="{name}"'):
        build(edges)
    assert build(edges, weight=name).in_edges().weights.tolist() == [0.5, 2.0]
    assert build(edges.rename(columns={name: "weight"})).in_edges().weights.tolist() == [0.5, 2.0]


ALL = [0, 1, 2, 3, 4]
INTEGER, RANGE = refused(TypeError, "give an integer"), refused(ValueError, "give at least")
#: An argument of a loader, a value, and the seeds of an epoch.
OPTIONS = [
    *(("batch_size", value, INTEGER) for value in (2.5, "2", None, True, np.nan, np.inf)),
    *(("batch_size", value, RANGE) for value in (0, -1, 2**64)),
    ("batch_size", 2**63, ALL),
    ("batch_size", np.int8(2), ALL),
    *(("num_neighbors", value, refused(TypeError, "list")) for value in ("15,10", 5, None, [1.5], [None], [[1]], {"a": 1})),
    *(("num_neighbors", value, refused(ValueError, "from 0")) for value in ([-2], [2**40], [2**63])),
    ("num_neighbors", [], refused(ValueError, "hop")),
    *(("num_neighbors", value, ALL) for value in ([0], [-1], [2**31], (2,), np.array([2, 2]), torch.tensor([2]), [1] * 50)),
    *(("memory", value, refused(ValueError, "memory")) for value in (np.inf, "inf", np.nan, 0, -1, "4GB", "", 2**70)),
    ("memory", True, INTEGER),
    ("memory", "1KiB", refused(grappa.Error, "at least")),
    *(("memory", value, ALL) for value in (np.int64(1 << 26), 2.5e8, "0.25 GiB")),
    *(("seed", value, refused((TypeError, ValueError))) for value in (-1, 2**64, 1.5, None)),
    *(("threads", value, refused((TypeError, ValueError, grappa.Error))) for value in (0, -1, 1.5, 10**9, 2**40)),
    *(("partitions", value, refused((TypeError, ValueError, grappa.Error))) for value in (0, -1, 1.5, "2", 2**31, 2**40)),
    *((name, "no", refused(TypeError, "True or False")) for name in ("shuffle", "replace", "features", "disjoint", "drop_last")),
    ("layout", None, refused(ValueError, '"hops"')),
    ("labels", True, refused(ValueError, '"seeds"')),
    ("by_weight", True, refused(ValueError, "weights")),
    ("edge_features", True, refused(ValueError)),
    ("sampler", [9], refused(IndexError, "9")),
    *(("sampler", value, refused(TypeError)) for value in ([0.5], [True], 5, iter([0]), np.array([0, 1], "m8[s]"))),
    ("sampler", [4, 0, 0], [0, 0, 4]),
    ("device", "gpu", refused(ValueError, "gpu")),
    ("num_workers", 2, refused(ValueError, "threads")),
    ("fanouts", [2], refused(TypeError)),
]


@pytest.mark.parametrize("name,value,expected", OPTIONS)
def test_options_of_loaders(name, value, expected, store):
    check(lambda: seeds_of(neighbors(store, **{name: value})), expected, name)


@pytest.mark.parametrize("value,kind", [(0, ValueError), (-1, ValueError), (1.5, TypeError), (2**40, ValueError)])
@pytest.mark.parametrize("name", ["halo_neighbors", "repartition_every"])
def test_options_of_partitions(name, value, kind, store):
    if name == "repartition_every" and value == 2**40:
        assert seeds_of(neighbors(store, partitions=2, **{name: value})) == ALL
    else:
        check(lambda: neighbors(store, partitions=2, **{name: value}), refused(kind), name)


def test_seeds_may_repeat_and_be_missing(store):
    assert seeds_of(neighbors(store, input_nodes=[2, 2, 0, 2])) == [0, 2, 2, 2]
    for empty in ([], np.array([]), torch.tensor([], dtype=torch.long), np.zeros(5, bool), pd.Series([], dtype="Int64")):
        loader = neighbors(store, input_nodes=empty)
        assert len(loader) == 0 and list(loader) == []
        assert store.features[empty].shape == (0, 2) and len(store.ids(empty)) == 0


PAIRS = CYCLE.T[:, :3]
PAIRS_REFUSED = refused(ValueError, "shape (2, e)")
#: An argument of a loader of links, a value, and the number of positives of an epoch.
LINKS = [
    *(("edge_label_index", value, 3) for value in (PAIRS.tolist(), torch.tensor(PAIRS), pd.DataFrame(PAIRS), PAIRS.astype(">i2"))),
    ("edge_label_index", tuple(torch.tensor(PAIRS)), 3),
    ("edge_label_index", None, 5),
    ("edge_label_index", PAIRS[:, :0], 0),
    *(("edge_label_index", value, PAIRS_REFUSED) for value in (PAIRS.T, PAIRS * 1.0, PAIRS > 1, PAIRS.astype("m8[s]"), [0, 1])),
    ("edge_label_index", np.array([[0], [2**63]], np.uint64), refused(IndexError, "9223372036854775808")),
    *(("neg_sampling", value, refused((TypeError, ValueError))) for value in ("x", 5, True, {"amount": 2}, {"mode": "triplet", "n": 1})),
    *(
        ("neg_sampling", {"mode": mode, "amount": amount}, refused((TypeError, ValueError), "amount"))
        for mode in ("binary", "triplet", "shared")
        for amount in (0, -1, np.nan, np.inf, "x", None, 2**31, 2**40)
    ),
    ("neg_sampling", {"mode": "binary", "amount": 1e-9}, 5),
    *(("candidates", value, refused(ValueError)) for value in ("x", None, PAIRS[:, :0], PAIRS * 1.0)),
    *(("exclude_targets", value, refused(ValueError, '"both"')) for value in ("x", None, True)),
    *(("edges_per_epoch", value, refused((TypeError, ValueError))) for value in (0, -1, 1.5, 2**64)),
    ("edges_per_epoch", 2**63, 5),
    *((name, 2, refused(TypeError, "leave it out")) for name in ("input_nodes", "partitions", "disjoint")),
]


@pytest.mark.parametrize("name,value,expected", LINKS)
def test_options_of_loaders_of_links(name, value, expected, store):
    check(lambda: sum(len(batch.input_id) for batch in links(store, **{name: value})), expected, name)


@pytest.mark.parametrize("labels", [["a", "b", "c"], [None, 1, 2], np.arange(3).astype("m8[s]"), [1, 2], np.ones((3, 2))])
def test_labels_of_links_are_numbers_one_for_each_edge(labels, store):
    check(lambda: links(store, edge_label_index=PAIRS, edge_label=labels), refused((TypeError, ValueError)), "edge_label")


def test_rows_and_lists_have_one_dimension(store):
    for call, kind, words in [
        (lambda: store.features[0, 1], TypeError, "features"),
        (lambda: store.features[:, 0], TypeError, "features"),
        (lambda: store.in_neighbors(1.9), TypeError, "1.9"),
        (lambda: store.in_neighbors(2**70), IndexError, "1180591620717411303424"),
        (lambda: store.nodes([0.0]), TypeError, "ids"),
        (lambda: store.nodes(-1), KeyError, "-1"),
        (lambda: grappa.open(5), TypeError, "path"),
    ]:
        check(call, refused(kind, words), "")


@pytest.mark.filterwarnings("ignore")
def test_tables_of_predictions_take_nodes_as_loaders_do(run, cora):
    pytest.importorskip("pyarrow.parquet")
    store = grappa.open(cora)
    mask = np.zeros(store.num_nodes, bool)
    mask[[5, 7]] = True
    for nodes in ([5, 7], (7, 5), pd.Index([5, 7]), torch.tensor([5, 7]), pa.array([5, 7]), mask, pd.Series(mask), pl.Series(mask)):
        assert sorted(run.predict_table(store, nodes)["id"].to_pylist()) == [5, 7]
    assert run.predict_table(store, []).num_rows == 0
    for options, kind, name in [
        ({"nodes": [0.5]}, TypeError, "nodes"),
        ({"nodes": pd.Series(mask, np.arange(store.num_nodes)[::-1])}, ValueError, "nodes"),
        ({"nodes": [store.num_nodes]}, IndexError, str(store.num_nodes)),
        ({"ids": [0.5]}, TypeError, "ids"),
        ({"ids": [5], "nodes": [5]}, ValueError, "ids and nodes"),
        ({"values": "x"}, ValueError, "values"),
        ({"links": [[0.5], [1]]}, ValueError, "links"),
        ({"among": [1]}, ValueError, "among"),
        ({"split": "x"}, grappa.Error, "x"),
    ]:
        check(lambda: run.predict_table(store, **options), refused(kind), name)
