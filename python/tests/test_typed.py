"""Graphs with types: what is read is what was ingested, and batches are those of PyTorch Geometric."""

import pickle
import warnings
from types import SimpleNamespace

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
        ({"input_time": torch.zeros(3)}, ValueError, "have no times; ingest them with time="),
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


def test_halo_nodes_have_neighbors_and_seeds_are_weighted_by_coverage(data, graph):
    options = {"batch_size": 500, "partitions": 3, "repartition_every": 1, "seed": 4}
    edges = {}
    for halo in ("auto", "stop", "none"):
        batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1, -1], ("paper", "train"), halo=halo, correction="node", **options)))
        edges[halo] = sum(batch[edge_type].edge_index.shape[1] for edge_type in batch.edge_types)
        assert len(batch.loss_weight) == batch["paper"].batch_size == int(data["paper"].train_mask.sum())
        assert (batch.loss_weight >= 0).all() and (batch.loss_weight < 1).any()
    assert edges["auto"] > edges["stop"] > edges["none"] > 0
    with pytest.raises(ValueError, match="seeds of one type"):
        grappa.pyg.NeighborLoader(graph, [2], ["paper", "author"], correction="node", **options)


@pytest.mark.parametrize("options", [{}, {"partitions": 3}, {"memory": "4MiB"}])
def test_the_first_hop_of_each_relation_is_computed_once(data, tmp_path, options):
    graph = grappa.ingest(data, out=tmp_path / "graph.grappa")
    with pytest.raises(grappa.Error, match=r"mean of author:writes:paper.*`grappa-store preaggregate"):
        next(iter(grappa.pyg.NeighborLoader(graph, [2], ("paper", "train"), first_hop="mean")))
    assert graph.preaggregate("mean", relation="author:writes:paper")["relations"] == ["author:writes:paper"]
    assert len(graph.preaggregate("mean")["relations"]) == 3
    with pytest.raises(grappa.Error, match="these aggregates exist"):
        graph.preaggregate("mean")
    with pytest.raises(grappa.Error, match="there is no such relation; it has author:writes:paper"):
        graph.preaggregate("mean", relation="reads")
    graph.verify()
    loader = grappa.pyg.NeighborLoader(graph, [2], ("paper", "train"), batch_size=64, first_hop="mean", **options)
    for batch in loader:
        for edge_type in data.edge_types:
            source, _, destination = edge_type
            if source == "venue":
                assert "x_aggregated" not in batch[edge_type]
                continue
            row, col = data[edge_type].edge_index
            count = torch.zeros(data[destination].num_nodes).index_add(0, col, torch.ones(len(col)))
            sums = torch.zeros(len(count), data[source].num_features).index_add(0, col, data[source].x[row])
            means = sums / count.clamp(min=1)[:, None]
            assert torch.allclose(batch[edge_type].x_aggregated, means[batch[destination].n_id], atol=1e-5)
        assert torch.equal(batch["paper"].x, data["paper"].x[batch["paper"].n_id])


def test_one_type_and_one_relation_are_a_graph_too(tmp_path):
    data = HeteroData()
    data["user"].x = torch.arange(8.0).view(4, 2)
    data["user", "follows", "user"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    data["user", "follows", "user"].edge_attr = torch.arange(4.0).view(4, 1)
    graph = grappa.ingest(data, out=tmp_path / "g.grappa")
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("user", None), batch_size=4)))
    source, destination = batch["user"].n_id[batch["user", "follows", "user"].edge_index]
    assert batch["user", "follows", "user"].edge_attr.flatten().tolist() == source.tolist()
    assert destination.tolist() == ((source + 1) % 4).tolist()


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
    assert graph.verify()["problems"] == [] and graph.info()["partitions"] == 1
    assert [part["partition"] for part in graph.repartition(2, schedule="shuffle")["by_partition"]] == [0, 1]
    shown = graph.info(coverage=True)
    assert shown["generation"] == 1 and set(shown["by_partition"][1]["coverage"]) == {"user:buys:item", "item:rev_buys:user"}
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
    with pytest.raises(ValueError, match="key= and keys= say the same"):
        grappa.ingest(tables=tables, key="users.id", **KEYS, out=tmp_path / "other.grappa")


