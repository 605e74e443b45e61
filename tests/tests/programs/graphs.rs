//! Graphs with several node types, from every door of `grappa-ingest`.

use std::path::{Path, PathBuf};

use grappa_engine::{EdgePart, ExternalId, Graph, NodeId, Store};
use grappa_tests::{
    folder::ProgramFolder,
    parquet::{Column, write_described, write_table},
};
use serde_json::{Value, json};

/// The edges of a relation by external ids, sorted.
pub fn edges_of(path: &Path, name: &str) -> Vec<(String, String)> {
    let graph = Graph::open(path).unwrap();
    let manifest = graph.manifest();
    let number = (0..manifest.relations.len()).find(|&number| manifest.relation_name(number) == name);
    let number = number.unwrap_or_else(|| panic!("there is no relation {name}"));
    let (entry, relation) = (&manifest.relations[number], &graph.relations()[number]);
    let [sources, targets] = [entry.source, entry.destination].map(|end| &graph.node_types()[end as usize]);
    let mut edges = Vec::new();
    for chunk in relation.present_chunks() {
        let chunk = relation.chunk_in_order(chunk).unwrap();
        let (first, rows) = (chunk.span().first_node.0, chunk.rows());
        for (node, row) in (first..).zip(rows.range(0..rows.rows())) {
            for source in row.unwrap().iter() {
                let ids = (sources.external_id(NodeId(source)), targets.external_id(NodeId(node)));
                edges.push((ids.0.unwrap().to_string(), ids.1.unwrap().to_string()));
            }
        }
    }
    edges.sort();
    edges
}

pub fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut pairs: Vec<_> = pairs.iter().map(|(source, target)| ((*source).to_owned(), (*target).to_owned())).collect();
    pairs.sort();
    pairs
}

pub fn relations_of(info: &Value) -> Vec<(String, u64)> {
    let relations = info["relations"].as_array().unwrap();
    relations
        .iter()
        .map(|relation| (relation["name"].as_str().unwrap().to_owned(), relation["edges"].as_u64().unwrap()))
        .collect()
}

/// Authors have names, papers have a table, and venues have numbers.
fn papers() -> ProgramFolder {
    let folder = ProgramFolder::new();
    folder.write("papers.csv", "id,year,area,mask\np1,2019,db,train\np2,2021,ml,val\np3,2020,db,test\n");
    folder.write("writes.csv", "author,paper,rank\nann,p1,1\nbob,p1,2\nann,p2,1\nann,p2,4\n");
    folder.write("in.csv", "p1,0\np2,1\np3,1\n");
    folder
}

const PAPERS: &str = "--nodes paper=papers.csv venue=3 --label paper=area --split-column paper=mask --edges \
     author:writes:paper=writes.csv --src writes=author --dst writes=paper --edge-features-from writes=rank --edges \
     paper:in:venue=in.csv --ids author=string";

