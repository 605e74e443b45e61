//! Processes of one machine keep one copy of features in memory.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use grappa_tests::{
    files::memory_folder,
    program::{self, run},
};
use tempfile::TempDir;

use crate::workers::{assert_same_losses, end, metrics, port, train};

/// A folder with a store whose features and pre-aggregated features take 10 MB.
fn folder() -> TempDir {
    let folder = memory_folder();
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", "20000", "--edge-factor", "4", "--feature-dim", "64"]);
    generate.args(["--chunks", "8", "--quiet", "--out"]);
    run(generate.arg(folder.path().join("graph.grappa"))).success();
    folder
}

/// A short run. `memory` is that of each process.
fn short(folder: &Path, memory: &str, out: &str) -> Command {
    let options = "--partitions 2 --batch 64 --fanouts 5,5 --epochs 2 --steps-per-epoch 5 --evaluate sampled";
    let mut options: Vec<&str> = options.split(' ').collect();
    options.extend(["--memory", memory, "--out", out]);
    train(folder, &options)
}

/// Bytes of features that the processes of a run read in its second epoch.
fn read_bytes(run: &Path) -> u64 {
    metrics(run)[1]["bytes_read"].as_u64().unwrap()
}

#[test]
fn two_processes_hold_features_that_one_has_no_room_for() {
    let folder = folder();
    run(&mut short(folder.path(), "11MiB", "one")).success();
    run(short(folder.path(), "11MiB", "two").args(["--workers", "2"])).success();
    let [one, two] = ["one", "two"].map(|out| folder.path().join(out));
    assert_same_losses(&one, &two, "with and without room for all features");
    assert!(read_bytes(&one) > 0);
    assert_eq!(read_bytes(&two), 0);
}

/// A rank in a namespace of its own for processes, so that it cannot see the other one.
fn hidden_rank(folder: &Path, rank: u16, port: u16, memory: &str, out: &str) -> Child {
    let visible = short(folder, memory, out);
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork"])
        .arg(visible.get_program())
        .args(visible.get_args());
    command.current_dir(folder);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2");
    command
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string());
    command.env("GLOO_SOCKET_IFNAME", "lo");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn processes_that_cannot_see_each_other_read_features_on_their_own() {
    let unshared = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !unshared.is_ok_and(|output| output.status.success()) {
        grappa_skip::skip!("namespaces of processes: unshare is refused");
    }
    let folder = folder();
    run(&mut short(folder.path(), "1GiB", "one")).success();
    for (memory, out, has_room) in [("1GiB", "much", true), ("11MiB", "little", false)] {
        let port = port();
        let ranks = [0, 1].map(|rank| hidden_rank(folder.path(), rank, port, memory, out));
        for rank in ranks {
            end(rank).success();
        }
        let out = folder.path().join(out);
        assert_same_losses(&folder.path().join("one"), &out, memory);
        assert_eq!(read_bytes(&out) == 0, has_room, "{memory}");
    }
}
