"""Training scripts of PyTorch Geometric for graphs with types, on real data. The line of the loader alone tells whose loader it is.

DBLP is read from the folder that GRAPPA_DATA names, and MovieLens-100k from the wheel of recbole, which PyPI has. A test without its
data, or without the sampler of PyTorch Geometric, is skipped.
"""

import gzip
import io
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch.nn.functional as F  # noqa: E402
import torch_geometric.loader  # noqa: E402
import torch_geometric.typing  # noqa: E402
from torch_geometric.data import HeteroData  # noqa: E402
from torch_geometric.nn import HeteroConv, Linear, SAGEConv, to_hetero  # noqa: E402
from torch_geometric.transforms import RandomLinkSplit, ToUndirected  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

import grappa.pyg  # noqa: E402

PEER = pytest.mark.skipif(
    not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE),
    reason="PyTorch Geometric samples with pyg-lib or torch-sparse",
)
MOVIELENS = "recbole/dataset_example/ml-100k/ml-100k"
#: Values of the features of papers and authors: counts of terms, by a random projection.
DIM = 128


@pytest.fixture(params=["grappa", pytest.param("pyg", marks=PEER)])
def loaders(request):
    """The module with the loaders, and a function that gives a graph as they take it."""
    if request.param == "pyg":
        return torch_geometric.loader, lambda data, **_: data
    folder = request.getfixturevalue("tmp_path")
    return grappa.pyg, lambda data, **options: grappa.ingest(data, out=folder / "graph.grappa", **options)


