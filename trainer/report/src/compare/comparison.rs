//! Runs on one page.

use std::path::Path;

use grappa_io::durable::Destination;
use grappa_run::{Result, journal::EpochRecord};

use super::{
    checks,
    run::{ComparedRun, color, shorten_names},
    tables,
};
use crate::{
    charts::loss_axis,
    html::{escape, page, section},
    plot::{Across, Kind, Plot},
    scale::Unit,
    series::{Sample, Series},
};

/// Runs on one page.
#[derive(Debug)]
pub struct Comparison {
    runs: Vec<ComparedRun>,
    warnings: Vec<String>,
}

/// The curve that has a value after each epoch. The others have one after an evaluation.
const TRAIN_LOSS: &str = "train-loss";

type EpochValue = Box<dyn Fn(&EpochRecord) -> Option<f64>>;

/// What the curves of runs show.
struct Curve {
    id: &'static str,
    title: String,
    axis: &'static str,
    unit: Unit,
    value: EpochValue,
}

impl Comparison {
    /// Reads the runs in `folders`, each as of its last checkpoint. Changes no file.
    ///
    /// # Errors
    /// If a folder has no run, a run has no checkpoint, a file cannot be read or is damaged, or the runs cannot be compared.
    pub fn read(folders: &[impl AsRef<Path>]) -> Result<Self> {
        checks::folders(folders)?;
        let mut runs = Vec::new();
        let mut warnings = Vec::new();
        for folder in folders {
            let (run, its) = ComparedRun::read(folder.as_ref())?;
            runs.push(run);
            warnings.extend(its);
        }
        checks::tasks(&runs)?;
        shorten_names(&mut runs);
        Ok(Self { runs, warnings })
    }

    /// Problems that the comparison survived, for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Writes the page.
    ///
    /// # Errors
    /// If the file exists and is not to be replaced, or cannot be written.
    pub fn write<'a>(&self, out: impl Into<Destination<'a>>) -> Result<()> {
        let file = out.into().begin()?;
        file.write_all(self.html().as_bytes())?;
        file.finish()?;
        Ok(())
    }

    /// The page.
    pub fn html(&self) -> String {
        let names: Vec<String> = self.runs.iter().map(|run| escape(&run.name)).collect();
        let mut main = String::new();
        let notes = checks::notes(&self.runs);
        if !notes.is_empty() {
            let items: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
            main += &section(
                "What differs",
                "Mind this when you compare scores.",
                &format!("<ul id=\"notes\">\n{items}</ul>\n"),
            );
        }
        main += &section(
            "Results",
            "Scores are from the best epoch, or from the last one without validation nodes. Start-up is the time before the first \
             epoch; total is all wall time.",
            &tables::results(&self.runs),
        );
        let plots = self.plots();
        let figures: String = plots.iter().filter(|plot| plot.has_values()).map(Plot::html).collect();
        main += &format!("<div class=\"plots pairs\">\n{figures}</div>\n<div class=\"tables\">\n");
        main += &section("Options that differ", "An arrow shows what auto became.", &tables::options(&self.runs));
        main += &section("Wall time by stage", "", &tables::stages(&self.runs));
        main += "</div>\n";
        let title = format!("Comparison of {} runs", self.runs.len());
        page(&title, &title, &names.join(" · "), &main)
    }

    fn plots(&self) -> Vec<Plot> {
        let mut plots = Vec::new();
        for curve in self.curves() {
            for (across, by) in [(Across::Epochs, "epoch"), (Across::Seconds, "time")] {
                plots.push(Plot {
                    id: format!("{}-by-{by}", curve.id),
                    title: format!("{} by {by}", curve.title),
                    across,
                    axis: curve.axis,
                    unit: curve.unit,
                    kind: Kind::Lines,
                    series: (1..).zip(&self.runs).map(|(number, run)| curve.series(number, run, across)).collect(),
                    resting: "each at its best epoch".to_owned(),
                    ..Plot::default()
                });
            }
        }
        plots
    }

    fn curves(&self) -> [Curve; 4] {
        let task = self.runs[0].state.task();
        let (score, unit) = (task.score_name(), Unit::for_task(task));
        let (loss, number) = (loss_axis(task), Unit::Number);
        let score_at = |split: usize| move |record: &EpochRecord| record.scores(task)[split];
        let curve =
            |id, title: &str, (axis, unit), value: EpochValue| Curve { id, title: title.to_owned(), axis, unit, value };
        [
            curve("val", &format!("Validation {score}"), (score, unit), Box::new(score_at(0))),
            curve("test", &format!("Test {score}"), (score, unit), Box::new(score_at(1))),
            curve(TRAIN_LOSS, "Training loss", (loss, number), Box::new(|record| Some(record.loss))),
            curve("val-loss", "Validation loss", (loss, number), Box::new(|record| record.val_loss)),
        ]
    }
}

impl Curve {
    /// The curve of the run with a number. Its color is the same on the whole page.
    fn series(&self, number: usize, run: &ComparedRun, across: Across) -> Series {
        let best = run.summary.best_epoch.unwrap_or(run.summary.epochs);
        let (mut seconds, mut samples, mut rest) = (0.0, Vec::new(), None);
        for record in &run.records {
            seconds += record.seconds;
            let x = match across {
                Across::Epochs => record.epoch as f64,
                Across::Seconds => seconds,
                _ => unreachable!("runs are compared by epoch and by time"),
            };
            if self.id == TRAIN_LOSS || record.evaluated.is_some() {
                let value = (self.value)(record).unwrap_or(f64::NAN);
                samples.push(Sample { x, value });
            }
            if record.epoch == best {
                rest = Some(x);
            }
        }
        Series { name: format!("{number} {}", run.name), color: color(number), samples, rest, ..Series::default() }
    }
}
