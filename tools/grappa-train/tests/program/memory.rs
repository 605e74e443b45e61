//! Training and predictions stay within `--memory`.

use grappa_tests::{
    npy::Npy,
    program::{CommandWords, run},
};

use crate::fixture::TrainFolder;

/// Memory beyond the budget and the peak on a tiny graph, which is that of libtorch and the model.
const SLACK: u64 = 32 << 20;

/// A folder with a store of 500 nodes, and one with many. It is on a disk, because a file system in memory has no page
/// cache to bypass or to count.
fn folder(nodes: u64) -> TrainFolder {
    let folder = TrainFolder::on_disk();
    for (name, nodes) in [("tiny", 500), ("large", nodes)] {
        let graph = "sbm --edge-factor 4 --classes 4 --feature-dim 16 --chunks 8";
        folder.generate(&format!("{name}.grappa"), &format!("{graph} --nodes {nodes}"));
    }
    folder
}

/// The peak memory of a command, if the kernel tells it. The leases of the command add up to its limit at most.
fn peak(folder: &TrainFolder, arguments: &str) -> Option<u64> {
    let json = run(folder.program(arguments).words("--threads 2 --json")).success().json();
    let (limit, phases) = (json["memory"]["limit"].as_u64().unwrap(), json["memory"]["phases"].as_array().unwrap());
    assert!(!phases.is_empty(), "{json}");
    for phase in phases {
        let leases = phase["leases"].as_array().unwrap().iter().filter(|lease| lease["beside_limit"] == false);
        let leased: u64 = leases.map(|lease| lease["bytes"].as_u64().unwrap()).sum();
        assert!(leased <= limit, "{phase}");
    }
    json["peak_rss_bytes"].as_u64()
}

/// The messages and states of all nodes take several times the budget, and so would the tensors of a tile's
/// destinations.
#[test]
fn predictions_with_attention_take_little_more_memory_than_their_budget() {
    const BUDGET: u64 = 96 << 20;
    let folder = folder(100_000);
    for model in ["gat", "gatv2"] {
        let train = format!("tiny.grappa --out {model} --model {model} --layers 2 --hidden 256 --epochs 1 --quiet");
        run(&mut folder.program(&train)).success();
        let [base, peak] = ["tiny", "large"].map(|store| {
            let arguments = format!("predict {model} {store}.grappa --logits --out {store}-{model}.npy");
            peak(&folder, &format!("{arguments} --memory {BUDGET}"))
        });
        let (Some(base), Some(peak)) = (base, peak) else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        let limit = base + BUDGET + SLACK;
        assert!(peak <= limit, "{model}: {peak} bytes with a budget of {BUDGET}, and {base} on a tiny graph");
    }
}

/// Rows are narrow, so the pre-aggregation has many of them in each thread, and threads end after it.
#[test]
fn training_on_narrow_features_takes_little_more_memory_than_its_budget() {
    const BUDGET: u64 = 96 << 20;
    let folder = folder(2_000_000);
    let [base, peak] = ["tiny", "large"].map(|store| {
        let options = "--layers 2 --hidden 128 --fanouts 5,5 --batch 256 --epochs 1 --steps-per-epoch 100";
        let arguments = format!("{store}.grappa {options} --device cpu --memory {BUDGET}");
        peak(&folder, &arguments)
    });
    let (Some(base), Some(peak)) = (base, peak) else {
        grappa_skip::skip!("the kernel does not tell peak memory");
    };
    let limit = base + BUDGET + 2 * SLACK;
    assert!(peak <= limit, "{peak} bytes with a budget of {BUDGET}, and {base} on a tiny graph");
}

/// Nodes of the graph of links.
const LINK_NODES: u64 = 200_000;
/// Budgets of tests of links, and memory that libtorch and the tensors of a small step may have besides.
const LINK_BUDGETS: [u64; 2] = [64 << 20, 256 << 20];
const LINK_SLACK: u64 = 64 << 20;
const LINKS: &str =
    "--task link --layers 1 --hidden 16 --fanouts 2 --epochs 1 --steps-per-epoch 2 --device cpu --batch 64";

/// A folder with the stores `tiny.grappa` and `links.grappa`, whose edges are split.
fn link_folder() -> TrainFolder {
    let folder = TrainFolder::on_disk();
    for (name, nodes, split) in [("tiny", 300, "98/1/1"), ("links", LINK_NODES, "99.998/0.001/0.001")] {
        folder.generate(&format!("{name}.npy"), &format!("er --nodes {nodes} --edge-factor 2 --as npy"));
        let features = Npy::new(&[nodes as usize, 4], (0..4 * nodes).map(|value| (value % 7) as f32));
        features.write(&folder.path(&format!("{name}-features.npy")));
        let inputs = format!("--edges {name}.npy --features {name}-features.npy --nodes {nodes}");
        folder.success(&format!("ingest {inputs} --edge-split {split} --chunks 8 --out {name}.grappa"));
    }
    folder
}

