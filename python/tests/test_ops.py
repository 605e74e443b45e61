"""Operators of attention equal PyTorch's own operators, forward and backward."""

import pytest

torch = pytest.importorskip("torch")
from grappa import _operators as kernels, ops  # noqa: E402


def edges_of(seed=0, size=(50, 20), count=300, self_loops=False):
    """Unsorted edges. The last three destinations have none."""
    generator = torch.Generator().manual_seed(seed)
    ends = [torch.randint(size[0], (count,), generator=generator), torch.randint(size[1] - 3, (count,), generator=generator)]
    edge_index = torch.stack(ends)
    return edge_index, ops.sort_edges(edge_index, size, self_loops=self_loops)


def random(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def loops(edges):
    return edges.places == -1


def inputs_of(edges, heads=4, width=32, inputs=24):
    """The tensors of each function, without edges."""
    count, destinations = len(edges.indices), len(edges.offsets) - 1
    x, queries = random(edges.num_sources, width, seed=2), random(destinations, width, seed=3)
    weights, narrow = random(count, heads, seed=4), random(edges.num_sources, inputs, seed=5)
    matrix = random(width, inputs, seed=6)
    scores = random(edges.num_sources, heads, seed=7), random(destinations, heads, seed=8)
    return {
        "softmax": (lambda logits: ops.edge_softmax(logits, edges), weights),
        "sum": (lambda x, weights: ops.weighted_sum(x, weights, edges), x, weights),
        "sum after a layer": (lambda x, w, m: ops.weighted_sum(x, w, edges, weight=m), narrow, weights, matrix),
        "dot": (lambda x, queries: ops.dot_logits(x, queries, edges, heads), x, queries),
        "dot after a layer": (lambda x, q, m: ops.dot_logits(x, q, edges, heads, weight=m), narrow, queries, matrix),
        "gat": (lambda sources, destinations: ops.gat_logits(sources, destinations, edges), *scores),
        "gatv2": (lambda x, own, vector: ops.gatv2_attention(x, own, vector, edges, heads), x, queries, random(width, seed=9)),
        "attention": (lambda x, logits: ops.attention(x, logits, edges), x, weights),
    }


FUNCTIONS = list(inputs_of(edges_of()[1]))


def run(function, inputs, dtype):
    inputs = [value.detach().to(dtype).clone().requires_grad_() for value in inputs]
    out = function(*inputs)
    (out * random(*out.shape, seed=10).to(dtype)).sum().backward()
    return [out.detach(), *(value.grad for value in inputs)]


@pytest.fixture(params=["after", "before"], autouse=True)
def layers(request, monkeypatch):
    """Layers of sources are computed after their sum, or before."""
    monkeypatch.setattr(ops, "_is_after", lambda *_: request.param == "after")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shape", [(4, 32, 24), (1, 7, 5), (3, 96, 40)])
def test_kernels_equal_operators_of_float64(name, shape):
    _, edges = edges_of(self_loops=True)
    function, *inputs = inputs_of(edges, *shape)[name]
    expected = run(function, inputs, torch.float64)
    for actual, wanted in zip(run(function, inputs, torch.float32), expected):
        torch.testing.assert_close(actual, wanted.float(), atol=2e-5, rtol=2e-5)
    # Their sums are of float32, but bfloat16 rounds what goes in and out, and keeps 8 bits.
    rounded = [value.bfloat16().float() for value in inputs]
    expected = run(function, rounded, torch.float32)
    for actual, wanted in zip(run(function, rounded, torch.bfloat16), expected):
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual.float(), wanted, atol=3e-2 * float(wanted.abs().max()), rtol=0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operators_of_float64_have_gradients(name):
    _, edges = edges_of(size=(6, 6), count=9)
    function, *inputs = inputs_of(edges, heads=2, width=4, inputs=3)[name]
    assert torch.autograd.gradcheck(function, [value.double().requires_grad_() for value in inputs])


@pytest.mark.parametrize("count", [0, 1])
def test_blocks_without_edges_have_zeros(count):
    for size in [(5, 4), (0, 0)] if count == 0 else [(5, 4)]:
        edges = ops.sort_edges(torch.zeros((2, count), dtype=torch.int64), size)
        for name, (function, *inputs) in inputs_of(edges).items():
            out, *gradients = run(function, inputs, torch.float32)
            assert out.isfinite().all() and all(gradient.isfinite().all() for gradient in gradients)
            if name == "attention" and count:
                torch.testing.assert_close(out, torch.cat([inputs[0][:1], torch.zeros(3, 32)]))


def test_edges_are_sorted_and_keep_their_order():
    edge_index, edges = edges_of()
    order = edge_index[1].argsort(stable=True)
    assert torch.equal(edges.places.long(), order) and torch.equal(edges.indices.long(), edge_index[0][order])
    assert torch.equal(edges.offsets.diff().long(), edge_index[1].bincount(minlength=20))
    by_source = edges.transposed[51:351]
    destinations = edge_index[1][order]
    assert torch.equal(by_source.long(), destinations[edges.indices.long().argsort(stable=True)])
    # Other devices sort with operators of PyTorch.
    for self_loops in (False, True):
        _, edges = edges_of(size=(20, 20), self_loops=self_loops)
        operators = ops._sort_by_operators(edges_of(size=(20, 20))[0], (20, 20), 20 if self_loops else -1)
        assert all(torch.equal(one, other) for one, other in zip(edges, operators))


def test_self_loops_take_the_place_of_loops():
    edge_index, edges = edges_of(size=(30, 12), self_loops=True)
    is_loop = edge_index[0] == edge_index[1]
    assert is_loop.any() and loops(edges).sum() == 12 and len(edges.indices) == 300 - is_loop.sum() + 12
    ends = torch.stack([edges.indices.long(), torch.arange(12).repeat_interleave(edges.offsets.diff().long())])
    assert torch.equal((ends[0] == ends[1]), loops(edges))
    kept = ends[:, ~loops(edges)]
    assert torch.equal(kept, edge_index[:, edges.places[~loops(edges)].long()])


def test_wrong_edges_and_shapes_are_named():
    with pytest.raises(IndexError, match="edge 1 has the source 5, and there are 5 sources"):
        ops.sort_edges(torch.tensor([[0, 5], [0, 0]]), (5, 2))
    with pytest.raises(IndexError, match="edge 0 has the destination -1, and there are 2 destinations"):
        ops.sort_edges(torch.tensor([[0], [-1]]), (5, 2))
    with pytest.raises(ValueError, match=r"shape \(2, 1\) and type torch.int32; give \(2, e\)"):
        ops.sort_edges(torch.zeros((2, 1), dtype=torch.int32), (5, 2))
    edges = ops.sort_edges(torch.tensor([[0, 1], [0, 0]]), (5, 2))
    with pytest.raises(ValueError, match=r"x has shape \(4, 6\); give \(5, ...\)"):
        ops.weighted_sum(torch.zeros(4, 6), torch.zeros(2, 2), edges)
    with pytest.raises(ValueError, match=r"weights has shape \(3, 2\); give \(2, ...\)"):
        ops.weighted_sum(torch.zeros(5, 6), torch.zeros(3, 2), edges)
    with pytest.raises(ValueError, match="rows of 6 values cannot be divided among 4 heads"):
        ops.weighted_sum(torch.zeros(5, 6), torch.zeros(2, 4), edges)
    wrong = edges._replace(indices=torch.tensor([0, 7], dtype=torch.int32))
    with pytest.raises(ValueError, match="a source that is not among the 5 rows"):
        ops.weighted_sum(torch.zeros(5, 6), torch.zeros(2, 2), wrong)
    with pytest.raises(ValueError, match="do not ascend from 0 to at most 2"):
        ops.edge_softmax(torch.zeros(2, 2), edges._replace(offsets=torch.tensor([0, 2, 1], dtype=torch.int32)))


def test_dropout_of_weights_keeps_the_mean():
    _, edges = edges_of()
    ones, logits = torch.ones(50, 4), torch.zeros(300, 4)
    torch.manual_seed(0)
    for out in (
        ops.attention(ones, logits, edges, dropout=0.5)[:17],
        ops.gatv2_attention(ones, torch.zeros(20, 4), torch.zeros(4), edges, 4, dropout=0.5)[:17],
    ):
        assert abs(out.mean() - 1) < 0.2 and out.std() > 0.1
    weight, own = torch.zeros(4, requires_grad=True), torch.zeros(20, 4)
    x = random(50, 4).requires_grad_()
    torch.manual_seed(1)
    ops.gatv2_attention(x, own, weight, edges, 4, dropout=0.5).sum().backward()
    of_kernel, x.grad, weight.grad = (x.grad, weight.grad), None, None
    # Masks of both types are drawn alike, so they are the same.
    torch.manual_seed(1)
    factors = torch.nn.functional.dropout(torch.ones(300, 4), 0.5)
    destinations = torch.arange(20).repeat_interleave(edges.offsets.diff().long())
    values = torch.nn.functional.leaky_relu(x[edges.indices.long()] + own[destinations], 0.2) * weight
    ops.weighted_sum(x, ops.edge_softmax(values, edges) * factors, edges).sum().backward()
    torch.testing.assert_close(of_kernel, (x.grad, weight.grad))


def test_operators_pass_the_checks_of_pytorch():
    _, edges = edges_of()
    csr, count = (edges.offsets, edges.indices), len(edges.indices)
    x, queries = random(50, 32).requires_grad_(), random(20, 32, seed=2).requires_grad_()
    weights, matrix = random(count, 4, seed=3).requires_grad_(), random(16, 32, seed=4).requires_grad_()
    scores = random(50, 4, seed=5).requires_grad_(), random(20, 4, seed=6).requires_grad_()
    narrow, vector = random(20, 16, seed=7).requires_grad_(), random(32, seed=8).requires_grad_()
    edge_index, _ = edges_of()
    for operator, *inputs in [
        (kernels.sort_edges, edge_index, 50, 20, -1),
        (kernels.sort_edges, edge_index, 50, 20, 20),
        (kernels.transpose_edges, *csr, 50),
        (kernels.edge_softmax, weights, edges.offsets),
        (kernels.weighted_sum, x, weights, *csr, edges.transposed, 50),
        (kernels.weighted_sum, x, weights, *csr, None, 50),
        (kernels.edge_products, x, queries, *csr, edges.transposed, 4),
        (kernels.linear_sum, x, weights, matrix, *csr, edges.transposed, 50),
        (kernels.linear_products, x, narrow, matrix, *csr, edges.transposed, 4),
        (kernels.sum_logits, *scores, *csr, edges.transposed),
        (kernels.pair_attention, x, queries, vector, None, *csr, edges.transposed, 4),
    ]:
        # The second result of this one has no gradient.
        checks = ("test_schema", "test_faketensor") if operator is kernels.pair_attention else None
        torch.library.opcheck(operator, inputs, **({"test_utils": checks} if checks else {}))


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.score = torch.nn.Linear(12, 16), torch.nn.Linear(12, 2)
        self.vector = torch.nn.Parameter(random(16, seed=3))

    def forward(self, x, edge_index):
        edges = ops.sort_edges(edge_index, (len(x), len(x)), self_loops=True)
        scores = self.score(x)
        out = ops.attention(x, ops.gat_logits(scores, scores, edges), edges, weight=self.linear.weight)
        rows = self.linear(x)
        return out + ops.gatv2_attention(rows, rows, self.vector, edges, 2)


def test_layers_compile():
    torch.manual_seed(0)
    model, x = Attention(), random(20, 12)
    edge_index, _ = edges_of(size=(20, 20))
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    expected = model(x, edge_index)
    expected.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    found = compiled(x, edge_index)
    found.square().sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], gradients)


def test_autocast_and_threads_change_nothing_but_rounding():
    torch.manual_seed(0)
    model, x = Attention(), random(200, 12)
    edge_index, _ = edges_of(size=(200, 200), count=3000)
    expected = model(x, edge_index)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(model(x, edge_index).float(), expected, atol=0.1, rtol=0.1)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        of_three = ops.gatv2_attention(x, x, random(12, seed=4), ops.sort_edges(edge_index, (200, 200)), 3)
        torch.set_num_threads(1)
        of_one = ops.gatv2_attention(x, x, random(12, seed=4), ops.sort_edges(edge_index, (200, 200)), 3)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(of_one, of_three)
