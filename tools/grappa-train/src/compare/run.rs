//! Trains the runs one after the other, and writes the pages.

use std::{path::Path, sync::Arc};

use anyhow::{anyhow, bail};
use grappa_console::{Console, Summary, print_line, printable, signals};
use grappa_engine::Store;
use grappa_report::{MethodComparison, MethodRuns};
use grappa_run::{
    config::shown,
    folder::{CONFIG, RunFolder, config_of},
};
use grappa_trainer::{runtime, train::finished};
use serde::Serialize;

use super::{
    args::CompareArgs,
    planned::{PlannedRun, planned},
};
use crate::{
    args::Resume,
    train::{Screen, train_in},
};

#[derive(Serialize)]
struct Compared {
    path: String,
    /// The folders of the runs.
    runs: Vec<String>,
    #[serde(skip)]
    table: String,
}

/// Compares methods. A run that is finished is kept, and one that was killed continues.
pub fn run(options: &CompareArgs, console: &Console) -> anyhow::Result<()> {
    let store = Arc::new(Store::open(&options.store)?);
    let runs = planned(options)?;
    if !options.force {
        for run in &runs {
            check_before(run)?;
        }
        check_pages(&options.out, &runs)?;
    }
    if let Some(first) = runs.first() {
        runtime::prepare(first.config.threads(), first.config.memory.0);
    }
    signals::stops_by_itself("finishing the step and writing a checkpoint");
    for (number, run) in (1..).zip(&runs) {
        let line = train_planned(&store, run, options.force, console)?;
        if console.tells() {
            print_line(&format!("{number}/{}  {line}", runs.len()))?;
        }
    }
    let name = options.store.file_name().unwrap_or_default().to_string_lossy();
    let comparison = MethodComparison::read(&name, &by_method(&runs))?;
    comparison.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    comparison.write(&options.out)?;
    console.finish(&Compared {
        path: options.out.join("compare.html").display().to_string(),
        runs: runs.iter().map(|run| run.folder.display().to_string()).collect(),
        table: comparison.markdown(),
    })
}

/// Refuses a folder whose run has other options, before anything is trained.
fn check_before(run: &PlannedRun) -> anyhow::Result<()> {
    if !run.folder.join(CONFIG).exists() {
        return Ok(());
    }
    let before = config_of(&run.folder)?;
    if let Some((option, values)) = before.fixed_difference(&run.config) {
        let [before, after] = values.map(|value| value.as_ref().map_or_else(|| "none".to_owned(), shown));
        bail!(
            "{}: its run has {option} {before}, and not {after}: give the same options, train it anew with --force, or give another \
             folder with --out",
            run.folder.display()
        );
    }
    Ok(())
}

/// Refuses the pages of another comparison, before anything is trained. A comparison that continues replaces its own.
fn check_pages(out: &Path, runs: &[PlannedRun]) -> anyhow::Result<()> {
    if runs.iter().any(|run| run.folder.join(CONFIG).exists()) {
        return Ok(());
    }
    match MethodComparison::FILES.iter().map(|name| out.join(name)).find(|path| path.exists()) {
        Some(path) => bail!(
            "{} exists, and none of the runs to compare is in {}: replace it with --force, or give another folder with --out",
            path.display(),
            out.display()
        ),
        None => Ok(()),
    }
}

/// Trains a run, or continues it unless it is to be trained anew. Returns a line about it.
fn train_planned(store: &Arc<Store>, run: &PlannedRun, force: bool, console: &Console) -> anyhow::Result<String> {
    let name = printable(&run.folder.display().to_string()).to_string();
    let resumes = run.folder.join(CONFIG).exists() && !force;
    if resumes && let Some(kept) = finished(store, &run.folder, &run.config) {
        return Ok(format!("{name}: kept, {} epochs", kept.epochs));
    }
    let folder = open_folder(run, resumes)?;
    let mut screen = Screen::silent(console);
    let trained = train_in(store.clone(), run.config.clone(), folder, resumes.then_some(Resume::Auto), &mut screen);
    drop(screen);
    let summary = trained.map_err(|error| match error.is_stopped() {
        true if force => anyhow!("{error}; continue with the same command without --force"),
        true => anyhow!("{error}; continue with the same command"),
        false => anyhow!("{name}: {error}"),
    })?;
    let score = summary.score();
    let score = score.test.map_or_else(
        || "no test score".to_owned(),
        |test| format!("test {} {}", score.name, summary.task.shown_score(test)),
    );
    Ok(format!("{name}: {score}, {} epochs, {:.1} s", summary.epochs, summary.seconds_total))
}

fn open_folder(run: &PlannedRun, resumes: bool) -> grappa_run::Result<RunFolder> {
    match resumes {
        true => {
            let folder = RunFolder::resume(&run.folder)?;
            folder.write_config(&run.config)?;
            Ok(folder)
        }
        // Nothing is there without --force.
        false => RunFolder::replace(&run.folder, &run.config),
    }
}

/// The runs of each method and number of partitions together.
fn by_method(runs: &[PlannedRun]) -> Vec<MethodRuns> {
    let groups = runs.chunk_by(|one, other| (&one.method, one.partitions) == (&other.method, other.partitions));
    let of_group = groups.map(|runs| MethodRuns {
        name: runs[0].method.clone(),
        partitions: runs[0].partitions,
        folders: runs.iter().map(|run| run.folder.clone()).collect(),
    });
    of_group.collect()
}

impl Summary for Compared {
    fn text(&self) -> String {
        format!(
            "\n{}\n{}: {} runs on one page; open it in a browser",
            self.table,
            printable(&self.path),
            self.runs.len()
        )
    }
}
