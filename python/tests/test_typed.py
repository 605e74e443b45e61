"""Graphs with types: what is read is what was ingested, and batches are those of PyTorch Geometric."""

import pickle

import numpy as np
import pytest

import grappa

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.nn import GATConv, GCNConv, HeteroConv, SAGEConv, to_hetero  # noqa: E402
from torch_geometric.transforms import ToUndirected  # noqa: E402

import grappa.pyg  # noqa: E402

SIZES = {"author": 300, "paper": 400, "venue": 12}
PAIRS = {("author", "writes", "paper"): 1500, ("paper", "cites", "paper"): 2000, ("paper", "in", "venue"): 400}


@pytest.fixture(scope="module")
def data():
    """Authors, papers and venues. Venues have no features."""
    random = torch.Generator().manual_seed(3)
    data = HeteroData()
    for name, nodes in SIZES.items():
        data[name].num_nodes = nodes
    data["author"].x = torch.randn(300, 5, generator=random)
    data["paper"].x = torch.randn(400, 9, generator=random)
    data["paper"].y = torch.randint(0, 4, (400,), generator=random)
    part = torch.randint(0, 3, (400,), generator=random)
    for number, name in enumerate(["train_mask", "val_mask", "test_mask"]):
        data["paper"][name] = part == number
    for edge_type, edges in PAIRS.items():
        ends = [torch.randint(0, SIZES[end], (edges,), generator=random) for end in (edge_type[0], edge_type[2])]
        data[edge_type].edge_index = torch.unique(torch.stack(ends), dim=1)
    return ToUndirected()(data)


@pytest.fixture(scope="module")
def graph(data, tmp_path_factory):
    return grappa.ingest(data, out=tmp_path_factory.mktemp("typed") / "graph.grappa")


def edges_of(batch, edge_type):
    """The edges of a batch, as pairs of numbers in the graph."""
    row, col = batch[edge_type].edge_index
    sources, destinations = batch[edge_type[0]].n_id[row], batch[edge_type[2]].n_id[col]
    return sorted(zip(sources.tolist(), destinations.tolist(), strict=True))


def test_what_is_read_is_what_was_ingested(data, graph):
    assert graph.metadata() == data.metadata()
    assert graph.num_nodes == data.num_nodes and graph.num_edges == data.num_edges
    assert grappa.Graph(graph.path).edge_types == graph.edge_types
    for name in ("author", "paper"):
        assert np.array_equal(graph[name].features[:], data[name].x.numpy())
    papers = graph["paper"]
    assert np.array_equal(papers.labels[:], data["paper"].y.numpy())
    for split in ("train", "val", "test"):
        assert papers.split(split).tolist() == data["paper"][f"{split}_mask"].nonzero().flatten().tolist()
    assert graph["venue"].num_features == 0 and graph["venue"].num_nodes == 12
    for edge_type in data.edge_types:
        assert graph[edge_type].num_edges == data[edge_type].num_edges


def all_neighbors(data, name, seeds, hops):
    """Nodes of each type, edges of each relation, and the numbers of both by hop, as PyTorch Geometric samples all in-neighbors."""
    nodes = {other: [] for other in data.node_types}
    nodes[name] = list(seeds)
    edges = {edge_type: [] for edge_type in data.edge_types}
    added = {other: list(found) for other, found in nodes.items()}
    num_nodes = {other: [len(found)] for other, found in nodes.items()}
    num_edges = {edge_type: [] for edge_type in data.edge_types}
    for _ in range(hops):
        before = {other: set(found) for other, found in nodes.items()}
        for edge_type in data.edge_types:
            source, _, destination = edge_type
            row, col = data[edge_type].edge_index
            into = torch.isin(col, torch.tensor(added[destination], dtype=torch.int64))
            drawn = list(zip(row[into].tolist(), col[into].tolist(), strict=True))
            edges[edge_type] += drawn
            num_edges[edge_type].append(len(drawn))
            nodes[source] += sorted({end for end, _ in drawn} - set(nodes[source]))
        added = {other: [node for node in found if node not in before[other]] for other, found in nodes.items()}
        for other, found in added.items():
            num_nodes[other].append(len(found))
    return nodes, edges, num_nodes, num_edges


