//! `grappa-train report RUN RUN ...`: several runs on one page.

use std::io::Write;

use anyhow::{Context, bail};
use grappa_console::{Console, Summary, printable, signals};
use grappa_engine::io::durable::Destination;
use grappa_report::Comparison;
use serde::Serialize;

use crate::args;

#[derive(Serialize)]
struct ReportSummary {
    path: String,
    /// The folders of the runs.
    runs: Vec<String>,
}

pub fn run(options: &args::ReportArgs, console: &Console) -> anyhow::Result<()> {
    signals::stops_by_itself("finishing the page, which takes a moment");
    let comparison = Comparison::read(&options.runs)?;
    let warnings = comparison.warnings().iter();
    warnings.for_each(|warning| tracing::warn!("{warning}"));
    if options.out.as_os_str() == "-" {
        if console.json() {
            bail!("--out - prints the page on stdout, so --json is not possible; give --out a file");
        }
        let mut stdout = grappa_console::stdout();
        return stdout
            .write_all(comparison.html().as_bytes())
            .and_then(|()| stdout.flush())
            .context("cannot write to stdout");
    }
    comparison.write(Destination { path: &options.out, replaces: options.force })?;
    console.finish(&ReportSummary {
        path: options.out.display().to_string(),
        runs: options.runs.iter().map(|run| run.display().to_string()).collect(),
    })
}

impl Summary for ReportSummary {
    fn text(&self) -> String {
        format!("{}: {} runs on one page; open it in a browser", printable(&self.path), self.runs.len())
    }
}