USERS = {"id": ["ann", "bob", "cy"], "age": [30, 40, None], "plan": ["gold", "free", "free"]}
ORDERS = {"id": [5, 2, 3, 9], "user": ["ann", "bob", None, "ann"], "price": [9.5, 3.0, 4.0, 1.0], "paid": [True, False, True, True]}
KEYS = {"keys": {"users": "id", "orders": "id"}, "foreign_keys": {"orders.user": "users"}}


def tables_of(library):
    """Users and orders as tables of a library."""
    if library == "arrays":
        users = {"id": np.array(USERS["id"]), "age": np.array([30, 40, np.nan]), "plan": np.array(USERS["plan"], object)}
        orders = {name: torch.tensor(values) if name == "price" else values for name, values in ORDERS.items()}
        return {"users": users, "orders": {**orders, "user": np.array(ORDERS["user"], object)}}
    pandas = pytest.importorskip("pandas")
    users, orders = pandas.DataFrame(USERS), pandas.DataFrame(ORDERS)
    if library == "pandas, filtered":
        users = pandas.concat([users[1:], users[:1]])
    elif library == "pandas, with an index":
        users, orders = users.astype({"plan": "category", "id": "category"}).set_index("id"), orders.set_index("id")
    elif library == "relbench":
        return relbench_of({"users": (users, "id", {}), "orders": (orders, "id", {"user": "users"})})
    elif library.startswith("polars"):
        polars = pytest.importorskip("polars")
        users = polars.from_pandas(users).with_columns(polars.col("plan").cast(polars.Categorical))
        orders = polars.from_pandas(orders)
        return {"users": users, "orders": orders.lazy() if library == "polars, lazy" else orders}
    elif library == "arrow":
        arrow = pytest.importorskip("pyarrow")
        return {"users": arrow.Table.from_pandas(users).to_reader(), "orders": arrow.Table.from_pandas(orders)}
    return {"users": users, "orders": orders}


def relbench_of(tables):
    """Tables as in a `relbench.base.Database`."""
    of = SimpleNamespace
    return of(table_dict={
        name: of(df=df, pkey_col=key, fkey_col_to_pkey_table=foreign, time_col=None) for name, (df, key, foreign) in tables.items()
    })  # fmt: skip


@pytest.mark.parametrize(
    "library",
    ["pandas", "pandas, filtered", "pandas, with an index", "polars", "polars, lazy", "arrow", "arrays", "relbench"],
)
def test_tables_in_memory_are_a_graph_as_a_folder_of_them_is(library, tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "users.csv").write_text("id,age,plan\nann,30,gold\nbob,40,free\ncy,,free\n")
    (folder / "orders.csv").write_text("id,user,price,paid\n5,ann,9.5,yes\n2,bob,3,no\n3,,4,yes\n9,ann,1,yes\n")
    expected = grappa.ingest(tables=folder, out=tmp_path / "folder.grappa", **KEYS)
    keys = {} if library == "relbench" else KEYS
    graph = grappa.ingest(tables=tables_of(library), out=tmp_path / "memory.grappa", **keys)
    assert graph.edge_types == expected.edge_types == [("orders", "user", "users"), ("users", "rev_user", "orders")]
    for name in ("users", "orders"):
        assert list(graph[name].ids(slice(None))) == list(expected[name].ids(slice(None)))
        assert graph[name].feature_names == expected[name].feature_names
        assert np.array_equal(graph[name].features[:], expected[name].features[:])
    assert graph["users"].feature_names == ["age", "plan=free", "plan=gold", "plan=other"]
    assert np.array_equal(graph.edge_split(("orders", "user", "users"), "train"), expected.edge_split(("orders", "user", "users"), "train"))
    seeds = graph["users"].nodes(["ann"])
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("users", seeds), batch_size=2)))
    assert sorted(graph["orders"].ids(batch["orders"].n_id)) == [5, 9]
    assert sorted(batch["orders"].x[:, 0].tolist()) == [1.0, 9.5]
    assert "3 rows" not in str(graph.ingested) and "orders:user:users: 1 rows were no edges" in str(graph.ingested)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.grappa", "memory.grappa", "shop"]