@pytest.mark.parametrize("memory", ["64MiB", None])
def test_batches_with_all_neighbors_are_those_of_pytorch_geometric(data, graph, memory):
    mask = data["paper"].train_mask
    numbers = mask.nonzero().flatten()
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1], ("paper", mask), batch_size=16, memory=memory)
    assert len(loader) == -(-len(numbers) // 16)
    for batch, seeds in zip(loader, numbers.split(16), strict=True):
        nodes, edges, num_nodes, num_edges = all_neighbors(data, "paper", seeds.tolist(), 2)
        assert batch.metadata() == data.metadata()
        assert batch["paper"].batch_size == len(seeds)
        assert torch.equal(batch["paper"].n_id[: len(seeds)], seeds)
        assert torch.equal(batch["paper"].input_id, seeds)
        for name in data.node_types:
            found = batch[name]
            assert sorted(found.n_id.tolist()) == sorted(nodes[name])
            assert found.num_sampled_nodes == num_nodes[name]
            assert found.num_nodes == len(nodes[name])
            if "x" in data[name]:
                assert torch.equal(found.x, data[name].x[found.n_id])
            if "y" in data[name]:
                assert torch.equal(found.y, data[name].y[found.n_id])
        for edge_type in data.edge_types:
            assert edges_of(batch, edge_type) == sorted(edges[edge_type])
            assert batch[edge_type].num_sampled_edges == num_edges[edge_type]


def test_fanouts_are_those_of_each_relation(data, graph):
    fanouts = {edge_type: [2, 3] for edge_type in data.edge_types}
    fanouts["paper", "cites", "paper"] = [0, 1]
    loader = grappa.pyg.NeighborLoader(graph, fanouts, "paper", batch_size=50, shuffle=True)
    all_edges = {edge_type: set(zip(*data[edge_type].edge_index.tolist(), strict=True)) for edge_type in data.edge_types}
    degrees = {edge_type: torch.bincount(data[edge_type].edge_index[1], minlength=SIZES[edge_type[2]]) for edge_type in data.edge_types}
    seen = []
    for batch in loader:
        seeds = batch["paper"].n_id[: batch["paper"].batch_size]
        seen += seeds.tolist()
        for edge_type in data.edge_types:
            assert set(edges_of(batch, edge_type)) <= all_edges[edge_type]
        assert batch["paper", "cites", "paper"].num_sampled_edges[0] == 0
        of_hop = batch["author", "writes", "paper"].num_sampled_edges[0]
        assert of_hop == degrees["author", "writes", "paper"][seeds].clamp(max=2).sum()
    assert sorted(seen) == list(range(400))


def test_seeds_have_several_types(data, graph):
    loader = grappa.pyg.NeighborLoader(graph, [3], ["author", ("paper", "train")], batch_size=40, shuffle=True, seed=4)
    seen = {"author": [], "paper": []}
    for batch in loader:
        for name, of_type in seen.items():
            size = batch[name].get("batch_size", 0)
            of_type += batch[name].n_id[:size].tolist()
            if size and name == "author":
                assert torch.equal(batch[name].input_id, batch[name].n_id[:size])
    assert sorted(seen["author"]) == list(range(300))
    assert sorted(seen["paper"]) == data["paper"].train_mask.nonzero().flatten().tolist()


def test_a_batch_does_not_depend_on_threads_or_memory(graph):
    def run(**options):
        loader = grappa.pyg.NeighborLoader(graph, [4, 4], ("paper", "train"), batch_size=20, shuffle=True, seed=9, **options)
        loader.set_epoch(2)
        return [[batch[edge_type].edge_index.tolist() for edge_type in graph.edge_types] for batch in loader]

    assert run(threads=1) == run(threads=3, memory="48MiB")


def test_a_relation_that_a_batch_lacks_is_empty(data, graph):
    loader = grappa.pyg.NeighborLoader(graph, [2], ("venue", [3]), batch_size=1)
    batch = next(iter(loader))
    assert batch.metadata() == data.metadata()
    assert batch["author", "writes", "paper"].edge_index.shape == (2, 0)
    assert batch["author", "writes", "paper"].edge_index.dtype == torch.int64
    assert batch["author"].x.shape == (0, 5) and batch["author"].num_sampled_nodes == [0, 0]
    assert batch["author", "writes", "paper"].num_sampled_edges == [0]


def test_blocks_are_bipartite(graph):
    loader = grappa.pyg.NeighborLoader(graph, [3, 2], ("paper", "train"), batch_size=30, layout="blocks")
    batch = next(iter(loader))
    blocks = batch["author", "writes", "paper"].blocks
    assert len(blocks) == 2
    assert blocks[1].size[1] == batch["paper"].batch_size
    assert blocks[0].size[0] == batch["author"].num_nodes
    for block in blocks:
        assert block.edge_index.shape[1] == 0 or (block.edge_index[0].max() < block.size[0] and block.edge_index[1].max() < block.size[1])


class Sage(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = SAGEConv((-1, -1), 16), SAGEConv((-1, -1), 4)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def test_models_train_on_batches(data, graph):
    torch.manual_seed(1)
    venues = torch.nn.Embedding(12, 6)
    model = to_hetero(Sage(), graph.metadata())
    loader = grappa.pyg.NeighborLoader(graph, [8, 4], ("paper", "train"), batch_size=64, shuffle=True)

    def run(batch):
        x = {**batch.x_dict, "venue": venues(batch["venue"].n_id)}
        size = batch["paper"].batch_size
        out = model(x, batch.edge_index_dict)["paper"][:size]
        return torch.nn.functional.cross_entropy(out, batch["paper"].y[:size])

    run(next(iter(loader)))
    optimizer = torch.optim.Adam([*model.parameters(), *venues.parameters()], lr=0.01)
    losses = []
    for _ in range(12):
        total = 0.0
        for batch in loader:
            optimizer.zero_grad()
            loss = run(batch)
            loss.backward()
            optimizer.step()
            total += float(loss)
        losses.append(total)
    assert losses[-1] < losses[0]


def test_hetero_conv_runs_where_relations_are_empty(graph):
    conv = HeteroConv({edge_type: SAGEConv((-1, -1), 4) for edge_type in graph.edge_types})
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [2], ("paper", [0]), batch_size=1)))
    x = {name: batch[name].get("x", torch.zeros(batch[name].num_nodes, 3)) for name in graph.node_types}
    assert conv(x, batch.edge_index_dict)["paper"].shape == (batch["paper"].num_nodes, 4)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"input_nodes": None}, TypeError, "name the type of the seeds"),
        ({"input_nodes": "writer"}, KeyError, "no node type 'writer'"),
        ({"input_nodes": ("paper", [400])}, IndexError, "there is no node 400"),
        ({"input_nodes": ("author", "train")}, KeyError, "train"),
        ({"num_neighbors": {("author", "writes", "paper"): [2]}}, ValueError, "has no fanouts for"),
        ({"num_neighbors": {("author", "reads", "paper"): [2]}}, ValueError, "the graph has no such relation"),
        ({"subgraph_type": "induced"}, ValueError, "sampled edges only"),
        ({"weight_attr": "edge_weight"}, ValueError, "has no edge weights"),
        ({"input_time": torch.zeros(3)}, ValueError, "no timestamps"),
    ],
)
def test_impossible_arguments_are_named(graph, arguments, kind, message):
    options = {"num_neighbors": [2], "input_nodes": "paper", **arguments}
    with pytest.raises(kind, match=message):
        grappa.pyg.NeighborLoader(graph, **options)


