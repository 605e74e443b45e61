"""Loaders in the place of PyTorch Geometric's at the times of seeds, for graphs with and without types."""

import numpy as np
import pytest

import grappa

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
from torch_geometric.data import Data, HeteroData  # noqa: E402
from torch_geometric.transforms import ToUndirected  # noqa: E402

import grappa.pyg  # noqa: E402

USERS, ITEMS, RATINGS = 30, 20, 400
RATES = ("user", "rates", "item")
REVERSE = ("item", "rev_rates", "user")


@pytest.fixture(scope="module")
def data():
    """Users who rate items at times, and follow each other at unknown ones."""
    random = torch.Generator().manual_seed(2)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.eye(USERS), torch.eye(ITEMS)
    data[RATES].edge_index = torch.stack([torch.randint(n, (RATINGS,), generator=random) for n in (USERS, ITEMS)])
    data[RATES].time = torch.randint(100, (RATINGS,), generator=random)
    data["user", "follows", "user"].edge_index = torch.randint(USERS, (2, 60), generator=random)
    data = ToUndirected(merge=False)(data)
    del data["user", "rev_follows", "user"]
    return data


@pytest.fixture(scope="module")
def graph(data, tmp_path_factory):
    return grappa.ingest(data, time="time", out=tmp_path_factory.mktemp("times") / "ratings.grappa")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A `Data` whose edges have times, and its store."""
    random = torch.Generator().manual_seed(4)
    data = Data(edge_index=torch.randint(50, (2, 500), generator=random), num_nodes=50)
    data.time = torch.randint(100, (500,), generator=random)
    return data, grappa.ingest(data, time="time", out=tmp_path_factory.mktemp("times") / "plain.grappa")


def edges_into(batch, edge_type, time_attr="time"):
    """The edges of a batch by a relation: seed, source, destination, and time if it has some."""
    source_type, _, destination_type = edge_type
    sources, destinations = batch[edge_type].edge_index
    seeds = batch[destination_type].batch[destinations]
    assert torch.equal(batch[source_type].batch[sources], seeds)
    columns = [seeds, batch[source_type].n_id[sources], batch[destination_type].n_id[destinations]]
    if time_attr in batch[edge_type]:
        columns.append(batch[edge_type][time_attr])
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def expected_into(data, edge_type, node, time):
    sources, destinations = data[edge_type].edge_index
    chosen = destinations == node
    if "time" in data[edge_type]:
        chosen &= data[edge_type].time <= time
        return sorted(zip(sources[chosen].tolist(), data[edge_type].time[chosen].tolist(), strict=True))
    return sorted((source,) for source in sources[chosen].tolist())


def test_the_attribute_of_a_graph_gives_its_times(graph, plain):
    assert [graph[edge_type].has_edge_times for edge_type in (RATES, REVERSE, ("user", "follows", "user"))] == [True, True, False]
    assert graph[REVERSE].reverse_of == RATES
    assert plain[1].has_edge_times and plain[1].time_unit == "integer"


@pytest.mark.parametrize("shuffle", [True, False])
def test_typed_batches_have_the_edges_up_to_the_time_of_each_seed(data, graph, shuffle):
    seeds, times = torch.arange(USERS).repeat(2), torch.arange(2 * USERS) * 3 % 110
    loader = grappa.pyg.NeighborLoader(
        graph, [-1], ("user", seeds), input_time=times, time_attr="time", batch_size=7, shuffle=shuffle, drop_last=True
    )
    count = 0
    for batch in loader:
        user = batch["user"]
        assert torch.equal(user.seed_time, times[user.input_id]) and torch.equal(user.n_id[:7], seeds[user.input_id])
        assert torch.equal(user.batch[:7], torch.arange(7))
        for edge_type in (REVERSE, ("user", "follows", "user")):
            found = edges_into(batch, edge_type)
            for seed in range(7):
                of_seed = [(source, *time) for part, source, node, *time in found if part == seed and node == user.n_id[seed]]
                assert sorted(of_seed) == expected_into(data, edge_type, user.n_id[seed], user.seed_time[seed])
            count += len(found)
        assert "time" not in batch["user", "follows", "user"]
    assert count > 300


def test_later_hops_of_typed_batches_have_no_later_edge(graph):
    loader = grappa.pyg.NeighborLoader(graph, [4, 4, 4], "user", input_time=50, batch_size=8, temporal_strategy="last")
    for batch in loader:
        for edge_type in (RATES, REVERSE):
            assert all(time <= 50 for *_, time in edges_into(batch, edge_type, "edge_time"))
        assert batch[RATES].edge_time.numel()


def test_seeds_of_several_types_have_times_by_type(graph):
    times = {"user": torch.tensor([10, 20]), "item": torch.tensor([30, 40, 50])}
    seeds = {"user": [1, 1], "item": [2, 3, 2]}
    loader = grappa.pyg.NeighborLoader(graph, [-1], seeds, input_time=times, batch_size=5, shuffle=True)
    batch = next(iter(loader))
    for name, of_type in times.items():
        assert torch.equal(batch[name].seed_time, of_type[batch[name].input_id])
        first = 0 if name == "user" else 2
        assert batch[name].batch[: len(of_type)].tolist() == list(range(first, first + len(of_type)))
    limits = torch.cat([batch["user"].seed_time, batch["item"].seed_time])
    for edge_type in (RATES, REVERSE):
        for seed, *_, time in edges_into(batch, edge_type, "edge_time"):
            assert time <= limits[seed]
    with pytest.raises(ValueError, match="input_time has no times of 'item'"):
        grappa.pyg.NeighborLoader(graph, [1], seeds, input_time={"user": [1, 2]})
    with pytest.raises(TypeError, match="give a dict with the times of each"):
        grappa.pyg.NeighborLoader(graph, [1], seeds, input_time=[1, 2, 3, 4, 5])


@pytest.mark.parametrize("negatives", ["binary", {"mode": "triplet", "amount": 2}])
def test_typed_links_are_at_their_times(data, graph, negatives):
    positives, times = data[RATES].edge_index[:, :60], data[RATES].time[:60]
    loader = grappa.pyg.LinkNeighborLoader(
        graph, [-1], (RATES, positives), edge_label_time=times, time_attr="time", neg_sampling=negatives, batch_size=9, shuffle=True
    )
    for batch in loader:
        of_links = batch[RATES]
        chosen = of_links.input_id
        count = len(chosen)
        limits = times[chosen]
        if negatives == "binary":
            sources, items = of_links.edge_label_index
            assert torch.equal(of_links.edge_label_time[:count], limits)
            assert len(of_links.edge_label_time) == len(of_links.edge_label) == len(sources)
            assert torch.equal(of_links.edge_label_time, limits[batch["user"].batch[sources]])
        else:
            sources, items = batch["user"].src_index, batch["item"].dst_pos_index
            assert batch["item"].dst_neg_index.shape == (count, 2)
            assert torch.equal(batch["user"].seed_time, limits) and torch.equal(batch["item"].seed_time, limits)
            assert torch.equal(batch["item"].batch[batch["item"].dst_neg_index[:, 1]], torch.arange(count))
        assert torch.equal(batch["user"].batch[sources], batch["item"].batch[items])
        found = edges_into(batch, RATES)
        for link in range(count):
            user, item = positives[:, chosen[link]].tolist()
            of_item = sorted((source, time) for part, source, node, time in found if part == link and node == item)
            expected = expected_into(data, RATES, item, limits[link])
            assert of_item == [pair for pair in expected if pair != (user, limits[link].item())]


def test_a_batch_of_a_data_has_its_times_by_name(plain):
    data, store = plain
    times = torch.arange(50) * 2
    loader = grappa.pyg.NeighborLoader(store, [-1], input_time=times, time_attr="time", batch_size=10)
    batch = next(iter(loader))
    assert "edge_time" not in batch and torch.equal(batch.seed_time, times[batch.input_id])
    for seed in range(10):
        chosen = (data.edge_index[1] == batch.n_id[seed]) & (data.time <= batch.seed_time[seed])
        of_seed = batch.edge_index[1] == seed
        found = sorted(zip(batch.n_id[batch.edge_index[0][of_seed]].tolist(), batch.time[of_seed].tolist(), strict=True))
        assert found == sorted(zip(data.edge_index[0][chosen].tolist(), data.time[chosen].tolist(), strict=True))
    with pytest.raises(ValueError, match="time_attr='time': give the seeds their times, input_time="):
        grappa.pyg.NeighborLoader(store, [1], time_attr="time")
    with pytest.raises(ValueError, match="time_attr='x': a batch has other values of this name"):
        grappa.pyg.NeighborLoader(store, [1], input_time=5, time_attr="x")


def test_batches_are_those_of_pytorch_geometric(plain):
    pytest.importorskip("pyg_lib")
    from torch_geometric.loader import NeighborLoader

    data, store = plain
    times = torch.arange(50) * 2
    arguments = {"num_neighbors": [-1, -1], "input_nodes": torch.arange(50), "input_time": times, "time_attr": "time", "batch_size": 10}
    theirs = NeighborLoader(data, **arguments)
    ours = grappa.pyg.NeighborLoader(store, **arguments)
    for their, our in zip(theirs, ours, strict=True):
        assert torch.equal(their.seed_time, our.seed_time)
        found = []
        for batch in (their, our):
            ends = batch.n_id[batch.edge_index]
            rows = zip(batch.batch[batch.edge_index[1]].tolist(), *ends.tolist(), batch.time.tolist(), strict=True)
            found.append(sorted(rows))
        assert found[0] == found[1] and found[0]


def test_a_reverse_without_times_is_refused(data, tmp_path):
    with pytest.raises(ValueError, match=r"rev_rates.* has no times, and .*rates.* which has the same edges in the other direction"):
        grappa.ingest(data, time={RATES: "time"}, out=tmp_path / "x.grappa")
    with pytest.raises(ValueError, match="time='at': no relation and no node type of this HeteroData has such an attribute"):
        grappa.ingest(data, time="at", out=tmp_path / "x.grappa")
    with pytest.raises(ValueError, match="time_unit='s': edges and nodes have no times"):
        grappa.ingest(data, time_unit="s", out=tmp_path / "x.grappa")


def test_a_dict_of_edges_has_times_by_relation(tmp_path):
    edges = {("user", "buys", "item"): (np.array([0, 1]), np.array([0, 0])), ("user", "likes", "item"): (np.array([1]), np.array([0]))}
    times = {("user", "buys", "item"): np.array(["2024-01-02", "2024-01-05"], "datetime64[D]")}
    graph = grappa.ingest(edges, time=times, out=tmp_path / "buys.grappa")
    loader = grappa.pyg.NeighborLoader(graph, [-1], ("item", [0]), input_time=np.datetime64("2024-01-03"))
    batch = next(iter(loader))
    assert batch["user", "buys", "item"].num_sampled_edges == [1] and batch["user", "likes", "item"].num_sampled_edges == [1]


def test_relations_with_other_units_are_refused(tmp_path):
    edges = {("user", "buys", "item"): (np.array([0]), np.array([0])), ("user", "likes", "item"): (np.array([1]), np.array([0]))}
    times = {("user", "buys", "item"): np.array([5]), ("user", "likes", "item"): np.array(["2024-01-02"], "datetime64[D]")}
    with pytest.raises(grappa.Error, match="give all of them one unit"):
        grappa.ingest(edges, time=times, out=tmp_path / "units.grappa")


def test_nodes_of_a_type_have_their_times_in_batches(tmp_path):
    data = HeteroData()
    data["user"].x, data["order"].x, data["order"].time = torch.ones(5, 1), torch.ones(20, 1), torch.arange(20) * 10
    data["order", "by", "user"].edge_index = torch.stack([torch.arange(20), torch.arange(20) % 5])
    data = ToUndirected()(data)
    graph = grappa.ingest(data, time="time", time_unit="s", out=tmp_path / "shop.grappa")
    assert graph["order"].node_times[:].tolist() == data["order"].time.tolist() and graph["order"].time_unit == "s"
    edges = {("order", "by", "user"): tuple(data["order", "by", "user"].edge_index)}
    dates = np.datetime64("2024-01-01") + np.arange(20)
    dated = grappa.ingest(edges, time={"order": dates}, num_nodes_dict={"order": 20, "user": 5}, out=tmp_path / "dated.grappa")
    assert dated["order"].time_unit == "days" and dated["order"].node_times[[3]].tolist() == [19723 + 3]
    with pytest.raises(ValueError, match=r"time\['order'\] has shape \(19,\), and there are 20 nodes"):
        grappa.ingest(edges, time={"order": dates[1:]}, num_nodes_dict={"order": 20, "user": 5}, out=tmp_path / "x.grappa")
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1], ("order", [7, 19]), time_attr="time", batch_size=2)
    batch = next(iter(loader))
    order = batch["order"]
    assert order.seed_time.tolist() == [70, 190] and torch.equal(order.time, order.n_id * 10)
    assert (order.time <= order.seed_time[order.batch]).all() and "time" not in batch["user"]
    # Order 7 sees the earlier order 2 of its user, and itself.
    assert sorted(order.n_id[order.batch == 0].tolist()) == [2, 7]
    loader = grappa.pyg.NeighborLoader(graph, [-1, -1], ("user", [2]), input_time=100, batch_size=1)
    assert next(iter(loader))["order"].node_time.max() == 70


@pytest.mark.parametrize("options", [{}, {"exclude_edges": False}])
def test_negatives_are_no_nodes_that_came_later(tmp_path, options):
    generator = torch.Generator().manual_seed(9)
    users, movies, ratings, rates = 30, 60, 400, ("user", "rates", "movie")
    data = HeteroData()
    data["user"].x, data["movie"].x = torch.ones(users, 1), torch.ones(movies, 1)
    data["movie"].time = torch.randint(500, (movies,), generator=generator)
    rated = torch.randint(movies, (ratings,), generator=generator)
    data[rates].edge_index = torch.stack([torch.randint(users, (ratings,), generator=generator), rated])
    # A rating follows its movie.
    data[rates].time = data["movie"].time[rated] + torch.randint(300, (ratings,), generator=generator)
    graph = grappa.ingest(data, time="time", time_unit="s", out=tmp_path / "g.grappa")
    loader = grappa.pyg.LinkNeighborLoader(graph, [-1], rates, neg_sampling="binary", batch_size=64, time_attr="time", **options)
    since, count, later = torch.from_numpy(graph["movie"].node_times[:]), 0, 0
    for batch in loader:
        negative = batch[rates].edge_label == 0
        times = torch.as_tensor(batch[rates].edge_label_time)[negative]
        found = since[batch["movie"].n_id[batch[rates].edge_label_index[1][negative]]]
        assert (found <= times).all()
        count += len(found)
        later += int((since > times[:, None]).sum())
    assert count == ratings and later > 1000, (count, later)
