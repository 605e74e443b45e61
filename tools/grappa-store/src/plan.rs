//! `grappa-store plan`: estimates size and time of a store before it is built, and of training before it begins.

mod speed;
mod training;

use std::time::Duration;

use grappa_console::{ByteSize, Console, Summary, duration, free_memory_bytes};
use grappa_engine::{
    Store,
    plan::{
        Degrees, Plan, PlanOptions, PlannedTime, Rates, plan,
        train::{TrainPlan, plan_training},
    },
};
use serde::Serialize;

use self::speed::Speed;
use crate::{
    args,
    table::{Table, exact, parts_of},
};

#[derive(Serialize)]
struct Planned {
    #[serde(flatten)]
    plan: Plan,
    disk_bandwidth: u64,
    free_memory: u64,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    train: Option<TrainPlan>,
}

/// The estimate of training on a store.
#[derive(Serialize)]
struct PlannedTraining {
    train: TrainPlan,
    disk_bandwidth: u64,
    threads: usize,
    rates: Rates,
}

pub fn run(options: &args::PlanArgs, console: &Console) -> anyhow::Result<()> {
    let speed = Speed::from_options(options, console)?;
    let Speed { rates, disk_bandwidth, threads } = speed;
    if let Some(store) = &options.store {
        let store = Store::open(store)?;
        let train = plan_training(&training::of_store(options, &store, &speed)?)?;
        return console.answer(&PlannedTraining { train, disk_bandwidth, threads, rates });
    }
    let (Some(nodes), Some(edges)) = (options.graph.nodes, options.graph.edges) else {
        unreachable!("clap requires them without a store");
    };
    let free_memory = options.estimate.free_memory.map(|size| size.0).or_else(free_memory_bytes).unwrap_or(0);
    let plan = plan(&PlanOptions {
        nodes,
        edges,
        degrees: options.graph.degrees,
        features: options
            .graph
            .dim
            .filter(|_| !options.training.computed_features)
            .map(|dim| (dim, options.graph.dtype)),
        classes: options.graph.classes,
        split: options.graph.split,
        weighted: options.graph.weighted,
        edge_features: options.graph.edge_dim.map(|dim| (dim, options.graph.edge_dtype)),
        held_out_parts: options.graph.edge_split.map_or(0, |shares| {
            let [_, held_out @ ..] = shares.fractions();
            held_out.into_iter().filter(|&share| share > 0.0).count() as u64
        }),
        chunks: options.graph.chunks,
        memory: options.estimate.memory.0,
        disk_bandwidth: disk_bandwidth as f64,
        free_memory,
        threads,
        rates,
    })?;
    let train = match options.training.train {
        true => Some(plan_training(&training::of_plan(options, &plan, &speed)?)?),
        false => None,
    };
    console.answer(&Planned { plan, disk_bandwidth, free_memory, threads, train })
}

impl Summary for PlannedTraining {
    fn text(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        format!(
            "{}\n\nassumptions: GraphSAGE with means; a disk with {}/s; {} {threads}",
            training::text(&self.train),
            ByteSize(self.disk_bandwidth),
            self.threads
        )
    }
}

impl Summary for Planned {
    fn text(&self) -> String {
        let plan = &self.plan;
        let mut table = Table::default();
        table.row("nodes", exact(plan.nodes));
        table.row("edges", exact(plan.edges));
        table.row("chunks", plan.chunks.to_string());
        if let Some(bits) = plan.bits_per_edge {
            table.row("bits per edge", format!("{bits:.2}"));
        }
        let scratch = format!("up to {} during the ingest", ByteSize(plan.spill.peak));
        table.row("scratch files", scratch);
        table.row("ingest", time(&plan.ingest));
        table.row("super-epoch", time(&plan.super_epoch));
        let bytes = &plan.bytes;
        let parts = parts_of(&[
            ("edges", bytes.edges),
            ("degrees", bytes.degrees),
            ("weights", bytes.weights),
            ("edge features", bytes.edge_features),
            ("features", bytes.features),
            ("labels", bytes.labels),
            ("splits", bytes.splits),
            ("other", bytes.other),
            ("total", bytes.total),
        ]);
        let degrees = match plan.degrees {
            Degrees::Rmat => "in-degrees as skewed as in R-MAT (--degrees even: up to a third larger rows)",
            Degrees::Even => "in-degrees as even as in a uniformly random graph",
        };
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let train =
            self.train.as_ref().map_or_else(String::new, |train| format!("\n\ntraining\n{}", training::text(train)));
        format!(
            "{}\n\non disk\n{parts}{train}\n\nassumptions: {degrees}; nodes in random order; a disk with {}/s; {} {threads}; {} of free \
             memory as page cache for scratch files; an uncached input, .npy with 64-bit ids or text of that size",
            table.text(),
            ByteSize(self.disk_bandwidth),
            self.threads,
            ByteSize(self.free_memory)
        )
    }
}

fn time(time: &PlannedTime) -> String {
    let [all, disk, processors] =
        [time.seconds, time.disk_seconds, time.processor_seconds].map(|s| duration(Duration::from_secs_f64(s)));
    format!("{all} (disk {disk}, processors {processors})")
}