def test_relations_of_different_hops_are_named(graph):
    fanouts = {edge_type: [2, 2] for edge_type in graph.edge_types}
    fanouts["paper", "cites", "paper"] = [2]
    with pytest.raises(ValueError, match="give each relation as many, with 0 where none are drawn"):
        grappa.pyg.NeighborLoader(graph, fanouts, "paper")


def test_a_loader_can_be_pickled(graph):
    loader = grappa.pyg.NeighborLoader(graph.path, [2], ("paper", "train"), batch_size=8, seed=5)
    again = pickle.loads(pickle.dumps(loader))
    assert [batch["paper"].n_id.tolist() for batch in again] == [batch["paper"].n_id.tolist() for batch in loader]
    assert pickle.loads(pickle.dumps(graph)).node_types == graph.node_types


def test_a_store_is_a_graph_of_one_type(cora):
    graph = grappa.Graph(cora)
    assert graph.node_types == ["node"] and graph.edge_types == [("node", "to", "node")]
    assert graph["node"].num_features == 1433


def test_commands_for_stores_say_that_a_graph_has_types(graph):
    with pytest.raises(grappa.Error, match="3 node types and 5 relations"):
        grappa.Store(graph.path)
    with pytest.raises(grappa.Error, match=r"open it with grappa\.Graph"):
        grappa.open(graph.path)


