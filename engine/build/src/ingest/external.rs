//! External ids to nodes: what has to be found out before edges can be mapped.

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
        Assign, Run,
        dictionary::{self, hashes_path},
        options::open_edges,
        permutation, plan,
        state::{Scan, State},
    },
};

impl Run<'_> {
    /// The number of nodes and edges, for which ids that are not dense are put into a dictionary.
    pub(super) fn scan_dictionary(&self, state: &State) -> Result<Scan> {
        let hash = StringHash::default();
        let source = open_edges(self.options, self.nodes, self.budget.block_bytes())?;
        let (scan, file) = dictionary::build(&source, &self.budget, &self.folder, &hash, self.progress)?;
        source.check()?;
        if let Some(nodes) = self.options.nodes
            && nodes != scan.nodes
        {
            return Err(Error::conflict(
                format!(
                    "--nodes {nodes} was given, but the edges have {} different ids, and with --ids sparse or string \
                     these are the nodes",
                    scan.nodes
                ),
                "omit --nodes",
            ));
        }
        state.listed(scan, file)?;
        Ok(scan)
    }

    /// The node permutation and the chunks of `nodes` nodes.
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
                // The other half of what the user gave is for this.
                let wanted = permutation::memory(nodes);
                if wanted > self.budget.memory {
                    return Err(Error::Budget {
                        what: format!("the permutation of {nodes} nodes, which may take half of the memory"),
                        given: self.options.memory,
                        least: 2 * wanted,
                        remedy: "raise --memory, or choose another --assign, which takes none",
                    });
                }
                let parts = match state.order() {
                    Some(parts) => parts,
                    None => {
                        let dense = self.options.ids == ExternalIds::Dense;
                        let remedy = |parts| match parts > nodes && dense {
                            true => "; if the last nodes have no edges, say how many there are with --nodes",
                            false => "; it needs one line for each node, in the order of their ids",
                        };
                        let (parts, file) = permutation::build(path, nodes, &self.folder, remedy, self.progress)?;
                        state.ordered(parts.clone(), file)?;
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

    /// The mapping from external ids to nodes.
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
                let dictionary = Dictionary::open(&path, &hashes_path(&self.folder), StringHash::default())?;
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