def test_a_link_table_in_memory_is_a_relation_and_foreign_keys_may_be_floats(tmp_path):
    likes = {"by": [10, 20, 30, 10], "of": np.array([0.0, np.nan, 1.0, 1.0]), "stars": [1, 2, 3, 4]}
    tables = {"users": {"id": [30, 20, 10], "age": [1, 2, 3]}, "films": {"year": [1999, 2004]}, "likes": likes}
    graph = grappa.ingest(
        tables=tables,
        keys={"users": "id"},
        foreign_keys={"likes.by": "users", "likes.of": "films"},
        link_tables=["likes"],
        label="films=year",
        label_type="films=float",
        out=tmp_path / "films.grappa",
    )
    assert graph.edge_types == [("users", "likes", "films"), ("films", "rev_likes", "users")]
    assert graph["users", "likes", "films"].num_edges == 3 and graph["users", "likes", "films"].num_edge_features == 1
    assert graph["users"].ids(slice(None)).tolist() == [10, 20, 30]
    assert graph["users"].features[:].ravel().tolist() == [3, 2, 1]
    assert graph["films"].labels[:].ravel().tolist() == [1999, 2004]
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("films", [1]), batch_size=1)))
    assert sorted(graph["users"].ids(batch["users"].n_id)) == [10, 30]
    assert sorted(batch["users", "likes", "films"].edge_attr.ravel().tolist()) == [3, 4]


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"keys": {"user": "id"}}, ValueError, "keys has 'user', and there is no such table; there are 'users', 'orders'"),
        ({"keys": {"users": "name"}}, ValueError, r"tables\['users'\] has no column 'name', the primary key; it has 'id', 'age'"),
        ({"keys": ["users.id"]}, TypeError, r'give a dict, such as keys=\{"users": "id"\}'),
        ({"key": "users.id"}, ValueError, "is for tables in a folder"),
        ({"foreign_keys": {}}, ValueError, "no table has a foreign key"),
        ({"foreign_keys": {"orders.users": "users"}}, ValueError, r"tables\['orders'\] has no column 'users', the foreign key"),
        ({"foreign_keys": {"order.user": "users"}}, ValueError, 'name a table and its column, such as "orders.user"'),
        ({"foreign_keys": {"orders.user": "user"}}, ValueError, "points to 'user', and there is no such table"),
        ({"foreign_keys": {"orders.paid": "users"}}, TypeError, "has values of type bool; give integers or strings"),
        ({"foreign_keys": {"orders.price": "users"}}, TypeError, "has integers, and 'users' has text in its key 'id'"),
        ({"link_tables": ["orders"]}, ValueError, "with 1 foreign keys"),
        ({"link_tables": "orders"}, TypeError, r"link_tables=\['orders'\]"),
        ({"tables": [USERS]}, TypeError, "a dict of tables by name"),
        ({"tables": {"users": [1, 2]}}, TypeError, r"tables\['users'\] is a list; give a table of pandas"),
        ({"tables": {"a/b": USERS}}, ValueError, "the name 'a/b'"),
        ({"tables": {"users": {"id": np.ones((2, 3))}}}, ValueError, r"tables\['users'\]\['id'\] has shape \(2, 3\)"),
        ({"tables": {"users": {"id": [1], "age": [1, 2]}}}, ValueError, "different lengths"),
        ({"resume": True}, ValueError, "start again with force=True"),
        ({"features": np.ones((3, 1))}, TypeError, "such as features_from="),
        ({"edges": [[0, 1]]}, ValueError, "leave out one of both"),
        ({"tables": None}, ValueError, "give tables="),
    ],
)
def test_wrong_tables_are_named(options, kind, message, tmp_path):
    tables = {"users": USERS | {"age": [1, 2, 3]}, "orders": ORDERS | {"user": np.array(ORDERS["user"], object)}}
    options = {"tables": tables, **KEYS, **options}
    with pytest.raises(kind, match=message):
        grappa.ingest(**options, out=tmp_path / "g.grappa")
    assert not list(tmp_path.iterdir())


