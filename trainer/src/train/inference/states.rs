//! The states of nodes between two layers, in memory or in a scratch file.

use std::{ops::Range, path::Path};

use grappa_engine::aggregate::{MemoryRows, NodeRows, ScratchRows};

/// One row for each node of a set, by position.
pub(super) enum States {
    Memory(MemoryRows),
    Disk(ScratchRows),
}

impl States {
    /// Space for `rows` rows of `width` values: in memory if they take at most `memory` bytes, else in a scratch file.
    pub fn create(scratch: &Path, rows: u64, width: usize, memory: u64) -> grappa_io::Result<Self> {
        Ok(match bytes(rows, width) <= memory {
            true => Self::Memory(MemoryRows::new(rows, width)?),
            false => Self::Disk(ScratchRows::create(scratch, rows, width)?),
        })
    }

    /// Writes the rows from a position on.
    pub fn write(&mut self, first: u64, values: &[f32]) -> grappa_io::Result<()> {
        match self {
            Self::Memory(rows) => {
                let at = first as usize * rows.width();
                rows.values_mut()[at..at + values.len()].copy_from_slice(values);
                Ok(())
            }
            Self::Disk(rows) => rows.write(first, values),
        }
    }

    /// Bytes of memory that the rows take.
    pub fn memory(&self) -> u64 {
        self.in_memory().map_or(0, |values| size_of_val(values) as u64)
    }
}

impl NodeRows for States {
    fn width(&self) -> usize {
        match self {
            Self::Memory(rows) => rows.width(),
            Self::Disk(rows) => rows.width(),
        }
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        match self {
            Self::Memory(rows) => rows.read(positions, out),
            Self::Disk(rows) => rows.read(positions, out),
        }
    }

    fn in_memory(&self) -> Option<&[f32]> {
        match self {
            Self::Memory(rows) => rows.in_memory(),
            Self::Disk(_) => None,
        }
    }
}

/// Bytes of so many rows in memory.
pub(super) fn bytes(rows: u64, width: usize) -> u64 {
    rows.saturating_mul(4 * width as u64)
}
