//! `grappa-ingest`: edge lists in, a compressed graph store out, under a memory budget.

mod args;
mod readings;

use std::{process::ExitCode, time::Instant};

use clap::Parser;
use grappa_console::{Built, Summary, first_names, signals};
use grappa_engine::ingest::{Reading, examine, ingest, kept_in, partial_folder};
use serde::Serialize;

use self::{
    args::IngestArgs,
    readings::{DryRun, Input},
};

fn main() -> ExitCode {
    grappa_console::run(|| {
        let args = IngestArgs::parse();
        let console = args.console.open();
        let begin = Instant::now();
        let options = args.options()?;
        if args.dry_run {
            let readings = examine(&options, &console.bars())?;
            return console.finish(&DryRun::of(&readings));
        }
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
