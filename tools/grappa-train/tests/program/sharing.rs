//! Processes of one machine keep one copy of features in memory.

use std::process::{Child, Command};

use grappa_tests::program::{CommandWords, started_by};

use crate::fixture::{TrainFolder, end, port, start_as};

/// A folder with a store whose features and pre-aggregated features take 10 MB.
fn folder() -> TrainFolder {
    TrainFolder::with("sbm --nodes 20000 --edge-factor 4 --feature-dim 64 --chunks 8")
}

/// Options of a short run. Each process has this memory.
fn short(memory: &str, out: &str) -> String {
    let options = "--partitions 2 --batch 64 --fanouts 5,5 --epochs 2 --steps-per-epoch 5 --evaluate sampled";
    format!("{options} --memory {memory} --out {out}")
}

/// Bytes of features that the processes of a run read in its second epoch.
fn read_bytes(folder: &TrainFolder, run: &str) -> u64 {
    folder.metrics(run)[1]["bytes_read"].as_u64().unwrap()
}

#[test]
fn two_processes_hold_features_that_one_has_no_room_for() {
    let folder = folder();
    folder.trained(&short("11MiB", "one"));
    folder.trained(&format!("{} --workers 2", short("11MiB", "two")));
    folder.assert_same_losses("one", "two", "with and without room for all features");
    assert!(read_bytes(&folder, "one") > 0);
    assert_eq!(read_bytes(&folder, "two"), 0);
}

/// A rank in a namespace of its own for processes, so that it cannot see the other one.
fn hidden_rank(folder: &TrainFolder, place: [u16; 3], options: &str) -> Child {
    let mut unshare = Command::new("unshare");
    unshare.words("--pid --fork");
    start_as(place, &mut started_by(unshare, &folder.train(options)))
}

#[test]
fn processes_that_cannot_see_each_other_read_features_on_their_own() {
    let unshared = Command::new("unshare").args(["--pid", "--fork", "true"]).output();
    if !unshared.is_ok_and(|output| output.status.success()) {
        grappa_skip::skip!("namespaces of processes: unshare is refused");
    }
    let folder = folder();
    folder.trained(&short("1GiB", "one"));
    for (memory, out, has_room) in [("1GiB", "much", true), ("11MiB", "little", false)] {
        let port = port();
        let ranks = [0, 1].map(|rank| hidden_rank(&folder, [rank, 2, port], &short(memory, out)));
        for rank in ranks {
            end(rank).success();
        }
        folder.assert_same_losses("one", out, memory);
        assert_eq!(read_bytes(&folder, out) == 0, has_room, "{memory}");
    }
}
