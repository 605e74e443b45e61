//! The node permutation: dense id -> node, and back.

use std::{ops::Range, sync::Arc};

use grappa_formats::{
    DenseId, NodeId,
    permutation::Feistel,
    permutation_table::{ENTRY_BYTES, PermutationTableMeta},
};
use grappa_io::{Error, Result, container::ContainerFile};

/// A bijection from dense ids to nodes. It decides which nodes are in the same chunk.
#[derive(Debug, Clone)]
pub enum NodePermutation {
    /// The node is the dense id.
    Identity,
    /// A keyed permutation that takes no space.
    Feistel(Feistel),
    /// A table.
    Table(Arc<NodeTable>),
}

/// The node of each dense id, in memory (five bytes each), and the file that also has the dense id of each node.
#[derive(Debug)]
pub struct NodeTable {
    nodes: Vec<[u8; ENTRY_BYTES]>,
    file: ContainerFile,
}

impl NodeTable {
    /// Reads the first half of the file `ids/order`.
    pub fn load(file: ContainerFile) -> Result<Self> {
        let meta = PermutationTableMeta::decode(file.header()).map_err(Error::format(file.path()))?;
        let mut nodes = vec![[0; ENTRY_BYTES]; meta.nodes as usize];
        file.read_at(nodes.as_flattened_mut(), 0)?;
        Ok(Self { nodes, file })
    }

    fn node(&self, id: DenseId) -> NodeId {
        NodeId(entry(self.nodes[id.0 as usize]))
    }

    fn dense_ids(&self, nodes: Range<u64>, ids: &mut Vec<u64>) -> Result<()> {
        let mut bytes = vec![[0; ENTRY_BYTES]; (nodes.end - nodes.start) as usize];
        let at = self.nodes.len() as u64 + nodes.start;
        self.file.read_at(bytes.as_flattened_mut(), at * ENTRY_BYTES as u64)?;
        ids.extend(bytes.into_iter().map(entry));
        Ok(())
    }

    fn dense_id(&self, node: NodeId) -> Result<DenseId> {
        let mut bytes = [0; ENTRY_BYTES];
        let at = self.nodes.len() as u64 + node.0;
        self.file.read_at(&mut bytes, at * ENTRY_BYTES as u64)?;
        Ok(DenseId(entry(bytes)))
    }
}

fn entry([a, b, c, d, e]: [u8; ENTRY_BYTES]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, 0, 0, 0])
}

impl NodePermutation {
    /// The node of a dense id.
    pub fn node(&self, id: DenseId) -> NodeId {
        match self {
            Self::Identity => NodeId(id.0),
            Self::Feistel(feistel) => NodeId(feistel.forward(id.0)),
            Self::Table(table) => table.node(id),
        }
    }

    /// The dense id of a node. For a table, it is read from the file.
    pub fn dense_id(&self, node: NodeId) -> Result<DenseId> {
        Ok(match self {
            Self::Identity => DenseId(node.0),
            Self::Feistel(feistel) => DenseId(feistel.inverse(node.0)),
            Self::Table(table) => table.dense_id(node)?,
        })
    }

    /// Replaces the contents of `ids` with the dense ids of a range of nodes. For a table, they are read together.
    pub fn dense_ids(&self, nodes: Range<u64>, ids: &mut Vec<u64>) -> Result<()> {
        ids.clear();
        match self {
            Self::Identity => ids.extend(nodes),
            Self::Feistel(feistel) => {
                ids.extend(nodes);
                feistel.inverse_all(ids);
            }
            Self::Table(table) => table.dense_ids(nodes, ids)?,
        }
        Ok(())
    }

    /// Replaces each dense id by its node, in place: `ids` holds dense ids before the call and nodes after it.
    pub fn nodes(&self, ids: &mut [u64]) {
        match self {
            Self::Identity => {}
            Self::Feistel(feistel) => feistel.forward_all(ids),
            Self::Table(table) => ids.iter_mut().for_each(|id| *id = table.node(DenseId(*id)).0),
        }
    }
}
