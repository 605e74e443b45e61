//! `grappa-store preaggregate`: the aggregates of the first hop, stored once.

use std::time::{Duration, Instant};

use grappa_console::{ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    Store,
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, Aggregated, preaggregate},
    store::aggregates::partial_folder,
};
use serde::Serialize;

use crate::args;

#[derive(Serialize)]
struct AggregatesSummary {
    kind: &'static str,
    #[serde(flatten)]
    made: Aggregated,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::PreaggregateArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let store = Store::open(&options.store)?;
    let aggregate = AggregateOptions {
        dtype: options.dtype,
        with_features: options.with_features,
        replace: options.replace,
        ..AggregateOptions::new(options.kind, Budget::new(options.memory.0, options.threads.get()?))
    };
    let partial = partial_folder(&store, options.kind);
    signals::leaves_folder(partial, "rerun the command to continue");
    let made = preaggregate(&store, &aggregate, &console.bars())?;
    console.finish(&AggregatesSummary {
        kind: options.kind.name(),
        made,
        seconds: begin.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
        store: options.store.display().to_string(),
    })
}

impl Summary for AggregatesSummary {
    fn text(&self) -> String {
        let note = match self.made.chunks_kept {
            0 => String::new(),
            chunks => format!(", {chunks} chunks of an earlier run kept"),
        };
        format!(
            "{}: {} of the in-neighbors of {} nodes, {} on disk; {}{note}",
            printable(&self.store),
            self.kind,
            count(self.made.nodes),
            ByteSize(self.made.bytes),
            duration(Duration::from_secs_f64(self.seconds))
        )
    }
}