#[test]
fn tables_of_nodes_and_edges_make_a_graph() {
    let folder = papers();
    let built = folder.run(&format!("ingest {PAPERS} --reverse in=holds --json --out g.grappa")).success().json();
    assert_eq!(built["nodes"], 2 + 3 + 3);
    folder.run("store verify g.grappa").success();
    let info = folder.run("store info g.grappa --json").success().json();
    let expected = [("author:writes:paper", 4), ("paper:in:venue", 3), ("venue:holds:paper", 3)];
    assert_eq!(relations_of(&info), expected.map(|(name, edges)| (name.to_owned(), edges)));
    assert_eq!(info["relations"][2]["reverse_of"], "paper:in:venue");
    assert_eq!(info["relations"][0]["edge_features"]["dim"], 1);
    let types = info["node_types"].as_array().unwrap();
    let of = |key: &str| types.iter().map(|of| of[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("name"), [json!("paper"), json!("venue"), json!("author")]);
    assert_eq!(of("ids"), [json!("string"), json!("dense"), json!("string")]);
    assert_eq!(types[0]["feature_names"], json!(["year"]));
    assert_eq!(types[0]["class_names"], json!(["db", "ml"]));
    assert_eq!(types[0]["splits"], json!({"train": 1, "val": 1, "test": 1}));
    let path = folder.path("g.grappa");
    let writes = [("ann", "p1"), ("bob", "p1"), ("ann", "p2"), ("ann", "p2")];
    assert_eq!(edges_of(&path, "author:writes:paper"), pairs(&writes));
    assert_eq!(edges_of(&path, "venue:holds:paper"), pairs(&[("0", "p1"), ("1", "p2"), ("1", "p3")]));
    let text = folder.run("store info g.grappa").success().stdout;
    assert!(text.contains("8 nodes of 3 types, 10 edges of 3 relations"), "{text}");
    folder.run("store sample g.grappa --fanouts 2 --batch 2 --batches 1").success();
}

#[test]
fn options_for_one_type_say_which() {
    let folder = papers();
    let ingest = |more: &str| folder.run(&format!("ingest {more} --out g.grappa"));
    ingest("--nodes paper=papers.csv --label area --edges author:writes:paper=writes.csv --ids string").failure(&[
        "--label area",
        "which node type",
        "--label paper=area",
    ]);
    ingest("--nodes paper=papers.csv --split 60/20/20 --edges paper:in:venue=in.csv")
        .failure(&["--split paper=60/20/20"]);
    ingest("--nodes paper=papers.csv --edges in.csv").failure(&["--edges in.csv", "name the relation"]);
    ingest("--nodes paper=papers.csv paper=writes.csv --edges paper:in:venue=in.csv").failure(&["two node types"]);
    ingest("--nodes paper=papers.csv --edges paper:in:venue=in.csv --edge-split 80/10/10")
        .failure(&["say which relation", "--edge-split in=80/10/10"]);
    ingest("--edges writes.csv --reverse").failure(&["--reverse is for relations"]);
    folder.write("in.csv", "p1,0\np4,1\n");
    folder.write("papers.csv", "id,year,pages\np1,2019,8\np2,2021,9\np3,2020,4\n");
    ingest("--nodes paper=papers.csv --edges paper:in:venue=in.csv --reverse").failure(&[
        "in.csv:2",
        "source p4",
        "type paper",
        "papers.csv",
    ]);
    assert_eq!(folder.names(), ["in.csv", "papers.csv", "writes.csv"]);
}

#[test]
fn messages_name_the_type_or_relation_before_values() {
    let folder = ProgramFolder::new();
    folder.write("users.csv", "id,age,score\nu1,20,1\nu2,30,2\nu3,x,3\n");
    folder.write("likes.csv", "src,dst\nu1,m1\nu2,m2\n");
    folder.write("rates.csv", "src,dst,stars\nu1,m1,2\nu2,m2,x\n");
    let ingest = |edges: &str, more: &str| {
        folder.run(&format!("ingest --nodes user=users.csv --edges user:{edges} --ids string --out g.grappa {more}"))
    };
    ingest("likes:movie=likes.csv", "").failure(&["leave the column out: --features-from user=score"]);
    // What the message says works.
    ingest("likes:movie=likes.csv", "--features-from user=score").success();
    let none = "--features-from user= --force";
    let unknown =
        "--src user:rates:movie=src --dst user:rates:movie=dst --weight user:rates:movie=stars if that is the weight";
    ingest("rates:movie=rates.csv", none).failure(&[unknown]);
    let weighted = format!("{none} --weight rates=stars --reverse");
    ingest("rates:movie=rates.csv", &weighted).failure(&["the weight is not a number", "--on-bad-line skip"]);
    ingest("rates:movie=rates.csv", &format!("{none} --src user:rates:movie=src --dst user:rates:movie=dst")).success();
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(info["node_types"][0]["features"], json!(null));
    // In the other doors, too.
    folder.write("shop/users.csv", "id,age\nu1,20\nu2,x\nu3,30\n");
    folder.write("shop/orders.csv", "id,user,price,tax\n1,u1,9.5,1\n2,u2,3,2\n3,u3,4,1\n");
    let tables =
        "ingest --tables shop --key users.id --key orders.id --foreign-key orders.user=users --out shop.grappa";
    folder.run(tables).failure(&["--features-from users="]);
    folder.run(&format!("{tables} --features-from users=")).success();
    folder.write(
        "storm.json",
        r#"{"version": "gconstruct-v0.1", "nodes": [{"node_type": "user", "node_id_col": "id",
        "format": {"name": "csv"}, "files": ["shop/users.csv"], "features": [{"feature_col": "age"}]}],
        "edges": [{"relation": ["order", "of", "user"], "source_id_col": "id", "dest_id_col": "user",
        "format": {"name": "csv"}, "files": ["shop/orders.csv"]}]}"#,
    );
    folder.run("ingest --gconstruct storm.json --out storm.grappa").failure(&["--features-from user="]);
    folder.run("ingest --gconstruct storm.json --features-from user= --out storm.grappa").success();
}