@pytest.mark.parametrize("partitions", [2, 3])
def test_partitions_divide_the_seeds(data, graph, partitions):
    seen = []
    for rank in range(partitions):
        loader = grappa.pyg.NeighborLoader(
            graph, [3, 3], ("paper", "train"), batch_size=16, partitions=partitions, rank=rank, world_size=partitions
        )
        seen += [node for batch in loader for node in batch["paper"].n_id[: batch["paper"].batch_size].tolist()]
    assert sorted(set(seen)) == data["paper"].train_mask.nonzero().flatten().tolist()


def test_a_generated_graph_has_the_types_that_were_asked_for(tmp_path):
    sizes, bought = {"user": 200, "item": 90}, ("user", "buys", "item")
    options = {"nodes": sizes, "edges": {bought: 1500}, "feature_dim": {"item": 6}, "classes": {"item": 3}, "degrees": {"buys": "even"}}
    graph = grappa.generate("typed", out=tmp_path / "shop.grappa", reverse=True, **options)
    assert graph.edge_types == [bought, ("item", "rev_buys", "user")]
    assert graph.ingested["node_types"] == [{"name": name, "nodes": nodes} for name, nodes in sizes.items()]
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("item", "train"), batch_size=1000)))
    items = batch["item"].batch_size
    assert batch["item"].x.shape[1] == 6 and set(batch["item"].y[:items].tolist()) == {0, 1, 2}
    assert torch.bincount(batch[bought].edge_index[1], minlength=items)[:items].max() == 17
    with pytest.raises(ValueError, match="there is no node type thing"):
        grappa.generate("typed", out=tmp_path / "other.grappa", nodes=sizes, edges={("user", "buys", "thing"): 5})


def test_a_folder_of_tables_is_a_graph(tmp_path):
    tables = tmp_path / "shop"
    tables.mkdir()
    (tables / "users.csv").write_text("id,age\nann,30\nbob,40\n")
    (tables / "orders.csv").write_text("id,user,price\n1,ann,9.5\n2,bob,3\n3,,4\n")
    graph = grappa.ingest(
        tables=tables, key=["users.id", "orders.id"], foreign_key="orders.user=users", out=tmp_path / "shop.grappa"
    )
    assert graph.edge_types == [("orders", "user", "users"), ("users", "rev_user", "orders")]
    assert graph["users", "rev_user", "orders"].reverse_of == ("orders", "user", "users")
    assert graph["orders", "user", "users"].num_edges == 2
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], "users", batch_size=2)))
    orders = batch["orders"]
    assert sorted(graph["orders"].ids(orders.n_id)) == [1, 2]
    assert sorted(orders.x[:, 0].tolist()) == [3.0, 9.5]


