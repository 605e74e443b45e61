//! The remedies in messages about input files: what a user can do that helps.

use grappa_tests::{npy::Npy, program::run};

use crate::ingest::Bench;

#[test]
fn a_third_column_that_is_no_weight_can_be_cut_off() {
    let bench = Bench::new();
    for (name, text, remedy) in [
        (
            "edges.csv",
            "src,dst,kind\n0,1,cites\n1,2,cites\n",
            ["--src", "src", "--dst", "dst"],
        ),
        ("edges.tsv", "0\t1\tcites\n1\t2\tcites\n", ["--src", "1", "--dst", "2"]),
        ("edges.txt", "0 1 cites\n1 2 cites\n", ["--src", "1", "--dst", "2"]),
    ] {
        let edges = bench.write(name, text);
        for skip in ["fail", "skip"] {
            let ran = bench.refused(&edges, &["--on-bad-line", skip], &[&remedy.join(" ")]);
            assert!(!ran.stderr.contains("--on-bad-line"), "{}", ran.stderr);
        }
        run(&mut bench.ingest(&edges, &remedy)).success();
        std::fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn the_summary_says_how_files_were_read() {
    let bench = Bench::new();
    let edges = bench.write("edges.txt", "# names\nann, bob\nbob, ann\n");
    let table = bench.write("x.csv", "f0,user_id,label\n0.5,bob,1\n1.5,ann,0\n");
    let arguments = ["--ids", "string", "--features", table.to_str().unwrap()];
    let ran = run(&mut bench.ingest(&edges, &arguments)).success();
    for part in [
        "separated by commas, 1 comment line not read",
        "ids user_id; features f0; left out: label",
    ] {
        assert!(ran.stdout.contains(part), "{part:?} in {}", ran.stdout);
    }
    std::fs::remove_dir_all(bench.out()).unwrap();
    let json = run(&mut bench.ingest(&edges, &[&arguments[..], &["--json"]].concat()))
        .success()
        .json();
    let inputs = json["inputs"].as_array().unwrap();
    assert_eq!(inputs[0]["separator"], "comma");
    assert_eq!(inputs[0]["comments"], 1);
    assert_eq!(inputs[1]["columns"][0]["role"], "ids");
    assert_eq!(inputs[1]["columns"][0]["column"], "user_id");
    assert_eq!(inputs[1]["left_out"][0], "label");
    assert_eq!(inputs[1]["by_position"], false);
}

#[test]
fn files_of_other_kinds_are_named_with_a_way_to_convert_them() {
    let bench = Bench::new();
    let pytorch = bench.write("x.pt", zip_of("x/data.pkl"));
    for option in ["--features", "--labels", "--train", "--node-ids"] {
        bench.refused_beside_edges(
            option,
            &pytorch,
            &["--ids", "sparse"],
            &["PyTorch", "torch.load", ".numpy()"],
        );
    }
    bench.refused(&pytorch, &[], &["PyTorch", "torch.load"]);
}

/// A zip archive with one member, which is empty.
fn zip_of(name: &str) -> Vec<u8> {
    let length = (name.len() as u16).to_le_bytes();
    // CRC-32, both sizes, and the length of the name.
    let sizes = [&[0; 12][..], &length].concat();
    let local = [
        b"PK\x03\x04\x14\0\0\0\0\0\0\0\0\0",
        &sizes[..],
        &[0; 2],
        name.as_bytes(),
    ]
    .concat();
    let central = [
        b"PK\x01\x02\x14\0\x14\0\0\0\0\0\0\0\0\0",
        &sizes[..],
        &[0; 16],
        name.as_bytes(),
    ]
    .concat();
    let places = [central.len() as u32, local.len() as u32]
        .map(u32::to_le_bytes)
        .concat();
    let end = [b"PK\x05\x06\0\0\0\0\x01\0\x01\0", &places[..], &[0; 2]].concat();
    [local, central, end].concat()
}

#[test]
fn one_of_several_masks_is_a_column() {
    let bench = Bench::new();
    let masks = Npy {
        descr: "|b1".to_owned(),
        fortran: false,
        shape: vec![4, 3],
        bytes: vec![1; 12],
    };
    let masks = bench.npy("masks.npy", &masks);
    bench.refused_beside_edges("--train", &masks, &[], &["masks.npy", "shape (4, 3)", "a[:, 0]"]);
}

#[test]
fn labels_beside_ids_are_told_apart() {
    let bench = Bench::new();
    let names = bench.write("names.csv", "n0,3\nn1,0\nn2,1\nn3,0\n");
    bench.refused_beside_edges("--labels", &names, &[], &["names.csv:1", "column 1", "--id 1"]);
    let numbers = bench.write("numbers.csv", "0,3\n1,0\n2,1\n3,0\n");
    bench.refused_beside_edges("--labels", &numbers, &[], &["numbers.csv:1", "first column", "--id 1"]);
}

#[test]
fn a_header_that_was_read_as_an_id_is_suspected() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "n1\tn2\nn2\tn3\n");
    let ids = bench.write("ids.txt", "package\nn1\nn2\nn3\n");
    let node_ids = ["--ids", "string", "--node-ids", ids.to_str().unwrap()];
    let refused = |more: &[&str], parts: &[&str]| {
        bench.refused(&edges, &[&node_ids[..], more].concat(), parts);
    };
    let features = bench.write("features.txt", "1\n2\n3\n");
    refused(
        &["--labels", features.to_str().unwrap()],
        &["expected 4", "found 3", "header", "remove that line"],
    );
    let features = bench.npy("features.npy", &Npy::new(&[3, 1], [1.0_f32, 2.0, 3.0]));
    refused(
        &["--features", features.to_str().unwrap()],
        &["ids.txt", "header", "tail -n +2"],
    );
    let [train, val] =
        [("train.txt", "package\nn1\n"), ("val.txt", "package\nn2\n")].map(|(name, text)| bench.write(name, text));
    let splits = ["--train", train.to_str().unwrap(), "--val", val.to_str().unwrap()];
    refused(&splits, &["package", "first line of both files", "tail -n +2"]);

    let ids = bench.write("ids.txt", "node_id\nn1\nn2\nn3\n");
    let ran = run(&mut bench.ingest(&edges, &["--ids", "string", "--node-ids", ids.to_str().unwrap()])).success();
    assert!(
        ran.stderr.contains("ids.txt:1: the first line, \"node_id\""),
        "{}",
        ran.stderr
    );
}

#[test]
fn reverse_edges_of_a_symmetric_graph_are_noticed() {
    let bench = Bench::new();
    let warned = |text: String, arguments: &[&str]| {
        let edges = bench.write("edges.tsv", text);
        let _ = std::fs::remove_dir_all(bench.out());
        run(&mut bench.ingest(&edges, arguments))
            .success()
            .stderr
            .contains("omit --undirected, or merge parallel edges with --dedup")
    };
    let one_way: String = (0..100).map(|k| format!("{k} {}\n", (k * 7 + 1) % 100)).collect();
    let other_way: String = (0..100).map(|k| format!("{} {k}\n", (k * 7 + 1) % 100)).collect();
    let symmetric = one_way.clone() + &other_way;
    assert!(warned(symmetric.clone(), &["--undirected"]));
    assert!(!warned(symmetric.clone(), &["--undirected", "--dedup"]));
    assert!(!warned(symmetric, &[]));
    assert!(!warned(one_way, &["--undirected"]));
}
