//! Messages of ingest that are no errors: what a user can do, and how files were read.

use grappa_tests::{folder::ProgramFolder, npy::Npy};

use crate::ingest::{ingested, refused};

#[test]
fn the_summary_says_how_files_were_read() {
    let folder = ProgramFolder::new();
    folder.write("edges.txt", "# names\nann, bob\nbob, ann\n");
    folder.write("x.csv", "f0,user_id,label\n0.5,bob,1\n1.5,ann,0\n");
    let options = "--edges edges.txt --ids string --features x.csv";
    let stdout = ingested(&folder, options).stdout;
    for part in ["separated by commas, 1 comment line not read", "ids user_id; features f0; left out: label"] {
        assert!(stdout.contains(part), "{part:?} in {stdout}");
    }
    let json = ingested(&folder, &format!("{options} --json")).json();
    let inputs = json["inputs"].as_array().unwrap();
    assert_eq!(inputs[0]["separator"], "comma");
    assert_eq!(inputs[0]["comments"], 1);
    assert_eq!(inputs[1]["columns"][0]["role"], "ids");
    assert_eq!(inputs[1]["columns"][0]["column"], "user_id");
    assert_eq!(inputs[1]["left_out"][0], "label");
    assert_eq!(inputs[1]["by_position"], false);
}

#[test]
fn a_header_that_is_an_id_by_its_name_is_a_warning() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "n1\tn2\nn2\tn3\n");
    folder.write("ids.txt", "node_id\nn1\nn2\nn3\n");
    let stderr = ingested(&folder, "--edges edges.tsv --ids string --node-ids ids.txt").stderr;
    assert!(stderr.contains("ids.txt:1: the first line, \"node_id\""), "{stderr}");
}

#[test]
fn reverse_edges_of_a_symmetric_graph_are_noticed() {
    let folder = ProgramFolder::new();
    let [one_way, other_way] = [false, true].map(|is_reversed| {
        let edge = |k| match (k, (k * 7 + 1) % 100) {
            (a, b) if is_reversed => format!("{b} {a}\n"),
            (a, b) => format!("{a} {b}\n"),
        };
        (0..100).map(edge).collect::<String>()
    });
    folder.write("one-way.tsv", &one_way);
    folder.write("symmetric.tsv", one_way + &other_way);
    for (options, is_noticed) in [
        ("--edges symmetric.tsv --undirected", true),
        ("--edges symmetric.tsv --undirected --dedup", false),
        ("--edges symmetric.tsv", false),
        ("--edges one-way.tsv --undirected", false),
    ] {
        let stderr = ingested(&folder, options).stderr;
        let remedy = "omit --undirected, or merge parallel edges with --dedup";
        assert_eq!(stderr.contains(remedy), is_noticed, "{options}: {stderr}");
    }
}

#[test]
fn an_array_that_may_be_read_in_two_ways_is_a_warning() {
    let folder = ProgramFolder::new();
    for (shape, is_warned) in [([2, 2], true), ([1, 2], false), ([2, 3], false)] {
        Npy::new(&shape, 0..(shape[0] * shape[1]) as i64).write(&folder.path("edges.npy"));
        let stderr = ingested(&folder, "--edges edges.npy").stderr;
        let warning = "edges.npy: the array of shape (2, 2) is read as two edges";
        assert_eq!(stderr.contains(warning), is_warned, "{shape:?}: {stderr}");
    }
}

#[test]
fn labels_given_as_features_are_pointed_out() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 2\n2 3\n3 0\n");
    folder.write("classes.csv", "0\n1\n1\n0\n");
    Npy::new(&[4], [0i64, 1, 1, 0]).write(&folder.path("classes.npy"));
    // One fraction per node is no class.
    Npy::new(&[4, 1], [0.5f32; 4]).write(&folder.path("rank.npy"));
    for (file, is_warned) in [("classes.csv", true), ("classes.npy", true), ("rank.npy", false)] {
        let stderr = ingested(&folder, &format!("--edges edges.tsv --features {file}")).stderr;
        let warning = stderr.contains("one number per node") && stderr.contains("--labels");
        assert_eq!((warning, stderr.is_empty()), (is_warned, !is_warned), "{stderr}");
    }
}

#[test]
fn one_hot_labels_are_pointed_out() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 2\n2 3\n3 0\n");
    for (last, is_warned) in [([0i64, 1], true), ([1, 1], false)] {
        let labels = [1i64, 0, 0, 1, 1, 0].into_iter().chain(last);
        Npy::new(&[4, 2], labels).write(&folder.path("labels.npy"));
        let stderr = ingested(&folder, "--edges edges.tsv --labels labels.npy").stderr;
        assert_eq!(stderr.contains("a.argmax(axis=1)"), is_warned, "{stderr}");
    }
}

#[test]
fn edges_of_nodes_without_a_row_are_told_from_bad_lines() {
    let folder = ProgramFolder::new();
    Npy::new(&[3, 2], [0.5f32; 6]).write(&folder.path("x.npy"));
    folder.write("edges.tsv", "0 1\n1 x\n2 5\n7 0\n");
    for (more, parts) in grappa_skip::cases![
        "--features x.npy", &["2 edges were left out", "x.npy, which has 3", "1 more lines"][..];
        "--nodes 6", &["1 edges were left out", "--nodes 6"];
        "", &[];
    ] {
        let stderr = ingested(&folder, &format!("--edges edges.tsv --on-bad-line skip {more}")).stderr;
        assert!(parts.iter().all(|part| stderr.contains(part)), "{stderr}");
        assert_eq!(stderr.contains("left out"), !parts.is_empty(), "{stderr}");
        std::fs::remove_file(folder.path("out.grappa.rejects")).unwrap();
    }
    // If no line fits the rows, no line shows the columns. The user gave no --nodes.
    folder.write("edges.tsv", "5 6\n");
    let parts = ["x.npy: this file has 3 rows", "edges.tsv:1", "at least 7"];
    let ran = refused(&folder, "--edges edges.tsv --features x.npy", &parts);
    assert!(!ran.stderr.contains("--nodes"), "{}", ran.stderr);
}