def test_a_hetero_data_that_is_no_graph_is_named(data, tmp_path):
    with pytest.raises(ValueError, match="undirected: a HeteroData is ingested with"):
        grappa.ingest(data, undirected=True, out=tmp_path / "g.grappa")
    wrong = HeteroData()
    wrong["a"].num_nodes, wrong["b"].num_nodes = 2, 3
    with pytest.raises(ValueError, match="has no relations"):
        grappa.ingest(wrong, out=tmp_path / "g.grappa")
    wrong["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 3]])
    with pytest.raises(grappa.Error, match="3"):
        grappa.ingest(wrong, out=tmp_path / "g.grappa")
    assert not (tmp_path / "g.grappa").exists()


def relation_pairs(batch, edge_type):
    """The positives of a batch, as pairs of numbers in the graph."""
    row, col = batch[edge_type].edge_label_index
    sources, destinations = batch[edge_type[0]].n_id[row], batch[edge_type[2]].n_id[col]
    return list(zip(sources.tolist(), destinations.tolist(), strict=True))


@pytest.mark.parametrize("edge_type", [("author", "writes", "paper"), ("paper", "rev_writes", "author"), ("paper", "cites", "paper")])
def test_links_of_a_relation_leave_the_messages_and_negatives_are_no_edges(data, graph, edge_type):
    """The leaks of pytorch_geometric#7281 and #9425: messages by the relation or its reverse show the target."""
    # Citations have both directions.
    turned = (other for other in graph.edge_types if graph[other].reverse_of == edge_type)
    reverse = graph[edge_type].reverse_of or next(turned, edge_type)
    everything = set(zip(*data[edge_type].edge_index.tolist(), strict=True))
    loader = grappa.pyg.LinkNeighborLoader(graph, [-1, -1], edge_type, neg_sampling="binary", batch_size=64, shuffle=True)
    seen = []
    for batch in loader:
        assert isinstance(batch, HeteroData)
        pairs = relation_pairs(batch, edge_type)
        labels = batch[edge_type].edge_label
        positives = [pair for pair, label in zip(pairs, labels.tolist(), strict=True) if label == 1]
        negatives = [pair for pair, label in zip(pairs, labels.tolist(), strict=True) if label == 0]
        assert len(negatives) == len(positives) == len(batch[edge_type].input_id)
        assert not set(negatives) & everything
        assert not set(edges_of(batch, edge_type)) & set(positives)
        assert not set(edges_of(batch, reverse)) & {(target, source) for source, target in positives}
        numbered = data[edge_type].edge_index
        seen += positives
    assert sorted(seen) == sorted(everything)
    assert numbered.shape[1] == len(seen)


def test_links_are_those_of_pytorch_geometric(data, graph):
    """The forms of edge_label_index, and where batches have their pairs."""
    edge_type = ("author", "writes", "paper")
    pairs = data[edge_type].edge_index[:, :30]
    loader = grappa.pyg.LinkNeighborLoader(graph, [3], (edge_type, pairs), batch_size=8)
    at = 0
    for batch in loader:
        count = len(batch[edge_type].input_id)
        assert relation_pairs(batch, edge_type) == list(zip(*pairs[:, at : at + count].tolist(), strict=True))
        assert "edge_label" not in batch[edge_type]
        at += count
    assert at == 30
    triplets = grappa.pyg.LinkNeighborLoader(
        graph, [3], "author:writes:paper", neg_sampling={"mode": "triplet", "amount": 2}, batch_size=16
    )
    batch = next(iter(triplets))
    assert batch["author"].src_index.shape == (16,)
    assert batch["paper"].dst_pos_index.shape == (16,) and batch["paper"].dst_neg_index.shape == (16, 2)
    again = pickle.loads(pickle.dumps(triplets))
    again.set_epoch(0)
    assert torch.equal(next(iter(again))["paper"].n_id, batch["paper"].n_id)
    labels = torch.arange(30)
    labelled = grappa.pyg.LinkNeighborLoader(graph, [3], (edge_type, pairs), labels, batch_size=8)
    assert torch.cat([batch[edge_type].edge_label for batch in labelled]).tolist() == list(range(30))


def test_a_model_learns_links_of_a_relation(graph):
    edge_type = ("author", "writes", "paper")
    model = HeteroConv({other: SAGEConv((-1, -1), 16) for other in graph.edge_types}, aggr="sum")
    loader = grappa.pyg.LinkNeighborLoader(graph, [4], edge_type, neg_sampling="binary", batch_size=512, shuffle=True)
    embedding = torch.nn.Embedding(SIZES["venue"], 4)

    def loss_of(batch):
        features = {**{name: batch[name].x for name in ("author", "paper")}, "venue": embedding(batch["venue"].n_id)}
        states = model(features, batch.edge_index_dict)
        row, col = batch[edge_type].edge_label_index
        scores = (states["author"][row] * states["paper"][col]).sum(dim=1)
        return torch.nn.functional.binary_cross_entropy_with_logits(scores, batch[edge_type].edge_label)

    first = next(iter(loader))
    loss_of(first)
    optimizer = torch.optim.Adam([*model.parameters(), *embedding.parameters()], lr=0.01)
    before = float(loss_of(first).detach())
    for _ in range(8):
        for batch in loader:
            optimizer.zero_grad()
            loss_of(batch).backward()
            optimizer.step()
    assert float(loss_of(first).detach()) < before


@pytest.mark.parametrize(
    "positives, kind, message",
    [
        (None, TypeError, "name the relation of the positives"),
        (("author", "reads", "paper"), KeyError, "no relation"),
        ((("author", "reads", "paper"), [[0], [0]]), KeyError, "no relation"),
        (("author", "paper"), KeyError, "no relation"),
        ((("author", "writes", "paper"), [[300], [0]]), IndexError, "300"),
        ((("author", "writes", "paper"), "val"), grappa.Error, "val"),
    ],
)
def test_impossible_positives_are_named(graph, positives, kind, message):
    with pytest.raises(kind, match=message):
        grappa.pyg.LinkNeighborLoader(graph, [2], positives, batch_size=4)


def test_disjoint_seeds_have_neighborhoods_of_their_own(data, graph):
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1], ("paper", "val"), batch_size=6, disjoint=True)
    seen = 0
    for batch in loader:
        seeds = batch["paper"].n_id[: batch["paper"].batch_size].tolist()
        for number, seed in enumerate(seeds):
            nodes, edges, _, _ = all_neighbors(data, "paper", [seed], 2)
            for name in data.node_types:
                own = batch[name].batch == number
                assert sorted(batch[name].n_id[own].tolist()) == sorted(nodes[name])
            for edge_type in data.edge_types:
                row, col = batch[edge_type].edge_index
                own = batch[edge_type[2]].batch[col] == number
                assert torch.equal(own, batch[edge_type[0]].batch[row] == number)
                ends = batch[edge_type[0]].n_id[row[own]], batch[edge_type[2]].n_id[col[own]]
                assert sorted(zip(*(end.tolist() for end in ends), strict=True)) == sorted(edges[edge_type])
        assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])
        seen += len(seeds)
    assert seen == int(data["paper"].val_mask.sum())


