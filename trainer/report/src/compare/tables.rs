//! The tables of a comparison. Runs have numbers there, in their colors.

use std::collections::BTreeMap;

use grappa_run::stages::Stage;

use super::run::{ComparedRun, color};
use crate::{
    html::{color_of_stage, escape, td, wide},
    scale::Unit,
};

/// A cell: its text, and the number by which it sorts.
type SortedCell = (String, Option<f64>);

pub(super) fn results(runs: &[ComparedRun]) -> String {
    let score = runs[0].summary.score().name;
    let columns = [
        &format!("test {score}"),
        &format!("val {score}"),
        "val loss",
        "best epoch",
        "epochs",
        "start-up",
        "per epoch",
        "total",
        "peak memory",
    ];
    let mut rows = "<thead><tr><th>run</th>".to_owned();
    for column in columns {
        rows += &format!("<th>{column}</th>");
    }
    rows += "</tr></thead>\n<tbody>\n";
    for (number, run) in (1..).zip(runs) {
        rows += &format!(
            "<tr><th data-value=\"{name}\"><i class=\"{}\"></i>{number} {name}</th>",
            color(number),
            name = escape(&run.name)
        );
        for (text, value) in cells(run) {
            rows += &td(&text, value, "");
        }
        rows += "</tr>\n";
    }
    wide("results", "Results", "sorts", &rows)
}

fn cells(run: &ComparedRun) -> [SortedCell; 9] {
    let summary = &run.summary;
    let score = summary.score();
    [
        cell(Unit::for_task(summary.task), score.test),
        cell(Unit::for_task(summary.task), score.val),
        cell(Unit::Number, summary.val_loss),
        whole(summary.best_epoch),
        whole(Some(summary.epochs)),
        cell(Unit::Seconds, Some(summary.seconds_by_stage.start_up())),
        cell(Unit::Seconds, summary.seconds_per_epoch),
        cell(Unit::Seconds, Some(summary.seconds_total)),
        cell(Unit::Bytes, summary.peak_rss_bytes.map(|bytes| bytes as f64)),
    ]
}

fn cell(unit: Unit, value: Option<f64>) -> SortedCell {
    (unit.format(value.unwrap_or(f64::NAN)), value)
}

fn whole(value: Option<u64>) -> SortedCell {
    let text = value.map_or_else(|| "–".to_owned(), |value| value.to_string());
    (text, value.map(|value| value as f64))
}

/// The options that are not the same in all runs.
pub(super) fn options(runs: &[ComparedRun]) -> String {
    let options: Vec<BTreeMap<String, String>> = runs.iter().map(|run| run.options().collect()).collect();
    let names: std::collections::BTreeSet<&String> = options.iter().flat_map(BTreeMap::keys).collect();
    let mut rows = numbered("option", runs.len());
    let mut differ = false;
    for name in names {
        let values: Vec<Option<&String>> = options.iter().map(|options| options.get(name)).collect();
        if values.iter().all(|value| *value == values[0]) {
            continue;
        }
        differ = true;
        rows += &format!("<tr><th>{}</th>", escape(name));
        for value in values {
            rows += &format!("<td>{}</td>", value.map_or_else(|| "–".to_owned(), |value| escape(value)));
        }
        rows += "</tr>\n";
    }
    match differ {
        true => wide("options", "Options that differ", "", &rows),
        false => "<p class=\"note\">None: all runs have the same options.</p>\n".to_owned(),
    }
}

pub(super) fn stages(runs: &[ComparedRun]) -> String {
    let mut rows = numbered("stage", runs.len());
    for &stage in Stage::ALL {
        if runs.iter().all(|run| run.summary.seconds_by_stage[stage] == 0.0) {
            continue;
        }
        rows += &format!("<tr><th><i class=\"{}\"></i>{}</th>", color_of_stage(stage), stage.name());
        for run in runs {
            rows += &format!("<td>{}</td>", Unit::Seconds.format(run.summary.seconds_by_stage[stage]));
        }
        rows += "</tr>\n";
    }
    rows += "<tr><th>all</th>";
    for run in runs {
        rows += &format!("<td>{}</td>", Unit::Seconds.format(run.summary.seconds_total));
    }
    rows += "</tr>\n";
    wide("stages", "Wall time by stage", "", &rows)
}

/// The head of a table with a column for each run.
fn numbered(first: &str, runs: usize) -> String {
    let mut head = format!("<thead><tr><th>{first}</th>");
    for number in 1..=runs {
        head += &format!("<th><i class=\"{}\"></i>{number}</th>", color(number));
    }
    head + "</tr></thead>\n<tbody>\n"
}
