//! Writes the members of a graph: each node type and each relation, in a folder of its own.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Mutex,
};

use grappa_formats::manifest::{ExternalIds, Manifest};
use grappa_io::{Error, Result, ledger::Ledger, progress::Progress, text::printable};
use grappa_storage::{
    files, read_manifest_of_member,
    writer::{StoreFolder, with_suffix},
};

use super::{
    options::GraphIngestOptions,
    plan::{GraphPlan, relation_name},
};
use crate::ingest::{
    BegunJournal, begin_journal, commit,
    edge_ingest::{EdgeIngest, EdgeReader, EndNodes},
    edge_values::EdgeValues,
    edges::{self, ends::EdgeEnds, input_edges::InputEdges},
    job::IngestJob,
    journal::IngestJournal,
    node_data,
    node_ids::{self, GraphIds, KnownNodes, edges_of},
    node_ingest::NodeIngest,
    plan::{self, IngestBudget},
};

/// The ingest of a graph that has begun.
pub struct GraphJob<'a> {
    pub options: &'a GraphIngestOptions,
    /// The folder of the graph.
    pub store: &'a StoreFolder,
    pub progress: &'a dyn Progress,
    /// The memory of the phases so far, of all members.
    pub ledger: &'a Mutex<Ledger>,
}

/// The file of skipped lines of a relation, beside the graph.
pub fn rejects_path(out: &Path, relation: usize) -> PathBuf {
    with_suffix(out, &format!(".{}.rejects", files::relation_folder(relation)))
}

/// The manifest of a complete member, and the length of its files in bytes.
pub fn complete(folder: &Path) -> Result<(Manifest, u64)> {
    let manifest = read_manifest_of_member(folder)?;
    let files: u64 = manifest.files.iter().map(|file| file.bytes).sum();
    let bytes = files + manifest.encode().len() as u64;
    Ok((manifest, bytes))
}

impl GraphJob<'_> {
    /// Writes a node type, unless it is complete. Returns its manifest.
    pub fn write_node_type(&self, plan: &mut GraphPlan, number: usize) -> Result<Manifest> {
        let (options, nodes) = (self.options, &self.options.node_types[number].nodes);
        let (name, edges) = (files::node_type_folder(number), EdgeIngest::default());
        self.write_member(&name, nodes, &edges, nodes.budget(&options.resources), |job| {
            let mut files = plan.node_types[number].files.take().expect("a node type is written once");
            let known = KnownNodes { number: plan.node_types[number].number, edges: 0, files: &files };
            let scan = node_ids::scan(job, &plan.id_columns(options, number), &known)?;
            let written = node_data::ids_of_layout(job, &mut files, scan.nodes).and_then(|mut ids| {
                let node_data = node_data::write(job, files, &mut ids)?;
                commit::commit_node_type(job, &ids, node_data, &options.writer)
            });
            written.map_err(|error| match error {
                // To sort the ids takes long. They are kept for a run with more memory.
                Error::Budget { .. } if nodes.ids != ExternalIds::Dense => {
                    Error::Interrupted { kept: self.store.kept(), source: Box::new(error) }
                }
                error => error,
            })
        })
    }

    /// Writes a relation between types that are complete, unless it is complete, too. Returns its manifest.
    pub fn write_relation(&self, plan: &GraphPlan, number: usize, types: &[Manifest]) -> Result<Manifest> {
        let options = self.options;
        let relation = &plan.relations[number];
        let edges = &options.relations[relation.input].edges;
        let [source, destination] = [relation.source, relation.destination];
        let name = files::relation_folder(number);
        let nodes = &options.node_types[destination].nodes;
        self.write_member(&name, nodes, edges, plan.budget(options, relation.input), |job| {
            let open = |of: usize| {
                let ids = GraphIds::of_type(&self.store.path().join(files::node_type_folder(of)), &types[of])?;
                Ok(GraphIds { are_listed: plan.node_types[of].listed_in.is_some(), ..ids })
            };
            let mut destinations = open(destination)?;
            let mut sources = (source != destination).then(|| open(source)).transpose()?;
            let tables = sources.iter().chain([&destinations]).map(GraphIds::permutation_memory).sum::<u64>();
            if tables > job.budget.memory {
                return Err(job.budget.too_small(
                    "the node permutations of both ends, which may take half of the memory".to_owned(),
                    tables,
                    "raise --memory, or choose another --assign, which takes none",
                ));
            }
            let mut ends = match &mut sources {
                Some(sources) => EdgeEnds::of_two_types(sources, &mut destinations),
                None => EdgeEnds::of_one_type(&mut destinations),
            };
            let present = ends.chunks().destinations.chunks();
            plan::check_buckets(ends.chunks(), present.into())?;
            let directory_bytes = plan::directory_memory(ends.chunks(), edges.directories(), &job.budget)?;
            let reader = self.reader_of_types(plan, relation.input, types);
            let opened = reader.open(job.budget.block_bytes)?;
            let values = EdgeValues::from_source(edges, &opened)?;
            let count = edges_of(&opened);
            let is_reversed = relation.is_turned;
            let input = InputEdges { reader, source: &opened, values: &values, edges: count, is_reversed };
            edges::write(job, &input, &mut ends, directory_bytes)?;
            let rejects = rejects_path(&options.out, number);
            let manifest = commit::commit_relation(job, &opened, values, &ends, &options.writer, &rejects)?;
            let unknown = job.journal.unknown_nodes();
            if unknown > 0 {
                tracing::warn!(
                    "{}: {unknown} edges were left out because an end is no node of its type",
                    printable(&relation_name(&options.relations[relation.input]))
                );
            }
            Ok(manifest)
        })
    }

    /// Opens edges between types that are complete, so the numbers of their nodes are known.
    fn reader_of_types(&self, plan: &GraphPlan, input: usize, types: &[Manifest]) -> EdgeReader<'_> {
        let EdgeReader { input: edges, ends } = plan.reader(self.options, input);
        let ends = ends.map(|end| {
            let node_type =
                self.options.node_types.iter().position(|node_type| std::ptr::eq(&node_type.nodes, end.nodes));
            EndNodes { number: Some(types[node_type.expect("an end is of a type")].nodes), ..end }
        });
        EdgeReader { input: edges, ends }
    }

    /// Writes a member with `write`, unless it is complete. Returns its manifest.
    fn write_member(
        &self,
        name: &str,
        nodes: &NodeIngest,
        edges: &EdgeIngest,
        mut budget: IngestBudget,
        write: impl FnOnce(&IngestJob<'_>) -> Result<Manifest>,
    ) -> Result<Manifest> {
        let resources = &self.options.resources;
        if let Some(manifest) = self.store.complete_member(name, resources.threads, self.progress)? {
            return Ok(manifest);
        }
        let store = &self.store.member(name)?;
        let journal: IngestJournal = match begin_journal(store, BTreeMap::new(), resources, &mut budget, self.progress)?
        {
            BegunJournal::Open(journal) => *journal,
            BegunJournal::Committed(manifest, _) => return Ok(*manifest),
        };
        let (progress, ledger) = (self.progress, self.ledger);
        write(&IngestJob { nodes, edges, resources, budget, store, journal, progress, ledger })
    }
}