def test_held_out_edges_leave_a_relation_and_its_reverse(data, tmp_path):
    edge_type, reverse = ("author", "writes", "paper"), ("paper", "rev_writes", "author")
    graph = grappa.ingest(data, edge_split={edge_type: "80/10/10"}, out=tmp_path / "held.grappa")
    assert graph[reverse].reverse_of == edge_type
    parts = {part: {tuple(edge) for edge in graph.edge_split(edge_type, part).T.tolist()} for part in ("train", "val", "test")}
    everything = set(zip(*data[edge_type].edge_index.tolist(), strict=True))
    assert sum(map(len, parts.values())) == len(everything) and set().union(*parts.values()) == everything
    assert parts["val"] and parts["test"]
    for part, edges in parts.items():
        turned = {tuple(edge) for edge in graph.edge_split(reverse, part).T.tolist()}
        assert turned == {(target, source) for source, target in edges}
        loader = grappa.pyg.LinkNeighborLoader(graph, [-1, -1], (edge_type, part), neg_sampling="triplet", batch_size=64)
        seen = []
        for batch in loader:
            sources, destinations = batch["author"].n_id, batch["paper"].n_id
            seen += zip(sources[batch["author"].src_index].tolist(), destinations[batch["paper"].dst_pos_index].tolist(), strict=True)
            negatives = zip(
                sources[batch["author"].src_index].tolist(), destinations[batch["paper"].dst_neg_index].tolist(), strict=True
            )
            # Training may not know the edges that are held out.
            assert not set(negatives) & (parts["train"] if part == "train" else everything)
            messages = set(edges_of(batch, edge_type)) | {(target, source) for source, target in edges_of(batch, reverse)}
            assert messages <= parts["train"]
        assert sorted(seen) == sorted(edges)
    with pytest.raises(KeyError, match="no such relation"):
        grappa.ingest(data, edge_split={("author", "reads", "paper"): "80/10/10"}, out=tmp_path / "x.grappa")
    with pytest.raises(TypeError, match="name the relations that hold edges out"):
        grappa.ingest(data, edge_split="80/10/10", out=tmp_path / "x.grappa")


