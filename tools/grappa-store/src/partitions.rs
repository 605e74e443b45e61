//! Tables of partitions.

use std::collections::BTreeMap;

use grappa_console::{count, printable, table::aligned};
use grappa_engine::{
    Progress,
    sample::partition::{Coverage, CoverageOptions, Histogram, PartitionReport, coverage, report},
    store::Graph,
};
use serde::Serialize;

/// A partition in the JSON object of `info`.
#[derive(Serialize)]
pub struct Partition {
    #[serde(flatten)]
    pub report: PartitionReport,
    /// With `--coverage`.
    #[serde(flatten)]
    pub coverage: Option<ShownCoverage>,
}

/// How much of the neighborhoods of its nodes a partition sees.
#[derive(Serialize)]
pub struct ShownCoverage {
    /// Number of nodes that the partition does not own and that have an edge to an owned node.
    halo_nodes: u64,
    /// The owned nodes by their coverage; of a graph with types, by relation.
    coverage: ByRelation,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ByRelation {
    One(Histogram),
    Named(BTreeMap<String, Histogram>),
}

/// The partitions of the current assignment, with their coverage if `counting` has the options for it.
///
/// # Errors
/// As [`coverage()`].
pub fn partitions(
    graph: &Graph,
    counting: Option<&CoverageOptions>,
    progress: &dyn Progress,
) -> anyhow::Result<Vec<Partition>> {
    let assignment = graph.assignment();
    let coverage = counting.map(|options| coverage(graph, assignment, options, progress)).transpose()?;
    let mut coverage = coverage.unwrap_or_default().into_iter();
    let partitions = report(graph, assignment).into_iter().map(|report| Partition {
        report,
        coverage: coverage.next().map(|Coverage { halo_nodes, by_relation }| ShownCoverage {
            halo_nodes,
            coverage: match (graph.has_types(), by_relation.as_slice()) {
                (false, &[histogram]) => ByRelation::One(histogram),
                _ => {
                    let name = |number| graph.manifest().relation_name(number);
                    ByRelation::Named((0..).map(name).zip(by_relation).collect())
                }
            },
        }),
    });
    Ok(partitions.collect())
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

/// One line per partition, and relation if there are several: halo nodes, and the share of nodes by the share of their in-edges that the
/// partition sees.
pub fn coverage_table(partitions: &[Partition]) -> String {
    let header =
        ["partition", "halo nodes", "none", "<.1", "<.2", "<.3", "<.4", "<.5", "<.6", "<.7", "<.8", "<.9", "<1", "all"];
    let counted =
        partitions.iter().filter_map(|partition| Some((partition.report.partition, partition.coverage.as_ref()?)));
    let cells = counted.flat_map(|(partition, shown)| {
        let histograms: Vec<(String, &Histogram)> = match &shown.coverage {
            ByRelation::One(histogram) => vec![(partition.to_string(), histogram)],
            ByRelation::Named(named) => {
                let title = |name: &String| format!("{partition} {}", printable(name));
                named.iter().map(|(name, histogram)| (title(name), histogram)).collect()
            }
        };
        histograms.into_iter().map(|(title, Histogram { zero, tenths, one, .. })| {
            let nodes = zero + tenths.iter().sum::<u64>() + one;
            let parts = [zero].into_iter().chain(tenths).chain([one]);
            let shares = parts.map(|&part| percent(part, nodes));
            [title, count(shown.halo_nodes)].into_iter().chain(shares).collect()
        })
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
