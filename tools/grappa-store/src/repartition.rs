//! `grappa-store repartition`: groups chunks into partitions.

use std::time::{Duration, Instant};

use grappa_console::{Console, Summary, printable};
use grappa_engine::{
    sample::partition::{PartitionReport, RepartitionOptions, repartition, report},
    store::Graph,
};
use serde::Serialize;

use crate::{args, partitions};

#[derive(Serialize)]
struct RepartitionSummary {
    generation: u64,
    schedule: String,
    partitions: u32,
    seed: u64,
    super_epoch: u64,
    seconds: f64,
    by_partition: Vec<PartitionReport>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::RepartitionArgs, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    // Only manifests, headers and the assignment are read, so the time does not depend on the number of edges.
    let graph = Graph::open(&options.store)?;
    let making = RepartitionOptions {
        partitions: options.partitions,
        schedule: options.schedule,
        seed: options.seed,
        super_epoch: options.super_epoch,
    };
    let made = repartition(&options.store, &graph, &making)?;
    let seconds = begin.elapsed().as_secs_f64();
    console.finish(&RepartitionSummary {
        generation: made.assignment.generation(),
        schedule: made.assignment.schedule().to_owned(),
        partitions: made.assignment.partitions(),
        seed: options.seed,
        super_epoch: made.super_epoch,
        seconds,
        by_partition: report(&graph, &made.assignment),
        store: options.store.display().to_string(),
    })
}

impl Summary for RepartitionSummary {
    fn text(&self) -> String {
        let s = if self.partitions == 1 { "" } else { "s" };
        format!(
            "{}: generation {}, {} partition{s} for super-epoch {} of `{}` with seed {}, in {:.1} ms\n{}",
            printable(&self.store),
            self.generation,
            self.partitions,
            self.super_epoch,
            self.schedule,
            self.seed,
            Duration::from_secs_f64(self.seconds).as_secs_f64() * 1e3,
            partitions::table(&self.by_partition)
        )
    }
}
