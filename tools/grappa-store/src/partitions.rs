//! Tables of partitions.

use grappa_console::{count, table::aligned};
use grappa_engine::sample::partition::{Coverage, Histogram, PartitionReport};
use serde::Serialize;

/// A partition in the JSON object of `info`.
#[derive(Serialize)]
pub struct Partition {
    #[serde(flatten)]
    pub report: PartitionReport,
    /// With `--coverage`.
    #[serde(flatten)]
    pub coverage: Option<Coverage>,
}

/// One line per partition: its chunks, nodes, and visible and cut edges.
pub fn table<'a>(partitions: impl IntoIterator<Item = &'a PartitionReport>) -> String {
    let cells = partitions.into_iter().map(|partition| {
        let chunks = match (partition.base_chunks.len(), partition.variable_chunks.len()) {
            (base, 0) => base.to_string(),
            (base, variable) => format!("{base} + {variable}"),
        };
        let edges = partition.visible_edges + partition.cut_edges;
        let [visible, cut] = [partition.visible_edges, partition.cut_edges]
            .map(|part| format!("{} ({})", count(part), percent(part, edges)));
        vec![partition.partition.to_string(), chunks, count(partition.nodes), visible, cut]
    });
    table_of(&["partition", "chunks", "nodes", "visible edges", "cut edges"], cells)
}

/// One line per partition: halo nodes, and the share of nodes by the share of their in-edges that the partition sees.
pub fn coverage(partitions: &[Partition]) -> String {
    let header =
        ["partition", "halo nodes", "none", "<.1", "<.2", "<.3", "<.4", "<.5", "<.6", "<.7", "<.8", "<.9", "<1", "all"];
    let counted =
        partitions.iter().filter_map(|partition| Some((partition.report.partition, partition.coverage.as_ref()?)));
    let cells = counted.map(|(partition, coverage)| {
        let Histogram { zero, tenths, one, .. } = &coverage.coverage;
        let nodes = zero + tenths.iter().sum::<u64>() + one;
        let mut cells = vec![partition.to_string(), count(coverage.halo_nodes)];
        let parts = [zero].into_iter().chain(tenths).chain([one]);
        cells.extend(parts.map(|&part| percent(part, nodes)));
        cells
    });
    format!(
        "halo nodes, and nodes by the share of their in-edges that is visible in their partition: none, below 0.1, ..., all\n{}",
        table_of(&header, cells)
    )
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1} %", part as f64 / whole as f64 * 100.0),
    }
}

/// Rows below a header, with numbers to the right.
fn table_of(header: &[&str], cells: impl Iterator<Item = Vec<String>>) -> String {
    let titles = header.iter().map(|&cell| cell.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(cells).collect();
    let lines = aligned(&rows, &(0..header.len()).collect::<Vec<_>>());
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