/// The peak of a command within a budget, or its refusal, which must name an option that helps.
fn assert_within_budget(folder: &TrainFolder, base: u64, arguments: &str, budget: u64) -> bool {
    let ran = run(folder.program(arguments).words(&format!("--threads 2 --json --memory {budget}")));
    if !ran.stderr.is_empty() && ran.stdout.is_empty() {
        assert!(ran.stderr.contains("--memory"), "{arguments}: {}", ran.stderr);
        return false;
    }
    let peak = ran.success().json()["peak_rss_bytes"].as_u64().unwrap();
    let limit = base + budget + LINK_SLACK;
    assert!(
        peak <= limit,
        "{arguments}: {} MiB with a budget of {}, and {} without",
        peak >> 20,
        budget >> 20,
        base >> 20
    );
    true
}

/// The peak of a run on a tiny graph, if the kernel tells it.
fn link_base(folder: &TrainFolder) -> Option<u64> {
    peak(folder, &format!("tiny.grappa {LINKS} --out tiny --memory 64MiB"))
}

#[test]
fn negatives_stay_within_the_budget_or_are_refused() {
    let folder = link_folder();
    let Some(base) = link_base(&folder) else { grappa_skip::skip!("the kernel does not tell peak memory") };
    for (negatives, sampling, is_refused) in [
        (100, "uniform", [false, false]),
        (3000, "uniform", [true, false]),
        (20_000, "uniform", [true, true]),
        (100, "shared", [false, false]),
        (10_000, "shared", [false, false]),
        (1_000_000, "shared", [true, true]),
        (100_000_000, "pairs", [true, true]),
    ] {
        for (budget, is_refused) in LINK_BUDGETS.into_iter().zip(is_refused) {
            let options = format!("--negatives {negatives} --negative-sampling {sampling} --out run --force");
            let ran = assert_within_budget(&folder, base, &format!("links.grappa {LINKS} {options}"), budget);
            assert_eq!(ran, !is_refused, "{negatives} {sampling}, {budget}");
        }
    }
}

#[test]
fn options_that_a_refusal_of_negatives_names_are_accepted() {
    let folder = link_folder();
    let options = "--negatives 20000 --memory 64MiB --out run --force --threads 2 --quiet";
    let command = |more: &str| run(&mut folder.program(&format!("links.grappa {LINKS} {options} {more}")));
    let refused = command("");
    refused.failure(&["the negatives of a step need", "--memory 64MiB", "--negatives ", "--batch "]);
    let refused = command("");
    let words: Vec<&str> = refused.stderr.split("give ").last().unwrap().split_whitespace().collect();
    let remedies: Vec<_> = words.split(|&word| word == "or").map(|remedy| remedy.join(" ")).collect();
    assert_eq!(remedies.len(), 3, "{}", refused.stderr);
    for remedy in remedies {
        // The last one of the same options counts.
        let option = remedy.split(' ').next().unwrap();
        let mut line = format!("links.grappa {LINKS} {options}");
        if let Some(start) = line.find(&format!(" {option} ")) {
            let value = line[start + 1..].split(' ').nth(1).unwrap().to_owned();
            line = line.replace(&format!(" {option} {value}"), "");
        }
        run(&mut folder.program(&format!("{line} {remedy}"))).success();
    }
}

#[test]
fn evaluations_and_searches_stay_within_the_budget() {
    let folder = link_folder();
    let Some(base) = link_base(&folder) else { grappa_skip::skip!("the kernel does not tell peak memory") };
    folder.write("sources.txt", (0..2000).map(|node| format!("{node}\n")).collect::<String>());
    folder.write("source.txt", "7\n");
    // Prediction loads more of libtorch than training does.
    let tiny = "predict tiny tiny.grappa --top-k 10 --for source.txt --out tiny.csv --memory 64MiB";
    let search_base = peak(&folder, tiny).expect("the kernel told it before");
    run(&mut folder.program(&format!("links.grappa {LINKS} --out model --quiet"))).success();
    for budget in LINK_BUDGETS {
        for candidates in ["100", "20000", "100000", "all"] {
            let options = format!("--candidates {candidates} --out run --force");
            assert!(assert_within_budget(&folder, base, &format!("links.grappa {LINKS} {options}"), budget));
        }
        for (k, sources) in [(10, "sources"), (100_000, "source"), (1000, "sources"), (150_000, "source")] {
            let search = format!("predict model links.grappa --top-k {k} --for {sources}.txt --out best.csv --force");
            let ran = assert_within_budget(&folder, search_base, &search, budget);
            assert!(ran || k >= 100_000, "{search}");
        }
    }
}
