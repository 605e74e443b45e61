//! Training and predictions stay within `--memory`.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use grappa_tests::program::{self, run};

/// Memory beyond the budget and the peak on a tiny graph, which is that of libtorch and the model.
const SLACK: u64 = 32 << 20;

fn store_of(folder: &Path, nodes: &str) -> PathBuf {
    let store = folder.join(format!("{nodes}.grappa"));
    let mut generate = program::command("grappa-gen");
    generate.args(["sbm", "--nodes", nodes, "--edge-factor", "4", "--classes", "4"]);
    generate.args(["--feature-dim", "16", "--chunks", "8", "--quiet", "--out"]);
    run(generate.arg(&store)).success();
    store
}

fn train_program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_grappa-train"))
}

/// The messages and states of all nodes take several times the budget, and so would the tensors of a tile's destinations.
#[test]
fn predictions_with_attention_take_little_more_memory_than_their_budget() {
    const BUDGET: u64 = 96 << 20;
    // On a disk, because a file system in memory has no page cache to bypass or to count.
    let folder = tempfile::tempdir().unwrap();
    let [tiny, large] = ["500", "100000"].map(|nodes| store_of(folder.path(), nodes));
    for model in ["gat", "gatv2"] {
        let trained = folder.path().join(model);
        let mut train = train_program();
        train.arg(&tiny).arg("--out").arg(&trained).args(["--model", model]);
        train.args(["--layers", "2", "--hidden", "256", "--epochs", "1", "--quiet"]);
        run(&mut train).success();
        let peak = |store: &Path| {
            let mut predict = train_program();
            predict.arg("predict").arg(&trained).arg(store).arg("--logits");
            predict.arg("--out").arg(store.with_extension(format!("{model}.npy")));
            predict.args(["--threads", "2", "--memory", &BUDGET.to_string(), "--json"]);
            run(&mut predict).success().json()["peak_rss_bytes"].as_u64()
        };
        let (Some(base), Some(peak)) = (peak(&tiny), peak(&large)) else {
            grappa_skip::skip!("the kernel does not tell peak memory");
        };
        let limit = base + BUDGET + SLACK;
        assert!(
            peak <= limit,
            "{model}: {peak} bytes with a budget of {BUDGET}, and {base} on a tiny graph"
        );
    }
}

/// Rows are narrow, so the pre-aggregation has many of them in each thread, and threads end after it.
#[test]
fn training_on_narrow_features_takes_little_more_memory_than_its_budget() {
    const BUDGET: u64 = 128 << 20;
    let folder = tempfile::tempdir().unwrap();
    let peak = |nodes: &str| {
        let mut train = train_program();
        train.arg(store_of(folder.path(), nodes));
        train.arg("--out").arg(folder.path().join(format!("{nodes}.run")));
        train.args([
            "--layers",
            "2",
            "--hidden",
            "128",
            "--fanouts",
            "5,5",
            "--batch",
            "256",
            "--epochs",
            "1",
        ]);
        train.args(["--steps-per-epoch", "100", "--threads", "2", "--device", "cpu"]);
        train.args(["--memory", &BUDGET.to_string(), "--json"]);
        run(&mut train).success().json()["peak_rss_bytes"].as_u64()
    };
    let (Some(base), Some(peak)) = (peak("500"), peak("3000000")) else {
        grappa_skip::skip!("the kernel does not tell peak memory");
    };
    let limit = base + BUDGET + 2 * SLACK;
    assert!(
        peak <= limit,
        "{peak} bytes with a budget of {BUDGET}, and {base} on a tiny graph"
    );
}
