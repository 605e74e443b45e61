"""The loader in place of PyTorch Geometric's."""

import copy
import gc
import inspect
import pickle
import typing
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import NeighborLoader, NodeLoader  # noqa: E402
from torch_geometric.nn import GATConv, GraphSAGE, SAGEConv  # noqa: E402
from torch_geometric.utils import k_hop_subgraph, trim_to_layer  # noqa: E402

import grappa.pyg  # noqa: E402


@pytest.fixture(scope="module")
def data(cora):
    """Cora in memory, as PyTorch Geometric has it."""
    store = grappa.open(cora)
    pairs = [(source, node) for node in range(store.num_nodes) for source in store.in_neighbors(node)]
    return Data(
        x=torch.from_numpy(store.features[:]),
        y=torch.from_numpy(store.labels[:]),
        edge_index=torch.tensor(pairs).t().contiguous(),
    )


def test_whole_neighborhoods_are_those_of_pyg(store, data):
    seeds = torch.from_numpy(store.split("val"))
    batch = next(iter(grappa.pyg.NeighborLoader(store, [-1, -1], seeds, batch_size=len(seeds))))
    nodes, edges, _, _ = k_hop_subgraph(seeds, 2, data.edge_index, directed=True)
    assert torch.equal(batch.n_id.sort().values, nodes)

    def sorted_pairs(pairs):
        return sorted(map(tuple, pairs.t().tolist()))

    assert sorted_pairs(batch.n_id[batch.edge_index]) == sorted_pairs(edges)
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.n_id[: batch.batch_size], seeds[batch.input_id])


def test_a_model_computes_the_same_with_trimmed_layers(store):
    loader = grappa.pyg.NeighborLoader(store, [6, 4], "train", batch_size=64)
    torch.manual_seed(0)
    layers = [SAGEConv(1433, 16), SAGEConv(16, 7)]
    for batch in loader:
        whole, trimmed, edges = batch.x, batch.x, batch.edge_index
        for index, layer in enumerate(layers):
            whole = layer(whole, batch.edge_index)
            trimmed, edges, _ = trim_to_layer(
                index, batch.num_sampled_nodes, batch.num_sampled_edges, trimmed, edges
            )
            trimmed = layer(trimmed, edges)
        assert torch.allclose(whole[: batch.batch_size], trimmed[: batch.batch_size], atol=1e-5)


