//! The table as Markdown and as CSV.

use super::{page::score_cell, row::Row};

const COLUMNS: [&str; 8] = [
    "gradients per epoch",
    "activations per epoch",
    "features per epoch",
    "seconds per epoch",
    "modelled at 1 Gbit/s",
    "best epoch",
    "bytes to it",
    "modelled to it",
];

pub(super) fn markdown(score: &str, rows: &[Row]) -> String {
    let mut text = format!("| method | partitions | seeds | test {score} | {} |\n", COLUMNS.join(" | "));
    text += &format!("|---|---|---|---|{}\n", "---|".repeat(COLUMNS.len()));
    for row in rows {
        let score = match row.deviation {
            Some(_) => format!(
                "{} ± {}",
                score_cell(row.task, row.score).0.trim_end_matches(" %"),
                score_cell(row.task, row.deviation).0
            ),
            None => score_cell(row.task, row.score).0,
        };
        let cells = row.costs().map(|(text, _)| text);
        text += &format!(
            "| {} | {} | {} | {score} | {} |\n",
            row.name.replace('|', "\\|"),
            row.machines,
            row.seeds,
            cells.join(" | ")
        );
    }
    text
}

/// Numbers without units: scores as the program reports them, bytes and seconds.
pub(super) fn csv(score: &str, rows: &[Row]) -> String {
    let score = score.replace(' ', "_");
    let mut text = format!(
        "method,partitions,seeds,test_{score}_mean,test_{score}_deviation,gradient_bytes_per_epoch,activation_bytes_per_epoch,\
         feature_bytes_per_epoch,seconds_per_epoch,modelled_seconds_per_epoch_at_1_gbit,best_epoch,bytes_to_best,\
         modelled_seconds_to_best_at_1_gbit\n"
    );
    for row in rows {
        let scores = [row.score, row.deviation].into_iter();
        let numbers = scores.chain(row.costs().map(|(_, number)| Some(number)));
        let numbers = numbers.map(|number| number.map_or_else(String::new, |number| number.to_string()));
        text +=
            &format!("{},{},{},{}\n", field(&row.name), row.machines, row.seeds, numbers.collect::<Vec<_>>().join(","));
    }
    text
}

/// A field of CSV, in quotes if it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
