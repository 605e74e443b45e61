//! Graphs in the layouts of other tools: the smallest folder of each kind, and its mistakes.

use std::io::Write;

use grappa_engine::{EdgePart, Graph};
use grappa_tests::{
    folder::ProgramFolder,
    npy::Npy,
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
    for (part, values) in [(0, [1.0, 2.0]), (1, [3.0, 4.0])] {
        folder.write("data/venues/_SUCCESS", "");
        write_table(&folder.path(&format!("data/venues/part-{part}.parquet")), &[("x", Column::Lists(2, &values))], 1);
    }
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
                "node_type": "venue", "format": {"name": "parquet"}, "files": "venues/*.parquet",
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
    // A folder may have the letters of patterns, and a split all edges for training.
    let mut config = config;
    config["edges"][0]["labels"][0]["split_pct"] = json!([1.0, 0.0, 0.0]);
    std::fs::rename(folder.path("data"), folder.path("[data]")).unwrap();
    config["edges"][1]["files"] = json!("in.csv");
    folder.write("[data]/config.json", config.to_string());
    folder.run("ingest --gconstruct [data]/config.json --out w.grappa").success();
    assert_eq!(
        edges_of(&folder.path("w.grappa"), "author:writes:paper"),
        pairs(&[("7", "p1"), ("9", "p1"), ("7", "p2")])
    );
    std::fs::rename(folder.path("[data]"), folder.path("data")).unwrap();
    // An option replaces a part of the configuration.
    folder
        .run("ingest --gconstruct data/config.json --label paper=cited --split paper=67/33/0 --out h.grappa")
        .success();
    let info = folder.run("store info h.grappa --json").success().json();
    assert_eq!(
        (&of_types(&info, "splits")[0]["train"], of_types(&info, "class_names")[0].clone()),
        (&json!(2), json!([]))
    );
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
    config["nodes"][0]["files"] = json!(["papers.csv", "in.csv"]);
    ingest(&config, "").failure(&[
        "node type paper: found 2 files, expected one table",
        "writerows(t[0] + [r for u in t[1:] for r in u[1:]])\" data/papers.csv data/in.csv",
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
    ingest().failure(&[
        "have the ID space Movie",
        "for r in u[1:]])\" db/movies.csv db/people.csv; otherwise name a space",
    ]);
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

/// Papers with features and labels, authors, and edges in both formats, as GraphBolt describes them.
fn graphbolt() -> (ProgramFolder, String) {
    let folder = ProgramFolder::new();
    folder.write("bolt/writes.csv", "0,0\n1,0\n0,2\n");
    let array = |name: &str, array: Npy| folder.write(&format!("bolt/{name}.npy"), array.encode());
    // Two edges, 0 -> 1 and 2 -> 3: each row is all sources, or all destinations.
    array("cites", Npy::new(&[2, 2], [0_i64, 2, 1, 3]));
    array("cites-feat", Npy::new(&[2, 1], [0.5_f32, 1.5]));
    array("feat", Npy::new(&[4, 2], [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]));
    array("train", Npy::new(&[2], [0_i64, 3]));
    array("train-y", Npy::new(&[2], [1_i64, 0]));
    array("val", Npy::new(&[1], [1_i64]));
    array("val-y", Npy::new(&[1], [1_i64]));
    let yaml = "
dataset_name: tiny # a comment
graph:
  nodes:
    - {type: paper, num: 4}
    - type: author
      num: 3
  edges:
    - type: \"author:writes:paper\"
      format: csv
      path: writes.csv
    - type: \"paper:cites:paper\"
      format: numpy
      path: cites.npy
feature_data:
  - {domain: node, type: paper, name: feat, format: numpy, in_memory: false, path: feat.npy}
  - {domain: edge, type: \"paper:cites:paper\", name: f, format: numpy, path: cites-feat.npy}
tasks:
  - name: node_classification
    num_classes: 2
    train_set:
      - type: paper
        data:
          - {name: seeds, format: numpy, path: train.npy}
          - {name: labels, format: numpy, path: train-y.npy}
    validation_set:
      - type: paper
        data:
          - {name: seeds, format: numpy, path: val.npy}
          - {name: labels, format: numpy, path: val-y.npy}
";
    (folder, yaml.to_owned())
}

#[test]
fn a_dataset_of_graphbolt_is_a_graph() {
    let (folder, yaml) = graphbolt();
    folder.write("bolt/metadata.yaml", &yaml);
    let text = folder.run("ingest --graphbolt bolt --dry-run").success().stdout;
    assert!(text.contains("relation paper:cites:paper") && text.contains("nothing was written"), "{text}");
    folder.run("ingest --graphbolt bolt/metadata.yaml --reverse writes=by --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let path = folder.path("g.grappa");
    assert_eq!(edges_of(&path, "paper:cites:paper"), pairs(&[("0", "1"), ("2", "3")]));
    assert_eq!(edges_of(&path, "paper:by:author"), pairs(&[("0", "0"), ("0", "1"), ("2", "0")]));
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(of_types(&info, "nodes"), [json!(4), json!(3)]);
    assert_eq!(of_types(&info, "splits")[0], json!({"train": 2, "val": 1, "test": null}));
    assert_eq!(info["node_types"][0]["features"]["dim"], 2);
    folder.run("store export g.grappa --type paper --labels labels.csv").success();
    assert_eq!(folder.read("labels.csv").lines().skip(1).collect::<Vec<_>>(), ["0,1", "1,1", "2,-1", "3,0"]);
    // The pairs of a task on edges are held out, unless some of them are negatives.
    folder.write("bolt/pairs.npy", Npy::new(&[2, 2], [1_i64, 0, 0, 2]).encode());
    let task = "
tasks:
  - validation_set:
      - {type: \"author:writes:paper\", data: [{name: seeds, format: numpy, path: pairs.npy}]}
    test_set:
      - type: \"author:writes:paper\"
        data: [{name: seeds, format: numpy, path: pairs.npy}, {name: labels, format: numpy, path: train-y.npy}]
";
    folder.write("bolt/links.yaml", yaml.split("tasks:").next().unwrap().to_owned() + task);
    let run = folder.run("ingest --graphbolt bolt/links.yaml --out l.grappa").success();
    assert!(run.stderr.contains("--test-edges author:writes:paper=FILE"), "{}", run.stderr);
    assert_eq!(edges_of(&folder.path("l.grappa"), "author:writes:paper"), pairs(&[("0", "0")]));
    // A graph without types has the names of DGL.
    let plain = "graph: {nodes: [{num: 3}], edges: [{format: csv, path: writes.csv}]}";
    folder.write("bolt/plain.yaml", plain);
    folder.run("ingest --graphbolt bolt/plain.yaml --out p.grappa").success();
    assert_eq!(edges_of(&folder.path("p.grappa"), "_N:_E:_N"), pairs(&[("0", "0"), ("1", "0"), ("0", "2")]));
}

#[test]
fn all_that_a_dataset_of_graphbolt_asks_in_vain_is_one_error() {
    let (folder, yaml) = graphbolt();
    let ingest = |yaml: &str, more: &str| {
        folder.write("bolt/metadata.yaml", yaml);
        folder.run(&format!("ingest --graphbolt bolt --out h.grappa {more}"))
    };
    let two_features =
        yaml.replace("tasks:", "  - {domain: node, type: paper, name: more, format: numpy, path: feat.npy}\ntasks:");
    ingest(&two_features, "").failure(&[
        "bolt/metadata.yaml: feature more of paper: there is another feature",
        "--features paper=bolt/feat.npy",
    ]);
    ingest(&two_features, "--features author=bolt/feat.npy").failure(&["there is another feature"]);
    ingest(&two_features, "--features paper=bolt/feat.npy").success();
    let wrong = yaml
        .replace("name: feat, format: numpy", "name: feat, format: torch")
        .replace("path: cites.npy", "path: none.npy")
        .replace("path: val-y.npy", "path: train-y.npy")
        .replace("num: 3", "num: 3\n    - {type: venue, num: 2}")
        .replace("author:writes:paper", "author:writes:book");
    ingest(&wrong, "--force").failure(&[
        "there is no node type book, which edges of author:writes:book have",
        "there is no file bolt/none.npy",
        "feature feat of paper: the format torch is not read",
        "torch.load(sys.argv[1], map_location='cpu', weights_only=False)",
        "the val set of paper has 1 seeds and 2 labels",
    ]);
    ingest("graph: {nodes: [{num: many}], edges: []}", "").failure(&["no metadata of an OnDiskDataset of GraphBolt"]);
    ingest("graph: {nodes: [{num: 3}], edges: []}", "").failure(&["there are no edges"]);
}

/// Text in gzip.
fn gzip(text: &str) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(text.as_bytes()).unwrap();
    packed.finish().unwrap()
}

#[test]
fn a_folder_of_ogb_with_several_node_types_is_a_graph() {
    let folder = ProgramFolder::new();
    let write = |name: &str, text: &str| folder.write(&format!("mag/{name}.csv.gz"), gzip(text));
    write("raw/num-node-dict", "author,paper\n3,4\n");
    write("raw/triplet-type-list", "author,paper,writes\npaper,paper,cites\n");
    write("raw/relations/author___writes___paper/edge", "0,0\n2,3\n");
    write("raw/relations/author___writes___paper/num-edge-list", "2\n");
    write("raw/relations/paper___cites___paper/edge", "0,1\n");
    write("raw/node-feat/paper/node-feat", "0.5,1\n0,1\n2,3\n1,1\n");
    write("raw/node-label/paper/node-label", "1\n0\n1\n0\n");
    for (name, ids) in [("train", "0\n1\n"), ("valid", "2\n"), ("test", "3\n")] {
        write(&format!("split/time/paper/{name}"), ids);
    }
    folder.run("ingest --ogb mag --dry-run").success();
    folder.run("ingest --ogb mag --reverse writes=by --out g.grappa").success();
    folder.run("store verify g.grappa").success();
    let info = folder.run("store info g.grappa --json").success().json();
    assert_eq!(of_types(&info, "name"), [json!("author"), json!("paper")]);
    assert_eq!(of_types(&info, "nodes"), [json!(3), json!(4)]);
    assert_eq!(of_types(&info, "splits")[1], json!({"train": 2, "val": 1, "test": 1}));
    assert_eq!(edges_of(&folder.path("g.grappa"), "paper:by:author"), pairs(&[("0", "0"), ("3", "2")]));
    folder
        .run("ingest --ogb mag --tables mag --out h.grappa")
        .failure(&["--tables is a whole graph; give it without --ogb"]);
    std::fs::remove_file(folder.path("mag/split/time/paper/valid.csv.gz")).unwrap();
    folder.run("ingest --ogb mag --out h.grappa").failure(&["mag/split/time/paper", "valid.csv.gz is missing"]);
    std::fs::remove_file(folder.path("mag/raw/num-node-dict.csv.gz")).unwrap();
    folder.run("ingest --ogb mag --out h.grappa").failure(&["expected raw/num-node-dict.csv.gz"]);
}

#[test]
fn arrays_of_mag240m_and_igb_are_graphs() {
    let folder = ProgramFolder::new();
    let array = |name: &str, array: Npy| folder.write(&format!("{name}.npy"), array.encode());
    for (data, between) in [("mag240m", "___"), ("igb", "__")] {
        let relation = |name: &str| format!("{data}/processed/{}/edge_index", name.replace(':', between));
        array(&format!("{data}/processed/paper/node_feat"), Npy::new(&[3, 2], [0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0]));
        // Two edges, 0 -> 2 and 1 -> 0.
        let ends: [i64; 4] = if data == "igb" { [0, 2, 1, 0] } else { [0, 1, 2, 0] };
        array(&relation("author:writes:paper"), Npy::new(&[2, 2], ends));
    }
    array("mag240m/processed/paper/node_label", Npy::new(&[3], [1.0_f32, f32::NAN, 0.0]));
    array("igb/processed/paper/node_label_19", Npy::new(&[3], [1.0_f32, 2.0, 0.0]));
    array("igb/processed/paper/node_label_2K", Npy::new(&[3], [1.0_f32, 2.0, 0.0]));
    folder.write("mag240m/split_dict.pt", "");
    let run = folder.run("ingest --ogb mag240m --out m.grappa").success();
    assert!(
        run.stderr.contains("split_dict.pt") && run.stderr.contains("--train paper=mag240m/train.csv"),
        "{}",
        run.stderr
    );
    folder.run("ingest --igb igb --out i.grappa").failure(&["--labels paper=igb/processed/paper/node_label_19.npy"]);
    let labels = "--labels paper=igb/processed/paper/node_label_19.npy --split paper=34/33/33";
    folder.run(&format!("ingest --igb igb {labels} --out i.grappa")).success();
    for store in ["m", "i"] {
        let path = folder.path(&format!("{store}.grappa"));
        assert_eq!(edges_of(&path, "author:writes:paper"), pairs(&[("0", "2"), ("1", "0")]), "{store}");
        let info = folder.run(&format!("store info {store}.grappa --json")).success().json();
        assert_eq!(of_types(&info, "name"), [json!("paper"), json!("author")]);
        assert_eq!(of_types(&info, "nodes"), [json!(3), json!(2)]);
    }
    folder.run("ingest --igb . --out h.grappa").failure(&["expected the folder processed in it"]);
}
