//! The times of the edges of a view: in memory, or in mapped files.

use std::sync::Arc;

use grappa_formats::time_axis::TimeAxis;
use grappa_io::{Result, progress::Progress};
use grappa_storage::Store;

use super::{
    edge_filter::EdgeFilter,
    list_starts::ListStarts,
    sources::{NARROW_NODES_MAX, Sources},
    spare::ReturnedArena,
    time_load::load,
};

/// The times of all edges of a view.
#[derive(Debug)]
pub(super) struct EdgeTimes {
    axis: Arc<TimeAxis>,
    /// The positions of the edges of all lists on the axis. None if they are in mapped files.
    decoded: Option<ReturnedArena>,
}

/// Whether positions take 32 bits in memory.
fn is_narrow(axis: &TimeAxis) -> bool {
    axis.positions() <= NARROW_NODES_MAX
}

impl EdgeTimes {
    /// The times of a store, in its mapped files. None if its edges have none.
    ///
    /// # Errors
    /// If the axis cannot be read.
    pub(super) fn open(store: &Store) -> Result<Option<Self>> {
        Ok(store.time_axis()?.map(|axis| Self { axis: axis.clone(), decoded: None }))
    }

    /// What the positions of edges stand for.
    pub(super) fn axis(&self) -> &TimeAxis {
        &self.axis
    }

    /// Loads the times into memory.
    pub(super) fn load(
        &mut self,
        filter: &EdgeFilter<'_>,
        starts: ListStarts<'_>,
        threads: usize,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut decoded = ReturnedArena::new(Self::bytes(filter) as usize, None)?;
        match is_narrow(&self.axis) {
            true => load::<u32>(filter, starts, threads, progress, decoded.values_mut())?,
            false => load::<u64>(filter, starts, threads, progress, decoded.values_mut())?,
        }
        self.decoded = Some(decoded);
        Ok(())
    }

    /// The bytes that the times of a view take in memory; 0 if edges have none. Reads the axis; if that is damaged, the view is not opened.
    pub(super) fn bytes(filter: &EdgeFilter<'_>) -> u64 {
        let Some(axis) = filter.store.time_axis().ok().flatten() else { return 0 };
        let bytes = if is_narrow(axis) { size_of::<u32>() } else { size_of::<u64>() };
        bytes as u64 * filter.edges()
    }

    /// The positions of all edges in memory.
    ///
    /// # Panics
    /// If they are in mapped files.
    pub(super) fn in_memory(&self) -> Sources<'_> {
        let decoded = self.decoded.as_ref().expect("a view in memory has its times there");
        match is_narrow(&self.axis) {
            true => Sources::Narrow(decoded.values()),
            false => Sources::Wide(decoded.values()),
        }
    }
}
