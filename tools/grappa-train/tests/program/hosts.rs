//! Several processes that have different slices of a graph, as hosts with a part of it each.

use std::{fs, path::Path, process::Child};

use grappa_tests::{
    files::memory_folder,
    program::{self, Ran, run},
};
use serde_json::Value;

use crate::workers::{assert_same_losses, end, port, rank, wait_for_epochs};

/// The graph of all tests, or slices of it, at `name/graph.grappa`. Its features are computed.
fn generate(folder: &Path, name: &str, options: &[&str]) {
    generate_with(folder, name, &[&["--features", "procedural"], options].concat());
}

fn generate_with(folder: &Path, name: &str, options: &[&str]) {
    fs::create_dir(folder.join(name)).unwrap();
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", "2000", "--feature-dim", "8", "--chunks", "8"]);
    generate.args(options).args(["--quiet", "--out"]);
    run(generate.arg(folder.join(name).join("graph.grappa"))).success();
}

/// Some chunks of the store in `from`, placed in `to`.
fn place(folder: &Path, from: &str, to: &str, chunks: &str) {
    place_with(folder, from, to, &["--chunks", chunks]);
}

fn place_with(folder: &Path, from: &str, to: &str, options: &[&str]) {
    fs::create_dir(folder.join(to)).unwrap();
    let mut place = program::command("grappa-store");
    place.arg("place").arg(folder.join(from).join("graph.grappa"));
    place.args(options).args(["--quiet", "--to"]);
    run(place.arg(folder.join(to).join("graph.grappa"))).success();
}

/// Starts a rank on each of `hosts`, which are folders.
fn start(folder: &Path, hosts: &[&str], options: &[String]) -> Vec<Child> {
    let (port, ranks) = (port(), hosts.len() as u16);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let start = |(number, host): (u16, &&str)| rank(&folder.join(host), [number, ranks, port], &options);
    (0..).zip(hosts).map(start).collect()
}

fn ends(ranks: Vec<Child>) -> Vec<Ran> {
    ranks.into_iter().map(end).collect()
}

fn summary(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("summary.json")).unwrap()).unwrap()
}

#[test]
fn hosts_with_slices_train_and_resume_together() {
    let folder = memory_folder();
    let at = folder.path();
    generate(at, "whole", &[]);
    generate(at, "first", &["--only-chunks", "0-4"]);
    place(at, "whole", "second", "5-7");
    let (run, killed) = (at.join("run"), at.join("killed"));
    let options = |out: &Path| {
        let out = out.display().to_string();
        [
            "--epochs",
            "6",
            "--repartition-every",
            "2",
            "--schedule",
            "shuffle",
            "--lr",
            "0.05",
            "--checkpoint-every",
            "1",
            "--out",
            &out,
        ]
        .map(str::to_owned)
    };
    // Rank 2 has the same chunks as rank 0.
    let hosts = ["first", "second", "first"];
    for ran in ends(start(at, &hosts, &options(&run))) {
        ran.success();
    }
    let found = summary(&run);
    assert_eq!(found["partitions"], 3, "{found}");
    assert!(found["val_accuracy"].as_f64().unwrap() > 0.4, "{found}");

    let mut ranks = start(at, &hosts, &options(&killed));
    wait_for_epochs(&killed, 2);
    ranks[1].kill().unwrap();
    for (number, ran) in ends(ranks).into_iter().enumerate() {
        assert!(number == 1 || ran.stderr.contains("rank 1"), "{}", ran.stderr);
    }
    let resume = [&options(&killed)[..], &["--resume".to_owned(), "auto".to_owned()]].concat();
    // The chunks of the second host are missing.
    let refused = ends(start(at, &["first", "first"], &resume));
    let error = &refused[0].stderr;
    assert!(error.contains("hosts have other chunks of its graph"), "{refused:?}");
    // A launcher may number the ranks in another way.
    for ran in ends(start(at, &["second", "first", "first"], &resume)) {
        ran.success();
    }
    assert_same_losses(&run, &killed, "resumed");
}

#[test]
fn hosts_with_stored_features_train_without_the_edges_between_them() {
    let folder = memory_folder();
    let at = folder.path();
    generate_with(at, "whole", &[]);
    place_with(at, "whole", "plain", &["--chunks", "4-7", "--edges", "inside"]);
    let mut preaggregate = program::command("grappa-store");
    preaggregate.arg("preaggregate").arg(at.join("whole/graph.grappa"));
    run(preaggregate.args(["--kind", "mean", "--quiet"])).success();
    place_with(at, "whole", "first", &["--chunks", "0-3", "--edges", "inside"]);
    place_with(at, "whole", "second", &["--chunks", "4-7", "--edges", "inside"]);
    let options = |out: &Path| {
        let out = out.display().to_string();
        let options = "--layers 3 --partitions 4 --epochs 20 --repartition-every 2 --lr 0.05 --out";
        options.split(' ').chain([&*out]).map(str::to_owned).collect::<Vec<_>>()
    };
    let run = at.join("run");
    for ran in ends(start(at, &["first", "second"], &options(&run))) {
        let ran = ran.success();
        assert!(!ran.stderr.contains("the first hop is sampled"), "{}", ran.stderr);
    }
    let found = summary(&run);
    assert!(found["val_accuracy"].as_f64().unwrap() > 0.5, "{found}");

    let refused = ends(start(at, &["first", "plain"], &options(&at.join("refused"))));
    let error = &refused[0].stderr;
    assert!(
        error.contains("differ in the slice's pre-aggregated features: rank 0 has mean, and rank 1"),
        "{error}"
    );
}

#[test]
fn hosts_that_do_not_fit_together_say_why() {
    let folder = memory_folder();
    let at = folder.path();
    generate(at, "whole", &[]);
    place(at, "whole", "first", "0-4");
    place(at, "whole", "second", "4-7");
    generate(at, "other", &["--seed", "9", "--only-chunks", "5-7"]);
    let out = at.join("run").display().to_string();
    let refused = |hosts: &[&str], options: &[&str]| {
        let options = [&["--epochs", "1", "--out", &out], options].concat();
        let ran = ends(start(
            at,
            hosts,
            &options.iter().map(|&option| option.to_owned()).collect::<Vec<_>>(),
        ));
        assert!(ran.iter().all(|ran| ran.code == Some(1)), "{ran:?}");
        ran.into_iter().map(|ran| ran.stderr).collect::<Vec<_>>().concat()
    };
    let differ = "ranks differ in the store's digest: rank 0 has";
    assert!(refused(&["first", "other"], &[]).contains(differ));
    for hosts in [["whole", "second"], ["second", "whole"]] {
        // Only a slice has pre-aggregated features to compare. That is no cause.
        let errors = refused(&hosts, &[]);
        assert!(
            errors.contains(differ) && !errors.contains("pre-aggregated"),
            "{errors}"
        );
    }
    let error = refused(&["first", "second"], &["--partitions", "1"]);
    assert!(
        error.contains("the host of rank 1 has 4 chunks of its own, and serves 0 of the 1 partitions"),
        "{error}"
    );
    let error = refused(&["first", "second"], &["--partitions", "12"]);
    assert!(
        error.contains("the host of rank 0 has 4 chunks of its own, and serves 6 of the 12"),
        "{error}"
    );
    let error = refused(&["first", "second"], &["--model", "gcn"]);
    assert!(error.contains("gcn divides by the in-degrees of sources"), "{error}");
}
