"""What type checkers see of loaders: ``mypy --strict`` checks this file, and nothing runs it."""

from typing import assert_type

from torch_geometric.data import Data

import grappa
import grappa.pyg


def train(store: grappa.Store) -> None:
    for batch in grappa.pyg.NeighborLoader(store, [10, 5], "train", batch_size=64, shuffle=True):
        assert_type(batch, Data)
        batch = batch.to("cuda")
    for links in grappa.pyg.LinkNeighborLoader(store, [10, 5], neg_sampling="binary"):
        assert_type(links, Data)
        links.to("cuda")
    for group in grappa.pyg.ClusterLoader(store, batch_size=10):
        assert_type(group, Data)
        group.to("cuda")
    for arrays in grappa.NeighborLoader(store, [10, 5]):
        assert_type(arrays, grappa.Batch)
    for pairs in grappa.LinkNeighborLoader(store, [10, 5]):
        assert_type(pairs, grappa.LinkBatch)
