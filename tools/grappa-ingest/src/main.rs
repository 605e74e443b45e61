//! `grappa-ingest`: edge lists in, a compressed graph store out, under a memory budget.

mod args;

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use grappa_build::ingest::ingest;
use grappa_console::{Built, Summary, first_names, signals};
use grappa_input::{Reading, Separator};
use grappa_storage::writer::{kept_in, partial_folder};
use serde::Serialize;

use self::args::Args;

fn main() -> ExitCode {
    grappa_console::run(|| {
        let args = Args::parse();
        let console = args.console.open();
        let begin = Instant::now();
        let options = args.options()?;
        let partial = partial_folder(&options.out);
        signals::ends_at_once(move || {
            let kept = partial.exists().then(|| kept_in(&partial))?;
            Some(format!(
                "what is finished is kept in {kept}: rerun with --resume to continue"
            ))
        });
        let summary = ingest(&options, &console.bars())?;
        let mut built = Built::new(options.out.display().to_string(), begin.elapsed(), summary.edges_read);
        built.nodes = summary.nodes;
        built.edges = summary.edges;
        built.rejected = summary.rejected;
        built.bytes_on_disk = summary.bytes_on_disk;
        built.chunks = u64::from(summary.chunks);
        built.chunks_present = built.chunks;
        console.finish(&WithReadings {
            built,
            inputs: summary.readings.iter().map(Input::of).collect(),
            readings: &summary.readings,
            feature_names: summary.schema.feature_names(),
            class_names: &summary.schema.classes,
        })
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
    /// Empty if classes have no names.
    class_names: &'a [String],
    #[serde(skip)]
    readings: &'a [Reading],
}

impl Summary for WithReadings<'_> {
    fn text(&self) -> String {
        let readings = self.readings.iter().map(Reading::to_string);
        let are_named = !self.class_names.is_empty();
        let classes = are_named.then(|| {
            format!(
                "classes 0 to {}: {}",
                self.class_names.len() - 1,
                first_names(self.class_names)
            )
        });
        let lines = readings.chain(classes).chain([self.built.text()]);
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// How a file was read. Field names are the keys of the JSON object.
#[derive(Serialize)]
struct Input<'a> {
    file: String,
    more_files: usize,
    what: &'a str,
    format: &'a str,
    separator: Option<&'a str>,
    header: bool,
    comments: u64,
    columns: Vec<Role<'a>>,
    left_out: &'a [String],
    /// Whether row k is that of the node with the k-th smallest id; null for edges.
    by_position: Option<bool>,
}

/// What a column has.
#[derive(Serialize)]
struct Role<'a> {
    role: &'a str,
    column: &'a str,
}

impl<'a> Input<'a> {
    fn of(reading: &'a Reading) -> Self {
        Self {
            file: reading.file.display().to_string(),
            more_files: reading.more_files,
            what: reading.what,
            format: reading.format,
            separator: reading.separator.map(Separator::word),
            header: reading.header,
            comments: reading.comments,
            columns: reading
                .columns
                .iter()
                .map(|(role, column)| Role { role, column })
                .collect(),
            left_out: &reading.left_out,
            by_position: reading.by_position,
        }
    }
}
