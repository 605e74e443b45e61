"""Graphs with types: what is read is what was ingested, and batches are those of PyTorch Geometric."""

import pickle

import numpy as np
import pytest

import grappa

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.nn import HeteroConv, SAGEConv, to_hetero  # noqa: E402
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
        ({"disjoint": True}, ValueError, "disjoint"),
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
