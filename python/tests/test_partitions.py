"""Partitions: what each process gets, and that all processes together compute the gradient of one."""

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import grappa

OPTIONS = {"num_neighbors": [4, 3], "batch_size": 8, "seed": 3}


def loaders(store, partitions, world_size, **options):
    return [
        grappa.NeighborLoader(store, **{**OPTIONS, **options}, partitions=partitions, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]


@pytest.mark.parametrize(("partitions", "world_size"), [(1, 1), (4, 1), (4, 2), (4, 4), (5, 2)])
def test_processes_divide_the_seeds_and_take_as_many_steps(store, partitions, world_size):
    train = store.split("train")
    for epoch in (0, 7):
        seen, counted = [], 0
        for loader in loaders(store, partitions, world_size):
            loader.set_epoch(epoch)
            batches = list(loader)
            assert len(batches) == len(loader) == len(loaders(store, partitions, 1)[0])
            for batch in batches:
                assert batch.batch_size > 0
                assert np.array_equal(batch.n_id[: batch.batch_size], train[batch.input_id])
                assert np.array_equal(batch.y, store.labels[batch.n_id[: batch.batch_size]])
                assert np.array_equal(batch.x, store.features[batch.n_id])
                for source, destination in batch.n_id[batch.edge_index.T[::17]]:
                    assert source in store.in_neighbors(destination)
                counted += batch.loss_weight / world_size * len(train) / len(loader)
                if batch.loss_weight:
                    seen.append(batch.input_id)
        assert np.array_equal(np.sort(np.concatenate(seen)), np.arange(len(train)))
        assert counted == pytest.approx(len(train))


def test_nodes_of_other_partitions_are_treated_as_halo_says(store):
    def batch(halo):
        return next(iter(loaders(store, 4, 4, halo=halo, batch_size=64)[1]))

    with_neighbors, stopped, without = batch("auto"), batch("stop"), batch("none")
    first = [batch.edge_index[:, : batch.num_sampled_edges[0]] for batch in (with_neighbors, stopped)]
    assert np.array_equal(with_neighbors.n_id[first[0]], stopped.n_id[first[1]])
    # Halo nodes draw in-neighbors, or nothing, or are not there.
    assert with_neighbors.num_sampled_edges[1] > 1.5 * stopped.num_sampled_edges[1]
    assert without.num_sampled_edges[0] < 0.9 * stopped.num_sampled_edges[0]
    owned = set(without.n_id)
    assert len(owned) < store.num_nodes * 0.6
    expanded = set(stopped.n_id[stopped.edge_index[1]])
    halo = set(stopped.n_id) - owned - expanded
    assert any(len(store.in_neighbors(node)) for node in halo)


def test_partitions_change_with_the_epochs_and_alike_in_all_processes(store):
    def reached(epoch, **options):
        loader = loaders(store, 4, 2, halo="none", num_neighbors=[-1, -1], **options)[1]
        loader.set_epoch(epoch)
        return set(np.concatenate([batch.n_id for batch in loader]))

    assert reached(0) == reached(4) == reached(5, repartition_every=6) != reached(5)
    one, all_in_order = loaders(store, 4, 1)[0], loaders(store, 4, 1)[0]
    one.set_epoch(6)
    epochs = [[batch.n_id for batch in all_in_order] for _ in range(7)]
    assert all(map(np.array_equal, epochs[6], [batch.n_id for batch in one]))


def test_a_node_of_two_partitions_is_in_their_joined_batch_twice(store):
    alone = [next(iter(loader)) for loader in loaders(store, 2, 2, batch_size=64)]
    joined = next(iter(loaders(store, 2, 1, batch_size=64)[0]))
    assert sorted(joined.n_id) == sorted(np.concatenate([batch.n_id for batch in alone]))
    assert len(set(joined.n_id)) < len(joined.n_id)
    assert joined.num_sampled_nodes == [sum(counts) for counts in zip(*(batch.num_sampled_nodes for batch in alone))]


@pytest.mark.parametrize("model", ["SAGEConv", "GATConv"])
@pytest.mark.parametrize(("partitions", "world_size"), [(4, 4), (4, 2), (3, 2)])
def test_the_mean_gradient_of_all_processes_is_the_gradient_of_one(store, model, partitions, world_size):
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("torch_geometric.nn")
    import grappa.pyg

    torch.manual_seed(0)
    layers = [getattr(nn, model)(store.num_features, 8), getattr(nn, model)(8, store.num_classes)]
    parameters = [parameter for layer in layers for parameter in layer.parameters()]
    # So few seeds that some partitions have none in some steps.
    options = {"input_nodes": np.arange(0, 300, 17), "batch_size": 2, "seed": 5, "partitions": partitions}

    def gradients(rank, processes):
        loader = grappa.pyg.NeighborLoader(store, [4, 3], rank=rank, world_size=processes, **options)
        for batch in loader:
            out = layers[1](layers[0](batch.x, batch.edge_index).relu(), batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]) * batch.loss_weight
            yield torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, parameters)])

    alone = list(gradients(0, 1))
    each = [list(gradients(rank, world_size)) for rank in range(world_size)]
    assert len(alone) > 2
    for one, of_ranks in zip(alone, zip(*each, strict=True), strict=True):
        assert torch.allclose(torch.stack(of_ranks).mean(0), one, rtol=0, atol=1e-5)


