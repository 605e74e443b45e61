//! The tables of a report: configuration, classes, confusion.

use std::collections::BTreeMap;

use super::{html::escape, scale::Unit};
use crate::{config::TrainConfig, facts::Fact, scores::ScoreReport, stages::StageSeconds};

/// Largest number of classes in the confusion matrix.
const CONFUSION_CLASSES_MAX: usize = 12;

/// With more classes, their numbers are too wide for a column of the confusion matrix.
const CLASS_NUMBERS_MAX: usize = 100;

/// Largest number of classes in the table of classes: some two megabytes.
const CLASSES_MAX: usize = 10_000;

/// From this number of classes on, the table has a field for searching.
const SEARCH_MIN: usize = 10;

/// Names and values.
pub(super) fn facts(facts: &[Fact]) -> String {
    let mut html = "<dl class=\"facts\">\n".to_owned();
    for (name, value) in facts {
        html += &format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    }
    html + "</dl>\n"
}

/// All options. Those that differ from their defaults are highlighted. `chosen` is what options became that are `auto`.
pub(super) fn configuration(config: &TrainConfig, chosen: &BTreeMap<&'static str, String>) -> String {
    let defaults = TrainConfig::default().table();
    let mut html = "<dl class=\"options\">\n".to_owned();
    for (option, value) in config.table() {
        let class = if defaults.get(&option) == Some(&value) {
            ""
        } else {
            " class=\"changed\""
        };
        let mut text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if let Some(chosen) = chosen.get(option.as_str()) {
            text += &format!(" \u{2192} {chosen}");
        }
        html += &format!(
            "<div{class}><dt>{}</dt><dd>{}</dd></div>\n",
            escape(&option),
            escape(&text)
        );
    }
    html + "</dl>\n"
}

/// The seconds of each stage that took any, and their sum.
pub(super) fn stages(seconds: &StageSeconds) -> String {
    let total = seconds.total();
    let mut html = "<div class=\"scroll\"><table id=\"stages\">\n<thead><tr><th>stage</th><th>time</th><th>share</th></tr></thead>\n\
                    <tbody>\n"
        .to_owned();
    for (stage, seconds) in seconds.iter().filter(|(_, seconds)| *seconds > 0.0) {
        let part = seconds / total;
        html += &format!(
            "<tr><th>{}</th><td>{}</td><td class=\"meter\" style=\"--part:{part:.3}\">{:.1} %</td></tr>\n",
            stage.name(),
            Unit::Seconds.format(seconds),
            part * 100.0
        );
    }
    html += &format!(
        "<tr><th>all</th><td>{}</td><td></td></tr>\n",
        Unit::Seconds.format(total)
    );
    html + "</tbody></table></div>\n"
}

/// Classes with their names, largest first.
pub(super) struct Classes<'a> {
    scores: &'a ScoreReport,
    names: &'a [String],
    /// Classes by number of nodes, largest first.
    order: Vec<usize>,
}

impl<'a> Classes<'a> {
    pub(super) fn new(scores: &'a ScoreReport, names: &'a [String]) -> Self {
        let mut order: Vec<usize> = (0..scores.per_class.len()).collect();
        order.sort_by_key(|&class| std::cmp::Reverse(scores.per_class[class].support));
        Self { scores, names, order }
    }

    fn name(&self, class: usize) -> String {
        self.names
            .get(class)
            .map_or_else(|| class.to_string(), |name| escape(name))
    }

    /// Precision, recall and F1 of the classes.
    pub(super) fn table(&self) -> String {
        let mut html = String::new();
        if self.order.len() >= SEARCH_MIN {
            html += &format!(
                "<p class=\"note\"><input id=\"search\" type=\"search\" placeholder=\"Search {} classes\" \
                 aria-label=\"Search classes\" hidden/></p>\n",
                self.order.len()
            );
        }
        html += "<div class=\"rows\"><table id=\"classes\">\n<thead><tr><th>class</th><th>nodes</th><th>F1</th>\
                 <th>precision</th><th>recall</th></tr></thead>\n<tbody>\n";
        for &class in self.order.iter().take(CLASSES_MAX) {
            let score = &self.scores.per_class[class];
            html += &format!(
                "<tr><th>{name}</th><td>{}</td><td class=\"meter\" style=\"--part:{:.3}\">{:.1}</td>\
                 <td>{:.1}</td><td>{:.1}</td></tr>\n",
                score.support,
                score.f1,
                score.f1 * 100.0,
                score.precision * 100.0,
                score.recall * 100.0,
                name = self.name(class),
            );
        }
        html += "</tbody></table></div>\n";
        html + &self.left_out(CLASSES_MAX, "")
    }

    /// For each class, the fractions of its nodes that are predicted as each class. None without confusion matrix.
    pub(super) fn confusion(&self) -> Option<String> {
        let matrix = self.scores.confusion.as_ref()?;
        let shown: Vec<usize> = self.order.iter().copied().take(CONFUSION_CLASSES_MAX).collect();
        let mut html = "<table id=\"confusion\">\n<thead><tr><th></th>".to_owned();
        // Columns are narrow, so they have numbers: of the rows, or of the classes if these have no names.
        let are_named = !self.names.is_empty() || self.order.len() > CLASS_NUMBERS_MAX;
        for (row, &class) in (1..).zip(&shown) {
            let number = if are_named { row } else { class };
            html += &format!("<th title=\"{}\">{number}</th>", self.name(class));
        }
        html += "</tr></thead>\n<tbody>\n";
        for (row, &class) in (1..).zip(&shown) {
            let number = if are_named {
                format!("<i>{row}</i> ")
            } else {
                String::new()
            };
            html += &format!("<tr><th>{number}{}</th>", self.name(class));
            let row = &matrix[class];
            let nodes = row.iter().sum::<u64>().max(1) as f64;
            for &predicted in &shown {
                let part = row[predicted] as f64 / nodes;
                let kind = if predicted == class { "hit" } else { "miss" };
                let text = if row[predicted] == 0 {
                    String::new()
                } else {
                    format!("{:.0}", part * 100.0)
                };
                html += &format!(
                    "<td class=\"{kind}\" style=\"--part:{part:.3}\" title=\"{} of {} in {} predicted as {}\">{text}</td>",
                    row[predicted],
                    nodes,
                    self.name(class),
                    self.name(predicted),
                );
            }
            html += "</tr>\n";
        }
        html += "</tbody></table>\n";
        Some(html + &self.left_out(CONFUSION_CLASSES_MAX, ", so rows need not add up to 100 %"))
    }

    fn left_out(&self, shown: usize, consequence: &str) -> String {
        match self.order.len().checked_sub(shown) {
            None | Some(0) => String::new(),
            Some(more) => {
                format!("<p class=\"note\">The {shown} largest classes; {more} more are left out{consequence}.</p>\n")
            }
        }
    }
}
