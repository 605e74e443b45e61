"""Ingest of edges with times, and batches that have no edge from after the time of their seed."""

import datetime
import pickle
import sys
import warnings

import numpy as np
import pytest

import grappa

NODES, EVENTS = 40, 600


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """A store of events, and its edges with their times: parallel edges, equal times and loops among them."""
    random = np.random.default_rng(3)
    edges = random.integers(0, NODES, (EVENTS, 2))
    times = random.integers(0, 200, EVENTS)
    out = tmp_path_factory.mktemp("times") / "events.grappa"
    return grappa.ingest(edges, time=times, nodes=NODES, chunks=4, out=out), edges, times


def tree_edges(batch, seed):
    """The edges of the tree of a seed of a batch: sources, destinations and times."""
    sources, destinations = batch.edge_index
    of_seed = batch.batch[destinations] == seed
    assert (batch.batch[sources] == batch.batch[destinations]).all()
    ends = batch.n_id[sources[of_seed]].tolist(), batch.n_id[destinations[of_seed]].tolist()
    return sorted(zip(*ends, batch.edge_time[of_seed].tolist(), strict=True))


def reference(edges, times, seed, time, hops, *, equal=True, window=None, by_edge=False):
    """All edges that a seed may see within some hops, each node expanded at the hop after the one that reached it. With `by_edge`, None if
    two edges reach a node first, so that either may limit it."""
    found, limits, frontier = [], {seed: time}, [seed]
    for _ in range(hops):
        reached = {}
        for node in frontier:
            limit = limits[node] if by_edge else time
            may_have = (edges[:, 1] == node) & (times <= limit if equal else times < limit)
            if window is not None:
                may_have &= times >= limit - window
            for source, at in zip(edges[may_have, 0].tolist(), times[may_have].tolist(), strict=True):
                found.append((source, node, at))
                if source not in limits:
                    reached.setdefault(source, set()).add(at)
        if by_edge and any(len(ats) > 1 for ats in reached.values()):
            return None
        limits |= {node: min(ats) for node, ats in reached.items()}
        frontier = list(reached)
    return sorted(found)


@pytest.mark.parametrize("options", [{}, {"time_equal": False}, {"time_window": 30}, {"time_window": 30, "time_equal": False}])
@pytest.mark.parametrize("order", ["shuffle", "sampler", "batch_sampler", "drop_last"])
def test_batches_have_all_edges_up_to_the_time_of_each_seed(events, options, order):
    store, edges, times = events
    random = np.random.default_rng(4)
    seeds, seed_times = random.integers(0, NODES, 50), random.integers(-5, 210, 50)
    positions = random.permutation(50)
    orders = {
        "shuffle": {"batch_size": 8, "shuffle": True},
        "sampler": {"batch_size": 8, "sampler": positions},
        "batch_sampler": {"batch_sampler": [positions[:30], positions[5:6]]},
        "drop_last": {"batch_size": 8, "shuffle": True, "drop_last": True},
    }
    loader = grappa.NeighborLoader(store, [-1, -1], input_nodes=seeds, input_time=seed_times, **orders[order], **options)
    naming = {"equal": options.get("time_equal", True), "window": options.get("time_window")}
    for _ in range(2):
        count = 0
        for batch in loader:
            assert batch.n_id[: batch.batch_size].tolist() == seeds[batch.input_id].tolist()
            assert batch.seed_time.tolist() == seed_times[batch.input_id].tolist()
            assert batch.batch[: batch.batch_size].tolist() == list(range(batch.batch_size))
            for place, (seed, time) in enumerate(zip(seeds[batch.input_id], batch.seed_time, strict=True)):
                assert tree_edges(batch, place) == reference(edges, times, seed, time, 2, **naming)
                count += 1
        assert count == {"shuffle": 50, "sampler": 50, "batch_sampler": 31, "drop_last": 48}[order]


def test_later_hops_may_be_limited_by_the_edge_over_which_a_node_was_reached(events):
    store, edges, times = events
    seeds, seed_times = np.repeat(np.arange(NODES), 3), np.tile([20, 40, 60], NODES)
    loader = grappa.NeighborLoader(store, [-1, -1], 16, seeds, input_time=seed_times, time_hops="edge", shuffle=False)
    compared = 0
    for batch in loader:
        for place in range(batch.batch_size):
            expected = reference(edges, times, seeds[batch.input_id[place]], batch.seed_time[place], 2, by_edge=True)
            if expected is not None:
                assert tree_edges(batch, place) == expected
                compared += len(expected)
    assert compared > 100


