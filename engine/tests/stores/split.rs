//! Random splits: exact shares of the right nodes, whatever the store looks like otherwise.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use grappa_engine::Store;
use grappa_formats::{NodeId, manifest::ExternalIds};
use grappa_ingestion::ingest::{Assign, IngestOptions, RandomSplit, ingest};
use grappa_io::progress::Silent;

use crate::common::{files_of, interrupted, options};

const NAMES: [&str; 3] = ["train", "val", "test"];
const NODES: u64 = 3001;

/// The class of a node: 7 classes of different sizes, and none for one node in 13.
fn class(id: u64) -> Option<u64> {
    (!id.is_multiple_of(13)).then_some((id * id % 31) % 7)
}

/// Writes edges and labels of [`NODES`] nodes. Ids of other kinds are in the order of the dense ids.
fn inputs(folder: &Path, ids: ExternalIds) -> IngestOptions {
    let id = |dense: u64| match ids {
        ExternalIds::Dense => dense.to_string(),
        ExternalIds::Sparse => (dense * 1000 + 7).to_string(),
        ExternalIds::String => format!("node{dense:06}"),
    };
    let edges: String = (0..NODES).map(|node| format!("{} {}\n", id(node), id((node * 7 + 1) % NODES))).collect();
    let labels: String = (0..NODES).map(|node| format!("{}\n", class(node).map_or(-1, |class| class as i64))).collect();
    fs::write(folder.join("edges.tsv"), edges).unwrap();
    fs::write(folder.join("labels.txt"), labels).unwrap();
    let mut options = options(folder, &folder.join("edges.tsv"));
    options.nodes.ids = ids;
    options.nodes.data.labels = Some(folder.join("labels.txt").into());
    options.nodes.splits.random = Some(split("60/20/20", false));
    options
}

fn split(shares: &str, stratify: bool) -> RandomSplit {
    RandomSplit { shares: shares.parse().unwrap(), seed: 3, stratify }
}

/// The dense ids of each split. All splits are disjoint.
fn splits_of(store: &Path) -> Vec<BTreeSet<u64>> {
    let store = Store::open(store).unwrap();
    let dense = |node: u64| -> u64 {
        let id = store.external_id(NodeId(node)).unwrap().to_string();
        let digits: u64 = id.trim_start_matches("node").parse().unwrap();
        if id.starts_with("node") || store.manifest().ids.external == ExternalIds::Dense {
            digits
        } else {
            digits / 1000
        }
    };
    let splits: Vec<BTreeSet<u64>> =
        NAMES.iter().map(|name| store.split(name).unwrap().unwrap_or_default().iter().map(dense).collect()).collect();
    let all: BTreeSet<u64> = splits.iter().flatten().copied().collect();
    assert_eq!(all.len(), splits.iter().map(BTreeSet::len).sum::<usize>(), "splits overlap");
    splits
}

fn made(options: &IngestOptions) -> Vec<BTreeSet<u64>> {
    let _ = fs::remove_dir_all(&options.out);
    ingest(options, &Silent).unwrap();
    splits_of(&options.out)
}

#[test]
fn labelled_nodes_are_split_in_exact_shares() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::Dense);
    let labelled: BTreeSet<u64> = (0..NODES).filter(|&id| class(id).is_some()).collect();
    let splits = made(&options);
    assert_eq!(splits.iter().flatten().copied().collect::<BTreeSet<_>>(), labelled);
    assert_eq!([&splits[0], &splits[1], &splits[2]].map(BTreeSet::len), [1662, 554, 554]);

    // Without labels, all nodes are split. A share of 0 makes no split.
    options.nodes.data.labels = None;
    options.nodes.splits.random = Some(split("12.5/0/87.5", false));
    let splits = made(&options);
    assert_eq!([&splits[0], &splits[1], &splits[2]].map(BTreeSet::len), [375, 0, 2626]);
    assert!(!options.out.join("splits/val.roaring").exists());
}

#[test]
fn a_stratified_split_has_the_shares_of_each_class() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::Dense);
    options.nodes.splits.random = Some(split("50/25/25", true));
    let splits = made(&options);
    let count = |nodes: &BTreeSet<u64>| {
        let mut counts = BTreeMap::new();
        for &id in nodes {
            *counts.entry(class(id).unwrap()).or_insert(0u64) += 1;
        }
        counts
    };
    let sizes = count(&splits.iter().flatten().copied().collect());
    assert_eq!(sizes.len(), 7);
    for (set, share) in splits.iter().zip([0.5, 0.25, 0.25]) {
        for (class, count) in count(set) {
            let wanted = sizes[&class] as f64 * share;
            assert!((count as f64 - wanted).abs() < 1.0, "class {class}: {count}, not {wanted}");
        }
    }
    options.nodes.splits.random = Some(split("50/25/25", false));
    assert_ne!(made(&options), splits);
}

