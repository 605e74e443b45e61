//! The tables of a report about classes: scores, the confusion matrix, and the pairs that are confused most often.

use std::cmp::Reverse;

use grappa_io::size::count;
use grappa_run::{percent, scores::ScoreReport};

use crate::html::{data, escape, section};

/// Largest number of classes in the confusion matrix.
const CONFUSION_CLASSES_MAX: usize = 12;

/// With more classes, their numbers are too wide for a column of the confusion matrix.
const CLASS_NUMBERS_MAX: usize = 100;

/// Largest number of classes in the table of classes: some two megabytes.
const CLASSES_MAX: usize = 10_000;

/// From this number of classes on, the table has a field for searching.
const SEARCH_MIN: usize = 10;

/// Largest number of pairs in the table of confused classes.
const PAIRS_MAX: usize = 10;

/// Largest number of other classes that are listed for a chosen class.
const OTHERS_MAX: usize = 10;

/// Classes with their names, largest first.
pub(super) struct Classes<'a> {
    scores: &'a ScoreReport,
    names: &'a [String],
    /// Classes by number of nodes, largest first.
    order: Vec<usize>,
}

/// Nodes of a class that are predicted as another one.
#[derive(Debug, Clone, Copy)]
struct Pair {
    class: usize,
    predicted: usize,
    nodes: u64,
}

impl<'a> Classes<'a> {
    pub(super) fn new(scores: &'a ScoreReport, names: &'a [String]) -> Self {
        let mut order: Vec<usize> = (0..scores.per_class.len()).collect();
        order.sort_by_key(|&class| Reverse(scores.per_class[class].support));
        Self { scores, names, order }
    }

    fn name(&self, class: usize) -> String {
        self.names.get(class).map_or_else(|| class.to_string(), |name| escape(name))
    }

    fn nodes(&self, class: usize) -> u64 {
        self.scores.per_class[class].support
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
        html += "<div class=\"rows sorts\" tabindex=\"0\" role=\"region\" aria-label=\"Classes\"><table id=\"classes\">\n<thead><tr><th>class</th>\
                 <th aria-sort=\"descending\">nodes</th><th>F1</th><th>precision</th><th>recall</th></tr></thead>\n<tbody>\n";
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

    /// Sections about classes that are confused; `nodes` says what is counted. Empty without confusion matrix.
    pub(super) fn confusion(&self, nodes: &str) -> String {
        let Some(matrix) = &self.scores.confusion else { return String::new() };
        let note =
            format!("{nodes}: percentage of the nodes of each class (row) that is predicted as each class (column).");
        section("Confusion", &note, &self.matrix(matrix))
            + &section("Most confused classes", "", &self.pairs(matrix))
            + &self.chooser(matrix)
    }

    /// For each class, the fractions of its nodes that are predicted as each class.
    fn matrix(&self, matrix: &[Vec<u64>]) -> String {
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
            let number = if are_named { format!("<i>{row}</i> ") } else { String::new() };
            html += &format!("<tr><th>{number}{}</th>", self.name(class));
            for &predicted in &shown {
                let nodes = matrix[class][predicted];
                let part = self.part(nodes, class);
                let kind = if predicted == class { "hit" } else { "miss" };
                let text = match nodes {
                    0 => String::new(),
                    _ => format!("{:.0}", part * 100.0),
                };
                html += &format!(
                    "<td class=\"{kind}\" style=\"--part:{part:.3}\" title=\"{nodes} of {} in {} predicted as {}\">{text}</td>",
                    self.nodes(class),
                    self.name(class),
                    self.name(predicted),
                );
            }
            html += "</tr>\n";
        }
        html += "</tbody></table>\n<p class=\"note\" id=\"cell\" aria-live=\"polite\"></p>\n";
        html + &self.left_out(CONFUSION_CLASSES_MAX, ", so rows need not add up to 100 %")
    }

    fn part(&self, nodes: u64, class: usize) -> f64 {
        nodes as f64 / self.nodes(class).max(1) as f64
    }

