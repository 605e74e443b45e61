"""A user's script as type checkers see it: ``mypy --strict`` checks this file, and nothing runs it. Each wrong line has a comment that
is an error itself where the line is right."""

from typing import Any, assert_type

import numpy as np
from torch_geometric.data import Data, HeteroData

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


def build() -> None:
    edges = np.array([[0, 1]])
    store = grappa.ingest(edges, out="a", ids="sparse", undirected=True, memory="2GiB", id=["a", "b"], train=[0], src=0, missing=["mean"])
    assert_type(store, grappa.Store | grappa.Graph | dict[str, Any])
    grappa.ingest({("a", "to", "b"): (edges[0], edges[1])}, num_nodes_dict={"a": 2, "b": 2}, features={"a": edges}, out="a")
    grappa.ingest(tables="shop", keys={"users": "id"}, foreign_keys={"orders.user": "users"}, link_tables=["likes"], tasks=["churn"], out="a")
    grappa.ingest(tables="shop", keys="users.id", out="a")  # type: ignore[arg-type]
    grappa.ingest(edges, out="a", idss="string")  # type: ignore[call-arg]
    grappa.ingest(edges, out="a", ids="strings")  # type: ignore[arg-type]
    grappa.generate("sbm", nodes=1000, classes=4, seed=3, as_="npy", out="b")
    grappa.generate("ba", out="b")  # type: ignore[call-overload]
    assert_type(grappa.generate("typed", nodes={"a": 5}, edges={("a", "to", "a"): 9}, out="c"), grappa.Graph)
    grappa.ingest(tables={"users": edges}, keys={"users": "id"}, tasks={"churn": {"train": edges}}, out="a")
    grappa.ingest(tables="shop", tasks=3, out="a")  # type: ignore[arg-type]


def train_typed(graph: grappa.Graph) -> None:
    for linked in grappa.pyg.HeteroLinkNeighborLoader(graph, [10, 5], ("author", "writes", "paper"), neg_sampling="binary"):
        linked["author", "writes", "paper"].edge_label_index
    for batch in grappa.pyg.HeteroNeighborLoader(graph, [10, 5], ("paper", "train"), batch_size=64):
        assert_type(batch, HeteroData)
    assert_type(graph.edge_types, list[tuple[str, str, str]])


def train_rows(graph: grappa.Graph, store: grappa.Store) -> None:
    users = grappa.Embedding(graph, "user", 64, path="rows")
    optimizer = grappa.SparseAdam([users, grappa.Embedding(store, None, 8)], lr=0.01)
    grappa.NeighborLoader(store, [10, 5], embeddings=users)
    grappa.NeighborLoader(store, [10, 5], embeddings="users")  # type: ignore[arg-type]
    grappa.pyg.HeteroNeighborLoader(graph, [10, 5], "user", embeddings=[users])
    grappa.inference(graph, users, [users], nodes="user", embeddings=[users])
    optimizer.step()
    assert_type(users.save(), int)
    grappa.Embedding(graph, 64, "user")  # type: ignore[arg-type]


def run(store: grappa.Store) -> None:
    run = grappa.train(store, out="run", epochs=2, model="sage", fanouts=[15, 10], resume="auto", memory="2GiB", workers=2)
    grappa.train(store, out="run", epochs="two")  # type: ignore[arg-type]
    grappa.train(store, out="run", model="sge")  # type: ignore[arg-type]
    run.predict(store, values="logits", memory="1GiB")
    run.predict(store, values="logit")  # type: ignore[arg-type]
    store.preaggregate("mean", dtype="f16")
    store.preaggregate("max")  # type: ignore[arg-type]
    grappa.NeighborLoader(store, [10, 5], layout="block")  # type: ignore[arg-type]
