//! The mapped chunks of views, and the limit for their pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap};
use grappa_io::{
    Result,
    map::{FaultMeter, ResidentLimit},
};
use grappa_storage::{CheckedEdgeRows, Chunk, Store};

use super::disk_reads::{DiskReads, GroupsSeen};
use crate::view::edge_filter::{EdgeData, EdgeFilter};

/// The mapped chunks of a view.
#[derive(Debug)]
pub(in crate::view) struct Mapped {
    pub(super) chunks: Arc<Chunks>,
    /// The id of the first edge of each chunk.
    pub(super) first_edges: Vec<u64>,
    /// The maximum number of bytes of resident pages.
    pub(in crate::view) bytes: u64,
    pub(super) memory: Arc<MappedMemory>,
}

/// The files of each chunk of a store; none if the view does not own the chunk.
pub(super) type Chunks = Vec<Option<Chunk>>;

/// The memory that several mapped views share.
#[derive(Debug, Default)]
pub(crate) struct MappedMemory {
    limit: ResidentLimit,
    pub(super) disk: DiskReads,
    views: Mutex<Vec<Weak<Chunks>>>,
}

impl MappedMemory {
    /// Releases all pages if they exceed the limit.
    pub(super) fn keep(&self, faults: &FaultMeter) {
        self.limit.keep(faults, || {
            let views = self.lock();
            let views = views.iter().filter_map(Weak::upgrade);
            views.for_each(|chunks| chunks.iter().flatten().for_each(Chunk::release_all_rows));
        });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Chunks>>> {
        // A panic under the lock leaves the list intact.
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mapped {
    /// Maps the owned chunks. Their resident pages may take `bytes`. Views that share `memory` share the sum of their
    /// limits.
    pub(in crate::view) fn open(filter: &EdgeFilter<'_>, bytes: u64, memory: &Arc<MappedMemory>) -> Result<Self> {
        let chunks = (0..filter.store.chunks().chunks()).map(ChunkId);
        let chunks = chunks.map(|chunk| filter.owned.owns(chunk).then(|| filter.store.chunk(chunk)).transpose());
        let EdgeData { weights, times, .. } = filter.edge_data;
        let bytes_of = |chunk: &Chunk| chunk.row_bytes(weights, times);
        Ok(Self::new(filter.store, chunks.collect::<Result<_>>()?, bytes_of, bytes, memory))
    }

    /// `bytes_of` counts the bytes of the files that are read of each chunk.
    fn new(
        store: &Store,
        chunks: Chunks,
        bytes_of: impl Fn(&Chunk) -> u64,
        bytes: u64,
        memory: &Arc<MappedMemory>,
    ) -> Self {
        let (chunks, memory) = (Arc::new(chunks), memory.clone());
        let files = chunks.iter().flatten().map(bytes_of).sum();
        memory.limit.add(files, bytes);
        memory.lock().push(Arc::downgrade(&chunks));
        Self { chunks, first_edges: store.first_edges(), bytes: bytes.min(files), memory }
    }

    /// Maps the present chunks of `store` for the features of their edges. As [`Mapped::open`] otherwise.
    pub(in crate::view) fn edge_features(store: &Store, bytes: u64, memory: &Arc<MappedMemory>) -> Result<Self> {
        let mut chunks: Chunks = (0..store.chunks().chunks()).map(|_| None).collect();
        for chunk in store.present_chunks() {
            chunks[chunk.0 as usize] = Some(store.chunk(chunk)?);
        }
        let mapped = Self::new(store, chunks, Chunk::edge_feature_bytes, bytes, memory);
        let chunks = mapped.chunks.iter().flatten();
        if chunks.clone().map(Chunk::edge_feature_bytes).sum::<u64>() <= bytes {
            chunks.for_each(Chunk::read_ahead_edge_features);
        }
        Ok(mapped)
    }

    /// All chunks of the store, mapped or not.
    pub(in crate::view) fn chunk_ids(&self) -> impl Iterator<Item = ChunkId> {
        (0..self.chunks.len() as u32).map(ChunkId)
    }

    /// The features of the edges of a chunk, if it is mapped and has some.
    pub(in crate::view) fn edge_rows(&self, chunk: ChunkId) -> Option<CheckedEdgeRows<'_>> {
        self.chunks[chunk.0 as usize].as_ref()?.edge_features()
    }

    /// The chunk that has an edge, its first edge, and the first edge after it. There is no such chunk if there is no such edge.
    pub(in crate::view) fn chunk_of_edge(&self, id: u64) -> (usize, u64, u64) {
        // The first edge of all is 0.
        let chunk = self.first_edges.partition_point(|&first| first <= id) - 1;
        let end = self.first_edges.get(chunk + 1).copied().unwrap_or(u64::MAX);
        (chunk, self.first_edges[chunk], end)
    }

    /// A thread begins to read a group of rows: releases pages if they exceed the limit. Returns whether reads should be started first.
    pub(in crate::view) fn begin_group(&self, faults: &FaultMeter, seen: &GroupsSeen) -> bool {
        self.memory.keep(faults);
        self.memory.disk.are_next(seen)
    }

    /// Bytes of the files that sampling reads.
    pub(in crate::view) fn file_bytes(&self, EdgeData { weights, times, .. }: EdgeData) -> u64 {
        self.chunks.iter().flatten().map(|chunk| chunk.row_bytes(weights, times)).sum()
    }

    /// Asks the system to read the lists of some ascending nodes.
    pub(in crate::view) fn read_ahead_nodes(&self, map: &ChunkMap, nodes: &[u64]) {
        for of_chunk in nodes.chunk_by(|&a, &b| map.chunk_of(NodeId(a)) == map.chunk_of(NodeId(b))) {
            if let Some(chunk) = &self.chunks[map.chunk_of(NodeId(of_chunk[0])).0 as usize] {
                let first = chunk.span().first_node.0;
                chunk.read_ahead_rows(of_chunk.iter().map(|node| node - first));
            }
        }
    }

    pub(in crate::view) fn read_ahead(&self, EdgeData { weights, times, .. }: EdgeData) {
        self.chunks.iter().flatten().for_each(|chunk| chunk.read_ahead(weights, times));
    }
}
