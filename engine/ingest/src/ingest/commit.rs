//! The last step of an ingest: the manifest, the file of skipped lines, and warnings about the edges.

use grappa_formats::manifest::{ExternalIds, Manifest, Sources};
use grappa_input::{EdgeSource, LimitSource, read_ids_from_one};
use grappa_io::Result;
use grappa_storage::files;

use crate::ingest::{
    edge_split::EdgeSplit,
    edge_values::EdgeValues,
    job::IngestJob,
    journal::Counts,
    node_data::NodeData,
    node_ids::GraphIds,
    options::{IngestOptions, Summary, rejects_path},
    rejects,
};

/// Writes the manifest and completes the store.
pub fn commit(
    job: &IngestJob<'_>,
    edges: &EdgeSource,
    values: EdgeValues,
    ids: GraphIds,
    mut node_data: NodeData,
) -> Result<Summary> {
    let mut files = [job.journal.files(), node_data.split_files].concat();
    node_data.schema.edge_features = values.columns;
    if !node_data.schema.is_empty() {
        files.push(job.store.write_file(files::SCHEMA, node_data.schema.encode())?);
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let manifest = Manifest {
        writer: writer(job.options),
        features: node_data.features,
        labels: node_data.labels,
        splits: node_data.splits,
        weighted: edges.weighted(),
        files,
        ..manifest_of_edges(job, ids)
    };
    let input = job.journal.input_stage();
    if manifest.rejected > 0 {
        rejects::collect(job.store.lasting_scratch(), &input, &rejects_path(job.options))?;
        warn_of_unknown_nodes(edges, input.counts(), manifest.nodes);
    }
    if job.options.ids == ExternalIds::Dense && edges.counts_from_one() {
        tracing::warn!(
            "no edge has node 0, and node 1 has edges: if ids count from 1, node 0 is one too many, and rows of features and labels \
             belong to other nodes; {}",
            read_ids_from_one(manifest.nodes - 1)
        );
    }
    let bytes_on_disk = job.store.commit(&manifest)?;
    Summary::from_manifest(&manifest, bytes_on_disk, job.options)
}

/// The manifest of a store without data of nodes and weights. Takes the chunks out of the journal.
pub fn manifest_of_edges(job: &IngestJob<'_>, ids: GraphIds) -> Manifest {
    let (chunks, counts) = (job.journal.take_chunks(), job.journal.input_stage().counts());
    Manifest {
        sources: Sources::Nodes,
        writer: job.options.writer.clone(),
        nodes: ids.chunks.nodes(),
        edges: chunks.iter().map(|chunk| chunk.edges).sum(),
        chunk_starts: ids.chunks.starts().to_vec(),
        chunks,
        ids: ids.spec,
        features: None,
        labels: None,
        splits: Vec::new(),
        weighted: false,
        edge_options: job.options.edge_options,
        edges_read: counts.read,
        rejected: counts.rejected,
        generator: String::new(),
        files: job.journal.files(),
    }
}

/// The program, and how it drew splits.
fn writer(options: &IngestOptions) -> String {
    let mut writer = options.writer.clone();
    if let Some(split) = &options.splits.random {
        writer += &format!("; split: {}", split.describe());
    }
    if let Some(split) = options.splits.edges.as_ref().and_then(EdgeSplit::describe) {
        writer += &format!("; edge split: {split}");
    }
    writer
}

/// Warns about edges that were skipped although their lines are well formed.
fn warn_of_unknown_nodes(edges: &EdgeSource, counts: Counts, nodes: u64) {
    let unknown = counts.unknown_nodes;
    if unknown == 0 {
        return;
    }
    let why = match &edges.options().limited_by {
        Some(LimitSource::Rows(file)) => format!(
            "name nodes without a row in {}, which has {nodes}; add the rows, if these nodes exist",
            file.display()
        ),
        Some(LimitSource::Count(file)) => format!(
            "name nodes that are not below {nodes}, the number of nodes in {}; raise it, if these nodes exist",
            file.display()
        ),
        None => format!("name nodes that are not below --nodes {nodes}; raise it, if these nodes exist"),
    };
    let others = match counts.rejected - unknown {
        0 => String::new(),
        others => format!("; {others} more lines were left out because they are no edges"),
    };
    tracing::warn!("{unknown} edges were left out because they {why}{others}");
}
