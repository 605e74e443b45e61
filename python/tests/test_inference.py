"""Layer-wise inference, compared with models on the whole graph."""

import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import NeighborLoader  # noqa: E402

import grappa  # noqa: E402
from grappa import layerwise  # noqa: E402


def whole_graph(store):
    """The graph of a small store in memory."""
    nodes = np.arange(store.num_nodes)
    sources = [store.in_neighbors(node) for node in nodes]
    destinations = np.repeat(nodes, [len(of_node) for of_node in sources])
    edges = np.stack([np.concatenate(sources), destinations])
    return Data(x=torch.from_numpy(store.features[nodes]), edge_index=torch.from_numpy(edges))


@pytest.fixture(scope="module")
def data(cora):
    return whole_graph(grappa.open(cora))


@pytest.fixture(scope="module")
def multigraph(tmp_path_factory):
    """A store with parallel edges, self-loops, and nodes without in-edges. Its order is not the order of node numbers."""
    random = np.random.default_rng(3)
    edges = random.integers(0, 200, (900, 2))
    edges[:60, 1] = edges[:60, 0]
    edges[60:90] = edges[:30]
    return grappa.ingest(
        edges % [200, 150],
        features=random.normal(size=(200, 12)).astype(np.float32),
        chunks=16,
        out=tmp_path_factory.mktemp("stores") / "multigraph.grappa",
    )


def expected(model, data):
    model.eval()
    with torch.no_grad():
        return model(data.x, data.edge_index).numpy()


