//! Bad input is an error of one line that names file, position and remedy. No unfinished store is left. The other
//! errors of files are in
//! `misread`.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::Path,
    process::Command,
};

use grappa_tests::{
    files::names_in,
    folder::ProgramFolder,
    parquet::write_parquet,
    program::{self, run},
};

use crate::ingest::{ingest, refused};

#[test]
fn bad_lines_are_skipped_counted_and_listed_if_wished() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n1 x\n2 0\n-1 2\n");
    let json = ingest(&folder, "--edges edges.tsv --on-bad-line skip --json").success().json();
    assert_eq!((json["edges"].as_u64(), json["rejected"].as_u64()), (Some(2), Some(2)));
    assert_eq!(folder.names(), ["edges.tsv", "out.grappa", "out.grappa.rejects"]);
    let rejects = folder.read("out.grappa.rejects");
    assert!(rejects.contains("1 x") && rejects.contains("-1 2"), "{rejects}");
}

#[test]
fn parquet_in_a_compression_that_is_not_read_names_the_call_that_changes_it() {
    let folder = ProgramFolder::new();
    let edges = folder.path("edges.parquet");
    write_parquet(&edges, &[(0, 1), (1, 2)], None);
    let mut bytes = fs::read(&edges).unwrap();
    // In the footer, the codec comes after the path of a column: 0 is none, 4 is brotli, in zigzag code.
    let codec = b"\x03src\x15\x00";
    let at = bytes.windows(codec.len()).rposition(|bytes| bytes == codec).unwrap();
    bytes[at + codec.len() - 1] = 8;
    fs::write(&edges, bytes).unwrap();
    let parts = ["edges.parquet: column src", "brotli", "pyarrow", "compression='zstd'"];
    refused(&folder, "--edges edges.parquet", &parts);
}

#[test]
fn an_ogb_folder_whose_edges_exceed_its_number_of_nodes_is_refused() {
    let folder = ProgramFolder::new();
    folder.write("ogb/raw/edge.csv", "0,1\n1,5\n2,0\n");
    folder.write("ogb/raw/num-node-list.csv", "3\n");
    let ogb = "--ogb ogb --split 34/33/33";
    let says = "num-node-list.csv: this file says that there are 3 nodes, but the edges name node 5";
    refused(&folder, ogb, &[says, "edge.csv:2", "fix the number"]);
    let skipped = ingest(&folder, &format!("{ogb} --on-bad-line skip")).success().stderr;
    assert!(skipped.contains("not below 3, the number of nodes in"), "{skipped}");
}

#[test]
fn missing_files_and_folders_are_named() {
    let folder = ProgramFolder::new();
    folder.write("edges.tsv", "0 1\n");
    fs::create_dir_all(folder.path("parent/child")).unwrap();
    for (options, parts) in [
        ("--edges no.tsv", &["no.tsv", "No such file"][..]),
        ("--edges parent", &["folder", "--ogb"]),
        ("--edges edges.tsv --tmp edges.tsv/x", &["edges.tsv"]),
        ("--ogb .", &["raw/edge.csv.gz", "raw/data.npz", "--edges"]),
        ("--ogb edges.tsv", &["edges.tsv", "Not a directory"]),
    ] {
        refused(&folder, options, parts);
    }
    for out in ["no/out.grappa", "edges.tsv/out.grappa"] {
        folder.run(&format!("ingest --edges edges.tsv --out {out}")).failure(&[out]);
    }
    assert_eq!(folder.names(), ["edges.tsv", "parent"]);
}

/// Permissions do not apply to root, so root becomes another user for this test.
#[test]
fn files_without_permission_are_named() {
    const NOBODY: u32 = 65534;
    let folder = ProgramFolder::on_disk();
    let edges = folder.write("edges.tsv", "0 1\n");
    let ingest = folder.path("grappa-ingest");
    // Other users may not read the build folder, so the program is copied. It is copied by another process, because a
    // file that this process writes may be inherited by a child that another thread forks, and then it can't be
    // executed.
    let copied = Command::new("cp").arg(program::program("grappa-ingest")).arg(&ingest).status().unwrap();
    assert!(copied.success());
    fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let am_root = fs::metadata(folder.root()).unwrap().uid() == 0;
    let as_nobody = |arguments: &[&Path]| {
        let mut command = Command::new(&ingest);
        if am_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        command.args(arguments);
        run(&mut command)
    };
    let (out, stores) = (folder.path("stores/out.grappa"), folder.path("stores"));
    fs::create_dir(&stores).unwrap();
    fs::set_permissions(&stores, fs::Permissions::from_mode(0o555)).unwrap();
    let arguments = [Path::new("--edges"), &edges, Path::new("--out"), &out];
    as_nobody(&arguments).failure(&["out.grappa", "Permission denied"]);
    fs::set_permissions(&stores, fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&edges, fs::Permissions::from_mode(0o000)).unwrap();
    as_nobody(&arguments).failure(&["open", "edges.tsv", "Permission denied"]);
    let locked = folder.path("locked");
    fs::create_dir_all(locked.join("raw")).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    as_nobody(&[Path::new("--ogb"), &locked, Path::new("--out"), &out]).failure(&["locked", "Permission denied"]);
    assert_eq!(names_in(&stores), [""; 0]);
}
