//! Runs of grappa-train and their results.

use std::{fs, path::Path, process::Command};

use anyhow::{Context, Result};
use grappa_formats::aggregates::AggregateKind;
use grappa_storage::{Store, aggregates::Aggregates};
use serde_json::Value;

use crate::{
    child::{self, Measured, number},
    folder,
    limit::MemoryLimit,
};

/// Stages of the training loop: the header of [`Trained::stages`].
pub const STAGES: &str = "sample / read / assemble / forward / backward / step, s";

/// A finished run.
#[derive(Debug)]
pub struct Trained {
    /// Time of the last epoch, without its evaluation.
    pub seconds: f64,
    /// The line of that epoch in `metrics.jsonl`.
    pub epoch: Value,
    /// Time and memory of the program.
    pub measured: Measured,
}

impl Trained {
    /// Seconds that the training loop spent in each stage or waited for it, in the last epoch, in the order of
    /// [`STAGES`].
    pub fn stages(&self) -> [f64; 6] {
        ["sample", "read", "assemble", "forward", "backward", "exchange"]
            .map(|stage| self.epoch["seconds_by_stage"][stage].as_f64().unwrap_or(0.0))
    }
}

/// The hidden dimension of the model whose time is measured.
pub const HIDDEN: u32 = 128;

/// The command that trains GraphSAGE, as [`model`] does, with [`HIDDEN`].
pub fn sage(programs: &Path, store: &Path) -> Command {
    model(programs, store, "sage", HIDDEN)
}

/// The command that trains the model whose time is measured: 3 layers, fanouts 15, 10, 5, no checkpoints.
pub fn model(programs: &Path, store: &Path, model: &str, hidden: u32) -> Command {
    let mut command = Command::new(programs.join("grappa-train"));
    command.arg(store);
    command.args(["--model", model, "--layers", "3", "--hidden", &hidden.to_string(), "--fanouts", "15,10,5"]);
    command.args(["--checkpoint-every", "0", "--json"]);
    command
}

/// Runs the training command, within the limit if there is one. The folder of the run is `out`; it is removed before
/// and after.
///
/// # Errors
/// If training fails, or has no epoch.
pub fn train(mut command: Command, out: &Path, limit: Option<&MemoryLimit>) -> Result<Trained> {
    folder::remove(out)?;
    command.arg("--out").arg(out);
    let measured = match limit {
        Some(limit) => limit.run(&command)?,
        None => child::run(&mut command)?,
    };
    let epoch = epochs_of(out)?.pop().context("expected an epoch in metrics.jsonl, found none")?;
    folder::remove(out)?;
    Ok(Trained { seconds: seconds_of(&epoch)?, epoch, measured })
}

/// Adds pre-aggregated features to a store, unless it has them, or has them apart from the features and they are to be side by side.
/// `programs` contains grappa-store.
///
/// # Errors
/// If the store can't be opened, or grappa-store fails.
pub fn preaggregate(programs: &Path, store: &Path, kind: AggregateKind, with_features: bool) -> Result<()> {
    let mut command = Command::new(programs.join("grappa-store"));
    command.arg("preaggregate").arg(store);
    match Aggregates::open(&Store::open(store)?, kind)? {
        Some(aggregates) if aggregates.with_features() || !with_features => return Ok(()),
        Some(_) => drop(command.arg("--replace")),
        None => {}
    }
    if with_features {
        command.arg("--with-features");
    }
    child::run(command.args(["--kind", &kind.to_string(), "--memory", "4GiB", "--quiet"])).map(drop)
}

/// The epochs in `metrics.jsonl` of a run.
///
/// # Errors
/// If the file cannot be read, or a line is not JSON.
pub fn epochs_of(run: &Path) -> Result<Vec<Value>> {
    let path = run.join("metrics.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?)
}

/// Seconds of an epoch without its evaluation.
///
/// # Errors
/// If it lacks its seconds.
pub fn seconds_of(epoch: &Value) -> Result<f64> {
    Ok(number(epoch, "seconds")? - number(epoch, "seconds_by_stage/evaluate").unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_are_timed_without_their_evaluation() {
        let folder = tempfile::tempdir().unwrap();
        let lines = "{\"epoch\":1,\"seconds\":9.0,\"seconds_by_stage\":{\"evaluate\":0.0}}\n\
                     {\"epoch\":2,\"seconds\":5.0,\"seconds_by_stage\":{\"evaluate\":2.0}}\n";
        fs::write(folder.path().join("metrics.jsonl"), lines).unwrap();
        let epochs = epochs_of(folder.path()).unwrap();
        assert_eq!(epochs.iter().map(|epoch| seconds_of(epoch).unwrap()).collect::<Vec<_>>(), [9.0, 3.0]);
    }
}
