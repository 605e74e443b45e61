"""Batches of the loader, and its threads."""

import gc
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import grappa


def threads():
    return len(os.listdir("/proc/self/task"))


def test_batches_are_neighborhoods_of_their_seeds(store):
    fanouts = [4, 3]
    loader = grappa.NeighborLoader(store, fanouts, batch_size=50, seed=3)
    seen = []
    for batch in loader:
        assert np.array_equal(batch.n_id[: batch.batch_size], store.split("train")[batch.input_id])
        assert np.array_equal(batch.y, store.labels[batch.n_id[: batch.batch_size]])
        assert np.array_equal(batch.x, store.features[batch.n_id])
        assert len(np.unique(batch.n_id)) == len(batch.n_id) == sum(batch.num_sampled_nodes)
        assert batch.edge_index.shape == (2, sum(batch.num_sampled_edges))
        # A node draws at the hop after the one that reached it, and never again.
        first_node, first_edge = 0, 0
        for hop, fanout in enumerate(fanouts):
            nodes = range(first_node, first_node + batch.num_sampled_nodes[hop])
            edges = batch.edge_index[:, first_edge : first_edge + batch.num_sampled_edges[hop]]
            for node in nodes:
                sources = batch.n_id[edges[0, edges[1] == node]]
                neighbors = store.in_neighbors(batch.n_id[node])
                assert len(sources) == min(fanout, len(neighbors)) == len(set(sources))
                assert set(sources) <= set(neighbors)
            assert set(edges[1]) <= set(nodes)
            first_node, first_edge = nodes.stop, first_edge + edges.shape[1]
        seen.append(batch.input_id)
    assert len(seen) == len(loader)
    assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(store.splits["train"]))


def test_the_order_is_that_of_the_input_without_shuffling(store):
    nodes = np.array([2000, 3, 77, 1500, 4])
    loader = grappa.NeighborLoader(store, [2], batch_size=2, input_nodes=nodes, shuffle=False)
    batches = list(loader)
    assert np.array_equal(np.concatenate([batch.n_id[: batch.batch_size] for batch in batches]), nodes)
    assert np.array_equal(np.concatenate([batch.input_id for batch in batches]), np.arange(5))
    for shuffle in (False, True):
        batches = list(grappa.NeighborLoader(store, [1], 500, None, shuffle=shuffle))
        nodes = np.concatenate([batch.n_id[: batch.batch_size] for batch in batches])
        assert np.array_equal(nodes, np.concatenate([batch.input_id for batch in batches]))
        assert np.array_equal(nodes, np.arange(store.num_nodes)) == (not shuffle)


def test_seed_and_epoch_decide_the_batches(store):
    def first(epoch, **options):
        loader = grappa.NeighborLoader(store, [5, 5], batch_size=64, seed=1, **options)
        loader.set_epoch(epoch)
        return next(iter(loader)).n_id

    assert np.array_equal(first(0), first(0, threads=1))
    assert not np.array_equal(first(0), first(1))
    loader = grappa.NeighborLoader(store, [5, 5], batch_size=64, seed=1)
    epochs = [next(iter(loader)).n_id for _ in range(2)]
    assert np.array_equal(epochs[1], first(1))


def test_arrays_outlive_their_loader_and_are_their_users(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=40)
    batches = list(loader)
    copies = [(batch.n_id.copy(), batch.x.copy()) for batch in batches]
    batches[0].x[:] = -1
    del loader
    gc.collect()
    assert (batches[0].x == -1).all()
    for batch, (n_id, x) in list(zip(batches, copies))[1:]:
        assert np.array_equal(batch.n_id, n_id) and np.array_equal(batch.x, x)


@pytest.mark.parametrize("options", [{"memory": "32MiB"}, {"memory": "32MiB", "threads": 1}, {"memory": "9MiB", "threads": 1}])
def test_a_thousand_kept_batches_block_nothing(store, options):
    loader = grappa.NeighborLoader(store, [3], batch_size=1, input_nodes=np.arange(1000), **options)
    assert sum(batch.batch_size for batch in list(loader)) == 1000


def test_threads_end_with_their_loader(store):
    before = threads()
    for _ in range(50):
        loader = grappa.NeighborLoader(store, [3, 2], batch_size=8)
        for batch in loader:
            break
        del loader, batch
    gc.collect()
    assert threads() == before


