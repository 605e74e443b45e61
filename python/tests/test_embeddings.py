"""Learnable rows of nodes: batches bring the current ones, and updates are those of PyTorch."""

import gc
import pickle
import weakref

import numpy as np
import pytest

import grappa
from grappa import ranks
from grappa.initial_rows import initial_rows

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv  # noqa: E402

import grappa.pyg  # noqa: E402

DIM = 6
BUYS, REVERSE = ("user", "buys", "item"), ("item", "rev_buys", "user")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Users without features, and items with 3."""
    random = np.random.default_rng(0)
    buys = np.unique(random.integers(0, [120, 80], (900, 2)), axis=0).T
    data = HeteroData()
    data["user"].num_nodes = 120
    data["item"].x = torch.from_numpy(random.normal(size=(80, 3)).astype(np.float32))
    data["item"].y = torch.from_numpy(random.integers(0, 4, 80))
    data[BUYS].edge_index = torch.from_numpy(buys)
    data[REVERSE].edge_index = torch.from_numpy(buys[::-1].copy())
    return grappa.ingest(data, out=tmp_path_factory.mktemp("embeddings") / "shop.grappa")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A store without types and features, in several chunks."""
    edges = np.random.default_rng(1).integers(0, 200, (1500, 2))
    edges[:200, 0] = np.arange(200)
    return grappa.ingest(edges, chunks=8, out=tmp_path_factory.mktemp("embeddings") / "plain.grappa")


def all_nodes(loader):
    """The first batch of a loader, which has all nodes as seeds."""
    return next(iter(loader))


def plain_adam(rows, batches, lr, betas=(0.9, 0.999), eps=1e-8):
    """Lazy Adam with a step count per row, row by row. `batches` have the nodes and their gradients, in the order of the steps."""
    rows = rows.astype(np.float64).copy()
    first, second, count = np.zeros_like(rows), np.zeros_like(rows), np.zeros(len(rows), int)
    for nodes, gradients in batches:
        sums = {}
        for node, gradient in zip(nodes, gradients, strict=True):
            sums[node] = sums.get(node, 0) + gradient.astype(np.float64)
        for node, gradient in sums.items():
            count[node] += 1
            first[node] = betas[0] * first[node] + (1 - betas[0]) * gradient
            second[node] = betas[1] * second[node] + (1 - betas[1]) * gradient**2
            size = lr * np.sqrt(1 - betas[1] ** count[node]) / (1 - betas[0] ** count[node])
            rows[node] -= size * first[node] / (np.sqrt(second[node]) + eps)
    return rows


def test_updates_are_those_of_pytorch_where_each_step_touches_each_row(plain):
    embedding = grappa.Embedding(plain, None, DIM, seed=5)
    stock = torch.nn.Embedding(plain.num_nodes, DIM, sparse=True)
    stock.weight.data.copy_(embedding.rows)
    optimizer = grappa.SparseAdam(embedding, lr=0.03)
    expected = torch.optim.SparseAdam(stock.parameters(), lr=0.03)
    model = torch.nn.Linear(DIM, 3)
    loader = grappa.pyg.NeighborLoader(plain, [2], None, batch_size=plain.num_nodes, shuffle=True, embeddings=[embedding])
    for _ in range(20):
        batch = all_nodes(loader)
        for rows, one in ((batch.x, optimizer), (stock(batch.n_id), expected)):
            one.zero_grad()
            model(rows).logsumexp(1).square().sum().backward()
            one.step()
        assert torch.allclose(embedding.rows, stock.weight, rtol=1e-6, atol=1e-7)
    assert not torch.allclose(embedding.rows, grappa.Embedding(plain, None, DIM, seed=5).rows, atol=0.1)


def test_a_row_counts_its_own_updates(plain):
    embedding = grappa.Embedding(plain, "node", DIM)
    before = embedding.rows.numpy().copy()
    optimizer = grappa.SparseAdam(embedding, lr=0.05, betas=(0.8, 0.99), eps=1e-6)
    # Some seeds are there twice, so their gradients are added up.
    seeds = [*range(60), *range(10)]
    loader = grappa.pyg.NeighborLoader(plain, [2], seeds, batch_size=16, shuffle=True, embeddings=embedding)
    weights = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    batches = []
    for _ in range(3):
        for batch in loader:
            (batch.x.tanh() * weights).square().sum().backward()
            batches.append((batch.n_id.tolist(), batch.x.grad.numpy().copy()))
            optimizer.step()
    assert any(len(set(nodes)) < len(nodes) for nodes, _ in batches)
    expected = plain_adam(before, batches, 0.05, (0.8, 0.99), 1e-6)
    assert np.allclose(embedding.rows.numpy(), expected, rtol=1e-4, atol=1e-5)
    touched = sorted({node for nodes, _ in batches for node in nodes})
    others = np.setdiff1d(np.arange(plain.num_nodes), touched)
    assert len(others) and np.array_equal(embedding.rows.numpy()[others], before[others])