def test_losses_are_weighted_by_coverage(store):
    def batches(correction, **options):
        partition = {"partitions": 3, "halo": "none", "rank": 1, "world_size": 3}
        return list(grappa.NeighborLoader(store, [-1], 16, correction=correction, **partition, **options))

    differs = False
    for plain, by_node, by_batch, half in zip(
        batches("none"), batches("node"), batches("batch"), batches("node", shrinkage=0.5), strict=True
    ):
        seeds = plain.n_id[: plain.batch_size]
        in_degree = np.diff(store.in_edges(seeds).offsets)
        seen = np.bincount(plain.edge_index[1], minlength=len(seeds))[: len(seeds)]
        coverage = np.where(in_degree > 0, seen / np.maximum(in_degree, 1), 1)
        differs |= coverage.min() < coverage.max()
        assert np.allclose(by_node.loss_weight, plain.loss_weight * coverage)
        assert np.allclose(by_batch.loss_weight, plain.loss_weight * coverage.mean())
        assert np.allclose(half.loss_weight, plain.loss_weight * (1 + coverage) / 2)
    assert differs


def test_batches_have_the_aggregates_of_all_in_neighbors(tmp_path):
    store = grappa.generate("sbm", nodes=500, feature_dim=5, out=tmp_path / "blocks.grappa")
    loader = grappa.NeighborLoader(store, [3], batch_size=16, first_hop="mean", partitions=4)
    with pytest.raises(grappa.Error, match="preaggregate"):
        next(iter(loader))
    store.preaggregate("mean", dtype="f32")
    batches = list(grappa.NeighborLoader(store, [3], batch_size=16, first_hop="mean", partitions=4))
    for batch in batches:
        assert np.array_equal(batch.x, store.features[batch.n_id])
        for node, aggregate in zip(batch.n_id[::7], batch.x_aggregated[::7]):
            neighbors = store.in_neighbors(node)
            expected = store.features[neighbors].mean(axis=0) if len(neighbors) else 0 * aggregate
            assert np.allclose(aggregate, expected, atol=1e-5)


def test_a_pickled_loader_serves_the_same_partitions(store):
    loader = loaders(store, 4, 2)[1]
    copy = pickle.loads(pickle.dumps(loader))
    assert np.array_equal(next(iter(copy)).n_id, next(iter(loader)).n_id)


def test_the_example_trains_with_two_processes(cora):
    pytest.importorskip("torch_geometric")
    example = Path(__file__).resolve().parents[1] / "examples" / "ddp_partitions.py"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*launch, example, cora, "--model", "gat", "--hidden", "8", "--epochs", "20", "--batch-size", "64"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert run.returncode == 0, run.stderr
    assert float(re.search(r"test accuracy ([0-9.]+)", run.stdout)[1]) > 0.7


def test_an_absurd_number_of_partitions_does_not_end_the_process(cora):
    script = f"import grappa; grappa.NeighborLoader({os.fspath(cora)!r}, [2], input_nodes=[1, 2], partitions=2**31)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "grappa.Error" in run.stderr and "chunks" in run.stderr, run.stderr


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"partitions": 0}, ValueError, "at least 1"),
        ({"partitions": 2.5}, TypeError, "integer"),
        ({"partitions": 100}, grappa.Error, "chunks"),
        ({"partitions": 2, "rank": 0, "world_size": 3}, ValueError, "partitions=3 or more"),
        ({"partitions": 2, "rank": 1}, ValueError, "give both"),
        ({"partitions": 2, "rank": 2, "world_size": 2}, ValueError, "ranks are 0 to 1"),
        ({"rank": 0, "world_size": 2}, ValueError, "without partitions"),
        ({"halo": "stop"}, ValueError, "without partitions"),
        ({"partitions": 2, "halo": "no"}, ValueError, "'stop'"),
        ({"partitions": 2, "halo": "none", "halo_neighbors": 3}, ValueError, "no effect"),
        ({"partitions": 2, "halo_neighbors": 0}, ValueError, "at least 1"),
        ({"partitions": 2, "correction": "seed"}, ValueError, "'node'"),
        ({"partitions": 2, "shrinkage": 0.5}, ValueError, "no effect"),
        ({"partitions": 2, "correction": "node", "shrinkage": 2}, ValueError, "from 0|0 \\(no"),
        ({"correction": "node"}, ValueError, "without partitions"),
        ({"first_hop": "max"}, ValueError, "'mean'"),
        ({"partitions": 2, "repartition_every": 0}, ValueError, "at least 1"),
        ({"partitions": 8, "rank": 0, "world_size": 8, "input_nodes": [1]}, ValueError, "rank"),
    ],
)
def test_impossible_partitions_say_what_is_possible(store, options, error, message):
    with pytest.raises(error, match=message):
        grappa.NeighborLoader(store, **{**OPTIONS, **options})
