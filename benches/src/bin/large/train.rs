//! Runs of training.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use grappa_benches::{
    child::{Measured, number},
    disk_use::DiskUse,
    folder, training,
};
use grappa_formats::aggregates::AggregateKind;
use grappa_storage::{Store, aggregates::Aggregates};
use serde_json::Value;

use crate::{
    numbers::{Line, Numbers, Section},
    options::Row,
    plan::Plan,
    stand::Stand,
};

/// Seeds of a step.
const SEEDS: u64 = 1024;
/// Steps before an exact evaluation.
const STEPS_OF_EXACT: u64 = 4;

struct Training {
    layers: &'static str,
    first_hop: Option<&'static str>,
    epochs: u64,
    /// Steps of an epoch; none takes all training nodes.
    steps: Option<u64>,
    /// Value of --evaluate; none is the default.
    evaluate: Option<&'static str>,
}

struct Trained {
    run: (Measured, DiskUse),
    summary: Value,
    /// The lines of `metrics.jsonl`.
    epochs: Vec<Value>,
    /// Whether it began with making the aggregates of the first hop.
    has_made_aggregates: bool,
}

impl Stand<'_> {
    fn training(&self, row: Row) -> Training {
        let exact =
            Training { layers: "3", first_hop: None, epochs: 1, steps: Some(STEPS_OF_EXACT), evaluate: Some("exact") };
        match row {
            Row::Default => Training { epochs: 3, steps: None, evaluate: None, ..exact },
            Row::Exact => exact,
            Row::ExactSampledFirstHop => Training { first_hop: Some("sampled"), ..exact },
            Row::Sample => unreachable!("it has no model"),
            Row::Procedural | Row::Slice => {
                Training { layers: "2", steps: Some(self.args.steps), evaluate: Some("sampled"), ..exact }
            }
        }
    }

    /// Options of the plan that training has too.
    pub fn planned_training(&self, row: Row) -> Vec<String> {
        let training = self.training(row);
        let mut options = vec![format!("--layers={}", training.layers)];
        options.extend(training.first_hop.map(|first_hop| format!("--first-hop={first_hop}")));
        options
    }

    /// Trains, and compares the stages with their plan. A slice is compared with the seconds per step of the whole graph, if these are
    /// known.
    pub fn train(&self, row: Row, seconds_per_step: &mut Option<f64>) -> Result<Section> {
        let training = self.training(row);
        // Training may add aggregates to the store.
        let plan = self.plan_of_store(row, &training)?;
        let trained = self.run_training(row, &training)?;
        let mut section = Section::new(&row.to_string());
        section.lines = trained.lines(&plan, &training)?;
        let steps = trained.steps()?;
        let per_step = trained.training_seconds()? / steps;
        let mut note = format!(
            "{steps} steps in {} partitions, {} per step ({} and {} planned); {:.2} ms a step, {:.1} K edges ({:.1} planned).",
            trained.summary["partitions"],
            trained.summary["concurrent"],
            plan.number("train/partitions")?,
            plan.number("train/concurrent")?,
            per_step * 1e3,
            trained.sum("sampled_edges")? / steps / 1e3,
            plan.number("train/step_edges")? / 1e3,
        );
        if let Some(accuracy) = trained.summary["test_accuracy"].as_f64() {
            note += &format!(" Test accuracy {:.1} %.", accuracy * 100.0);
        }
        match row {
            Row::Procedural => *seconds_per_step = Some(per_step),
            Row::Slice => {
                if let Some(whole) = *seconds_per_step {
                    note += &format!(" A step takes {:.2} times as long as in the row `procedural`.", per_step / whole);
                }
            }
            _ => {}
        }
        section.notes.push(note);
        Ok(section)
    }

    fn run_training(&self, row: Row, training: &Training) -> Result<Trained> {
        let out = self.args.files.work.join("large-run");
        folder::remove(&out)?;
        let had_aggregates = has_aggregates(&self.store())?;
        let mut command = self.program("grappa-train");
        command.arg(self.store()).arg("--out").arg(&out);
        command.args(["--json", "--quiet"]).args(self.planned_training(row));
        command.arg(self.memory_option());
        command.args(["--epochs", &training.epochs.to_string()]);
        if let Some(steps) = training.steps {
            command.args(["--steps-per-epoch", &steps.to_string()]);
        }
        if let Some(evaluate) = training.evaluate {
            command.args(["--evaluate", evaluate]);
        }
        let run = self.run_cold(command)?;
        let epochs = training::epochs_of(&out)?;
        ensure!(
            epochs.len() as u64 == training.epochs,
            "expected {} epochs in {}, found {}",
            training.epochs,
            out.display(),
            epochs.len()
        );
        folder::remove(&out)?;
        Ok(Trained {
            summary: run.0.json()?,
            run,
            epochs,
            has_made_aggregates: !had_aggregates && has_aggregates(&self.store())?,
        })
    }

    /// The plan of training on the store, for an epoch of at least as many steps as the run's.
    ///
    /// An epoch of some steps visits all groups of partitions, so it is planned as one with fewer training nodes. One of fewer steps than
    /// groups is planned as a part of a full epoch.
    fn plan_of_store(&self, row: Row, training: &Training) -> Result<Plan> {
        let mut options = vec![self.store().display().to_string(), "--train".to_owned(), self.memory_option()];
        options.extend(self.planned_training(row));
        let full = self.plan(&options)?;
        let groups = full.number("train/partitions")? / full.number("train/concurrent")?;
        let Some(steps) = training.steps.filter(|&steps| steps as f64 >= groups) else { return Ok(full) };
        let store = Store::open(&self.store())?;
        let mut splits = store.manifest().splits.iter();
        let train = splits.find(|split| split.name == "train").context("the store has no split `train`")?;
        let seeds = train.nodes.min(steps * SEEDS);
        options.push(format!("--train-fraction={}", seeds as f64 / store.present_nodes() as f64));
        self.plan(&options)
    }
}

