//! Bad input is an error of one line that names file, position and remedy. The exit code is 1, or 2 for wrong usage. No
//! unfinished store is left, and an existing store is untouched.

use std::{
    fs,
    io::Write,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use crate::ingest::Bench;
use flate2::write::GzEncoder;
use grappa_tests::{
    files::names_in,
    npy::Npy,
    parquet::write_parquet,
    program::{self, run},
};

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_bad_line_is_named_with_its_number_and_the_remedy() {
    let bench = Bench::new();
    let cases: &[(&str, &[&str], &str)] = &[
        ("0 1\n1 x\n", &[], ":2: "),
        ("# ids\n0 1\n1\n", &[], ":3: "),
        ("0 1\n1 2\n3", &[], ":3: "),
        ("0 1\n\n-1 2\n", &[], ":3: a node id is negative"),
        ("0 1\n1.5 2\n", &[], ":2: "),
        ("0 1\n1099511627776 2\n", &[], ":2: a node id is too large"),
        ("0 1\n99999999999999999999999 2\n", &[], ":2: a node id is too large"),
        (
            "0 1\n1 2\n2 10\n",
            &["--nodes", "10"],
            ":3: a node id is not below the number of nodes, 10",
        ),
        ("0 1 0.5\n1 2 heavy\n", &[], ":2: "),
        ("0 1 0.5\n1 2 inf\n", &[], ":2: "),
        ("0 1 0.5\n1 2\n", &[], ":2: "),
        ("0 1\n1 2 3 4\n", &[], ":2: "),
    ];
    for (text, arguments, expected) in cases {
        let edges = bench.write("edges.tsv", text);
        bench.refused(&edges, arguments, &["edges.tsv", expected, "--on-bad-line skip"]);
    }
    // Far into a large file, in the second of two files, and inside an archive.
    let mut lines: Vec<String> = (0..200_000).map(|k| format!("{} {}\n", k % 1000, k % 777)).collect();
    lines[123_456] = "12 -7\n".to_owned();
    let text = lines.concat();
    let deep = bench.write("deep.tsv", &text);
    bench.refused(&deep, &[], &["deep.tsv:123457: a node id is negative"]);
    let good = bench.write("good.tsv", "0 1\n");
    bench.refused(&good, &["--edges", deep.to_str().unwrap()], &["deep.tsv:123457: "]);
    let packed = bench.write("deep.tsv.gz", gzip(text.as_bytes()));
    bench.refused(&packed, &[], &["deep.tsv.gz:123457: "]);
}

#[test]
fn bad_lines_are_skipped_counted_and_listed_if_wished() {
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "0 1\n1 x\n2 0\n-1 2\n");
    let ran = run(&mut bench.ingest(&edges, &["--on-bad-line", "skip", "--json"])).success();
    let json = ran.json();
    assert_eq!((json["edges"].as_u64(), json["rejected"].as_u64()), (Some(2), Some(2)));
    assert_eq!(names_in(&bench.path("stores")), ["out.grappa", "out.grappa.rejects"]);
    let rejects = fs::read_to_string(bench.path("stores/out.grappa.rejects")).unwrap();
    assert!(rejects.contains("1 x") && rejects.contains("-1 2"), "{rejects}");
}

#[test]
fn edges_of_nodes_without_a_row_are_told_from_bad_lines() {
    let bench = Bench::new();
    let rows = bench.npy("x.npy", &Npy::new(&[3, 2], [0.5f32; 6]));
    let rows = ["--features", rows.to_str().unwrap()];
    let edges = bench.write("edges.tsv", "0 1\n1 x\n2 5\n7 0\n");
    let skip = ["--on-bad-line", "skip"];
    let ran = run(&mut bench.ingest(&edges, &[&rows[..], &skip].concat())).success();
    for part in ["2 edges were left out", "x.npy, which has 3", "1 more lines"] {
        assert!(ran.stderr.contains(part), "{part:?} in: {}", ran.stderr);
    }
    fs::remove_dir_all(bench.out()).unwrap();
    let ran = run(&mut bench.ingest(&edges, &[&["--nodes", "6"][..], &skip].concat())).success();
    assert!(
        ran.stderr.contains("1 edges were left out") && ran.stderr.contains("--nodes 6"),
        "{}",
        ran.stderr
    );
    fs::remove_dir_all(bench.out()).unwrap();
    fs::remove_file(bench.path("stores/out.grappa.rejects")).unwrap();
    let ran = run(&mut bench.ingest(&edges, &skip)).success();
    assert!(!ran.stderr.contains("left out"), "{}", ran.stderr);
    fs::remove_dir_all(bench.out()).unwrap();
    fs::remove_file(bench.path("stores/out.grappa.rejects")).unwrap();
    // If no line fits the rows, no line shows the columns. The user gave no --nodes.
    let edges = bench.write("edges.tsv", "5 6\n");
    let ran = bench.refused(
        &edges,
        &rows,
        &["x.npy: this file has 3 rows", "edges.tsv:1", "at least 7"],
    );
    assert!(!ran.stderr.contains("--nodes"), "{}", ran.stderr);
}

