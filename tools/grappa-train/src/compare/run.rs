//! Trains the runs one after the other, and writes the pages.

use std::sync::Arc;

use anyhow::anyhow;
use grappa_console::{Console, Summary, print_line, printable, signals};
use grappa_engine::{Graph, Store};
use grappa_methods::PlannedRun;
use grappa_trainer::{runtime, train::finished};
use serde::Serialize;

use super::args::CompareArgs;
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
    let graph = Graph::from(Arc::new(Store::open(&options.store)?));
    let runs = options.comparison()?;
    if !options.force {
        runs.iter().try_for_each(PlannedRun::check_before)?;
        PlannedRun::check_pages(&runs, &options.out)?;
    }
    if let Some(first) = runs.first() {
        runtime::prepare(first.config.threads(), first.config.memory.0);
    }
    signals::stops_by_itself("finishing the step and writing a checkpoint");
    for (number, run) in (1..).zip(&runs) {
        let line = train_planned(&graph, run, options.force, console)?;
        if console.tells() {
            print_line(&format!("{number}/{}  {line}", runs.len()))?;
        }
    }
    let name = options.store.file_name().unwrap_or_default().to_string_lossy();
    let comparison = PlannedRun::compared(&runs, &name)?;
    comparison.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    comparison.write(&options.out)?;
    console.finish(&Compared {
        path: options.out.join("compare.html").display().to_string(),
        runs: runs.iter().map(|run| run.folder.display().to_string()).collect(),
        table: comparison.markdown(),
    })
}

/// Trains a run, or continues it unless it is to be trained anew. Returns a line about it.
fn train_planned(graph: &Graph, run: &PlannedRun, force: bool, console: &Console) -> anyhow::Result<String> {
    let name = printable(&run.folder.display().to_string()).to_string();
    let resumes = run.exists() && !force;
    if resumes && let Some(kept) = finished(graph, &run.folder, &run.config) {
        return Ok(format!("{name}: kept, {} epochs", kept.epochs));
    }
    let folder = run.open_folder(resumes)?;
    let mut screen = Screen::silent(console);
    let trained = train_in(graph.clone(), run.config.clone(), folder, resumes.then_some(Resume::Auto), &mut screen);
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
