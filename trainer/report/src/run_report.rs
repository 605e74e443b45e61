//! The report of a run.

use std::{collections::BTreeMap, time::Duration};

use grappa_io::size::{ByteSize, count, duration};
use grappa_run::{
    background::RunPages, folder::RUNNING, journal::EpochRecord, model::Task, scores::ModelScores, summary::Summary,
};

use crate::{
    charts::{self, Charts},
    classes::Classes,
    html::{escape, page, section},
    tables, targets, tiles,
};

/// Facts about a run for its readers. All of them are text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFacts {
    /// Names and values of the store's properties.
    pub dataset: Vec<Fact>,
    /// Names and values of the properties of the process that wrote them.
    pub process: Vec<Fact>,
    /// The values that options had which are `auto`, by the names of the options.
    pub chosen: BTreeMap<&'static str, String>,
}

/// A name and a value.
pub type Fact = (&'static str, String);

/// The contents of a report.
#[derive(Debug)]
pub struct Report {
    /// Name of the store.
    pub name: String,
    /// The epochs so far.
    pub records: Vec<EpochRecord>,
    /// The result so far, and the configuration.
    pub summary: Summary,
    /// Scores of the model at the best epoch. None before the first evaluation.
    pub scores: Option<ModelScores>,
    /// Names of classes. Classes without a name are shown by number.
    pub classes: Vec<String>,
    /// Facts about the store, the process and the options.
    pub facts: RunFacts,
    /// Whether the run is finished.
    pub is_finished: bool,
}

impl RunPages for Report {
    fn summary(&self) -> &Summary {
        &self.summary
    }

    fn html(&self) -> String {
        let config = &self.summary.config;
        let mut main = tiles::html(&self.summary, self.scores.as_ref(), self.numbers().0);
        let charts = Charts {
            records: &self.records,
            task: self.summary.task,
            monitor: config.monitor,
            best: self.summary.best_epoch,
            partitions: self.numbers().0,
        };
        main += &charts.html();
        if let Some(scores) = &self.scores {
            main += &self.scored(scores);
        }
        main += "<div class=\"tables\">\n";
        if self.summary.seconds_total > 0.0 {
            main += &section(
                "Wall time",
                "From the start of the program. Files are written while training continues: their stages are the time that training waited.",
                &tables::stages(&self.summary.seconds_by_stage),
            );
        }
        for (heading, facts) in [("Dataset", &self.facts.dataset), ("Run", &self.facts.process)] {
            if !facts.is_empty() {
                let facts = facts.iter().map(|(name, value): &Fact| (*name, value.as_str()));
                main += &section(heading, "", &tables::facts(facts));
            }
        }
        main += "</div>\n";
        if let Some(ledger) = &self.summary.memory {
            let note = format!(
                "How {} of --memory are divided. Leases of one phase are in memory together. The model, its gradients and libtorch come on top.",
                ByteSize(ledger.limit)
            );
            main += &section("Memory", &note, &tables::memory(ledger));
        }
        main += &section(
            "Configuration",
            "Options that differ from their defaults are bold. An arrow shows what auto became.",
            &tables::configuration(config, &self.facts.chosen),
        );
        let line = format!(
            "{}-layer {}, hidden {}, {}{}",
            config.layers,
            config.model,
            config.hidden,
            match self.numbers() {
                (1, _) => "unpartitioned".to_owned(),
                (partitions, concurrent) => format!("{partitions} partitions, {concurrent} per step"),
            },
            self.status(),
        );
        page(&format!("{}: {}", self.name, config.model), &self.name, &line, &main)
    }
}

impl Report {
    /// The number of partitions, and of those in a step: what was trained, or what is known before the first epoch.
    fn numbers(&self) -> (u32, u32) {
        let Summary { partitions, concurrent, config, .. } = &self.summary;
        match partitions {
            0 => (config.partitions(), config.concurrent()),
            _ => (*partitions, *concurrent),
        }
    }

    fn status(&self) -> String {
        let done = self.summary.epochs;
        let time = duration(Duration::from_secs_f64(self.summary.seconds_total.clamp(0.0, 1e18)));
        let early = match self.summary.early_stopping_epoch {
            Some(_) => format!(", ended by early stopping before the {} of --epochs", self.summary.config.epochs),
            None => String::new(),
        };
        match (self.is_finished, done) {
            (true, 1) => format!(" · 1 epoch in {time}{early}"),
            (true, _) => format!(" · {done} epochs in {time}{early}"),
            (false, _) => format!(" · {RUNNING}: epoch {done} of {}, {time} so far", self.summary.config.epochs),
        }
    }

    fn scored(&self, scores: &ModelScores) -> String {
        if self.summary.task == Task::Regression {
            return self.scored_targets(scores);
        }
        if let Some(links) = &scores.report.links {
            let note = format!("{} {} edges. {links}.", count(links.edges), escape(&scores.split));
            return format!("<div class=\"tables\">\n{}</div>\n", section("Links", &note, ""));
        }
        let classes = Classes::new(&scores.report, &self.classes);
        let nodes = format!("{} {} nodes", count(scores.report.nodes), escape(&scores.split));
        let at = if self.summary.best_epoch.is_some() { "at the best epoch" } else { "after the last epoch" };
        let note = format!("{nodes}, {at}. Values are percentages.");
        let html = section("Classes", &note, &classes.table()) + &classes.confusion(&nodes);
        let curve = charts::precision_recall(&scores.report)
            .map_or_else(String::new, |plot| format!("<div class=\"plots\">\n{}</div>\n", plot.html()));
        format!("{curve}<div class=\"tables\">\n{html}</div>\n")
    }

    fn scored_targets(&self, scores: &ModelScores) -> String {
        let note = format!(
            "{} {} nodes, in the unit of each target. The last column is of a model that predicts the mean of the training nodes.",
            count(scores.report.nodes),
            escape(&scores.split)
        );
        let html = section("Targets", &note, &targets::table(&scores.report, &self.classes));
        format!("<div class=\"tables\">\n{html}</div>\n")
    }
}
