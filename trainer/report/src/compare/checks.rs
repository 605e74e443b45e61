//! Whether runs can be compared, and what differs between them.

use std::{collections::BTreeMap, path::Path};

use grappa_io::size::count;
use grappa_run::{Error, Result, folder::REPORT, model::Task, percent};

use super::run::ComparedRun;
use crate::tiles::majority;

/// As many runs have colors that differ.
const RUNS_MAX: usize = 8;

/// Checks that there are several folders, and not too many.
pub(super) fn folders(folders: &[impl AsRef<Path>]) -> Result<()> {
    match folders {
        [] => {
            return Err(Error::Incomparable("a comparison needs two runs or more: name their folders".to_owned()));
        }
        [run] => {
            return Err(Error::Incomparable(format!(
                "a comparison needs two runs or more: name another one, or open {}, the report of this one",
                run.as_ref().join(REPORT).display()
            )));
        }
        _ => {}
    }
    if folders.len() > RUNS_MAX {
        return Err(Error::Incomparable(format!(
            "{} runs are too many for one page: name {RUNS_MAX} or fewer",
            folders.len()
        )));
    }
    let mut seen = BTreeMap::new();
    for folder in folders.iter().map(AsRef::as_ref) {
        // One that does not exist is refused later.
        let Ok(real) = folder.canonicalize() else { continue };
        if let Some(before) = seen.insert(real, folder) {
            return Err(Error::Incomparable(format!(
                "{} and {} are the same run: name each run once",
                before.display(),
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Checks that all runs predict the same kind of labels: only then do their scores mean the same.
pub(super) fn tasks(runs: &[ComparedRun]) -> Result<()> {
    for run in runs {
        let pair = [&runs[0], run].map(|run| (run.state.task(), run.state.outputs));
        if pair[0] != pair[1] {
            return Err(Error::Incomparable(format!(
                "{} predicts {}, and {} {}, so their scores cannot be compared: name runs on the same labels",
                runs[0].folder.display(),
                predicted(pair[0]),
                run.folder.display(),
                predicted(pair[1]),
            )));
        }
    }
    Ok(())
}

fn predicted((task, outputs): (Task, u64)) -> String {
    match task {
        Task::MultiClass => format!("one of {outputs} classes"),
        Task::MultiLabel => format!("sets of {outputs} labels"),
        Task::Regression => format!("{outputs} number(s)"),
        Task::Links => format!("links, from embeddings of {outputs} values"),
    }
}

/// What a reader must know before comparing scores.
pub(super) fn notes(runs: &[ComparedRun]) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(difference(runs, "The stores differ", store));
    notes.extend(difference(runs, "The numbers of features per node differ", |run| run.state.inputs.to_string()));
    notes.extend(difference(runs, "Scores are of different nodes", scored));
    notes.extend(difference(runs, "Evaluations differ", |run| {
        run.summary.evaluated.map_or_else(|| "none".to_owned(), |how| how.to_string())
    }));
    let unfinished = runs.iter().filter(|run| !run.is_over());
    notes.extend(unfinished.map(|run| {
        format!(
            "{} is not finished: its last checkpoint is after epoch {} of {}",
            run.name, run.summary.epochs, run.config.epochs
        )
    }));
    notes
}

/// Says which runs have which value. None if all have the same.
fn difference(runs: &[ComparedRun], subject: &str, value: impl Fn(&ComparedRun) -> String) -> Option<String> {
    let values: Vec<String> = runs.iter().map(value).collect();
    if values.iter().all(|value| *value == values[0]) {
        return None;
    }
    let runs = runs.iter().zip(&values).map(|(run, value)| format!("{}: {value}", run.name));
    Some(format!("{subject}. {}", runs.collect::<Vec<_>>().join("; ")))
}

/// The store of a run, which only its digest identifies.
fn store(run: &ComparedRun) -> String {
    format!("store {:016x}", run.state.store_digest)
}

/// The nodes that scores are of: their split, their number, and the largest class, which differ if the nodes do.
fn scored(run: &ComparedRun) -> String {
    let Some(scores) = &run.state.scores else { return "none".to_owned() };
    let majority =
        majority(&scores.report).map_or_else(String::new, |part| format!(", {} in the largest class", percent(part)));
    format!("{} {} nodes{majority}", count(scores.report.nodes), scores.split)
}
