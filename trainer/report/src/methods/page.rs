//! The page: a table that sorts, and curves for each number of partitions.

use std::collections::BTreeSet;

use grappa_run::model::Task;

use super::{
    costs::{BANDWIDTH, Costs},
    row::{Point, Row},
};
use crate::{
    html::{data, escape, page, section, td, wide},
    plot::{Across, Kind, Plot},
    scale::Unit,
    series::{Sample, Series},
};

/// Bits per second of the slider's places, and their names.
const BANDWIDTHS: [(f64, &str); 13] = [
    (1e7, "10 Mbit/s"),
    (2e7, "20 Mbit/s"),
    (5e7, "50 Mbit/s"),
    (1e8, "100 Mbit/s"),
    (2e8, "200 Mbit/s"),
    (5e8, "500 Mbit/s"),
    (BANDWIDTH, "1 Gbit/s"),
    (2e9, "2 Gbit/s"),
    (5e9, "5 Gbit/s"),
    (1e10, "10 Gbit/s"),
    (2e10, "20 Gbit/s"),
    (5e10, "50 Gbit/s"),
    (1e11, "100 Gbit/s"),
];
/// The place of [`BANDWIDTH`].
const START: usize = 6;

pub(super) fn html(store: &str, score: &'static str, rows: &[Row]) -> String {
    let mut main = section(
        "Results",
        "Scores are of the epoch with the best validation score: the mean over the seeds, and the standard deviation. Bytes are what all \
         machines send together, one machine for each partition. Press a heading to sort.",
        &table(score, rows),
    );
    main += &section("Bandwidth", "", &slider());
    let mut costs = Vec::new();
    for number in machines(rows) {
        // A method without partitions is in all plots.
        let rows_of_count: Vec<&Row> =
            rows.iter().filter(|row| [1, number].contains(&row.machines) && !row.curve.is_empty()).collect();
        let plots = plots(score, number, &rows_of_count);
        let figures: String = plots.iter().filter(|plot| plot.has_values()).map(Plot::html).collect();
        main += &format!("<h2>{}</h2>\n<div class=\"plots triples\">\n{figures}</div>\n", partitions(number));
        costs.push(costs_of_figure(number, &rows_of_count));
    }
    let bandwidths: Vec<_> = BANDWIDTHS.iter().map(|(bits, name)| serde_json::json!([bits, name])).collect();
    let json = data(&serde_json::json!({ "bandwidths": bandwidths, "figures": costs }));
    main += &format!("<div id=\"costs\" hidden>\n{json}</div>\n");
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let name = escape(&row.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let title = format!("{store}: methods of training");
    page(&title, &title, &names.join(" · "), &main)
}

/// The numbers of partitions that have plots: above 1, unless there is no other.
fn machines(rows: &[Row]) -> BTreeSet<u32> {
    let all: BTreeSet<u32> = rows.iter().map(|row| row.machines).collect();
    let several: BTreeSet<u32> = all.iter().copied().filter(|&machines| machines > 1).collect();
    if several.is_empty() { all } else { several }
}

fn partitions(number: u32) -> String {
    match number {
        1 => "1 partition".to_owned(),
        _ => format!("{number} partitions"),
    }
}

fn slider() -> String {
    let (_, name) = BANDWIDTHS[START];
    format!(
        "<p class=\"note\">Modelled seconds assume a machine for each partition, and that machines compute and send side by side. They are the \
         seconds of this process plus the bytes over the bandwidth, divided by the number of machines. Delays are left out.</p>\n\
         <label class=\"slider\">Bandwidth of each machine: <b class=\"bandwidth\">{name}</b><input type=\"range\" id=\"bandwidth\" min=\"0\" \
         max=\"{}\" value=\"{START}\"></label>\n",
        BANDWIDTHS.len() - 1
    )
}

fn table(score: &str, rows: &[Row]) -> String {
    let (_, bandwidth) = BANDWIDTHS[START];
    let mut html = format!(
        "<thead><tr><th>method</th><th>partitions</th><th>seeds</th><th>test {score}</th><th>±</th><th>gradients per epoch</th><th>activations per epoch</th>\
         <th>features per epoch</th><th>seconds per epoch</th><th>modelled, <span class=\"bandwidth\">{bandwidth}</span></th>\
         <th>best epoch</th><th>bytes to it</th><th>modelled to it</th></tr></thead>\n<tbody>\n"
    );
    for row in rows {
        html += &format!(
            "<tr><th data-value=\"{name}\"><i class=\"{}\"></i>{name}</th>",
            row.color,
            name = escape(&row.name)
        );
        html += &td(&row.machines.to_string(), Some(f64::from(row.machines)), "");
        html += &td(&row.seeds.to_string(), Some(row.seeds as f64), "");
        for score in [row.score, row.deviation] {
            let (text, value) = score_cell(row.task, score);
            html += &td(&text, value, "");
        }
        for (column, (text, value)) in row.costs().iter().enumerate() {
            // The script computes modelled seconds anew for another bandwidth.
            let attributes = match column {
                4 => of_modelled(&row.per_epoch, row.machines),
                7 => of_modelled(&row.to_best, row.machines),
                _ => String::new(),
            };
            html += &td(text, Some(*value).filter(|value| value.is_finite()), &attributes);
        }
        html += "</tr>\n";
    }
    wide("results", "Results", "sorts", &html)
}

/// The attributes of a cell of seconds that depend on the bandwidth.
fn of_modelled(costs: &Costs, machines: u32) -> String {
    let [computing, bytes] = of_machine(costs, machines);
    format!(" data-costs=\"[{computing},{bytes}]\"")
}

/// The seconds and the bytes of one machine.
fn of_machine(costs: &Costs, machines: u32) -> [f64; 2] {
    [costs.seconds, costs.bytes()].map(|all| all / f64::from(machines))
}

/// A score, with two digits after the point if it is a share.
pub(super) fn score_cell(task: Task, score: Option<f64>) -> (String, Option<f64>) {
    let text = match (score, task) {
        (None, _) => "–".to_owned(),
        (Some(score), Task::MultiClass | Task::MultiLabel) => format!("{:.2} %", 100.0 * score),
        (Some(score), _) => Unit::Number.format(score),
    };
    (text, score)
}

fn plots(score: &'static str, machines: u32, rows: &[&Row]) -> Vec<Plot> {
    let kinds = [
        (Across::Epochs, "epochs", "by epoch"),
        (Across::Bytes, "bytes", "by bytes sent"),
        (Across::Modelled, "seconds", "by modelled time"),
    ];
    kinds
        .into_iter()
        .map(|(across, id, by)| Plot {
            id: format!("{id}-{machines}"),
            title: format!("Test {score} {by}"),
            across,
            axis: score,
            unit: unit(rows),
            kind: Kind::Lines,
            // Nothing is sent without partitions.
            series: rows
                .iter()
                .filter(|row| across != Across::Bytes || row.machines > 1)
                .map(|row| series(row, across))
                .collect(),
            resting: "each at its best epoch".to_owned(),
            note: match across {
                Across::Epochs => String::new(),
                _ => "Dots are the epochs 1, 10, 100 and so on, and the last one.".to_owned(),
            },
            ..Plot::default()
        })
        .collect()
}

fn unit(rows: &[&Row]) -> Unit {
    Unit::for_task(rows.first().map_or(Task::MultiClass, |row| row.task))
}

fn series(row: &Row, across: Across) -> Series {
    let samples: Vec<Sample> =
        row.curve.iter().map(|point| Sample { x: place(point, row.machines, across), value: point.score }).collect();
    // By bytes and by time, epochs are in no visible distances.
    let marks = match across {
        Across::Epochs => None,
        _ => Some(marked(&row.curve).into_iter().map(|at| place(&row.curve[at], row.machines, across)).collect()),
    };
    Series {
        name: row.name.clone(),
        color: row.color.clone(),
        rest: samples.last().map(|sample| sample.x),
        samples,
        marks,
        ..Series::default()
    }
}

/// The indexes of the epochs 1, 10, 100 and so on, and the last one. Where an epoch has no point, the next point.
fn marked(curve: &[Point]) -> Vec<usize> {
    let powers = (0..).map(|exponent| 10_f64.powi(exponent));
    let epochs = powers.map_while(|epoch| curve.iter().position(|point| point.epoch >= epoch));
    let mut places: Vec<usize> = epochs.chain(curve.len().checked_sub(1)).collect();
    places.dedup();
    places
}

fn place(point: &Point, machines: u32, across: Across) -> f64 {
    match across {
        Across::Bytes => point.costs.bytes(),
        Across::Modelled => point.costs.modelled_seconds(machines, BANDWIDTH),
        _ => point.epoch,
    }
}

/// What the script needs to draw the curves by modelled time: of each point the seconds and bytes of a machine, and the score as text; and
/// the points to mark.
fn costs_of_figure(machines: u32, rows: &[&Row]) -> serde_json::Value {
    let unit = unit(rows);
    let html_rows = rows.iter().map(|row| {
        let points = row.curve.iter().map(|point| {
            let [seconds, bytes] = of_machine(&point.costs, row.machines);
            serde_json::json!([seconds, bytes, unit.format(point.score)])
        });
        serde_json::Value::Array(points.collect())
    });
    let marks: Vec<Vec<usize>> = rows.iter().map(|row| marked(&row.curve)).collect();
    serde_json::json!({ "id": format!("seconds-{machines}"), "series": html_rows.collect::<Vec<_>>(), "marks": marks })
}
