//! Runs of grappa-train, and what they came to.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use grappa_formats::aggregates::AggregateKind;
use grappa_storage::{Store, aggregates::Aggregates};
use serde_json::Value;

use crate::{
    child::{self, Measured},
    folder,
    limit::MemoryLimit,
};

/// What the training loop spends its time on, as a header of [`Trained::stages`].
pub const STAGES: &str = "sample / read / assemble / forward / backward / step, s";

/// A run that ended.
#[derive(Debug)]
pub struct Trained {
    /// Of the last epoch, without its evaluation.
    pub seconds: f64,
    /// The line of `metrics.jsonl` about that epoch.
    pub epoch: Value,
    /// What the program took.
    pub measured: Measured,
}

impl Trained {
    /// Seconds of the last epoch that the training loop spent or waited on each stage, in the order of [`STAGES`].
    pub fn stages(&self) -> [f64; 6] {
        ["sample", "read", "assemble", "forward", "backward", "exchange"]
            .map(|stage| self.epoch["seconds_by_stage"][stage].as_f64().unwrap_or(0.0))
    }
}

/// The model that is trained to see how long it takes, on a store: three layers, 128 wide, fanouts 15, 10, 5, no checkpoints.
pub fn sage(programs: &Path, store: &Path) -> Command {
    let mut command = Command::new(programs.join("grappa-train"));
    command.arg(store);
    command.args(["--layers", "3", "--hidden", "128", "--fanouts", "15,10,5"]);
    command.args(["--checkpoint-every", "0", "--json"]);
    command
}

/// Trains with these options, within a limit if there is one. The run's folder is `out`, which is removed before and after.
///
/// # Errors
/// If training fails, or tells of no epoch.
pub fn train(mut command: Command, out: &Path, limit: Option<&MemoryLimit>) -> Result<Trained> {
    folder::remove(out)?;
    command.arg("--out").arg(out);
    let measured = match limit {
        Some(limit) => limit.run(&command)?,
        None => child::run(&mut command)?,
    };
    let (seconds, epoch) = last_epoch(out)?;
    folder::remove(out)?;
    Ok(Trained {
        seconds,
        epoch,
        measured,
    })
}

/// Adds the means of in-neighbours' features to a store, which has features, unless they are there; `programs` has grappa-store.
///
/// # Errors
/// If the store can't be opened, or they can't be made.
pub fn preaggregate(programs: &Path, store: &Path) -> Result<()> {
    if Aggregates::open(&Store::open(store)?, AggregateKind::Mean)?.is_some() {
        return Ok(());
    }
    let mut command = Command::new(programs.join("grappa-store"));
    command.arg("preaggregate").arg(store);
    child::run(command.args(["--kind", "mean", "--memory", "4GiB", "--quiet"])).map(drop)
}

/// What `metrics.jsonl` of a run says of its last epoch: seconds without evaluation, and the line.
fn last_epoch(run: &Path) -> Result<(f64, Value)> {
    let path = run.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = text.lines().next_back().context("the run has no epoch")?;
    let epoch: Value = serde_json::from_str(line)?;
    let seconds = epoch["seconds"].as_f64().context("an epoch takes seconds")?;
    let evaluation = epoch["seconds_by_stage"]["evaluate"].as_f64().unwrap_or(0.0);
    Ok((seconds - evaluation, epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_epoch_is_told_without_its_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"epoch\":1,\"seconds\":9.0,\"seconds_by_stage\":{\"evaluate\":0.0}}\n\
                     {\"epoch\":2,\"seconds\":5.0,\"seconds_by_stage\":{\"evaluate\":2.0}}\n";
        fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        let (seconds, epoch) = last_epoch(folder.path()).unwrap();
        assert_eq!((seconds, epoch["epoch"].as_u64()), (3.0, Some(2)));
    }
}
