//! Tasks of RelBench beside its tables: rows of an entity, a time and a target.

use std::fs;

use grappa_engine::{ExternalId, Graph};
use grappa_tests::{
    folder::ProgramFolder,
    held::Held,
    parquet::{Column, write_described},
};
use serde_json::{Value, json};

use crate::graphs::{edges_of, pairs, relations_of};

const DAY: i64 = 86_400_000;

/// Writes a table with its keys, as `Table.save` of RelBench does.
fn write(folder: &ProgramFolder, name: &str, columns: &[(&str, Column<'_>)], keys: [Value; 3]) {
    let path = folder.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let [primary, foreign, time] = keys.map(|key| key.to_string());
    write_described(
        &path,
        columns,
        2,
        &[("pkey_col", &primary), ("fkey_col_to_pkey_table", &foreign), ("time_col", &time)],
    );
}

/// Writes a file of a task of users, with a target for each row if there are some.
fn write_part(folder: &ProgramFolder, name: &str, users: &[i64], days: &[i64], target: Option<(&str, Column<'_>)>) {
    let times: Vec<i64> = days.iter().map(|day| day * DAY).collect();
    let columns = [("timestamp", Column::Milliseconds(&times)), ("user_id", Column::Integers(users))];
    let columns: Vec<_> = columns.into_iter().chain(target).collect();
    write(folder, name, &columns, task_keys());
}

fn task_keys() -> [Value; 3] {
    [json!(null), json!({"user_id": "users"}), json!("timestamp")]
}

/// Users, items and orders, without tasks.
fn write_tables(folder: &ProgramFolder) {
    write(
        folder,
        "shop/db/users.parquet",
        &[("user_id", Column::Integers(&[10, 11, 12])), ("age", Column::Floats(&[30.0, 40.0, 50.0]))],
        [json!("user_id"), json!({}), json!(null)],
    );
    write(
        folder,
        "shop/db/items.parquet",
        &[("item_id", Column::Integers(&[7, 9])), ("price", Column::Floats(&[1.5, 2.5]))],
        [json!("item_id"), json!({}), json!(null)],
    );
    write(
        folder,
        "shop/db/orders.parquet",
        &[
            ("user_id", Column::Integers(&[10, 11, 12])),
            ("item_id", Column::Optional(&[Some(7), None, Some(9)])),
            ("at", Column::Milliseconds(&[0, DAY, 2 * DAY])),
        ],
        [json!(null), json!({"user_id": "users", "item_id": "items"}), json!("at")],
    );
}

/// The tables with two tasks: classes, whose test labels are hidden, and numbers.
fn shop() -> ProgramFolder {
    let folder = ProgramFolder::new();
    write_tables(&folder);
    let classes = |values| Some(("churn", Column::Optional(values)));
    let train = [Some(1), Some(0), None];
    write_part(&folder, "shop/tasks/churn/train.parquet", &[12, 10, 11], &[3, 2, 3], classes(&train));
    write_part(&folder, "shop/tasks/churn/val.parquet", &[11, 10], &[6, 5], classes(&[Some(0), Some(1)]));
    write_part(&folder, "shop/tasks/churn/test.parquet", &[12, 10], &[8, 8], None);
    for (split, day, value) in [("train", 3, 1.5), ("val", 6, 2.0), ("test", 8, 2.5)] {
        let spent = Some(("spent", Column::Floats(&[value])));
        write_part(&folder, &format!("shop/tasks/spend/{split}.parquet"), &[11], &[day], spent);
    }
    folder
}

/// The text of an export of a node type.
fn exported(folder: &ProgramFolder, node_type: &str, options: &str) -> String {
    folder.success(&format!("store export g.grappa --type {node_type} {options} out.csv --force"));
    folder.read("out.csv")
}

#[test]
fn the_rows_of_a_task_are_nodes_in_the_order_of_its_splits() {
    let folder = shop();
    let text = folder.success("ingest --tables shop --dry-run").stdout;
    for part in [
        "node type churn",
        "relation users:user_id:churn",
        "task churn: 7 rows (train 3, val 2, test 2) of users:user_id:churn, each at the time in timestamp; the targets in churn are classes",
        "task spend: 3 rows (train 1, val 1, test 1) of users:user_id:spend",
        "the targets in spent are numbers (--label-type spend=classes for classes)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    folder.success("ingest --tables shop --out g.grappa");
    folder.success("store verify g.grappa");
    assert_eq!(exported(&folder, "churn", "--labels"), "id,label\n0,1\n1,0\n2,-1\n3,0\n4,1\n5,-1\n6,-1\n");
    let times: String =
        [3, 2, 3, 6, 5, 8, 8].iter().enumerate().map(|(row, day)| format!("{row},{}\n", day * 86_400)).collect();
    assert_eq!(exported(&folder, "churn", "--node-times"), format!("id,time\n{times}"));
    for (split, rows) in [("train", "0\n1\n2\n"), ("val", "3\n4\n"), ("test", "5\n6\n")] {
        assert_eq!(exported(&folder, "churn", &format!("--split {split}")), rows);
    }
    assert_eq!(exported(&folder, "spend", "--labels"), "id,spent\n0,1.5\n1,2\n2,2.5\n");
    let entities = [("12", "0"), ("10", "1"), ("11", "2"), ("11", "3"), ("10", "4"), ("12", "5"), ("10", "6")];
    assert_eq!(edges_of(&folder.path("g.grappa"), "users:user_id:churn"), pairs(&entities));
    // A table without a key has its rows at the other end, and both directions.
    assert_eq!(edges_of(&folder.path("g.grappa"), "orders:item_id:items"), pairs(&[("0", "7"), ("2", "9")]));
    let info = folder.success("store info g.grappa --json").json();
    let relations = relations_of(&info);
    let of_tasks: Vec<_> =
        relations.iter().map(|(name, _)| name.as_str()).filter(|name| name.contains("churn")).collect();
    assert_eq!(of_tasks, ["users:user_id:churn"], "no node has rows of a task as in-neighbors");
    assert_eq!(relations.len(), 6);
}

#[test]
fn tasks_are_chosen_by_name() {
    let folder = shop();
    let types = |options: &str| {
        folder.success(&format!("ingest --tables shop --out g.grappa --force {options}"));
        let info = folder.success("store info g.grappa --json").json();
        let types = info["node_types"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node_type| node_type["name"].as_str().unwrap().to_owned());
        types.skip(3).collect::<Vec<_>>()
    };
    assert_eq!(types(""), ["churn", "spend"]);
    assert_eq!(types("--task spend"), ["spend"]);
    assert_eq!(types("--task spend --task churn"), ["churn", "spend"]);
    assert!(types("--task none").is_empty());
    let refused = |options: &str, parts: &[&str]| {
        folder.run(&format!("ingest --tables shop --out h.grappa {options}")).failure(parts);
    };
    refused("--task stay", &["--task stay", "no such task", "churn, spend"]);
    refused("--task none --task churn", &["--task none", "no task"]);
    refused("--reverse users:user_id:churn=rev", &["--reverse users:user_id:churn", "omit it"]);
    refused("--link-table churn", &["--link-table churn", "task"]);
    refused("--foreign-key orders.item_id=churn", &["points to churn, a task"]);
    folder.write("e.csv", "0,1\n");
    for line in ["--edges e.csv --task churn", "--edges a:to:b=e.csv --task churn", "--edges e.csv --key users.id"] {
        folder.run(&format!("ingest {line} --out h.grappa")).failure(&["is for the tables of --tables", "omit it"]);
    }
    // The reverses of all relations are those of tables.
    assert_eq!(types("--reverse --task churn"), ["churn"]);
    fs::remove_dir_all(folder.path("shop/tasks")).unwrap();
    refused("--task churn", &["--task churn", "there are no tasks", "omit --task"]);
}

#[test]
fn a_task_may_have_several_entities_features_and_no_times() {
    let folder = ProgramFolder::new();
    write_tables(&folder);
    let keys = || [json!(null), json!({"user_id": "users", "item_id": "items"}), json!(null)];
    let part = |name: &str, users: &[i64], items: &[Option<i64>], discounts: &[f32], bought: &[bool]| {
        write(
            &folder,
            &format!("shop/tasks/buys/{name}.parquet"),
            &[
                ("user_id", Column::Integers(users)),
                ("item_id", Column::Optional(items)),
                ("discount", Column::Floats(discounts)),
                ("bought", Column::Booleans(bought)),
            ],
            keys(),
        );
    };
    part("train", &[10, 11], &[Some(7), Some(9)], &[0.1, 0.2], &[true, false]);
    part("test", &[12], &[None], &[0.3], &[true]);
    let refused = folder.run("ingest --tables shop --out g.grappa").failure(&["several columns", "discount, bought"]);
    assert!(refused.stderr.contains("--label buys=discount"), "{}", refused.stderr);
    let text = folder.success("ingest --tables shop --label buys=bought --dry-run").stdout;
    assert!(
        text.contains("(train 2, test 1) of users:user_id:buys, items:item_id:buys")
            || text.contains("items:item_id:buys, users:user_id:buys, without times"),
        "{text}"
    );
    folder.success("ingest --tables shop --label buys=bought --out g.grappa");
    let path = folder.path("g.grappa");
    assert_eq!(edges_of(&path, "users:user_id:buys"), pairs(&[("10", "0"), ("11", "1"), ("12", "2")]));
    assert_eq!(edges_of(&path, "items:item_id:buys"), pairs(&[("7", "0"), ("9", "1")]));
    let info = folder.success("store info g.grappa --json").json();
    let task = &info["node_types"][3];
    assert_eq!((&task["times"], &task["feature_names"]), (&json!(null), &json!(["discount"])));
    assert_eq!(exported(&folder, "buys", "--labels"), "id,label\n0,1\n1,0\n2,1\n");
    folder.run("ingest --tables shop --label buys=sold --out h.grappa").failure(&["sold"]);
}

#[test]
fn a_task_in_one_file_has_the_splits_of_options() {
    let folder = ProgramFolder::new();
    write_tables(&folder);
    let folds = ["test", "train", "val", "train"].map(str::to_owned);
    let columns = [
        ("who", Column::Integers(&[10, 11, 12, 10])),
        ("when", Column::Milliseconds(&[4 * DAY, DAY, 2 * DAY, DAY])),
        ("fold", Column::Strings(&folds)),
        ("plan", Column::Strings(&["free", "gold", "free", "free"].map(str::to_owned))),
    ];
    let path = folder.path("shop/tasks/plans.parquet");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    write_described(&path, &columns, 3, &[]);
    let line = "ingest --tables shop --out g.grappa --force";
    folder.run(line).failure(&["plans", "no foreign key", "--foreign-key plans.COLUMN=TABLE", "--task none"]);
    let keys = "--foreign-key plans.who=users --time plans=when";
    folder.run(&format!("{line} {keys}")).failure(&["several columns", "fold, plan"]);
    folder.success(&format!("{line} {keys} --split-column plans=fold"));
    assert_eq!(exported(&folder, "plans", "--split train"), "1\n3\n");
    assert_eq!(exported(&folder, "plans", "--split test"), "0\n");
    assert_eq!(
        edges_of(&folder.path("g.grappa"), "users:who:plans"),
        pairs(&[("10", "0"), ("11", "1"), ("12", "2"), ("10", "3")])
    );
    let info = folder.success("store info g.grappa --json").json();
    assert_eq!(info["node_types"][3]["class_names"], json!(["free", "gold"]));
    let note = folder.success(&format!("{line} {keys} --label plans=plan --features-from plans= --dry-run")).stdout;
    assert!(note.contains("without splits (--split plans=80/10/10 draws them)"), "{note}");
    folder.success(&format!("{line} {keys} --label plans=plan --features-from plans= --split plans=50/25/25"));
    let info = folder.success("store info g.grappa --json").json();
    assert_eq!(info["node_types"][3]["splits"], json!({"train": 2, "val": 1, "test": 1}));
    // Text has no numbers of rows, so it needs ids.
    fs::remove_file(&path).unwrap();
    folder.write("shop/tasks/plans.csv", "id,who,when,plan\na,10,1970-01-02,free\nb,12,1970-01-03,gold\n");
    folder.run(&format!("{line} {keys}")).failure(&["plans.csv", "needs a primary key", "--key plans.id"]);
    folder.success(&format!("{line} {keys} --key plans.id"));
    assert_eq!(edges_of(&folder.path("g.grappa"), "users:who:plans"), pairs(&[("10", "a"), ("12", "b")]));
}

#[test]
fn a_task_with_ids_keeps_them() {
    let folder = ProgramFolder::new();
    write_tables(&folder);
    for (split, ids, users) in [("train", [30, 20], [10, 11]), ("val", [10, 50], [12, 12])] {
        write(
            &folder,
            &format!("shop/tasks/stays/{split}.parquet"),
            &[
                ("row", Column::Integers(&ids)),
                ("user_id", Column::Integers(&users)),
                ("stays", Column::Integers(&[1, 0])),
            ],
            [json!("row"), json!({"user_id": "users"}), json!(null)],
        );
    }
    folder.success("ingest --tables shop --out g.grappa");
    let by = [("10", "30"), ("11", "20"), ("12", "10"), ("12", "50")];
    assert_eq!(edges_of(&folder.path("g.grappa"), "users:user_id:stays"), pairs(&by));
    let mut train: Vec<_> = exported(&folder, "stays", "--split train").lines().map(str::to_owned).collect();
    train.sort();
    assert_eq!(train, ["20", "30"]);
    let graph = Graph::open(&folder.path("g.grappa")).unwrap();
    assert!(graph.node_types()[3].node(&ExternalId::Integer(50)).unwrap().is_some());
}

#[test]
fn mistakes_in_the_files_of_tasks_are_named() {
    let folder = shop();
    // Warnings about labels come before some errors.
    let refused = |parts: &[&str]| {
        let ran = folder.run("ingest --tables shop --out h.grappa");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        parts.iter().for_each(|part| assert!(ran.stderr.contains(part), "{part}: {ran:?}"));
    };
    // Predictions of links, as RelBench has them.
    let rec = |name: &str| {
        write(
            &folder,
            &format!("shop/tasks/{name}/train.parquet"),
            &[("user_id", Column::Integers(&[10])), ("item_id", Column::Lists(2, &[7.0, 9.0]))],
            [json!(null), json!({"user_id": "users", "item_id": "items"}), json!(null)],
        );
    };
    rec("buys");
    rec("views");
    refused(&[
        "the task buys predicts links",
        "the task views",
        "item_id has a list",
        "give --task churn --task spend",
    ]);
    folder.success("ingest --tables shop --task churn --task spend --dry-run");
    let lists = Some(("scores", Column::Lists(2, &[0.5, 1.0])));
    folder.remove("shop/tasks/buys");
    folder.remove("shop/tasks/views");
    write_part(&folder, "shop/tasks/ranks/train.parquet", &[10], &[1], lists);
    refused(&["ranks", "lists in scores", "give --task churn --task spend"]);
    write_part(&folder, "shop/tasks/ranks/train.parquet", &[10], &[1], None);
    refused(&["ranks", "no column with targets"]);
    folder.remove("shop/tasks/ranks");
    // Files of one task that contradict one another.
    let classes = || Some(("churn", Column::Integers(&[1])));
    let other = |columns: &[(&str, Column<'_>)], keys: [Value; 3]| {
        write(&folder, "shop/tasks/churn/val.parquet", columns, keys)
    };
    let time = ("timestamp", Column::Milliseconds(&[DAY]));
    let user = ("user_id", Column::Integers(&[10]));
    other(&[time, user], [json!(null), json!({"user_id": "items"}), json!("timestamp")]);
    refused(&[
        "churn/val.parquet",
        "user_id for items",
        "churn/train.parquet",
        "user_id for users, timestamp for times",
    ]);
    other(&[user, ("churn", Column::Integers(&[1]))], task_keys());
    refused(&["churn/val.parquet at row 0: the time is missing", "--node-time churn=none"]);
    other(&[time, ("churn", Column::Integers(&[1]))], task_keys());
    refused(&["churn/val.parquet: there is no column user_id, a foreign key"]);
    other(&[time, user, ("churn", Column::Integers(&[1]))], [json!({}), json!({}), json!({})]);
    folder.success("ingest --tables shop --dry-run");
    write_part(&folder, "shop/tasks/churn/val.parquet", &[99], &[1], classes());
    refused(&["churn/val.parquet at row 0", "source 99 in column user_id", "type users"]);
    folder.success("ingest --tables shop --on-bad-line skip --out g.grappa");
    assert_eq!(edges_of(&folder.path("g.grappa"), "users:user_id:churn").len(), 5);
    // Files that are no part of a task.
    write_part(&folder, "shop/tasks/churn/valid.parquet", &[10], &[1], classes());
    refused(&["churn/valid.parquet", "val.parquet", "rename"]);
    fs::remove_file(folder.path("shop/tasks/churn/valid.parquet")).unwrap();
    folder.write("shop/tasks/churn.csv", "user_id,churn\n10,1\n");
    refused(&["tasks/churn and", "tasks/churn.csv", "one name"]);
    fs::remove_file(folder.path("shop/tasks/churn.csv")).unwrap();
    fs::rename(folder.path("shop/tasks/churn/train.parquet"), folder.path("shop/tasks/churn/test.parquet")).unwrap();
    refused(&["tasks/churn: there is no train.parquet", "--task"]);
    folder.remove("shop/tasks/churn");
    write_part(&folder, "shop/tasks/users/train.parquet", &[10], &[1], classes());
    refused(&["the task users has the name of a table", "rename"]);
    folder.remove("shop/tasks/users");
    folder.write("shop/more.csv", "id\n1\n");
    refused(&["shop/more.csv", "shop/db"]);
}

#[test]
fn a_changed_file_of_a_task_is_noticed_by_a_resumed_ingest() {
    need_faults!();
    let folder = shop();
    let line = "ingest --tables shop --threads 1 --quiet --out g.grappa";
    folder.success(&line.replace("g.grappa", "whole.grappa"));
    for change in [
        "create nodes-3.partial/splits/val.roaring.tmp",
        "create nodes-3.partial/scratch/labels-0-0",
        "create relation-4.partial/journal",
    ] {
        assert!(Held::before(change, &mut folder.command(line)).kill(), "{change}");
        let test = folder.bytes("shop/tasks/churn/test.parquet");
        write_part(&folder, "shop/tasks/churn/test.parquet", &[12], &[8], None);
        folder.run(&format!("{line} --resume")).failure(&["churn", "test.parquet"]);
        folder.write("shop/tasks/churn/test.parquet", test);
        // A new file, though with the same bytes.
        folder.run(&format!("{line} --resume")).failure(&["churn", "test.parquet"]);
        folder.remove("g.grappa.partial");
        assert!(Held::before(change, &mut folder.command(line)).kill(), "{change}");
        folder.success(&format!("{line} --resume"));
        assert!(folder.files("g.grappa") == folder.files("whole.grappa"), "{change}");
        folder.remove("g.grappa");
    }
}