#[test]
fn an_array_that_may_be_read_in_two_ways_is_a_warning() {
    let bench = Bench::new();
    for (shape, warns) in [([2, 2], true), ([1, 2], false), ([2, 3], false)] {
        let edges = bench.npy("edges.npy", &Npy::new(&shape, 0..(shape[0] * shape[1]) as i64));
        let ran = run(&mut bench.ingest(&edges, &[])).success();
        let is_warning = ran
            .stderr
            .contains("edges.npy: the array of shape (2, 2) is read as two edges");
        assert_eq!(is_warning, warns, "{shape:?}: {}", ran.stderr);
        fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn parquet_in_a_compression_that_is_not_read_names_the_call_that_changes_it() {
    let bench = Bench::new();
    let edges = bench.path("edges.parquet");
    write_parquet(&edges, &[(0, 1), (1, 2)], None);
    let mut bytes = fs::read(&edges).unwrap();
    // In the footer, the codec comes after the path of a column: 0 is none, 4 is brotli, in zigzag code.
    let codec = b"\x03src\x15\x00";
    let at = bytes.windows(codec.len()).rposition(|bytes| bytes == codec).unwrap();
    bytes[at + codec.len() - 1] = 8;
    fs::write(&edges, bytes).unwrap();
    bench.refused(
        &edges,
        &[],
        &["edges.parquet: column src", "brotli", "pyarrow", "compression='zstd'"],
    );
}

#[test]
fn an_empty_input_is_refused() {
    let bench = Bench::new();
    for (name, bytes) in [
        ("empty.tsv", Vec::new()),
        ("comments.tsv", b"# nothing\n\n".to_vec()),
        ("empty.tsv.gz", gzip(b"")),
        ("empty.npy", Npy::new::<i64>(&[0, 2], []).encode()),
        ("empty.u32", Vec::new()),
    ] {
        let edges = bench.write(name, bytes);
        bench.refused(&edges, &[], &[name, "no edges"]);
    }
}

#[test]
fn a_binary_file_of_a_wrong_size_is_refused() {
    let bench = Bench::new();
    let edges = bench.write("edges.u32", [0u8; 8 * 5 + 3]);
    bench.refused(
        &edges,
        &[],
        &["edges.u32", "8 bytes", "3 bytes are left over", "truncated"],
    );
    let edges = bench.write("edges.bin", [0u8; 16 * 5 + 8]);
    bench.refused(
        &edges,
        &["--format", "u64"],
        &["edges.bin", "16 bytes", "8 bytes are left over"],
    );
    bench.refused(&edges, &[], &["edges.bin", "--format"]);
}

#[test]
fn an_id_in_a_binary_file_is_held_to_the_same_limits() {
    let bench = Bench::new();
    let good = [0i64, 1, 1, 2];
    for (bad, arguments, what) in [
        (-1, &[][..], "negative"),
        (1 << 40, &[], "too large"),
        (10, &["--nodes", "10"], "not below the number of nodes, 10"),
    ] {
        let edges = bench.npy("edges.npy", &Npy::new(&[3, 2], good.into_iter().chain([bad, 0])));
        bench.refused(&edges, arguments, &["edges.npy at row 2", what]);
        let columns = [good[0], good[2], 0, good[1], good[3], bad];
        let edges = bench.npy("columns.npy", &Npy::new(&[2, 3], columns));
        bench.refused(&edges, arguments, &["columns.npy at row 2", what]);
    }
}

#[test]
fn a_wrong_npy_is_refused_with_the_call_that_would_mend_it() {
    let bench = Bench::new();
    let good = Npy::new(&[3, 2], [0i64, 1, 1, 2, 2, 0]);
    let cases: Vec<(&str, Npy, &[&str])> = vec![
        (
            "shape",
            Npy {
                shape: vec![6],
                ..good.clone()
            },
            &["[E, 2]", "(6,)"],
        ),
        ("columns", Npy::new(&[2, 3, 1], [0i64; 6]), &["[E, 2]", "(2, 3, 1)"]),
        (
            "weights-inside",
            Npy::new(&[4, 3], [0i64; 12]),
            &["[E, 2]", "--weights"],
        ),
        (
            "floats",
            Npy::new(&[1, 2], [0.5, 1f64]),
            &["fraction", "--on-bad-line skip"],
        ),
        (
            "strings",
            Npy {
                descr: "<U4".into(),
                ..good.clone()
            },
            &["U4"],
        ),
        (
            "objects",
            Npy {
                descr: "|O".into(),
                ..good.clone()
            },
            &["object"],
        ),
        (
            "short",
            Npy {
                bytes: good.bytes[..47].to_vec(),
                ..good.clone()
            },
            &["truncated"],
        ),
        (
            "long",
            Npy {
                bytes: [&good.bytes[..], b"x"].concat(),
                ..good.clone()
            },
            &["appended"],
        ),
        (
            "huge",
            Npy {
                shape: vec![1 << 62, 2],
                ..good.clone()
            },
            &["truncated"],
        ),
    ];
    for (name, array, parts) in cases {
        let name = format!("{name}.npy");
        let edges = bench.npy(&name, &array);
        bench.refused(&edges, &[], &[&[name.as_str()], parts].concat());
    }
    let whole = good.encode();
    for length in [0, 5, 9, 40, 127] {
        let edges = bench.write("cut.npy", &whole[..length]);
        bench.refused(&edges, &[], &["cut.npy"]);
    }
    let edges = bench.write("text.npy", "0 1\n1 2\n");
    bench.refused(&edges, &[], &["text.npy", "--format tsv"]);
}

#[test]
fn a_damaged_archive_is_refused() {
    let bench = Bench::new();
    let text: String = (0..5000).map(|k| format!("{k} {}\n", k * 7 % 5000)).collect();
    let packed = gzip(text.as_bytes());
    let edges = bench.write("cut.tsv.gz", &packed[..packed.len() / 2]);
    bench.refused(&edges, &[], &["cut.tsv.gz", "truncated"]);
    let mut damaged = packed;
    let middle = damaged.len() / 2;
    damaged[middle] ^= 0x55;
    let edges = bench.write("damaged.tsv.gz", damaged);
    bench.refused(&edges, &[], &["damaged.tsv.gz"]);
    let packed = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let edges = bench.write("cut.tsv.zst", &packed[..packed.len() / 2]);
    bench.refused(&edges, &[], &["cut.tsv.zst", "truncated"]);
    let edges = bench.write("cut.parquet", b"PAR1 and no more");
    bench.refused(&edges, &[], &["cut.parquet", "write it again"]);
}

#[test]
fn labels_given_as_features_are_pointed_out() {
    let bench = Bench::new();
    let edges = bench.write("good.tsv", "0 1\n1 2\n2 3\n3 0\n");
    let text = bench.write("classes.csv", "0\n1\n1\n0\n");
    for file in [bench.npy("classes.npy", &Npy::new(&[4], vec![0i64, 1, 1, 0])), text] {
        let ran = run(&mut bench.ingest(&edges, &["--features", file.to_str().unwrap()])).success();
        assert!(
            ran.stderr.contains("one number per node") && ran.stderr.contains("--labels"),
            "{}",
            ran.stderr
        );
        fs::remove_dir_all(bench.out()).unwrap();
    }
    // One fraction per node is no class.
    let file = bench.npy("rank.npy", &Npy::new(&[4, 1], vec![0.5f32; 4]));
    let ran = run(&mut bench.ingest(&edges, &["--features", file.to_str().unwrap()])).success();
    assert_eq!(ran.stderr, "");
}

#[test]
fn an_ogb_folder_whose_edges_exceed_its_number_of_nodes_is_refused() {
    let bench = Bench::new();
    let ogb = bench.path("ogb");
    fs::create_dir_all(ogb.join("raw")).unwrap();
    fs::write(ogb.join("raw/edge.csv"), "0,1\n1,5\n2,0\n").unwrap();
    fs::write(ogb.join("raw/num-node-list.csv"), "3\n").unwrap();
    let ingest = |more: &[&str]| {
        let mut ingest = program::command("grappa-ingest");
        ingest
            .arg("--out")
            .arg(bench.path("stores/ogb.grappa"))
            .args(["--split", "34/33/33"])
            .arg("--ogb")
            .arg(&ogb);
        run(ingest.args(more))
    };
    ingest(&[]).failure(&[
        "num-node-list.csv: this file says that there are 3 nodes, but the edges name node 5",
        "edge.csv:2",
        "fix the number",
    ]);
    let skipped = ingest(&["--on-bad-line", "skip"]).success();
    assert!(
        skipped.stderr.contains("not below 3, the number of nodes in"),
        "{}",
        skipped.stderr
    );
}

#[test]
fn features_must_fit_the_nodes_and_be_finite() {
    let bench = Bench::new();
    let refused = |name: &str, array: &Npy, more: &[&str], parts: &[&str]| {
        let file = bench.npy(name, array);
        bench.refused_beside_edges("--features", &file, more, &[&[name], parts].concat());
    };
    let rows = |rows: usize| Npy::new(&[rows, 2], vec![0.5f32; rows * 2]);
    // Without --nodes, the features file determines the number of nodes, and an edge has a larger id.
    let file = bench.npy("few.npy", &rows(3));
    let parts = [
        "few.npy: this file has 3 rows, but the edges name node 3",
        "good.tsv:3",
        "at least 4",
    ];
    bench.refused_beside_edges("--features", &file, &[], &parts);
    refused("few.npy", &rows(3), &["--nodes", "4"], &["expected 4 rows", "found 3"]);
    refused("many.npy", &rows(5), &["--nodes", "4"], &["expected 4 rows", "found 5"]);
    let parts = [
        "expected 4 rows",
        "found 5; with --ids sparse or string, the nodes are the different ids",
    ];
    // Without the warning about the order of rows.
    refused("many.npy", &rows(5), &["--ids", "sparse", "--quiet"], &parts);
    let text = bench.write("many.csv", "0,1\n1,2\n2,3\n3,4\n4,5\n");
    let more = ["--ids", "string", "--quiet"];
    bench.refused_beside_edges(
        "--features",
        &text,
        &more,
        &["many.csv", "found more; with --ids sparse or string"],
    );
    refused(
        "cube.npy",
        &Npy::new(&[4, 2, 1], [0f32; 8]),
        &[],
        &["[N, D]", "(4, 2, 1)"],
    );
    refused(
        "strings.npy",
        &Npy {
            descr: "<U1".into(),
            ..rows(4)
        },
        &[],
        &["U1"],
    );
    let mut cut = rows(4);
    cut.bytes.pop();
    refused("cut.npy", &cut, &[], &["truncated"]);
    let holes = Npy::new(
        &[4, 2],
        [0.0, f32::NAN, 1.0, 2.0, f32::INFINITY, 0.0, 0.0, f32::NEG_INFINITY],
    );
    refused(
        "holes.npy",
        &holes,
        &[],
        &["row 0", "column 1", "2 more", "--allow-nan"],
    );
    let text = bench.write("holes.csv", "0,1\n1,2\n2,nan\n3,4\n");
    bench.refused_beside_edges("--features", &text, &[], &["holes.csv", "2", "--allow-nan"]);
    let text = bench.write("ragged.csv", "0,1\n1,2\n2\n3,4\n");
    bench.refused_beside_edges("--features", &text, &[], &["ragged.csv:3", "found 1"]);

    let edges = bench.write("good.tsv", "0 1\n1 2\n2 3\n3 0\n");
    let file = bench.path("holes.npy");
    let command = &mut bench.ingest(&edges, &["--features", file.to_str().unwrap(), "--allow-nan"]);
    run(command).success();
}

#[test]
fn labels_must_fit_the_nodes_and_be_classes() {
    let bench = Bench::new();
    let refused = |name: &str, array: &Npy, parts: &[&str]| {
        let file = bench.npy(name, array);
        bench.refused_beside_edges("--labels", &file, &["--nodes", "4"], &[&[name], parts].concat());
    };
    refused("few.npy", &Npy::new(&[3], [0i64; 3]), &["4", "3"]);
    refused("many.npy", &Npy::new(&[5], [0i64; 5]), &["4", "5"]);
    refused(
        "large.npy",
        &Npy::new(&[4], [0i64, 1, 1 << 40, 1]),
        &["row 2", "from 0 to 4294967294"],
    );
    refused(
        "sentinel.npy",
        &Npy::new(&[4], [0i64, 1, i64::from(i32::MAX), i64::from(i32::MAX)]),
        &["at row 2", "2147483648 classes for 4 nodes", "a negative number"],
    );
    refused("half.npy", &Npy::new(&[4], [0f32, 1.0, 0.5, 1.0]), &["row 2", "0.5"]);
    refused(
        "none.npy",
        &Npy::new(&[4], [-1i64; 4]),
        &["no node has a label", "omit --labels"],
    );
    refused(
        "sets.npy",
        &Npy::new(&[4, 3], [0i64, 1, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0]),
        &["row 1", "zeros and ones"],
    );
    let text = bench.write("names.txt", "0\n1\ncats\n1\n");
    bench.refused_beside_edges("--labels", &text, &[], &["names.txt:3", "cats"]);
}

#[test]
fn splits_must_be_disjoint_and_of_known_nodes() {
    let bench = Bench::new();
    let ids = |name: &str, ids: &[i64]| bench.npy(name, &Npy::new(&[ids.len()], ids.iter().copied()));
    let train = ids("train.npy", &[0, 1]);
    let val = ids("val.npy", &[1, 2]);
    let more = ["--val", val.to_str().unwrap()];
    bench.refused_beside_edges(
        "--train",
        &train,
        &more,
        &["1 ", "also in the split", "train", "val", "for example 1"],
    );
    for (name, bad, what) in [
        ("large.npy", 4, "4"),
        ("negative.npy", -1, "-1"),
        ("huge.npy", 1 << 41, "2199023255552"),
    ] {
        let file = ids(name, &[0, bad]);
        bench.refused_beside_edges("--test", &file, &[], &[name, "row 1", what]);
    }
    bench.refused_beside_edges("--test", &ids("empty.npy", &[]), &[], &["empty.npy", "no ids"]);
    let text = bench.write("names.txt", "0\n1\nthree\n");
    bench.refused_beside_edges("--test", &text, &[], &["names.txt:3", "three"]);
    let floats = bench.npy("floats.npy", &Npy::new(&[2], [0f32, 0.5]));
    bench.refused_beside_edges("--test", &floats, &[], &["floats.npy at row 1", "0.5", "fraction"]);
    bench.refused_beside_edges("--test", &bench.path("no.npy"), &[], &["no.npy", "No such file"]);
}

#[test]
fn a_mask_is_of_type_bool_and_has_one_entry_per_node() {
    let bench = Bench::new();
    let bytes = |name: &str, descr: &str, entries: &[u8]| {
        let array = Npy {
            descr: descr.to_owned(),
            fortran: false,
            shape: vec![entries.len()],
            bytes: entries.to_vec(),
        };
        bench.npy(name, &array)
    };
    // With --node-ids, the rows of files are in another order than the ids.
    let rows = bytes("rows.npy", "|b1", &[1, 0, 0, 0]);
    let ids = bench.write("ids.txt", "2\n0\n1\n3\n");
    let labels = bench.write("labels.txt", "0\n1\n0\n1\n");
    bench.refused_beside_edges(
        "--train",
        &rows,
        &[
            "--node-ids",
            ids.to_str().unwrap(),
            "--labels",
            labels.to_str().unwrap(),
        ],
        &["rows.npy", "--node-ids", "list of the ids"],
    );
    let bits = bytes("bits.npy", "|u1", &[1, 0, 0, 1]);
    let parts = &[
        "bits.npy at row 2",
        "the id 0 is there already, at row 1",
        "a.astype(bool)",
    ];
    bench.refused_beside_edges("--train", &bits, &[], parts);
    let text = bench.write("twice.txt", "# ids\n3\n1\n3\n");
    let parts = &[
        "twice.txt:4",
        "the id 3 is there already, in line 2",
        "list each id once",
    ];
    bench.refused_beside_edges("--train", &text, &[], parts);
    // A list of strings has no comments: an id may begin as one does.
    let no_node = &["twice.txt:1", "no node with the id # ids"];
    bench.refused_beside_edges("--train", &text, &["--ids", "string"], no_node);
    let text = bench.write("again.txt", "3\n1\n3\n");
    let parts = &["again.txt:3", "the id 3 is there already, in line 1"];
    bench.refused_beside_edges("--train", &text, &["--ids", "string"], parts);

    let mask = |name: &str, entries: &[u8]| bytes(name, "|b1", entries);
    let short = mask("short.npy", &[1, 0, 1]);
    bench.refused_beside_edges("--train", &short, &[], &["short.npy", "expected 4 rows", "found 3"]);
    let long = mask("long.npy", &[1, 0, 1, 0, 0]);
    bench.refused_beside_edges("--train", &long, &[], &["long.npy", "expected 4 rows", "--nodes"]);
    let whole = mask("whole.npy", &[1, 0, 1, 0]);
    for ids in ["sparse", "string"] {
        bench.refused_beside_edges(
            "--train",
            &whole,
            &["--ids", ids],
            &["whole.npy", &format!("--ids {ids}")],
        );
    }
    let edges = bench.path("good.tsv");
    run(&mut bench.ingest(&edges, &["--train", whole.to_str().unwrap()])).success();
}

#[test]
fn one_hot_labels_are_pointed_out() {
    let bench = Bench::new();
    let edges = bench.write("good.tsv", "0 1\n1 2\n2 3\n3 0\n");
    for (last, warned) in [([0i64, 1], true), ([1, 1], false)] {
        let labels = Npy::new(&[4, 2], [1i64, 0, 0, 1, 1, 0].into_iter().chain(last));
        let labels = bench.npy("labels.npy", &labels);
        let ran = run(&mut bench.ingest(&edges, &["--labels", labels.to_str().unwrap()])).success();
        assert_eq!(ran.stderr.contains("a.argmax(axis=1)"), warned, "{}", ran.stderr);
        fs::remove_dir_all(bench.out()).unwrap();
    }
}

#[test]
fn missing_files_and_folders_are_named() {
    let bench = Bench::new();
    bench.refused(&bench.path("no.tsv"), &[], &["no.tsv", "No such file"]);
    bench.refused(bench.folder.path(), &[], &["folder", "--ogb"]);
    let edges = bench.write("edges.tsv", "0 1\n");
    let tmp = format!("{}/x", edges.display());
    bench.refused(&edges, &["--tmp", &tmp], &["edges.tsv"]);
    for out in ["no/out.grappa", "edges.tsv/out.grappa"] {
        run(&mut program::ingest(&edges, &bench.path(out))).failure(&[out]);
    }
    let mut command = program::command("grappa-ingest");
    command.arg("--out").arg(bench.out()).arg("--ogb");
    run(command.arg(bench.folder.path())).failure(&["raw/edge.csv.gz", "raw/data.npz", "--edges"]);
    let mut command = program::command("grappa-ingest");
    command.arg("--out").arg(bench.out()).arg("--ogb");
    run(command.arg(&edges)).failure(&["edges.tsv", "Not a directory"]);
    assert_eq!(names_in(&bench.path("stores")), [""; 0]);
}

/// Permissions do not apply to root, so root becomes another user for this test.
#[test]
fn files_without_permission_are_named() {
    const NOBODY: u32 = 65534;
    let bench = Bench::new();
    let edges = bench.write("edges.tsv", "0 1\n");
    let ingest = bench.path("grappa-ingest");
    // Other users may not read the build folder, so the program is copied. It is copied by another process, because a
    // file that this process writes may be inherited by a child that another thread forks, and then it can't be
    // executed.
    let copied = Command::new("cp")
        .arg(program::program("grappa-ingest"))
        .arg(&ingest)
        .status()
        .unwrap();
    assert!(copied.success());
    fs::set_permissions(bench.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let am_root = fs::metadata(bench.folder.path()).unwrap().uid() == 0;
    let as_nobody = |arguments: &[&Path]| {
        let mut command = Command::new(&ingest);
        if am_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(arguments);
        run(&mut command)
    };
    let out = bench.out();
    let stores = bench.path("stores");
    fs::set_permissions(&stores, fs::Permissions::from_mode(0o555)).unwrap();
    let arguments = [Path::new("--edges"), &edges, Path::new("--out"), &out];
    as_nobody(&arguments).failure(&["out.grappa", "Permission denied"]);
    fs::set_permissions(&stores, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&edges, fs::Permissions::from_mode(0o000)).unwrap();
    as_nobody(&arguments).failure(&["open", "edges.tsv", "Permission denied"]);
    let locked = bench.path("locked");
    fs::create_dir_all(locked.join("raw")).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    as_nobody(&[Path::new("--ogb"), &locked, Path::new("--out"), &out]).failure(&["locked", "Permission denied"]);
    assert_eq!(names_in(&stores), [""; 0]);
}
