//! Workers: the threads that sample, plan and assemble batches.

use std::sync::PoisonError;

use grappa_io::{Error, Result};

use super::{
    buffer::FeatureBuffer,
    demand::minibatch_bytes,
    pipeline::{Alarm, Core},
    planner::{PlanOutcome, Planner},
    reserve::{MemoryReserve, ScratchReservation},
    rows::{RowFormat, RowScratch},
    source::BatchSource,
    state::{InFlightBatch, WorkerTask},
};

impl Core {
    /// Runs a worker until the epoch ends.
    pub(super) fn work<S: BatchSource>(&self, source: &S) {
        let _alarm = Alarm(self);
        let mut scratch = ScratchReservation::new(source.scratch(), self.scratch_bytes, &self.reserve);
        let mut row_scratch = self.format.as_ref().map(RowFormat::scratch);
        loop {
            let task = {
                let mut state = self.lock();
                loop {
                    match state.worker_task() {
                        WorkerTask::Wait => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                        task => break task,
                    }
                }
            };
            match task {
                WorkerTask::Sample { index, mut batch } => match self.sample(source, index, &mut scratch, &mut batch) {
                    Ok(()) => self.reserve_batch(index, batch),
                    Err(error) => {
                        self.lock().take_back(batch, None, &self.reserve);
                        self.fail(error);
                    }
                },
                WorkerTask::Reserve { index, batch } => self.reserve_batch(index, batch),
                WorkerTask::Plan {
                    index,
                    batch,
                    planner,
                    serial,
                    pinned,
                } => self.plan(index, batch, planner, serial, pinned),
                WorkerTask::Close {
                    mut planner,
                    next_batch,
                    misses,
                } => {
                    let window = planner.close(next_batch, misses, &self.counters);
                    self.lock().closed(planner, window);
                }
                WorkerTask::Assemble { index, batch, buffer } => {
                    self.assemble(index, batch, buffer, row_scratch.as_mut());
                }
                WorkerTask::Wait => unreachable!("the loop above waits"),
                WorkerTask::End => break,
            }
            self.changed.notify_all();
        }
        self.changed.notify_all();
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
        Ok(())
    }

    /// Reserves memory for the nodes and edges of a sampled batch.
    fn reserve_batch(&self, index: u64, mut batch: InFlightBatch) {
        let bytes = minibatch_bytes(&batch.minibatch).max(batch.reserved_bytes);
        let more = bytes - batch.reserved_bytes;
        if more > 0 {
            match self.lock().in_turn(index, batch) {
                Some(next) => batch = next,
                None => return,
            }
        }
        match self.reserving(index, |reserve| reserve.take_for_minibatch(more)) {
            Ok(true) => {
                batch.reserved_bytes = bytes;
                self.lock().sampled(index, batch);
            }
            Ok(false) => self.lock().unreserved(index, batch),
            Err(error) => {
                self.lock().take_back(batch, None, &self.reserve);
                self.fail(error);
            }
        }
    }

    /// Calls `take`, which takes from the reserve. While that has too little, retires batches and calls it again. Returns false if
    /// there is still too little, but memory may return before batch `index` is delivered.
    fn reserving(&self, index: u64, mut take: impl FnMut(&MemoryReserve) -> Result<()>) -> Result<bool> {
        if take(&self.reserve).is_ok() {
            return Ok(true);
        }
        // No memory returns while the state is locked.
        let mut state = self.lock();
        loop {
            match take(&self.reserve) {
                Ok(()) => return Ok(true),
                Err(Error::Budget { .. }) if state.retire_batch(&self.reserve) => {}
                Err(Error::Budget { .. }) if state.memory_may_return(index) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(&self, index: u64, mut batch: InFlightBatch, mut planner: Box<Planner>, serial: u64, pinned: u64) {
        let planned = planner.plan(
            &batch.minibatch.nodes,
            &mut batch.slots,
            serial,
            serial - pinned,
            &self.counters,
        );
        let rows = batch.minibatch.nodes.len();
        let (full, error) = match planned {
            Ok(PlanOutcome::Complete) => (None, None),
            // All pinned rows are its own, so waiting for other batches would not help.
            Ok(PlanOutcome::PoolFull) if pinned == 0 => (Some(0), Some(self.pool_too_small(rows))),
            Ok(PlanOutcome::PoolFull) => (Some(pinned), None),
            Err(error) => (Some(pinned), Some(error)),
        };
        self.lock().planned(index, batch, planner, full);
        if let Some(error) = error {
            self.fail(error);
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
        batch: InFlightBatch,
        mut buffer: Option<FeatureBuffer>,
        scratch: Option<&mut RowScratch>,
    ) {
        let nodes = batch.minibatch.nodes.len();
        let resized = buffer.as_mut().map_or(Ok(true), |buffer| {
            self.reserving(index, |reserve| buffer.resize(nodes, reserve))
        });
        if !matches!(resized, Ok(true)) {
            self.lock().not_assembled(index, batch, buffer);
            if let Err(error) = resized {
                self.fail(error);
            }
            return;
        }
        let gathered = match (&self.format, scratch, &mut buffer) {
            (Some(format), Some(scratch), Some(buffer)) => {
                self.access
                    .gather(format, &batch.minibatch.nodes, &batch.slots, scratch, buffer)
            }
            _ => Ok(()),
        };
        match gathered {
            Ok(()) => {
                self.access.count_unplanned(nodes, &self.counters);
                self.lock().assembled(index, batch, buffer);
            }
            Err(error) => {
                self.lock().take_back(batch, buffer, &self.reserve);
                self.fail(error);
            }
        }
    }
}
