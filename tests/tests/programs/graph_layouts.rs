//! Graphs in the layouts of other tools: the smallest folder of each kind, and its mistakes.

use grappa_engine::{EdgePart, Graph};
use grappa_tests::{
    folder::ProgramFolder,
    parquet::{Column, write_table},
};
use serde_json::{Value, json};

use crate::graphs::{edges_of, pairs, relations_of};

/// What `info` says about the node types, by key.
fn of_types(info: &Value, key: &str) -> Vec<Value> {
    info["node_types"].as_array().unwrap().iter().map(|node_type| node_type[key].clone()).collect()
}

/// Papers in CSV and venues in Parquet, as a configuration of GraphStorm describes them.
fn graphstorm() -> (ProgramFolder, Value) {
    let folder = ProgramFolder::new();
    folder.write("data/papers.csv", "id,year,venue,area,cited\np1,2019,x,db,3\np2,2021,y,ml,4\np3,2020,x,db,5\n");
    write_table(&folder.path("data/venues.parquet"), &[("x", Column::Lists(2, &[1.0, 2.0, 3.0, 4.0]))], 2);
    folder.write("data/writes-0.csv", "author,paper\n7,p1\n9,p1\n");
    folder.write("data/writes-1.csv", "author,paper\n7,p2\n");
    folder.write("data/in.csv", "p|v\np1|0\np2|1\n");
    folder.write("data/train.json", "\"p1\"\n\"p3\"\n");
    folder.write("data/valid.json", "\"p2\"\n");
    let config = json!({
        "version": "gconstruct-v0.1",
        "nodes": [
            {
                "node_type": "paper", "node_id_col": "id", "format": {"name": "csv"}, "files": ["papers.csv"],
                "features": [
                    {"feature_col": "year", "feature_name": "y"},
                    {"feature_col": ["venue"], "transform": {"name": "to_categorical"}},
                ],
                "labels": [{
                    "label_col": "area", "task_type": "classification",
                    "custom_split_filenames": {"train": "train.json", "valid": "valid.json"},
                }],
            },
            {
                "node_type": "venue", "format": {"name": "parquet"}, "files": "venues.parquet",
                "features": [{"feature_col": "x"}],
            },
        ],
        "edges": [
            {
                "relation": ["author", "writes", "paper"], "source_id_col": "author", "dest_id_col": "paper",
                "format": {"name": "csv", "separator": ","}, "files": "writes-*.csv",
                "labels": [{"task_type": "link_prediction", "split_pct": [0.5, 0.5, 0.0]}],
            },
            {
                "relation": ["paper", "in", "venue"], "source_id_col": "p", "dest_id_col": "v",
                "format": {"name": "csv", "separator": "|"}, "files": "data/in.csv",
            },
        ],
        "add_reverse_edges": true,
    });
    (folder, config)
}

