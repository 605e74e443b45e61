"""Runs on graphs with types: trained models equal PyTorch Geometric's, and predictions have the ids of their type."""

import numpy as np
import pytest

import grappa

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("safetensors")
from torch_geometric.data import HeteroData  # noqa: E402

import grappa.pyg  # noqa: E402

SHOP = ["user=300", "item=500", "seller=40"]
EDGES = ["user:buys:item=2000", "user:buys:seller=400", "seller:sells:item=500", "item:goes-with:item=800"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Items have four classes; sellers have no features until a test gives them some."""
    path = tmp_path_factory.mktemp("shop") / "shop.grappa"
    options = {"feature_dim": ["user=6", "item=16"], "classes": ["item=4"], "reverse": True, "seed": 3}
    return grappa.generate("typed", nodes=SHOP, edges=EDGES, out=path, **options)


@pytest.fixture(scope="module")
def whole(shop):
    shop.add_features("mean", type="seller")
    return shop


def test_a_type_without_features_gets_the_means_of_its_neighbors(whole):
    widths = {edge_type: whole[edge_type[0]].num_features for edge_type in whole.edge_types if edge_type[2] == "seller"}
    assert whole["seller"].num_features == sum(widths.values())
    found = whole["seller"].features[:]
    start = 0
    for edge_type, width in widths.items():
        source, target = whole.edge_split(edge_type, "train")
        sums = np.zeros((40, width))
        np.add.at(sums, target, whole[edge_type[0]].features[:][source])
        counts = np.bincount(target, minlength=40).clip(min=1)
        np.testing.assert_allclose(found[:, start : start + width], sums / counts[:, None], rtol=1e-4, atol=1e-5)
        start += width


@pytest.mark.parametrize(
    "model, options",
    [
        ("rsage", {}),
        ("rsage", {"relation_aggregate": "mean", "norm": "batch", "residual": True, "layers": 3, "fanouts": [4, 4, 4]}),
        ("rsage", {"normalize_features": "standard", "activation": "prelu"}),
        ("rgcn", {}),
        ("rgcn", {"bases": 2, "normalize_features": "row"}),
        ("rgat", {"heads": 2, "last_heads": 3}),
        ("hgt", {}),
        ("hgt", {"heads": 2, "norm": "layer", "layers": 3, "fanouts": [4, 4, 4]}),
    ],
)
def test_models_have_the_logits_of_pytorch_geometric(whole, tmp_path, model, options):
    options = {"fanouts": [4, 4], "hidden": 16, "epochs": 3, "partitions": 4, "batch": 32, **options}
    run = grappa.train(whole, out=tmp_path / "run", model=model, **options)
    assert run.summary["target"] == "item"
    module = run.model()
    assert module.target == "item"
    x_dict = {name: torch.from_numpy(whole[name].features[:]) for name in whole.node_types}
    edges = {edge_type: torch.from_numpy(whole.edge_split(edge_type, "train")) for edge_type in whole.edge_types}
    with torch.no_grad():
        expected = module(x_dict, edges).numpy()
    found = run.predict(whole, values="logits", memory="64MiB")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_predictions_are_of_the_nodes_of_the_learned_type(whole, tmp_path):
    run = grappa.train(whole, out=tmp_path / "run", model="rsage", fanouts=[4, 4], epochs=2)
    everyone = run.predict(whole)
    assert everyone.shape == (500,)
    assert run.predict(whole.path, [7, 3]).tolist() == everyone[[7, 3]].tolist()
    assert run.predict(whole, ids=whole["item"].ids([7, 3])).tolist() == everyone[[7, 3]].tolist()
    test = whole["item"].split("test")
    assert run.predict(whole, split="test").tolist() == everyone[test].tolist()
    assert run.predict_table(whole, [7, 3])["id"].to_pylist() == whole["item"].ids([7, 3]).tolist()
    with pytest.raises(grappa.Error, match="predicts nodes, not links"):
        run.predict(whole, links=[[1], [2]])
    with pytest.raises(grappa.Error, match="rsage"):
        grappa.train(whole, out=tmp_path / "other", model="sage")


def test_a_model_of_a_graph_with_types_fits_no_other_graph(whole, tmp_path):
    run = grappa.train(whole, out=tmp_path / "run", model="rsage", fanouts=[4, 4], epochs=1)
    options = {"feature_dim": ["user=6", "item=16", "seller=6"], "classes": ["item=4"]}
    other = grappa.generate("typed", nodes=SHOP, edges=EDGES[:2], out=tmp_path / "other.grappa", **options)
    with pytest.raises(grappa.Error, match="the graph differs from the one that the model was trained on"):
        run.predict(other)


def test_columns_in_another_order_are_refused_and_parameters_carry_over(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiDiGraph()
    random = np.random.default_rng(2)
    for number in range(60):
        graph.add_node(f"user {number}", type="user", age=random.random(), side=random.random())
        graph.add_node(f"item {number}", type="item", price=random.random(), kind=f"kind {number % 3}")
    for source, target in random.integers(60, size=(300, 2)):
        graph.add_edge(f"user {source}", f"item {target}", relation="buys")

    def ingest(name, users):
        options = {"features_from": [f"user={users}", "item=price"], "label": "item=kind", "split": "item=60/20/20"}
        return grappa.ingest(
            graph, node_type="type", edge_type="relation", reverse=["buys=sold_to"], out=tmp_path / f"{name}.grappa", **options
        )

    store, other = ingest("store", "age,side"), ingest("other", "side,age")
    run = grappa.train(store, out=tmp_path / "run", model="rsage", fanouts=[4, 4], hidden=8, epochs=1)
    assert run.predict(ingest("copy", "age,side")).tolist() == run.predict(store).tolist()
    with pytest.raises(grappa.Error, match="features of type user are not those of the run: they are the same ones in another order"):
        run.predict(other)
    options = {"model": "rsage", "fanouts": [4, 4], "hidden": 8, "epochs": 1, "init_from": tmp_path / "run"}
    assert grappa.train(store, out=tmp_path / "continued", **options).summary["epochs"] == 1
    with pytest.raises(grappa.Error, match="has parameters for another graph than this one: features of type user"):
        grappa.train(other, out=tmp_path / "refused", **options)


BUYS = ("user", "buys", "item")


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """Users have names and items numbers as ids. Users buy items of their own group, which their features tell."""
    networkx = pytest.importorskip("networkx")
    random, graph = np.random.default_rng(5), networkx.MultiDiGraph()
    for number in range(120):
        graph.add_node(f"user {number}", type="user", age=random.random(), group=f"group {number % 3}")
    for number in range(90):
        graph.add_node(1000 + number, type="item", price=random.random(), shelf=number % 3)
    for source, target in zip(random.integers(120, size=1500), random.integers(30, size=1500)):
        graph.add_edge(f"user {source}", 1000 + target * 3 + source % 3, relation="buys")
    out = tmp_path_factory.mktemp("market") / "market.grappa"
    features = ["user=age,group", "item=price,shelf"]
    options = {"reverse": True, "dedup": True, "edge_split": {BUYS: "80/10/10"}, "features_from": features, "seed": 3}
    return grappa.ingest(graph, node_type="type", edge_type="relation", out=out, **options)


@pytest.mark.parametrize("model", ["rsage", "rgcn", "rgat", "hgt"])
def test_links_of_a_relation_have_the_scores_of_pytorch_geometric(market, tmp_path, model):
    options = {"fanouts": [4, 4], "hidden": 16, "epochs": 3, "partitions": 3, "batch": 256, "decoder": "distmult"}
    run = grappa.train(market, out=tmp_path / "run", task="link", model=model, target="user:buys:item", **options)
    assert run.summary["target"] == "user:buys:item"
    module = run.model()
    assert module.target == BUYS
    x_dict = {name: torch.from_numpy(market[name].features[:]) for name in market.node_types}
    edges = {edge_type: torch.from_numpy(market.edge_split(edge_type, "train")) for edge_type in market.edge_types}
    with torch.no_grad():
        out = module(x_dict, edges)
        links = market.edge_split(BUYS, "test")
        expected = module.decoder(out["user"][links[0]], out["item"][links[1]]).numpy()
    np.testing.assert_allclose(run.predict(market, links=links), expected, rtol=1e-4, atol=1e-5)
    for node_type in ["user", "item"]:
        found = run.predict(market, values="embeddings", type=node_type)
        np.testing.assert_allclose(found, out[node_type].numpy(), rtol=1e-4, atol=1e-5)
        assert run.predict(market, [7, 3], values="embeddings", type=node_type).tolist() == found[[7, 3]].tolist()
    best = run.predict(market, [5, 2], top_k=4, exclude_known=True)
    scores = module.decoder.weight * out["user"] @ out["item"].T
    for part in ["train", "val", "test"]:
        scores[tuple(market.edge_split(BUYS, part))] = -np.inf
    np.testing.assert_allclose(best.scores, scores[[5, 2]].topk(4).values.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert not np.isin(best.targets[0], market.edge_split(BUYS, "train")[1][market.edge_split(BUYS, "train")[0] == 5]).any()
    some = run.predict(market, ids=["user 9"], top_k=2, among=[1, 4, 7])
    assert set(some.targets[0]) < {1, 4, 7} and some.sources.tolist() == market["user"].nodes(["user 9"]).tolist()
    table = run.predict_table(market, [2], top_k=3)
    assert table["source"].to_pylist() == [market["user"].ids([2])[0]] * 3
    assert set(table["target"].to_pylist()) <= set(market["item"].ids(range(90)).tolist())


def test_a_relation_that_cannot_be_learned_is_refused(market, whole, tmp_path):
    with pytest.raises(grappa.Error, match="there is no relation user:likes:item for target="):
        grappa.train(market, out=tmp_path / "a", task="link", model="rsage", target="user:likes:item")
    with pytest.raises(grappa.Error, match="no relation has edges that are held out"):
        grappa.train(whole, out=tmp_path / "b", task="link", model="rsage")
    run = grappa.train(market, out=tmp_path / "c", task="link", model="rsage", fanouts=[4, 4], epochs=1)
    with pytest.raises(grappa.Error, match="nodes of type item and user"):
        run.predict(market, values="embeddings", type="seller")
    with pytest.raises(grappa.Error, match="the graph differs from the one"):
        run.predict(whole, links=[[1], [2]])


@pytest.mark.parametrize("model", ["rsage", "rgcn", "hgt"])
def test_learned_embeddings_are_inputs_of_the_exported_model(market, tmp_path, model):
    options = {"fanouts": [4, 4], "hidden": 16, "epochs": 3, "partitions": 3, "batch": 256, "normalize_features": "standard"}
    embeddings = "user=5,item=3"
    run = grappa.train(market, out=tmp_path / "run", task="link", model=model, node_embeddings=embeddings, **options)
    module = run.model()
    assert module.embeddings["user"].weight.shape == (120, 5)
    x_dict = {name: torch.from_numpy(market[name].features[:]) for name in market.node_types}
    edges = {edge_type: torch.from_numpy(market.edge_split(edge_type, "train")) for edge_type in market.edge_types}
    with torch.no_grad():
        out = module(x_dict, edges)
        everyone = {name: torch.arange(len(x)) for name, x in x_dict.items()}
        assert torch.equal(module(x_dict, edges, everyone)["user"], out["user"])
    for node_type in ["user", "item"]:
        found = run.predict(market, values="embeddings", type=node_type)
        np.testing.assert_allclose(found, out[node_type].numpy(), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="n_id_dict"):
        module({name: x[:7] for name, x in x_dict.items()}, edges)


@pytest.mark.parametrize(("model", "options"), [("rsage", {"normalize_features": "standard"}), ("rgcn", {}), ("rgat", {"heads": 2}), ("hgt", {})])
def test_a_model_at_times_has_the_logits_of_pytorch_geometric(tmp_path, model, options):
    generator = torch.Generator().manual_seed(6)
    users, orders, rows = 40, 200, 60
    data = HeteroData()
    data["user"].x, data["order"].x = torch.rand(users, 3, generator=generator), torch.rand(orders, 2, generator=generator) * 9
    data["order"].time = torch.randint(1000, (orders,), generator=generator)
    data["churn"].time, data["churn"].y = torch.randint(300, 1000, (rows,), generator=generator), torch.arange(rows) % 2
    data["churn"].num_nodes, data["churn"].train_mask, data["churn"].val_mask = rows, torch.arange(rows) < 40, torch.arange(rows) >= 40
    of_orders, of_rows = torch.randint(users, (orders,), generator=generator), torch.randint(users, (rows,), generator=generator)
    data["order", "by", "user"].edge_index = torch.stack([torch.arange(orders), of_orders])
    data["user", "makes", "order"].edge_index = data["order", "by", "user"].edge_index.flip(0)
    data["user", "asked", "churn"].edge_index = torch.stack([of_rows, torch.arange(rows)])
    graph = grappa.ingest(data, time="time", time_unit="s", out=tmp_path / "g.grappa")
    run = grappa.train(
        graph, out=tmp_path / "run", model=model, target="churn", fanouts=[30, 30], hidden=16, epochs=2, time_encoding=5, **options
    )
    module = run.model()
    assert set(module.ages) == {"order", "churn"} and module.time_encoding["unit"] == "s"
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1], ("churn", None), time_attr="time", batch_size=rows)
    batch = next(iter(loader))
    times = batch["churn"].seed_time
    ages = {name: times[batch[name].batch] - batch[name].time for name in module.ages}
    x_dict = {name: batch[name].x for name in ("user", "order")}
    with torch.no_grad():
        expected = module(x_dict, batch.edge_index_dict, age_dict=ages)[:rows]
        with pytest.raises(ValueError, match="age_dict has no ages of the nodes of type order"):
            module(x_dict, batch.edge_index_dict)
    found = run.predict(graph, values="logits")
    np.testing.assert_allclose(found[batch["churn"].input_id], expected.numpy(), rtol=1e-4, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize(("model", "options"), [("rsage", {}), ("rgat", {"heads": 2})])
def test_a_model_with_ages_of_edges_has_the_logits_of_pytorch_geometric(tmp_path, model, options):
    generator = torch.Generator().manual_seed(7)
    users, movies, ratings, rows = 40, 30, 500, 60
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.rand(users, 3, generator=generator), torch.rand(movies, 2, generator=generator)
    data["ask"].time, data["ask"].y = torch.randint(300, 1000, (rows,), generator=generator), torch.arange(rows) % 2
    data["ask"].num_nodes, data["ask"].train_mask, data["ask"].val_mask = rows, torch.arange(rows) < 40, torch.arange(rows) >= 40
    rates, rated, asked = ("user", "rates", "movie"), ("movie", "rated", "user"), ("user", "asked", "ask")
    ends = [torch.randint(count, (ratings,), generator=generator) for count in (users, movies)]
    data[rates].edge_index, data[rates].time = torch.stack(ends), torch.randint(1000, (ratings,), generator=generator)
    data[rated].edge_index, data[rated].time = data[rates].edge_index.flip(0), data[rates].time
    data[asked].edge_index = torch.stack([torch.randint(users, (rows,), generator=generator), torch.arange(rows)])
    graph = grappa.ingest(data, time="time", time_unit="s", out=tmp_path / "g.grappa")
    more = {"layers": 3, "fanouts": [40, 40, 40], "hidden": 16, "epochs": 2, "time_encoding": 5, **options}
    run = grappa.train(graph, out=tmp_path / "run", model=model, target="ask", **more)
    module = run.model()
    assert module.edge_ages == {rates: 5, rated: 5} and set(module.ages) == {"ask"}
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1, -1], ("ask", None), time_attr="time", batch_size=rows)
    batch = next(iter(loader))
    times = batch["ask"].seed_time
    ages = {"ask": times[batch["ask"].batch] - batch["ask"].time}
    edge_ages = {}
    for edge_type in (rates, rated):
        edges = batch[edge_type]
        edge_ages[edge_type] = times[batch[edge_type[2]].batch[edges.edge_index[1]]] - edges.time
        assert (edge_ages[edge_type] >= 0).all() and len(edges.time) > 100
    x_dict = {name: batch[name].x for name in ("user", "movie")}
    with torch.no_grad():
        expected = module(x_dict, batch.edge_index_dict, age_dict=ages, edge_age_dict=edge_ages)[:rows]
        older = {edge_type: age + 100 for edge_type, age in edge_ages.items()}
        other = module(x_dict, batch.edge_index_dict, age_dict=ages, edge_age_dict=older)[:rows]
        with pytest.raises(ValueError, match="edge_age_dict has no age for each of the .* edges of"):
            module(x_dict, batch.edge_index_dict, age_dict=ages)
    found = run.predict(graph, values="logits")[batch["ask"].input_id]
    tolerance = 1e-5 * expected.abs().max().item()
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=tolerance)
    assert np.abs(found - other.numpy()).max() > 1000 * tolerance


def test_links_as_of_a_time_have_the_scores_of_pytorch_geometric(tmp_path):
    generator = torch.Generator().manual_seed(8)
    users, movies, ratings, at = 40, 30, 500, 700
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.rand(users, 3, generator=generator), torch.rand(movies, 2, generator=generator)
    rates, rated = ("user", "rates", "movie"), ("movie", "rated", "user")
    ends = [torch.randint(count, (ratings,), generator=generator) for count in (users, movies)]
    data[rates].edge_index, data[rates].time = torch.stack(ends), torch.randint(1000, (ratings,), generator=generator)
    data[rated].edge_index, data[rated].time = data[rates].edge_index.flip(0), data[rates].time
    graph = grappa.ingest(data, time="time", time_unit="s", out=tmp_path / "g.grappa")
    more = {"layers": 2, "fanouts": [40, 40], "hidden": 16, "epochs": 2, "candidates": 5, "decoder": "distmult"}
    run = grappa.train(graph, out=tmp_path / "run", task="link", target="user:rates:movie", model="rsage", **more)
    module = run.model()
    assert set(module.edge_ages) == {rates, rated}

    def embeddings(node_type, time):
        """Of all nodes of a type, each from all earlier edges."""
        count = len(data[node_type].x)
        loader = grappa.pyg.NeighborLoader(
            graph, [-1, -1], (node_type, None), input_time=torch.full((count,), time - 1), time_attr="time", batch_size=count
        )
        batch = next(iter(loader))
        ages = {key: time - batch[key].time for key in (rates, rated)}
        x_dict = {name: batch[name].x for name in ("user", "movie")}
        with torch.no_grad():
            out = module(x_dict, batch.edge_index_dict, edge_age_dict=ages)[node_type][:count]
        return torch.empty_like(out).index_copy_(0, batch[node_type].input_id, out)

    links = torch.stack([torch.randint(count, (50,), generator=generator) for count in (users, movies)])
    for time, options in [(at, {"at": at}), (int(data[rates].time.max()) + 1, {})]:
        out = {name: embeddings(name, time) for name in ("user", "movie")}
        with torch.no_grad():
            expected = module.decoder(out["user"][links[0]], out["movie"][links[1]]).numpy()
            scores = (module.decoder.weight * out["user"][[3, 8]] @ out["movie"].T).topk(4).values.numpy()
        tolerance = {"rtol": 1e-4, "atol": 1e-5 * np.abs(expected).max()}
        np.testing.assert_allclose(run.predict(graph, links=links, **options), expected, **tolerance)
        np.testing.assert_allclose(run.predict(graph, [3, 8], top_k=4, **options).scores, scores, **tolerance)
        found = run.predict(graph, values="embeddings", type="user", **options)
        np.testing.assert_allclose(found, out["user"].numpy(), rtol=1e-4, atol=1e-5)
