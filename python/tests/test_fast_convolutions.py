"""Convolutions with kernels compute what PyTorch Geometric computes."""

import copy

import pytest

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch_geometric.nn")
import grappa.pyg  # noqa: E402
from grappa.fast_convolutions import convolve_fast  # noqa: E402
from test_ranks import in_two_ranks  # noqa: E402

RELATIONS = 5
CONVOLUTIONS = {
    "gat": lambda: nn.GATConv(12, 8, heads=4),
    "gat, mean of heads": lambda: nn.GATConv(12, 8, heads=3, concat=False),
    "gat, residual": lambda: nn.GATConv(12, 8, heads=2, residual=True),
    "gat, no bias, no loops": lambda: nn.GATConv(12, 8, bias=False, add_self_loops=False),
    "gat, bipartite": lambda: nn.GATConv((12, 12), 8, heads=2),
    "gat, wide": lambda: nn.GATConv(12, 64, heads=2),
    "gatv2": lambda: nn.GATv2Conv(12, 8, heads=4),
    "gatv2, mean of heads": lambda: nn.GATv2Conv(12, 8, heads=3, concat=False),
    "gatv2, residual": lambda: nn.GATv2Conv(12, 8, heads=2, residual=True),
    "gatv2, no bias, no loops": lambda: nn.GATv2Conv(12, 8, bias=False, add_self_loops=False),
    "gatv2, bipartite, shared weights": lambda: nn.GATv2Conv((12, 12), 8, heads=2, share_weights=True),
    "transformer": lambda: nn.TransformerConv(12, 8, heads=4),
    "transformer, mean of heads": lambda: nn.TransformerConv(12, 8, heads=3, concat=False),
    "transformer, beta": lambda: nn.TransformerConv(12, 8, heads=2, beta=True),
    "transformer, no bias, no root": lambda: nn.TransformerConv((12, 12), 8, bias=False, root_weight=False),
    "transformer, wide": lambda: nn.TransformerConv(12, 64, heads=2),
    "relations": lambda: nn.RGCNConv(12, 8, RELATIONS),
    "relations, sum": lambda: nn.RGCNConv(12, 8, RELATIONS, aggr="add"),
    "relations, bases": lambda: nn.RGCNConv(12, 8, RELATIONS, num_bases=2),
    "relations, blocks": lambda: nn.RGCNConv(12, 8, RELATIONS, num_blocks=4),
    "relations, no root, no bias": lambda: nn.RGCNConv((12, 12), 8, RELATIONS, root_weight=False, bias=False),
    "fast relations": lambda: nn.FastRGCNConv(12, 8, RELATIONS),
}


def block(count=400, sources=60, destinations=25, seed=0):
    """The edges of a block, and their relations. The last four destinations have no edges, and there are loops."""
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(size, (count,), generator=generator) for size in (sources, max(destinations - 4, 1))]
    return torch.stack(ends), torch.randint(RELATIONS, (count,), generator=generator)