def test_an_epoch_that_was_broken_off_does_not_disturb_the_next(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=8, shuffle=False)
    whole = [batch.n_id for batch in loader]
    for index, _ in enumerate(loader):
        if index == 2:
            break
    loader.set_epoch(0)
    assert all(np.array_equal(batch.n_id, n_id) for batch, n_id in zip(loader, whole, strict=True))


def test_an_iterator_that_is_left_over_blocks_neither_another_epoch_nor_the_exit(store, cora):
    loader = grappa.NeighborLoader(store, [3], batch_size=8, shuffle=False)
    first, second = iter(loader), iter(loader)
    with pytest.raises(RuntimeError, match="started another epoch"):
        list(first)
    assert sum(batch.batch_size for batch in second) == store.splits["train"]
    script = f"""
import grappa
batches = iter(grappa.NeighborLoader({os.fspath(cora)!r}, [3], batch_size=8))
kept = [next(batches), next(batches)]
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_loader_can_be_pickled(store):
    loader = grappa.NeighborLoader(store, [3, 3], batch_size=16, seed=5)
    copy = pickle.loads(pickle.dumps(loader))
    assert np.array_equal(next(iter(copy)).n_id, next(iter(loader)).n_id)


def test_a_forked_process_is_told_to_spawn(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=16)
    child = os.fork()
    if child == 0:
        try:
            iter(loader)
        except RuntimeError as error:
            os._exit(0 if "spawn" in str(error) else 2)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("device", [None, "cpu"])
def test_several_python_threads_share_a_loader(store, device):
    if device:
        pytest.importorskip("torch")
    loader = grappa.NeighborLoader(store, [3], batch_size=8, device=device)
    batches, found = iter(loader), []

    def take():
        for batch in batches:
            found.append(np.asarray(batch.input_id))

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(store.splits["train"]))


def test_full_batches_leave_the_rest_to_a_smaller_last_one(store):
    nodes = np.arange(25)

    def sizes(**options):
        loader = grappa.NeighborLoader(store, [2], 10, nodes, **options)
        found = [batch.batch_size for batch in loader]
        assert len(loader) == len(found)
        return found

    assert sizes() == [8, 8, 9]
    assert sizes(full_batches=True) == [10, 10, 5]
    assert sizes(drop_last=True) == [10, 10]
    assert grappa.NeighborLoader(store, [2], 30, nodes, drop_last=True).__len__() == 0
    assert list(grappa.NeighborLoader(store, [2], 30, nodes, drop_last=True)) == []


def test_edge_weights_are_those_of_the_input(weighted, tmp_path):
    store, pairs, weights = weighted
    weight_of = {tuple(pair): weight for pair, weight in zip(pairs.tolist(), weights)}
    for layout in ("hops", "induced"):
        for by_weight in (False, True):
            loader = grappa.NeighborLoader(store, [3, 2], 7, None, layout=layout, by_weight=by_weight)
            for batch in loader:
                edges = batch.n_id[batch.edge_index].T.tolist()
                assert batch.edge_weight.tolist() == [weight_of[tuple(edge)] for edge in edges]
    store = grappa.ingest(pairs, weights=weights, chunks=4, out=tmp_path / "chunks.grappa")
    for batch in grappa.NeighborLoader(store, [3, 2, 2], 7, None, partitions=2):
        edges = batch.n_id[batch.edge_index].T.tolist()
        assert batch.edge_weight.tolist() == [weight_of[tuple(edge)] for edge in edges]
    assert next(iter(grappa.NeighborLoader(store, [3], 7, None, edge_weights=False))).edge_weight is None
    with pytest.raises(grappa.Error, match="not drawn by edge weight"):
        grappa.NeighborLoader(store, [3, 2], 7, None, partitions=2, by_weight=True)


def check_edge_features(batch, edges, number_of):
    ends = np.asarray(batch.n_id)[np.asarray(edges.edge_index)].T
    features, ids = np.asarray(edges.edge_attr), np.asarray(edges.e_id)
    assert features.shape == (len(ids), 3) and np.array_equal(features[:, :2], ends)
    for edge, number in zip(ids.tolist(), features[:, 2].tolist()):
        assert number_of.setdefault(edge, number) == number


def test_edges_bring_their_features_and_their_places_in_the_store(with_edge_features):
    store, pairs = with_edge_features
    assert store.num_edge_features == 3 and "3 features each" in store._repr_html_()
    number_of = {}
    for layout in ("hops", "induced"):
        for batch in grappa.NeighborLoader(store, [3, 2], 7, None, layout=layout):
            check_edge_features(batch, batch, number_of)
    for batch in grappa.NeighborLoader(store, [-1, 2], 7, None, layout="blocks"):
        for block in batch.blocks:
            check_edge_features(batch, block, number_of)
    for batch in grappa.LinkNeighborLoader(store, [-1, 3], 20):
        check_edge_features(batch, batch, number_of)
    assert sorted(number_of) == list(range(len(pairs))) and len(set(number_of.values())) == len(pairs)
    for halo in ("stop", "none", "neighbors"):
        for batch in grappa.NeighborLoader(store, [3, 2, 2], 7, None, partitions=2, halo=halo):
            check_edge_features(batch, batch, number_of)
    without = next(iter(grappa.NeighborLoader(store, [3], 7, None, edge_features=False)))
    assert without.edge_attr is None and without.e_id is None


def test_heavy_edges_are_drawn_more_often(weighted):
    store, pairs, weights = weighted
    node = int(np.bincount(pairs[:, 1]).argmax())
    of_node = weights[pairs[:, 1] == node]
    loader = grappa.NeighborLoader(store, [1], 1, [node], by_weight=True)
    drawn = [next(iter(loader)).edge_weight[0] for _ in range(60)]
    expected = (of_node**2).sum() / of_node.sum()
    assert expected / 1.5 < np.mean(drawn) < 1.5 * expected


def test_blocks_are_bipartite_hops(store):
    fanouts = [4, 3]
    loader = grappa.NeighborLoader(store, fanouts, batch_size=50, layout="blocks", seed=3)
    for batch in loader:
        assert batch.edge_index is None and len(batch.blocks) == 2
        outer, inner = batch.blocks
        assert outer.size[0] == len(batch.n_id) and outer.size[1] == inner.size[0] and inner.size[1] == batch.batch_size
        # Every destination draws, also those that drew at the hop before.
        for block, fanout in ((outer, 3), (inner, 4)):
            assert block.edge_index[0].max() < block.size[0] and block.edge_index[1].max() < block.size[1]
            for node in range(block.size[1]):
                sources = batch.n_id[block.edge_index[0, block.edge_index[1] == node]]
                neighbors = store.in_neighbors(batch.n_id[node])
                assert len(sources) == min(fanout, len(neighbors)) == len(set(sources)) and set(sources) <= set(neighbors)


def test_induced_batches_have_all_edges_among_their_nodes(store):
    for batch in grappa.NeighborLoader(store, [3, 2], batch_size=40, layout="induced", threads=3):
        nodes = set(batch.n_id.tolist())
        expected = {(source, node) for node in nodes for source in store.in_neighbors(node).tolist() if source in nodes}
        edges = [tuple(edge) for edge in batch.n_id[batch.edge_index].T.tolist()]
        assert len(edges) == len(expected) and set(edges) == expected


def test_batches_have_only_what_is_asked_for(store):
    batch = next(iter(grappa.NeighborLoader(store, [3], 16, features=False, labels=None)))
    assert batch.x is None and batch.y is None
    batch = next(iter(grappa.NeighborLoader(store, [3], 16, labels="all")))
    assert np.array_equal(batch.y, store.labels[batch.n_id])


def test_other_python_threads_run_while_a_batch_is_awaited(tmp_path):
    # Neighborhoods are large, so each batch takes a while.
    edges = np.random.default_rng(0).integers(0, 20_000, (400_000, 2))
    store = grappa.ingest(edges, out=tmp_path / "random.grappa")
    loader = grappa.NeighborLoader(store, [20, 20, 20], 200, None, memory="1GiB")
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1

    counter = threading.Thread(target=count)
    batches = iter(loader)
    next(batches)
    counter.start()
    try:
        before = counted[0]
        for _ in range(10):
            next(batches)
        assert counted[0] - before > 10_000
    finally:
        stop.set()
        counter.join()


def test_threads_end_after_a_break_although_the_loader_stays(store):
    loader = grappa.NeighborLoader(store, [3, 2], batch_size=8)
    idle = threads()
    for _ in range(3):
        for _batch in loader:
            break
        with pytest.raises(ZeroDivisionError):
            for _batch in loader:
                1 / 0
    gc.collect()
    deadline = time.monotonic() + 10
    while threads() > idle and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() == idle
    assert sum(batch.batch_size for batch in loader) == store.splits["train"]


def test_an_interpreter_exits_while_batches_arrive(cora):
    script = f"""
