//! `--resume` of a run that is finished changes nothing, and says so.

use std::fs;

use grappa_tests::{
    files::{assert_same, files_of},
    program::run,
};
use serde_json::Value;

use crate::fixture::{TrainFolder, end};

#[test]
fn a_finished_run_stays_as_it_is_and_says_how_to_continue() {
    let folder = TrainFolder::new();
    let at = folder.path("run");
    folder.trained("--epochs 2 --layers 1 --partitions 2 --out run");
    let files = files_of(&at);
    let told = "run: the run is finished (2 of 2 epochs), and its files are unchanged; to continue it, give a larger --epochs\n";
    for options in [
        "--resume",
        "--resume auto",
        "--resume --workers 2",
        // They change nothing in a run that is over.
        "--resume --epochs 1 --memory 1GiB --keep 1",
    ] {
        let ran = folder.trained(&format!("{options} --out run"));
        assert_eq!((&*ran.stdout, &*ran.stderr), (told, ""), "{options}");
        assert_same(&at, &files, options);
    }
    let mut summary = folder.summary("run");
    summary.as_object_mut().unwrap().remove("checksum").expect("the file has a checksum, and the output has none");
    assert_eq!(folder.trained("--resume --out run --json").json(), summary);
    for ran in folder.two_ranks("--resume --out run").map(end) {
        assert_eq!(ran.success().stderr, "");
    }
    assert_same(&at, &files, "ranks that joined");

    // It is not the run of another store.
    folder.generate("other.grappa", "sbm --nodes 3000 --feature-dim 8");
    run(&mut folder.program("other.grappa --resume --out run --quiet")).failure(&["the store is not the one"]);

    // More epochs continue it.
    folder.trained("--resume --out run --epochs 3");
    assert_eq!(folder.metrics("run").len(), 3);
}

#[test]
fn a_run_that_ended_early_is_finished() {
    let folder = TrainFolder::new();
    // The scores stay the same.
    folder.trained("--epochs 50 --layers 1 --lr 1e-12 --early-stopping 1 --out run");
    let files = files_of(&folder.path("run"));
    let stdout = folder.trained("--resume --out run").stdout;
    let told = "(2 of 50 epochs, ended by --early-stopping 1), and its files are unchanged; to continue it, give a larger \
                --early-stopping, or 0\n";
    assert!(stdout.ends_with(told), "{stdout}");
    assert_same(&folder.path("run"), &files, "resumed");
    folder.trained("--resume --out run --early-stopping 2");
    assert_eq!(folder.metrics("run").len(), 3);
}

#[test]
fn a_run_that_lacks_a_result_is_not_finished() {
    let folder = TrainFolder::new();
    folder.trained("--epochs 2 --layers 1 --evaluate sampled --out run");
    let is_finished = |options: &str| {
        let stdout = folder.trained(&format!("--resume --out run {options}")).stdout;
        stdout.contains("is finished")
    };
    // A kill or a full disk may leave this.
    for file in ["summary.json", "report.html"] {
        for is_empty in [false, true] {
            fs::remove_file(folder.path(&format!("run/{file}"))).unwrap();
            if is_empty {
                fs::write(folder.path(&format!("run/{file}")), "").unwrap();
            }
            assert!(!is_finished(""), "{file}");
            assert!(folder.read(&format!("run/{file}")).len() > 100, "{file}");
        }
    }
    assert!(is_finished(""));
    // The user asks for exact scores, or for names of classes in the report.
    assert_eq!(folder.summary("run")["evaluated"], "sampled");
    assert!(!is_finished("--evaluate auto"));
    assert_eq!(folder.summary("run")["evaluated"], "exact");
    assert!(is_finished(""));
    let names: String = (0..10).map(|class| format!("name-{class}\n")).collect();
    folder.write("names.txt", names);
    is_finished("--class-names names.txt");
    assert!(folder.read("run/report.html").contains("name-7"));
    // A summary of a run in progress says that fewer epochs are done than it has.
    let mut running: Value = folder.summary("run");
    running["config"]["epochs"] = 3.into();
    folder.write("run/summary.json", running.to_string());
    assert!(!is_finished(""));
}
