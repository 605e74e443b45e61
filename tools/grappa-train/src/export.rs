//! `grappa-train export RUN`: the model of a run for other programs.

use anyhow::bail;
use grappa_console::{ByteSize, Console, Summary, count, printable, signals};
use grappa_engine::io::durable::Destination;
use grappa_run::{config::DeviceChoice, folder::config_of};
use grappa_trainer::{
    export::{Exported, export},
    runtime,
    train::trained_model::Trained,
};
use serde::Serialize;

use crate::args;

#[derive(Serialize)]
struct ExportSummary {
    path: String,
    #[serde(flatten)]
    exported: Exported,
    /// Epochs that were finished when the parameters were these.
    epoch: u64,
}

pub fn run(options: &args::ExportArgs, console: &Console) -> anyhow::Result<()> {
    if options.out.extension().is_none_or(|extension| extension != "safetensors") {
        bail!(
            "{}: the file is written in the safetensors format: give it a name that ends in .safetensors",
            options.out.display()
        );
    }
    if config_of(&options.run)?.layers == 0 {
        bail!(
            "{}: the run learned rows of entities, which are no model of layers: write them with `grappa-train predict RUN STORE --embeddings --out rows.parquet`",
            options.run.display()
        );
    }
    let trained = Trained::open(&options.run, runtime::device(DeviceChoice::Cpu)?)?;
    trained.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    signals::stops_by_itself("finishing the file, which takes a moment");
    let exported = export(&trained, Destination { path: &options.out, replaces: options.force })?;
    console.finish(&ExportSummary { path: options.out.display().to_string(), exported, epoch: trained.state().epoch })
}

impl Summary for ExportSummary {
    fn text(&self) -> String {
        format!(
            "{}: {} parameters in {} tensors, {}, as after epoch {}",
            printable(&self.path),
            count(self.exported.parameters as u64),
            self.exported.tensors,
            ByteSize(self.exported.bytes),
            self.epoch
        )
    }
}