MODELS = {
    "sage": lambda width: nn.GraphSAGE(width, 16, 3, 7, norm="batch_norm", dropout=0.5),
    "sage, largest": lambda width: nn.GraphSAGE(width, 16, 2, 7, aggr="max"),
    "gcn": lambda width: nn.GCN(width, 16, 3, 7, act="elu", act_first=True, norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "gcn, improved": lambda width: nn.GCN(width, 16, 2, 7, improved=True),
    "gcn, no loops": lambda width: nn.GCN(width, 16, 2, 7, add_self_loops=False),
    "gcn, no weights": lambda width: nn.GCN(width, 16, 2, 7, normalize=False),
    "gat": lambda width: nn.GAT(width, 16, 2, 7, heads=4, dropout=0.5),
    "gatv2": lambda width: nn.GAT(width, 16, 2, 7, v2=True, heads=2),
    "gin": lambda width: nn.GIN(width, 16, 2, 7, jk="last", train_eps=True),
    "one layer": lambda width: nn.GraphSAGE(width, 7, 1),
}


@pytest.mark.parametrize("name", MODELS)
def test_outputs_are_those_of_the_model_on_the_whole_graph(name, store, data, multigraph):
    torch.manual_seed(0)
    for graph, whole in [(store, data), (multigraph, whole_graph(multigraph))]:
        model = MODELS[name](graph.num_features)
        out = grappa.inference(graph, model, batch_size=64)
        assert model.training, "the mode is as before"
        assert out.shape == (graph.num_nodes, 7)
        np.testing.assert_allclose(out, expected(model, whole), rtol=1e-5, atol=1e-5)


def test_outputs_are_those_of_the_inference_of_pyg(store, data):
    pytest.importorskip("torch_sparse")
    model = nn.GraphSAGE(1433, 16, 2, 7).eval()
    loader = NeighborLoader(data, [-1], batch_size=512)
    assert np.allclose(grappa.inference(store, model), model.inference(loader).numpy(), atol=1e-5)


def test_some_nodes_get_the_rows_of_all_nodes_in_their_order(store, data):
    torch.manual_seed(0)
    model = nn.GCN(1433, 16, 3, 7)
    whole = expected(model, data)
    nodes = np.random.default_rng(1).permutation(store.num_nodes)[:20]
    assert np.allclose(grappa.inference(store, model, nodes=nodes, batch_size=7), whole[nodes], atol=1e-5)
    assert np.allclose(grappa.inference(store, model, nodes="val"), whole[store.split("val")], atol=1e-5)


def test_layers_are_convolutions_and_functions(store, data):
    torch.manual_seed(0)
    model = torch.nn.ModuleList([nn.GCNConv(1433, 16), nn.SAGEConv(16, 16), nn.GATConv(16, 7, heads=2, concat=False)])

    def forward(x, edges):
        return model[2](model[1](model[0](x, edges).relu(), edges), edges)

    layers = [lambda x, batch: grappa.pyg.convolve(model[0], x, batch).relu(), *model[1:]]
    out = grappa.inference(store, model, layers=layers)
    assert np.allclose(out, forward(data.x, data.edge_index).detach().numpy(), atol=1e-5)


def test_states_that_exceed_the_memory_are_read_for_many_batches_together(store, data, monkeypatch):
    torch.manual_seed(0)
    model = nn.GraphSAGE(1433, 16, 3, 7)
    windows = []
    make = layerwise._windows

    def small(batches, row_bytes, memory):
        for window in make(batches, row_bytes, 100_000):
            windows.append(len(window))
            yield window

    monkeypatch.setattr(layerwise, "_windows", small)
    monkeypatch.setattr(layerwise, "SHARE", 1 << 14)
    out = grappa.inference(store, model, batch_size=32, memory="1GiB")
    assert len(windows) > 4 and max(windows) > 1
    assert np.allclose(out, expected(model, data), atol=1e-5)


def test_the_result_is_a_file_when_it_is_complete(store, tmp_path):
    model = nn.GraphSAGE(1433, 16, 2, 7)
    out = tmp_path / "out.npy"
    rows = grappa.inference(store, model, out=out)
    assert isinstance(rows, np.memmap) and np.array_equal(rows, np.load(out))
    assert np.array_equal(rows, grappa.inference(store, model))

    def fails(x, batch):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        grappa.inference(store, model, layers=[model.convs[0], fails], out=tmp_path / "failed.npy")
    assert os.listdir(tmp_path) == ["out.npy"]


def test_wrong_arguments_are_explained(store, tmp_path):
    model = nn.GraphSAGE(1433, 16, 2, 7)
    several = nn.GraphSAGE(1433, 16, 2, 7, jk="cat")
    norm = nn.GraphSAGE(1433, 16, 2, 7, norm="GraphNorm")
    sequential = torch.nn.Sequential(torch.nn.Linear(1433, 7))
    whole_batch = [lambda x, batch: x[0]]
    for error, message, call in [
        (TypeError, "torch.nn.Module", lambda: grappa.inference(store, "model")),
        (ValueError, "jk='cat'", lambda: grappa.inference(store, several)),
        (ValueError, "needs all nodes", lambda: grappa.inference(store, norm)),
        (ValueError, "layers=", lambda: grappa.inference(store, sequential)),
        (ValueError, "layers is empty", lambda: grappa.inference(store, model, layers=[])),
        (ValueError, "batch.batch_size", lambda: grappa.inference(store, model, layers=whole_batch)),
        (TypeError, "NoneType", lambda: grappa.inference(store, model, layers=[lambda x, batch: None])),
        (ValueError, "no pair", lambda: grappa.inference(store, model, layers=[nn.SGConv(1433, 7)])),
        (ValueError, "node 5 is in nodes twice", lambda: grappa.inference(store, model, nodes=[5, 1, 5])),
        (ValueError, "nodes is empty", lambda: grappa.inference(store, model, nodes=[])),
        (KeyError, "holdout", lambda: grappa.inference(store, model, nodes="holdout")),
        (IndexError, "2708", lambda: grappa.inference(store, model, nodes=[2708])),
        (grappa.Error, "scratch=", lambda: grappa.inference(store, model, scratch=tmp_path / "missing")),
    ]:
        with pytest.raises(error, match=message):
            call()


def test_a_store_without_features_is_explained(tmp_path):
    store = grappa.ingest(np.array([[0, 1]]), out=tmp_path / "bare.grappa")
    with pytest.raises(ValueError, match="no features"):
        grappa.inference(store, torch.nn.Identity(), layers=[lambda x, batch: x[1]])


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_an_error(store, monkeypatch):
    monkeypatch.setattr(layerwise.tempfile, "TemporaryFile", lambda dir: open("/dev/full", "wb"))
    with pytest.raises(grappa.Error, match="No space left"):
        grappa.inference(store, nn.GraphSAGE(1433, 16, 2, 7))


@pytest.fixture(scope="module")
def weighted_store(tmp_path_factory):
    """A store with edge weights. Some nodes have a self-loop."""
    random = np.random.default_rng(5)
    edges = random.integers(0, 200, (900, 2))
    edges = np.concatenate([edges[edges[:, 0] != edges[:, 1]], np.arange(40)[:, None].repeat(2, 1)])
    return grappa.ingest(
        edges,
        weights=random.uniform(0.5, 2, len(edges)).astype(np.float32),
        features=random.normal(size=(200, 12)).astype(np.float32),
        chunks=16,
        out=tmp_path_factory.mktemp("stores") / "weighted.grappa",
    )


@pytest.mark.parametrize(
    "convolutions",
    [
        lambda: [nn.GCNConv(12, 16), nn.GCNConv(16, 7)],
        lambda: [nn.GCNConv(12, 16, improved=True), nn.GCNConv(16, 7, add_self_loops=False)],
        lambda: [nn.GraphConv(12, 16), nn.GraphConv(16, 7, aggr="mean")],
        lambda: [nn.GraphConv(12, 16, aggr="max"), nn.GraphConv(16, 7)],
    ],
)
def test_convolutions_get_edge_weights(weighted_store, convolutions):
    layers = convolutions()
    offsets, sources, weights = weighted_store.in_edges()
    edges = torch.from_numpy(np.stack([sources, np.repeat(np.arange(200), np.diff(offsets))]))
    with torch.no_grad():
        rows = torch.from_numpy(weighted_store.features[:])
        for layer in layers:
            rows = layer(rows, edges, torch.from_numpy(weights))
    model = torch.nn.ModuleList(layers)
    for batch_size in (7, 1000):
        found = grappa.inference(weighted_store, model, layers=layers, batch_size=batch_size, edge_weights=True)
        assert np.allclose(found, rows, atol=1e-4)


def test_whether_layers_get_edge_weights_is_not_guessed(weighted_store, store):
    model = nn.GraphSAGE(12, 4, num_layers=1)
    with pytest.raises(ValueError, match="edge_weights=True if"):
        grappa.inference(weighted_store, model)
    with pytest.raises(ValueError, match="SAGEConv takes no edge weights"):
        grappa.inference(weighted_store, model, edge_weights=True)
    assert grappa.inference(weighted_store, model, edge_weights=False).shape == (200, 4)
    with pytest.raises(ValueError, match="has no edge weights"):
        grappa.inference(store, nn.GraphSAGE(1433, 4, num_layers=1), edge_weights=True)


@pytest.mark.parametrize("improved", [False, True])
def test_weights_of_self_loops_are_those_that_pyg_takes(improved, tmp_path):
    # Node 0 has a loop of weight 0, node 1 has two loops, node 2 has one, and node 3 has none.
    pairs = np.array([[0, 0], [1, 1], [1, 1], [2, 2], [0, 1], [1, 2], [2, 3], [3, 0]])
    weights = np.array([0.0, 4.0, 0.5, 3.0, 1.0, 2.0, 0.25, 1.5], np.float32)
    features = np.random.default_rng(0).random((4, 5), dtype=np.float32)
    store = grappa.ingest(pairs, weights=weights, features=features, out=tmp_path / "loops.grappa")
    whole = store.to_pyg()
    torch.manual_seed(0)
    conv = nn.GCNConv(5, 3, improved=improved)
    out = grappa.inference(store, conv, layers=[conv], edge_weights=True)
    with torch.no_grad():
        np.testing.assert_allclose(out, conv(whole.x, whole.edge_index, whole.edge_weight), rtol=1e-5, atol=1e-5)
