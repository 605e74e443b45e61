//! Generates a graph with types, and tells what it has.

use std::time::{Duration, Instant};

use grappa_console::{ByteSize, Console, Summary, count, duration, printable, signals, table::aligned};
use grappa_engine::generate::{GeneratedGraph, GraphOptions, generate_graph, partial_folder};
use serde::Serialize;

/// The summary. Field names are the keys of the JSON object.
#[derive(Serialize)]
struct Generated {
    nodes: u64,
    edges: u64,
    node_types: Vec<NodeType>,
    relations: Vec<Relation>,
    seconds: f64,
    bytes_on_disk: u64,
    #[serde(skip)]
    name: String,
}

#[derive(Serialize)]
struct NodeType {
    name: String,
    nodes: u64,
}

#[derive(Serialize)]
struct Relation {
    name: String,
    edges: u64,
}

/// Generates the graph of the options.
pub fn generate(options: &GraphOptions, console: &Console) -> anyhow::Result<()> {
    let begin = Instant::now();
    signals::leaves_folder(partial_folder(&options.out), "rerun with --resume to continue");
    let GeneratedGraph { node_types, relations, bytes_on_disk } = generate_graph(options, &console.bars())?;
    console.finish(&Generated {
        nodes: node_types.iter().map(|(_, nodes)| nodes).sum(),
        edges: relations.iter().map(|(_, edges)| edges).sum(),
        node_types: node_types.into_iter().map(|(name, nodes)| NodeType { name, nodes }).collect(),
        relations: relations.into_iter().map(|(name, edges)| Relation { name, edges }).collect(),
        seconds: begin.elapsed().as_secs_f64(),
        bytes_on_disk,
        name: options.out.display().to_string(),
    })
}

impl Summary for Generated {
    fn text(&self) -> String {
        let types = self.node_types.iter().map(|of| (&of.name, format!("{} nodes", count(of.nodes))));
        let relations = self.relations.iter().map(|of| (&of.name, format!("{} edges", count(of.edges))));
        let rows: Vec<_> =
            types.chain(relations).map(|(name, size)| vec![printable(name).into_owned(), size]).collect();
        let first = format!(
            "{}: {} nodes of {} types, {} edges of {} relations, {} on disk; {}",
            printable(&self.name),
            count(self.nodes),
            self.node_types.len(),
            count(self.edges),
            self.relations.len(),
            ByteSize(self.bytes_on_disk),
            duration(Duration::from_secs_f64(self.seconds)),
        );
        let lines = aligned(&rows, &[]).into_iter().map(|line| format!("  {line}"));
        [first].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}
