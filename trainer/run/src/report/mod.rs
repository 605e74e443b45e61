//! The report of a run: one self-contained HTML page.
//!
//! Plots are SVG that stretches with the page. Their labels are HTML, so text has the same size on a phone and on a wide screen. A
//! small script shows the values of the epoch under the pointer; the page is complete without it. The page has a few hundred
//! kilobytes for any number of epochs.

mod html;
mod plot;
mod scale;
mod series;
mod tables;
#[cfg(test)]
mod tests;

use std::time::Duration;

use grappa_io::size::{ByteSize, count, duration};

use self::{
    html::escape,
    plot::{Kind, Plot},
    scale::Unit,
    series::Series,
    tables::Classes,
};
use super::{facts::RunFacts, journal::EpochRecord, model::Task, scores::ScoreReport, stages::Stage, summary::Summary};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Only the page of a run that is not finished has this.
const RUNNING: &str = "<strong>running</strong>";

/// Whether a page is that of a finished run.
pub(crate) fn is_finished(html: &[u8]) -> bool {
    html.ends_with(b"</html>\n") && !html.windows(RUNNING.len()).any(|part| part == RUNNING.as_bytes())
}

/// The contents of a report.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// Name of the store.
    pub name: &'a str,
    /// The epochs so far.
    pub records: &'a [EpochRecord],
    /// The result so far, and the configuration.
    pub summary: &'a Summary,
    /// Scores on the test nodes, or on the validation nodes if there are no test nodes, at the best epoch. None before the first
    /// evaluation.
    pub scores: Option<&'a ScoreReport>,
    /// The split of these scores: `test` or `val`.
    pub scored: &'a str,
    /// Names of classes. Classes without a name are shown by number.
    pub classes: &'a [String],
    /// Facts about the store, the process and the options.
    pub facts: &'a RunFacts,
    /// Whether the run is finished.
    pub is_finished: bool,
}

