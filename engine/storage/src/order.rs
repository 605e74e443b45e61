//! Dense id -> node, and back.

use std::sync::Arc;

use grappa_formats::{
    order::Feistel,
    order_table::{ENTRY_BYTES, OrderMeta},
};
use grappa_io::{Error, Result, container::ContainerFile};

/// How ranks, `0..nodes`, are put in the store's order.
#[derive(Debug, Clone)]
pub enum Order {
    /// Node = rank.
    Identity,
    /// A keyed permutation that takes no space.
    Feistel(Feistel),
    /// A table.
    Table(Arc<NodeTable>),
}

/// The node of each rank in memory, five bytes each, and the file that has the rank of each node too.
#[derive(Debug)]
pub struct NodeTable {
    nodes: Vec<[u8; ENTRY_BYTES]>,
    file: ContainerFile,
}

impl NodeTable {
    /// Reads the first half of the file `ids/order`.
    pub fn load(file: ContainerFile) -> Result<Self> {
        let meta = OrderMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        let mut nodes = vec![[0; ENTRY_BYTES]; meta.nodes as usize];
        file.read_at(nodes.as_flattened_mut(), 0)?;
        Ok(Self { nodes, file })
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        self.nodes.as_flattened().len() as u64
    }

    fn node(&self, rank: u64) -> u64 {
        entry(self.nodes[rank as usize])
    }

    fn rank(&self, node: u64) -> Result<u64> {
        let mut bytes = [0; ENTRY_BYTES];
        let at = self.nodes.len() as u64 + node;
        self.file.read_at(&mut bytes, at * ENTRY_BYTES as u64)?;
        Ok(entry(bytes))
    }
}

fn entry([a, b, c, d, e]: [u8; ENTRY_BYTES]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

impl Order {
    /// The node at `rank`.
    pub fn node(&self, rank: u64) -> u64 {
        match self {
            Self::Identity => rank,
            Self::Feistel(feistel) => feistel.forward(rank),
            Self::Table(table) => table.node(rank),
        }
    }

    /// The rank of `node`. A table is read from its file for it.
    pub fn rank(&self, node: u64) -> Result<u64> {
        Ok(match self {
            Self::Identity => node,
            Self::Feistel(feistel) => feistel.inverse(node),
            Self::Table(table) => table.rank(node)?,
        })
    }

    /// Replaces each rank by its node.
    pub fn nodes(&self, ranks: &mut [u64]) {
        match self {
            Self::Identity => {}
            Self::Feistel(feistel) => feistel.forward_all(ranks),
            Self::Table(table) => ranks.iter_mut().for_each(|rank| *rank = table.node(*rank)),
        }
    }

    /// Bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        match self {
            Self::Identity | Self::Feistel(_) => 0,
            Self::Table(table) => table.memory(),
        }
    }
}
