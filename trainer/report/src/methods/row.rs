//! The results of a method with a number of partitions.

use std::path::PathBuf;

use grappa_run::{Result, model::Task};

use super::costs::{BANDWIDTH, Costs};
use crate::{compare::ComparedRun, scale::Unit};

/// Points of a curve, at most.
const POINTS_MAX: usize = 120;

/// Colors of curves. Further curves are dashed.
const COLORS: usize = 12;

/// The runs of a method with a number of partitions.
#[derive(Debug, Clone)]
pub struct MethodRuns {
    /// The method and its options, as the user gave them.
    pub name: String,
    /// Number of partitions, and of machines.
    pub partitions: u32,
    /// A run for each seed.
    pub folders: Vec<PathBuf>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: String,
    /// Number of partitions.
    pub(super) machines: u32,
    pub(super) task: Task,
    /// CSS classes.
    pub(super) color: String,
    /// Number of seeds.
    pub(super) seeds: usize,
    /// Mean and standard deviation of the score over the seeds. None without a score.
    pub(super) score: Option<f64>,
    pub(super) deviation: Option<f64>,
    /// Means over the epochs and the seeds.
    pub(super) per_epoch: Costs,
    /// Until the best epoch: means over the seeds.
    pub(super) to_best: Costs,
    /// Mean over the seeds.
    pub(super) best_epoch: f64,
    /// Means over the seeds.
    pub(super) curve: Vec<Point>,
}

/// The score of the best model so far, after an evaluation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Point {
    pub(super) epoch: f64,
    pub(super) costs: Costs,
    pub(super) score: f64,
}

struct SeedResult {
    score: Option<f64>,
    per_epoch: Costs,
    best: Point,
    curve: Vec<Point>,
}

impl Row {
    pub(super) fn read(method: &MethodRuns, warnings: &mut Vec<String>) -> Result<Self> {
        let mut runs = Vec::new();
        for folder in &method.folders {
            let (run, its) = ComparedRun::read(folder)?;
            warnings.extend(its);
            runs.push(run);
        }
        let results: Vec<SeedResult> = runs.iter().map(|run| SeedResult::from_run(run, method.partitions)).collect();
        let scores: Vec<f64> = results.iter().filter_map(|result| result.score).collect();
        let share = 1.0 / results.len().max(1) as f64;
        let (mut per_epoch, mut to_best, mut best_epoch) = (Costs::default(), Costs::default(), 0.0);
        for result in &results {
            per_epoch += result.per_epoch.times(share);
            to_best += result.best.costs.times(share);
            best_epoch += result.best.epoch * share;
        }
        Ok(Self {
            name: method.name.clone(),
            machines: method.partitions,
            task: runs.first().map_or(Task::MultiClass, |run| run.state.task()),
            color: String::new(),
            seeds: results.len(),
            score: (!scores.is_empty()).then(|| mean(&scores)),
            deviation: (scores.len() > 1).then(|| deviation(&scores)),
            per_epoch,
            to_best,
            best_epoch,
            curve: mean_curve(&results),
        })
    }

    /// The costs in the order of all tables, as text and as numbers: bytes of gradients, activations and features and seconds per epoch,
    /// modelled seconds, the best epoch, and bytes and modelled seconds to it.
    pub(super) fn costs(&self) -> [(String, f64); 8] {
        let bytes = |bytes| (Unit::Bytes.format(bytes), bytes);
        let seconds = |seconds| (Unit::Seconds.format(seconds), seconds);
        let Costs { gradients, activations, features, seconds: of_epoch } = self.per_epoch;
        [
            bytes(gradients),
            bytes(activations),
            bytes(features),
            seconds(of_epoch),
            seconds(self.per_epoch.modelled_seconds(self.machines, BANDWIDTH)),
            (format!("{:.0}", self.best_epoch), self.best_epoch),
            bytes(self.to_best.bytes()),
            seconds(self.to_best.modelled_seconds(self.machines, BANDWIDTH)),
        ]
    }

    /// Its name with the number of partitions.
    pub(super) fn label(&self) -> String {
        format!("{} ({} partitions)", self.name, self.machines)
    }
}

impl SeedResult {
    fn from_run(run: &ComparedRun, machines: u32) -> Self {
        let task = run.state.task();
        let (mut costs, mut best) = (Costs::default(), None);
        let (mut curve, mut reached) = (Vec::new(), Point::default());
        for record in &run.records {
            costs += Costs::from_record(record, machines);
            if record.evaluated.is_none() {
                continue;
            }
            let [val, test] = record.scores(task);
            let is_better = match (best, val) {
                (Some(best), Some(val)) if task == Task::Regression => val < best,
                (Some(best), Some(val)) => val > best,
                // Without validation nodes, the last model counts.
                _ => true,
            };
            if is_better {
                best = val;
                reached = Point { epoch: record.epoch as f64, costs, score: test.unwrap_or(f64::NAN) };
            }
            curve.push(Point { epoch: record.epoch as f64, costs, score: reached.score });
        }
        Self {
            score: run.summary.score().test,
            per_epoch: costs.times(1.0 / run.records.len().max(1) as f64),
            best: reached,
            curve,
        }
    }
}

/// The mean of the curves of seeds, as long as the shortest.
fn mean_curve(results: &[SeedResult]) -> Vec<Point> {
    let points = results.iter().map(|result| result.curve.len()).min().unwrap_or(0);
    let share = 1.0 / results.len().max(1) as f64;
    let step = points.div_ceil(POINTS_MAX).max(1);
    // The first point, the last one, and points at equal distances.
    let kept = (0..points).filter(|at| (points - 1 - at).is_multiple_of(step) || *at == 0);
    kept.map(|at| {
        let mut sum = Point::default();
        for Point { epoch, costs, score } in results.iter().map(|result| result.curve[at]) {
            sum.epoch += epoch * share;
            sum.costs += costs.times(share);
            sum.score += score * share;
        }
        sum
    })
    .filter(|point| point.score.is_finite())
    .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn deviation(values: &[f64]) -> f64 {
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

/// Gives each method a color, the same for all numbers of partitions.
pub(super) fn set_colors(rows: &mut [Row]) {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let number = names.iter().position(|name| *name == row.name).unwrap_or_else(|| {
            names.push(row.name.clone());
            names.len() - 1
        });
        let dashed = if number < COLORS { "" } else { " dashed" };
        row.color = format!("run-{}{dashed}", number % COLORS + 1);
    }
}
