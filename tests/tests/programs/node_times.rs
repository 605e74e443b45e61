//! Nodes with times: `grappa-ingest --time TYPE=COLUMN` and `--node-time`, and what other programs do with them.

use grappa_tests::{
    folder::ProgramFolder,
    parquet::{Column, write_described},
    random::Random,
};

const ORDERS: u64 = 400;

/// Users and orders with dates, products without, and who ordered what.
fn shop() -> ProgramFolder {
    let folder = ProgramFolder::new();
    let mut random = Random::new(11);
    let mut date = || format!("2024-{:02}-{:02}", 1 + random.below(12), 1 + random.below(28));
    let users: String = (0..50).map(|k| format!("u{k},{}\n", date())).collect();
    let orders: String = (0..ORDERS).map(|k| format!("{k},{},{}\n", date(), k % 7)).collect();
    folder.write("users.csv", format!("id,joined\n{users}"));
    folder.write("orders.csv", format!("id,at,amount\n{orders}"));
    folder.write("products.csv", format!("id,price\n{}", (0..20).map(|k| format!("{k},{k}.5\n")).collect::<String>()));
    let by: String = (0..ORDERS).map(|k| format!("{k},u{}\n", k * 7 % 50)).collect();
    let of: String = (0..ORDERS).map(|k| format!("{k},{}\n", k * k % 20)).collect();
    folder.write("by.csv", format!("src,dst\n{by}"));
    folder.write("of.csv", format!("src,dst\n{of}"));
    folder
}

const INGEST: &str = "ingest --nodes user=users.csv product=products.csv order=orders.csv --edges order:by:user=by.csv \
                      --edges order:of:product=of.csv --reverse --out g.grappa --force";

#[test]
fn nodes_have_the_times_of_their_table_and_are_in_their_order() {
    let folder = shop();
    folder.success(&format!("{INGEST} --time order=at --time user=joined"));
    folder.success("store verify g.grappa");
    let info = folder.success("store info --json g.grappa").json();
    let types = info["node_types"].as_array().unwrap();
    let unit = |name: &str| types.iter().find(|of| of["name"] == name).unwrap()["times"]["unit"].clone();
    assert_eq!([unit("order"), unit("user")], ["days", "days"]);
    assert!(unit("product").is_null());
    assert!(info["relations"].as_array().unwrap().iter().all(|relation| relation["times"].is_null()));
    // The column is no feature.
    assert_eq!(types[2]["feature_names"], serde_json::json!(["amount"]));
    folder.success("store export g.grappa --type order --node-times times.csv");
    let days = |text: &str| {
        let parts: Vec<i64> = text.split('-').map(|part| part.parse().unwrap()).collect();
        let before = [0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335][parts[1] as usize - 1];
        (19_723 + before + parts[2] - 1).to_string()
    };
    let expected: String = folder
        .read("orders.csv")
        .lines()
        .skip(1)
        .map(|line| {
            let fields: Vec<_> = line.split(',').collect();
            format!("{},{}\n", fields[0], days(fields[1]))
        })
        .collect();
    assert_eq!(folder.read("times.csv"), format!("id,time\n{expected}"));
    // An export is ingested to the same order.
    folder.success("store export g.grappa --type order --node-times times.parquet");
    folder.success(
        "ingest --nodes user=users.csv product=products.csv order=times.parquet --edges order:by:user=by.csv --edges \
         order:of:product=of.csv --reverse --out again.grappa --time order=time --time-unit days --node-time user=joined",
    );
    for file in ["node-times", "node-time-axis", "ids/order"] {
        assert_eq!(
            folder.bytes(&format!("again.grappa/nodes-2/{file}")),
            folder.bytes(&format!("g.grappa/nodes-2/{file}"))
        );
    }
    // Without times, there are no such files.
    folder.success(INGEST);
    assert!(folder.files("g.grappa").keys().all(|path| !path.to_string_lossy().contains("time")));
}

