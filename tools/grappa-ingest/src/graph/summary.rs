//! What was built, or would be, as text and as JSON.

use std::time::Duration;

use grappa_console::{ByteSize, Summary, count, duration, printable, table::aligned};
use grappa_engine::{
    ingest::{GraphIngestOptions, GraphSummary, Reading},
    io::ledger::Ledger,
};
use serde::Serialize;

use crate::readings::{DryRun, Input};

/// The summary of a graph. Field names are the keys of the JSON object.
#[derive(Serialize)]
pub struct BuiltGraph<'a> {
    nodes: u64,
    edges: u64,
    node_types: Vec<NodeType<'a>>,
    relations: Vec<Relation<'a>>,
    seconds: f64,
    bytes_on_disk: u64,
    inputs: Vec<Input<'a>>,
    /// The memory of each phase: who may take how much of `--memory`, and why.
    memory: &'a Ledger,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    readings: &'a [Reading],
}

#[derive(Serialize)]
struct NodeType<'a> {
    name: &'a str,
    nodes: u64,
    chunks: u32,
    feature_names: Vec<String>,
    class_names: &'a [String],
}

#[derive(Serialize)]
struct Relation<'a> {
    name: &'a str,
    edges: u64,
    edges_read: u64,
    rejected: u64,
    rejects: Option<String>,
}

impl<'a> BuiltGraph<'a> {
    pub fn new(options: &GraphIngestOptions, summary: &'a GraphSummary, elapsed: Duration) -> Self {
        let node_types = summary.node_types.iter().map(|node_type| NodeType {
            name: &node_type.name,
            nodes: node_type.nodes,
            chunks: node_type.chunks,
            feature_names: node_type.schema.feature_names(),
            class_names: &node_type.schema.classes,
        });
        let relations = summary.relations.iter().map(|relation| Relation {
            name: &relation.name,
            edges: relation.edges,
            edges_read: relation.edges_read,
            rejected: relation.rejected,
            rejects: relation.rejects.as_ref().map(|path| path.display().to_string()),
        });
        Self {
            nodes: summary.node_types.iter().map(|node_type| node_type.nodes).sum(),
            edges: summary.relations.iter().map(|relation| relation.edges).sum(),
            node_types: node_types.collect(),
            relations: relations.collect(),
            seconds: elapsed.as_secs_f64(),
            bytes_on_disk: summary.bytes_on_disk,
            inputs: summary.readings.iter().map(Input::from_reading).collect(),
            memory: &summary.memory,
            name: options.out.display().to_string(),
            readings: &summary.readings,
        }
    }
}

impl Summary for BuiltGraph<'_> {
    fn text(&self) -> String {
        let mut lines: Vec<String> = self.readings.iter().map(Reading::to_string).collect();
        lines.push(format!(
            "{}: {} nodes of {} types, {} edges of {} relations, {} on disk; {}",
            printable(&self.name),
            count(self.nodes),
            self.node_types.len(),
            count(self.edges),
            self.relations.len(),
            ByteSize(self.bytes_on_disk),
            duration(Duration::from_secs_f64(self.seconds)),
        ));
        let types = self.node_types.iter().map(|node_type| {
            vec![printable(node_type.name).into_owned(), format!("{} nodes", count(node_type.nodes)), String::new()]
        });
        let relations = self.relations.iter().map(|relation| {
            let rejected = match relation.rejected {
                0 => String::new(),
                rejected => format!("{} rows were no edges", count(rejected)),
            };
            vec![printable(relation.name).into_owned(), format!("{} edges", count(relation.edges)), rejected]
        });
        let rows: Vec<_> = types.chain(relations).collect();
        lines.extend(aligned(&rows, &[]).into_iter().map(|line| format!("  {line}")));
        lines.join("\n")
    }
}

/// The types and relations of a graph, and what each column of the input would become.
#[derive(Serialize)]
pub struct GraphDryRun<'a> {
    node_types: Vec<&'a str>,
    relations: Vec<String>,
    /// What is left out, and why.
    notes: &'a [String],
    #[serde(flatten)]
    columns: DryRun<'a>,
}

impl<'a> GraphDryRun<'a> {
    pub fn new(options: &'a GraphIngestOptions, readings: &'a [Reading], notes: &'a [String]) -> Self {
        let mut relations = Vec::new();
        for of in &options.relations {
            relations.push(format!("{}:{}:{}", of.source, of.name, of.destination));
            if let Some(reverse) = &of.reverse {
                relations.push(format!("{}:{reverse}:{}", of.destination, of.source));
            }
        }
        Self {
            node_types: options.node_types.iter().map(|node_type| node_type.name.as_str()).collect(),
            relations,
            notes,
            columns: DryRun::new(readings),
        }
    }
}

impl Summary for GraphDryRun<'_> {
    fn text(&self) -> String {
        let types = self.node_types.iter().map(|name| format!("node type {}", printable(name)));
        let relations = self.relations.iter().map(|name| format!("relation {}", printable(name)));
        let notes = self.notes.iter().cloned();
        types.chain(relations).chain(notes).chain([self.columns.text()]).collect::<Vec<_>>().join("\n")
    }
}