def test_rows_that_are_wrong_are_named_by_their_table(tmp_path):
    pandas = pytest.importorskip("pandas")
    users, orders = pandas.DataFrame(USERS), pandas.DataFrame(ORDERS)

    def ingest(users, orders=orders, **options):
        return grappa.ingest(tables={"users": users, "orders": orders}, out=tmp_path / "g.grappa", force=True, **{**KEYS, **options})

    with pytest.raises(grappa.Error, match=r"tables\['orders'\] at row 1: the target bob in column user is no node of type users"):
        ingest(users.drop(1))
    assert ingest(users.drop(1), on_bad_line="skip")["orders", "user", "users"].num_edges == 2
    with pytest.raises(grappa.Error, match=r"tables\['users'\] at row 3: the id ann is in this file twice"):
        ingest(pandas.concat([users, users]))
    with pytest.raises(grappa.Error, match=r"tables\['users'\] at row 1: expected a node id in column id, found a missing value"):
        ingest(users.assign(id=["ann", None, "cy"]))
    numbered = {"foreign_keys": {"orders.user": "users"}, "keys": {}}
    with pytest.raises(ValueError, match="if its ids are the numbers of its rows, give tables"):
        ingest(users.drop(0), orders.assign(user=[0, 1, 1, None]), **numbered)
    with pytest.raises(ValueError, match=r"tables\['orders'\]\['user'\] has values that are no ids"):
        ingest(users, orders.assign(user=[0.5, 1, 1, None]), **numbered)
    assert ingest(users, orders.assign(user=[0, 1, 1, None]), **numbered)["orders", "user", "users"].num_edges == 3
    # No table points to orders, so their ids do not matter.
    graph = ingest(users, orders.drop(columns="id").drop(0), keys={"users": "id"})
    assert graph["orders", "user", "users"].num_edges == 2 and graph["orders"].ids([0, 2]).tolist() == [0, 2]
    assert ingest(users, orders.assign(user=None))["orders", "user", "users"].num_edges == 0
    plan = grappa.ingest(tables={"users": users.assign(note=["x"] * 3), "orders": orders}, dry_run=True, out=tmp_path / "h.grappa", **KEYS)
    assert "features from tables['users']: Parquet" in str(plan)


FOLLOWS, BUYS, BOUGHT = ("user", "follows", "user"), ("user", "buys", "item"), ("item", "bought", "user")


def edge_lists():
    """The edges of each relation, as `dgl.heterograph` accepts them."""
    buys = torch.tensor([0, 1, 1, 3]), torch.tensor([3, 0, 2, 2])
    return {FOLLOWS: ("coo", ([0, 2], np.array([1, 1]))), BUYS: buys, BOUGHT: (buys[1], buys[0])}


def pairs_of(graph, edge_type):
    return sorted(zip(*graph.edge_split(edge_type, "train").tolist(), strict=True))


def check_edge_lists(graph, x):
    """Checks a graph with the edges and data of the tests of DGL."""
    assert graph.edge_types == [FOLLOWS, BUYS, BOUGHT]
    assert pairs_of(graph, FOLLOWS) == [(0, 1), (2, 1)]
    assert pairs_of(graph, BUYS) == [(0, 3), (1, 0), (1, 2), (3, 2)]
    assert graph[BOUGHT].reverse_of == BUYS and graph[FOLLOWS].reverse_of is None
    assert graph["user"].num_nodes == 5 and graph["item"].num_nodes == 4
    assert np.array_equal(graph["user"].features[:], x.numpy())
    assert graph["item"].labels[:].tolist() == [0, 1, 1, 0] and graph["item"].split("train").tolist() == [0, 2]
    assert graph["user"].ids(slice(None)).tolist() == list(range(5))
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("item", [2]), batch_size=1)))
    assert edges_of(batch, BUYS) == [(1, 2), (3, 2)] and sorted(batch[BUYS].edge_weight.tolist()) == [3, 4]
    assert torch.equal(batch["user"].x, x[batch["user"].n_id])


