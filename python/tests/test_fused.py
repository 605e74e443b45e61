"""Fused models compute what stock models compute for the seeds."""

import copy
import warnings

import grappa
import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch_geometric.nn")
import grappa.pyg  # noqa: E402


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """Minibatches of a graph with self-loops, parallel edges, weights and features of edges."""
    random = np.random.default_rng(0)
    edges = random.integers(0, 300, (4000, 2))
    edges[::50, 1] = edges[::50, 0]
    store = grappa.ingest(
        edges,
        features=random.standard_normal((300, 12), dtype=np.float32),
        labels=random.integers(0, 5, 300),
        weights=random.random(4000, dtype=np.float32) + 0.1,
        edge_features=random.standard_normal((4000, 3), dtype=np.float32),
        out=tmp_path_factory.mktemp("fused") / "graph.grappa",
    )
    return list(grappa.pyg.NeighborLoader(store, [4, 3, 2], None, batch_size=40, shuffle=True))[:3]


class Skips(torch.nn.Module):
    """Convolutions one after another, with all that follows row by row."""

    def __init__(self, conv):
        super().__init__()
        self.first = torch.nn.Linear(12, 16)
        self.convs = torch.nn.ModuleList([conv(16, 16) for _ in range(3)])
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(16) for _ in range(3)])
        self.last = torch.nn.Linear(3 * 16, 5)

    def forward(self, x, edge_index):
        h = self.first(x).relu()
        states = []
        for conv, norm in zip(self.convs, self.norms):
            h = norm(h + torch.nn.functional.elu(conv(h, edge_index)))
            h = torch.nn.functional.normalize(h, dim=-1)
            states.append(h)
        return self.last(torch.cat(states, dim=-1))


def stock(kind, **options):
    return getattr(nn, kind)(12, 16, num_layers=3, out_channels=5, **options)


MODELS = {
    "sage": lambda: stock("GraphSAGE"),
    "sage max, jumping knowledge": lambda: stock("GraphSAGE", aggr="max", jk="cat"),
    "jumping knowledge by maximum": lambda: stock("GIN", jk="max"),
    "gcn": lambda: stock("GCN"),
    "gcn without loops": lambda: stock("GCN", add_self_loops=False),
    "gcn improved": lambda: stock("GCN", improved=True),
    "gin": lambda: stock("GIN"),
    "gat": lambda: stock("GAT", heads=4),
    "gatv2": lambda: stock("GAT", heads=2, v2=True),
    "pna": lambda: stock("PNA", aggregators=["mean", "max"], scalers=["identity"], deg=torch.ones(5, dtype=torch.long)),
    "layer norm": lambda: stock("GraphSAGE", norm="LayerNorm", norm_kwargs={"mode": "node"}),
    "two layers of three hops": lambda: nn.GraphSAGE(12, 16, num_layers=2, out_channels=5),
    "five layers of three hops": lambda: nn.GraphSAGE(12, 16, num_layers=5, out_channels=5),
    "skips": lambda: Skips(nn.SAGEConv),
    "transformer": lambda: Skips(nn.TransformerConv),
    "graph": lambda: Skips(nn.GraphConv),
}