#[test]
fn draws_are_limited_by_the_times_of_sources() {
    let folder = shop();
    folder.success(&format!("{INGEST} --time order=at --time user=joined"));
    let sample = "store sample g.grappa --fanouts -1,-1 --batch 10 --batches 10 --json";
    let sampled = |more: &str| folder.success(&format!("{sample} {more}")).json()["sampled_edges"].as_u64().unwrap();
    let all = sampled("--seeds type:product --seed-time 30000");
    let half = sampled("--seeds type:product --seed-time 19900");
    assert!(0 < half && half < all, "{half} of {all}");
    assert_eq!(sampled("--seeds type:product --seed-time 5"), 0);
    assert!(sampled("--seeds type:product --seed-time 19900 --time-window 30") < half);
    for more in ["--time-strict", "--time-hops edge", "--time-strategy last", "--threads 1 --view mapped"] {
        assert!(sampled(&format!("--seeds type:product --seed-time 19900 {more}")) > 0, "{more}");
    }
    assert!(sampled("--seeds type:order --seed-time own") > 0);
    let refused = |more: &str, parts: &[&str]| drop(folder.run(&format!("{sample} {more}")).failure(parts));
    refused("--seeds type:product --seed-time own", &["the type product", "no times of their own", "--node-time"]);
    refused("--seeds type:shop --seed-time own", &["no node type shop", "product"]);
    let soon = folder.run(&format!("{sample} --seeds all --seed-time soon"));
    assert!(soon.code == Some(2) && soon.stderr.contains("expected an integer or own"), "{soon:?}");
    assert!(sampled("--seeds all --partitions 3 --seed-time 19900") > 0);
    refused("--seeds all --partitions 3 --seed-time 5 --halo neighbors", &["halo is neighbors", "halo stop"]);
    // Partitions without times are those of any graph.
    assert!(sampled("--seeds all --partitions 3") > 0);
    folder.run("store place g.grappa --chunks 0-1 --to s.grappa").failure(&["nodes have times", "whole store"]);
    folder.run("store export g.grappa --type product --node-times x.csv").failure(&["the nodes have no times"]);
}

#[test]
fn bad_times_of_nodes_are_errors_that_name_place_and_remedy() {
    let folder = shop();
    // Warnings about the tables come before some errors.
    let refused = |more: &str, parts: &[&str]| {
        let ran = folder.run(&format!("{INGEST} {more}"));
        assert_eq!(ran.code, Some(1), "{ran:?}");
        parts.iter().for_each(|part| assert!(ran.stderr.contains(part), "{part}: {ran:?}"));
    };
    let orders = folder.read("orders.csv");
    for (value, unit, parts) in [
        ("soon", "", &["order", "orders.csv:2", "neither an integer nor a date"][..]),
        ("", "", &["orders.csv:2", "the time is missing", "each node", "--node-time order=none"]),
        ("17.5", "--time-unit order=s", &["orders.csv:2", "has a fraction"]),
        ("99999999999999999999", "--time-unit order=s", &["orders.csv:2", "does not fit 64 bits"]),
        ("2024-01-02T12:00", "--time-unit order=days", &["orders.csv:2", "not whole in the unit of the store, days"]),
    ] {
        let mut lines: Vec<String> = orders.lines().map(str::to_owned).collect();
        lines[1] = format!("0,{value},5");
        folder.write("orders.csv", lines.join("\n") + "\n");
        refused(&format!("--time order=at {unit}"), parts);
    }
    // What the message about missing values says works.
    folder.success(&format!("{INGEST} --node-time order=none --time user=joined"));
    folder.write("orders.csv", orders.lines().map(|line| format!("{line}\n")).collect::<String>());
    refused("--time order=when", &["order", "no column when", "--node-time"]);
    refused("--time product=price", &["products.csv:2", "has a fraction"]);
    refused("--time shop=at", &["shop=at"]);
    refused("--time order=at --assign order=random", &["order of time", "--assign"]);
    refused("--time order=at --assign range", &["order of time", "--assign"]);
    // Edges and their sources.
    folder.write("timed.csv", "src,dst,at\n0,1,2024-01-01\n1,2,2024-01-02\n");
    let timed = INGEST.replace("of.csv", "timed.csv");
    let both = folder.run(&format!("{timed} --time order=at --time of=at"));
    both.failure(&["order:of:product", "the edges have times", "type order", "--node-time order=none"]);
    folder.success(&format!("{timed} --time of=at --node-time order=none"));
    // One unit for all.
    folder.write("users.csv", folder.read("users.csv").replace("-", ""));
    refused("--time order=at --time user=joined", &["in the unit days", "in integer", "-unit"]);
    // A node that only edges have.
    folder.write("likes.csv", "src,dst\nu1,u2\nu3,nobody\n");
    folder
        .run("ingest --nodes user=users.csv --edges user:likes:user=likes.csv --time user=joined --header yes --out h.grappa")
        .failure(&["likes.csv:3", "nobody", "users.csv"]);
    // A node type whose name a relation has.
    folder.write("a.csv", "src,dst\nu1,u2\n");
    let same = "ingest --nodes user=users.csv --edges user:user:user=a.csv --ids user=string --out h.grappa --force";
    folder.run(&format!("{same} --time user=joined")).failure(&[
        "user is a node type and a relation",
        "--node-time user=joined",
        "--time user:user:user=joined",
    ]);
    folder.success(&format!("{same} --node-time user=joined"));
}