def test_gradients_of_several_backward_passes_are_one_update(plain):
    embedding = grappa.Embedding(plain, None, DIM)
    before = embedding.rows.numpy().copy()
    optimizer = grappa.SparseAdam(embedding, lr=0.1)
    gradients = [(nodes, np.full((len(nodes), DIM), value, np.float32)) for nodes, value in (([3, 4], 1.0), ([4, 5], 2.0))]
    for nodes, gradient in gradients:
        embedding(nodes).backward(torch.from_numpy(gradient))
    optimizer.step()
    merged = ([*gradients[0][0], *gradients[1][0]], np.concatenate([gradient for _, gradient in gradients]))
    assert np.allclose(embedding.rows.numpy(), plain_adam(before, [merged], 0.1), atol=1e-6)
    # A gradient is applied once, or never if it was forgotten.
    after = embedding.rows.clone()
    embedding([7]).sum().backward()
    optimizer.zero_grad()
    with pytest.raises(RuntimeError, match=r"expected gradients of the rows of 'node', found none"):
        optimizer.step()
    assert torch.equal(embedding.rows, after)


@pytest.mark.parametrize("layout", ["hops", "blocks"])
def test_batches_with_types_bring_rows_instead_of_features_or_after_them(shop, layout):
    users, items = grappa.Embedding(shop, "user", DIM), grappa.Embedding(shop, "item", 2)
    loader = grappa.pyg.NeighborLoader(shop, [3, 3], "item", batch_size=20, layout=layout, embeddings=[users, items])
    for batch in loader:
        rows = batch["user"].x
        assert rows.is_leaf and rows.requires_grad and torch.equal(rows, users.rows[batch["user"].n_id])
        numbers = batch["item"].n_id
        features = torch.from_numpy(shop["item"].features[numbers.numpy()])
        assert torch.equal(batch["item"].x, torch.cat([features, items.rows[numbers]], dim=1))
        assert batch["item"].y.shape == numbers.shape and batch["user"].num_nodes == len(rows)
    optimizer = grappa.SparseAdam([users, items], lr=0.1)
    before = items.rows.clone()
    (batch["item"].x.sum() + rows.sum()).backward()
    optimizer.step()
    is_changed = (items.rows != before).any(dim=1)
    assert is_changed.nonzero().flatten().tolist() == sorted(numbers.tolist())


def test_batches_of_links_bring_rows(shop, plain):
    users = grappa.Embedding(shop, "user", DIM)
    links = grappa.pyg.LinkNeighborLoader(shop, [3], BUYS, neg_sampling="binary", batch_size=32, shuffle=True, embeddings=[users])
    batch = next(iter(links))
    assert torch.equal(batch["user"].x, users.rows[batch["user"].n_id]) and batch["item"].x.shape[1] == 3
    embedding = grappa.Embedding(plain, None, DIM)
    for kind in (grappa.LinkNeighborLoader, grappa.pyg.LinkNeighborLoader):
        batch = next(iter(kind(plain, [3], batch_size=32, neg_sampling="binary", embeddings=embedding)))
        assert batch.x.requires_grad and torch.equal(batch.x, embedding.rows[batch.n_id])


def test_batches_without_pytorch_geometric_and_of_groups_bring_rows(store):
    embedding = grappa.Embedding(store, None, 3)
    loaders = [
        grappa.NeighborLoader(store, [3], batch_size=50, embeddings=[embedding]),
        grappa.pyg.ClusterLoader(store, embeddings=[embedding], shuffle=True),
    ]
    for loader in loaders:
        batch = next(iter(loader))
        assert batch.x.shape == (len(batch.n_id), store.num_features + 3)
        assert torch.equal(batch.x[:, -3:], embedding.rows[batch.n_id])
    batch = next(iter(grappa.NeighborLoader(store, [3], batch_size=50, features=False, embeddings=embedding)))
    assert torch.equal(batch.x, embedding.rows[batch.n_id])