def test_edge_lists_of_dgl_are_a_graph(tmp_path):
    x = torch.randn(5, 2)
    data = {
        "features": {"user": x},
        "labels": {"item": np.array([[0], [1], [1], [0]])},
        "train": {"item": torch.tensor([True, False, True, False])},
        "weights": {"user:buys:item": torch.tensor([1.0, 2, 3, 4])},
    }
    check_edge_lists(grappa.ingest(edge_lists(), **data, out=tmp_path / "a.grappa"), x)
    numbers = {"shop": 2, "item": 9, "user": 4}
    graph = grappa.ingest(edge_lists(), num_nodes_dict=numbers, edge_split={BUYS: "50/0/50"}, out=tmp_path / "b.grappa")
    assert graph.node_types == ["shop", "item", "user"] and [graph[name].num_nodes for name in graph.node_types] == [2, 9, 4]
    assert graph.edge_split(BUYS, "test").shape == (2, 2)
    graph = grappa.ingest(edge_lists(), out=tmp_path / "c.grappa")
    assert graph["user"].num_nodes == 4 and graph["item"].num_nodes == 4


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_compressed_edge_lists_are_in_the_order_of_edge_ids(layout, tmp_path):
    parts = np.array([0, 2, 2, 3]), np.array([1, 2, 0]), np.array([2, 0, 1])
    relation = ("a", "to", "b")
    features = {relation: np.array([10.0, 20, 30])}
    graph = grappa.ingest(
        {relation: (layout, parts)}, num_nodes_dict={"a": 3, "b": 3}, edge_features=features, out=tmp_path / "g.grappa"
    )
    # Edge 2 is the first one of line 0, edge 0 the second one, and edge 1 the one of line 2.
    expected = {10.0: (0, 2), 20.0: (2, 0), 30.0: (0, 1)}
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], "b", batch_size=3)))
    row, col = batch[relation].edge_index
    edges = zip(batch["a"].n_id[row].tolist(), batch["b"].n_id[col].tolist(), strict=True)
    found = dict(zip(batch[relation].edge_attr.ravel().tolist(), edges, strict=True))
    assert found == {value: edge if layout == "csr" else edge[::-1] for value, edge in expected.items()}


class View(dict):
    """Data of node types or relations of a `DGLGraph`, by name. Called, the edges of a relation."""

    def __init__(self, data, edges=None):
        super().__init__({name: SimpleNamespace(data=of) for name, of in data.items()})
        self.edges = edges

    def __call__(self, etype):
        return self.edges[etype]


def dgl_graph(num_nodes, edges, node_data, edge_data):
    """What `grappa.ingest` asks of a `dgl.DGLGraph`; DGL has no version for this PyTorch."""
    nodes = View({name: node_data.get(name, {}) for name in num_nodes})
    of_edges = View({edge_type: edge_data.get(edge_type, {}) for edge_type in edges}, edges)
    return SimpleNamespace(
        canonical_etypes=list(edges), ntypes=list(num_nodes), num_nodes=num_nodes.__getitem__, nodes=nodes, edges=of_edges
    )


