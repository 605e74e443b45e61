"""Cora, ingested once."""

from pathlib import Path

import numpy as np
import pytest

import grappa
from grappa import programs

CORA = Path(__file__).resolve().parents[2] / "tests" / "data" / "cora"


@pytest.fixture(scope="session")
def cora(tmp_path_factory):
    """The folder of a store of Cora."""
    out = tmp_path_factory.mktemp("stores") / "cora.grappa"
    splits = {name: CORA / f"{name}.npy" for name in ("train", "val", "test")}
    grappa.ingest(
        CORA / "edges.tsv",
        features=CORA / "features.npz",
        labels=CORA / "labels.npy",
        undirected=True,
        dedup=True,
        out=out,
        **splits,
    )
    return out


@pytest.fixture
def store(cora):
    return grappa.open(cora)


@pytest.fixture(scope="session")
def typed(tmp_path_factory):
    """The folder of a graph with authors and papers."""
    folder = tmp_path_factory.mktemp("typed")
    (folder / "authors.csv").write_text("id,age,papers\nada,36,2\nbob,41,1\ncy,25,1\n")
    (folder / "papers.csv").write_text("id,year,area\np1,2019,db\np2,2021,ml\n")
    (folder / "writes.csv").write_text("author,paper\nada,p1\nbob,p1\nada,p2\ncy,p2\n")
    (folder / "train.txt").write_text("p1\n")
    out = folder / "typed.grappa"
    grappa.ingest(
        f"author:writes:paper={folder / 'writes.csv'}",
        nodes=[f"author={folder / 'authors.csv'}", f"paper={folder / 'papers.csv'}"],
        src="writes=author",
        dst="writes=paper",
        label="paper=area",
        train=f"paper={folder / 'train.txt'}",
        reverse=True,
        out=out,
    )
    return out


@pytest.fixture(scope="session")
def weighted(tmp_path_factory):
    """A store with edge weights, and its edges: shape (e, 2), with the weight of each."""
    random = np.random.default_rng(5)
    pairs = np.unique(random.integers(0, 60, (500, 2)), axis=0)
    weights = (4.0 ** (np.arange(len(pairs)) % 5)).astype(np.float32)
    out = tmp_path_factory.mktemp("stores") / "weighted.grappa"
    return grappa.ingest(pairs, weights=weights, out=out), pairs, weights


@pytest.fixture(scope="session")
def with_edge_features(tmp_path_factory):
    """A store whose edges have their source, destination and number as features. Parallel edges differ in the number."""
    pairs = np.random.default_rng(6).integers(0, 50, (600, 2))
    features = np.column_stack([pairs, np.arange(len(pairs))]).astype(np.float32)
    out = tmp_path_factory.mktemp("stores") / "edge-features.grappa"
    return grappa.ingest(pairs, edge_features=features, chunks=4, out=out), pairs


def cannot_train():
    """Why no ``grappa-train`` can start; an empty text if one can."""
    try:
        programs.command()
    except programs.Missing as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def run(cora, tmp_path_factory):
    """A run of two epochs on Cora."""
    if why := cannot_train():
        pytest.skip(why)
    return grappa.train(cora, out=tmp_path_factory.mktemp("runs") / "run", epochs=2, hidden=16, fanouts=[15, 10])
