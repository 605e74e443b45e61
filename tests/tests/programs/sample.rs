//! Tests of `grappa-store sample` and `preaggregate`: output, errors and memory.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::{
    files::{copy_folder, memory_folder},
    program::{command, run},
};
use serde_json::Value;

/// A store of 2^scale nodes with features, and with splits unless it is R-MAT.
fn store_in(folder: &Path, model: &str, more: &[&str]) -> PathBuf {
    let store = folder.join("graph.grappa");
    run(command("grappa-gen")
        .arg(model)
        .args(["--chunks", "12", "--quiet", "--out"])
        .arg(&store)
        .args(more))
    .success();
    store
}

fn sbm_in(folder: &Path) -> PathBuf {
    store_in(folder, "sbm", &["--nodes", "20000", "--feature-dim", "32"])
}

fn sample(store: &Path, more: &[&str]) -> Command {
    let mut command = command("grappa-store");
    command.arg("sample").arg(store).args(more);
    for (option, value) in [("--fanouts", "10,5"), ("--batch", "256")] {
        if !more.contains(&option) {
            command.args([option, value]);
        }
    }
    command
}

fn sampled(store: &Path, more: &[&str]) -> Value {
    run(sample(store, more).arg("--json")).success().json()
}

#[test]
fn everything_promised_is_told() {
    let folder = memory_folder();
    let told = sampled(&sbm_in(folder.path()), &["--batches", "60"]);
    let numbers = [
        "batches",
        "seconds",
        "batches_per_second",
        "sampled_edges",
        "sampled_edges_per_second",
        "input_nodes",
        "bytes_wanted",
        "bytes_read",
        "read_amplification",
        "peak_rss_bytes",
    ];
    for key in numbers {
        assert!(told[key].is_number(), "{key} in {told}");
    }
    for stage in ["sample", "read", "assemble"] {
        assert!(told["stall_seconds"][stage].is_number(), "{stage} in {told}");
    }
    assert!(["uring", "pread"].contains(&told["read_engine"].as_str().unwrap()));
    assert_eq!(told["batches"], 60, "more than an epoch has");
    assert_eq!(told["view"], "memory");
    assert_eq!(
        told["bytes_wanted"].as_u64(),
        told["input_nodes"].as_u64().map(|nodes| nodes * 128)
    );
}

#[test]
fn the_same_seed_gives_the_same_minibatches_however_they_are_made() {
    let folder = memory_folder();
    let store = sbm_in(folder.path());
    let common = ["--batches", "40", "--partitions", "4"];
    let counts = |more: &[&str]| {
        let told = sampled(&store, &[&common[..], more].concat());
        (
            told["sampled_edges"].as_u64().unwrap(),
            told["input_nodes"].as_u64().unwrap(),
        )
    };
    let expected = counts(&[]);
    let ways: [&[&str]; 5] = [
        &["--threads", "3"],
        &["--view", "mapped"],
        &["--read-engine", "pread", "--lookahead", "1"],
        &["--memory", "24MiB"],
        &["--no-features"],
    ];
    for way in ways {
        assert_eq!(counts(way), expected, "{way:?}");
    }
    assert_ne!(counts(&["--seed", "8"]), expected);
}

#[test]
fn seeds_are_a_split_all_nodes_or_a_list_of_ids() {
    let folder = memory_folder();
    let store = sbm_in(folder.path());
    let list = folder.path().join("ids.txt");
    fs::write(&list, "17\n4\n19999\n").unwrap();
    let nodes = |seeds: &str| {
        let told = sampled(
            &store,
            &["--fanouts", "1", "--batches", "1", "--seeds", seeds, "--batch", "20000"],
        );
        told["input_nodes"].as_u64().unwrap()
    };
    assert!((3..=6).contains(&nodes(list.to_str().unwrap())));
    let (train, all) = (nodes("train"), nodes("all"));
    assert_eq!(all, 20_000);
    assert!(train < all);
}

