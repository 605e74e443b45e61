//! What a worker sees of the graph while it samples.
//!
//! A [`PartitionView`] holds the rows of the nodes that can be expanded: in memory, as plain CSR.

mod load;
mod memory;
pub(crate) mod rows;
#[cfg(test)]
pub(crate) mod tests;

use self::{memory::Csr, rows::RowsIn};
use crate::{Result, store::Store};

/// Nodes of graphs with fewer than this many take 32 bits.
const NARROW_NODES_MAX: u64 = 1 << 32;

/// The part of a store that is sampled from. Shared by the threads that sample.
#[derive(Debug)]
pub struct PartitionView {
    nodes: u64,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Narrow(Csr<u32>),
    Wide(Csr<u64>),
}

impl PartitionView {
    /// The whole graph in memory, decoded by `threads` threads.
    pub fn whole(store: &Store, threads: usize) -> Result<Self> {
        let nodes = store.manifest().nodes;
        Ok(Self {
            nodes,
            kind: if nodes <= NARROW_NODES_MAX {
                Kind::Narrow(Csr::load(store, threads)?)
            } else {
                Kind::Wide(Csr::load(store, threads)?)
            },
        })
    }

    /// Number of nodes of the graph. Those that the view does not own count, too.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    pub(crate) fn rows(&self) -> RowsIn<'_> {
        match &self.kind {
            Kind::Narrow(csr) => RowsIn::Narrow(csr.rows()),
            Kind::Wide(csr) => RowsIn::Wide(csr.rows()),
        }
    }
}
