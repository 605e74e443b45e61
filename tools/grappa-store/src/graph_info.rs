//! `grappa-store info` of a graph with node types and relations.

use std::ops::Range;

use grappa_console::{ByteSize, Console, Summary, count, printable, table::aligned};
use grappa_engine::{
    Graph,
    info::{FeaturesInfo, GraphInfo, NodeTypeInfo, RelationInfo, graph_info},
};
use serde::Serialize;

use crate::partitions::{self, Partition};

#[derive(Serialize)]
struct ShownGraph {
    #[serde(flatten)]
    info: GraphInfo,
    by_partition: Vec<Partition>,
    #[serde(skip)]
    graph: String,
}

/// Shows a graph and its partitions.
pub fn show(graph: &Graph, by_partition: Vec<Partition>, console: &Console) -> anyhow::Result<()> {
    let info = graph_info(graph, graph.path())?;
    console.answer(&ShownGraph { info, by_partition, graph: graph.path().display().to_string() })
}

impl Summary for ShownGraph {
    fn text(&self) -> String {
        let info = &self.info;
        let title = format!(
            "{}: {} nodes of {} types, {} edges of {} relations, {}, written by {}",
            printable(&self.graph),
            count(info.nodes),
            info.node_types.len(),
            count(info.edges),
            info.relations.len(),
            ByteSize(info.bytes),
            printable(&info.writer)
        );
        let types =
            ["node type", "nodes", "chunks", "ids", "times", "features", "labels", "train", "val", "test", "bytes"];
        let types = [types.map(str::to_owned).to_vec()].into_iter().chain(type_rows(&info.node_types));
        let relations = ["relation", "edges", "weights", "times", "features", "pre-aggregated", "reverse of", "bytes"];
        let relations =
            [relations.map(str::to_owned).to_vec()].into_iter().chain(info.relations.iter().map(relation_row));
        let tables = [types.collect::<Vec<_>>(), relations.collect()].map(|rows| aligned(&rows, &[]).join("\n"));
        let mut parts = [&[title][..], &tables].concat();
        // A single partition owns everything.
        if info.partitions > 1 {
            let title = format!("{} partitions ({}, generation {})", info.partitions, info.schedule, info.generation);
            parts.push(format!("{title}\n{}", partitions::table(self.by_partition.iter().map(|p| &p.report))));
        }
        if self.by_partition.iter().any(|partition| partition.coverage.is_some()) {
            parts.push(partitions::coverage_table(&self.by_partition));
        }
        parts.join("\n\n")
    }
}

fn type_rows(types: &[NodeTypeInfo]) -> Vec<Vec<String>> {
    let mut first = 0;
    let rows = types.iter().map(|of| {
        let chunks = first..first + of.chunks;
        first = chunks.end;
        type_row(of, chunks)
    });
    rows.collect()
}

/// `chunks` are those of the type among the chunks of the graph.
fn type_row(of: &NodeTypeInfo, chunks: Range<u32>) -> Vec<String> {
    let features = of.features.as_ref().map(|FeaturesInfo { dim, dtype, .. }| format!("{dim} x {dtype}"));
    let labels = of.classes.map(|classes| match of.labels {
        Some("targets") => format!("{classes} targets"),
        _ => format!("{classes} classes"),
    });
    let mut chunks = match chunks.len() {
        0 | 1 => chunks.start.to_string(),
        _ => format!("{}-{}", chunks.start, chunks.end - 1),
    };
    if of.chunks_present < of.chunks {
        chunks += &format!(" ({} here)", of.chunks_present);
    }
    let splits = [of.splits.train, of.splits.val, of.splits.test];
    let mut row = vec![printable(&of.name).into_owned(), of.nodes.to_string(), chunks, of.ids.to_owned()];
    row.push(of.times.as_ref().map_or_else(String::new, |times| times.axis.unit.to_owned()));
    row.extend([features, labels].map(Option::unwrap_or_default));
    row.extend(splits.map(|nodes| nodes.map_or_else(String::new, |nodes| nodes.to_string())));
    row.push(ByteSize(of.bytes).to_string());
    row
}

fn relation_row(of: &RelationInfo) -> Vec<String> {
    let features = of.edge_features.as_ref().map(|features| format!("{} x {}", features.dim, features.dtype));
    vec![
        printable(&of.name).into_owned(),
        of.edges.to_string(),
        if of.weighted { "yes" } else { "" }.to_owned(),
        of.times.as_ref().map_or_else(String::new, |times| times.axis.unit.to_owned()),
        features.unwrap_or_default(),
        of.aggregates
            .iter()
            .map(|of_kind| format!("{} ({})", of_kind.kind, of_kind.dtype))
            .collect::<Vec<_>>()
            .join(", "),
        of.reverse_of.as_ref().map_or_else(String::new, |name| printable(name).into_owned()),
        ByteSize(of.bytes).to_string(),
    ]
}
