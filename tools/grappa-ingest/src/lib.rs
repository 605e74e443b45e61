//! The program `grappa-ingest`, as a library: the Python package calls it with its options.

mod args;
mod assign;
mod choices;
mod data;
mod graph;
mod kept;
mod readings;
mod type_args;

use std::{collections::HashMap, ffi::OsString, time::Instant};

use clap::{CommandFactory, Parser};
use grappa_console::{Built, Console, Summary, first_names};
use grappa_engine::{
    ingest::{LabelType, MemoryInput, Reading, examine, ingest},
    io::ledger::Ledger,
};
use serde::Serialize;

pub use self::data::DataPlace;
use self::{
    args::IngestArgs,
    data::Data,
    graph::{GraphLine, line_of_store},
    kept::tell_what_is_kept,
    readings::{DryRun, Input},
};

/// The program, with its command line. Returns the exit code.
pub fn main(line: impl IntoIterator<Item = OsString>) -> u8 {
    let line: Vec<OsString> = line.into_iter().collect();
    grappa_console::code_of(|| match Job::from_line(line)? {
        Job::Graph(mut graph) => {
            graph::run(&mut graph, Data::default(), None).map_err(|error| match error.downcast::<clap::Error>() {
                Ok(wrong_options) => wrong_options.exit(),
                Err(error) => error,
            })
        }
        Job::Store(line) => {
            let args = IngestArgs::parse_from(&line);
            run(&args, HashMap::new(), &args.console.open())
        }
    })
}

/// The options of the program.
pub fn command() -> clap::Command {
    IngestArgs::command()
}

/// The program as a function. `line` is its command line, with a name in front. `data`: the values of options that are data in memory.
/// In the line, any word stands for each of them.
///
/// # Errors
/// As the program; `clap::Error` if the options are wrong.
pub fn call(
    line: impl IntoIterator<Item = OsString>,
    data: HashMap<DataPlace, MemoryInput>,
    console: &Console,
) -> anyhow::Result<()> {
    let line: Vec<OsString> = line.into_iter().collect();
    match Job::from_line(line)? {
        Job::Graph(mut graph) => graph::run(&mut graph, Data(data), Some(console)),
        Job::Store(line) => run(&IngestArgs::try_parse_from(&line)?, data, console),
    }
}

/// What a command line builds.
enum Job {
    /// A graph with types.
    Graph(GraphLine),
    /// A store, with this command line.
    Store(Vec<OsString>),
}

impl Job {
    fn from_line(line: Vec<OsString>) -> anyhow::Result<Self> {
        let Some(mut graph) = GraphLine::from_line(&line)? else { return Ok(Self::Store(line)) };
        Ok(match line_of_store(&mut graph)? {
            Some(line) => Self::Store(line),
            None => Self::Graph(graph),
        })
    }
}

fn run(args: &IngestArgs, data: HashMap<DataPlace, MemoryInput>, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let options = args.options(Data(data))?;
    if args.is_dry_run() {
        return console.finish(&DryRun::new(&examine(&options, &console.bars())?));
    }
    tell_what_is_kept(&options.out);
    let summary = ingest(&options, &console.bars())?;
    let chunks = u64::from(summary.chunks);
    console.finish(&WithReadings {
        built: Built {
            nodes: summary.nodes,
            edges: summary.edges,
            rejected: summary.rejected,
            bytes_on_disk: summary.bytes_on_disk,
            chunks,
            chunks_present: chunks,
            ..Built::new(options.out.display().to_string(), begin.elapsed(), summary.edges_read)
        },
        inputs: summary.readings.iter().map(Input::from_reading).collect(),
        feature_names: summary.schema.feature_names(),
        class_names: &summary.schema.classes,
        memory: &summary.memory,
        label_type: options.nodes.data.label_type,
        readings: &summary.readings,
    })
}

/// The summary of a store, and how its input was read.
#[derive(Serialize)]
struct WithReadings<'a> {
    #[serde(flatten)]
    built: Built,
    inputs: Vec<Input<'a>>,
    /// Empty if features have no names.
    feature_names: Vec<String>,
    /// Empty if classes, or targets, have no names.
    class_names: &'a [String],
    /// The memory of each phase: who may take how much of `--memory`, and why.
    memory: &'a Ledger,
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
            let kind = match self.label_type {
                LabelType::Float => "targets",
                LabelType::Classes | LabelType::Partial => "classes",
            };
            format!("{kind} 0 to {}: {}", self.class_names.len() - 1, first_names(self.class_names))
        });
        let lines = readings.chain(classes).chain([self.built.text()]);
        lines.collect::<Vec<_>>().join("\n")
    }
}
