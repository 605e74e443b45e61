//! The in-neighbors of single nodes.

use grappa_formats::{ChunkId, NodeId};
use grappa_io::Result;

use crate::{Chunk, Store};

/// Reads the in-neighbors of nodes, one node at a time.
///
/// The files of a chunk are mapped when one of its nodes is read first, and stay mapped. A read costs a page fault or two
/// where the pages are not cached, and a microsecond where they are. Training and sampling use a view or a
/// loader, which have many reads in flight.
#[derive(Debug)]
pub struct Neighbors<'a> {
    store: &'a Store,
    /// By chunk; none where no node was read yet.
    chunks: Vec<Option<Chunk>>,
}

impl Store {
    /// A reader of the in-neighbors of nodes.
    pub fn neighbors(&self) -> Neighbors<'_> {
        let chunks = self.chunks().chunks() as usize;
        Neighbors { store: self, chunks: std::iter::repeat_with(|| None).take(chunks).collect() }
    }
}

impl Neighbors<'_> {
    /// The sources of the edges into `node`, in ascending order, or in the order of time if edges have times.
    ///
    /// # Errors
    /// If the store is a slice that lacks the node's chunk, or its files are damaged.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn in_neighbors(&mut self, node: NodeId) -> Result<Vec<NodeId>> {
        let (chunk, row) = self.place(node)?;
        Ok(chunk.rows().row(row)?.iter().map(NodeId).collect())
    }

    /// The number of edges into `node`. Cheaper than [`Neighbors::in_neighbors`].
    ///
    /// # Errors
    /// As [`Neighbors::in_neighbors`].
    ///
    /// # Panics
    /// If there is no such node.
    pub fn in_degree(&mut self, node: NodeId) -> Result<u64> {
        let (chunk, row) = self.place(node)?;
        chunk.rows().degree(row)
    }

    /// The chunk of a node, mapped, and the node's place in it.
    fn place(&mut self, node: NodeId) -> Result<(&Chunk, u64)> {
        assert!(node.0 < self.store.manifest().nodes, "there is no node {node}");
        let ChunkId(number) = self.store.chunks().chunk_of(node);
        let slot = &mut self.chunks[number as usize];
        let chunk = match slot {
            Some(chunk) => chunk,
            None => slot.insert(self.store.chunk(ChunkId(number))?),
        };
        let row = node.0 - chunk.span().first_node.0;
        Ok((chunk, row))
    }
}