#[test]
fn a_store_without_types_has_times_of_nodes() {
    let folder = ProgramFolder::new();
    let times: String = (0..300).map(|k| format!("{k},{},{}\n", k * 7 % 5, 1_000_000 - k * k)).collect();
    folder.write("nodes.csv", format!("id,x,at\n{times}"));
    folder.write("edges.tsv", (0..2000).map(|k| format!("{}\t{}\n", k * 31 % 300, k * k % 300)).collect::<String>());
    for ids in ["dense", "sparse", "string"] {
        let ingest =
            format!("ingest --edges edges.tsv --features nodes.csv --ids {ids} --node-time at --split 60/20/20");
        folder.success(&format!("{ingest} --out {ids}.grappa"));
        folder.success(&format!("store verify {ids}.grappa"));
        let info = folder.success(&format!("store info --json {ids}.grappa")).json();
        assert_eq!((&info["order"], &info["node_times"]["last"]), (&"time".into(), &1_000_000.into()));
        assert!(folder.success(&format!("store info {ids}.grappa")).stdout.contains("in the order of time"));
        let own = "--fanouts 5,5 --batch 20 --batches 4 --seeds train --seed-time own --json";
        assert!(folder.success(&format!("store sample {ids}.grappa {own}")).json()["sampled_edges"].as_u64() > Some(0));
    }
    let refused = |more: &str, parts: &[&str]| {
        drop(folder.run(&format!("ingest --edges edges.tsv --node-time at {more} --out out.grappa")).failure(parts));
    };
    refused("", &["--node-time names a column of a table of nodes", "--features"]);
    refused("--features nodes.csv --assign ldg", &["--assign", "order of time"]);
    folder.write("few.csv", "id,y,at\n0,1,1\n1,0,2\n");
    refused("--labels few.csv --nodes 300", &["298 of the 300 nodes", "few.csv", "add their rows"]);
    folder.write("timed.csv", "src,dst,at\n0,1,5\n");
    folder
        .run("ingest --edges timed.csv --time at --features nodes.csv --node-time at --out out.grappa")
        .failure(&["both edges and nodes have times", "--node-time"]);
}

#[test]
fn times_in_the_metadata_of_tables_are_the_times_of_rows() {
    let folder = ProgramFolder::new();
    let path = |name: &str| folder.path(&format!("shop/{name}.parquet"));
    folder.write("shop/notes.md", "no table");
    let names: Vec<String> = ["ann", "bob"].map(str::to_owned).to_vec();
    write_described(
        &path("users"),
        &[("id", Column::Strings(&names)), ("since", Column::Milliseconds(&[0, 86_400_000]))],
        2,
        &[("pkey_col", "\"id\""), ("fkey_col_to_pkey_table", "{}"), ("time_col", "\"since\"")],
    );
    let reviewers = ["bob", "ann", "bob"].map(str::to_owned);
    write_described(
        &path("reviews"),
        &[("user", Column::Strings(&reviewers)), ("at", Column::Milliseconds(&[5_000, 86_400_500, 0]))],
        3,
        &[("pkey_col", "null"), ("fkey_col_to_pkey_table", "{\"user\": \"users\"}"), ("time_col", "\"at\"")],
    );
    let text = folder.success("ingest --tables shop --dry-run").stdout;
    assert!(text.contains("reviews.at: the time of each row"), "{text}");
    folder.success("ingest --tables shop --out g.grappa");
    folder.success("store verify g.grappa");
    // Users have whole seconds, and reviews do not: one unit for both.
    folder.success("store export g.grappa --type reviews --node-times times.csv");
    assert_eq!(folder.read("times.csv"), "id,time\n0,5000\n1,86400500\n2,0\n");
    let info = folder.success("store info --json g.grappa").json();
    assert_eq!(info["node_types"][1]["times"]["unit"], "ms");
    folder.success("ingest --tables shop --node-time reviews=none --out users.grappa");
    let info = folder.success("store info --json users.grappa").json();
    assert!(info["node_types"][0]["times"].is_null() && info["node_types"][1]["times"]["unit"] == "s");
    folder.run("ingest --tables shop --time-unit s --out h.grappa").failure(&["reviews", "not whole", "s"]);
}