def read_dblp():
    """Authors with one of four areas, their papers, and the terms and venues of these."""
    beside = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data"
    folder = pathlib.Path(os.environ.get("GRAPPA_DATA", beside)) / "dblp-four-area"
    if not folder.is_dir():
        pytest.skip("dblp-four-area is not here; GRAPPA_DATA names the folder of graphs")

    def pairs(name):
        with gzip.open(folder / f"{name}.txt.gz", "rt") as file:
            return np.array([[int(part) for part in line.split("\t")[:2]] for line in file if line.strip()])

    data, ids = HeteroData(), {}
    files = {("paper", "by", "author"): "paper_author", ("paper", "has", "term"): "paper_term", ("paper", "in", "venue"): "paper_conf"}
    edges = {edge_type: pairs(name) for edge_type, name in files.items()}
    for name in ("author", "paper", "term", "venue"):
        columns = [ends[:, edge_type.index(name) // 2] for edge_type, ends in edges.items() if name in edge_type]
        ids[name] = np.unique(np.concatenate(columns))
        data[name].num_nodes = len(ids[name])
    for edge_type, ends in edges.items():
        places = [np.searchsorted(ids[edge_type[2 * end]], ends[:, end]) for end in (0, 1)]
        data[edge_type].edge_index = torch.from_numpy(np.stack(places))
    generator = torch.Generator().manual_seed(1)
    of_terms = torch.randn(data["term"].num_nodes, DIM, generator=generator)
    row, col = data["paper", "has", "term"].edge_index
    data["term"].x = of_terms
    data["paper"].x = torch.zeros(data["paper"].num_nodes, DIM).index_add(0, row, of_terms[col])
    data["venue"].x = torch.eye(data["venue"].num_nodes)
    row, col = data["paper", "by", "author"].edge_index
    data["author"].x = F.normalize(torch.zeros(data["author"].num_nodes, DIM).index_add(0, col, data["paper"].x[row]))
    data["paper"].x = F.normalize(data["paper"].x)
    labels = pairs("author_label")
    labelled = torch.from_numpy(np.searchsorted(ids["author"], labels[:, 0]))
    data["author"].y = torch.full((data["author"].num_nodes,), -1)
    data["author"].y[labelled] = torch.from_numpy(labels[:, 1])
    order = labelled[torch.randperm(len(labelled), generator=generator)]
    for name, part in {"train_mask": order[:800], "val_mask": order[800:1200], "test_mask": order[1200:]}.items():
        data["author"][name] = torch.zeros(data["author"].num_nodes, dtype=torch.bool)
        data["author"][name][part] = True
    return ToUndirected()(data)


@pytest.fixture(scope="module")
def dblp():
    return read_dblp()


@pytest.fixture(scope="module")
def movielens(tmp_path_factory):
    return read_movielens(tmp_path_factory.mktemp("recbole"))[0]


@pytest.fixture(scope="module")
def timed_movielens(tmp_path_factory):
    """The same, with the times of ratings."""
    data, times = read_movielens(tmp_path_factory.mktemp("recbole"))
    for relation in data.edge_types:
        data[relation].time = times
    return data


def read_movielens(folder):
    """Users, movies, and the ratings that users gave. `folder` gets the wheel that has them."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), "recbole==1.2.1"]
    loaded = subprocess.run(command, capture_output=True, text=True)
    if loaded.returncode != 0:
        pytest.skip("recbole, whose wheel has MovieLens-100k, cannot be downloaded")
    tables = {}
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        for name in ("user", "item", "inter"):
            with wheel.open(f"{MOVIELENS}.{name}") as file:
                lines = io.TextIOWrapper(file, encoding="utf-8").read().splitlines()
            tables[name] = [line.split("\t") for line in lines[1:]]
    data = HeteroData()
    users = {row[0]: place for place, row in enumerate(tables["user"])}
    movies = {row[0]: place for place, row in enumerate(tables["item"])}
    jobs = sorted({row[3] for row in tables["user"]})
    genres = sorted({genre for row in tables["item"] for genre in row[3].split(" ")})
    data["user"].x = torch.tensor([[int(row[1]) / 50, row[2] == "M", *(row[3] == job for job in jobs)] for row in tables["user"]], dtype=torch.float)
    data["movie"].x = torch.tensor([[genre in row[3].split(" ") for genre in genres] for row in tables["item"]], dtype=torch.float)
    relation = data["user", "rates", "movie"]
    relation.edge_index = torch.tensor([[users[row[0]] for row in tables["inter"]], [movies[row[1]] for row in tables["inter"]]])
    relation.edge_label = torch.tensor([float(row[2]) for row in tables["inter"]])
    return ToUndirected()(data), torch.tensor([int(row[3]) for row in tables["inter"]])


class Convolutions(torch.nn.Module):
    """The model of `hetero_conv_dblp.py` and `hierarchical_sage.py`: a convolution per relation in each layer, trimmed."""

    def __init__(self, edge_types, hidden, classes):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            HeteroConv({edge_type: SAGEConv((-1, -1), hidden) for edge_type in edge_types}, aggr="sum") for _ in range(2)
        )
        self.lin = Linear(hidden, classes)

    def forward(self, x, edge_index, nodes_of_hops=None, edges_of_hops=None):
        for i, conv in enumerate(self.convs):
            if nodes_of_hops is not None:
                x, edge_index, _ = trim_to_layer(i, nodes_of_hops, edges_of_hops, x, edge_index)
            x = {name: F.leaky_relu(rows) for name, rows in conv(x, edge_index).items()}
        return self.lin(x["author"])


def accuracy_of_authors(module, graph, dblp, seed=1):
    """The accuracy of a test of the areas of authors, learned from minibatches of the loader of `module`."""
    kwargs = {"num_neighbors": [10, 10], "batch_size": 128}
    train_loader = module.NeighborLoader(graph, input_nodes=("author", dblp["author"].train_mask), shuffle=True, **kwargs)
    test_loader = module.NeighborLoader(graph, input_nodes=("author", dblp["author"].test_mask), **kwargs)
    torch.manual_seed(seed)
    model = Convolutions(dblp.edge_types, 64, 4)
    optimizer = None
    for _ in range(8):
        model.train()
        for batch in train_loader:
            # torch-sparse does not count them.
            counts_hops = "num_sampled_nodes" in batch["author"]
            hops = (batch.num_sampled_nodes_dict, batch.num_sampled_edges_dict) if counts_hops else ()
            out = model(batch.x_dict, batch.edge_index_dict, *hops)[: batch["author"].batch_size]
            loss = F.cross_entropy(out, batch["author"].y[: batch["author"].batch_size])
            optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-3)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for batch in test_loader:
            size = batch["author"].batch_size
            out = model(batch.x_dict, batch.edge_index_dict)[:size]
            correct += int((out.argmax(dim=-1) == batch["author"].y[:size]).sum())
            total += size
    assert total == int(dblp["author"].test_mask.sum())
    return correct / total


def test_areas_of_authors(loaders, dblp):
    module, graph_of = loaders
    # As in full batches.
    assert accuracy_of_authors(module, graph_of(dblp), dblp) > 0.86


class Encoder(torch.nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), hidden), SAGEConv((-1, -1), hidden)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def split_of(data):
    """Edges to learn and to test, as `hetero_link_pred.py` divides them, and the graph of both: it has the edges to learn alone."""
    transform = RandomLinkSplit(
        num_val=0.0,
        num_test=0.1,
        neg_sampling_ratio=0.0,
        edge_types=[("user", "rates", "movie")],
        rev_edge_types=[("movie", "rev_rates", "user")],
    )
    torch.manual_seed(2)
    train, _, test = transform(data)
    learned = HeteroData({"user": {"x": train["user"].x}, "movie": {"x": train["movie"].x}})
    for edge_type in train.edge_types:
        learned[edge_type].edge_index = train[edge_type].edge_index
    return train, test, learned


def error_of_ratings(module, graph, train, test, seed=1):
    """The root of the mean squared error of ratings, which are labels of edges."""
    relation = ("user", "rates", "movie")

    def loader(part, **kwargs):
        return module.LinkNeighborLoader(
            graph,
            num_neighbors=[10, 5],
            edge_label_index=(relation, part[relation].edge_label_index),
            edge_label=part[relation].edge_label,
            batch_size=1024,
            **kwargs,
        )

    torch.manual_seed(seed)
    encoder = to_hetero(Encoder(32), train.metadata(), aggr="sum")
    decoder = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def ratings(batch):
        z = encoder(batch.x_dict, batch.edge_index_dict)
        row, col = batch[relation].edge_label_index
        return decoder(torch.cat([z["user"][row], z["movie"][col]], dim=-1)).view(-1)

    optimizer = None
    mean = float(train[relation].edge_label.mean())
    for _ in range(2):
        for batch in loader(train, shuffle=True):
            loss = F.mse_loss(ratings(batch) + mean, batch[relation].edge_label)
            optimizer = optimizer or torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    errors = []
    with torch.no_grad():
        for batch in loader(test):
            errors.append((ratings(batch) + mean - batch[relation].edge_label).square())
    assert len(torch.cat(errors)) == test[relation].edge_label.numel()
    return float(torch.cat(errors).mean().sqrt())


def test_ratings_of_movies(loaders, movielens):
    """`hetero_link_pred.py`."""
    module, graph_of = loaders
    train, test, learned = split_of(movielens)
    # The mean rating of all has an error of 1.13.
    assert error_of_ratings(module, graph_of(learned), train, test) < 1.08


RATES = ("user", "rates", "movie")


def accuracy_of_links(metadata, train_loader, test_loader, epochs, seed):
    """Trains the model of `bipartite_sage.py`, and returns the accuracy of edges against pairs at random."""
    torch.manual_seed(seed)
    encoder = to_hetero(Encoder(32), metadata, aggr="sum")

    def scores(batch):
        z = encoder(batch.x_dict, batch.edge_index_dict)
        row, col = batch[RATES].edge_label_index
        return (z["user"][row] * z["movie"][col]).sum(dim=-1)

    optimizer = None
    for _ in range(epochs):
        for batch in train_loader:
            loss = F.binary_cross_entropy_with_logits(scores(batch), batch[RATES].edge_label)
            optimizer = optimizer or torch.optim.Adam(encoder.parameters(), lr=0.01)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    right = total = 0
    with torch.no_grad():
        for batch in test_loader:
            right += int(((scores(batch) > 0) == (batch[RATES].edge_label > 0)).sum())
            total += batch[RATES].edge_label.numel()
    return right / total, total


def accuracy_of_pairs(module, graph, train, test, seed=1):
    """The accuracy of edges that are held out at random."""
    kwargs = {"num_neighbors": [10, 5], "batch_size": 2048, "neg_sampling": "binary"}
    loaders = [
        module.LinkNeighborLoader(graph, edge_label_index=(RATES, part[RATES].edge_label_index), shuffle=part is train, **kwargs)
        for part in (train, test)
    ]
    accuracy, total = accuracy_of_links(train.metadata(), *loaders, epochs=2, seed=seed)
    assert total == 2 * test[RATES].edge_label_index.size(1)
    return accuracy


def test_movies_that_users_rate(loaders, movielens):
    """`bipartite_sage.py`."""
    module, graph_of = loaders
    train, test, learned = split_of(movielens)
    assert accuracy_of_pairs(module, graph_of(learned), train, test) > 0.7


def accuracy_at_times(module, graph, data, seed=1):
    """The accuracy of ratings of the last fifth of the time, each at its time."""
    pairs, times = data[RATES].edge_index, data[RATES].time
    order = times.argsort(stable=True)
    train, test = order[: len(order) * 4 // 5], order[len(order) * 4 // 5 :]
    # Without the second before it, a rating would be its own neighbor.
    loaders = [
        module.LinkNeighborLoader(
            graph, num_neighbors=[10, 5], edge_label_index=(RATES, pairs[:, edges]), edge_label_time=times[edges] - 1, time_attr="time",
            temporal_strategy="last", neg_sampling="binary", batch_size=2048, shuffle=edges is train,
        )
        for edges in (train, test)
    ]  # fmt: skip
    batch = next(iter(loaders[1]))
    for edge_type in batch.edge_types:
        assert (batch[edge_type].time <= batch[RATES].edge_label_time.max()).all()
    accuracy, total = accuracy_of_links(data.metadata(), *loaders, epochs=1, seed=seed)
    assert total == 2 * len(test)
    return accuracy


def test_movies_that_users_rate_next(loaders, timed_movielens):
    """`hetero/temporal_link_pred.py`."""
    module, graph_of = loaders
    assert accuracy_at_times(module, graph_of(timed_movielens, time="time", time_unit="s"), timed_movielens) > 0.57