    fn pairs(&self, matrix: &[Vec<u64>]) -> String {
        let mut pairs: Vec<Pair> = self.order.iter().flat_map(|&class| confused(matrix, class)).collect();
        pairs.sort_by_key(|pair| Reverse(pair.nodes));
        if pairs.is_empty() {
            return "<p class=\"note\">No two classes are confused.</p>\n".to_owned();
        }
        let mut html = "<div class=\"sorts\"><table id=\"pairs\">\n<thead><tr><th>class</th>\
                        <th>predicted as</th><th aria-sort=\"descending\">nodes</th><th>% of class</th></tr></thead>\n<tbody>\n"
            .to_owned();
        for pair in pairs.iter().take(PAIRS_MAX) {
            let part = self.part(pair.nodes, pair.class);
            html += &format!(
                "<tr><th>{}</th><th>{}</th><td>{}</td><td class=\"meter\" style=\"--part:{part:.3}\">{:.1}</td></tr>\n",
                self.name(pair.class),
                self.name(pair.predicted),
                pair.nodes,
                part * 100.0
            );
        }
        html + "</tbody></table></div>\n"
    }

    /// A section with a field for a class, and a table that the script fills: the other classes that it is confused with.
    fn chooser(&self, matrix: &[Vec<u64>]) -> String {
        let mut options = String::new();
        for &class in &self.order {
            options += &format!("<option value=\"{class}\">{}</option>", self.name(class));
        }
        let classes: Vec<_> = (0..matrix.len())
            .map(|class| serde_json::json!({ "told": self.describe(matrix, class), "others": others(matrix, class) }))
            .collect();
        format!(
            "<section id=\"chooser\" hidden>\n<h2><label for=\"class\">One class</label></h2>\n\
             <p class=\"note\"><select id=\"class\">{options}</select></p>\n<p class=\"note\" id=\"told\" aria-live=\"polite\"></p>\n\
             <p class=\"note\">Nodes of this class that are predicted as another, and nodes of another that are predicted as this one:</p>\n\
             <table><thead><tr><th>other class</th><th>this \u{2192} other</th><th>other \u{2192} this</th></tr></thead><tbody></tbody></table>\n\
             {}</section>\n",
            data(&serde_json::Value::from(classes))
        )
    }

    /// How many nodes of a class are predicted right.
    fn describe(&self, matrix: &[Vec<u64>], class: usize) -> String {
        let (right, nodes) = (matrix[class][class], self.nodes(class));
        let predicted = self.scores.per_class[class].predicted;
        let wrong = predicted.saturating_sub(right);
        if nodes == 0 {
            return format!("No node is in this class. Predicted to be in it: {}.", count(predicted));
        }
        format!(
            "Predicted right: {} of {} nodes ({}). Predicted to be in this class, but of others: {}.",
            count(right),
            count(nodes),
            percent(self.part(right, class)),
            count(wrong)
        )
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

/// The nodes of a class that are predicted as others.
fn confused(matrix: &[Vec<u64>], class: usize) -> impl Iterator<Item = Pair> {
    let row = matrix[class].iter().copied().enumerate();
    row.filter(move |&(predicted, nodes)| predicted != class && nodes > 0).map(move |(predicted, nodes)| Pair {
        class,
        predicted,
        nodes,
    })
}

/// The classes that one is confused with most often: their number, its nodes predicted as theirs, and their nodes predicted as its.
fn others(matrix: &[Vec<u64>], class: usize) -> Vec<[u64; 3]> {
    let mut others: Vec<[u64; 3]> = (0..matrix.len())
        .filter(|&other| other != class)
        .map(|other| [other as u64, matrix[class][other], matrix[other][class]])
        .filter(|[_, to, from]| to + from > 0)
        .collect();
    others.sort_by_key(|[_, to, from]| Reverse(to + from));
    others.truncate(OTHERS_MAX);
    others
}