#[test]
fn wrong_wishes_are_refused_with_what_would_do() {
    let folder = memory_folder();
    let store = sbm_in(folder.path());
    let with_ids = |ids: &str| {
        let path = folder.path().join("wrong.txt");
        fs::write(&path, ids).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let unknown = with_ids("3\n20000\n");
    for fanouts in ["10,0", "10,-2"] {
        run(&mut sample(&store, &["--batches", "1", "--fanouts", fanouts])).misuse(&["fanout 2 of the list"]);
    }
    let unweighted = format!("error: {} has no edge weights", store.display());
    let refusals: [(&[&str], &str); 6] = [
        (&["--view", "memory", "--memory", "64KiB"], "leave out --view memory"),
        (&["--view", "memory", "--by-weight"], &unweighted),
        (&["--partitions", "13"], "use at most 12 partitions"),
        (&["--partitions", "0"], "at least 1"),
        (&["--seeds", &unknown], "20000"),
        (&["--by-weight"], "weights"),
    ];
    for (wish, remedy) in refusals {
        run(sample(&store, &["--batches", "1"]).args(wish)).failure(&[remedy]);
    }
    // The error names the smallest sufficient budget, which works. A budget that is too small for minibatches of seeds alone
    // is refused without sampling, and that error names a smaller one.
    for view in ["auto", "mapped", "memory"] {
        let with = |memory: &str| ["--batches", "20", "--view", view, "--memory", memory].map(str::to_owned);
        let mut memory = if view == "memory" { "10MiB" } else { "9MiB" }.to_owned();
        let mut is_about_seeds = true;
        while is_about_seeds {
            let refused = run(sample(&store, &[]).args(with(&memory))).failure(&["memory"]);
            is_about_seeds = refused.stderr.contains("only seeds");
            let least = refused.stderr.split("at least ").nth(1).expect("what is needed");
            let least = least.split(" is needed").next().expect("a size");
            assert!(least.ends_with(" MiB") && least != memory, "{least}");
            memory = least.to_owned();
        }
        let enough = with(&memory);
        sampled(&store, &enough.each_ref().map(String::as_str));
    }
}

/// The lists have a part of the memory, and the error is about all of it.
#[test]
fn the_memory_that_is_asked_for_holds_sampled_in_neighbors_of_halo_nodes() {
    let folder = memory_folder();
    let store = store_in(folder.path(), "rmat", &["--scale", "14", "--feature-dim", "8"]);
    let options = [
        "--seeds",
        "all",
        "--batches",
        "4",
        "--partitions",
        "8",
        "--halo",
        "neighbors",
    ];
    let with = |memory: &str| run(sample(&store, &options).args(["--memory", memory]));
    let refused = with("10MiB").failure(&["in-neighbors of halo nodes", "raise --memory"]);
    let least = refused.stderr.split("at least ").nth(1).expect("what is needed");
    let least = least.split(" is needed").next().expect("a size").replace(' ', "");
    let mebibytes: u64 = least.strip_suffix("MiB").expect("a size").parse().unwrap();
    assert!(mebibytes > 10, "{least}");
    let enough = with(&least);
    assert!(
        !enough.stderr.contains("in-neighbors of halo nodes"),
        "{}",
        enough.stderr
    );
}

#[test]
fn a_store_without_features_is_sampled_and_says_so_if_they_are_wanted() {
    let folder = memory_folder();
    let store = store_in(folder.path(), "rmat", &["--scale", "12"]);
    let told = sampled(&store, &["--batches", "3", "--seeds", "all"]);
    assert_eq!(
        (told["bytes_wanted"].as_u64(), &told["read_engine"]),
        (Some(0), &Value::Null)
    );
    run(&mut sample(&store, &["--batches", "3", "--seeds", "all", "--features"])).failure(&["no features"]);
    run(&mut sample(&store, &["--batches", "3"])).failure(&["--seeds all"]);
}

#[test]
fn procedural_features_need_no_reads() {
    let folder = memory_folder();
    let more = ["--nodes", "20000", "--feature-dim", "32", "--features", "procedural"];
    let store = store_in(folder.path(), "sbm", &more);
    let told = sampled(&store, &["--batches", "20"]);
    assert_eq!(told["bytes_read"], 0);
    assert!(told["bytes_wanted"].as_u64().unwrap() > 0);
}

#[test]
fn peak_memory_is_the_budget_and_a_bit() {
    const BUDGET: u64 = 96 << 20;
    const SLACK: u64 = 64 << 20;
    // On a disk, because a file system in memory has no page cache to bypass or to count.
    let folder = tempfile::tempdir().unwrap();
    let more = ["--scale", "17", "--feature-dim", "256"];
    let store = store_in(folder.path(), "rmat", &more);
    for view in ["memory", "mapped"] {
        let told = sampled(
            &store,
            &[
                "--batches",
                "60",
                "--seeds",
                "all",
                "--view",
                view,
                "--memory",
                &BUDGET.to_string(),
            ],
        );
        let Some(peak) = told["peak_rss_bytes"].as_u64() else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        assert!(peak <= BUDGET + SLACK, "{view}: {peak} bytes with a budget of {BUDGET}");
        assert!(
            told["bytes_read"].as_u64().unwrap() > 0,
            "features do not fit the budget"
        );
    }
}

/// Minibatches of half a million nodes, which take most of the memory, beside tables and seed lists.
#[test]
fn large_minibatches_take_no_more_than_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(
        folder.path(),
        "rmat",
        &[
            "--scale",
            "22",
            "--edge-factor",
            "2",
            "--feature-dim",
            "8",
            "--feature-dtype",
            "f16",
        ],
    );
    let common = [
        "--batches",
        "12",
        "--batch",
        "262144",
        "--fanouts",
        "5",
        "--threads",
        "2",
    ];
    // Half of the nodes as a seed list.
    let list = folder.path().join("half.txt");
    fs::write(
        &list,
        (0..1 << 21).map(|id| format!("{}\n", 2 * id)).collect::<String>(),
    )
    .unwrap();
    for seeds in ["all", list.to_str().unwrap()] {
        let with = |memory| [&common[..], &["--view", "mapped", "--seeds", seeds, "--memory", memory]].concat();
        let refused = run(&mut sample(&store, &with("96MiB"))).failure(&["at least "]);
        let least = refused.stderr.split("at least ").nth(1).expect("what is needed");
        let least = least.split(" is needed").next().expect("a size");
        let told = sampled(&store, &with(least));
        let budget: u64 = least.trim_end_matches(" MiB").parse().unwrap();
        let Some(peak) = told["peak_rss_bytes"].as_u64() else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        assert!(
            peak <= budget << 20,
            "{seeds}: {peak} bytes with a budget of {budget} MiB"
        );
        // A command that uses little memory tests nothing.
        assert!(
            peak >= budget << 19,
            "{seeds}: {peak} bytes with a budget of {budget} MiB"
        );
    }
}