def test_the_last_edges_are_the_last_ones_before_the_seed(events):
    store, edges, times = events
    loader = grappa.NeighborLoader(store, [3], 8, None, input_time=100, time_strategy="last", shuffle=False)
    for batch in loader:
        for place, seed in enumerate(batch.n_id[: batch.batch_size]):
            all_of_seed = sorted(times[(edges[:, 1] == seed) & (times <= 100)].tolist())
            assert sorted(time for *_, time in tree_edges(batch, place)) == all_of_seed[-3:]


def test_uniform_draws_have_every_edge_up_to_the_seed_and_no_later_one(tmp_path):
    edges = np.column_stack([np.arange(1, 21), np.zeros(20, int)])
    store = grappa.ingest(edges, time=np.arange(20), out=tmp_path / "star.grappa")
    loader = grappa.NeighborLoader(store, [1], 100, np.zeros(4000, int), input_time=9)
    drawn = np.concatenate([batch.edge_time for batch in loader])
    counts = np.bincount(drawn, minlength=20)
    assert counts[10:].sum() == 0 and counts.sum() == 4000
    # The 99.99 % quantile of chi-square with 9 degrees of freedom.
    assert ((counts[:10] - 400) ** 2 / 400).sum() < 33.7


def test_blocks_have_the_times_of_their_edges(events):
    store, edges, times = events
    known = set(zip(*edges.T.tolist(), times.tolist(), strict=True))
    batch = next(iter(grappa.NeighborLoader(store, [4, 4], 8, None, input_time=120, layout="blocks")))
    outer, inner = batch.blocks
    for block in (outer, inner):
        ends = batch.n_id[block.edge_index]
        assert set(zip(*ends.tolist(), block.edge_time.tolist(), strict=True)) <= known
        assert len(block.edge_time) and block.edge_time.max() <= 120


def test_ranks_divide_seeds_with_their_times(events):
    store, *_ = events
    seeds, seed_times = np.arange(NODES), 1000 + np.arange(NODES)
    found = []
    for rank in range(2):
        loader = grappa.NeighborLoader(
            store, [1], 4, seeds, input_time=seed_times, distributed=True, rank=rank, world_size=2, shuffle=True
        )
        for batch in loader:
            assert batch.seed_time.tolist() == (1000 + batch.n_id[: batch.batch_size]).tolist()
            found += batch.input_id.tolist()
    assert sorted(found) == list(range(NODES))


def test_a_loader_with_times_can_be_pickled(events):
    store, *_ = events
    loader = grappa.NeighborLoader(store, [2], 8, [3, 3], input_time=[20, 90], time_window=50, shuffle=False)
    copy = pickle.loads(pickle.dumps(loader))
    first, again = next(iter(loader)), next(iter(copy))
    assert first.edge_time.tolist() == again.edge_time.tolist() and again.seed_time.tolist() == [20, 90]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"input_time": [1, 2]}, ValueError, r"input_time has shape \(2,\), and there are 40 seeds in input_nodes"),
        ({"input_time": 1.5}, TypeError, "input_time is an array of float64; times are integers in the unit of the store, integer"),
        ({"input_time": np.datetime64("2024-01-01")}, TypeError, "the times of the store are integers without a unit"),
        ({"time_equal": False}, ValueError, "time_equal: seeds have no times; give input_time="),
        ({"time_window": 3}, ValueError, "time_window: seeds have no times"),
        ({"time_hops": "edge"}, ValueError, "time_hops: seeds have no times"),
        ({"time_strategy": "last"}, ValueError, "time_strategy: seeds have no times"),
        ({"input_time": 5, "time_strategy": "first"}, ValueError, 'give "uniform" or "last"'),
        ({"input_time": 5, "time_hops": "node"}, ValueError, 'give "seed" or "edge"'),
        ({"input_time": 5, "time_window": -1}, ValueError, "time_window is -1; give at least 0"),
        ({"input_time": 5, "by_weight": True}, ValueError, "by_weight and input_time: draws by edge weight do not know times"),
        ({"input_time": "own"}, ValueError, 'input_time="own": the nodes of .* have no times'),
        ({"input_time": 5, "first_hop": "mean"}, ValueError, "first_hop and input_time: pre-aggregated features have all edges"),
        ({"input_time": 5, "layout": "induced"}, ValueError, "layout and input_time: induced edges may be later"),
        ({"input_time": 5, "time_strategy": "last", "replace": True}, grappa.Error, "the last edges are drawn once each"),
    ],
)
def test_impossible_times_are_refused(events, options, error, message):
    with pytest.raises(error, match=message):
        grappa.NeighborLoader(events[0], [2], input_nodes=None, **options)


