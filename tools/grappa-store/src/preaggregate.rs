//! `grappa-store preaggregate`: the aggregates of the first hop, stored once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use grappa_console::{ByteSize, Console, Summary, count, duration, peak_rss_bytes, printable, signals};
use grappa_engine::{
    Graph,
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, Aggregated, preaggregate},
    io::ledger::Ledger,
    store::{
        aggregates::{folder, partial_folder},
        no_features,
    },
};
use serde::Serialize;

use crate::{args, members};

#[derive(Serialize)]
struct AggregatesSummary {
    kind: &'static str,
    #[serde(flatten)]
    made: Aggregated,
    /// Of a graph with types, the relations that were aggregated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    relations: Vec<String>,
    seconds: f64,
    peak_rss_bytes: Option<u64>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::PreaggregateArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    let graph = Graph::open(&options.store)?;
    let aggregate = AggregateOptions {
        dtype: options.dtype,
        with_features: options.with_features,
        replace: options.replace,
        ..AggregateOptions::new(options.kind, Budget::new(options.memory.0, options.threads.get()?))
    };
    let relations = relations(&graph, options)?;
    let mut made = Aggregated { nodes: 0, bytes: 0, chunks_kept: 0, memory: Ledger::new(options.memory.0) };
    for &number in &relations {
        let relation = graph.relation(number);
        signals::leaves_folder(partial_folder(relation.edges, options.kind), "rerun the command to continue");
        let of_relation = preaggregate(relation, &aggregate, &console.bars())?;
        made.nodes += of_relation.nodes;
        made.bytes += of_relation.bytes;
        made.chunks_kept += of_relation.chunks_kept;
        // Relations come one after the other, each with all of the memory.
        made.memory = of_relation.memory;
    }
    let names = relations.iter().map(|&number| graph.manifest().relation_name(number));
    console.finish(&AggregatesSummary {
        kind: options.kind.name(),
        made,
        relations: names.filter(|_| graph.has_types()).collect(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_rss_bytes: peak_rss_bytes(),
        store: options.store.display().to_string(),
    })
}

/// The relations to aggregate: the one with the name, or all whose sources have features. Those of an earlier run that was killed between two
/// relations are kept.
fn relations(graph: &Graph, options: &args::PreaggregateArgs) -> anyhow::Result<Vec<usize>> {
    if let Some(name) = &options.relation {
        return Ok(vec![members::relation(graph, name)?]);
    }
    let all: Vec<usize> = graph.relations_with_features().collect();
    let Some(&first) = all.first() else {
        ensure!(
            !graph.has_types(),
            "{}: no node type that edges come from has features; ingest the graph with features",
            graph.path().display()
        );
        return Err(no_features(graph.path()).into());
    };
    let is_made = |number: &usize| folder(graph.relation(*number).edges, options.kind).exists();
    let missing: Vec<usize> = all.iter().copied().filter(|number| !is_made(number)).collect();
    Ok(match missing.is_empty() {
        _ if options.replace => all,
        // The error names its folder.
        true => vec![first],
        false => missing,
    })
}

impl Summary for AggregatesSummary {
    fn text(&self) -> String {
        let note = match self.made.chunks_kept {
            0 => String::new(),
            chunks => format!(", {chunks} chunks of an earlier run kept"),
        };
        format!(
            "{}: {} of the in-neighbors of {} nodes{}, {} on disk; {}{note}",
            printable(&self.store),
            self.kind,
            count(self.made.nodes),
            match self.relations.len() {
                0 => String::new(),
                1 => " by 1 relation".to_owned(),
                relations => format!(" by {relations} relations"),
            },
            ByteSize(self.made.bytes),
            duration(Duration::from_secs_f64(self.seconds))
        )
    }
}
