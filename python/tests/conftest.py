"""Cora, ingested once."""

from pathlib import Path

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


def cannot_train():
    """Why no ``grappa-train`` can start; an empty text if one can."""
    try:
        programs.command("grappa-train")
    except programs.Missing as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def run(cora, tmp_path_factory):
    """A run of two epochs on Cora."""
    if why := cannot_train():
        pytest.skip(why)
    return grappa.train(cora, out=tmp_path_factory.mktemp("runs") / "run", epochs=2, hidden=16, fanouts=[15, 10])
