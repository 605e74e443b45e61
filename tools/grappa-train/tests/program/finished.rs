//! `--resume` of a run that is finished changes nothing, and says so.

use std::{fs, path::Path};

use grappa_tests::{
    files::{assert_same, files_of},
    program::run,
};
use serde_json::Value;

use crate::workers::{command, end, folder, metrics, port, rank, train};

const RESUME: [&str; 3] = ["--resume", "--out", "run"];

#[test]
fn a_finished_run_stays_as_it_is_and_says_how_to_continue() {
    let folder = folder();
    let at = folder.path().join("run");
    let new = ["--epochs", "2", "--layers", "1", "--partitions", "2", "--out", "run"];
    run(&mut train(folder.path(), &new)).success();
    let files = files_of(&at);
    let told = "run: the run is finished (2 of 2 epochs), and its files are unchanged; to continue it, give a larger --epochs\n";
    for options in [
        &["--resume"][..],
        &["--resume", "auto"],
        &["--resume", "--workers", "2"],
        // They change nothing in a run that is over.
        &["--resume", "--epochs", "1", "--memory", "1GiB", "--keep", "1"],
    ] {
        let ran = run(&mut command(folder.path(), &[options, &["--out", "run"]].concat())).success();
        assert_eq!((&*ran.stdout, &*ran.stderr), (told, ""), "{options:?}");
        assert_same(&at, &files, &format!("{options:?}"));
    }
    let summary: Value = serde_json::from_slice(&fs::read(at.join("summary.json")).unwrap()).unwrap();
    let ran = run(&mut command(folder.path(), &[&RESUME[..], &["--json"]].concat())).success();
    assert_eq!(ran.json(), summary);
    let port = port();
    let ranks = [0, 1].map(|number| rank(folder.path(), [number, 2, port], &RESUME));
    for ran in ranks.map(end) {
        assert_eq!(ran.success().stderr, "");
    }
    assert_same(&at, &files, "ranks that joined");

    // It is not the run of another store.
    fs::create_dir(folder.path().join("other")).unwrap();
    let mut other = grappa_tests::program::command("grappa-gen");
    other.args(["sbm", "--nodes", "3000", "--feature-dim", "8", "--quiet", "--out"]);
    run(other.arg(folder.path().join("other/graph.grappa"))).success();
    let resume = ["--resume", "--out", "../run"];
    run(&mut train(&folder.path().join("other"), &resume)).failure(&["the store is not the one"]);

    // More epochs continue it.
    run(&mut train(folder.path(), &[&RESUME[..], &["--epochs", "3"]].concat())).success();
    assert_eq!(metrics(&at).len(), 3);
}

#[test]
fn a_run_that_ended_early_is_finished() {
    let folder = folder();
    let at = folder.path().join("run");
    // The scores stay the same.
    let new = [
        "--epochs",
        "50",
        "--layers",
        "1",
        "--lr",
        "1e-12",
        "--early-stopping",
        "1",
    ];
    run(&mut train(folder.path(), &[&new[..], &["--out", "run"]].concat())).success();
    let files = files_of(&at);
    let ran = run(&mut command(folder.path(), &RESUME)).success();
    let told = "(2 of 50 epochs, ended by --early-stopping 1), and its files are unchanged; to continue it, give a larger \
                --early-stopping, or 0\n";
    assert!(ran.stdout.ends_with(told), "{}", ran.stdout);
    assert_same(&at, &files, "resumed");
    let more = ["--early-stopping", "2"];
    run(&mut train(folder.path(), &[&RESUME[..], &more].concat())).success();
    assert_eq!(metrics(&at).len(), 3);
}

#[test]
fn a_run_that_lacks_a_result_is_not_finished() {
    let folder = folder();
    let at = folder.path().join("run");
    let new = [
        "--epochs",
        "2",
        "--layers",
        "1",
        "--evaluate",
        "sampled",
        "--out",
        "run",
    ];
    run(&mut train(folder.path(), &new)).success();
    let resumed = |options: &[&str]| {
        run(&mut command(folder.path(), &[&RESUME, options].concat()))
            .success()
            .stdout
    };
    let summary = |at: &Path| -> Value { serde_json::from_slice(&fs::read(at.join("summary.json")).unwrap()).unwrap() };
    // What a kill or a full disk may leave.
    for file in ["summary.json", "report.html"] {
        let bytes = fs::read(at.join(file)).unwrap();
        for damaged in [None, Some(&bytes[..0])] {
            match damaged {
                None => fs::remove_file(at.join(file)).unwrap(),
                Some(bytes) => fs::write(at.join(file), bytes).unwrap(),
            }
            let stdout = resumed(&[]);
            assert!(!stdout.contains("is finished"), "{file}: {stdout}");
            assert!(fs::metadata(at.join(file)).unwrap().len() > 100, "{file}");
            assert!(resumed(&[]).contains("is finished"), "{file}");
        }
    }
    // The user asks for exact scores, or for names of classes in the report.
    assert_eq!(summary(&at)["evaluated"], "sampled");
    resumed(&["--evaluate", "auto"]);
    assert_eq!(summary(&at)["evaluated"], "exact");
    assert!(resumed(&[]).contains("is finished"));
    let names: String = (0..10).map(|class| format!("name-{class}\n")).collect();
    fs::write(folder.path().join("names.txt"), names).unwrap();
    resumed(&["--class-names", "names.txt"]);
    assert!(fs::read_to_string(at.join("report.html")).unwrap().contains("name-7"));
    // A summary of a run in progress says that fewer epochs are done than it has.
    let mut running = summary(&at);
    running["config"]["epochs"] = 3.into();
    fs::write(at.join("summary.json"), running.to_string()).unwrap();
    assert!(!resumed(&[]).contains("is finished"));
}
