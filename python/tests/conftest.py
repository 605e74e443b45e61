"""Cora, ingested once."""

from pathlib import Path

import pytest

import grappa

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