def test_a_training_script_of_pyg_learns(store):
    torch.manual_seed(1)
    model = GraphSAGE(1433, 64, num_layers=2, out_channels=7, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    loader = grappa.pyg.NeighborLoader(store, [10, 10], "train", batch_size=256, shuffle=True)
    model.train()
    for _ in range(20):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    model.eval()
    right = 0
    test = grappa.pyg.NeighborLoader(store, [-1, -1], "test", batch_size=500)
    for batch in test:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        right += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
    assert right / store.splits["test"] > 0.75


def test_transforms_get_each_batch(store):
    def double(batch):
        batch.x = batch.x * 2
        return batch

    loader = grappa.pyg.NeighborLoader(store, [2], [0, 1], batch_size=2, transform=double)
    batch = next(iter(loader))
    assert np.array_equal(batch.x.numpy(), 2 * store.features[batch.n_id])


def test_every_parameter_of_pyg_is_accepted_or_refused_with_a_way_out(store):
    ours = inspect.signature(grappa.pyg.NeighborLoader).parameters
    theirs = inspect.signature(NeighborLoader).parameters
    named = [name for name, parameter in theirs.items() if parameter.kind is not parameter.VAR_KEYWORD]
    assert list(ours)[: len(named)] == named
    assert all(ours[name].default == theirs[name].default for name in named)
    stock = inspect.signature(torch.utils.data.DataLoader).parameters
    for name, parameter in stock.items():
        if name != "dataset":
            grappa.pyg.NeighborLoader(store, [2], [0], **{name: parameter.default})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_attr": "time"}, "time_attr='time': the edges of .* have no times"),
        ({"input_time": torch.zeros(1)}, "input_time: the edges of .* have no times"),
        ({"temporal_strategy": "last"}, "temporal_strategy: seeds have no times; give input_time="),
        ({"weight_attr": "w"}, "edge_weight"),
        ({"weight_attr": "edge_weight"}, "no edge weights"),
        ({"transform_sampler_output": lambda out: out}, "grappa.pyg.Sampler"),
        ({"neighbor_sampler": object()}, "NodeLoader"),
        ({"num_neighbors": {("a", "to", "b"): [2]}}, "one type"),
        ({"subgraph_type": "both"}, "bidirectional"),
        ({"collate_fn": list}, "transform"),
        ({"worker_init_fn": print}, "seed"),
        ({"generator": torch.Generator()}, "seed"),
        ({"sampler": [0], "shuffle": True}, "leave out shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "leave out batch_size"),
        ({"disjoint": True, "subgraph_type": "induced"}, "join the nodes of different seeds"),
        ({"timeout": 3}, "leave it out"),
        ({"layout": "blocks", "subgraph_type": "induced"}, "one of them"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_can(store, options, message):
    with pytest.raises(ValueError, match=message):
        grappa.pyg.NeighborLoader(store, **{"num_neighbors": [2], "input_nodes": [0], **options})


def test_data_in_memory_is_refused_with_the_call_that_stores_it(data):
    with pytest.raises(TypeError, match="grappa.ingest"):
        grappa.pyg.NeighborLoader(data, [2])


def test_batches_are_divided_as_pytorch_divides_them(store):
    for shuffle in (False, True):
        for drop_last in (False, True):
            options = {"batch_size": 30, "shuffle": shuffle, "drop_last": drop_last}
            stock = torch.utils.data.DataLoader(range(140), **options)
            loader = grappa.pyg.NeighborLoader(store, [2], "train", **options)
            sizes = [batch.batch_size for batch in loader]
            assert sizes == [len(batch) for batch in stock] and len(loader) == len(stock)
            assert len(loader.dataset) == 140


def test_input_ids_of_a_mask_are_nodes_as_in_pyg(store):
    mask = torch.zeros(store.num_nodes, dtype=torch.bool)
    mask[[5, 700, 2000]] = True
    batch = next(iter(grappa.pyg.NeighborLoader(store, [2], mask, batch_size=3)))
    assert batch.input_id.tolist() == [5, 700, 2000] == batch.n_id[:3].tolist()
    nodes = torch.tensor([700, 5])
    batch = next(iter(grappa.pyg.NeighborLoader(store, [2], nodes, batch_size=2)))
    assert batch.input_id.tolist() == [0, 1]
    batch = next(iter(grappa.pyg.NeighborLoader(store, [2], nodes, batch_size=2, input_id=torch.tensor([8, 9]))))
    assert batch.input_id.tolist() == [8, 9]
    frozen = np.array([5, 7])
    frozen.flags.writeable = False
    assert next(iter(grappa.pyg.NeighborLoader(store, [2], frozen, batch_size=2))).n_id[:2].tolist() == [5, 7]


def test_samplers_of_pyg_and_pytorch_give_what_they_give_a_stock_loader(store, data):
    from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, WeightedRandomSampler
    from torch_geometric.loader import ImbalancedSampler

    mask = torch.zeros(store.num_nodes, dtype=torch.bool)
    mask[torch.from_numpy(store.split("train"))] = True
    seeds = mask.nonzero()[:, 0]
    weights = torch.rand(140, generator=torch.Generator().manual_seed(0))
    samplers = [
        lambda: {"sampler": ImbalancedSampler(data, input_nodes=mask), "batch_size": 32},
        lambda: {"sampler": WeightedRandomSampler(weights, 200), "batch_size": 32, "drop_last": True},
        lambda: {"sampler": RandomSampler(range(140), replacement=True, num_samples=90), "batch_size": 32},
        lambda: {"sampler": DistributedSampler(range(140), num_replicas=3, rank=1), "batch_size": 32},
        lambda: {"batch_sampler": BatchSampler(RandomSampler(range(140)), 33, False)},
    ]
    for options in samplers:
        torch.manual_seed(3)
        ours = grappa.pyg.NeighborLoader(store, [3, 2], mask, **options())
        found = [list(ours) for _ in range(2)]
        assert [len(ours)] * 2 == [len(batches) for batches in found]
        torch.manual_seed(3)
        stock = torch.utils.data.DataLoader(seeds, **options()).batch_sampler
        for batches in found:
            for batch, positions in zip(batches, list(stock), strict=True):
                nodes = seeds[positions]
                assert torch.equal(batch.n_id[: batch.batch_size], nodes) and torch.equal(batch.input_id, nodes)
                assert torch.equal(batch.y[: batch.batch_size], data.y[nodes])


def test_a_bootstrap_of_seeds_computes_what_distinct_seeds_compute(store):
    torch.manual_seed(0)
    model = GraphSAGE(1433, 8, num_layers=2, out_channels=7).eval()
    nodes = torch.randint(0, 50, (80,))
    (batch,) = grappa.pyg.NeighborLoader(store, [-1, -1], nodes, batch_size=80)
    repeated = model(batch.x, batch.edge_index)[: batch.batch_size]
    (batch,) = grappa.pyg.NeighborLoader(store, [-1, -1], torch.arange(50), batch_size=50)
    once = model(batch.x, batch.edge_index)[: batch.batch_size]
    assert torch.allclose(repeated, once[nodes], atol=1e-5)
    sampler, features = grappa.pyg.Sampler(store, [3]), grappa.pyg.FeatureStore(store)
    for batch in NodeLoader((features, None), sampler, input_nodes=nodes, batch_size=40):
        assert torch.equal(batch.n_id[: batch.batch_size], nodes[batch.input_id])


def test_disjoint_batches_name_the_seed_of_each_node(store):
    from torch_geometric.nn import global_mean_pool

    for kind in ("directional", "bidirectional"):
        loader = grappa.pyg.NeighborLoader(store, [3, 2], "train", batch_size=50, disjoint=True, subgraph_type=kind)
        for batch in loader:
            assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
            assert torch.equal(batch.batch[batch.edge_index[0]], batch.batch[batch.edge_index[1]])
            assert global_mean_pool(batch.x, batch.batch).shape == (batch.batch_size, 1433)


def test_groups_of_a_cluster_loader_are_whole_and_have_all_edges_among_them(tmp_path):
    store = grappa.generate("sbm", nodes=900, classes=3, feature_dim=4, chunks=6, out=tmp_path / "groups.grappa")
    whole = store.to_pyg()
    chunk_of = np.searchsorted(store._store.chunk_starts, np.asarray(store._store.positions(np.arange(900))), "right") - 1
    loader = grappa.pyg.ClusterLoader(store, batch_size=2, shuffle=True)
    assert (loader.num_parts, len(loader)) == (6, 3)
    orders = []
    for _ in range(2):
        batches = list(loader)
        orders.append([sorted(set(chunk_of[batch.n_id])) for batch in batches])
        assert sorted(torch.cat([batch.n_id for batch in batches]).tolist()) == list(range(900))
        for batch in batches:
            assert batch.num_nodes == batch.batch_size and torch.equal(batch.input_id, batch.n_id)
            groups = np.isin(chunk_of, chunk_of[batch.n_id])
            assert len(set(chunk_of[batch.n_id])) == 2 and groups.sum() == batch.num_nodes
            inside = torch.from_numpy(groups)[whole.edge_index].all(0)
            expected = sorted(map(tuple, whole.edge_index[:, inside].t().tolist()))
            assert sorted(map(tuple, batch.n_id[batch.edge_index].t().tolist())) == expected
            assert torch.equal(batch.x, whole.x[batch.n_id]) and torch.equal(batch.y, whole.y[batch.n_id])
    assert orders[0] != orders[1]
    loader = grappa.pyg.ClusterLoader(store, batch_size=2, sampler=[5, 0, 0, 3, 1], drop_last=True)
    assert len(loader) == 2
    assert [sorted(set(chunk_of[batch.n_id])) for batch in pickle.loads(pickle.dumps(loader))] == [[0, 5], [0, 3]]
    for options, message in [
        ({"shuffle": True, "sampler": [0]}, "leave out shuffle"),
        ({"distributed": True}, "DistributedSampler"),
        ({"batch_size": 0}, "at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            grappa.pyg.ClusterLoader(store, **options)
    with pytest.raises(TypeError, match="whole groups"):
        grappa.pyg.ClusterLoader(store, num_neighbors=[3])


def test_features_are_normalized_as_by_a_transform_of_pyg(store, data):
    from torch_geometric.transforms import NormalizeFeatures

    expected = NormalizeFeatures()(data).x
    for batch in grappa.pyg.NeighborLoader(store, [3, 2], "train", batch_size=50, transform=NormalizeFeatures()):
        assert torch.equal(batch.x, expected[batch.n_id])


def test_type_checkers_see_the_data_of_pyg():
    # With mypy, `cargo xtask wheel` checks `typed_user.py`.
    for kind in (grappa.pyg.NeighborLoader, grappa.pyg.LinkNeighborLoader, grappa.pyg.ClusterLoader):
        assert kind._batch.__annotations__["return"] == "Data"
        bases = [base for part in kind.__mro__ for base in getattr(part, "__orig_bases__", ()) if typing.get_args(base)]
        assert typing.get_args(bases[0]) == (Data,)


def test_bidirectional_batches_are_those_of_pyg(store, weighted):
    options = {"batch_size": 40, "seed": 4}
    plain = grappa.pyg.NeighborLoader(store, [3, 2], "train", **options)
    both = grappa.pyg.NeighborLoader(store, [3, 2], "train", subgraph_type="bidirectional", **options)
    for one, two in zip(plain, both, strict=True):
        assert torch.equal(one.n_id, two.n_id) and "num_sampled_edges" not in two
        edges = one.edge_index.t().tolist()
        expected = {(a, b) for a, b in edges} | {(b, a) for a, b in edges}
        assert sorted(expected) == sorted(map(tuple, two.edge_index.t().tolist()))
    store, pairs, weights = weighted
    weight_of = {tuple(pair): weight for pair, weight in zip(pairs.tolist(), weights)}
    loader = grappa.pyg.NeighborLoader(store, [3], batch_size=7, subgraph_type="bidirectional")
    for batch in loader:
        for (a, b), weight in zip(batch.n_id[batch.edge_index].t().tolist(), batch.edge_weight.tolist()):
            assert weight in (weight_of.get((a, b)), weight_of.get((b, a)))


def test_edge_attr_of_a_data_comes_back_in_any_batch(tmp_path):
    edge_index = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(1))
    attr = edge_index.t().float()
    store = grappa.ingest(Data(edge_index=edge_index, edge_attr=attr, num_nodes=40), out=tmp_path / "attr.grappa")
    whole = store.to_pyg()
    assert torch.equal(whole.edge_attr, whole.edge_index.t().float())
    model = GATConv(2, 4, edge_dim=2)
    loaders = [
        grappa.pyg.NeighborLoader(store, [3, 3], batch_size=7),
        grappa.pyg.NeighborLoader(store, [3], batch_size=7, subgraph_type="induced"),
        grappa.pyg.LinkNeighborLoader(store, [3], batch_size=30, neg_sampling="binary"),
    ]
    for batch in (batch for loader in loaders for batch in loader):
        assert torch.equal(batch.edge_attr, batch.n_id[batch.edge_index].t().float()) and batch.e_id.shape == (batch.num_edges,)
        assert model(torch.ones(batch.num_nodes, 2), batch.edge_index, batch.edge_attr).shape == (batch.num_nodes, 4)
    for batch in grappa.pyg.NeighborLoader(store, [3], batch_size=7, subgraph_type="bidirectional"):
        ends = batch.n_id[batch.edge_index].t().float()
        assert ((batch.edge_attr == ends) | (batch.edge_attr == ends.flip(1))).all()


def test_ids_of_edges_are_rows_of_the_whole_graph(tmp_path):
    pairs = np.random.default_rng(1).integers(0, 300, (3000, 2))
    features = np.column_stack([pairs, np.arange(len(pairs))]).astype(np.float32)
    store = grappa.ingest(pairs, edge_features=features, chunks=5, out=tmp_path / "edges.grappa")
    whole = store.to_pyg()
    for batch in grappa.pyg.NeighborLoader(store, [3, 2], None, batch_size=50):
        assert torch.equal(whole.edge_attr[batch.e_id], batch.edge_attr)
        assert torch.equal(whole.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])


def test_targets_of_regression_are_y(tmp_path):
    edges, targets = np.array([[0, 1], [1, 2], [2, 0]]), np.array([0.5, 1.5, 2.5], np.float32)
    store = grappa.ingest(edges, labels=targets, label_type="float", out=tmp_path / "targets.grappa")
    assert [attr.attr_name for attr in grappa.pyg.FeatureStore(store).get_all_tensor_attrs()] == ["y"]
    loader = grappa.pyg.NeighborLoader(store, [2], None, batch_size=3)
    assert torch.equal(loader.data.y, torch.from_numpy(targets))
    sampler = grappa.pyg.Sampler(store, [2])
    stock = NodeLoader((grappa.pyg.FeatureStore(store), None), sampler, input_nodes=torch.arange(3), batch_size=3)
    assert torch.equal(next(iter(stock)).y, torch.from_numpy(targets))


def test_a_model_of_blocks_computes_what_whole_layers_compute(store, data):
    torch.manual_seed(0)
    layers = [SAGEConv(1433, 16), SAGEConv(16, 7)]
    whole = data.x
    for layer in layers:
        whole = layer(whole, data.edge_index)
    loader = grappa.pyg.NeighborLoader(store, [-1, -1], "val", batch_size=100, layout="blocks")
    for batch in loader:
        x = batch.to("cpu").x
        for layer, block in zip(layers, batch.blocks, strict=True):
            x = layer((x, x[: block.size[1]]), block.edge_index)
        assert torch.allclose(x, whole[batch.n_id[: batch.batch_size]], atol=1e-4)


def test_the_stock_node_loader_gives_the_same_batches(store):
    seeds = torch.from_numpy(store.split("val"))
    features, sampler = grappa.pyg.FeatureStore(store), grappa.pyg.Sampler(store, [-1, -1])
    stock = NodeLoader((features, None), sampler, input_nodes=seeds, batch_size=60)
    ours = grappa.pyg.NeighborLoader(store, [-1, -1], seeds, batch_size=60)
    for one, two in zip(stock, ours, strict=True):
        for name in ("x", "y", "n_id", "edge_index", "input_id"):
            assert torch.equal(one[name], two[name]), name
        for name in ("batch_size", "num_sampled_nodes", "num_sampled_edges", "num_nodes"):
            assert one[name] == two[name], name
    assert features.get_tensor_size(group_name=None, attr_name="x") == (2708, 1433)
    with pytest.raises(TypeError, match="read-only"):
        features.put_tensor(torch.zeros(1), group_name=None, attr_name="x", index=None)


def test_edges_of_the_stock_node_loader_have_their_data(tmp_path):
    edge_index = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(1))
    graph = Data(
        edge_index=edge_index, edge_attr=edge_index.t().float(), edge_weight=(edge_index[0] * 40.0 + edge_index[1]), num_nodes=40
    )
    store = grappa.ingest(graph, chunks=3, out=tmp_path / "attr.grappa")
    features = grappa.pyg.FeatureStore(store)
    for kind in ("directional", "bidirectional", "induced"):
        sampler = grappa.pyg.Sampler(store, [3, 2], subgraph_type=kind)
        loader = NodeLoader(
            (features, None), sampler, input_nodes=torch.arange(40), batch_size=7, transform=features.add_edge_data
        )
        for batch in loader:
            ends = batch.n_id[batch.edge_index].t().float()
            of_edge = (batch.edge_attr == ends).all(1)
            if kind == "bidirectional":
                of_edge |= (batch.edge_attr == ends.flip(1)).all(1)
            assert of_edge.all() and len(batch.e_id) == len(ends) > 0
            assert torch.equal(batch.edge_weight, batch.edge_attr @ torch.tensor([40.0, 1.0]))
    whole = features.get_tensor(group_name=None, attr_name="edge_attr", index=None)
    assert sorted(map(tuple, whole.tolist())) == sorted(map(tuple, graph.edge_attr.tolist()))
    with pytest.raises(IndexError, match="no edge 300"):
        features.get_tensor(group_name=None, attr_name="edge_attr", index=torch.tensor([300]))


def test_worker_processes_of_the_stock_loader_may_fork_or_spawn(store):
    seeds = torch.from_numpy(store.split("train"))
    for method in ("fork", "spawn"):
        loader = NodeLoader(
            (grappa.pyg.FeatureStore(store), None),
            grappa.pyg.Sampler(store, [3, 2]),
            input_nodes=seeds,
            batch_size=70,
            num_workers=1,
            multiprocessing_context=method,
        )
        assert torch.equal(torch.cat([batch.n_id[: batch.batch_size] for batch in loader]), seeds)


def test_random_draws_of_a_sampler_follow_torch(store):
    from torch_geometric.sampler import NodeSamplerInput

    def nodes(seed):
        torch.manual_seed(seed)
        return grappa.pyg.Sampler(store, [2, 2]).sample_from_nodes(NodeSamplerInput(None, torch.arange(50))).node

    assert torch.equal(nodes(1), nodes(1)) and not torch.equal(nodes(1), nodes(2))
    sampler = pickle.loads(pickle.dumps(grappa.pyg.Sampler(store, [2], subgraph_type="bidirectional")))
    out = sampler.sample_from_nodes(NodeSamplerInput(torch.arange(3), torch.arange(3)))
    assert out.num_sampled_nodes is None and len(out.row) == len(out.col) > 0


class _Batches(torch.utils.data.IterableDataset):
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def test_a_data_loader_around_a_loader_works_or_says_why_not(store):
    loader = grappa.pyg.NeighborLoader(store, [2], "train", batch_size=70)
    with pytest.raises(TypeError, match="iterate over it"):
        next(iter(torch.utils.data.DataLoader(loader, batch_size=None)))
    with pytest.raises(RuntimeError, match="spawn"):
        next(iter(torch.utils.data.DataLoader(_Batches(loader), batch_size=None, num_workers=1)))
    spawned = torch.utils.data.DataLoader(
        _Batches(loader), batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )
    assert [batch.batch_size for batch in spawned] == [70, 70]


def test_a_pickled_loader_keeps_its_options(store):
    loader = grappa.pyg.NeighborLoader(
        store, [3, 2], "train", batch_size=50, subgraph_type="bidirectional", drop_last=True, seed=9, memory="1GiB", shuffle=True
    )
    again = pickle.loads(pickle.dumps(loader))
    for one, two in zip(loader, again, strict=True):
        assert torch.equal(one.n_id, two.n_id) and torch.equal(one.edge_index, two.edge_index)


def test_an_exception_of_a_transform_ends_nothing_but_the_epoch(store):
    def fail(batch):
        raise ZeroDivisionError

    loader = grappa.pyg.NeighborLoader(store, [2], "train", batch_size=70, transform=fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            next(iter(loader))
    loader.transform = None
    assert len(list(loader)) == 2


def test_tensors_outlive_loader_and_store(cora):
    store = grappa.open(cora)
    batch = next(iter(grappa.pyg.NeighborLoader(store, [3], "train", batch_size=50)))
    expected = store.features[batch.n_id]
    del store
    gc.collect()
    batch.x += 1
    assert np.array_equal(batch.x.numpy(), expected + 1)


def test_a_feature_row_is_copied_once(store):
    loader = grappa.NeighborLoader(store, [3], batch_size=20)
    entries = next(iter(loader._loader.epoch(0)))
    array = np.asarray(entries["x"])
    tensor = torch.from_numpy(array)
    address = np.frombuffer(entries["x"], np.float32).ctypes.data
    assert tensor.data_ptr() == array.ctypes.data == address and array.flags.writeable


def test_pinned_memory_needs_a_gpu(store):
    if torch.cuda.is_available():
        loader = grappa.pyg.NeighborLoader(store, [2], "train", batch_size=70, pin_memory=True)
        assert all(batch.x.is_pinned() and batch.edge_index.is_pinned() for batch in loader)
        return
    with pytest.warns(UserWarning, match="no CUDA device"):
        loader = grappa.pyg.NeighborLoader(store, [2], "train", batch_size=70, pin_memory=True)
    assert len(list(loader)) == 2
    with pytest.raises(ValueError, match="no CUDA device"):
        grappa.pyg.NeighborLoader(store, [2], "train", device="cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_copies_to_a_gpu_are_the_batches(store):
    for layout in (None, "blocks"):
        options = {"batch_size": 20, "seed": 3, "layout": layout}
        here = grappa.pyg.NeighborLoader(store, [5, 3], "train", **options)
        there = grappa.pyg.NeighborLoader(store, [5, 3], "train", device="cuda", **options)
        for one, two in zip(here, there, strict=True):
            assert two.x.is_cuda and torch.equal(one.x, two.x.cpu()) and torch.equal(one.n_id, two.n_id.cpu())
            assert torch.equal(one.y, two.y.cpu())


def test_a_base_loader_gives_tensors_if_it_has_a_device(store):
    batch = next(iter(grappa.NeighborLoader(store, [2], 20, device="cpu", layout="blocks")))
    assert batch.x.dtype == torch.float32 and batch.blocks[0].edge_index.dtype == torch.int64


class _Inference(torch.nn.Module):
    """Layer-wise inference as in PyTorch Geometric's example reddit.py."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(1433, 16), SAGEConv(16, 7)])

    def forward(self, x, edge_index):
        for conv in self.convs[:-1]:
            x = conv(x, edge_index).relu()
        return self.convs[-1](x, edge_index)

    @torch.no_grad()
    def inference(self, x_all, subgraph_loader):
        for i, conv in enumerate(self.convs):
            xs = []
            for batch in subgraph_loader:
                x = x_all[batch.n_id.to(x_all.device)]
                x = conv(x, batch.edge_index)
                if i < len(self.convs) - 1:
                    x = x.relu_()
                xs.append(x[: batch.batch_size].cpu())
            x_all = torch.cat(xs, dim=0)
        return x_all


def test_the_example_reddit_of_pyg_runs_with_other_loader_lines(store, data):
    kwargs = {"batch_size": 100, "num_workers": 6, "persistent_workers": True}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        train_loader = grappa.pyg.NeighborLoader(
            store, input_nodes=torch.from_numpy(store.split("train")), num_neighbors=[25, 10], shuffle=True, **kwargs
        )
        subgraph_loader = grappa.pyg.NeighborLoader(
            copy.copy(store), input_nodes=None, num_neighbors=[-1], shuffle=False, **kwargs
        )
    assert "num_workers=6 has no effect" in str(warned[0].message) and warned[0].filename == __file__
    del subgraph_loader.data.x, subgraph_loader.data.y
    subgraph_loader.data.num_nodes = data.num_nodes
    subgraph_loader.data.n_id = torch.arange(data.num_nodes)
    with pytest.raises(AttributeError, match="n_id"):
        subgraph_loader.data.mask = torch.zeros(1)
    model = _Inference()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        seen = 0
        for batch in train_loader:
            optimizer.zero_grad()
            y = batch.y[: batch.batch_size].squeeze()
            y_hat = model(batch.x, batch.edge_index.to("cpu"))[: batch.batch_size]
            torch.nn.functional.cross_entropy(y_hat, y).backward()
            optimizer.step()
            seen += batch.batch_size
        assert seen == len(train_loader.dataset)
    y_hat = model.inference(data.x, subgraph_loader)
    assert torch.allclose(y_hat, model(data.x, data.edge_index), atol=1e-4)
    assert torch.equal(train_loader.data.x, data.x) and subgraph_loader.data.x is None