import grappa, sys, threading
loader = grappa.NeighborLoader({os.fspath(cora)!r}, [10, 10, 10], batch_size=4, input_nodes=None)
batches = iter(loader)
batch = next(batches)
threading.Thread(target=lambda: [None for _ in batches], daemon=True).start()
sys.exit(3)
"""
    assert subprocess.run([sys.executable, "-c", script], timeout=60).returncode == 3


def _first_nodes(loader):
    return next(iter(loader)).n_id.tolist()


def _first_error(loader):
    try:
        _first_nodes(loader)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_a_spawned_process_opens_the_loader_again(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=16, seed=2)
    expected = _first_nodes(loader)
    loader.set_epoch(0)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_first_nodes, (loader,)) == expected


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_leaves_batches_of_its_parent_alone(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=16)
    batches = iter(loader)
    batch = next(batches)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            next(batches)
        except RuntimeError as error:
            status = 0 if "spawn" in str(error) else 2
        total = float(batch.x.sum())
        del batch, batches, loader
        gc.collect()
        os._exit(status if total >= 0 else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(1 for _ in batches) == len(loader) - 1


def test_batches_outlive_a_deleted_store(cora, tmp_path):
    copy = tmp_path / "copy.grappa"
    shutil.copytree(cora, copy)
    loader = grappa.NeighborLoader(copy, [3, 2], batch_size=16)
    first = next(iter(loader))
    shutil.rmtree(copy)
    try:
        for batch in loader:
            batch.x.sum()
    except grappa.Error as error:
        assert "copy.grappa" in str(error)
    del loader
    assert np.array_equal(first.x, grappa.open(cora).features[first.n_id])
    with pytest.raises(grappa.Error, match="copy.grappa"):
        grappa.NeighborLoader(copy, [3])


def test_a_loader_has_no_batch_by_number(store):
    with pytest.raises(TypeError, match="iterate"):
        grappa.NeighborLoader(store, [3])[0]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_neighbors": 5}, TypeError, "list"),
        ({"num_neighbors": [2.5]}, TypeError, "integer"),
        ({"num_neighbors": []}, ValueError, "num_neighbors has no hops"),
        ({"num_neighbors": [3, -2]}, ValueError, "from 0"),
        ({"batch_size": 1.5}, TypeError, "batch_size"),
        ({"threads": 0}, ValueError, "threads"),
        ({"seed": -1}, ValueError, "seed"),
        ({"memory": -5}, ValueError, "memory"),
        ({"layout": "rows"}, ValueError, "blocks"),
        ({"edge_weights": True}, ValueError, "weights="),
        ({"edge_features": True}, ValueError, "edge_features="),
        ({"device": "gpu"}, ValueError, "gpu"),
        ({"device": "meta"}, ValueError, "meta"),
        ({"input_nodes": [2708]}, IndexError, "2708"),
        ({"input_nodes": np.zeros(7, bool)}, ValueError, "2708"),
        ({"input_nodes": np.zeros((2, 2), int)}, TypeError, "shape"),
        ({"input_nodes": [0.5]}, TypeError, "integer"),
        ({"num_workers": 2}, ValueError, "threads of the loader sample"),
        ({"batch_size": 0}, ValueError, "at least 1"),
        ({"memory": "4 apples"}, ValueError, "4GiB"),
        ({"memory": "1KiB"}, grappa.Error, "memory"),
        ({"disjoint": True, "layout": "induced"}, ValueError, "join the nodes of different seeds"),
        ({"sampler": [0], "shuffle": True}, ValueError, "leave out shuffle"),
        ({"sampler": [0], "partitions": 2}, ValueError, "leave out partitions, or sampler"),
        (
            {"sampler": [0], "distributed": True, "rank": 0, "world_size": 2},
            ValueError,
            r"torch.utils.data.DistributedSampler\(range\(140\)\)",
        ),
        ({"batch_sampler": [[0]], "batch_size": 4}, ValueError, "leave out batch_size"),
        ({"batch_sampler": [[0]], "batch_size": 1, "sampler": [0]}, ValueError, "leave out sampler"),
        ({"batch_sampler": [[0]], "batch_size": 1, "drop_last": True}, ValueError, "leave out drop_last"),
        ({"batch_sampler": [[0], []], "batch_size": 1}, ValueError, "batch 1 of batch_sampler has no positions"),
        ({"sampler": [140]}, IndexError, "the position 140, and input_nodes has 140 seeds"),
        ({"sampler": [-1]}, IndexError, "the position -1"),
        ({"sampler": [[0, 1]]}, TypeError, "give lists of positions as batch_sampler"),
        ({"sampler": np.ones(140, bool)}, TypeError, "not a position"),
        ({"batch_sampler": [0, 1], "batch_size": 1}, TypeError, "not a list of positions"),
        ({"sampler": iter([0])}, TypeError, "every epoch can iterate over"),
        ({"sampler": 5}, TypeError, "every epoch can iterate over"),
        ({"input_nodes": [-1]}, IndexError, "no node -1"),
        ({"input_nodes": "trian"}, KeyError, "trian"),
        ({"labels": "none"}, ValueError, "seeds"),
    ],
)
def test_impossible_options_say_what_is_possible(store, options, error, message):
    if "device" in options:
        pytest.importorskip("torch")
    with pytest.raises(error, match=message):
        loader = grappa.NeighborLoader(store, **{"num_neighbors": [3], "batch_size": 4, **options})
        next(iter(loader))


def edges_of(batch):
    """The edges of a batch, as nodes of the store."""
    return [tuple(edge) for edge in batch.n_id[batch.edge_index].T.tolist()]


def test_a_repeated_seed_is_there_as_often_with_in_neighbors_of_its_own(store):
    nodes = np.array([7, 5, 7, 100, 5, 7])
    options = {"shuffle": False, "seed": 2, "full_batches": True}
    (batch,) = grappa.NeighborLoader(store, [-1, 2], 6, nodes, **options)
    assert batch.batch_size == 6 and np.array_equal(batch.n_id[:6], nodes)
    assert np.array_equal(batch.input_id, np.arange(6)) and np.array_equal(batch.y, store.labels[nodes])
    assert np.array_equal(batch.x, store.features[batch.n_id])
    assert len(set(batch.n_id[6:])) == len(batch.n_id) - 6 and not set(batch.n_id[6:]) & set(nodes)
    for seed, node in enumerate(nodes):
        assert set(batch.n_id[batch.edge_index[0, batch.edge_index[1] == seed]]) == set(store.in_neighbors(node))
    assert not np.isin(batch.edge_index[0], [2, 4, 5]).any(), "edges come from the first place of a seed"
    (blocks,) = grappa.NeighborLoader(store, [-1], 6, nodes, layout="blocks", **options)
    assert np.array_equal(blocks.n_id[:6], nodes) and blocks.blocks[0].size[1] == 6
    (induced,) = grappa.NeighborLoader(store, [-1], 6, nodes, layout="induced", **options)
    for seed, node in enumerate(nodes):
        sources = induced.n_id[induced.edge_index[0, induced.edge_index[1] == seed]]
        assert set(sources) == set(store.in_neighbors(node)) and len(set(sources)) == len(sources)
    for more in ({}, {"partitions": 2}, {"distributed": True, "rank": 0, "world_size": 1}, {"disjoint": True}):
        seen = [batch for batch in grappa.NeighborLoader(store, [2, 2], 2, nodes, **more)]
        for batch in seen:
            assert np.array_equal(batch.n_id[: batch.batch_size], nodes[batch.input_id])
        assert sorted(np.concatenate([batch.input_id for batch in seen])) == list(range(6))


def test_a_sampler_gives_the_seeds_of_each_epoch(store):
    class Growing:
        epoch = 0

        def __len__(self):
            return 5 + self.epoch

        def __iter__(self):
            self.epoch += 1
            return iter([3, 3, 0, 139, self.epoch, *range(self.epoch - 1)])

    train = store.split("train")
    loader = grappa.NeighborLoader(store, [3], 2, sampler=Growing(), full_batches=True)
    assert "140 seeds," in repr(loader)
    for epoch in range(1, 4):
        assert len(loader) == (4 + epoch + 1) // 2
        batches = list(loader)
        expected = [3, 3, 0, 139, epoch, *range(epoch - 1)]
        assert np.concatenate([batch.input_id for batch in batches]).tolist() == expected
        for batch in batches:
            assert np.array_equal(batch.n_id[: batch.batch_size], train[batch.input_id])
            assert np.array_equal(batch.y, store.labels[train[batch.input_id]])
    assert [batch.batch_size for batch in grappa.NeighborLoader(store, [3], 2, sampler=[0, 1, 2], drop_last=True)] == [2]
    loader = grappa.NeighborLoader(store, [3], 3, None, sampler=np.array([9, 9, 4, 0]), full_batches=True)
    assert [batch.input_id.tolist() for batch in loader] == [[9, 9, 4], [0]]
    assert [batch.n_id[: batch.batch_size].tolist() for batch in pickle.loads(pickle.dumps(loader))] == [[9, 9, 4], [0]]
    loader = grappa.NeighborLoader(store, [3], 3, sampler=[])
    assert len(loader) == 0 and list(loader) == []


def test_a_batch_sampler_gives_the_seeds_of_each_batch(store):
    batches = [[5, 5, 5], np.array([1]), [0, 139, 7, 8]]
    loader = grappa.NeighborLoader(store, [3, 2], batch_sampler=batches)
    assert len(loader) == 3
    for _ in range(2):
        found = list(loader)
        assert [batch.input_id.tolist() for batch in found] == [list(batch) for batch in batches]
        assert all(np.array_equal(b.n_id[: b.batch_size], store.split("train")[b.input_id]) for b in found)


def test_a_hop_of_0_has_no_neighbors(weighted, store):
    for layout in ("hops", "blocks", "induced"):
        (one,) = grappa.NeighborLoader(store, [4], 140, layout=layout, seed=1)
        (two,) = grappa.NeighborLoader(store, [4, 0], 140, layout=layout, seed=1)
        (none,) = grappa.NeighborLoader(store, [0], 140, layout=layout, seed=1)
        assert np.array_equal(one.n_id, two.n_id) and len(none.n_id) == 140
        if layout == "hops":
            assert two.num_sampled_nodes == [*one.num_sampled_nodes, 0]
            assert two.num_sampled_edges == [*one.num_sampled_edges, 0]
            assert none.edge_index.shape == (2, 0) and none.num_sampled_nodes == [140, 0]
        if layout == "blocks":
            assert two.blocks[0].edge_index.shape == (2, 0) and two.blocks[0].size == (len(two.n_id),) * 2
    for options in ({"by_weight": True}, {"replace": True}, {"by_weight": True, "replace": True}):
        for batch in grappa.NeighborLoader(weighted[0], [0, 3], 7, None, **options):
            assert batch.edge_index.shape == (2, 0) and batch.edge_weight.shape == (0,)


@pytest.mark.parametrize("nodes", [[], np.zeros(2708, bool)])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"partitions": 2}, {"distributed": True, "rank": 1, "world_size": 2}])
def test_a_loader_without_seeds_has_no_batches(store, nodes, options):
    loader = grappa.NeighborLoader(store, [3, 2], 4, nodes, **options)
    assert len(loader) == 0 and list(loader) == [] == list(loader)


@pytest.mark.parametrize("options", [{}, {"layout": "blocks"}, {"partitions": 2}])
def test_disjoint_seeds_share_no_nodes(store, options):
    nodes = np.array([7, 5, 7, 100, 1500])
    (batch,) = grappa.NeighborLoader(store, [3, 2], 5, nodes, disjoint=True, shuffle=False, **options)
    assert np.array_equal(batch.n_id[:5], nodes[batch.input_id]) and np.array_equal(batch.batch[:5], np.arange(5))
    assert np.array_equal(batch.x, store.features[batch.n_id])
    for edges in [batch] if batch.blocks is None else batch.blocks:
        source, destination = edges.edge_index
        assert len(source) and np.array_equal(batch.batch[source], batch.batch[destination])
    for seed, node in enumerate(batch.n_id[:5]):
        of_seed = batch.n_id[batch.batch == seed]
        assert len(set(of_seed)) == len(of_seed) > 1 and of_seed[0] == node
    together = next(iter(grappa.NeighborLoader(store, [3, 2], 5, nodes, shuffle=False, **options)))
    assert together.batch is None


def test_disjoint_neighborhoods_are_whole_and_drawn_independently(store):
    (batch,) = grappa.NeighborLoader(store, [-1, -1], 60, np.arange(60), disjoint=True, shuffle=False)
    for seed in range(0, 60, 7):
        (alone,) = grappa.NeighborLoader(store, [-1, -1], 1, [seed], shuffle=False)
        assert np.array_equal(np.sort(batch.n_id[batch.batch == seed]), np.sort(alone.n_id))
    hub = int(np.diff(store.in_edges().offsets).argmax())
    (batch,) = grappa.NeighborLoader(store, [2], 20, [hub] * 20, disjoint=True)
    assert len({tuple(batch.n_id[batch.batch == seed]) for seed in range(20)}) > 15


def test_memory_does_not_grow_with_epochs(store):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    loader = grappa.NeighborLoader(store, [3], batch_size=32)
    for _ in range(20):
        for _ in loader:
            pass
    before = resident()
    for _ in range(100):
        for _ in loader:
            pass
    assert resident() - before < 8 << 20
