"""Tasks of entities beside tables with keys, in folders and in memory."""

from types import SimpleNamespace

import numpy as np
import pytest

import grappa

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

USERS = {"id": ["ann", "bob", "cy"], "age": [30, 40, 50]}
ORDERS = {"user": ["ann", "bob", "ann"], "price": [9.5, 3.0, 1.0]}
KEYS = {"keys": {"users": "id"}, "foreign_keys": {"orders.user": "users", "churn.user": "users"}}
TIMES = {"node_time": "churn=at"}


def parts():
    """The rows of each split of a task. Those for test hide their targets."""
    at = pandas.to_datetime(["2024-01-03", "2024-01-02", "2024-01-05", "2024-01-09"])
    rows = pandas.DataFrame({"user": ["bob", "ann", "cy", "bob"], "at": at, "churned": [1, 0, 1, 0]})
    return {"test": rows[3:].drop(columns="churned"), "train": rows[:2], "val": rows[2:3]}


def inputs(form, tmp_path):
    """The arguments of ingest, in one of the forms of tables."""
    tables = {"users": pandas.DataFrame(USERS), "orders": pandas.DataFrame(ORDERS)}
    if form == "memory":
        return {"tables": tables, "tasks": {"churn": parts()}, **KEYS, **TIMES}
    if form == "relbench":
        of = SimpleNamespace

        def table(df, key, foreign, time):
            return of(df=df, pkey_col=key, fkey_col_to_pkey_table=foreign, time_col=time)

        task = of(get_table=lambda split: table(parts()[split], None, {"user": "users"}, "at"))
        tables = of(table_dict={
            "users": table(tables["users"], "id", {}, None), "orders": table(tables["orders"], None, {"user": "users"}, None),
        })  # fmt: skip
        return {"tables": tables, "tasks": {"churn": task}}
    folder = tmp_path / "shop"
    (folder / "db").mkdir(parents=True)
    (folder / "tasks" / "churn").mkdir(parents=True)
    for name, table in tables.items():
        table.to_parquet(folder / "db" / f"{name}.parquet")
    for split, table in parts().items():
        table.to_parquet(folder / "tasks" / "churn" / f"{split}.parquet", index=False)
    return {"tables": folder, **KEYS, **TIMES}


@pytest.mark.parametrize("form", ["folder", "memory", "relbench"])
def test_a_task_is_a_node_type(form, tmp_path):
    graph = grappa.ingest(**inputs(form, tmp_path), out=tmp_path / "g.grappa")
    assert graph.edge_types == [("orders", "user", "users"), ("users", "rev_user", "orders"), ("users", "user", "churn")]
    task = graph["churn"]
    assert task.num_nodes == 4 and task.has_node_times and task.num_classes == 2
    rows = task.nodes([0, 1, 2, 3])
    labels = task.labels[rows]
    assert labels[:3].tolist() == [1, 0, 1]
    assert {name: sorted(np.asarray(task.ids(task.split(name))).tolist()) for name in ("train", "val", "test")} == {
        "train": [0, 1], "val": [2], "test": [3],
    }  # fmt: skip
    assert "churn" in str(graph.ingested) and ".grappa-tables-" not in str(graph.ingested)


def test_tasks_of_a_folder_are_chosen_by_their_names(tmp_path):
    arguments = inputs("folder", tmp_path)
    without = {"keys": KEYS["keys"], "foreign_keys": {"orders.user": "users"}, "tables": arguments["tables"]}
    assert "churn" in grappa.ingest(**arguments, tasks=["churn"], out=tmp_path / "g.grappa").node_types
    assert grappa.ingest(**without, tasks=[], out=tmp_path / "h.grappa").node_types == ["orders", "users"]
    with pytest.raises(ValueError, match="task= and tasks= say the same"):
        grappa.ingest(**arguments, tasks=["churn"], task="churn", out=tmp_path / "i.grappa")
    with pytest.raises(TypeError, match=r"tasks=\['churn'\]"):
        grappa.ingest(**arguments, tasks="churn", out=tmp_path / "i.grappa")
    with pytest.raises(grappa.Error, match="no such task.*there are churn"):
        grappa.ingest(**arguments, tasks=["stay"], out=tmp_path / "i.grappa")


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"tasks": ["churn"]}, TypeError, "tables in memory have their tasks in memory"),
        ({"tasks": {"users": parts()}}, ValueError, "tasks has 'users', which is the name of a table"),
        ({"tasks": {"a/b": parts()}}, ValueError, "tasks has the name 'a/b'"),
        ({"tasks": {"churn": {"train": parts()["train"], "valid": parts()["val"]}}}, ValueError, r"tasks\['churn'\] has 'train', 'valid'"),
        ({"tasks": {"churn": {"val": parts()["val"]}}}, ValueError, "'train', 'val' and 'test'"),
        ({"tasks": {"churn": {"train": 3}}}, TypeError, r"tasks\['churn'\]\['train'\] is a int"),
        ({"foreign_keys": {"orders.user": "users", "churn.who": "users"}}, ValueError, r"tasks\['churn'\]\['train'\] has no column 'who'"),
        ({"foreign_keys": {"orders.user": "users"}}, grappa.Error, "the task churn has no foreign key"),
        ({"link_tables": ["churn"]}, ValueError, "link_tables has 'churn', and there is no such table"),
        ({"tables": None}, ValueError, "give tables="),
    ],
)
def test_wrong_tasks_are_named(options, kind, message, tmp_path):
    arguments = {**inputs("memory", tmp_path), **options}
    with pytest.raises(kind, match=message):
        grappa.ingest(**arguments, out=tmp_path / "g.grappa")
    assert not list(tmp_path.iterdir())
