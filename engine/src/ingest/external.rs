//! External ids to nodes: what has to be found out before edges can be mapped.

use grappa_formats::{
    manifest::{ExternalIds, IdSpec, OrderSpec},
    order::Feistel,
};

use super::{
    Assign, Run,
    dictionary::{self, DICTIONARY, hashes_path},
    options::open_edges,
    state::{Scan, State},
};
use crate::{
    Error, Result,
    ids::{IdMap, Order, dictionary::Dictionary, keys::StringHash},
};

impl Run<'_> {
    /// The number of nodes and edges, for which ids that are not dense are put into a dictionary.
    pub(super) fn scan_dictionary(&self, state: &State) -> Result<Scan> {
        let hash = StringHash::default();
        let source = open_edges(self.options, self.nodes, self.budget.block_bytes())?;
        let (scan, file) = dictionary::build(&source, &self.budget, &self.folder, &hash, self.progress)?;
        if let Some(nodes) = self.options.nodes
            && nodes != scan.nodes
        {
            return Err(Error::Options(format!(
                "--nodes {nodes} was given, but the edges have {} different ids, and with --ids sparse or string these \
                 are the nodes; omit --nodes",
                scan.nodes
            )));
        }
        state.listed(scan, file)?;
        Ok(scan)
    }

    /// The way from external ids to nodes.
    pub(super) fn id_map(&self, nodes: u64) -> Result<(IdMap, IdSpec)> {
        let (order, spec) = match self.options.assign {
            Assign::Random => {
                let seed = self.options.seed;
                (Order::Feistel(Feistel::new(nodes, seed)), OrderSpec::Feistel(seed))
            }
            Assign::Range => (Order::Identity, OrderSpec::Identity),
        };
        let ids = match self.options.ids {
            ExternalIds::Dense => IdMap::dense(nodes, order),
            ExternalIds::Sparse | ExternalIds::String => {
                let path = self.folder.path().join(DICTIONARY);
                let dictionary = Dictionary::open(&path, &hashes_path(&self.folder), StringHash::default())?;
                IdMap::listed(dictionary, order)
            }
        };
        let spec = IdSpec {
            external: self.options.ids,
            order: spec,
        };
        Ok((ids, spec))
    }
}