#[test]
fn a_feature_file_that_is_cut_short_is_an_error_and_not_a_minibatch() {
    let folder = memory_folder();
    let store = sbm_in(folder.path());
    let copy = folder.path().join("copy.grappa");
    copy_folder(&store, &copy);
    let features = copy.join("chunk-5/features");
    let bytes = fs::metadata(&features).unwrap().len();
    File::options()
        .write(true)
        .open(&features)
        .unwrap()
        .set_len(bytes / 2)
        .unwrap();
    run(&mut sample(&copy, &["--batches", "5"])).failure(&["chunk-5/features"]);
}

#[test]
fn aggregates_are_made_once_verified_and_replaced_when_asked() {
    let folder = memory_folder();
    let store = sbm_in(folder.path());
    let preaggregate = |more: &[&str]| run(command("grappa-store").arg("preaggregate").arg(&store).args(more));
    for kind in ["mean", "gcn", "sum"] {
        let made = preaggregate(&["--kind", kind, "--memory", "4MiB", "--json"])
            .success()
            .json();
        assert_eq!(
            (&made["kind"], made["nodes"].as_u64()),
            (&Value::from(kind), Some(20_000))
        );
    }
    run(command("grappa-store").arg("verify").arg(&store)).success();
    preaggregate(&["--kind", "mean"]).failure(&["--replace"]);
    let replaced = preaggregate(&["--kind", "mean", "--replace", "--dtype", "f16", "--json"])
        .success()
        .json();
    assert!(replaced["bytes"].as_u64().unwrap() < 20_000 * 100);
    preaggregate(&["--kind", "gcn", "--replace", "--memory", "1KiB"]).failure(&["MiB is needed"]);
}

/// Threads free the lists and states of one tile before the next. Kept by each thread, they would take the budget twice more.
#[test]
fn aggregation_takes_little_more_memory_than_its_budget() {
    const BUDGET: u64 = 32 << 20;
    const SLACK: u64 = 48 << 20;
    // On a disk, because a file system in memory has no page cache to bypass or to count.
    let folder = tempfile::tempdir().unwrap();
    let store = store_in(folder.path(), "rmat", &["--scale", "20", "--feature-dim", "64"]);
    let budget = BUDGET.to_string();
    let preaggregate = ["preaggregate", "--kind", "mean", "--memory", &budget, "--json"];
    let told = run(command("grappa-store").args(preaggregate).arg(&store))
        .success()
        .json();
    let Some(peak) = told["peak_rss_bytes"].as_u64() else {
        grappa_skip::skip!("the kernel does not tell peak memory");
    };
    assert!(peak <= BUDGET + SLACK, "{peak} bytes with a budget of {BUDGET}");
}