/// Three tables as RelBench writes them: users, products without features, and reviews without a primary key.
fn shop(folder: &ProgramFolder) {
    let path = |name: &str| folder.path(&format!("shop/{name}.parquet"));
    folder.write("shop/notes.md", "no table");
    let names: Vec<String> = ["ann", "bob", "cy"].map(str::to_owned).to_vec();
    let ages = [Some(30), None, Some(50)];
    write_described(
        &path("users"),
        &[("id", Column::Strings(&names)), ("age", Column::Optional(&ages))],
        2,
        &[("pkey_col", "\"id\""), ("fkey_col_to_pkey_table", "{}"), ("time_col", "null")],
    );
    write_described(
        &path("products"),
        &[("pid", Column::Integers(&[10, 20, 1 << 40]))],
        2,
        &[("pkey_col", "\"pid\""), ("fkey_col_to_pkey_table", "{}"), ("time_col", "null")],
    );
    let (reviewers, products) =
        (["bob", "ann", "bob", "cy"].map(str::to_owned), [Some(20), Some(10), None, Some(1 << 40)]);
    let texts: Vec<String> = (0..4).map(|k| format!("text {k}")).collect();
    write_described(
        &path("reviews"),
        &[
            ("user", Column::Strings(&reviewers)),
            ("product", Column::Optional(&products)),
            ("stars", Column::Floats(&[1.0, 2.5, 3.0, 5.0])),
            ("at", Column::Milliseconds(&[0, 86_400_000, 0, 0])),
            ("text", Column::Strings(&texts)),
        ],
        3,
        &[
            ("pkey_col", "null"),
            ("fkey_col_to_pkey_table", "{\"user\": \"users\", \"product\": \"products\"}"),
            ("time_col", "\"at\""),
        ],
    );
}

