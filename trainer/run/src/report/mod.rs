//! The report of a run, and the comparison of several: self-contained HTML pages.
//!
//! Plots are SVG that stretches with the page. Their labels are HTML, so text has the same size on a phone and on a wide screen. Small
//! scripts show the values of an epoch that the reader points at, and sort tables; a page is complete without them. The report has a few
//! hundred kilobytes for any number of epochs.

mod charts;
mod classes;
mod compare;
mod html;
mod plot;
mod scale;
mod series;
mod tables;
#[cfg(test)]
mod tests;
mod tiles;

use std::time::Duration;

use grappa_io::size::{count, duration};

pub use self::compare::Comparison;
use self::{
    charts::Charts,
    classes::Classes,
    html::{escape, page, section},
};
use super::{
    facts::{Fact, RunFacts},
    journal::EpochRecord,
    scores::ScoreReport,
    summary::Summary,
};

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
        let config = &self.summary.config;
        let mut main = tiles::html(self);
        let charts = Charts {
            records: self.records,
            task: self.summary.task,
            best: self.summary.best_epoch,
            partitions: self.numbers().0,
        };
        main += &charts.html();
        if let Some(scores) = self.scores {
            main += &self.scored(scores);
        }
        main += &section(
            "Wall time",
            "From the start of the program. Files are written while training continues: their stages are the time that training waited.",
            &tables::stages(&self.summary.seconds_by_stage),
        );
        main += "<div class=\"tables\">\n";
        for (heading, facts) in [("Dataset", &self.facts.dataset), ("Run", &self.facts.process)] {
            if !facts.is_empty() {
                let facts = facts.iter().map(|(name, value): &Fact| (*name, value.as_str()));
                main += &section(heading, "", &tables::facts(facts));
            }
        }
        main += "</div>\n";
        main += &section(
            "Configuration",
            "Options that differ from their defaults are bold. An arrow shows what auto became.",
            &tables::configuration(config, &self.facts.chosen),
        );
        let line = format!(
            "{layers}-layer {model}, hidden {hidden}, {partitions}{status}",
            model = config.model,
            layers = config.layers,
            hidden = config.hidden,
            partitions = match self.numbers() {
                (1, _) => "unpartitioned".to_owned(),
                (partitions, concurrent) => format!("{partitions} partitions, {concurrent} per step"),
            },
            status = self.status(),
        );
        page(&format!("{}: {}", self.name, config.model), self.name, &line, &main)
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

    fn scored(&self, scores: &ScoreReport) -> String {
        let classes = Classes::new(scores, self.classes);
        let nodes = format!("{} {} nodes", count(scores.nodes), escape(self.scored));
        let at = match self.summary.best_epoch {
            Some(_) => "at the best epoch",
            None => "after the last epoch",
        };
        let note = format!("{nodes}, {at}. Values are percentages.");
        let html = section("Classes", &note, &classes.table()) + &classes.confusion(&nodes);
        format!("<div class=\"tables\">\n{html}</div>\n")
    }
}