impl Report<'_> {
    /// The page.
    pub fn html(&self) -> String {
        let name = escape(self.name);
        let config = &self.summary.config;
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{name}: {model}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{name}</h1>\n\
             <p>{layers}-layer {model}, hidden {hidden}, {partitions}{status}</p>\n</header>\n<main>\n",
            model = config.model,
            layers = config.layers,
            hidden = config.hidden,
            partitions = match self.numbers() {
                (1, _) => "unpartitioned".to_owned(),
                (partitions, concurrent) => format!("{partitions} partitions, {concurrent} per step"),
            },
            status = self.status(),
        );
        html += &self.tiles();
        html += &self.plots();
        if let Some(scores) = self.scores {
            html += &self.scored(scores);
        }
        html += &format!(
            "<section>\n<h2>Wall time</h2>\n<p class=\"note\">From the start of the program. Files are written while training \
             continues: their stages are the time that training waited.</p>\n{}</section>\n",
            tables::stages(&self.summary.seconds_by_stage)
        );
        html += "<div class=\"tables\">\n";
        for (heading, facts) in [("Dataset", &self.facts.dataset), ("Run", &self.facts.process)] {
            if !facts.is_empty() {
                html += &format!("<section>\n<h2>{heading}</h2>\n{}</section>\n", tables::facts(facts));
            }
        }
        html += "</div>\n";
        html += &format!(
            "<section>\n<h2>Configuration</h2>\n<p class=\"note\">Options that differ from their defaults are bold. An \
             arrow shows what auto became.</p>\n{}</section>\n",
            tables::configuration(config, &self.facts.chosen)
        );
        html += &format!("</main>\n<footer>grappa-train {}</footer>\n", env!("CARGO_PKG_VERSION"));
        html += &format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
        html
    }

    /// The number of partitions, and of those in a step: what was trained, or what is known before the first epoch.
    fn numbers(&self) -> (u32, u32) {
        let Summary {
            partitions,
            concurrent,
            config,
            ..
        } = self.summary;
        match partitions {
            0 => (config.partitions(), config.concurrent()),
            _ => (*partitions, *concurrent),
        }
    }

    fn status(&self) -> String {
        let done = self.summary.epochs;
        let time = duration(Duration::from_secs_f64(self.summary.seconds_total.clamp(0.0, 1e18)));
        let early = match self.summary.early_stopping_epoch {
            Some(_) => format!(
                ", ended by early stopping before the {} of --epochs",
                self.summary.config.epochs
            ),
            None => String::new(),
        };
        match (self.is_finished, done) {
            (true, 1) => format!(" · 1 epoch in {time}{early}"),
            (true, _) => format!(" · {done} epochs in {time}{early}"),
            (false, _) => format!(
                " · {RUNNING}: epoch {done} of {}, {time} so far",
                self.summary.config.epochs
            ),
        }
    }

    /// The most important numbers.
    fn tiles(&self) -> String {
        let summary = self.summary;
        let part = |value: Option<f64>| value.map(|value| Unit::Part.format(value));
        let of_scores = |of: fn(&ScoreReport) -> Option<f64>| part(self.scores.and_then(of));
        let score = summary.score();
        // Of sets of labels, the accuracy is the share of nodes whose whole set is right.
        let subsets = summary.test_accuracy.filter(|_| summary.task == Task::MultiLabel);
        let tiles = [
            (format!("test {}", score.name), part(score.test)),
            (format!("val {}", score.name), part(score.val)),
            ("test subset accuracy".to_owned(), part(subsets)),
        ];
        let micro_f1 = match summary.task {
            Task::MultiClass => of_scores(|scores| scores.micro_f1),
            Task::MultiLabel => None,
        };
        let others = [
            ("val loss", summary.val_loss.map(|loss| Unit::Number.format(loss))),
            ("evaluated", summary.evaluated.map(|how| how.to_string())),
            ("macro F1", of_scores(|scores| scores.macro_f1)),
            ("micro F1", micro_f1),
            ("ROC-AUC", of_scores(|scores| scores.roc_auc)),
            ("best epoch", summary.best_epoch.map(|epoch| epoch.to_string())),
            (
                "epoch time",
                summary.seconds_per_epoch.map(|seconds| Unit::Seconds.format(seconds)),
            ),
            (
                "sampled edges",
                summary
                    .sampled_edges_per_second
                    .map(|rate| Unit::EdgesPerSecond.format(rate)),
            ),
            (
                "gradient size",
                summary
                    .gradient_bytes_per_step
                    .filter(|&bytes| self.numbers().0 > 1 && bytes > 0.0)
                    .map(|bytes| Unit::Bytes.format(bytes)),
            ),
            (
                "sent per step",
                summary
                    .bytes_sent_per_step
                    .filter(|&bytes| bytes > 0.0)
                    .map(|bytes| Unit::Bytes.format(bytes)),
            ),
            (
                "read in total",
                (summary.epochs > 0).then(|| ByteSize(summary.bytes_read).to_string()),
            ),
            (
                "peak memory",
                summary.peak_rss_bytes.map(|bytes| ByteSize(bytes).to_string()),
            ),
        ];
        let others = others.map(|(what, value)| (what.to_owned(), value));
        let mut html = "<div class=\"tiles\">\n".to_owned();
        for (what, value) in tiles.into_iter().chain(others) {
            if let Some(value) = value {
                html += &format!("<div><span>{what}</span><b>{value}</b></div>\n");
            }
        }
        html + "</div>\n"
    }

    fn plots(&self) -> String {
        let epochs: Vec<f64> = self.records.iter().map(|record| record.epoch as f64).collect();
        let series = |name, color, of: &dyn Fn(&EpochRecord) -> Option<f64>| Series {
            name,
            color,
            values: self
                .records
                .iter()
                .map(|record| of(record).unwrap_or(f64::NAN))
                .collect(),
        };
        let plot = |id, title, unit, kind, series| Plot {
            id,
            title,
            unit,
            kind,
            epochs: &epochs,
            series,
            best: None,
            empty: "no epoch is finished",
        };
        let (shown, others) = self.longest_stages();
        let stages = shown.iter().zip(["c1", "c2", "c3", "c4", "c5", "c6"]);
        let mut stages: Vec<_> = stages
            .map(|(&stage, color)| {
                series(stage.name(), color, &move |record: &EpochRecord| {
                    Some(record.seconds_by_stage[stage])
                })
            })
            .collect();
        if !others.is_empty() {
            let sum = |record: &EpochRecord| Some(others.iter().map(|&stage| record.seconds_by_stage[stage]).sum());
            stages.push(series("other", "c7", &sum));
        }
        let scores = match self.summary.task {
            Task::MultiClass => vec![
                series("train", "train", &|record| record.train_accuracy),
                series("val", "val", &|record| record.val_accuracy),
                series("test", "test", &|record| record.test_accuracy),
            ],
            Task::MultiLabel => vec![
                series("val", "val", &|record| record.val_micro_f1),
                series("test", "test", &|record| record.test_micro_f1),
            ],
        };
        let title = match self.summary.task {
            Task::MultiClass => "Accuracy",
            Task::MultiLabel => "Micro F1",
        };
        let mut plots = vec![
            Plot {
                best: self.summary.best_epoch.map(|epoch| epoch as f64),
                empty: "no evaluation yet",
                ..plot("plot-accuracy", title, Unit::Part, Kind::Lines, scores)
            },
            plot(
                "plot-loss",
                "Loss",
                Unit::Number,
                Kind::Lines,
                vec![
                    series("train", "loss", &|record| Some(record.loss)),
                    series("val", "val", &|record| record.val_loss),
                ],
            ),
            plot("plot-time", "Time by stage", Unit::Seconds, Kind::Bars, stages),
            Plot {
                empty: "one partition sees every neighborhood whole",
                ..plot(
                    "plot-coverage",
                    "Coverage of seeds",
                    Unit::Part,
                    Kind::LinesFromZero,
                    vec![series("coverage", "c3", &|record| {
                        record.coverage_mean.filter(|_| self.numbers().0 > 1)
                    })],
                )
            },
            Plot {
                empty: "everything is in memory",
                ..plot(
                    "plot-read",
                    "Read from files",
                    Unit::Bytes,
                    Kind::Bars,
                    vec![series("read", "c2", &|record| Some(record.bytes_read as f64))],
                )
            },
            Plot {
                empty: "there is one partition",
                ..plot(
                    "plot-gradients",
                    "Gradients summed over partitions",
                    Unit::Bytes,
                    Kind::Bars,
                    vec![series("gradients", "c6", &|record| {
                        Some(record.gradient_bytes as f64).filter(|_| self.numbers().0 > 1)
                    })],
                )
            },
            plot(
                "plot-edges",
                "Sampled edges",
                Unit::EdgesPerSecond,
                Kind::LinesFromZero,
                vec![series("edges", "c1", &|record| Some(record.sampled_edges_per_second))],
            ),
            plot(
                "plot-rate",
                "Learning rate",
                Unit::Number,
                Kind::LinesFromZero,
                vec![series("rate", "c5", &|record| Some(record.learning_rate))],
            ),
        ];
        // A store without test nodes has no test curve.
        for plot in &mut plots {
            if ["plot-accuracy", "plot-loss"].contains(&plot.id) {
                plot.series
                    .retain(|series| series.values.iter().any(|value| value.is_finite()));
            }
        }
        if self.records.is_empty() {
            return "<p class=\"note\">No epoch is finished yet.</p>\n".to_owned();
        }
        let (drawn, empty): (Vec<_>, Vec<_>) = plots.iter().partition(|plot| plot.has_values());
        let figures: String = drawn.into_iter().map(Plot::html).collect();
        let mut html = format!("<div class=\"plots\">\n{figures}</div>\n");
        if !empty.is_empty() {
            let reasons: Vec<_> = empty
                .iter()
                .map(|plot| format!("{} ({})", plot.title, plot.empty))
                .collect();
            html += &format!("<p class=\"note\" id=\"empty\">No chart: {}.</p>\n", reasons.join(", "));
        }
        html
    }

    /// The stages that took most time, and the others that took any, each in the order of a run.
    fn longest_stages(&self) -> (Vec<Stage>, Vec<Stage>) {
        const SHOWN: usize = 6;
        let total = |stage: Stage| -> f64 {
            self.records
                .iter()
                .map(|record| record.seconds_by_stage[stage])
                .filter(|seconds| seconds.is_finite())
                .sum()
        };
        let mut stages: Vec<(usize, f64)> = Stage::ALL.into_iter().map(total).enumerate().collect();
        stages.retain(|(_, seconds)| *seconds > 0.0);
        stages.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut parts = stages.chunks(SHOWN).map(|part| {
            let mut part: Vec<usize> = part.iter().map(|(stage, _)| *stage).collect();
            part.sort_unstable();
            part.into_iter().map(|stage| Stage::ALL[stage]).collect::<Vec<_>>()
        });
        let shown = parts.next().unwrap_or_default();
        (shown, parts.flatten().collect())
    }

    fn scored(&self, scores: &ScoreReport) -> String {
        let classes = Classes::new(scores, self.classes);
        let nodes = format!("{} {} nodes", count(scores.nodes), escape(self.scored));
        let at = match self.summary.best_epoch {
            Some(_) => "at the best epoch",
            None => "after the last epoch",
        };
        let mut html = format!(
            "<div class=\"tables\">\n<section>\n<h2>Classes</h2>\n<p class=\"note\">{nodes}, {at}. Values are percentages.</p>\n{}</section>\n",
            classes.table()
        );
        if let Some(confusion) = classes.confusion() {
            html += &format!(
                "<section>\n<h2>Confusion</h2>\n<p class=\"note\">{nodes}: percentage of the nodes of each \
                 class (row) that is predicted as each class (column).</p>\n{confusion}</section>\n"
            );
        }
        html + "</div>\n"
    }
}
