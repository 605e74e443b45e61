"""Whole training scripts for PyTorch Geometric, in which the line of the loader alone tells whose loader it is.

Each script runs with Grappa's loader, and with PyTorch Geometric's where that has pyg-lib or torch-sparse.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch.nn.functional as F  # noqa: E402
import torch_geometric.loader  # noqa: E402
import torch_geometric.typing  # noqa: E402
from torch_geometric.nn import BatchNorm, GraphSAGE, SAGEConv  # noqa: E402
from torch_geometric.utils import trim_to_layer  # noqa: E402

import grappa.pyg  # noqa: E402

PEER = pytest.mark.skipif(
    not (torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE),
    reason="PyTorch Geometric samples with pyg-lib or torch-sparse",
)


@pytest.fixture(params=["grappa", pytest.param("pyg", marks=PEER)])
def loaders(request, store):
    """The module with the loaders, and the graph as they take it."""
    if request.param == "grappa":
        return grappa.pyg, store
    return torch_geometric.loader, store.to_pyg()


@pytest.fixture
def data(store):
    return store.to_pyg()


class Trimmed(torch.nn.Module):
    """GraphSAGE whose layers leave out what the seeds do not need."""

    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.convs = torch.nn.ModuleList([SAGEConv(inputs, hidden), SAGEConv(hidden, hidden), SAGEConv(hidden, outputs)])
        self.norms = torch.nn.ModuleList([BatchNorm(hidden), BatchNorm(hidden)])

    def forward(self, x, edge_index, nodes_of_hops=None, edges_of_hops=None):
        for i, conv in enumerate(self.convs):
            if nodes_of_hops is not None:
                x, edge_index, _ = trim_to_layer(i, nodes_of_hops, edges_of_hops, x, edge_index)
            x = conv(x, edge_index)
            if i < 2:
                x = F.dropout(self.norms[i](x).relu(), p=0.5, training=self.training)
        return x


def test_supervised_training_with_trimmed_layers(loaders, data):
    module, graph = loaders
    kwargs = {"batch_size": 70, "num_workers": 0, "persistent_workers": False, "pin_memory": False}
    train_loader = module.NeighborLoader(
        graph, num_neighbors=[10, 5, 5], input_nodes=data.train_mask, shuffle=True, **kwargs
    )
    test_loader = module.NeighborLoader(graph, num_neighbors=[-1, -1, -1], input_nodes=data.test_mask, **kwargs)
    torch.manual_seed(1)
    device = torch.device("cpu")
    model = Trimmed(data.num_features, 32, int(data.y.max()) + 1).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(15):
        model.train()
        total_examples = total_loss = 0
        for batch in train_loader:
            batch = batch.to(device, "x", "y", "edge_index", "batch_size")
            optimizer.zero_grad()
            hops = (batch.num_sampled_nodes, batch.num_sampled_edges)
            out = model(batch.x, batch.edge_index, *hops)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            total_examples += batch.batch_size
            total_loss += float(loss) * batch.batch_size
        assert total_examples == int(data.train_mask.sum())
    model.eval()
    with torch.no_grad():
        correct = 0
        for batch in test_loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            correct += int((out.argmax(dim=-1) == batch.y[: batch.batch_size]).sum())
    assert total_loss / total_examples < 0.5 and correct / int(data.test_mask.sum()) > 0.65


def test_supervised_link_prediction(loaders, data):
    module, graph = loaders
    edges = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    edges = edges[:, torch.randperm(edges.size(1), generator=torch.Generator().manual_seed(1))]
    train_loader = module.LinkNeighborLoader(
        graph,
        num_neighbors=[10, 5],
        edge_label_index=edges[:, :2000],
        edge_label=torch.ones(2000),
        neg_sampling_ratio=1.0,
        batch_size=256,
        shuffle=True,
    )
    torch.manual_seed(1)
    model = GraphSAGE(data.num_features, 64, num_layers=2)
    decoder = torch.nn.Linear(128, 1)
    optimizer = torch.optim.Adam([*model.parameters(), *decoder.parameters()], lr=0.01)
    losses = []
    for _ in range(6):
        total_loss = total_pairs = 0
        for batch in train_loader:
            optimizer.zero_grad()
            z = model(batch.x, batch.edge_index)
            ends = z[batch.edge_label_index]
            out = decoder(torch.cat([ends[0], ends[1]], dim=-1)).view(-1)
            # Labels from 1 belong to the positives; negatives have 0.
            loss = F.binary_cross_entropy_with_logits(out, (batch.edge_label > 0).float())
            loss.backward()
            optimizer.step()
            total_loss += float(loss) * out.numel()
            total_pairs += out.numel()
        assert total_pairs == 2 * 2000
        losses.append(total_loss / total_pairs)
    assert losses[-1] < 0.9 * losses[0] and losses[-1] < 0.66


def test_unsupervised_embeddings(loaders, data):
    module, graph = loaders
    train_loader = module.LinkNeighborLoader(
        graph, batch_size=512, shuffle=True, neg_sampling="triplet", num_neighbors=[10, 10], edge_label_index=data.edge_index
    )
    torch.manual_seed(1)
    model = GraphSAGE(data.num_features, 64, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(2):
        model.train()
        for batch in train_loader:
            optimizer.zero_grad()
            h = model(batch.x, batch.edge_index)
            source, near, far = h[batch.src_index], h[batch.dst_pos_index], h[batch.dst_neg_index]
            positive, negative = (source * near).sum(-1), (source * far).sum(-1)
            loss = -F.logsigmoid(positive).mean() - F.logsigmoid(-negative).mean()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        out = F.normalize(model(data.x, data.edge_index))
    # Neighbors are closer than nodes at random, and a node's nearest training node often has its class.
    at_random = torch.from_numpy(np.random.default_rng(1).integers(0, data.num_nodes, (2, 5000)))
    near, far = ((out[ends[0]] * out[ends[1]]).sum(-1).mean() for ends in (data.edge_index, at_random))
    assert near > far + 0.2
    nearest = (out[data.test_mask] @ out[data.train_mask].t()).argmax(dim=1)
    assert (data.y[data.train_mask][nearest] == data.y[data.test_mask]).float().mean() > 0.35