def assert_equal(model, batches, *values, state=None):
    """The fused model has the rows and the gradients of the stock one."""
    fused = grappa.pyg.fuse(copy.deepcopy(model))
    assert type(fused) is type(model) and fused.state_dict().keys() == model.state_dict().keys()
    for batch in batches:
        given = [batch[value] for value in values]
        for one in (model, fused):
            one.zero_grad()
        expected = model(batch.x, batch.edge_index, *given)[: batch.batch_size]
        found = fused(batch.x, batch.edge_index, *given)
        assert type(found) is torch.Tensor and found.shape == expected.shape
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
        for out in (expected, found):
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        for (name, ours), theirs in zip(fused.named_parameters(), model.parameters()):
            torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-5, rtol=1e-3, msg=lambda text: f"{name}: {text}")
    return fused


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_seeds_and_gradients_are_those_of_the_stock_model(name, batches):
    torch.manual_seed(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fused = assert_equal(MODELS[name](), batches)
    counted = []
    for conv in fused.modules():
        if isinstance(conv, nn.MessagePassing):
            conv.register_forward_hook(lambda conv, args, out: counted.append(len(out)))
    fused(batches[0].x, batches[0].edge_index)
    # The last convolution computes the seeds alone, and those before it not all nodes.
    assert counted[-1] == batches[0].batch_size and counted == sorted(counted, reverse=True)
    assert name.startswith("five") or counted[0] < len(batches[0].x)


def test_weights_and_features_of_edges_go_with_their_edges(batches):
    torch.manual_seed(2)
    assert_equal(stock("GCN"), batches, "edge_weight")

    class Edges(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.GATv2Conv(12, 8, edge_dim=3), nn.GATv2Conv(8, 5, edge_dim=3)

        def forward(self, x, edge_index, edge_attr):
            return self.second(self.first(x, edge_index, edge_attr).relu(), edge_index, edge_attr=edge_attr)

    assert_equal(Edges(), batches, "edge_attr")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda conv: torch.nn.Sequential(conv, torch.nn.BatchNorm1d(16)), "batch norm in training mixes"),
        (lambda conv: torch.nn.Sequential(conv, nn.GraphNorm(16)), "rows"),
        (lambda conv: torch.nn.Sequential(conv, nn.PairNorm()), "mean mixes the rows"),
    ],
)
def test_models_that_mix_rows_are_named_and_compute_all_rows(change, reason, batches):
    class Mixing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.SAGEConv(12, 16), change(torch.nn.Identity())
            self.last = nn.SAGEConv(16, 5)

        def forward(self, x, edge_index):
            return self.last(self.norm(self.conv(x, edge_index)), edge_index)

    torch.manual_seed(3)
    model = Mixing()
    fused = grappa.pyg.fuse(copy.deepcopy(model))
    batch = batches[0]
    with pytest.warns(UserWarning, match=f"Mixing computes all rows of a batch: .*{reason}"):
        found = fused(batch.x, batch.edge_index)
    torch.testing.assert_close(found, copy.deepcopy(model)(batch.x, batch.edge_index))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(fused(batch.x, batch.edge_index)) == len(batch.x)


def test_norms_inside_of_convolutions_compute_all_rows_in_training_only(batches):
    batch = batches[0]
    torch.manual_seed(5)
    model = stock("GIN", norm="BatchNorm")
    fused = grappa.pyg.fuse(copy.deepcopy(model))
    with pytest.warns(UserWarning, match="GIN computes all rows of a batch: BatchNorm.* mixes"):
        found = fused(batch.x, batch.edge_index)
    torch.testing.assert_close(found, model(batch.x, batch.edge_index))
    fused = grappa.pyg.fuse(copy.deepcopy(model).eval())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        seeds = fused(batch.x, batch.edge_index)
    torch.testing.assert_close(seeds, model.eval()(batch.x, batch.edge_index)[: batch.batch_size], atol=1e-5, rtol=1e-4)


def test_other_edges_convolutions_without_pairs_and_wrong_calls_compute_all_rows(batches):
    batch = batches[0]
    torch.manual_seed(4)
    model = stock("GraphSAGE")
    fused = grappa.pyg.fuse(copy.deepcopy(model))
    other = batch.edge_index.clone()
    torch.testing.assert_close(fused(batch.x, other), model(batch.x, other))
    call = "x, edge_index -> x"
    chain = grappa.pyg.fuse(nn.Sequential("x, edge_index", [(nn.TAGConv(12, 8), call), (nn.TAGConv(8, 5), call)]))
    with pytest.warns(UserWarning, match="TAGConv takes no pair"):
        assert len(chain(batch.x, batch.edge_index)) == len(batch.x)
    with pytest.raises(RuntimeError, match="shapes"):
        fused(batch.x[:, :5], batch.edge_index)
    with pytest.raises(ValueError, match="Linear has no convolution"):
        grappa.pyg.fuse(torch.nn.Linear(2, 2))


def test_unfuse_gives_the_stock_model_back(batches):
    batch = batches[0]
    model = stock("GraphSAGE")
    before = model(batch.x, batch.edge_index)
    fused = grappa.pyg.fuse(grappa.pyg.fuse(model))
    assert len(fused(batch.x, batch.edge_index)) == batch.batch_size
    assert grappa.pyg.unfuse(fused) is model
    torch.testing.assert_close(model(batch.x, batch.edge_index), before)
    assert "forward" not in model.__dict__ and all("forward" not in conv.__dict__ for conv in model.convs)