impl Trained {
    /// The stages, and the run as a whole.
    fn lines(&self, plan: &Plan, training: &Training) -> Result<Vec<Line>> {
        let epochs = training.epochs as f64;
        let mut stages = Vec::new();
        stages.push(Line::planned("opening", self.stage("open")? + self.stage("load")?, plan.stage("opening")?));
        if self.has_made_aggregates {
            stages.push(Line::planned("pre-aggregation", self.stage("preaggregate")?, plan.stage("preaggregation")?));
        }
        let planned_steps = plan.number("train/steps")?;
        let steps = self.steps()?;
        stages.push(Line::planned(
            &format!("{steps} steps"),
            self.training_seconds()? - self.stage("load")?,
            plan.stage("epoch")? * (steps / planned_steps),
        ));
        let history = plan.stage("history")? * epochs;
        // Finding that there is nothing to do takes a moment.
        if self.stage("history")? > 0.01 || history.seconds > Some(0.0) {
            stages.push(Line::planned("halo nodes", self.stage("history")?, history));
        }
        let mut evaluated = 0.0;
        for (how, first, later) in [
            ("sampled", "first_sampled_evaluation", "sampled_evaluation"),
            ("exact", "exact_evaluation", "exact_evaluation"),
        ] {
            let of_kind: Vec<&Value> = self.epochs.iter().filter(|epoch| epoch["evaluated"] == how).collect();
            for (index, epoch) in of_kind.iter().enumerate() {
                let seconds = number(epoch, "seconds_by_stage/evaluate")?;
                evaluated += seconds;
                stages.push(Line::planned(
                    &format!("{how} evaluation {}", index + 1),
                    seconds,
                    plan.stage(if index == 0 { first } else { later })?,
                ));
            }
        }
        ensure!(evaluated > 0.0, "no epoch was evaluated: {}", self.summary);
        let is_scored_at_end =
            training.evaluate.is_none() && self.epochs.iter().all(|epoch| epoch["evaluated"] == "sampled");
        if is_scored_at_end {
            let seconds = self.stage("evaluate")? - evaluated;
            stages.push(Line::planned("exact evaluation of the best model", seconds, plan.stage("exact_evaluation")?));
        }
        let is_exact = is_scored_at_end || self.epochs.iter().any(|epoch| epoch["evaluated"] == "exact");
        let planned = Numbers {
            memory: Some(plan.number(if is_exact { "train/memory/total" } else { "train/memory/training" })?),
            scratch: is_exact.then(|| plan.number("train/disk/scratch")).transpose()?,
            ..stages.iter().fold(Numbers::default(), |sum, stage| sum + stage.planned)
        };
        stages.push(Line::program("**whole run**", &self.run, planned));
        Ok(stages)
    }

    /// Seconds of a stage of the whole run.
    fn stage(&self, name: &str) -> Result<f64> {
        number(&self.summary, &format!("seconds_by_stage/{name}"))
    }

    /// Seconds of training, without evaluation and files.
    fn training_seconds(&self) -> Result<f64> {
        let stages = ["load", "sample", "read", "assemble", "forward", "backward", "exchange"];
        stages.iter().map(|stage| self.stage(stage)).sum()
    }

    fn steps(&self) -> Result<f64> {
        number(self.epochs.last().expect("there are epochs"), "step")
    }

    /// The sum of a number over all epochs.
    fn sum(&self, key: &str) -> Result<f64> {
        self.epochs.iter().map(|epoch| number(epoch, key)).sum()
    }
}

fn has_aggregates(store: &Path) -> Result<bool> {
    Ok(Aggregates::open(&Store::open(store)?, AggregateKind::Mean)?.is_some())
}
