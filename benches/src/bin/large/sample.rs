//! Minibatches without a model.

use std::fs;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    numbers::{Line, Numbers, Section},
    plan::Plan,
    stand::Stand,
};

const PARTITIONS: u64 = 16;
const BATCH: u64 = 1024;
const FANOUTS: &str = "10,10";

impl Stand<'_> {
    /// Samples from all partitions in turn.
    pub fn sample(&self) -> Result<Section> {
        let batches = self.args.batches;
        let mut command = self.program("grappa-store");
        command.args(["--json", "--quiet", "sample"]).arg(self.store());
        command.args(["--seeds", "all", "--no-features", "--fanouts", FANOUTS]);
        command.args(["--batch", &BATCH.to_string(), "--batches", &batches.to_string()]);
        command.args(["--partitions", &PARTITIONS.to_string(), "--concurrent", "1"]);
        command.arg(self.memory_option());
        let run = self.run_cold(command)?;
        let measured = &run.0;

        let plan = self.plan_sampling()?;
        let opening = plan.stage("opening")?;
        // More batches than an epoch has are several epochs.
        let sampling = plan.stage("epoch")? * (batches as f64 / plan.number("train/steps")?);
        let memory = plan.number("train/memory/adjacency")?;
        let mut section = Section::new("sample");
        section.lines = vec![
            Line::planned("opening", measured.number("seconds_to_open")?, opening),
            Line::planned(&format!("{batches} minibatches"), measured.number("seconds")?, sampling),
            Line::program("**whole run**", &run, Numbers { memory: Some(memory), ..opening + sampling }),
        ];
        section.notes.push(format!(
            "{:.1} minibatches/s while sampling, {:.1} M edges/s, lists {}.",
            measured.number("batches_per_second")?,
            measured.number("sampled_edges_per_second")? / 1e6,
            measured.json()?["view"].as_str().unwrap_or_default()
        ));
        Ok(section)
    }

    /// The plan of an epoch of training without a model.
    fn plan_sampling(&self) -> Result<Plan> {
        let nodes = 1u64 << self.graph.scale(self.args);
        let seeds = (self.args.batches * BATCH).min(nodes);
        let rates = self.args.files.work.join("large.rates.json");
        let no_model = json!({"train": {
            "gather_byte_ns": 0.0, "aggregate_byte_ns": 0.0, "product_flops": 1e30, "step_seconds": 0.0
        }});
        fs::write(&rates, no_model.to_string()).with_context(|| format!("cannot write {}", rates.display()))?;
        let mut options = self.graph.planned(self.args);
        options.extend([
            "--train".to_owned(),
            // Features would be computed, and take no time.
            "--dim=1".to_owned(),
            "--computed-features".to_owned(),
            "--layers=2".to_owned(),
            format!("--fanouts={FANOUTS}"),
            format!("--partitions={PARTITIONS}"),
            "--concurrent=1".to_owned(),
            "--halo=stop".to_owned(),
            format!("--batch={BATCH}"),
            format!("--train-fraction={}", seeds as f64 / nodes as f64),
            format!("--rates={}", rates.display()),
            self.memory_option(),
        ]);
        let plan = self.plan(&options);
        fs::remove_file(&rates).with_context(|| format!("cannot remove {}", rates.display()))?;
        plan
    }
}