class Relational(torch.nn.Module):
    """Two layers of convolutions per relation, and rows of their own for venues, which have no features."""

    def __init__(self, edge_types):
        super().__init__()
        torch.manual_seed(1)
        self.embedding = torch.nn.Embedding(SIZES["venue"], 6)
        self.hidden = HeteroConv({edge_type: SAGEConv((-1, -1), 8) for edge_type in edge_types}, aggr="sum")
        self.out = HeteroConv({edge_type: GATConv((-1, -1), 5, add_self_loops=False) for edge_type in edge_types}, aggr="mean")

    def inputs(self, x, n_id):
        return {**x, "venue": self.embedding(n_id["venue"])}

    def forward(self, x, edge_index):
        x = self.inputs(x, {"venue": torch.arange(SIZES["venue"])})
        x = {name: rows.relu() for name, rows in self.hidden(x, edge_index).items()}
        return self.out(x, edge_index)


@pytest.mark.parametrize("memory", [None, "4MiB"])
def test_inference_is_exact_layer_by_layer(data, graph, tmp_path, monkeypatch, memory):
    model = Relational(graph.edge_types)
    x = {name: data[name].x for name in ("author", "paper")}
    with torch.no_grad():
        expected = model.eval()(x, data.edge_index_dict)

    def hidden(x, batch):
        rows = grappa.pyg.convolve_types(model.hidden, model.inputs(x, batch.n_id_dict), batch)
        return {name: of_type.relu() for name, of_type in rows.items()}

    if memory is not None:
        # States are read for a few batches together.
        monkeypatch.setattr("grappa.layerwise.SHARE", 1 << 12)
    for name in data.node_types:
        rows = grappa.inference(graph, model, [hidden, model.out], nodes=name, batch_size=37, memory=memory)
        assert np.allclose(rows, expected[name].numpy(), atol=1e-5)
    validation = data["paper"].val_mask.nonzero().flatten().flip(0)
    rows = grappa.inference(graph.path, model, [hidden, model.out], nodes=("paper", validation), out=tmp_path / "rows.npy")
    assert np.allclose(rows, expected["paper"][validation].numpy(), atol=1e-5)
    assert np.array_equal(np.load(tmp_path / "rows.npy"), rows)
    # A function of the whole batch, without convolve_types.
    whole = [lambda x, batch: model.hidden(model.inputs(x, batch.n_id_dict), batch.edge_index_dict)[batch.node_type][: batch.batch_size]]
    with torch.no_grad():
        first = model.hidden(model.inputs(x, {"venue": torch.arange(12)}), data.edge_index_dict)
    assert np.allclose(grappa.inference(graph, model, whole, nodes="paper"), first["paper"].numpy(), atol=1e-5)


def test_impossible_inference_is_named(graph):
    model = Relational(graph.edge_types)
    for nodes, kind, message in [(None, TypeError, "name the type of the outputs"), ("writer", KeyError, "no node type")]:
        with pytest.raises(kind, match=message):
            grappa.inference(graph, model, [model.hidden], nodes=nodes)
    with pytest.raises(ValueError, match="layers is missing"):
        grappa.inference(graph, model, nodes="paper")
    normalized = HeteroConv({("paper", "cites", "paper"): GCNConv(9, 4)})
    with pytest.raises(ValueError, match="GCNConv, which divides by degrees"):
        grappa.inference(graph, normalized, [normalized], nodes="paper")
    with pytest.raises(ValueError, match="no rows of the type 'author'"):
        grappa.inference(graph, model, [HeteroConv({("paper", "cites", "paper"): SAGEConv(9, 4)})], nodes="author")