def test_a_transform_gets_rows(store):
    embedding = grappa.Embedding(store, None, 3)

    def double(batch):
        batch.x = batch.x * 2
        return batch

    loader = grappa.pyg.NeighborLoader(store, [3], "train", batch_size=50, features=False, transform=double, embeddings=embedding)
    batch = next(iter(loader))
    batch.x.sum().backward()
    nodes, gradient = embedding._take_gradient()
    assert nodes.tolist() == sorted(batch.n_id.tolist()) and (gradient == 2).all()


def test_batches_that_were_sampled_ahead_have_the_current_rows(plain):
    embedding = grappa.Embedding(plain, None, DIM)
    optimizer = grappa.SparseAdam(embedding, lr=1.0)
    loader = grappa.pyg.NeighborLoader(plain, [-1, -1], None, batch_size=20, threads=2, embeddings=embedding)
    last = None
    for batch in loader:
        assert torch.equal(batch.x, embedding.rows[batch.n_id])
        assert last is None or not torch.equal(batch.x, last[batch.n_id])
        last = embedding.rows.clone()
        batch.x.square().sum().backward()
        optimizer.step()


def train(embedding, loader, model, epochs):
    """Trains a model of users and items with the rows of users. Returns the losses."""
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1), grappa.SparseAdam(embedding, lr=0.05)]
    losses = []
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            out = model(batch.x_dict, batch.edge_index_dict)["item"][: batch["item"].batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch["item"].y[: batch["item"].batch_size])
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            losses.append(loss.item())
    return losses


def model_of_items():
    torch.manual_seed(0)
    return HeteroConv({BUYS: SAGEConv((DIM, 3), 4), REVERSE: SAGEConv((3, DIM), 4)})


def loader_of_items(shop, embedding):
    return grappa.pyg.NeighborLoader(shop, [5], "item", batch_size=16, shuffle=True, embeddings=[embedding])


def test_rows_on_disk_equal_rows_in_memory_and_continue_when_they_are_opened_again(shop, tmp_path):
    whole, parts = grappa.Embedding(shop, "user", DIM), grappa.Embedding(shop, "user", DIM, path=tmp_path / "rows")
    expected = train(whole, loader_of_items(shop, whole), model_of_items(), range(6))
    model, losses = model_of_items(), []
    for epoch in range(0, 6, 2):
        with parts:
            losses += train(parts, loader_of_items(shop, parts), model, [epoch, epoch + 1])
        parts = grappa.Embedding(shop, "user", DIM, path=tmp_path / "rows")
    assert losses == expected and losses[-1] < losses[0]
    assert torch.equal(parts.rows, whole.rows)
    assert torch.equal(parts._table().updates, whole.updates) and torch.equal(parts._table().second, whole.exp_avg_sq)


def test_rows_in_memory_are_part_of_the_state_of_a_model(shop, tmp_path):
    whole, first = grappa.Embedding(shop, "user", DIM), grappa.Embedding(shop, "user", DIM)
    expected = train(whole, loader_of_items(shop, whole), model_of_items(), range(4))
    model = model_of_items()
    losses = train(first, loader_of_items(shop, first), model, range(2))
    torch.save(torch.nn.ModuleDict({"rows": first, "conv": model}).state_dict(), tmp_path / "model.pt")
    again = torch.nn.ModuleDict({"rows": grappa.Embedding(shop, "user", DIM, seed=9), "conv": model_of_items()})
    again.load_state_dict(torch.load(tmp_path / "model.pt"))
    losses += train(again["rows"], loader_of_items(shop, again["rows"]), again["conv"], range(2, 4))
    assert losses == expected and torch.equal(again["rows"].rows, whole.rows)
    # Rows are no parameters, and stay what they are when a model changes.
    assert not list(first.parameters()) and first.double().rows.dtype == torch.float32
    copied = pickle.loads(pickle.dumps(first))
    assert torch.equal(copied.rows, first.rows) and copied.rows.data_ptr() != first.rows.data_ptr()


