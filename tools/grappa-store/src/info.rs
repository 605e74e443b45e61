//! `grappa-store info`: the contents of a store.

use grappa_console::{Console, Summary, count, first_names, printable};
use grappa_engine::{
    Graph,
    info::{DegreeBucket, Info, NodeTimesInfo, TimeAxisInfo, TimesInfo, info},
    sample::partition::CoverageOptions,
};
use serde::Serialize;

use crate::{
    args, graph_info,
    partitions::{self, Partition},
    table::{Table, exact, parts_of},
};

/// Width of the longest bar of the histogram, in characters.
const BAR_WIDTH: f64 = 40.0;
/// Parts of a character that a bar can end with: one eighth to seven eighths.
const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

#[derive(Serialize)]
struct ShownInfo {
    #[serde(flatten)]
    info: Info,
    by_partition: Vec<Partition>,
    #[serde(skip)]
    store: String,
}

pub fn run(options: &args::InfoArgs, console: &Console) -> anyhow::Result<()> {
    let graph = Graph::open(&options.store.store)?;
    let threads = options.store.threads.get()?;
    let bars = console.bars();
    let counting = options.coverage.then_some(CoverageOptions { memory: options.memory.0, threads });
    let by_partition = partitions::partitions(&graph, counting.as_ref(), &bars)?;
    if graph.has_types() {
        drop(bars);
        return graph_info::show(&graph, by_partition, console);
    }
    let shown = ShownInfo {
        info: info(&graph.node_types()[0], threads, &bars)?,
        by_partition,
        store: options.store.store.display().to_string(),
    };
    drop(bars);
    console.answer(&shown)
}

impl Summary for ShownInfo {
    fn text(&self) -> String {
        let info = &self.info;
        let mut table = Table::default();
        table.row("nodes", exact(info.nodes));
        table.row("edges", edges(info));
        let held_out = [("val", info.edges_val.map(exact)), ("test", info.edges_test.map(exact))];
        if let Some(held_out) = parts(&held_out, info.edge_split.as_deref()) {
            table.row("edges held out", held_out);
        }
        table.row("chunks", chunks(info));
        if let Some(bits) = info.bits_per_edge {
            table.row("bits per edge", format!("{bits:.2}"));
        }
        if let Some(times) = &info.times {
            table.row("times", times_text(times));
        }
        if let Some(times) = &info.node_times {
            table.row("times of nodes", node_times_text(times));
        }
        if let Some(features) = &info.edge_features {
            table.row("edge features", format!("{} x {}", features.dim, features.dtype));
        }
        if !info.edge_feature_names.is_empty() {
            table.row("edge names", first_names(&info.edge_feature_names));
        }
        table.row("ids", format!("{}, {}", info.ids, order(info)));
        if let Some(features) = &info.features {
            let source = if features.source == "stored" { "" } else { ", computed when read" };
            table.row("features", format!("{} x {}{source}", features.dim, features.dtype));
        }
        if !info.feature_names.is_empty() {
            table.row("feature names", first_names(&info.feature_names));
        }
        if !info.aggregates.is_empty() {
            let kinds = info.aggregates.iter().map(|of_kind| {
                let beside = if of_kind.with_features { ", with features" } else { "" };
                format!("{} ({}{beside})", of_kind.kind, of_kind.dtype)
            });
            table.row("pre-aggregated", kinds.collect::<Vec<_>>().join(", "));
        }
        if let (Some(classes), Some(kind)) = (info.classes, info.labels) {
            let (title, suffix) = match kind {
                "multi" => ("classes", ", any number per node"),
                "partial" => ("classes", ", any number per node, some unknown"),
                "targets" => ("targets", ""),
                _ => ("classes", ""),
            };
            table.row(title, format!("{classes}{suffix}"));
        }
        if !info.class_names.is_empty() {
            let title = match info.labels {
                Some("targets") => "target names",
                _ => "class names",
            };
            table.row(title, first_names(&info.class_names));
        }
        let splits = [("train", info.splits.train), ("val", info.splits.val), ("test", info.splits.test)];
        let splits = splits.map(|(name, nodes)| (name, nodes.map(|nodes| nodes.to_string())));
        if let Some(splits) = parts(&splits, info.random_split.as_deref()) {
            table.row("splits", splits);
        }
        table.row("partitions", format!("{} ({}, generation {})", info.partitions, info.schedule, info.generation));
        table.row("written by", printable(&info.writer).into_owned());
        if let Some(generator) = &info.generator {
            table.row("generated from", printable(&generator.to_string()).into_owned());
        }
        let mut parts = vec![format!("{}\n{}", printable(&self.store), table.text()), bytes(info), degrees(info)];
        // A single partition owns everything.
        if info.partitions > 1 {
            parts.push(partitions::table(self.by_partition.iter().map(|p| &p.report)));
        }
        if self.by_partition.iter().any(|partition| partition.coverage.is_some()) {
            parts.push(partitions::coverage_table(&self.by_partition));
        }
        parts.join("\n\n")
    }
}

