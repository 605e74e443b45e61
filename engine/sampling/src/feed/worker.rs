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
                WorkerTask::Sample { index, mut batch } => {
                    let sampled = self.sample(source, index, &mut scratch, &mut batch);
                    match sampled {
                        Ok(()) => self.lock().sampled(index, batch),
                        Err(error) => {
                            self.lock().take_back(batch, None, &self.reserve);
                            self.fail(error);
                        }
                    }
                }
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
        let scratch_bytes = source.scratch_bytes(&scratch.scratch, batch.minibatch.nodes.len());
        self.reserving(|_| scratch.grow_to(scratch_bytes))?;
        batch.slots.clear();
        let bytes = minibatch_bytes(&batch.minibatch);
        if bytes > batch.reserved_bytes {
            self.reserving(|reserve| reserve.take(bytes - batch.reserved_bytes, "its nodes and edges"))?;
            batch.reserved_bytes = bytes;
        }
        Ok(())
    }

    /// Calls `take`, which takes from the reserve. While that has too little, retires batches and calls it again.
    fn reserving(&self, mut take: impl FnMut(&MemoryReserve) -> Result<()>) -> Result<()> {
        loop {
            match take(&self.reserve) {
                Err(Error::Budget { .. }) if self.lock().retire_batch(&self.reserve) => {}
                taken => return taken,
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
            "raise --memory, or use smaller batches or fewer neighbours (--fanouts)",
        )
    }

    fn assemble(
        &self,
        index: u64,
        batch: InFlightBatch,
        mut buffer: Option<FeatureBuffer>,
        scratch: Option<&mut RowScratch>,
    ) {
        let gather = || {
            let (Some(format), Some(scratch), Some(buffer)) = (&self.format, scratch, &mut buffer) else {
                return Ok(());
            };
            let nodes = &batch.minibatch.nodes;
            self.reserving(|reserve| buffer.resize(nodes.len(), reserve))?;
            self.access.gather(format, nodes, &batch.slots, scratch, buffer)
        };
        match gather() {
            Ok(()) => {
                self.access.count_unplanned(batch.minibatch.nodes.len(), &self.counters);
                self.lock().assembled(index, batch, buffer);
            }
            Err(error) => {
                self.lock().take_back(batch, buffer, &self.reserve);
                self.fail(error);
            }
        }
    }
}
