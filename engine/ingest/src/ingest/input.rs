//! The input files of an ingest, opened before anything is written, so that most mistakes are found then.

use grappa_formats::{NODES_MAX, manifest::ExternalIds};
use grappa_input::{EdgeSource, Reading};
use grappa_io::{Error, Result, progress::Progress};

use crate::ingest::{
    edge_values::EdgeValues,
    node_files::NodeFiles,
    options::{IngestOptions, open_edges},
    plan::IngestBudget,
};

pub struct IngestInput {
    pub edges: EdgeSource,
    pub values: EdgeValues,
    /// The number of nodes, if it is known before the edges are read.
    pub nodes: Option<u64>,
    pub files: NodeFiles,
}

impl IngestInput {
    /// Opens all files. Warns about input that is probably not meant.
    pub fn open(options: &IngestOptions, budget: &IngestBudget, progress: &dyn Progress) -> Result<Self> {
        let files = NodeFiles::open(options, budget, progress)?;
        files.check_split(options)?;
        files.check_node_ids(options)?;
        let is_dense = options.ids == ExternalIds::Dense;
        let mut nodes = options.nodes.or_else(|| files.rows().filter(|_| is_dense));
        if let Some(nodes) = nodes.filter(|&nodes| nodes > NODES_MAX) {
            return Err(Error::limit(
                format!("the graph has {nodes} nodes"),
                format!("{NODES_MAX} (2^40)"),
                "give a smaller --nodes",
            ));
        }
        let mut edges = open_edges(options, nodes, budget.block_bytes)?;
        if let Some(stated) = edges.stated_nodes().filter(|_| nodes.is_none() && is_dense) {
            nodes = Some(stated);
            edges = open_edges(options, nodes, budget.block_bytes)?;
        }
        let values = EdgeValues::from_source(options, &edges)?;
        for warning in edges.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(Self { edges, values, nodes, files })
    }

    pub fn readings(&self) -> Vec<Reading> {
        self.edges.readings().into_iter().chain(self.files.readings()).collect()
    }
}
