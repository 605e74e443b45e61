//! `grappa-store plan`: estimates size and time of a store before it is built.

use std::time::Duration;

use anyhow::Context;
use grappa_console::{ByteSize, Console, Summary, duration, free_memory_bytes};
use grappa_engine::plan::{Degrees, Plan, PlanOptions, PlannedTime, Rates, plan};
use grappa_io::regular;
use serde::Serialize;

use crate::{
    args,
    table::{Table, exact, parts_of},
};

/// Size limit of the file of rates, which has a few numbers.
const RATES_BYTES_MAX: u64 = 1 << 20;

#[derive(Serialize)]
struct Planned {
    #[serde(flatten)]
    plan: Plan,
    disk_bandwidth: u64,
    free_memory: u64,
    threads: usize,
}

pub fn run(options: &args::Plan, console: &Console) -> anyhow::Result<()> {
    let rates = match &options.rates {
        Some(path) => {
            let text = regular::read_text(path, RATES_BYTES_MAX)?;
            serde_json::from_str(&text).with_context(|| format!("{} is not a JSON object of rates", path.display()))?
        }
        None => Rates::default(),
    };
    let threads = options.threads.get()?;
    let free_memory = options
        .free_memory
        .map(|size| size.0)
        .or_else(free_memory_bytes)
        .unwrap_or(0);
    let plan = plan(&PlanOptions {
        nodes: options.nodes,
        edges: options.edges,
        degrees: match options.degrees {
            args::Degrees::Rmat => Degrees::Rmat,
            args::Degrees::Even => Degrees::Even,
        },
        features: options.dim.map(|dim| (dim, options.dtype.into())),
        classes: options.classes,
        split: options.split,
        weighted: options.weighted,
        chunks: options.chunks,
        memory: options.memory.0,
        disk_bandwidth: options.disk_bandwidth.0 as f64,
        free_memory,
        threads,
        rates,
    })?;
    console.answer(&Planned {
        plan,
        disk_bandwidth: options.disk_bandwidth.0,
        free_memory,
        threads,
    })
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
        format!(
            "{}\n\non disk\n{parts}\n\nassumptions: {degrees}; nodes in random order; a disk with {}/s; {} {threads}; {} of free \
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