#[test]
fn a_folder_of_relbench_is_a_graph_without_other_options() {
    let folder = ProgramFolder::new();
    shop(&folder);
    let text = folder.run("ingest --tables shop --dry-run").success().stdout;
    for part in [
        "node type products",
        "relation reviews:user:users",
        "relation users:rev_user:reviews",
        "reviews.at: the time of each row",
        "nothing was written",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    folder.run("ingest --tables shop --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let path = folder.path("g.grappa");
    let by = [("0", "bob"), ("1", "ann"), ("2", "bob"), ("3", "cy")];
    assert_eq!(edges_of(&path, "reviews:user:users"), pairs(&by));
    let of = [("0", "20"), ("1", "10"), ("3", "1099511627776")];
    assert_eq!(edges_of(&path, "reviews:product:products"), pairs(&of));
    let swapped: Vec<_> = of.map(|(source, target)| (target, source)).to_vec();
    assert_eq!(edges_of(&path, "products:rev_product:reviews"), pairs(&swapped));
    let info = folder.run("store info g.grappa --json").success().json();
    let rejected: Vec<_> =
        info["relations"].as_array().unwrap().iter().map(|relation| relation["rejected"].as_u64().unwrap()).collect();
    assert_eq!(rejected, [1, 1, 0, 0]);
    let types = info["node_types"].as_array().unwrap();
    let names: Vec<_> = types.iter().map(|node_type| node_type["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["products", "reviews", "users"]);
    assert_eq!(types[0]["features"], Value::Null);
    let features = types[1]["feature_names"].as_array().unwrap();
    assert!(features.iter().any(|name| name == "stars") && features.iter().all(|name| name != "at"), "{features:?}");
    assert_eq!(types[1]["times"]["unit"], "s");
    assert_eq!(types[2]["feature_names"], json!(["age"]));
    // A review is the node of its row.
    let graph = Graph::open(&path).unwrap();
    assert!(graph.node_types()[1].node(&ExternalId::Integer(3)).unwrap().is_some());
}

#[test]
fn keys_of_tables_come_from_options_and_all_their_mistakes_are_told_at_once() {
    let folder = ProgramFolder::new();
    folder.write("t/users.csv", "id,age,height\nann,30,1.7\nbob,40,1.8\n");
    folder.write("t/items.csv", "id,price,weight\n7,1.5,3\n9,2,4\n");
    folder.write("t/likes.csv", "user,item,stars\nann,7,5\nann,9,3\nbob,9,1\n");
    let keys = "--key users.id --key items.id --foreign-key likes.user=users --foreign-key likes.item=items";
    folder.run(&format!("ingest --tables t {keys} --link-table likes --out g.grappa")).success();
    folder.run("store verify g.grappa").success();
    let path = folder.path("g.grappa");
    // The columns of a link table are in the order of their names.
    assert_eq!(edges_of(&path, "items:likes:users"), pairs(&[("7", "ann"), ("9", "ann"), ("9", "bob")]));
    assert_eq!(edges_of(&path, "users:rev_likes:items"), pairs(&[("ann", "7"), ("ann", "9"), ("bob", "9")]));
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(info["relations"][0]["edge_features"]["dim"], 1);
    folder
        .run("ingest --tables t --key users.uid --foreign-key likes.user=people --foreign-key likes.thing=items --out h.grappa")
        .failure(&[
            "users.csv: there is no column uid, the primary key",
            "items.csv: a table in text needs a primary key",
            "points to people, and there is no such table",
            "there is no column thing",
        ]);
    let ingest = |more: &str| folder.run(&format!("ingest --tables t {keys} --key likes.stars {more} --out h.grappa"));
    folder.write("t/likes.csv", "user,item,stars\nann,7,5\nann,8,3\n");
    ingest("").failure(&["likes.csv:3", "target 8 in column item", "type items", "items.csv"]);
    folder.write("t/likes.csv", "user,item,stars\nann,7,5\nann,9,5\n");
    ingest("").failure(&["likes.csv:3", "the id 5 is in this file twice"]);
}

#[test]
fn triples_are_a_relation_for_each_name() {
    let folder = ProgramFolder::new();
    folder.write("kb.tsv", "ann\tknows\tbob\nbob\tlikes\tice cream\ncy\tknows\tann\n");
    folder.run("ingest --triples kb.tsv --reverse likes=liked_by --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let path = folder.path("g.grappa");
    assert_eq!(edges_of(&path, "entity:knows:entity"), pairs(&[("ann", "bob"), ("cy", "ann")]));
    assert_eq!(edges_of(&path, "entity:likes:entity"), pairs(&[("bob", "ice cream")]));
    assert_eq!(edges_of(&path, "entity:liked_by:entity"), pairs(&[("ice cream", "bob")]));
    folder.write("valid.tsv", "bob\tknows\tcy\nann\tlikes\tcy\n");
    folder.run("ingest --triples kb.tsv --val-edges valid.tsv --out v.grappa").success();
    let graph = Graph::open(&folder.path("v.grappa")).unwrap();
    let held_out = graph.relations().iter().map(|relation| relation.part_edges(EdgePart::Val).unwrap());
    assert_eq!(held_out.collect::<Vec<_>>(), [1, 1]);
    folder.write("two.tsv", "a\tb\n");
    folder.run("ingest --triples two.tsv --out h.grappa").failure(&["two.tsv:1", "separated by tabs"]);
}

/// The types of edges of a store by external ids: source, type, destination; sorted.
fn triples_of(path: &Path) -> Vec<(String, String, String)> {
    let store = Store::open(path).unwrap();
    let (place, names) = store.edge_types().unwrap().unwrap();
    let id = |node: u64| store.external_id(NodeId(node)).unwrap().to_string();
    let mut triples = Vec::new();
    for chunk in store.present_chunks() {
        let chunk = store.chunk_in_order(chunk).unwrap();
        let (first, rows, features) = (chunk.span().first_node.0, chunk.rows(), chunk.edge_features().unwrap());
        let mut values = vec![0.0; features.meta().layout.dim as usize];
        let mut edge = 0;
        for (node, row) in (first..).zip(rows.range(0..rows.rows())) {
            for source in row.unwrap().iter() {
                features.copy(edge..edge + 1, &mut values).unwrap();
                triples.push((id(source), names[values[place] as usize].clone(), id(node)));
                edge += 1;
            }
        }
    }
    triples.sort();
    triples
}

#[test]
fn triples_of_many_relations_are_edges_with_types() {
    let folder = ProgramFolder::new();
    let mut expected: Vec<(String, String, String)> =
        (0..300).map(|k| (format!("e{}", k % 7), format!("/r/{:03}", k % 100), format!("e{}", k * k % 11))).collect();
    expected.sort();
    let lines: String = expected.iter().map(|(head, relation, tail)| format!("{head}\t{relation}\t{tail}\n")).collect();
    folder.write("many.tsv", lines);
    folder.write("valid.tsv", "e1\t/r/zzz\te2\n");
    folder.run("ingest --triples many.tsv --val-edges valid.tsv --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    assert_eq!(triples_of(&folder.path("g.grappa")), expected);
    let store = Store::open(&folder.path("g.grappa")).unwrap();
    assert_eq!(store.edge_types().unwrap().unwrap().1.len(), 101);
    assert_eq!(store.part_edges(EdgePart::Val).unwrap(), 1);
    folder.run("ingest --triples many.tsv --reverse --out h.grappa").failure(&["100 relations", "omit --reverse"]);
    folder
        .run("ingest --triples many.tsv --edge-feature-dtype f16 --out h.grappa")
        .failure(&["--edge-feature-dtype", "numbers of relations"]);
    let many: String = (0..65).map(|k| format!("--edges a:r{k}:b=in.csv ")).collect();
    folder.write("in.csv", "0,1\n");
    folder.run(&format!("ingest {many} --out h.grappa")).failure(&["65 relations", "64"]);
}

#[test]
fn edges_of_a_relation_are_held_out_by_name() {
    let folder = papers();
    folder.run(&format!("ingest {PAPERS} --reverse --edge-split writes=50/50/0 --out g.grappa")).success();
    folder.run("store verify g.grappa").success();
    let graph = Graph::open(&folder.path("g.grappa")).unwrap();
    let counts: Vec<(String, u64, bool)> = (0..)
        .zip(graph.relations())
        .map(|(number, relation)| {
            let parts = relation.manifest().held_out();
            let held_out = parts.iter().map(|&part| relation.part_edges(part).unwrap());
            (
                graph.manifest().relation_name(number),
                relation.manifest().edges + held_out.sum::<u64>(),
                parts.is_empty(),
            )
        })
        .collect();
    let all = |name: &str| counts.iter().find(|(of, ..)| of == name).map(|&(_, edges, whole)| (edges, whole)).unwrap();
    assert_eq!(all("author:writes:paper"), (4, false));
    assert_eq!(all("paper:rev_writes:author"), (4, false));
    assert_eq!(all("paper:in:venue"), (3, true));
    folder
        .run(&format!("ingest {PAPERS} --edge-split 80/10/10 --out h.grappa"))
        .failure(&["say which relation", "80/10/10; there are writes, in"]);
}

#[test]
fn types_and_relations_are_exported_and_read_again() {
    let folder = papers();
    folder.run(&format!("ingest {PAPERS} --out g.grappa")).success();
    let export = |options: &str| folder.run(&format!("store export g.grappa {options}"));
    let stdout = export("--relation writes --edges -").success().stdout;
    assert_eq!(lines_of(&stdout), ["ann\tp1\t1", "ann\tp2\t1", "ann\tp2\t4", "bob\tp1\t2", "source\ttarget\trank"]);
    let stdout = export("--type author --ids -").success().stdout;
    assert_eq!(lines_of(&stdout), ["ann", "bob"]);
    export("--type paper --features papers.parquet --labels areas.csv").success();
    export("--relation author:writes:paper --edges again.parquet").success();
    export("--relation in --edges in-again.csv").success();
    folder
        .run(
            "ingest --nodes paper=papers.parquet venue=3 --labels paper=areas.csv --edges author:writes:paper=again.parquet \
             --edge-features-from writes=rank --edges paper:in:venue=in-again.csv --ids author=string --out h.grappa",
        )
        .success();
    for name in ["author:writes:paper", "paper:in:venue"] {
        assert_eq!(edges_of(&folder.path("h.grappa"), name), edges_of(&folder.path("g.grappa"), name));
    }
    export("--edges e.tsv").failure(&["several node types", "--type paper", "--relation author:writes:paper"]);
    export("--type writer --ids -").failure(&["no node type writer", "paper, venue, author"]);
    export("--relation reads --edges -").failure(&["no such relation", "paper:in:venue"]);
}

fn lines_of(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// The folder of a real graph, if it is here.
fn real_data(name: &str, file: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("GRAPPA_DATA").map_or_else(beside, PathBuf::from).join(name);
    folder.join(file).exists().then_some(folder)
}

#[test]
fn knowledge_graphs_have_their_triples() {
    let folder = ProgramFolder::new();
    for (name, entities, edges, relations) in
        [("fb15k-237", 14_541, [272_115, 17_535, 20_466], 237), ("wn18rr", 40_943, [86_835, 3_034, 3_134], 11)]
    {
        let Some(data) = real_data(name, "train.tsv.gz") else {
            grappa_skip::skip!("{name} is not here; GRAPPA_DATA names the folder of graphs");
        };
        let [train, valid, test] = ["train", "valid", "test"].map(|part| data.join(format!("{part}.tsv.gz")));
        folder
            .run(&format!(
                "ingest --triples {} --val-edges {} --test-edges {} --out {name}.grappa",
                train.display(),
                valid.display(),
                test.display()
            ))
            .success();
        folder.run(&format!("store verify {name}.grappa")).success();
        let graph = Graph::open(&folder.path(&format!("{name}.grappa"))).unwrap();
        assert_eq!(graph.node_types()[0].manifest().nodes, entities);
        let parts = [EdgePart::Graph, EdgePart::Val, EdgePart::Test];
        let found = parts
            .map(|part| graph.relations().iter().filter_map(|relation| relation.part_edges(part).ok()).sum::<u64>());
        assert_eq!(found, edges);
        let types = match graph.has_types() {
            true => graph.relations().len(),
            false => graph.relations()[0].edge_types().unwrap().unwrap().1.len(),
        };
        assert_eq!(types, relations);
    }
}

#[test]
fn dblp_has_its_types_relations_and_labels() {
    let Some(data) = real_data("dblp-four-area", "paper_author.txt.gz") else {
        grappa_skip::skip!("dblp-four-area is not here; GRAPPA_DATA names the folder of graphs");
    };
    let file = |name: &str| data.join(name).display().to_string();
    let folder = ProgramFolder::new();
    folder.run(&format!(
        "ingest --edges paper:by:author={} --edges paper:has:term={} --edges paper:in:venue={} --ids sparse --reverse \
         --labels author={} --id author=1 --out g.grappa",
        file("paper_author.txt.gz"),
        file("paper_term.txt.gz"),
        file("paper_conf.txt.gz"),
        file("author_label.txt.gz"),
    ))
    .success();
    folder.run("store verify g.grappa").success();
    let info = folder.run("store info g.grappa --json").success().json();
    let edges: Vec<u64> = relations_of(&info).into_iter().map(|(_, edges)| edges).collect();
    assert_eq!(edges, [41_794, 41_794, 114_624, 114_624, 14_376, 14_376]);
    let nodes: Vec<_> =
        info["node_types"].as_array().unwrap().iter().map(|node_type| node_type["nodes"].as_u64().unwrap()).collect();
    assert_eq!(nodes, [14_376, 14_475, 8_920, 20]);
    assert_eq!(info["node_types"][1]["classes"], 4);
}

/// Writing a table without a description is the same as before.
#[test]
fn a_table_of_edges_in_parquet_is_a_relation() {
    let folder = ProgramFolder::new();
    let (sources, targets) = ([5_i64, 6, 7], [1_i64, 0, 1]);
    write_table(
        &folder.path("e.parquet"),
        &[("src", Column::Integers(&sources)), ("dst", Column::Integers(&targets))],
        2,
    );
    folder.run("ingest --edges a:r:b=e.parquet --ids a=sparse --out g.grappa").success();
    let edges = edges_of(&folder.path("g.grappa"), "a:r:b");
    assert_eq!(edges, pairs(&[("5", "1"), ("6", "0"), ("7", "1")]));
}

#[test]
fn a_graph_is_repartitioned_by_the_chunks_of_all_types() {
    let folder = ProgramFolder::new();
    folder.success(
        "gen typed --nodes user=3000 --nodes item=5000 --nodes shop=3 --edges user:buys:item=20000 --edges shop:offers:item=5000 \
         --reverse --out g",
    );
    let info = |options: &str| folder.success(&format!("store info g --json {options}")).json();
    assert_eq!((&info("")["partitions"], &info("")["generation"]), (&1.into(), &0.into()));
    for (generation, schedule) in (1..).zip(["sweep", "shuffle", "local", "fixed"]) {
        let line = format!("store repartition g --partitions 2 --schedule {schedule} --json");
        let made = folder.success(&line).json();
        assert_eq!(made["generation"], generation);
        folder.success("store verify g");
        let shown = info("--coverage");
        let parts = shown["by_partition"].as_array().unwrap();
        let of = |key: &str| parts.iter().map(|part| part[key].as_u64().unwrap()).collect::<Vec<_>>();
        let (visible, cut) = (of("visible_edges"), of("cut_edges"));
        if schedule == "shuffle" {
            assert_eq!(of("nodes").iter().sum::<u64>(), 8003);
            assert_eq!(visible.iter().chain(&cut).sum::<u64>(), 50_000);
            assert!(cut.iter().all(|&cut| cut > 0));
            for part in parts {
                let coverage = part["coverage"].as_object().unwrap();
                assert_eq!(coverage.len(), 4);
                let nodes: u64 = coverage["user:buys:item"].as_object().unwrap().iter().map(sum_of).sum();
                assert!((2000..3000).contains(&nodes), "items of a partition: {nodes}");
                assert!(part["halo_nodes"].as_u64().unwrap() > 0);
            }
        } else {
            // Two partitions see all of each other's chunks.
            assert_eq!((visible, cut), (vec![50_000; 2], vec![0; 2]), "{schedule}");
        }
    }
    let text = folder.success("store info g --coverage").stdout;
    assert!(text.contains("2 partitions (fixed, generation 4)") && text.contains("0 user:buys:item"), "{text}");
    folder.run("store repartition g --partitions 5000").failure(&["chunks", "at most"]);
    // An assignment of another graph is noticed.
    folder.success(
        "gen typed --nodes user=3000 --nodes item=5000 --nodes shop=2 --edges user:buys:item=20000 --edges \
                    shop:offers:item=5000 --reverse --out other",
    );
    folder.success("store repartition other --partitions 2");
    std::fs::copy(folder.path("other/assignments/1"), folder.path("g/assignments/4")).unwrap();
    let found = folder.run("store verify g").failure(&["1 problem found"]);
    assert!(found.stdout.contains("assignments/4"), "{}", found.stdout);
}

/// The nodes of a part of a histogram.
fn sum_of((_, part): (&String, &Value)) -> u64 {
    match part.as_array() {
        Some(tenths) => tenths.iter().map(|nodes| nodes.as_u64().unwrap()).sum(),
        None => part.as_u64().unwrap(),
    }
}
