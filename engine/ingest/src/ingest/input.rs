//! The input files of an ingest, opened before anything is written, so that most mistakes are found then.

use grappa_formats::{NODES_MAX, manifest::ExternalIds};
use grappa_input::{EdgeSource, Reading};
use grappa_io::{Error, Result, progress::Progress};

use crate::ingest::{
    edge_ingest::{EdgeReader, EndNodes},
    edge_values::EdgeValues,
    node_files::NodeFiles,
    node_ingest::NodeIngest,
    options::IngestOptions,
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
        let IngestOptions { nodes: of_nodes, edges: of_edges, .. } = options;
        let files = NodeFiles::open(of_nodes, &of_edges.form, budget, progress)?;
        let mut nodes = known_number(of_nodes, &files)?;
        let open =
            |nodes| EdgeReader { input: of_edges, ends: EndNodes::both(of_nodes, nodes) }.open(budget.block_bytes);
        let mut edges = open(nodes)?;
        let is_dense = of_nodes.ids == ExternalIds::Dense;
        if let Some(stated) = edges.stated_nodes().filter(|_| nodes.is_none() && is_dense) {
            nodes = Some(stated);
            edges = open(nodes)?;
        }
        let values = EdgeValues::from_source(of_edges, &edges)?;
        for warning in edges.warnings() {
            tracing::warn!("{warning}");
        }
        Ok(Self { edges, values, nodes, files })
    }

    /// Opens the edges again.
    pub fn reader<'a>(&self, options: &'a IngestOptions) -> EdgeReader<'a> {
        EdgeReader { input: &options.edges, ends: EndNodes::both(&options.nodes, self.nodes) }
    }

    pub fn readings(&self) -> Vec<Reading> {
        self.edges.readings().into_iter().chain(self.files.readings()).collect()
    }
}

/// The number of nodes, if an option or the rows of a file tell it. Fails if options contradict the files.
pub fn known_number(nodes: &NodeIngest, files: &NodeFiles) -> Result<Option<u64>> {
    files.check_split(nodes)?;
    files.check_node_ids(nodes)?;
    let number = nodes.number.or_else(|| files.rows().filter(|_| nodes.ids == ExternalIds::Dense));
    match number {
        Some(number) if number > NODES_MAX => Err(Error::limit(
            format!("the graph has {number} nodes"),
            format!("{NODES_MAX} (2^40)"),
            "give a smaller --nodes",
        )),
        number => Ok(number),
    }
}