def test_times_of_seeds_need_times_of_edges(store):
    with pytest.raises(ValueError, match=r"input_time: the edges of .* have no times; ingest them with time="):
        grappa.NeighborLoader(store, [2], input_time=5)


def test_loaders_warn_of_times_that_seeds_do_not_have(events):
    with pytest.warns(UserWarning, match=r"the seeds of this loader have none.* Give input_time=\.\.\."):
        grappa.NeighborLoader(events[0], [2], input_nodes=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        grappa.NeighborLoader(events[0], [2], input_nodes=None, input_time=5)
        grappa.NeighborLoader(events[0], [2], input_nodes=None, input_time="none")


def test_partitions_have_the_edges_up_to_the_time_of_each_seed(events):
    store, edges, times = events
    seeds, seed_times = np.arange(NODES).repeat(2), np.arange(2 * NODES) * 5 % 210
    loader = grappa.NeighborLoader(store, [-1, -1], 6, seeds, input_time=seed_times, partitions=3, repartition_every=1)
    for _ in range(2):
        found = []
        for batch in loader:
            assert (batch.seed_time == seed_times[batch.input_id]).all() and (batch.n_id[: batch.batch_size] == seeds[batch.input_id]).all()
            for seed, (node, time) in enumerate(zip(batch.n_id[: batch.batch_size], batch.seed_time, strict=True)):
                of_seed = [edge for edge in tree_edges(batch, seed) if edge[1] == node]
                # The first hop is whole; nodes of other partitions have no edges after it.
                expected = reference(edges, times, node, time, 1)
                assert sorted(of_seed) == sorted(expected)
                assert all(edge[2] <= time for edge in tree_edges(batch, seed))
            found.extend(batch.input_id.tolist())
        assert sorted(found) == list(range(2 * NODES))


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    """A store whose nodes have times, its edges and the times."""
    random = np.random.default_rng(5)
    edges, times = random.integers(0, NODES, (EVENTS, 2)), random.integers(0, 200, NODES)
    out = tmp_path_factory.mktemp("times") / "orders.grappa"
    table = pytest.importorskip("pyarrow").table({"at": times, "x": np.ones(NODES, np.float32)})
    return grappa.ingest(edges, features=table, node_time="at", nodes=NODES, chunks=4, out=out), edges, times


@pytest.mark.parametrize("given", [None, "own"])
def test_seeds_have_the_times_of_their_nodes(orders, given):
    store, edges, times = orders
    assert store.node_times[:].tolist() == times.tolist() and store.node_times[[3, 1]].tolist() == times[[3, 1]].tolist()
    seeds = [5, 9, 5, 30]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = grappa.NeighborLoader(store, [-1], 4, seeds, input_time=given, shuffle=False, features=False)
    batch = next(iter(loader))
    assert batch.seed_time.tolist() == times[seeds].tolist() and (batch.node_time == times[batch.n_id]).all()
    sources, destinations = batch.edge_index
    for seed, node in enumerate(seeds):
        found = batch.n_id[sources[destinations == seed]]
        expected = edges[(edges[:, 1] == node) & (times[edges[:, 0]] <= times[node]), 0]
        assert sorted(found.tolist()) == sorted(expected.tolist())


def test_own_times_can_be_left_out_and_name_what_contradicts_them(orders):
    store, edges, _ = orders
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = grappa.NeighborLoader(store, [-1], 4, [5], input_time="none", features=False)
    batch = next(iter(loader))
    assert batch.seed_time is None and batch.edge_index.shape[1] == (edges[:, 1] == 5).sum()
    with pytest.raises(ValueError, match='layout and input_time: .* or give input_time="none"'):
        grappa.NeighborLoader(store, [-1], 4, [5], layout="induced")


# Ingest.


def test_dates_keep_their_unit_and_seeds_may_have_dates(tmp_path):
    edges = np.array([[1, 0], [2, 0], [3, 0]])
    days = np.array(["2024-02-28", "2024-02-29", "2024-03-01"], "datetime64[D]")
    store = grappa.ingest(edges, time=days, out=tmp_path / "days.grappa")
    assert store.time_unit == "days"
    loader = grappa.NeighborLoader(store, [-1], 2, [0, 0], input_time=days[1:], shuffle=False)
    batch = next(iter(loader))
    assert np.array_equal(batch.seed_time.astype("datetime64[D]"), days[1:])
    assert [len(tree_edges(batch, place)) for place in range(2)] == [2, 3]
    with pytest.raises(ValueError, match=r"2024-02-28T12:00.*, which is not whole in the unit of the store, days"):
        grappa.NeighborLoader(store, [1], 2, [0], input_time=np.array(["2024-02-28T12:00"], "datetime64[s]"))
    seconds = grappa.ingest(edges, time=days.astype("datetime64[ms]"), out=tmp_path / "ms.grappa")
    assert seconds.time_unit == "ms"
    unix = grappa.ingest(edges, time=np.array([1, 2, 3], np.int32), time_unit="s", out=tmp_path / "s.grappa")
    assert unix.time_unit == "s"


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (np.array([70, -3, 50]), "integer"),
        (np.array([70, 2, 50], np.uint8), "integer"),
        ([70, 2, 50], "integer"),
        (np.array([70, 2, 50]).astype("datetime64[D]"), "days"),
        (np.array([70, 2, 50]).astype("datetime64[h]"), "s"),
        (np.array([70, 2, 50]).astype("datetime64[ns]"), "ns"),
        ([datetime.datetime(2024, 3, day) for day in (9, 2, 5)], "us"),
    ],
)
def test_arrays_of_times_need_no_pyarrow(tmp_path, monkeypatch, times, unit):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    store = grappa.ingest(np.array([[1, 0], [2, 0], [3, 0]], np.int32), time=times, out=tmp_path / "x.grappa")
    assert store.time_unit == unit
    batch = next(iter(grappa.NeighborLoader(store, [-1], 1, [0], input_time=2**62, features=False)))
    expected = np.asarray(times)
    if unit == "us":
        expected = expected.astype("datetime64[us]")
    elif unit == "s":
        expected = expected.astype("datetime64[s]")
    found = sorted(zip(batch.n_id[batch.edge_index[0]], batch.edge_time, strict=True))
    assert found == sorted(zip([1, 2, 3], expected.astype(np.int64), strict=True))


