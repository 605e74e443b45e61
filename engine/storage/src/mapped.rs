//! The mapped adjacency lists of all chunks.

use std::{
    iter,
    ops::{Index, Range},
    sync::Once,
};

use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap};
use grappa_io::Result;

use crate::{Chunk, HaloDegrees, Store};

/// Adjacency lists of so few bytes stay in memory once they are read. Otherwise each pass over a small graph would cost more system calls
/// and page faults than work.
const SMALL_BYTES: u64 = 8 << 20;

/// All chunks that a store has, mapped for random access.
///
/// Mapping takes some 100 us per chunk, and a block is checked only the first time that it is used, so whoever reads a store
/// repeatedly keeps this. Mapped pages that were read count as memory of the process until they are released
/// ([`Chunk::release_rows`]).
#[derive(Debug)]
pub struct MappedChunks {
    /// By number; none for chunks that the store does not have.
    chunks: Vec<Option<Chunk>>,
    /// By number; only for chunks that a slice does not have.
    halo_degrees: Vec<Option<HaloDegrees>>,
    map: ChunkMap,
    source_nodes: u64,
    edges: u64,
    /// Set if the lists are small: whether the system was asked to read them.
    small: Option<Once>,
}

impl MappedChunks {
    /// Maps all chunks of a store, or those that a slice has.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn open(store: &Store) -> Result<Self> {
        Self::open_as(store, SMALL_BYTES)
    }

    /// As [`MappedChunks::open`], but lists stay in memory if all together have at most `small_bytes`.
    ///
    /// # Errors
    /// As [`MappedChunks::open`].
    pub fn open_as(store: &Store, small_bytes: u64) -> Result<Self> {
        let map = store.chunks().clone();
        let mut chunks: Vec<_> = (0..map.chunks()).map(|_| None).collect();
        for chunk in store.present_chunks() {
            chunks[chunk.0 as usize] = Some(store.chunk(chunk)?);
        }
        let halo_degrees = (0..map.chunks()).map(|chunk| HaloDegrees::open(store, ChunkId(chunk)));
        let halo_degrees = halo_degrees.collect::<Result<_>>()?;
        let bytes: u64 = chunks.iter().flatten().map(|chunk| chunk.row_bytes(false, false)).sum();
        Ok(Self {
            chunks,
            halo_degrees,
            map,
            source_nodes: store.source_nodes(),
            edges: store.manifest().edges,
            small: (bytes <= small_bytes).then(Once::new),
        })
    }

    /// The nodes of each chunk.
    pub fn map(&self) -> &ChunkMap {
        &self.map
    }

    /// The number of nodes from which edges may come.
    pub fn source_nodes(&self) -> u64 {
        self.source_nodes
    }

    /// Number of edges of the graph.
    pub fn edges(&self) -> u64 {
        self.edges
    }

    /// The chunk of a node, and the node's row in it.
    ///
    /// # Panics
    /// If the store is a slice without this chunk.
    #[inline]
    pub fn locate(&self, node: NodeId) -> (&Chunk, u64) {
        self.get(node).expect("the store has the chunk")
    }

    /// As [`MappedChunks::locate`]. None if the store is a slice without this chunk.
    #[inline]
    pub fn get(&self, node: NodeId) -> Option<(&Chunk, u64)> {
        let chunk = self.map.chunk_of(node);
        let mapped = self.chunk(chunk)?;
        Some((mapped, node.0 - self.map.range(chunk).start))
    }

    /// A chunk. None if the store is a slice without it.
    #[inline]
    pub fn chunk(&self, chunk: ChunkId) -> Option<&Chunk> {
        self.chunks[chunk.0 as usize].as_ref()
    }

    /// The in-degree of a node: also of one whose chunk a slice lacks, if the slice has its in-degrees, and 0 otherwise.
    ///
    /// # Errors
    /// If the in-degrees are damaged.
    pub fn in_degree(&self, node: NodeId) -> Result<u64> {
        let chunk = self.map.chunk_of(node);
        match &self.halo_degrees[chunk.0 as usize] {
            Some(halo) => halo.degree(node.0 - self.map.range(chunk).start),
            None => self.degree(node),
        }
    }

    /// The length of a node's adjacency list, which is its in-degree. 0 if the store is a slice without its chunk: none of its in-edges
    /// are known.
    ///
    /// # Errors
    /// If the in-degrees are damaged.
    pub fn degree(&self, node: NodeId) -> Result<u64> {
        match self.get(node) {
            Some((chunk, row)) => chunk.rows().degree(row),
            None => Ok(0),
        }
    }

    /// Replaces the contents of `degrees` with the [`degree`](MappedChunks::degree) of each of some ascending nodes. Faster than one by
    /// one where nodes are successive.
    ///
    /// # Errors
    /// If the in-degrees are damaged.
    pub fn degrees(&self, nodes: &[NodeId], degrees: &mut Vec<u64>) -> Result<()> {
        degrees.clear();
        for mut run in nodes.chunk_by(|a, b| a.0 + 1 == b.0) {
            while let Some(first) = run.first() {
                let chunk = self.map.chunk_of(*first);
                let range = self.map.range(chunk);
                let (now, later) = run.split_at((range.end - first.0).min(run.len() as u64) as usize);
                run = later;
                let row = first.0 - range.start;
                match (self.chunk(chunk), now.len() as u64) {
                    (None, count) => degrees.extend(iter::repeat_n(0, count as usize)),
                    (Some(chunk), 1) => degrees.push(chunk.rows().degree(row)?),
                    (Some(chunk), count) => {
                        for degree in chunk.rows().degrees(row..row + count) {
                            degrees.push(degree?);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks the system to read the adjacency lists of ascending nodes into its cache ([`Chunk::read_ahead_rows`]).
    pub fn read_ahead(&self, nodes: &[NodeId]) {
        if self.read_ahead_all() {
            return;
        }
        self.by_chunk(nodes, |chunk, first, nodes| {
            chunk.read_ahead_rows(nodes.iter().map(|node| node.0 - first));
        });
    }

    /// Asks the system to read the in-degrees of ascending nodes into its cache.
    pub fn read_ahead_degrees(&self, nodes: &[NodeId]) {
        if self.read_ahead_all() {
            return;
        }
        self.by_chunk(nodes, |chunk, first, nodes| {
            chunk.read_ahead_degrees(nodes.iter().map(|node| node.0 - first));
        });
    }

    /// Releases the memory of the adjacency lists of ascending nodes, and of those between them. Resident mapped pages count as memory
    /// of this process. Those of a small graph stay.
    pub fn release(&self, nodes: &[NodeId]) {
        if self.small.is_some() {
            return;
        }
        self.by_chunk(nodes, |chunk, first, nodes| {
            chunk.release_rows(nodes[0].0 - first..nodes[nodes.len() - 1].0 - first + 1);
        });
    }

    /// As [`MappedChunks::release`], of some rows of a chunk.
    ///
    /// # Panics
    /// If the store is a slice without this chunk, or `rows` is out of range.
    pub fn release_rows(&self, chunk: ChunkId, rows: Range<u64>) {
        if self.small.is_none() {
            self[chunk].release_rows(rows);
        }
    }

    /// If all lists are small, asks the system once to read them, and returns true.
    fn read_ahead_all(&self) -> bool {
        let Some(once) = &self.small else { return false };
        once.call_once(|| self.iter().for_each(|chunk| chunk.read_ahead(false, false)));
        true
    }

    /// Calls `visit` for each chunk that the store has and that has some of the ascending nodes: with the chunk, its first node, and
    /// its share of the nodes.
    fn by_chunk(&self, nodes: &[NodeId], mut visit: impl FnMut(&Chunk, u64, &[NodeId])) {
        let mut left = nodes;
        while let Some(first) = left.first() {
            let chunk = self.map.chunk_of(*first);
            let range = self.map.range(chunk);
            let (now, later) = left.split_at(left.partition_point(|node| node.0 < range.end));
            if let Some(chunk) = self.chunk(chunk) {
                visit(chunk, range.start, now);
            }
            left = later;
        }
    }

    /// The chunks that the store has.
    pub fn iter(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().flatten()
    }
}

impl Index<ChunkId> for MappedChunks {
    type Output = Chunk;

    /// # Panics
    /// If the store is a slice without this chunk.
    #[inline]
    fn index(&self, chunk: ChunkId) -> &Chunk {
        self.chunk(chunk).expect("the store has the chunk")
    }
}