def rows(count, seed=1, dtype=torch.float32):
    return torch.randn((count, 12), generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def run(call, conv, x):
    conv.zero_grad()
    for value in x:
        value.grad = None
    out = call()
    (out * torch.linspace(-1, 1, out.numel()).view(out.shape)).sum().backward()
    gradients = {name: parameter.grad for name, parameter in conv.named_parameters()}
    return out.detach(), gradients, [value.grad for value in x]


@pytest.mark.parametrize("is_after", [True, False], ids=["layers after", "layers before"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_rows_and_gradients_are_those_of_pytorch_geometric(name, is_after, monkeypatch):
    monkeypatch.setattr(grappa.ops, "_is_after", lambda *_: is_after)
    torch.manual_seed(1)
    conv = CONVOLUTIONS[name]()
    for count, sources, destinations in [(400, 60, 25), (0, 60, 25), (30, 25, 25)]:
        edge_index, edge_type = block(count, sources, destinations)
        x = (rows(sources), rows(destinations, seed=2))
        types = (edge_type,) if "relations" in name else ()
        expected = run(lambda: conv(x, edge_index, *types), conv, x)
        found = run(lambda: convolve_fast(conv, x, edge_index, *types), conv, x)
        torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=1e-5)
        for key, gradient in expected[1].items():
            # Layers that a convolution has and does not use have none.
            assert (found[1][key] is None) == (gradient is None), key
            if gradient is not None:
                torch.testing.assert_close(found[1][key], gradient, atol=2e-5, rtol=2e-5, msg=lambda text: f"{key}: {text}")
        for value, actual, gradient in zip(x, found[2], expected[2]):
            actual, gradient = (torch.zeros_like(value) if of is None else of for of in (actual, gradient))
            torch.testing.assert_close(actual, gradient, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("name", [name for name in CONVOLUTIONS if "," not in name])
def test_rows_of_bfloat16_differ_by_rounding(name):
    torch.manual_seed(2)
    conv = CONVOLUTIONS[name]()
    edge_index, edge_type = block()
    types = (edge_type,) if "relations" in name else ()
    x = (rows(60), rows(25, seed=2))
    expected = conv(x, edge_index, *types).detach()
    found = convolve_fast(conv.bfloat16(), tuple(value.bfloat16() for value in x), edge_index, *types)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.06 * float(expected.abs().max()), rtol=0)


def test_calls_that_kernels_do_not_serve_are_left_to_pytorch_geometric():
    edge_index, edge_type = block()
    x, attributes = (rows(60), rows(25)), torch.zeros(400, 3)

    class Own(nn.GATConv):
        def message(self, x_j, alpha):
            return x_j

    hooked, explained, pruned = (nn.GATConv(12, 8) for _ in range(3))
    hooked.register_message_forward_hook(lambda *_: None)
    explained.explain = True
    pruned.lin.register_forward_hook(lambda *_: None)
    for conv, *arguments in [
        (Own(12, 8),),
        (hooked,),
        (explained,),
        (pruned,),
        (nn.GATConv(12, 8, negative_slope=0.1),),
        (nn.GATv2Conv(12, 8, negative_slope=0.1),),
        (nn.GATConv(12, 8, aggr="max"),),
        (nn.TransformerConv(12, 8, aggr="mean"),),
        (nn.GATConv(12, 8, edge_dim=3), attributes),
        (nn.GATv2Conv(12, 8, edge_dim=3), attributes),
        (nn.TransformerConv(12, 8, edge_dim=3), attributes),
        (nn.GATConv(12, 8), None, (60, 25)),
        (nn.GATConv(12, 8), None, None, True),
        (nn.GATv2Conv(12, 8), None, True),
        (nn.GATConv(-1, 8),),
        (nn.RGCNConv(12, 8, RELATIONS, aggr="max"), edge_type),
        (nn.RGCNConv(12, 8, RELATIONS),),
        (nn.SAGEConv(12, 8),),
    ]:
        assert convolve_fast(conv, x, edge_index, *arguments) is None, conv
    conv = nn.GATConv(12, 8).double()
    assert convolve_fast(conv, tuple(value.double() for value in x), edge_index) is None
    assert convolve_fast(nn.GATConv(12, 8), (x[0], None), edge_index) is None
    assert convolve_fast(nn.GATConv(12, 8, flow="target_to_source"), x, edge_index) is None


def test_dropout_is_of_weights_and_in_training_only():
    edge_index, _ = block()
    x = (rows(60), rows(25))
    for kind in (nn.GATConv, nn.GATv2Conv, nn.TransformerConv):
        conv = kind(12, 8, heads=4, dropout=0.5).eval()
        expected = conv(x, edge_index).detach()
        torch.testing.assert_close(convolve_fast(conv, x, edge_index), expected, atol=1e-5, rtol=1e-5)
        conv.train()
        torch.manual_seed(3)
        found = torch.stack([convolve_fast(conv, x, edge_index).detach() for _ in range(300)])
        assert float(found.std(0)[:20].max()) > 0.05
        torch.testing.assert_close(found.mean(0), expected, atol=0.3, rtol=0.3)


def test_ranks_of_ddp_have_the_mean_of_their_gradients(cora, tmp_path):
    script = """
    import torch
    import torch_geometric.nn as nn
    import grappa.pyg
    from torch.nn.parallel import DistributedDataParallel

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = torch.nn.ModuleList([nn.TransformerConv(1433, 8, heads=2), nn.GATv2Conv(16, 8, heads=2), nn.GATConv(16, 7)])

        def forward(self, x, edge_index):
            for conv in self.convs[:-1]:
                x = conv(x, edge_index).relu()
            return self.convs[-1](x, edge_index)

    def backward(model, batch):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size]).backward()

    torch.manual_seed(0)
    model = Model()
    alone = Model()
    alone.load_state_dict(model.state_dict())
    model = DistributedDataParallel(grappa.pyg.fuse(model))
    for batch in list(grappa.pyg.NeighborLoader(store, [4, 4, 4], "train", batch_size=20, shuffle=True))[:3]:
        backward(alone, batch)
        backward(model, batch)
        for (name, parameter), ours in zip(alone.named_parameters(), model.parameters()):
            total = parameter.grad.clone()
            distributed.all_reduce(total)
            torch.testing.assert_close(ours.grad, total / 2, atol=1e-5, rtol=1e-3, msg=lambda text: name + text)
    """
    for status, message in in_two_ranks(cora, tmp_path, script):
        assert status == 0, message


def test_inference_by_layers_uses_the_same_kernels(cora, monkeypatch):
    store = grappa.open(cora)
    torch.manual_seed(0)
    model = nn.GAT(store.num_features, 16, num_layers=2, out_channels=7, heads=2).eval()
    found = grappa.inference(store, model)
    monkeypatch.setattr("grappa.convolutions.convolve_fast", lambda *_: None)
    expected = grappa.inference(store, copy.deepcopy(model))
    torch.testing.assert_close(torch.from_numpy(found), torch.from_numpy(expected), atol=1e-5, rtol=1e-5)
