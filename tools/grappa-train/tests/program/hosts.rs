//! Several processes that have different slices of a graph, as hosts with a part of it each.

use std::{fs, process::Child};

use grappa_tests::program::{self, CommandWords, Ran, run};

use crate::fixture::{TrainFolder, end, port, start_as};

/// The graph of all tests. Its features are computed, unless they are stored.
const GRAPH: &str = "sbm --nodes 2000 --feature-dim 8 --chunks 8";

/// Makes the graph, or slices of it, at `host/graph.grappa`.
fn generate(folder: &TrainFolder, host: &str, options: &str) {
    fs::create_dir(folder.path(host)).unwrap();
    folder.generate(&format!("{host}/graph.grappa"), &format!("{GRAPH} {options}"));
}

/// Places some chunks of the whole graph at a host.
fn place(folder: &TrainFolder, host: &str, options: &str) {
    fs::create_dir(folder.path(host)).unwrap();
    let mut place = program::command("grappa-store");
    place.arg("place").arg(folder.path("whole/graph.grappa")).words(options);
    place.args(["--quiet", "--to"]).arg(folder.path(&format!("{host}/graph.grappa")));
    run(&mut place).success();
}

/// Starts a rank on each of `hosts`, which are folders. The run is in `out`.
fn start(folder: &TrainFolder, hosts: &[&str], out: &str, options: &str) -> Vec<Child> {
    let (port, ranks) = (port(), hosts.len() as u16);
    let start = |(number, host): (u16, &&str)| {
        let mut command = folder.train(&format!("{options} --out ../{out}"));
        start_as([number, ranks, port], command.current_dir(folder.path(host)))
    };
    (0..).zip(hosts).map(start).collect()
}

fn train(folder: &TrainFolder, hosts: &[&str], out: &str, options: &str) -> Vec<Ran> {
    start(folder, hosts, out, options).into_iter().map(end).collect()
}

#[test]
fn hosts_with_slices_train_and_resume_together() {
    let folder = TrainFolder::empty();
    generate(&folder, "whole", "--features procedural");
    generate(&folder, "first", "--features procedural --only-chunks 0-4");
    place(&folder, "second", "--chunks 5-7");
    let options = "--epochs 6 --repartition-every 2 --schedule shuffle --lr 0.05 --checkpoint-every 1";
    // Rank 2 has the same chunks as rank 0.
    let hosts = ["first", "second", "first"];
    for ran in train(&folder, &hosts, "run", options) {
        ran.success();
    }
    let found = folder.summary("run");
    assert_eq!(found["partitions"], 3, "{found}");
    assert!(found["val_accuracy"].as_f64().unwrap() > 0.4, "{found}");

    let mut ranks = start(&folder, &hosts, "killed", options);
    folder.wait_for_epochs("killed", 2);
    ranks[1].kill().unwrap();
    for (number, ran) in ranks.into_iter().map(end).enumerate() {
        assert!(number == 1 || ran.stderr.contains("rank 1"), "{}", ran.stderr);
    }
    let resume = &format!("{options} --resume auto");
    // The chunks of the second host are missing.
    let refused = train(&folder, &["first", "first"], "killed", resume);
    let error = &refused[0].stderr;
    assert!(error.contains("hosts have other chunks of its graph"), "{refused:?}");
    // A launcher may number the ranks in another way.
    for ran in train(&folder, &["second", "first", "first"], "killed", resume) {
        ran.success();
    }
    folder.assert_same_losses("run", "killed", "resumed");
}

#[test]
fn hosts_with_stored_features_train_without_the_edges_between_them() {
    let folder = TrainFolder::empty();
    generate(&folder, "whole", "");
    place(&folder, "plain", "--chunks 4-7 --edges inside");
    let mut preaggregate = program::command("grappa-store");
    preaggregate.arg("preaggregate").arg(folder.path("whole/graph.grappa"));
    run(preaggregate.words("--kind mean --quiet")).success();
    place(&folder, "first", "--chunks 0-3 --edges inside");
    place(&folder, "second", "--chunks 4-7 --edges inside");
    let options = "--layers 3 --partitions 4 --epochs 20 --repartition-every 2 --lr 0.05";
    for ran in train(&folder, &["first", "second"], "run", options) {
        let ran = ran.success();
        assert!(!ran.stderr.contains("the first hop is sampled"), "{}", ran.stderr);
    }
    let found = folder.summary("run");
    assert!(found["val_accuracy"].as_f64().unwrap() > 0.5, "{found}");

    let refused = train(&folder, &["first", "plain"], "refused", options);
    let expected = "differ in the slice's pre-aggregated features: rank 0 has mean, and rank 1";
    assert!(refused[0].stderr.contains(expected), "{refused:?}");
}

#[test]
fn hosts_that_do_not_fit_together_say_why() {
    let folder = TrainFolder::empty();
    generate(&folder, "whole", "--features procedural");
    place(&folder, "first", "--chunks 0-4");
    place(&folder, "second", "--chunks 4-7");
    generate(&folder, "other", "--features procedural --seed 9 --only-chunks 5-7");
    let differ = "ranks differ in the store's digest: rank 0 has";
    let chunks = "has 4 chunks of its own, and serves";
    for (hosts, options, expected) in grappa_skip::cases![
        ["first", "other"], "", differ;
        ["whole", "second"], "", differ;
        ["second", "whole"], "", differ;
        ["first", "second"], "--partitions 1", &format!("the host of rank 1 {chunks} 0 of the 1 partitions");
        ["first", "second"], "--partitions 12", &format!("the host of rank 0 {chunks} 6 of the 12");
        ["first", "second"], "--model gcn", "gcn divides by the in-degrees of sources";
    ] {
        let ran = train(&folder, &hosts, "run", &format!("--epochs 1 {options}"));
        assert!(ran.iter().all(|ran| ran.code == Some(1)), "{ran:?}");
        let errors: String = ran.into_iter().map(|ran| ran.stderr).collect();
        assert!(errors.contains(expected), "{expected} is not in {errors}");
        // Only a slice has pre-aggregated features to compare. That is no cause.
        assert!(expected != differ || !errors.contains("pre-aggregated"), "{errors}");
    }
    assert!(folder.metrics("run").is_empty());
}
