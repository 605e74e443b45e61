//! The parts of an ingest that every step works with.

use std::sync::{Mutex, PoisonError};

use grappa_formats::{ChunkId, chunks::ChunkMap};
use grappa_io::{
    Result,
    container::WrittenFile,
    ledger::{Lease, Ledger},
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::writer::StoreFolder;

use crate::ingest::{
    edge_ingest::EdgeIngest,
    journal::{ChunkDone, IngestJournal, Record},
    node_ingest::NodeIngest,
    plan::IngestBudget,
    resources::Resources,
    stage::Stage,
};

/// An ingest that has begun.
pub struct IngestJob<'a> {
    /// The nodes: of the store, or of a node type, or the destinations of a relation.
    pub nodes: &'a NodeIngest,
    /// The edges. A node type has none.
    pub edges: &'a EdgeIngest,
    pub resources: &'a Resources,
    pub budget: IngestBudget,
    pub store: &'a StoreFolder,
    /// The record of what is finished.
    pub journal: IngestJournal,
    pub progress: &'a dyn Progress,
    /// The memory of the phases so far.
    pub ledger: &'a Mutex<Ledger>,
}

impl IngestJob<'_> {
    /// Notes the memory of a phase before it begins.
    ///
    /// # Errors
    /// If it exceeds the user's budget.
    pub fn enter(&self, phase: &'static str, leases: Vec<Lease>) -> Result<()> {
        let permutation = self.budget.memory * (self.budget.share - 1);
        let permutation = Lease::new(
            "node permutation",
            permutation,
            "a table of the node of each id, if --assign needs one: half of the limit is set aside, because all phases look nodes up",
        );
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.enter(phase, [vec![permutation], leases].concat())
    }

    /// Calls `write`, on all threads, for each chunk that the journal does not list as finished. Other threads sync the
    /// files, record the chunk in the journal, and then call `after`.
    pub fn write_chunks(
        &self,
        stage: Stage,
        chunks: &ChunkMap,
        write: impl Fn(ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> + Sync,
        after: impl Fn(ChunkId) -> Result<()> + Sync,
    ) -> Result<()> {
        let before = self.journal.stage(stage).chunks;
        let missing: Vec<_> = (0..chunks.chunks()).filter(|chunk| !before.contains(chunk)).map(ChunkId).collect();
        self.store.write_chunks(self.resources.threads, &missing, write, |chunk, mut done, files| {
            done.files = files;
            self.journal.record(Record::Chunk { stage, chunk: chunk.0, done })?;
            after(chunk)
        })
    }

    /// Calls `visit` for each chunk, on all threads, with a value of its own for each call, and joins these values.
    pub fn sum_chunks<T: Send>(
        &self,
        chunks: &ChunkMap,
        new: impl Fn() -> T + Sync,
        visit: impl Fn(ChunkId, &mut T) -> Result<()> + Sync,
        join: impl Fn(&mut T, T) + Sync,
    ) -> Result<T> {
        let all: Vec<_> = (0..chunks.chunks()).map(ChunkId).collect();
        let sum = Mutex::new(new());
        workers::for_each(self.resources.threads, &all, |chunk| {
            check_stopped(self.progress)?;
            let mut part = new();
            visit(chunk, &mut part)?;
            join(&mut sum.lock().unwrap_or_else(PoisonError::into_inner), part);
            Ok(())
        })?;
        Ok(sum.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
