//! Workers: the threads that sample, plan and assemble batches.

use grappa_io::{Error, Result};

use super::{
    buffer::FeatureBuffer,
    core::{Alarm, FeedCore},
    demand::minibatch_bytes,
    planner::{PlanOutcome, Planner},
    reserve::{MemoryReserve, ScratchReservation},
    rows::{RowFormat, RowScratch},
    source::BatchSource,
    state::{InFlightBatch, schedule::WorkerTask},
};

/// A worker of a feed.
pub(super) struct Worker<'a> {
    core: &'a FeedCore,
}

impl<'a> Worker<'a> {
    pub(super) fn new(core: &'a FeedCore) -> Self {
        Self { core }
    }

    /// Works until the epoch ends.
    pub(super) fn run<S: BatchSource>(&self, source: &S) {
        let _alarm = Alarm(self.core);
        let mut scratch = ScratchReservation::new(source.scratch(), self.core.scratch_bytes, &self.core.reserve);
        let mut row_scratch = self.core.format.as_ref().map(RowFormat::scratch);
        loop {
            let task = {
                let mut state = self.core.lock();
                loop {
                    match state.worker_task() {
                        WorkerTask::Wait => state = self.core.wait(state),
                        task => break task,
                    }
                }
            };
            match task {
                WorkerTask::Sample { index, mut batch } => match self.sample(source, index, &mut scratch, &mut batch) {
                    Ok(()) => self.reserve_batch(index, batch),
                    Err(error) => {
                        self.core.lock().stock.take_back(batch, None, &self.core.reserve);
                        self.core.fail(error);
                    }
                },
                WorkerTask::Reserve { index, batch } => self.reserve_batch(index, batch),
                WorkerTask::Plan { index, batch, planner, serial, pinned } => {
                    self.plan(index, batch, planner, serial, pinned)
                }
                WorkerTask::Close { mut planner, next_batch, misses } => {
                    let window = planner.close(next_batch, misses, &self.core.counters);
                    self.core.lock().closed(planner, window);
                }
                WorkerTask::Assemble { index, batch, buffer } => {
                    self.assemble(index, batch, buffer, row_scratch.as_mut());
                }
                WorkerTask::Wait => unreachable!("the loop above waits"),
                WorkerTask::End => break,
            }
            self.core.changed.notify_all();
        }
        self.core.changed.notify_all();
    }

    fn sample<S: BatchSource>(
        &self,
        source: &S,
        index: u64,
        scratch: &mut ScratchReservation<'_, S::Scratch>,
        batch: &mut InFlightBatch,
    ) -> Result<()> {
        source.sample(index, &mut scratch.scratch, &mut batch.minibatch)?;
        source.sampled(index);
        scratch.grow_to(source.scratch_bytes(&scratch.scratch, batch.minibatch.nodes.len()));
        batch.slots.clear();
        if let Some(edges) = &self.core.edge_features {
            // Reserved with the minibatch, and filled when it is assembled.
            for block in &mut batch.minibatch.blocks {
                block.edge_features.resize(edges.dim() * block.edge_ids.len(), 0.0);
            }
        }
        Ok(())
    }

    /// Reserves memory for the nodes and edges of a sampled batch.
    fn reserve_batch(&self, index: u64, mut batch: InFlightBatch) {
        let bytes = minibatch_bytes(&batch.minibatch).max(batch.reserved_bytes);
        let more = bytes - batch.reserved_bytes;
        if more > 0 {
            match self.core.lock().in_turn(index, batch) {
                Some(next) => batch = next,
                None => return,
            }
        }
        match self.reserving(index, |reserve| reserve.take_for_minibatch(more)) {
            Ok(true) => {
                batch.reserved_bytes = bytes;
                self.core.lock().sampled(index, batch);
            }
            Ok(false) => self.core.lock().unreserved(index, batch),
            Err(error) => {
                self.core.lock().stock.take_back(batch, None, &self.core.reserve);
                self.core.fail(error);
            }
        }
    }

    /// Calls `take`, which takes from the reserve. While that has too little, retires batches and calls it again.
    /// Returns false if there is still too little, but memory may return before batch `index` is delivered.
    fn reserving(&self, index: u64, mut take: impl FnMut(&MemoryReserve) -> Result<()>) -> Result<bool> {
        if take(&self.core.reserve).is_ok() {
            return Ok(true);
        }
        // No memory returns while the state is locked.
        let mut state = self.core.lock();
        loop {
            match take(&self.core.reserve) {
                Ok(()) => return Ok(true),
                Err(Error::Budget { .. }) if state.stock.retire_batch(&self.core.reserve) => {}
                Err(Error::Budget { .. }) if state.memory_may_return(index) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(&self, index: u64, mut batch: InFlightBatch, mut planner: Box<Planner>, serial: u64, pinned: u64) {
        let planned =
            planner.plan(&batch.minibatch.nodes, &mut batch.slots, serial, serial - pinned, &self.core.counters);
        let rows = batch.minibatch.nodes.len();
        let (full, error) = match planned {
            Ok(PlanOutcome::Complete) => (None, None),
            // All pinned rows are its own, so waiting for other batches would not help.
            Ok(PlanOutcome::PoolFull) if pinned == 0 => (Some(0), Some(self.pool_too_small(rows))),
            Ok(PlanOutcome::PoolFull) => (Some(pinned), None),
            Err(error) => (Some(pinned), Some(error)),
        };
        self.core.lock().planned(index, batch, planner, full);
        if let Some(error) = error {
            self.core.fail(error);
        }
    }

    fn pool_too_small(&self, rows: usize) -> Error {
        Error::conflict(
            format!("the {rows} feature rows of a minibatch do not fit the row pool of the feed"),
            "raise --memory, or use smaller batches or fewer neighbors (--fanouts)",
        )
    }

    fn assemble(
        &self,
        index: u64,
        mut batch: InFlightBatch,
        mut buffer: Option<FeatureBuffer>,
        scratch: Option<&mut RowScratch>,
    ) {
        let nodes = batch.minibatch.nodes.len();
        let resized =
            buffer.as_mut().map_or(Ok(true), |buffer| self.reserving(index, |reserve| buffer.resize(nodes, reserve)));
        if !matches!(resized, Ok(true)) {
            self.core.lock().not_assembled(index, batch, buffer);
            if let Err(error) = resized {
                self.core.fail(error);
            }
            return;
        }
        let gathered = match (&self.core.format, scratch, &mut buffer) {
            (Some(format), Some(scratch), Some(buffer)) => {
                self.core.access.gather(format, &batch.minibatch.nodes, &batch.slots, scratch, buffer)
            }
            _ => Ok(()),
        };
        let gathered = gathered.and_then(|()| match &self.core.edge_features {
            Some(edges) => {
                let mut blocks = batch.minibatch.blocks.iter_mut();
                blocks.try_for_each(|block| edges.gather(&block.edge_ids, &mut block.edge_features))
            }
            None => Ok(()),
        });
        match gathered {
            Ok(()) => {
                self.core.access.count_unplanned(nodes, &self.core.counters);
                self.core.lock().assembled(index, batch, buffer);
            }
            Err(error) => {
                self.core.lock().stock.take_back(batch, buffer, &self.core.reserve);
                self.core.fail(error);
            }
        }
    }
}