def test_options_of_the_optimizer_are_scheduled_saved_and_loaded(plain):
    embedding = grappa.Embedding(plain, None, DIM)
    optimizer = grappa.SparseAdam(embedding, lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    before = embedding.rows.clone()
    for _ in range(2):
        embedding([1]).sum().backward()
        optimizer.step()
        schedule.step()
    # The first steps of Adam are the rate, whatever the gradient.
    assert torch.allclose(before[1] - embedding.rows[1], torch.full((DIM,), 0.15), atol=1e-4)
    again = grappa.SparseAdam(embedding, lr=3)
    embedding([1]).sum().backward()
    again.load_state_dict(optimizer.state_dict())
    assert again.param_groups[0]["lr"] == 0.025 and again.state_dict()["param_groups"][0]["params"] == []
    rows = embedding([2])
    rows.sum().backward()
    assert again.param_groups[0]["params"][0] is rows
    assert float(again.step(lambda: torch.tensor(4.0))) == 4


def test_batches_of_an_evaluation_have_no_gradient_and_are_not_kept(plain):
    embedding = grappa.Embedding(plain, None, DIM)
    loader = grappa.pyg.NeighborLoader(plain, [2], None, batch_size=50, embeddings=embedding)
    with torch.no_grad():
        assert not any(batch.x.requires_grad for batch in loader)
    kept = [weakref.ref(batch.x) for batch in loader]
    gc.collect()
    assert sum(reference() is not None for reference in kept) <= 1


def test_a_step_without_nodes_of_a_type_changes_nothing(shop):
    users = grappa.Embedding(shop, "user", DIM)
    optimizer = grappa.SparseAdam(users)
    before = users.rows.clone()
    batch = next(iter(grappa.pyg.NeighborLoader(shop, [0], "item", batch_size=20, embeddings=[users])))
    assert batch["user"].x.shape == (0, DIM)
    optimizer.step()
    assert torch.equal(users.rows, before)


def test_initial_rows_follow_from_the_seed_and_the_number_of_the_node(plain, shop, tmp_path):
    mask = (1 << 64) - 1

    def mix(bits):
        bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & mask
        bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & mask
        return bits ^ bits >> 31

    golden = 0x9E3779B97F4A7C15

    def combine(key, part):
        return mix((key + golden & mask) ^ part)

    def value(seed, number, node, place):
        key = combine(combine(mix(seed + golden & mask), number), node)
        uniform = np.float32(mix(key + place * golden & mask) >> 40) / np.float32(1 << 24)
        return np.sqrt(np.float32(3 / DIM)) * (2 * uniform - 1)

    for graph, name in ((plain, None), (shop, "user")):
        rows = grappa.Embedding(graph, name, DIM, seed=8).rows
        number = 0 if name is None else shop.node_types.index(name)
        assert all(np.isclose(rows[node, place], value(8, number, node, place), atol=1e-7) for node in (0, 7, 99) for place in range(DIM))
    # Blocks are of any size.
    many = np.concatenate(list(initial_rows(8, 0, 5000, 400)))
    assert np.array_equal(many[:100], np.concatenate(list(initial_rows(8, 0, 100, 400))))
    assert abs(float((many**2).sum(axis=1).mean()) - 1) < 0.01
    # The order in the store plays no part.
    nodes = np.arange(200)
    other = grappa.ingest(np.stack([nodes, nodes]), chunks=3, out=tmp_path / "other.grappa")
    assert torch.equal(grappa.Embedding(other, None, DIM).rows, grappa.Embedding(plain, None, DIM).rows)


def test_inference_reads_rows(shop, plain, tmp_path):
    users = grappa.Embedding(shop, "user", DIM, path=tmp_path / "rows")
    conv = model_of_items()
    found = grappa.inference(shop, conv, [conv], nodes="item", embeddings=[users])
    loader = grappa.pyg.NeighborLoader(shop, [-1], "item", batch_size=80, embeddings=[users])
    with torch.no_grad():
        batch = all_nodes(loader)
        expected = conv(batch.x_dict, batch.edge_index_dict)["item"][:80]
    assert np.allclose(found, expected, atol=1e-5)

    embedding = grappa.Embedding(plain, None, DIM)
    model = GraphSAGE(DIM, 8, 2, 3)
    batch = all_nodes(grappa.pyg.NeighborLoader(plain, [-1, -1], None, batch_size=plain.num_nodes, embeddings=embedding))
    with torch.no_grad():
        expected = model.eval()(batch.x, batch.edge_index)
    assert np.allclose(grappa.inference(plain, model, embeddings=embedding), expected, atol=1e-5)


def test_a_fused_model_gives_rows_the_same_gradients(store):
    embedding = grappa.Embedding(store, None, 8)
    loader = grappa.pyg.NeighborLoader(store, [5, 5], "train", batch_size=40, embeddings=embedding)
    gradients = []
    for fused in (False, True):
        torch.manual_seed(0)
        model = GraphSAGE(store.num_features + 8, 16, 2, store.num_classes)
        model = grappa.pyg.fuse(model) if fused else model
        loader.set_epoch(0)
        batch = next(iter(loader))
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        gradients.append(embedding._take_gradient())
    assert torch.equal(gradients[0].nodes, gradients[1].nodes)
    assert torch.allclose(gradients[0].values, gradients[1].values, atol=1e-6) and gradients[0].values.any()


def test_wrong_embeddings_are_errors_that_say_what_to_give(shop, plain, store):
    with pytest.raises(ValueError, match=r"node_type='usr': expected one of \['user', 'item'\].*give one of these"):
        grappa.Embedding(shop, "usr", DIM)
    with pytest.raises(ValueError, match=r"node_type=None: expected one of \['user', 'item'\]"):
        grappa.Embedding(shop, None, DIM)
    for dim in (0, -3):
        with pytest.raises(ValueError, match=rf"dim is {dim}; give at least 1"):
            grappa.Embedding(shop, "user", dim)
    with pytest.raises(TypeError, match="dim=2.5; give an integer"):
        grappa.Embedding(shop, "user", 2.5)
    with pytest.raises(ValueError, match="generation=1: rows in memory have no generations"):
        grappa.Embedding(shop, "user", DIM, generation=1)
    users = grappa.Embedding(shop, "user", DIM)
    with pytest.raises(ValueError, match=r"embeddings: expected rows of .*plain.grappa, found rows of 'user' of the graph .*shop.grappa"):
        grappa.pyg.NeighborLoader(plain, [3], None, embeddings=[users])
    with pytest.raises(ValueError, match="embeddings has two of the node type 'user', expected one"):
        grappa.pyg.NeighborLoader(shop, [3], "item", embeddings=[users, users])
    for wrong in ([torch.nn.Embedding(3, 3)], torch.zeros(3)):
        with pytest.raises(TypeError, match=r"embeddings has a (Embedding|Tensor), expected grappa.Embedding"):
            grappa.pyg.NeighborLoader(shop, [3], "item", embeddings=wrong)
        with pytest.raises(TypeError, match=r"expected grappa.Embedding; give the parameters of a model to an optimizer of torch.optim"):
            grappa.SparseAdam(wrong)
    with pytest.raises(ValueError, match="embeddings has 2 items, expected at least one, and each once"):
        grappa.SparseAdam([users, users])
    with pytest.raises(ValueError, match=r"lr=-1, .*expected lr from 0"):
        grappa.SparseAdam(users, lr=-1)
    for nodes in ([3, 120], [-1]):
        with pytest.raises(IndexError, match=rf"nodes has {nodes[-1]}, expected numbers from 0 to 119 of nodes of type 'user'"):
            users(nodes)
    with pytest.raises(RuntimeError, match=r"step: expected gradients of the rows of 'user', found none .*loss.backward\(\) first"):
        grappa.SparseAdam(users).step()
    with pytest.raises(ValueError, match="save: these rows are in memory"):
        users.save()
    with pytest.raises(ValueError, match='first_hop=\'mean\' and embeddings: .*give first_hop="sampled"'):
        grappa.NeighborLoader(store, [3], embeddings=grappa.Embedding(store, None, 3), first_hop="mean")
    with pytest.raises(ValueError, match="has no features; ingest with features=..., or give embeddings="):
        grappa.inference(plain, torch.nn.Linear(1, 1), layers=[None])


def test_several_processes_are_refused(shop, monkeypatch):
    users = grappa.Embedding(shop, "user", DIM)
    with pytest.raises(RuntimeError, match="embeddings: expected one process, found 2, whose rows would differ"):
        grappa.pyg.NeighborLoader(shop, [3], "item", embeddings=users, distributed=True, rank=0, world_size=2)
    loader = grappa.pyg.NeighborLoader(shop, [3], "item", embeddings=users, partitions=2, rank=0, world_size=1)
    assert torch.equal(batch_rows(loader), users.rows[next(iter(loader))["user"].n_id])
    with pytest.raises(TypeError, match="a loader with embeddings cannot be pickled"):
        pickle.dumps(loader)
    optimizer = grappa.SparseAdam(users)
    monkeypatch.setattr(ranks, "current", lambda: (1, 4))
    with pytest.raises(RuntimeError, match="SparseAdam.step: expected one process, found 4"):
        optimizer.step()


def batch_rows(loader):
    loader.set_epoch(0)
    rows = next(iter(loader))["user"].x
    loader.set_epoch(0)
    return rows