/// Shares of 1/2 of two halves of the ids must be near 1/2: the draw is not a function of the order.
#[test]
fn the_draw_is_uniform_over_ids_and_depends_on_the_seed() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::Dense);
    options.nodes.data.labels = None;
    let mut drawn = Vec::new();
    for seed in 0..4 {
        options.nodes.splits.random = Some(RandomSplit { seed, ..split("50/25/25", false) });
        let train = made(&options).swap_remove(0);
        let low = train.iter().filter(|&&id| id < NODES / 2).count() as f64;
        // The standard deviation is 13.7.
        assert!((low - 750.0).abs() < 70.0, "{low}");
        drawn.push(train);
    }
    for (a, b) in [(0, 1), (1, 2), (2, 3)] {
        let both = drawn[a].intersection(&drawn[b]).count() as f64;
        assert!((both - 750.0).abs() < 70.0, "{both}");
    }
}

#[test]
fn the_split_depends_on_ids_labels_shares_and_seed_only() {
    let folder = tempfile::tempdir().unwrap();
    let parts: String = (0..NODES).map(|node| format!("{}\n", node * node % 5)).collect();
    fs::write(folder.path().join("parts.txt"), parts).unwrap();
    for stratify in [false, true] {
        let with = |ids: ExternalIds, change: &dyn Fn(&mut IngestOptions)| {
            let mut options = inputs(folder.path(), ids);
            options.nodes.splits.random = Some(split("60/20/20", stratify));
            change(&mut options);
            made(&options)
        };
        let expected = with(ExternalIds::Dense, &|_| ());
        let file = Assign::File(folder.path().join("parts.txt"));
        let changes: [&dyn Fn(&mut IngestOptions); 6] = [
            &|options| options.nodes.layout.assign = Assign::Range,
            &|options| options.nodes.layout.assign = file.clone(),
            &|options| options.nodes.layout.seed = 99,
            &|options| options.nodes.layout.chunks = Some(3),
            &|options| options.resources.threads = 5,
            // In 1 MiB, a round tells few bits of each key.
            &|options| (options.resources.memory, options.resources.threads) = (1 << 20, 1),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert!(with(ExternalIds::Dense, change) == expected, "change {at}, stratify {stratify}");
        }
        for ids in [ExternalIds::Sparse, ExternalIds::String] {
            assert!(with(ids, &|_| ()) == expected, "{ids:?}, stratify {stratify}");
        }
    }
}

#[test]
fn a_run_interrupted_anywhere_resumes_to_the_same_split() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::String);
    options.nodes.splits.random = Some(split("60/20/20", true));
    ingest(&options, &Silent).unwrap();
    let expected = files_of(&options.out);
    for steps in 1..30 {
        options.out = folder.path().join(format!("{steps}.grappa"));
        options.resume = false;
        if !interrupted(steps, |progress| ingest(&options, progress)) {
            continue;
        }
        options.resume = true;
        let drawn = options.nodes.splits.random;
        options.nodes.splits.random = Some(split("60/20/20", false));
        let error = ingest(&options, &Silent).unwrap_err().to_string();
        assert!(error.contains("--s"), "{error}");
        options.nodes.splits.random = drawn;
        ingest(&options, &Silent).unwrap();
        assert!(files_of(&options.out) == expected, "interrupted after {steps} steps");
    }
}

#[test]
fn a_split_that_does_not_fit_the_budget_names_one_that_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::Dense);
    options.nodes.data.labels = None;
    options.nodes.number = Some(8 << 20);
    (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (1 << 20, 1, Some(32));
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("a split of 8388608 nodes: at least 3 MiB"), "{error}");
    options.resources.memory = 3 << 20;
    made(&options);
}

#[test]
fn classes_that_do_not_fit_the_budget_of_a_split_name_one_that_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = inputs(folder.path(), ExternalIds::Dense);
    let labels: String = (0..NODES).map(|node| format!("{}\n", node / 10 * 200)).collect();
    fs::write(folder.path().join("labels.txt"), labels).unwrap();
    options.nodes.splits.random = Some(split("60/20/20", true));
    (options.resources.memory, options.resources.threads) = (1 << 20, 1);
    let error = ingest(&options, &Silent).unwrap_err().to_string();
    let wanted = error.split("a split of 60001 classes: at least ").nth(1);
    let wanted = wanted.unwrap_or_else(|| panic!("{error}")).split(" MiB").next().unwrap();
    options.resources.memory = wanted.parse::<u64>().unwrap() << 20;
    made(&options);
}
