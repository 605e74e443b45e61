//! Options and summary of the ingest of a graph with types.

use std::path::PathBuf;

use grappa_formats::schema::Schema;
use grappa_input::{EncodingOptions, Input, Reading};
use grappa_io::ledger::Ledger;

use crate::ingest::{edge_ingest::EdgeIngest, node_ingest::NodeIngest, options::WRITER, resources::Resources};

/// Options of [`ingest_graph`](super::ingest_graph).
#[derive(Debug, Clone)]
pub struct GraphIngestOptions {
    /// The node types.
    pub node_types: Vec<NodeTypeIngest>,
    /// The relations.
    pub relations: Vec<RelationIngest>,
    /// Memory, threads and scratch space.
    pub resources: Resources,
    /// The graph to write.
    pub out: PathBuf,
    /// Whether an existing graph or store of this name is replaced, when the new one is complete.
    pub replace: bool,
    /// Whether to continue an unfinished run.
    pub resume: bool,
    /// Name and version of the program, for the manifests.
    pub writer: String,
}

/// A node type.
///
/// Its nodes are the rows of a table of features with ids, the ids of a list, or the numbers below [`NodeIngest::number`]. If there is none
/// of these, its nodes are the ids that relations have.
#[derive(Debug, Clone)]
pub struct NodeTypeIngest {
    /// Its name.
    pub name: String,
    /// Its ids, data, splits and order.
    pub nodes: NodeIngest,
}

/// A relation: edges from nodes of one type to nodes of one type, which may be another one.
#[derive(Debug, Clone)]
pub struct RelationIngest {
    /// The type of sources.
    pub source: String,
    /// Its name. Relations between other types may share it.
    pub name: String,
    /// The type of destinations.
    pub destination: String,
    /// Its edges. A row without an id at one end is no edge. Edges that are held out leave the reverse relation, too.
    pub edges: EdgeIngest,
    /// How the columns of edge features become numbers.
    pub encoding: EncodingOptions,
    /// The name of a second relation, with the same edges in the other direction.
    pub reverse: Option<String>,
    /// An earlier relation of the options, by its place, if this one has the same edges in the other direction. It holds the same edges out.
    pub reverse_of: Option<usize>,
}

impl GraphIngestOptions {
    /// Options for a graph without types and relations, and defaults otherwise.
    pub fn new(out: PathBuf) -> Self {
        Self {
            node_types: Vec::new(),
            relations: Vec::new(),
            resources: Resources::default(),
            out,
            replace: false,
            resume: false,
            writer: WRITER.to_owned(),
        }
    }
}

impl NodeTypeIngest {
    /// A type with dense ids and no data.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), nodes: NodeIngest::default() }
    }
}

impl RelationIngest {
    /// The edges of `files` from nodes of the type `source` to nodes of the type `destination`.
    pub fn new([source, name, destination]: [&str; 3], files: impl IntoIterator<Item = impl Into<Input>>) -> Self {
        let edges = EdgeIngest { files: files.into_iter().map(Into::into).collect(), ..EdgeIngest::default() };
        Self {
            source: source.to_owned(),
            name: name.to_owned(),
            destination: destination.to_owned(),
            edges,
            encoding: EncodingOptions::default(),
            reverse: None,
            reverse_of: None,
        }
    }
}

/// Result of [`ingest_graph`](super::ingest_graph).
#[derive(Debug, Clone, PartialEq)]
pub struct GraphSummary {
    /// The node types, in the order of the options.
    pub node_types: Vec<NodeTypeSummary>,
    /// The relations, each followed by its reverse.
    pub relations: Vec<RelationSummary>,
    /// Total length of the graph's files in bytes.
    pub bytes_on_disk: u64,
    /// How the input files were read.
    pub readings: Vec<Reading>,
    /// The memory of each phase of this process, by consumer.
    pub memory: Ledger,
}

/// A node type that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTypeSummary {
    /// Its name.
    pub name: String,
    /// Number of nodes.
    pub nodes: u64,
    /// Number of chunks.
    pub chunks: u32,
    /// The names of features and classes.
    pub schema: Schema,
}

/// A relation that was written.
#[derive(Debug, Clone, PartialEq)]
pub struct RelationSummary {
    /// `source:name:destination`.
    pub name: String,
    /// Number of edges in the graph.
    pub edges: u64,
    /// Number of edges in the input.
    pub edges_read: u64,
    /// Number of lines and rows that are no edges: malformed ones that were skipped, and rows without an id.
    pub rejected: u64,
    /// The file that lists skipped lines, if there are any.
    pub rejects: Option<PathBuf>,
}
