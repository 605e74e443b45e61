//! The mapped chunks of views, and the limit for their pages.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use grappa_formats::ChunkId;
use grappa_io::{
    Result,
    map::{FaultMeter, ResidentLimit},
};
use grappa_storage::Chunk;

use super::disk_reads::DiskReads;
use crate::view::edge_filter::EdgeFilter;

/// The mapped chunks of a view.
#[derive(Debug)]
pub(in crate::view) struct Mapped {
    pub(super) chunks: Arc<Chunks>,
    bytes: u64,
    pub(super) memory: Arc<MappedMemory>,
}

/// The files of each chunk of a store; none if the view does not own the chunk.
pub(super) type Chunks = Vec<Option<Chunk>>;

/// The memory that several mapped views share.
#[derive(Debug, Default)]
pub(in crate::view) struct MappedMemory {
    limit: ResidentLimit,
    pub(super) disk: DiskReads,
    views: Mutex<Vec<Weak<Chunks>>>,
}

impl MappedMemory {
    fn add(&self, chunks: &Arc<Chunks>, bytes: u64, limit: u64) {
        self.limit.add(bytes, limit);
        self.lock().push(Arc::downgrade(chunks));
    }

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
        let chunks: Arc<Chunks> = Arc::new(chunks.collect::<Result<_>>()?);
        let files = chunks
            .iter()
            .flatten()
            .map(|chunk| chunk.row_bytes(filter.edge_weights))
            .sum();
        memory.add(&chunks, files, bytes);
        Ok(Self {
            chunks,
            bytes: bytes.min(files),
            memory: memory.clone(),
        })
    }

    /// The maximum number of bytes of resident pages.
    pub(in crate::view) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the files that sampling reads.
    pub(in crate::view) fn file_bytes(&self, edge_weights: bool) -> u64 {
        self.chunks
            .iter()
            .flatten()
            .map(|chunk| chunk.row_bytes(edge_weights))
            .sum()
    }

    /// Asks the system to read these files ahead.
    pub(in crate::view) fn read_ahead(&self, edge_weights: bool) {
        self.chunks
            .iter()
            .flatten()
            .for_each(|chunk| chunk.read_ahead(edge_weights));
    }
}