@pytest.mark.parametrize(
    ("times", "error", "message"),
    [
        (np.array(["2024-01-01", "NaT"], "datetime64[s]"), ValueError, "time has missing dates"),
        ([datetime.datetime(2024, 1, 1), None], ValueError, "time has missing dates"),
        (np.array([1, 2**63], np.uint64), ValueError, r"time has 9223372036854775808, and times are below 2\*\*63"),
        (np.array([1, 2]).astype("datetime64[ps]"), ValueError, "time has dates in ps: give s, ms, us or ns"),
    ],
)
def test_times_that_no_store_has_are_refused(tmp_path, times, error, message):
    with pytest.raises(error, match=message):
        grappa.ingest(np.array([[1, 0], [2, 0]]), time=times, out=tmp_path / "x.grappa")


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_tables_have_a_column_of_times(tmp_path, kind):
    library = pytest.importorskip(kind)
    if kind == "pandas":
        pytest.importorskip("pyarrow")
    columns = {"src": [1, 2], "dst": [0, 0], "at": np.array(["2024-01-01T00:00:05", "2024-01-01T00:00:09"], "datetime64[ns]")}
    table = library.table(columns) if kind == "pyarrow" else library.DataFrame(columns)
    store = grappa.ingest(table, time="at", out=tmp_path / "table.grappa")
    assert store.has_edge_times and store.time_unit == "ns"
    with pytest.raises(TypeError, match="give the name of a column of edges"):
        grappa.ingest(table, time=np.array([1, 2]), out=tmp_path / "other.grappa")


@pytest.mark.parametrize(
    ("time", "error", "message"),
    [
        (np.array([0.5, 1.5]), TypeError, r"time is an array of float64, and times are exact integers; give time.astype"),
        (np.array([1]), ValueError, r"time has shape \(1,\), and there are 2 edges"),
        ("at", TypeError, "names a column, and edges is an array"),
        (np.array([True, False]), TypeError, "time is an array of bool"),
    ],
)
def test_impossible_times_of_edges_are_refused(tmp_path, time, error, message):
    with pytest.raises(error, match=message):
        grappa.ingest(np.array([[1, 0], [2, 0]]), time=time, out=tmp_path / "x.grappa")


