"""Batches of the loader, and its threads."""

import gc
import os
import pickle
import subprocess
import sys
import threading

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
    for _ in range(200):
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


def test_several_python_threads_share_a_loader(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=8)
    batches = iter(loader)
    lock, found = threading.Lock(), []

    def take():
        while True:
            with lock:
                batch = next(batches, None)
            if batch is None:
                return
            found.append(batch.input_id)

    takers = [threading.Thread(target=take) for _ in range(4)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert np.array_equal(np.sort(np.concatenate(found)), np.arange(store.splits["train"]))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_workers": 2}, ValueError, "threads of the loader sample"),
        ({"batch_size": 0}, ValueError, "at least 1"),
        ({"memory": "4 apples"}, ValueError, "4GiB"),
        ({"memory": "1KiB"}, grappa.Error, "memory"),
        ({"input_nodes": [1, 1]}, grappa.Error, "each seed of a batch once"),
        ({"input_nodes": [-1]}, IndexError, "no node -1"),
        ({"input_nodes": "trian"}, KeyError, "trian"),
        ({"labels": "none"}, ValueError, "seeds"),
    ],
)
def test_impossible_options_say_what_is_possible(store, options, error, message):
    with pytest.raises(error, match=message):
        loader = grappa.NeighborLoader(store, **{"num_neighbors": [3], "batch_size": 4, **options})
        next(iter(loader))


def test_memory_does_not_grow_with_epochs(store):
    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    loader = grappa.NeighborLoader(store, [3], batch_size=32)
    for _ in range(100):
        for _ in loader:
            pass
    before = resident()
    for _ in range(400):
        for _ in loader:
            pass
    assert resident() - before < 8 << 20
