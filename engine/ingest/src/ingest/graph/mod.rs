//! Builds a graph with several node types and relations.
//!
//! ```text
//! open all input files                                               plan
//! each node type: ids, permutation, data of nodes -> nodes-<t>       members
//! each relation: the two passes over edges        -> relation-<r>    members
//! manifest, rename
//! ```
//!
//! Each member is a folder of its own, with a journal of its own, and is written by the steps of [`ingest`](super::ingest()). The graph
//! grows in one folder. Its journal has the options of all members, and a member that is complete is not written again. So a killed run is
//! resumed within the member that it was writing.

mod members;
mod options;
mod plan;
mod times;

use std::sync::{Mutex, PoisonError};

use grappa_formats::{
    graph::{GraphManifest, NodeTypeEntry, RelationEntry},
    manifest::Manifest,
};
use grappa_input::Reading;
use grappa_io::{Error, Result, durable::Destination, ledger::Ledger, progress::Progress};
use grappa_storage::{files, read_schema, writer::StoreFolder};

pub use self::options::{
    GraphIngestOptions, GraphSummary, NodeTypeIngest, NodeTypeSummary, RelationIngest, RelationSummary,
};
pub use self::plan::RELATIONS_MAX;
use self::{members::GraphJob, plan::GraphPlan};
use crate::ingest::journal::IngestJournal;

/// Builds a graph with node types and relations.
///
/// # Errors
/// As for [`ingest`](super::ingest()). If the nodes of a type are listed, an edge with another id is an error, or a skipped line.
pub fn ingest_graph(options: &GraphIngestOptions, progress: &dyn Progress) -> Result<GraphSummary> {
    let options = &plan::resolved(options, progress)?;
    let mut plan = GraphPlan::open(options, progress)?;
    let readings = plan.readings();
    let fingerprint = plan::fingerprint(options)?;
    let out = Destination { path: &options.out, replaces: options.replace };
    let (store, begun) = StoreFolder::begin(out, options.resources.tmp.as_deref(), options.resume)?;
    let written = match IngestJournal::path(store.path()).exists() {
        true => IngestJournal::resume(store.path(), &fingerprint),
        false if store.path().join(files::MANIFEST).exists() => return commit_again(options, &store, readings),
        false => IngestJournal::create(store.path(), fingerprint, 0),
    };
    written
        .and_then(|_| write_members(options, &mut plan, &store, progress))
        .map(|summary| GraphSummary { readings, ..summary })
        .map_err(|error| store.failed(begun, error))
}

/// Finds what [`ingest_graph`] would make of each column of edges and tables, and writes nothing.
///
/// # Errors
/// As for [`ingest_graph`], if the options contradict each other, or an input file can't be read as they say.
pub fn examine_graph(options: &GraphIngestOptions, progress: &dyn Progress) -> Result<Vec<Reading>> {
    let mut options = plan::resolved(options, progress)?;
    for node_type in &mut options.node_types {
        node_type.nodes.data.encoding.examine = true;
    }
    Ok(GraphPlan::open(&options, progress)?.readings())
}

/// Writes all members that are not complete, and completes the graph.
fn write_members(
    options: &GraphIngestOptions,
    plan: &mut GraphPlan,
    store: &StoreFolder,
    progress: &dyn Progress,
) -> Result<GraphSummary> {
    if store.committing_graph()?.is_some() {
        return commit_again(options, store, Vec::new());
    }
    let ledger = Mutex::new(Ledger::new(options.resources.memory));
    let job = GraphJob { options, store, progress, ledger: &ledger };
    let mut types = Vec::new();
    for number in 0..options.node_types.len() {
        let name = &options.node_types[number].name;
        types.push(job.write_node_type(plan, number).map_err(Error::of_member(name))?);
    }
    let mut relations: Vec<Manifest> = Vec::new();
    for number in 0..plan.relations.len() {
        let name = plan::relation_name(&options.relations[plan.relations[number].input]);
        let written = job.write_relation(plan, number, &types).map_err(Error::of_member(name))?;
        if let Some(other) = plan.relations[number].reverse_of.map(|other| &relations[other as usize])
            && other.edges != written.edges
        {
            return Err(plan.not_a_reverse(options, number, [other.edges, written.edges]));
        }
        relations.push(written);
    }
    let named = options.node_types.iter().zip(&types);
    let node_types = named.map(|(of, member)| NodeTypeEntry { name: of.name.clone(), digest: member.digest() });
    let joins = plan.relations.iter().zip(&relations);
    let entries = joins.map(|(relation, member)| RelationEntry {
        source: relation.source as u32,
        name: relation.name.clone(),
        destination: relation.destination as u32,
        reverse_of: relation.reverse_of,
        digest: member.digest(),
    });
    let manifest = GraphManifest {
        writer: options.writer.clone(),
        node_types: node_types.collect(),
        relations: entries.collect(),
        generator: String::new(),
    };
    store.commit_graph(&manifest)?;
    let memory = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(GraphSummary { memory, ..summary(options, &manifest)? })
}

/// Completes a graph whose commit an earlier process has begun.
fn commit_again(options: &GraphIngestOptions, store: &StoreFolder, readings: Vec<Reading>) -> Result<GraphSummary> {
    let manifest = store.committing_graph()?.expect("there is a manifest");
    store.commit_graph(&manifest)?;
    Ok(GraphSummary { readings, ..summary(options, &manifest)? })
}

/// The summary of a graph that is complete.
fn summary(options: &GraphIngestOptions, graph: &GraphManifest) -> Result<GraphSummary> {
    let mut bytes_on_disk = graph.encode().len() as u64;
    let (mut node_types, mut relations) = (Vec::new(), Vec::new());
    for (number, entry) in graph.node_types.iter().enumerate() {
        let folder = options.out.join(files::node_type_folder(number));
        let (manifest, bytes) = members::complete(&folder)?;
        bytes_on_disk += bytes;
        let schema = if manifest.has_schema() { read_schema(&folder, &manifest)? } else { Default::default() };
        let (name, chunks) = (entry.name.clone(), manifest.chunks.len() as u32);
        node_types.push(NodeTypeSummary { name, nodes: manifest.nodes, chunks, schema });
    }
    for number in 0..graph.relations.len() {
        let (manifest, bytes) = members::complete(&options.out.join(files::relation_folder(number)))?;
        bytes_on_disk += bytes;
        let rejects = members::rejects_path(&options.out, number);
        relations.push(RelationSummary {
            name: graph.relation_name(number),
            edges: manifest.edges,
            edges_read: manifest.edges_read,
            rejected: manifest.rejected,
            rejects: (manifest.rejected > 0 && rejects.exists()).then_some(rejects),
        });
    }
    let memory = Ledger::new(options.resources.memory);
    Ok(GraphSummary { node_types, relations, bytes_on_disk, readings: Vec::new(), memory })
}
