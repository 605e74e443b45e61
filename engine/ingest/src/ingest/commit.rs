//! The last step of an ingest: the manifest, the file of skipped lines, and warnings about the edges.

use std::path::Path;

use grappa_formats::{
    chunks::ChunkMap,
    container::FileKind,
    manifest::{ChunkEntry, EdgeOptions, ExternalIds, FileEntry, IdSpec, Manifest, PermutationSpec, Sources},
    schema::Schema,
};
use grappa_input::{EdgeEnd, EdgeSource, LimitSource, read_ids_from_one};
use grappa_io::{Result, container::ContainerFile};
use grappa_storage::files;

use crate::ingest::{
    edge_split::EdgeSplit,
    edge_values::EdgeValues,
    edges::ends::EdgeEnds,
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
    options: &IngestOptions,
) -> Result<Summary> {
    node_data.schema.edge_features = values.columns;
    let manifest = manifest_of_edges(job, &ids, &options.writer);
    let manifest = with_node_data(job, Manifest { weighted: edges.weighted(), ..manifest }, node_data)?;
    collect_rejects(job, &manifest, &rejects_path(&options.out))?;
    warn_of_unknown_nodes(edges, job.journal.edge_counts(), manifest.nodes);
    if job.nodes.ids == ExternalIds::Dense && edges.counts_from_one() {
        tracing::warn!(
            "no edge has node 0, and node 1 has edges: if ids count from 1, node 0 is one too many, and rows of features and labels \
             belong to other nodes; {}",
            read_ids_from_one(manifest.nodes - 1)
        );
    }
    let bytes_on_disk = job.store.commit(&manifest)?;
    Summary::from_manifest(&manifest, bytes_on_disk, options)
}

/// Writes the manifest of a node type and completes its folder.
pub fn commit_node_type(job: &IngestJob<'_>, ids: &GraphIds, node_data: NodeData, program: &str) -> Result<Manifest> {
    let chunks = vec![ChunkEntry::of_buckets(Vec::new()); ids.chunks.chunks() as usize];
    let manifest = Manifest { sources: Sources::None, ..manifest_of_chunks(&ids.chunks, chunks) };
    let manifest = Manifest { writer: program.to_owned(), ids: ids.spec.clone(), ..manifest };
    let manifest = with_node_data(job, manifest, node_data)?;
    job.store.commit(&manifest)?;
    Ok(manifest)
}

/// Writes the manifest of a relation and completes its folder. The file of skipped lines is `rejects`.
pub fn commit_relation(
    job: &IngestJob<'_>,
    edges: &EdgeSource,
    values: EdgeValues,
    ends: &EdgeEnds<'_>,
    program: &str,
    rejects: &Path,
) -> Result<Manifest> {
    let manifest = manifest_of_edges(job, ends.ids(EdgeEnd::Target), program);
    let manifest = Manifest {
        weighted: edges.weighted(),
        ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
        sources: Sources::Type(ends.chunks().sources.starts().to_vec()),
        ..manifest
    };
    let schema = Schema { edge_features: values.columns, ..Schema::default() };
    let manifest = with_schema(job, manifest, &schema)?;
    if job.journal.input_stage().workers.values().any(|worker| worker.counts.rejects.bytes > 0) {
        collect_rejects(job, &manifest, rejects)?;
    }
    job.store.commit(&manifest)?;
    Ok(manifest)
}

/// The same manifest with the data of nodes.
fn with_node_data(job: &IngestJob<'_>, manifest: Manifest, node_data: NodeData) -> Result<Manifest> {
    let NodeData { features, labels, splits, split_files, schema } = node_data;
    let files = [job.journal.files(), split_files].concat();
    with_schema(job, Manifest { features, labels, splits, files, ..manifest }, &schema)
}

/// The same manifest with how splits were drawn, and with the file of a schema, unless it is empty.
fn with_schema(job: &IngestJob<'_>, mut manifest: Manifest, schema: &Schema) -> Result<Manifest> {
    manifest.writer = writer(&manifest.writer, job);
    if !schema.is_empty() {
        manifest.files.push(job.store.write_file(files::SCHEMA, schema.encode())?);
    }
    if job.edges.form.columns.time.is_some() {
        manifest.files.push(entry_of(job, files::TIME_AXIS, FileKind::TIME_AXIS)?);
    }
    manifest.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(manifest)
}

/// The manifest's entry of a file that is complete.
fn entry_of(job: &IngestJob<'_>, path: &str, kind: FileKind) -> Result<FileEntry> {
    let file = ContainerFile::open(&job.store.path().join(path), kind)?;
    Ok(FileEntry { path: path.to_owned(), bytes: file.bytes(), digest: file.digest() })
}

/// Writes the file of skipped lines, if there are any.
fn collect_rejects(job: &IngestJob<'_>, manifest: &Manifest, rejects: &Path) -> Result<()> {
    match manifest.rejected {
        0 => Ok(()),
        _ => rejects::collect(job.store.lasting_scratch(), &job.journal.input_stage(), rejects),
    }
}

/// The manifest of a store without data of nodes and weights. Takes the chunks out of the journal.
pub fn manifest_of_edges(job: &IngestJob<'_>, ids: &GraphIds, writer: &str) -> Manifest {
    let (chunks, counts) = (job.journal.take_chunks(), job.journal.edge_counts());
    Manifest {
        writer: writer.to_owned(),
        ids: ids.spec.clone(),
        edge_options: job.edges.options,
        edges_read: counts.read,
        rejected: counts.rejected,
        files: job.journal.files(),
        ..manifest_of_chunks(&ids.chunks, chunks)
    }
}

/// A manifest of chunks alone.
fn manifest_of_chunks(map: &ChunkMap, chunks: Vec<ChunkEntry>) -> Manifest {
    Manifest {
        sources: Sources::Nodes,
        writer: String::new(),
        nodes: map.nodes(),
        edges: chunks.iter().map(|chunk| chunk.edges).sum(),
        chunk_starts: map.starts().to_vec(),
        chunks,
        ids: IdSpec { external: ExternalIds::Dense, permutation: PermutationSpec::Identity },
        features: None,
        labels: None,
        splits: Vec::new(),
        weighted: false,
        edge_options: EdgeOptions::default(),
        edges_read: 0,
        rejected: 0,
        generator: String::new(),
        files: Vec::new(),
    }
}

/// The program, and how it drew splits.
fn writer(program: &str, job: &IngestJob<'_>) -> String {
    let mut writer = program.to_owned();
    if let Some(split) = &job.nodes.splits.random {
        writer += &format!("; split: {}", split.describe());
    }
    if let Some(split) = job.edges.split.as_ref().and_then(EdgeSplit::describe) {
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
    let limited_by = edges.options().ends.iter().find_map(|end| end.limited_by.as_ref());
    let why = match limited_by {
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
