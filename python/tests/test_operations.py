"""Generated graphs, and the commands of grappa-store on an open store."""

import pytest

import grappa


@pytest.fixture
def blocks(tmp_path):
    return grappa.generate("sbm", nodes=500, classes=3, feature_dim=4, seed=1, out=tmp_path / "blocks.grappa")


def test_a_generated_store_has_what_its_options_say(blocks, tmp_path):
    assert (blocks.num_nodes, blocks.num_classes, blocks.num_features) == (500, 3, 4)
    assert blocks.ingested["edges"] == blocks.num_edges
    edges = tmp_path / "edges.npy"
    summary = grappa.generate("sbm", nodes=500, classes=3, feature_dim=4, seed=1, as_="npy", out=edges)
    assert summary["edges"] == blocks.num_edges and edges.exists()
    names = ["edges.npy", "edges.features.npy", "edges.labels.npy", "edges.train.npy", "edges.val.npy", "edges.test.npy"]
    assert summary["files"] == [str(tmp_path / name) for name in names]
    assert grappa.generate("er", nodes=9, **{"as": "tsv"}, out=tmp_path / "er.tsv")["files"] == [str(tmp_path / "er.tsv")]


def test_a_store_is_open_again_after_a_command_that_changes_it(blocks):
    features = blocks.features[:5]
    partitions = blocks.repartition(3, schedule="shuffle", seed=2)
    assert partitions["partitions"] == blocks.num_partitions == len(partitions["by_partition"]) == 3
    assert blocks.preaggregate("mean", dtype="f16")["nodes"] == 500
    assert (blocks.features[:5] == features).all()
    assert blocks.verify()["ok"]


def test_features_are_added_to_a_store_that_has_none(tmp_path):
    store = grappa.generate("er", nodes=100, edge_factor=3, out=tmp_path / "er.grappa")
    with pytest.raises(grappa.Error, match="no stored features"):
        store.features[0]
    assert store.add_features("fastrp", dim=8, hop_weights=[0, 1, 0.5])["dim"] == 8
    assert store.features[:].shape == (100, 8)


def test_damage_is_an_error_that_lists_each_problem(blocks):
    file = max(blocks.path.rglob("*"), key=lambda path: path.stat().st_size if path.is_file() else 0)
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(grappa.Error, match=f"1 problem found\n.*{file.name}: "):
        blocks.verify()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda store: store.repartition(0), "partitions"),
        (lambda store: store.repartition(2, scedule="sweep"), "^there is no option scedule=: did you mean schedule=[?]$"),
        (lambda store: store.preaggregate("median"), "possible values: mean, gcn, sum"),
        (lambda store: store.add_features("fastrp", hop_weights=[]), "hop_weights=\\[\\] is empty"),
        (lambda store: grappa.generate("sbm", out=store.path), "scale=<S>|nodes=<N>"),
        (lambda store: grappa.generate("er", nodes=9, out=store.path), "exists"),
    ],
)
def test_wrong_options_are_named(blocks, use, message):
    with pytest.raises((ValueError, grappa.Error), match=message):
        use(blocks)


def test_progress_is_shown_by_stage(tmp_path, capsys):
    pytest.importorskip("tqdm")
    grappa.generate("er", nodes=200_000, edge_factor=10, out=tmp_path / "er.grappa", progress=True)
    assert "100%" in capsys.readouterr().err