@pytest.mark.parametrize("memory", [None, "64MiB"])
@pytest.mark.parametrize("layout", ["hops", "blocks"])
def test_edges_bring_their_features_and_weights(tmp_path, memory, layout):
    """Features say which edge they are of, so that none can be at another edge."""
    random = torch.Generator().manual_seed(5)
    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 200, 90
    rated, follows = ("user", "rates", "item"), ("user", "follows", "user")
    for edge_type, count in [(rated, 1200), (follows, 700), (("item", "like", "item"), 200)]:
        ends = [torch.randint(0, data[end].num_nodes, (count,), generator=random) for end in (edge_type[0], edge_type[2])]
        data[edge_type].edge_index = torch.unique(torch.stack(ends), dim=1)
    row, col = data[rated].edge_index
    data[rated].edge_attr = torch.stack([row, col, row * col], dim=1).float()
    row, col = data[follows].edge_index
    data[follows].edge_attr = (1000 * row + col).float().unsqueeze(1)
    data[follows].edge_weight = (1 + row + 2 * col).float()
    data = ToUndirected()(data)
    graph = grappa.ingest(data, out=tmp_path / "rated.grappa")
    loader = grappa.pyg.NeighborLoader(graph, [5, 3], "item", batch_size=30, layout=layout, memory=memory)
    seen = 0
    for batch in loader:
        for edge_type, dim in {rated: 3, follows: 1, ("item", "rev_rates", "user"): 3}.items():
            parts = batch[edge_type].blocks if layout == "blocks" else [batch[edge_type]]
            for part in parts:
                row, col = part.edge_index
                sources, destinations = batch[edge_type[0]].n_id[row], batch[edge_type[2]].n_id[col]
                assert part.edge_attr.shape == (len(row), dim) and part.edge_attr.dtype == torch.float32
                if edge_type == rated:
                    expected = torch.stack([sources, destinations, sources * destinations], dim=1)
                elif edge_type == follows:
                    # ToUndirected adds up the features of edges that are there in both directions.
                    continue
                else:
                    expected = torch.stack([destinations, sources, sources * destinations], dim=1)
                assert torch.equal(part.edge_attr, expected.float())
                seen += len(row)
        assert "edge_attr" not in batch["item", "like", "item"]
    assert seen > 0
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [5], "item", batch_size=30, edge_features=False)))
    assert "edge_attr" not in batch[rated]


@pytest.mark.parametrize("layout", ["hops", "blocks", "induced"])
def test_triples_of_many_relations_have_types_of_edges(tmp_path, layout):
    triples = sorted({(f"e{k % 17}", f"r{k * 7 % 90:02}", f"e{k * k % 23}") for k in range(900)})
    (tmp_path / "kb.tsv").write_text("".join("\t".join(triple) + "\n" for triple in triples))
    store = grappa.ingest(triples=[str(tmp_path / "kb.tsv")], out=tmp_path / "kb.grappa")
    assert store.relation_names == sorted({relation for _, relation, _ in triples})
    seen = set()
    for batch in grappa.NeighborLoader(store, [-1], 5, None, layout=layout):
        for part in batch.blocks if layout == "blocks" else [batch]:
            ends = store.ids(batch.n_id)
            relations = np.array(store.relation_names)[part.edge_type]
            edges = zip(ends[part.edge_index[0]], relations, ends[part.edge_index[1]], strict=True)
            seen |= {tuple(map(str, edge)) for edge in edges}
    assert seen <= set(triples) and (layout == "induced" or seen == set(triples))
    assert next(iter(grappa.NeighborLoader(store, [1], edge_features=False, input_nodes=None))).edge_type is None
