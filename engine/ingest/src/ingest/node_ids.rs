//! The steps from external ids to nodes that come before the edges: dictionary, node permutation and chunks.

use std::sync::Arc;

use grappa_formats::{
    chunks::ChunkMap,
    container::FileKind,
    manifest::{ExternalIds, IdSpec, PermutationSpec},
    permutation::Feistel,
};
use grappa_io::{Error, Result, container::ContainerFile};
use grappa_storage::{
    NodePermutation, NodeTable,
    files::{DICTIONARY, PERMUTATION},
};

use crate::{
    ids::{IdMap, dictionary::Dictionary, keys::StringHash},
    ingest::{
        Assign, Run, dictionary,
        nodes::NodeFiles,
        options::{RowIds, open_edges},
        permutation, plan,
        state::{Scan, State},
    },
};

impl Run<'_> {
    /// Builds the dictionary of ids that are not dense. Counts the nodes and edges.
    pub(super) fn scan_dictionary(&self, state: &State, files: &NodeFiles) -> Result<Scan> {
        plan::check_before_ids(self.options.chunks, &self.budget)?;
        let source = open_edges(self.options, self.nodes, self.budget.block_bytes)?;
        let lists = files.lists_of_nodes(self.options).map(|list| list.open(self.options));
        let lists = lists.collect::<Result<_>>()?;
        let (scan, file) = dictionary::build(&source, lists, &self.budget, &self.folder, self.progress)?;
        source.check()?;
        if let Some(nodes) = self.options.nodes
            && nodes != scan.nodes
        {
            let with = |list: RowIds<'_>| match list {
                RowIds::List(_) => " and --node-ids".to_owned(),
                RowIds::Table(path) => format!(" and {}", path.display()),
            };
            return Err(Error::conflict(
                format!(
                    "--nodes {nodes} was given, but the edges{} have {} different ids, and with --ids sparse or string \
                     these are the nodes",
                    files.lists_of_nodes(self.options).map(with).collect::<String>(),
                    scan.nodes
                ),
                "omit --nodes",
            ));
        }
        state.listed(scan, file)?;
        Ok(scan)
    }

    /// The node permutation of `nodes` nodes, its entry in the manifest, and the chunks.
    pub(super) fn permutation(
        &self,
        state: &State,
        nodes: u64,
    ) -> Result<(NodePermutation, PermutationSpec, ChunkMap)> {
        let (permutation, spec) = match &self.options.assign {
            Assign::Random => {
                let seed = self.options.seed;
                (
                    NodePermutation::Feistel(Feistel::new(nodes, seed)),
                    PermutationSpec::Feistel(seed),
                )
            }
            Assign::Range => (NodePermutation::Identity, PermutationSpec::Identity),
            Assign::File(path) => {
                // Half of the user's budget is for the table, and `self.budget` is the other half.
                let wanted = permutation::memory(nodes);
                if wanted > self.budget.memory {
                    return Err(Error::Budget {
                        what: format!("the node permutation of {nodes} nodes, which may take half of the memory"),
                        given: self.options.memory,
                        least: 2 * wanted,
                        remedy: "raise --memory, or choose another --assign, which takes none",
                    });
                }
                let parts = match state.part_sizes() {
                    Some(parts) => parts,
                    None => {
                        let dense = self.options.ids == ExternalIds::Dense;
                        let remedy = |parts| match parts > nodes && dense {
                            true => "; if the last nodes have no edges, give the number of nodes with --nodes",
                            false => "; give one line per node, in the order of their ids",
                        };
                        let (parts, file) = permutation::build(path, nodes, &self.folder, remedy, self.progress)?;
                        state.permuted(parts.clone(), file)?;
                        parts
                    }
                };
                let chunks = plan::chunk_map_of_parts(&parts, self.options.chunks)?;
                let file = ContainerFile::open(&self.folder.path().join(PERMUTATION), FileKind::PERMUTATION)?;
                let table = Arc::new(NodeTable::load(file)?);
                return Ok((NodePermutation::Table(table), PermutationSpec::Table, chunks));
            }
        };
        let chunks = plan::chunk_map(nodes, self.options.chunks)?;
        Ok((permutation, spec, chunks))
    }

    /// The map from external ids to nodes, and its entry in the manifest.
    pub(super) fn id_map(
        &self,
        nodes: u64,
        permutation: NodePermutation,
        spec: PermutationSpec,
    ) -> Result<(IdMap, IdSpec)> {
        let ids = match self.options.ids {
            ExternalIds::Dense => IdMap::dense(nodes, permutation),
            ExternalIds::Sparse | ExternalIds::String => {
                let path = self.folder.path().join(DICTIONARY);
                let dictionary = Dictionary::open(&path, StringHash::default())?;
                IdMap::listed(dictionary, permutation)
            }
        };
        let spec = IdSpec {
            external: self.options.ids,
            permutation: spec,
        };
        Ok((ids, spec))
    }
}