/// The times of edges in one line.
fn times_text(times: &TimesInfo) -> String {
    let bits = times.bits_per_edge.map_or_else(String::new, |bits| format!("; {bits:.2} bits per edge more"));
    axis_text(&times.axis) + &bits
}

/// The times of nodes in one line.
pub fn node_times_text(times: &NodeTimesInfo) -> String {
    let bits = times.bits_per_node.map_or_else(String::new, |bits| format!("; {bits:.2} bits per node, none per edge"));
    axis_text(&times.axis) + &bits
}

/// An axis of time in some words.
fn axis_text(axis: &TimeAxisInfo) -> String {
    let ends = match (axis.first, axis.last) {
        (Some(first), Some(last)) => format!(" from {first} to {last}"),
        _ => String::new(),
    };
    let form = match axis.table {
        true => format!(", {} distinct ones in a table", exact(axis.positions)),
        false => String::new(),
    };
    format!("{}{ends}{form}", axis.unit)
}

/// The sizes of parts that a store has, and how they were drawn. None without parts.
fn parts(sizes: &[(&str, Option<String>)], drawn: Option<&str>) -> Option<String> {
    let sizes: Vec<_> = sizes.iter().filter_map(|(name, size)| Some(format!("{name} {}", size.as_ref()?))).collect();
    let drawn = drawn.map_or_else(String::new, |drawn| match drawn.contains(" by ") {
        true => format!(" ({})", printable(drawn)),
        false => format!(" (random, {})", printable(drawn)),
    });
    (!sizes.is_empty()).then(|| sizes.join(", ") + &drawn)
}

fn edges(info: &Info) -> String {
    let mut text = exact(info.edges);
    let options = [
        (info.undirected, "both directions"),
        (info.dedup, "parallel edges merged"),
        (info.self_loops == "drop", "no self-loops"),
        (info.self_loops == "add", "one self-loop per node"),
        (info.weighted, "weighted"),
    ];
    for (_, option) in options.iter().filter(|(is_on, _)| *is_on) {
        text += &format!(", {option}");
    }
    if info.edges_read != info.edges {
        text += &format!("; of {} read", exact(info.edges_read));
    }
    if info.rejected > 0 {
        text += &format!(", {} rejected", exact(info.rejected));
    }
    text
}

fn chunks(info: &Info) -> String {
    if info.chunks_present == info.chunks {
        return info.chunks.to_string();
    }
    let halo = match info.chunks_halo {
        0 => String::new(),
        chunks if chunks == info.chunks_halo_degrees => format!(", with features and in-degrees of {chunks} more"),
        chunks => format!(", with the features of {chunks} more"),
    };
    format!("{} of {}: a slice of the graph{halo}", info.chunks_present, info.chunks)
}

fn order(info: &Info) -> String {
    match info.seed {
        Some(seed) => format!("in random order (seed {seed})"),
        None if info.order == "time" => "in the order of time".into(),
        None if info.order == "table" => "in a given order".into(),
        None => "in order".into(),
    }
}

fn bytes(info: &Info) -> String {
    let bytes = &info.bytes;
    let parts = [
        ("edges", bytes.edges),
        ("degrees", bytes.degrees),
        ("weights", bytes.weights),
        ("edge features", bytes.edge_features),
        ("times", bytes.times),
        ("features", bytes.features),
        ("labels", bytes.labels),
        ("splits", bytes.splits),
        ("ids", bytes.ids),
        ("aggregates", bytes.aggregates),
        ("other", bytes.other),
        ("total", bytes.total),
    ];
    format!("on disk\n{}", parts_of(&parts))
}

fn degrees(info: &Info) -> String {
    let Some(mean) = info.degree_mean else { return "no nodes".into() };
    let head = format!("in-degrees: mean {mean:.2}, largest {}", info.degree_max);
    let most = info.degree_histogram.iter().map(|bucket| bucket.nodes).max().unwrap_or(0);
    let width = info.degree_histogram.iter().map(|bucket| range(bucket).len()).max().unwrap_or(0);
    let lines = info.degree_histogram.iter().map(|bucket| {
        let bar = bar(bucket.nodes as f64 / most as f64 * BAR_WIDTH);
        format!("  {:>width$}  {:>10}  {bar}", range(bucket), count(bucket.nodes)).trim_end().to_owned()
    });
    let lines: Vec<_> = std::iter::once(head).chain(lines).collect();
    lines.join("\n")
}

fn range(bucket: &DegreeBucket) -> String {
    match bucket {
        DegreeBucket { from, to, .. } if from == to => from.to_string(),
        DegreeBucket { from, to, .. } => format!("{from}-{to}"),
    }
}

/// A bar of the given length in characters. A length above 0 is visible.
fn bar(length: f64) -> String {
    let eighths = (length * 8.0).round() as usize;
    let eighths = if length > 0.0 { eighths.max(1) } else { 0 };
    let mut bar = "█".repeat(eighths / 8);
    bar.extend((!eighths.is_multiple_of(8)).then(|| EIGHTHS[eighths % 8 - 1]));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths_and_never_vanish() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(0.001), "▏");
        assert_eq!(bar(1.0), "█");
        assert_eq!(bar(2.5), "██▌");
    }
}
