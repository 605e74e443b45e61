//! The tables of a report about the run: its facts, its options, and its time.

use std::collections::BTreeMap;

use grappa_io::{
    ledger::{Ledger, leased_bytes},
    size::ByteSize,
};
use grappa_run::{
    config::{TrainConfig, shown},
    stages::StageSeconds,
};

use crate::{
    html::{color_of_stage, escape},
    scale::Unit,
};

/// Names and values.
pub(super) fn facts<'a>(facts: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
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
        let class = if defaults.get(&option) == Some(&value) { "" } else { " class=\"changed\"" };
        let text = option_text(&value, chosen.get(option.as_str()).map(String::as_str));
        html += &format!("<div{class}><dt>{}</dt><dd>{}</dd></div>\n", escape(&option), escape(&text));
    }
    html + "</dl>\n"
}

/// The value of an option, and what it became if that is known.
pub(super) fn option_text(value: &toml::Value, chosen: Option<&str>) -> String {
    let text = shown(value);
    match chosen {
        Some(chosen) => format!("{text} \u{2192} {chosen}"),
        None => text,
    }
}

/// The leases of each phase, with a bar for the part of the limit.
pub(super) fn memory(ledger: &Ledger) -> String {
    let part = |bytes: u64| bytes as f64 / ledger.limit.max(1) as f64;
    let mut html = "<div class=\"scroll\"><table id=\"memory\">\n<thead><tr><th>consumer</th><th>memory</th><th>share</th></tr></thead>\n\
                    <tbody>\n"
        .to_owned();
    for phase in &ledger.phases {
        let total = leased_bytes(&phase.leases);
        html += &format!(
            "<tr class=\"phase\"><th>{}</th><td>{}</td><td class=\"meter\" style=\"--part:{:.3}\">{:.1} %</td></tr>\n",
            escape(phase.name),
            ByteSize(total),
            part(total),
            100.0 * part(total)
        );
        for lease in &phase.leases {
            let beside = if lease.beside_limit { "beside the limit: " } else { "" };
            html += &format!(
                "<tr><th>{}<small>{beside}{}</small></th><td>{}</td><td class=\"meter\" style=\"--part:{:.3}\">{:.1} %</td></tr>\n",
                escape(lease.name),
                escape(lease.reason),
                ByteSize(lease.bytes),
                part(lease.bytes).min(1.0),
                100.0 * part(lease.bytes)
            );
        }
    }
    html + "</tbody></table></div>\n"
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
            "<tr><th><i class=\"{}\"></i>{}</th><td>{}</td><td class=\"meter\" style=\"--part:{part:.3}\">{:.1} %</td></tr>\n",
            color_of_stage(stage),
            stage.name(),
            Unit::Seconds.format(seconds),
            part * 100.0
        );
    }
    html += &format!("<tr><th>all</th><td>{}</td><td></td></tr>\n", Unit::Seconds.format(total));
    html + "</tbody></table></div>\n"
}