def test_a_graph_of_dgl_is_a_graph(tmp_path):
    x = torch.randn(5, 2)
    edges = {edge_type: tuple(map(torch.as_tensor, ends if ends[0] != "coo" else ends[1])) for edge_type, ends in edge_lists().items()}
    node_data = {
        "user": {"feat": x, "_ID": torch.arange(5)},
        "item": {"label": torch.tensor([0, 1, 1, 0]), "train_mask": torch.tensor([True, False, True, False])},
    }
    data = dgl_graph({"user": 5, "item": 4}, edges, node_data, {BUYS: {"weight": torch.tensor([1.0, 2, 3, 4])}})
    with pytest.warns(UserWarning, match="does not keep _ID of this DGLGraph"):
        check_edge_lists(grappa.ingest(data, out=tmp_path / "g.grappa"), x)
    del node_data["user"]["_ID"], node_data["user"]["feat"]
    check_edge_lists(grappa.ingest(data, features={"user": x}, out=tmp_path / "h.grappa"), x)
    plain = dgl_graph({"_N": 2}, {("_N", "_E", "_N"): (torch.tensor([0]), torch.tensor([1]))}, {}, {})
    with pytest.raises(ValueError, match="this DGLGraph has no types"):
        grappa.ingest(plain, out=tmp_path / "i.grappa")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"edges": {}}, ValueError, "edges has no relations"),
        ({"edges": {"src": [0], "dst": [1]}}, TypeError, "edges is a dict with the key 'src'; a relation is a tuple"),
        ({"edges": {BUYS: torch.ones(2, 3).long()}}, TypeError, "give a tuple of sources and destinations"),
        ({"edges": {BUYS: ([0, 1], [1])}}, ValueError, "has 2 sources and 1 destinations"),
        ({"edges": {BUYS: ([0.5, 1], [1, 0])}}, TypeError, "the sources of edges.* are an array of float64"),
        ({"edges": {BUYS: ([-1, 1, 0], [1, 0, 0])}}, grappa.Error, "a node id is negative"),
        ({"edges": {BUYS: ("coo2", ([0], [1]))}}, ValueError, 'give "coo", "csr" or "csc"'),
        ({"edges": {BUYS: ("csr", ([0, 2], [1, 2], [5, 0]))}}, ValueError, "each edge id once, or none"),
        ({"edges": [[0, 1]], "num_nodes_dict": {}}, ValueError, "num_nodes_dict= is for a dict of edges"),
        ({"num_nodes_dict": {"user": 4}}, ValueError, "has no number of nodes of 'item'"),
        ({"num_nodes_dict": {"user": 4, "item": "4"}}, TypeError, r"num_nodes_dict\['item'\]='4'; give an integer"),
        ({"num_nodes_dict": {"user": 4, "item": 3}}, grappa.Error, "the target 3 is no node of type item"),
        ({"features": np.ones((4, 1))}, TypeError, "give a dict by node type, such as features={'user': ...}"),
        ({"features": {"users": np.ones((4, 1))}}, KeyError, "features has 'users', and the graph has no such node type"),
        ({"weights": {("user", "bys", "item"): np.ones(4)}}, KeyError, "weights has .*no such relation"),
        ({"undirected": True}, ValueError, "undirected: a dict of edges or a DGLGraph is ingested with"),
        ({"node_type": "type"}, ValueError, "name attributes of a graph of NetworkX"),
        ({"out": None}, ValueError, "give the folder of the new graph"),
    ],
)
def test_wrong_edge_lists_are_named(options, kind, message, tmp_path):
    options = {"edges": edge_lists(), "out": tmp_path / "g.grappa", **options}
    with pytest.raises(kind, match=message):
        grappa.ingest(**options)
    assert not (tmp_path / "g.grappa").exists()


ATTRIBUTES = {"node_type": "type", "edge_type": "relation"}


@pytest.fixture
def shop():
    """Users and items, as a graph of NetworkX."""
    graph = pytest.importorskip("networkx").MultiDiGraph()
    graph.add_nodes_from([("bob", {"type": "user", "age": 41, "side": 2}), ("ann", {"type": "user", "age": 30, "side": 3})])
    graph.add_nodes_from([(9, {"type": "item", "kind": "pen"}), (7, {"type": "item", "kind": "book"})])
    graph.add_edge("ann", 7, relation="buys", price=2.5)
    graph.add_edge("ann", 7, relation="buys", price=3.5)
    graph.add_edge("bob", 9, relation="buys", price=1.0)
    graph.add_edge("ann", 9, relation="likes")
    graph.add_edge("ann", "bob", relation="follows")
    return graph


def test_a_graph_of_networkx_with_types_keeps_its_nodes_as_ids(shop, tmp_path):
    graph = grappa.ingest(
        shop, features_from=["user=age,side"], label="item=kind", weight="buys=price", reverse=["buys=sold_to"],
        out=tmp_path / "g.grappa", **ATTRIBUTES,
    )  # fmt: skip
    sold_to = ("item", "sold_to", "user")
    assert sorted(graph.edge_types) == sorted([BUYS, sold_to, ("user", "likes", "item"), FOLLOWS])
    assert graph[sold_to].reverse_of == BUYS
    assert list(graph["user"].ids([0, 1])) == ["ann", "bob"] and graph["item"].ids([0, 1]).tolist() == [7, 9]
    assert graph["user"].feature_names == ["age", "side"] and graph["user"].features[:].tolist() == [[30, 3], [41, 2]]
    assert graph["item"].class_names == ["book", "pen"] and graph["item"].labels[:].tolist() == [0, 1]
    assert pairs_of(graph, BUYS) == [(0, 0), (0, 0), (1, 1)] and graph[FOLLOWS].num_edges == 1
    batch = next(iter(grappa.pyg.NeighborLoader(graph, [-1], ("item", graph["item"].nodes([7])), batch_size=1)))
    assert list(graph["user"].ids(batch["user"].n_id)) == ["ann"]
    assert sorted(batch[BUYS].edge_weight.tolist()) == [2.5, 3.5]
    assert [path.name for path in tmp_path.iterdir()] == ["g.grappa"]
    for _, attributes in shop.nodes(data=True):
        attributes["kind of node"] = attributes.pop("type")
    graph = grappa.ingest(shop, node_type="kind of node", edge_type="relation", out=tmp_path / "h.grappa")
    assert graph.num_edges == 5 and graph["user"].num_features == 0