def test_weights_and_features_stay_with_edges_that_have_times(tmp_path):
    edges, times = np.array([[3, 0], [1, 0], [2, 0]]), np.array([7, 9, 8])
    store = grappa.ingest(edges, time=times, weights=np.array([3.0, 1.0, 2.0]), out=tmp_path / "weights.grappa")
    batch = next(iter(grappa.NeighborLoader(store, [-1], 1, [0], input_time=8)))
    found = sorted(zip(batch.n_id[batch.edge_index[0]], batch.edge_time, batch.edge_weight, strict=True))
    assert found == [(2, 8, 2.0), (3, 7, 3.0)]


# Links.


@pytest.mark.parametrize("negatives", [None, "binary", {"mode": "binary", "amount": 1.5}, {"mode": "triplet", "amount": 2}])
def test_both_ends_of_a_link_see_the_edges_up_to_its_time_but_not_itself(events, negatives):
    store, edges, times = events
    chosen = np.random.default_rng(5).permutation(EVENTS)[:100]
    loader = grappa.LinkNeighborLoader(
        store, [-1], 10, edges[chosen].T, edge_label_time=times[chosen], neg_sampling=negatives, full_batches=True, exclude_edges=False
    )
    for batch in loader:
        positives = chosen[batch.input_id]
        count = len(positives)
        if batch.src_index is not None:
            assert batch.dst_neg_index.shape == (count, 2) and batch.edge_label_time.tolist() == times[positives].tolist()
            pairs = np.stack([np.repeat(batch.src_index, 3), np.column_stack([batch.dst_pos_index, batch.dst_neg_index]).reshape(-1)])
            pair_times = np.repeat(batch.edge_label_time, 3)
        else:
            pairs, pair_times = batch.edge_label_index, batch.edge_label_time
            assert pair_times[:count].tolist() == times[positives].tolist() and pairs.shape[1] == len(pair_times)
            assert batch.n_id[pairs[:, :count]].T.tolist() == edges[positives].tolist()
        for source, destination, time in zip(*pairs.tolist(), pair_times.tolist(), strict=True):
            part = batch.batch[source]
            assert part == batch.batch[destination] and times[positives[part]] == time
            own = tuple(edges[positives[part]].tolist())
            for end in (source, destination):
                node = batch.n_id[end]
                into = (edges[:, 1] == node) & (times <= time)
                is_target = (times == time) & (
                    ((edges[:, 0] == own[0]) & (edges[:, 1] == own[1])) | ((edges[:, 0] == own[1]) & (edges[:, 1] == own[0]))
                )
                expected = sorted(zip(edges[into & ~is_target, 0].tolist(), times[into & ~is_target].tolist(), strict=True))
                of_end = batch.edge_index[1] == end
                found = sorted(zip(batch.n_id[batch.edge_index[0][of_end]].tolist(), batch.edge_time[of_end].tolist(), strict=True))
                assert found == expected


def test_positives_of_the_store_are_at_their_stored_times(events):
    store, edges, times = events
    known = sorted(zip(*edges.T.tolist(), times.tolist(), strict=True))
    found = []
    for batch in grappa.LinkNeighborLoader(store, [2], 32, "train", neg_sampling=None):
        ends = batch.n_id[batch.edge_label_index]
        found += zip(*ends.tolist(), batch.edge_label_time.tolist(), strict=True)
        assert (batch.edge_time <= batch.edge_label_time[batch.batch[batch.edge_index[1]]]).all()
    assert sorted(found) == known
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(grappa.LinkNeighborLoader(store, [2], 32, "train", edge_label_time="none")))
    assert batch.edge_label_time is None and batch.edge_time is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"edge_label_time": 5}, "edge_label_time: the positives 'train' are edges of the store, at their times there"),
        ({"neg_sampling": "shared"}, "edges at different times cannot share negatives"),
        ({"edge_label_index": np.array([[1], [2]]), "edge_label_time": [1, 2]}, r"edge_label_time has shape \(2,\), and there are 1 edges"),
        ({"edge_label_index": np.array([[1], [2]]), "time_window": 5}, "time_window: seeds have no times; give edge_label_time="),
    ],
)
def test_impossible_times_of_links_are_refused(events, options, message):
    with pytest.raises(ValueError, match=message):
        grappa.LinkNeighborLoader(events[0], [2], **options)
    with pytest.raises(TypeError, match="input_time: seeds are at the times of edge_label_time; leave it out"):
        grappa.LinkNeighborLoader(events[0], [2], input_time=5)
