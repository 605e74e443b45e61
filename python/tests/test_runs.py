"""Runs of the trainer from Python."""

import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import CORA, cannot_train

import grappa
from grappa import programs


def test_a_run_has_metrics_configuration_and_scores(run):
    assert run.metrics["epoch"].tolist() == [1, 2]
    assert run.metrics["loss"][1] < run.metrics["loss"][0]
    assert run.metrics["seconds_by_stage.forward"].dtype == np.float64
    assert np.isnan(run.metrics["val_roc_auc"]).all()
    assert run.config["hidden"] == 16
    assert run.summary["test_accuracy"] == run.metrics["test_accuracy"][run.summary["best_epoch"] - 1]
    again = grappa.Run(run.path)
    assert again.summary == run.summary
    assert repr(again).startswith(f"grappa.Run({run.path!r}: 2 epochs, val accuracy ")


def _flipped(name, before, after):
    def damage(folder):
        path = folder / name
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after, 1))

    return damage


def _lines(order):
    def damage(folder):
        path = folder / "metrics.jsonl"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[place] for place in order))

    return damage


def _written(name, contents):
    return lambda folder: (folder / name).write_bytes(contents)


def _cut(name, length):
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:-length])


DAMAGES = {
    "a digit of the metrics": (_flipped("metrics.jsonl", '"epoch":1', '"epoch":7'), "metrics", "metrics.jsonl:1"),
    "a loss": (_flipped("metrics.jsonl", '"loss":', '"loss":1'), "metrics", "metrics.jsonl:1"),
    "lines out of order": (_lines([1, 0]), "metrics", "metrics.jsonl:2"),
    "a line twice": (_lines([0, 0, 1]), "metrics", "metrics.jsonl:2"),
    "no first line": (_lines([1]), "metrics", "metrics.jsonl:1"),
    "no last line": (_lines([0]), "metrics", "metrics.jsonl"),
    "half of the last line": (_cut("metrics.jsonl", 30), "metrics", "metrics.jsonl"),
    "an empty file of metrics": (_written("metrics.jsonl", b""), "metrics", "metrics.jsonl"),
    "a list for an object": (_written("metrics.jsonl", b"[1]\n[2]\n"), "metrics", "metrics.jsonl:1"),
    "metrics that are no text": (_written("metrics.jsonl", b"\xff\xfe\n\n"), "metrics", "metrics.jsonl:1"),
    "no metrics": (lambda folder: (folder / "metrics.jsonl").unlink(), "metrics", "metrics.jsonl"),
    "another score": (_flipped("summary.json", '"test_accuracy": 0.', '"test_accuracy": 0.9'), "summary", "summary.json"),
    "half a summary": (_cut("summary.json", 60), "summary", "summary.json"),
    "an empty summary": (_written("summary.json", b""), "summary", "summary.json"),
    "a summary that is a number": (_written("summary.json", b"7\n"), "summary", "summary.json"),
    "another option": (_flipped("config.toml", "hidden = 16", "hidden = 17"), "config", "config.toml"),
    "half a configuration": (_cut("config.toml", 10), "config", "config.toml"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_of_a_run_are_named_with_a_remedy(damage, run, tmp_path):
    make, what, place = DAMAGES[damage]
    folder = tmp_path / "run"
    shutil.copytree(run.path, folder)
    damaged = grappa.Run(folder)
    assert getattr(damaged, what)
    make(folder)
    with pytest.raises(grappa.Error) as caught:
        getattr(damaged, what)
    assert place in str(caught.value)
    assert any(remedy in str(caught.value) for remedy in ("from a copy", "resume=True", "force=True"))
    assert repr(damaged).startswith("grappa.Run(")


def test_metrics_become_a_data_frame(run):
    pytest.importorskip("pandas")
    assert run.metrics.to_pandas()["epoch"].tolist() == [1, 2]


def test_predictions_follow_the_nodes(run, store):
    classes = run.predict(store)
    logits = run.predict(store, values="logits")
    assert np.array_equal(classes, logits.argmax(1))
    assert run.predict(store, values="embeddings").shape == (2708, 16)
    nodes = [2707, 0, 5, 5]
    assert np.allclose(run.predict(store, nodes, values="logits"), logits[nodes], atol=1e-5)
    mask = np.zeros(2708, dtype=bool)
    mask[nodes] = True
    assert np.array_equal(run.predict(store.path, mask), classes[[0, 5, 2707]])
    test = store.split("test")
    hits = run.predict(store, split="test") == store.labels[test]
    assert hits.mean() == pytest.approx(run.summary["test_accuracy"])


def test_predictions_become_a_table(run, store):
    pytest.importorskip("pyarrow")
    table = run.predict_table(store, [7, 3], values="probabilities")
    assert table["id"].to_pylist() == [7, 3]
    assert table.column_names[-1] == "probability_6"


def test_string_ids_find_their_nodes(run, tmp_path):
    lines = (CORA / "edges.tsv").read_text().splitlines()
    edges = tmp_path / "edges.tsv"
    edges.write_text("".join(line.replace("\t", "p\t") + "p\n" for line in lines if not line.startswith("#")))
    inputs = {"features": CORA / "features.npz", "labels": CORA / "labels.npy", "undirected": True, "dedup": True}
    store = grappa.ingest(edges, ids="string", out=tmp_path / "strings.grappa", **inputs)
    pytest.importorskip("pyarrow")
    assert run.predict_table(store, [9, 2])["id"].to_pylist() == store.ids([9, 2]).tolist() == ["1008p", "1001p"]


def test_ids_are_taken_for_nodes(run, store, link_run):
    nodes = [9, 2, 9]
    ids = store.ids(nodes)
    assert np.array_equal(run.predict(store, ids=ids, values="logits"), run.predict(store, nodes, values="logits"))
    assert np.array_equal(run.predict(store.path, ids=ids), run.predict(store, nodes))
    of_links, links = link_run
    assert np.array_equal(of_links.predict(links, ids=["u7"], top_k=2).sources, links.nodes(["u7"]))
    with pytest.raises(ValueError, match="ids and nodes are both given"):
        run.predict(store, [0], ids=ids)
    with pytest.raises(ValueError, match="ids and split are both given"):
        run.predict_table(store, ids=ids, split="test")


def test_a_model_of_pytorch_geometric_has_the_same_logits(run, store):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    pytest.importorskip("safetensors")
    sources = [store.in_neighbors(node) for node in range(store.num_nodes)]
    destinations = np.repeat(np.arange(store.num_nodes), [len(of) for of in sources])
    edge_index = torch.from_numpy(np.stack([np.concatenate(sources), destinations]))
    model = run.model()
    with torch.no_grad():
        logits = model(torch.from_numpy(store.features[:]), edge_index).numpy()
    assert np.abs(logits - run.predict(store, values="logits")).max() < 1e-5
    assert model.task == "multi-class"


def test_a_damaged_export_is_refused(run, tmp_path):
    pytest.importorskip("torch_geometric")
    pytest.importorskip("safetensors")
    file = tmp_path / "model.safetensors"
    run.export(file)
    grappa.model.load(file)
    whole = file.read_bytes()
    for at in range(0, len(whole), len(whole) // 60):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        with pytest.raises(Exception) as error:
            grappa.model.load(file)
        # The header belongs to safetensors, and what it accepts is compared with the digest.
        assert isinstance(error.value, ValueError) or "safetensors" in type(error.value).__module__ + str(error.value).lower(), at


@pytest.fixture(scope="module")
def link_run(tmp_path_factory):
    """A run of links, and its store: people who buy things of their kind, with ids that are strings."""
    if why := cannot_train():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("links")
    random = np.random.default_rng(1)
    people = random.integers(0, 100, 1500)
    things = people % 5 * 20 + random.integers(0, 20, 1500)
    (folder / "edges.csv").write_text("user,item\n" + "".join(f"u{a},i{b}\n" for a, b in zip(people, things)))
    store = grappa.ingest(
        folder / "edges.csv", ids="string", undirected=True, dedup=True, edge_split="80/10/10", out=folder / "links.grappa"
    )
    store.add_features("fastrp", dim=16)
    return grappa.train(store, out=folder / "run", task="link", epochs=3, hidden=16, fanouts=[5, 5]), store


def test_links_are_scored_and_the_best_destinations_found(link_run):
    run, store = link_run
    sources = store.nodes(["u7", "u3", "u7"])
    best = run.predict(store, sources, top_k=4)
    assert np.array_equal(best.sources, sources)
    assert best.targets.shape == best.scores.shape == (3, 4)
    assert np.array_equal(best.targets[0], best.targets[2])
    assert (np.diff(best.scores, axis=1) <= 0).all()
    pairs = np.stack([np.repeat(sources, 4), best.targets.ravel()])
    assert np.allclose(run.predict(store, links=pairs), best.scores.ravel(), atol=1e-5)
    # No destination of all nodes has a higher score.
    others = np.setdiff1d(np.arange(store.num_nodes), sources[:1])
    scores = run.predict(store.path, links=np.stack([np.full(len(others), sources[0]), others]))
    assert np.allclose(np.sort(scores)[::-1][:4], best.scores[0], atol=1e-5)


def test_rankings_of_sources_equal_pytorch_geometric(tmp_path):
    if why := cannot_train():
        pytest.skip(why)
    torch = pytest.importorskip("torch")
    metrics = pytest.importorskip("torch_geometric.metrics")
    random = np.random.default_rng(5)
    users, items = 60, np.arange(60, 110)
    pairs = np.unique(np.stack([random.integers(0, users, 900), random.choice(items, 900)]), axis=1)
    edges = dict(zip(("graph", "val", "test"), np.split(random.permutation(pairs, axis=1), [400, 500], axis=1)))
    store = grappa.ingest(
        edges["graph"], val_edges=edges["val"], test_edges=edges["test"], out=tmp_path / "shop.grappa"
    )
    store.add_features("fastrp", dim=16)
    (tmp_path / "items.txt").write_text("".join(f"{item}\n" for item in items))
    options = {"among": tmp_path / "items.txt", "monitor": "recall@20", "epochs": 3, "hidden": 16, "dropout": 0}
    run = grappa.train(store, out=tmp_path / "run", task="link", **options)
    assert run.metrics["val_recall_at_20"].max() == run.summary["val_recall_at_20"]
    assert f"test recall at 20 {run.summary['test_recall_at_20']:.2%}" in repr(run)
    every = np.stack([np.repeat(np.arange(users), len(items)), np.tile(items, users)])
    numbers = store.nodes(every.ravel()).reshape(2, -1)
    scores = torch.from_numpy(run.predict(store, links=numbers)).view(users, len(items))
    for split, other in (("val", "test"), ("test", "val")):
        ranked = scores.clone()
        for known in (edges["graph"], edges[other]):
            ranked[known[0], known[1] - users] = -torch.inf
        best = ranked.argsort(dim=1, descending=True)
        held_out = torch.from_numpy(edges[split] - [[0], [users]])
        for name, metric in (("recall", "LinkPredRecall"), ("map", "LinkPredMAP"), ("ndcg", "LinkPredNDCG")):
            for k in (10, 20) if split == "test" else (20,):
                expected = getattr(metrics, metric)(k)
                expected.update(best[:, :k], held_out)
                key = f"{name}_at_{k}"
                found = run.summary["links"]["by_source"][key] if split == "test" else run.summary[f"val_{key}"]
                assert found == pytest.approx(expected.compute().item(), rel=1e-5), (split, key)


def test_edges_are_ranked_among_destinations_without_an_edge_in_any_part(tmp_path):
    if why := cannot_train():
        pytest.skip(why)
    random = np.random.default_rng(6)
    users, items = 40, np.arange(40, 70)
    pairs = np.unique(np.stack([random.integers(0, users, 500), random.choice(items, 500)]), axis=1)
    graph, val, test = np.split(random.permutation(pairs, axis=1), [200, 270], axis=1)
    store = grappa.ingest(graph, val_edges=val, test_edges=test, out=tmp_path / "shop.grappa")
    store.add_features("fastrp", dim=16)
    items_of_store = store.nodes(items)
    for among in (None, items):
        options = {} if among is None else {"among": tmp_path / "items.txt"}
        if among is not None:
            np.savetxt(options["among"], items, fmt="%d")
        run = grappa.train(
            store, out=tmp_path / f"run{among is None}", task="link", candidates="all", epochs=2, hidden=16, dropout=0, **options
        )
        destinations = np.arange(users + len(items)) if among is None else items
        every = np.stack([np.repeat(np.arange(users), len(destinations)), np.tile(destinations, users)])
        scores = run.predict(store, links=store.nodes(every.ravel()).reshape(2, -1)).reshape(users, -1)
        position = {destination: at for at, destination in enumerate(destinations)}
        unknown = np.array([[user != destination for destination in destinations] for user in range(users)])
        for user, item in np.concatenate([graph, val, test], axis=1).T:
            unknown[user, position[item]] = False
        for part, edges in (("val", val), ("test", test)):
            ranks = []
            for user, item in edges.T:
                score, others = scores[user, position[item]], scores[user, unknown[user]]
                ranks.append(1 + (others > score).sum() + (others == score).sum() / 2)
            assert run.summary[f"{part}_mrr"] == pytest.approx(np.mean(1 / np.array(ranks)), rel=1e-3), (part, among)
    best = run.predict(store, store.nodes([0, 1]), top_k=5, among=items_of_store)
    assert np.isin(best.targets, items_of_store).all()


def test_known_destinations_are_left_out_and_their_places_stay_empty(link_run):
    run, store = link_run
    source = store.nodes(["u3"])
    every = store.num_nodes - 1
    with pytest.warns(UserWarning, match="have fewer destinations than top_k= asks for"):
        unknown = run.predict(store, source, top_k=every, exclude_known=True)
    known = set(range(store.num_nodes)) - set(unknown.targets[0])
    assert set(store.in_neighbors(source[0])) <= known
    missing = unknown.targets[0] < 0
    assert missing.sum() >= len(store.in_neighbors(source[0])) and np.isnan(unknown.scores[0][missing]).all()


def test_links_become_a_table(link_run):
    pytest.importorskip("pyarrow")
    run, store = link_run
    table = run.predict_table(store, store.nodes(["u9", "u4"]), top_k=2)
    assert table.column_names == ["source", "target", "score"] and table["source"].to_pylist() == ["u9", "u9", "u4", "u4"]
    pairs = np.stack([store.nodes(["u1", "u2"]), store.nodes(["i5", "i6"])])
    assert run.predict_table(store, links=pairs)["target"].to_pylist() == ["i5", "i6"]


def test_mistakes_about_links_are_named(link_run, run, store):
    of_links, links = link_run
    with pytest.raises(ValueError, match="links has both ends"):
        of_links.predict(links, [0], links=[[0], [1]])
    with pytest.raises(ValueError, match="values='logits' is for nodes"):
        of_links.predict(links, [0], top_k=3, values="logits")
    with pytest.raises(ValueError, match=r"links is an array .* of shape \(3, 1\)"):
        of_links.predict(links, links=[[0], [1], [2]])
    with pytest.raises(IndexError, match="no node 1000000"):
        of_links.predict(links, links=[[0], [1_000_000]])
    with pytest.raises(grappa.Error, match='task="link"'):
        run.predict(store, [0], top_k=3)


def test_targets_are_predicted_by_the_run_and_by_its_model_in_their_unit(cora, store, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    pytest.importorskip("safetensors")
    degrees = np.diff(store.in_edges(slice(None))[0])
    targets = np.stack([1000.0 * degrees, 0.01 * np.log1p(degrees)], axis=1)
    targets[::5, 1] = np.nan
    inputs = {"features": store.features[:], "labels": targets, "label_type": "float", "split": "60/20/20"}
    numbers = grappa.ingest(CORA / "edges.tsv", undirected=True, out=tmp_path / "numbers.grappa", **inputs)
    run = grappa.train(numbers, out=tmp_path / "run", epochs=2, hidden=16)
    predicted = run.predict(numbers)
    assert predicted.shape == (2708, 2) and predicted[:, 0].mean() > 1000 * predicted[:, 1].mean()
    model = run.model()
    with torch.no_grad():
        data = numbers.to_pyg()
        of_model = model(data.x, data.edge_index).numpy()
    assert model.task == "regression"
    assert np.abs((of_model - predicted) / predicted.std(0)).max() < 1e-4


def test_the_report_is_shown_in_a_frame(run):
    shown = run._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "&lt;html" in shown and "<html" not in shown


def test_mistakes_are_the_programs_errors(run, cora, store, tmp_path):
    with pytest.raises(ValueError, match="^there is no option epoch=: did you mean epochs=[?]$"):
        grappa.train(store, out=tmp_path / "x", epoch=2)
    with pytest.raises(grappa.Error, match="already contains a run"):
        grappa.train(cora, out=run.path)
    with pytest.raises(grappa.Error, match="is no run"):
        grappa.Run(tmp_path)
    with pytest.raises(ValueError, match="give one of 'classes'"):
        run.predict(store, values="class")
    with pytest.raises(ValueError, match="both given"):
        run.predict(store, [0], split="test")
    with pytest.raises(IndexError, match="no node 2708"):
        run.predict(store, [2708])


def test_mistakes_of_training_have_fields(run, cora, tmp_path):
    with pytest.raises(ValueError, match="^hidden is 0; it must be at least 1$") as caught:
        grappa.train(cora, out=tmp_path / "x", hidden=0)
    assert (caught.value.option, caught.value.expected, caught.value.found) == ("hidden", "at least 1", "0")
    with pytest.raises(ValueError) as caught:
        grappa.train(cora, out=tmp_path / "x", halo="far")
    assert (caught.value.option, caught.value.found) == ("halo", "far") and "neighbors" in caught.value.expected
    with pytest.raises(ValueError) as caught:
        grappa.train(cora, out=tmp_path / "x", epoch=2)
    assert (caught.value.option, caught.value.expected) == ("epoch", "epochs")
    with pytest.raises(grappa.Error, match="memory") as caught:
        grappa.train(cora, out=tmp_path / "x", memory="1MiB", epochs=1)
    assert (caught.value.option, caught.value.found) == ("memory", str(1 << 20))


def test_the_failure_of_a_worker_is_the_failure_of_the_run(run, cora, tmp_path):
    with pytest.raises(ValueError, match="^hidden is 0; it must be at least 1$") as caught:
        grappa.train(cora, out=tmp_path / "x", hidden=0, workers=2, partitions=4)
    assert caught.value.option == "hidden"


def test_a_program_that_crashes_is_named_with_its_last_lines(run, monkeypatch, tmp_path):
    script = tmp_path / "grappa-train"
    script.write_text("#!/bin/sh\necho about to crash\nkill -SEGV $$\n")
    script.chmod(0o755)
    monkeypatch.setenv("GRAPPA_PROGRAMS", str(tmp_path))
    with pytest.raises(grappa.Error, match="(?s)was ended by SIGSEGV.*about to crash$"):
        run.export(tmp_path / "model.safetensors")


def test_warnings_of_the_program_are_warnings(run, tmp_path):
    inputs = {"features": CORA / "features.npz", "labels": CORA / "labels.npy", "train": CORA / "train.npy"}
    store = grappa.ingest(CORA / "edges.tsv", undirected=True, out=tmp_path / "train.grappa", **inputs)
    with pytest.warns(UserWarning, match="^early_stopping=1 has no effect"):
        grappa.train(store, out=tmp_path / "run", epochs=1, hidden=8, early_stopping=1)


def test_ctrl_c_writes_a_checkpoint_and_the_run_continues(cora, tmp_path, run):
    out = tmp_path / "stopped"
    script = "import grappa, sys; grappa.train(sys.argv[1], out=sys.argv[2], epochs=100_000, hidden=8, progress=True)"
    process = subprocess.Popen([sys.executable, "-c", script, cora, out], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.split()[:2] == ["epoch", "2/100000"]:
            break
    process.send_signal(signal.SIGINT)
    told = process.stderr.read()
    process.wait()
    assert "KeyboardInterrupt: resume=True continues" in told, told
    stopped = grappa.Run(out)
    epochs = len(stopped.metrics["epoch"])
    assert " of 100000, val accuracy" in repr(stopped) and epochs >= 2
    assert grappa.train(cora, out=out, resume=True, epochs=epochs + 2).summary["epochs"] == epochs + 2


def test_the_program_of_a_development_tree_is_found_by_its_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("GRAPPA_PROGRAMS", str(tmp_path))
    with pytest.raises(programs.Missing, match="has no program grappa-train"):
        programs.command()
    (tmp_path / "grappa-train").touch(0o755)
    assert programs.command()[0] == str(tmp_path / "grappa-train")
    monkeypatch.delenv("GRAPPA_PROGRAMS")
    monkeypatch.setattr(programs, "FOLDER", "nowhere")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert programs.command()[0] == str(tmp_path / "grappa-train")
    (tmp_path / "grappa-train").unlink()
    with pytest.raises(programs.Missing, match="install the wheel"):
        programs.command()


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("2.9.1+cpu", "is PyTorch 2.9.1, and grappa-train needs PyTorch 2.11"),
        (None, "unknown version"),
        ("2.11.0", "no libtorch_cpu.so"),
    ],
)
def test_another_pytorch_is_named_with_a_remedy(monkeypatch, tmp_path, version, message):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    if version:
        (package / "version.py").write_text(f"__version__ = '{version}'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(programs.Missing, match=message) as caught:
        programs.libtorch()
    assert 'pip install "grappa[train]"' in str(caught.value)


def test_without_pytorch_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(programs.Missing, match="has no PyTorch"):
        programs.libtorch()