@pytest.mark.parametrize(
    ("change", "options", "kind", "message"),
    [
        (None, {"edge_type": None}, ValueError, "edge_type=...: name the attribute of edges"),
        (None, {"node_type": None}, ValueError, "node_type=...: name the attribute of nodes"),
        (None, {"node_type": "kind"}, ValueError, "node_type='kind': the node 'bob' has no such attribute"),
        (None, {"edge_type": "price"}, ValueError, "edge_type='price': the edge from 'bob' to 9 has the value 1.0"),
        (lambda graph: graph.add_edge("bob", 7), {}, ValueError, "the edge from 'bob' to 7 has no such attribute"),
        (lambda graph: graph.add_node("eve"), {}, ValueError, "node_type='type': the node 'eve' has no such attribute"),
        (lambda graph: graph.add_node("eve", type="a:b"), {}, ValueError, "the node 'eve' has the value 'a:b'"),
        (lambda graph: graph.add_node("eve", type="item"), {}, TypeError, "nodes are all strings, or all integers"),
        (lambda graph: graph.remove_edges_from(list(graph.edges)), {}, ValueError, "has no edges"),
        (lambda graph: graph.to_undirected(), {}, ValueError, "give graph.to_directed()"),
        (None, {"weight": "price"}, ValueError, 'weights of one relation are weight="RELATION=price"'),
        (None, {"label": "kind"}, ValueError, 'say whose attribute it is, such as label="user=kind"'),
        (None, {"label": "item=colour"}, ValueError, "label='colour': 'item' has no such attribute"),
        (None, {"label": "items=kind"}, grappa.Error, "say which node type it is for"),
        (None, {"features": np.ones((4, 1))}, TypeError, "such as features_from="),
    ],
)
def test_wrong_graphs_of_networkx_with_types_are_named(shop, change, options, kind, message, tmp_path):
    changed = change(shop) if change is not None else None
    with pytest.raises(kind, match=message):
        grappa.ingest(changed if hasattr(changed, "nodes") else shop, out=tmp_path / "g.grappa", **{**ATTRIBUTES, **options})
    assert not list(tmp_path.iterdir())


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


def test_loaders_warn_of_times_that_seeds_do_not_have(tmp_path):
    (tmp_path / "events.csv").write_text("src,dst,at\n0,1,2024-01-01\n1,0,2024-01-03\n0,2,2024-01-02\n")
    events = f"user:pays:user={tmp_path / 'events.csv'}"
    graph = grappa.ingest(events, nodes=["user=3"], time="pays=at", out=tmp_path / "events.grappa")
    assert graph["user", "pays", "user"].has_edge_times
    with pytest.warns(UserWarning, match="events.grappa: the edges have times, and the seeds of this loader have none"):
        grappa.pyg.NeighborLoader(graph, [2], ("user", [0, 1]), batch_size=2, features=False)
    (tmp_path / "users.csv").write_text("id,since\n0,2024-01-01\n1,2024-01-02\n2,2023-01-01\n")
    (tmp_path / "in.csv").write_text("src,dst\n0,1\n1,2\n")
    lives = f"user:in:town={tmp_path / 'in.csv'}"
    nodes = [f"user={tmp_path / 'users.csv'}", "town=3"]
    graph = grappa.ingest(lives, nodes=nodes, time="user=since", out=tmp_path / "users.grappa")
    assert graph["user"].has_node_times and not graph["user", "in", "town"].has_edge_times
    with pytest.warns(UserWarning, match="users.grappa: the nodes have times, and the seeds of this loader have none"):
        grappa.pyg.NeighborLoader(graph, [2], ("town", [0, 1]), batch_size=2, features=False)
    with warnings.catch_warnings():
        # Users have times of their own.
        warnings.simplefilter("error")
        grappa.pyg.NeighborLoader(graph, [2], ("user", [0, 1]), batch_size=2, features=False)
