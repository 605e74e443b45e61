"""The loader in place of PyTorch Geometric's."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402
from torch_geometric.nn import GraphSAGE, SAGEConv  # noqa: E402
from torch_geometric.utils import k_hop_subgraph, trim_to_layer  # noqa: E402

import grappa.pyg  # noqa: E402


@pytest.fixture(scope="module")
def data(cora):
    """Cora in memory, as PyTorch Geometric has it."""
    store = grappa.open(cora)
    pairs = [(source, node) for node in range(store.num_nodes) for source in store.in_neighbors(node)]
    return Data(
        x=torch.from_numpy(store.features[:]),
        y=torch.from_numpy(store.labels[:]),
        edge_index=torch.tensor(pairs).t().contiguous(),
    )


def test_whole_neighborhoods_are_those_of_pyg(store, data):
    seeds = torch.from_numpy(store.split("val"))
    batch = next(iter(grappa.pyg.NeighborLoader(store, [-1, -1], seeds, batch_size=len(seeds))))
    nodes, edges, _, _ = k_hop_subgraph(seeds, 2, data.edge_index, directed=True)
    assert torch.equal(batch.n_id.sort().values, nodes)

    def sorted_pairs(pairs):
        return sorted(map(tuple, pairs.t().tolist()))

    assert sorted_pairs(batch.n_id[batch.edge_index]) == sorted_pairs(edges)
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.y, data.y[batch.n_id])
    assert torch.equal(batch.n_id[: batch.batch_size], seeds[batch.input_id])


def test_a_model_computes_the_same_with_trimmed_layers(store):
    loader = grappa.pyg.NeighborLoader(store, [6, 4], "train", batch_size=64)
    torch.manual_seed(0)
    layers = [SAGEConv(1433, 16), SAGEConv(16, 7)]
    for batch in loader:
        whole, trimmed, edges = batch.x, batch.x, batch.edge_index
        for index, layer in enumerate(layers):
            whole = layer(whole, batch.edge_index)
            trimmed, edges, _ = trim_to_layer(
                index, batch.num_sampled_nodes, batch.num_sampled_edges, trimmed, edges
            )
            trimmed = layer(trimmed, edges)
        assert torch.allclose(whole[: batch.batch_size], trimmed[: batch.batch_size], atol=1e-5)


def test_a_training_script_of_pyg_learns(store):
    torch.manual_seed(1)
    model = GraphSAGE(1433, 64, num_layers=2, out_channels=7, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    loader = grappa.pyg.NeighborLoader(store, [10, 10], "train", batch_size=256, shuffle=True)
    model.train()
    for _ in range(20):
        for batch in loader:
            optimizer.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    model.eval()
    right = 0
    test = grappa.pyg.NeighborLoader(store, [-1, -1], "test", batch_size=500)
    for batch in test:
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        right += int((out.argmax(dim=1) == batch.y[: batch.batch_size]).sum())
    assert right / store.splits["test"] > 0.75


def test_transforms_get_each_batch(store):
    def double(batch):
        batch.x = batch.x * 2
        return batch

    loader = grappa.pyg.NeighborLoader(store, [2], [0, 1], batch_size=2, transform=double)
    batch = next(iter(loader))
    assert np.array_equal(batch.x.numpy(), 2 * store.features[batch.n_id])
