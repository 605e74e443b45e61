//! Training and predictions stay within `--memory`.

use grappa_tests::program::{CommandWords, run};

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

/// The peak memory of a command, if the kernel tells it.
fn peak(folder: &TrainFolder, arguments: &str) -> Option<u64> {
    run(folder.program(arguments).words("--threads 2 --json")).success().json()["peak_rss_bytes"].as_u64()
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
