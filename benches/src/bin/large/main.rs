//! Graphs that exceed the memory, from the start of a program to its summary, cold: time of each stage, disk traffic, peak memory and
//! scratch files, next to the plan of `grappa-store plan` for the same options.
//!
//! Stores take tens of gigabytes, so each is removed before the next one is made.

mod graph;
mod making;
mod numbers;
mod options;
mod plan;
mod sample;
mod stand;
mod train;

use std::process::ExitCode;

use anyhow::{Context, Result};
use grappa_benches::{
    bench::{self, Bench, Files},
    folder, machine, programs,
    record::Record,
};

use self::{
    graph::Graph,
    numbers::Section,
    options::{Args, Row},
    stand::Stand,
};

fn main() -> ExitCode {
    bench::main::<Args>()
}

impl Bench for Args {
    const TITLE: &'static str = "Billions of edges";
    const QUESTION: &'static str = "How long does each stage take on a graph that exceeds the memory, from the start of the program and with a \
        cold cache, what does it read, write and hold, and what does `grappa-store plan` say for the same options? Cells are measured / planned \
        (planned divided by measured). One run each.";

    fn files(&self) -> &Files {
        &self.files
    }

    fn measure(&self, record: &mut Record) -> Result<()> {
        let programs = programs::build(&["grappa-gen", "grappa-store", "grappa-train"])?;
        let load = machine::load()?;
        let mut seconds_per_step = None;
        for graph in Graph::ALL {
            let rows: Vec<Row> = self.rows.iter().copied().filter(|&row| graph.has(row)).collect();
            if rows.is_empty() {
                continue;
            }
            let stand = Stand::new(self, graph, &programs)?;
            record.add(stand.described());
            for section in measure_rows(&stand, &rows, &mut seconds_per_step)? {
                record.add(section.table(&stand.disk));
                section.notes.iter().for_each(|note| record.add(note));
            }
        }
        record.add(format_args!(
            "Bytes are those that the kernel counts for a program; they are not known for each stage, which `-` stands for. Floors are these bytes \
             at the disk's bandwidth, which was measured before each graph. Load {load} before and {} after.",
            machine::load()?
        ));
        Ok(())
    }
}

/// Makes the store, measures the rows, and removes the store.
fn measure_rows(stand: &Stand<'_>, rows: &[Row], seconds_per_step: &mut Option<f64>) -> Result<Vec<Section>> {
    stand.check_space(rows)?;
    folder::remove(&stand.store())?;
    let mut sections = vec![stand.make()?];
    for &row in rows {
        eprintln!("{row}: {}", stand.name());
        let section = match row {
            Row::Sample => stand.sample(),
            _ => stand.train(row, seconds_per_step),
        };
        sections.push(section.with_context(|| format!("measuring {row}"))?);
    }
    folder::remove(&stand.store())?;
    Ok(sections)
}