#[test]
fn a_configuration_of_graphstorm_is_a_graph() {
    let (folder, config) = graphstorm();
    folder.write("data/config.json", config.to_string());
    let text = folder.run("ingest --gconstruct data/config.json --dry-run").success().stdout;
    assert!(text.contains("relation paper:in:venue") && text.contains("nothing was written"), "{text}");
    folder.run("ingest --gconstruct data/config.json --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(of_types(&info, "name"), [json!("paper"), json!("venue"), json!("author")]);
    assert_eq!(of_types(&info, "ids"), [json!("string"), json!("dense"), json!("sparse")]);
    assert_eq!(of_types(&info, "class_names")[0], json!(["db", "ml"]));
    assert_eq!(of_types(&info, "splits")[0], json!({"train": 2, "val": 1, "test": null}));
    assert_eq!(of_types(&info, "feature_names")[0], json!(["year", "venue=x", "venue=y", "venue=other"]));
    assert_eq!(info["node_types"][1]["features"]["dim"], 2);
    let names: Vec<String> = relations_of(&info).into_iter().map(|(name, _)| name).collect();
    let expected = ["author:writes:paper", "paper:writes-rev:author", "paper:in:venue", "venue:in-rev:paper"];
    assert_eq!(names, expected);
    let path = folder.path("g.grappa");
    assert_eq!(edges_of(&path, "venue:in-rev:paper"), pairs(&[("0", "p1"), ("1", "p2")]));
    let graph = Graph::open(&path).unwrap();
    let writes = &graph.relations()[0];
    assert_eq!(writes.manifest().edges + writes.part_edges(EdgePart::Val).unwrap(), 3);
    // An option replaces a part of the configuration.
    folder
        .run("ingest --gconstruct data/config.json --label paper=cited --split paper=50/25/25 --out h.grappa")
        .success();
    let info = folder.run("store info h.grappa --json").success().json();
    assert_eq!(info["node_types"][0]["random_split"], "50/25/25, seed 0");
}

#[test]
fn all_that_a_configuration_of_graphstorm_asks_in_vain_is_one_error() {
    let (folder, mut config) = graphstorm();
    let ingest = |config: &Value, more: &str| {
        folder.write("data/config.json", config.to_string());
        folder.run(&format!("ingest --gconstruct data/config.json --out h.grappa {more}"))
    };
    config["nodes"][0]["features"][0]["transform"] = json!({"name": "bert_hf", "bert_model": "b", "max_seq_length": 8});
    config["nodes"][0]["features"][1]["feature_col"] = json!(["venue", "cited", "none"]);
    config["nodes"][0]["labels"] = json!([
        {"label_col": "area", "task_type": "classification"},
        {"label_col": "cited", "task_type": "regression"},
    ]);
    config["nodes"][1]["format"] = json!({"name": "hdf5"});
    config["edges"][0]["labels"][0]["task_type"] = json!("classification");
    config["edges"][1]["files"] = json!(["no.csv"]);
    ingest(&config, "").failure(&[
        "data/config.json: node type paper: feature year: the transform bert_hf is not done by ingest",
        "compute the embeddings first",
        "feature cited: the transform to_categorical is not done by ingest: only text becomes categories",
        "there is no column none; there are id, year",
        "--label paper=area, or --label paper=cited",
        "node type venue: the format hdf5 is not read",
        "relation author:writes:paper: labels of edges (classification) are not stored",
        "relation paper:in:venue: there is no file no.csv, neither in data nor in the working directory",
    ]);
    let (_, mut config) = graphstorm();
    config["nodes"][0]["feature"] = json!([]);
    ingest(&config, "").failure(&[
        "no configuration of GraphStorm's gconstruct",
        "unknown field `feature`",
        "`features`",
    ]);
    let (_, config) = graphstorm();
    ingest(&config, "--edges a:b:c=in.csv").failure(&["--gconstruct is a whole graph", "without --nodes and --edges"]);
    ingest(&config, "--tables data").failure(&["--tables is a whole graph; give it without --gconstruct"]);
    ingest(&config, "--label area").failure(&["--label paper=area"]);
}

/// Movies and people, as Neo4j's import has them. Relationships of two types are in one file, and others of one of them in a second.
fn neo4j() -> ProgramFolder {
    let folder = ProgramFolder::new();
    let movies =
        "movieId:ID(Movie),title,year:int,:LABEL\nt1,\"The Matrix, I\",1999,Movie\nt2,Reloaded,,Movie;Sequel\n";
    folder.write("db/movies.csv", movies);
    folder.write("db/people.csv", "personId:ID(Person){id-type: long},name,:LABEL\n1,Keanu,Actor\n2,Laurence,Actor\n");
    folder
        .write("db/roles.csv", ":START_ID(Person),pay:float,:END_ID(Movie),:TYPE\n1,2.5,t1,ACTED_IN\n2,,t2,DIRECTED\n");
    folder.write("db/more.csv", ":START_ID(Person),pay:float,:END_ID(Movie),:TYPE\n2,1,t1,ACTED_IN\n");
    folder.write("db/SOURCE.md", "no table");
    folder
}

#[test]
fn a_folder_of_neo4j_is_a_graph() {
    let folder = neo4j();
    let text = folder.run("ingest --neo4j db --dry-run").success().stdout;
    for part in ["relation Person:DIRECTED:Movie", "title: left out", "nothing was written"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    folder.run("ingest --neo4j db --label Movie=:LABEL --reverse ACTED_IN=cast --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let path = folder.path("g.grappa");
    assert_eq!(edges_of(&path, "Person:ACTED_IN:Movie"), pairs(&[("1", "t1"), ("2", "t1")]));
    assert_eq!(edges_of(&path, "Movie:cast:Person"), pairs(&[("t1", "1"), ("t1", "2")]));
    assert_eq!(edges_of(&path, "Person:DIRECTED:Movie"), pairs(&[("2", "t2")]));
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(of_types(&info, "name"), [json!("Movie"), json!("Person")]);
    assert_eq!(of_types(&info, "ids"), [json!("string"), json!("sparse")]);
    assert_eq!(of_types(&info, "class_names")[0], json!(["Movie", "Movie;Sequel"]));
    assert_eq!(of_types(&info, "feature_names")[0], json!(["year:int"]));
    assert_eq!(info["relations"][0]["edge_features"]["dim"], 1);
    // One ID space without a name, whose nodes have one label.
    folder.write("one/nodes.csv", ":ID,:LABEL\na,Page\nb,Page\n");
    folder.write("one/links.csv", ":START_ID,:END_ID\na,b\n");
    folder.run("ingest --neo4j one/nodes.csv one/links.csv --out o.grappa").success();
    assert_eq!(edges_of(&folder.path("o.grappa"), "Page:links:Page"), pairs(&[("a", "b")]));
}

#[test]
fn headers_of_neo4j_that_do_not_tell_node_types_are_one_error() {
    let folder = neo4j();
    let ingest = || folder.run("ingest --neo4j db --out h.grappa");
    folder.write("db/people.csv", "1,Keanu,Actor\n2,Laurence,Actor\n");
    ingest().failure(&[
        "db/people.csv: the first line is no header of neo4j-admin",
        "cat HEADER.csv db/people.csv > NEW.csv",
        "db/roles.csv: no file of nodes has :ID(Person)",
    ]);
    folder.write("db/people.csv", "movieId:ID(Movie),title,year:int,:LABEL\n1,Keanu,1,Actor\n");
    ingest().failure(&["have the ID space Movie", "(cat db/movies.csv; tail -q -n +2 db/people.csv) > NEW.csv"]);
    let folder = ProgramFolder::new();
    folder.write("nodes.csv", ":ID,:LABEL\na,Page\nb,Person\n");
    folder.write("links.csv", ":START_ID,:END_ID,:TYPE\na,b,\n");
    folder.run("ingest --neo4j nodes.csv links.csv --out h.grappa").failure(&[
        "nodes.csv: nodes have several labels (Page, Person)",
        "sed -i '1s/:ID/:ID(NAME)/' nodes.csv",
        "links.csv: relationships have no :TYPE",
    ]);
    folder.run("ingest --neo4j nodes.csv --out h.grappa").failure(&["several labels"]);
}
