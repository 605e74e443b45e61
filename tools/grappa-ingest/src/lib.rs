//! The program `grappa-ingest`, as a library: the Python package calls it with its options.

mod args;
mod assign;
mod choices;
mod readings;

use std::{ffi::OsString, path::Path, process::ExitCode, time::Instant};

use clap::{CommandFactory, Parser};
use grappa_console::{Built, Console, Summary, first_names, signals};
use grappa_engine::{
    Progress,
    ingest::{LabelType, Reading, Schema, examine, ingest, kept_in, partial_folder},
};
use serde::Serialize;

use self::{
    args::IngestArgs,
    readings::{DryRun, Input},
};

/// The program.
pub fn main() -> ExitCode {
    grappa_console::run(|| {
        let args = IngestArgs::parse();
        run(&args, &args.console.open())
    })
}

/// The options of the program.
pub fn command() -> clap::Command {
    IngestArgs::command()
}

/// The program as a function. `line` is its command line, with a name in front.
///
/// # Errors
/// As the program; `clap::Error` if the options are wrong.
pub fn call(line: impl IntoIterator<Item = OsString>, console: &Console) -> anyhow::Result<()> {
    run(&IngestArgs::try_parse_from(line)?, console)
}

fn run(args: &IngestArgs, console: &Console) -> anyhow::Result<()> {
    if args.is_dry_run() {
        return console.finish(&DryRun::of(&examine(&args.options()?, &console.bars())?));
    }
    tell_what_is_kept(&args.options()?.out);
    let ingested = Ingested::run(args, &console.bars())?;
    console.finish(&ingested.summary())
}

/// A signal ends the program at once, and says what is kept of the unfinished store.
fn tell_what_is_kept(out: &Path) {
    let partial = partial_folder(out);
    signals::ends_at_once(move || {
        let kept = partial.exists().then(|| kept_in(&partial))?;
        Some(format!("what is finished is kept in {kept}: rerun with --resume to continue"))
    });
}

/// A finished ingest.
struct Ingested {
    built: Built,
    readings: Vec<Reading>,
    schema: Schema,
    label_type: LabelType,
}

impl Ingested {
    fn run(args: &IngestArgs, progress: &dyn Progress) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let options = args.options()?;
        let summary = ingest(&options, progress)?;
        let mut built = Built::new(options.out.display().to_string(), begin.elapsed(), summary.edges_read);
        built.nodes = summary.nodes;
        built.edges = summary.edges;
        built.rejected = summary.rejected;
        built.bytes_on_disk = summary.bytes_on_disk;
        built.chunks = u64::from(summary.chunks);
        built.chunks_present = built.chunks;
        Ok(Self { built, readings: summary.readings, schema: summary.schema, label_type: options.node_data.label_type })
    }

    fn summary(&self) -> WithReadings<'_> {
        WithReadings {
            built: &self.built,
            inputs: self.readings.iter().map(Input::of).collect(),
            readings: &self.readings,
            feature_names: self.schema.feature_names(),
            class_names: &self.schema.classes,
            label_type: self.label_type,
        }
    }
}

/// The summary of a store, and how its input was read.
#[derive(Serialize)]
struct WithReadings<'a> {
    #[serde(flatten)]
    built: &'a Built,
    inputs: Vec<Input<'a>>,
    /// Empty if features have no names.
    feature_names: Vec<String>,
    /// Empty if classes, or targets, have no names.
    class_names: &'a [String],
    #[serde(skip)]
    label_type: LabelType,
    #[serde(skip)]
    readings: &'a [Reading],
}

impl Summary for WithReadings<'_> {
    fn text(&self) -> String {
        let readings = self.readings.iter().map(Reading::to_string);
        let are_named = !self.class_names.is_empty();
        let classes = are_named.then(|| {
            let what = match self.label_type {
                LabelType::Float => "targets",
                LabelType::Classes | LabelType::Partial => "classes",
            };
            format!("{what} 0 to {}: {}", self.class_names.len() - 1, first_names(self.class_names))
        });
        let lines = readings.chain(classes).chain([self.built.text()]);
        lines.collect::<Vec<_>>().join("\n")
    }
}
