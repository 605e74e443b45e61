//! Workers: the threads that sample, plan and assemble batches.

use grappa_io::{Error, Result};

use super::{
    buffer::FeatureBuffer,
    core::{Alarm, FeedCore},
    demand::batch_bytes,
    in_flight::InFlightBatch,
    planner::{PlanOutcome, Planner},
    reserve::{MemoryReserve, ScratchReservation},
    rows::{RowFormat, RowScratch},
    source::BatchSource,
    state::schedule::WorkerTask,
};

pub(super) struct Worker<'a>(pub &'a FeedCore);

impl Worker<'_> {
    /// Works until the epoch ends.
    pub(super) fn run<S: BatchSource>(&self, source: &S) {
        let _alarm = Alarm(self.0);
        let mut scratch = ScratchReservation::new(S::Scratch::default(), self.0.scratch_bytes, &self.0.reserve);
        let mut row_scratch = self.0.format.as_ref().map(RowFormat::scratch);
        loop {
            let task = {
                let mut state = self.0.lock();
                loop {
                    match state.worker_task() {
                        WorkerTask::Wait => state = self.0.wait(state),
                        task => break task,
                    }
                }
            };
            match task {
                WorkerTask::Sample { index, mut batch } => match self.sample(source, index, &mut scratch, &mut batch) {
                    Ok(()) => self.reserve_batch(index, batch),
                    Err(error) => self.give_up(batch, None, error),
                },
                WorkerTask::Reserve { index, batch } => self.reserve_batch(index, batch),
                WorkerTask::Plan { index, batch, planner, serial, pinned } => {
                    self.plan(index, batch, planner, serial, pinned)
                }
                WorkerTask::Close { mut planner, next_batch, misses } => {
                    let window = planner.close(next_batch, misses, &self.0.counters);
                    self.0.lock().closed(planner, window);
                }
                WorkerTask::Assemble { index, batch, buffer } => {
                    self.assemble(index, batch, buffer, row_scratch.as_mut());
                }
                WorkerTask::Wait => unreachable!("the loop above waits"),
                WorkerTask::End => break,
            }
            self.0.changed.notify_all();
        }
        self.0.changed.notify_all();
    }

    fn sample<S: BatchSource>(
        &self,
        source: &S,
        index: u64,
        scratch: &mut ScratchReservation<'_, S::Scratch>,
        batch: &mut InFlightBatch,
    ) -> Result<()> {
        source.sample(index, &mut scratch.scratch, &mut batch.minibatches)?;
        source.sampled(index);
        let nodes = batch.minibatches.iter().map(|minibatch| minibatch.nodes.len()).sum();
        scratch.grow_to(source.scratch_bytes(&scratch.scratch, nodes));
        batch.slots.clear();
        if let Some(format) = &self.0.format {
            batch.list_rows(format);
        }
        if let Some(edges) = &self.0.edge_features {
            // Reserved with the minibatch, and filled when it is assembled.
            edges.make_room(&mut batch.minibatches);
        }
        Ok(())
    }

    /// Reserves memory for the nodes and edges of a sampled batch.
    fn reserve_batch(&self, index: u64, mut batch: InFlightBatch) {
        let bytes = batch_bytes(&batch).max(batch.reserved_bytes);
        let more = bytes - batch.reserved_bytes;
        if more > 0 {
            match self.0.lock().in_turn(index, batch) {
                Some(next) => batch = next,
                None => return,
            }
        }
        match self.reserving(index, |reserve| reserve.take_for_minibatch(more)) {
            Ok(true) => {
                batch.reserved_bytes = bytes;
                self.0.lock().sampled(index, batch);
            }
            Ok(false) => self.0.lock().unreserved(index, batch),
            Err(error) => self.give_up(batch, None, error),
        }
    }

    /// Calls `take`, which takes from the reserve. While that has too little, retires batches and calls it again.
    /// Returns false if there is still too little, but memory may return before batch `index` is delivered.
    fn reserving(&self, index: u64, mut take: impl FnMut(&MemoryReserve) -> Result<()>) -> Result<bool> {
        if take(&self.0.reserve).is_ok() {
            return Ok(true);
        }
        // No memory returns while the state is locked.
        let mut state = self.0.lock();
        loop {
            match take(&self.0.reserve) {
                Ok(()) => return Ok(true),
                Err(Error::Budget { .. }) if state.stock.retire_batch(&self.0.reserve) => {}
                Err(Error::Budget { .. }) if state.memory_may_return(index) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn plan(&self, index: u64, mut batch: InFlightBatch, mut planner: Box<Planner>, serial: u64, pinned: u64) {
        let format = self.0.format.as_ref().expect("rows that are planned have a format");
        let mut slots = std::mem::take(&mut batch.slots);
        let planned = planner.plan(batch.rows(format), &mut slots, serial, serial - pinned, &self.0.counters);
        let rows = batch.rows(format).len();
        batch.slots = slots;
        let (full, error) = match planned {
            Ok(PlanOutcome::Complete) => (None, None),
            // All pinned rows are its own, so waiting for other batches would not help.
            Ok(PlanOutcome::PoolFull) if pinned == 0 => (Some(0), Some(pool_too_small(rows))),
            Ok(PlanOutcome::PoolFull) => (Some(pinned), None),
            Err(error) => (Some(pinned), Some(error)),
        };
        self.0.lock().planned(index, batch, planner, full);
        if let Some(error) = error {
            self.0.fail(error);
        }
    }

    fn assemble(
        &self,
        index: u64,
        mut batch: InFlightBatch,
        mut buffer: Option<FeatureBuffer>,
        scratch: Option<&mut RowScratch>,
    ) {
        let resized = buffer.as_mut().map_or(Ok(true), |buffer| {
            self.reserving(index, |reserve| buffer.resize(|node_type| batch.nodes(node_type), reserve))
        });
        if !matches!(resized, Ok(true)) {
            self.0.lock().not_assembled(index, batch, buffer);
            if let Err(error) = resized {
                self.0.fail(error);
            }
            return;
        }
        let gathered = match (&self.0.format, scratch, &mut buffer) {
            (Some(format), Some(scratch), Some(buffer)) => self.0.access.gather(format, &batch, scratch, buffer),
            _ => Ok(()),
        };
        let gathered = gathered.and_then(|()| match &self.0.edge_features {
            Some(edges) => edges.gather(&mut batch.minibatches),
            None => Ok(()),
        });
        match gathered {
            Ok(()) => {
                if let Some(format) = &self.0.format {
                    self.0.access.count(format, &batch, &self.0.counters);
                }
                self.0.lock().assembled(index, batch, buffer);
            }
            Err(error) => self.give_up(batch, buffer, error),
        }
    }

    fn give_up(&self, batch: InFlightBatch, buffer: Option<FeatureBuffer>, error: Error) {
        self.0.lock().stock.take_back(batch, buffer, &self.0.reserve);
        self.0.fail(error);
    }
}

fn pool_too_small(rows: usize) -> Error {
    Error::conflict(
        format!("the {rows} feature rows of a minibatch do not fit the row pool of the feed"),
        "raise --memory, or use smaller batches or fewer neighbors (--fanouts)",
    )
}
