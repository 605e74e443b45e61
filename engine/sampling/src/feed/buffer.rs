//! Buffers of feature rows, used again and again, and the memory that all of a feed's parts may still take.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use grappa_io::{Error, Result, arena::Arena, size::ByteSize};

use super::{
    options::{OutputDtype, RegisterMemory, Registration},
    rows::RowFormat,
};

/// Feature rows of a minibatch, one after another without gaps, and after them those of their aggregates, if these were
/// asked for. They are in memory that starts at a page and is filled again when the batch that it belongs to is dropped: it
/// is registered once, where that is wanted.
#[derive(Debug)]
pub struct FeatureBuffer {
    register: Option<Arc<dyn RegisterMemory>>,
    /// Before the memory, so that it is dropped first.
    registration: Option<Registration>,
    arena: Arena,
    /// Of a column.
    rows: usize,
    columns: usize,
    dim: usize,
    dtype: OutputDtype,
}

impl FeatureBuffer {
    /// A buffer with room for `rows` nodes.
    pub(super) fn new(rows: usize, format: &RowFormat, register: Option<Arc<dyn RegisterMemory>>) -> Result<Self> {
        let mut buffer = Self {
            register,
            registration: None,
            arena: Arena::new(0)?,
            rows: 0,
            columns: format.columns().len(),
            dim: format.dim(),
            dtype: format.output(),
        };
        buffer.renew(rows * format.output_bytes())?;
        Ok(buffer)
    }

    /// Takes other memory.
    fn renew(&mut self, bytes: usize) -> Result<()> {
        self.registration = None;
        self.arena = Arena::new(0)?;
        self.arena = Arena::new(bytes)?;
        let register = self.register.as_ref().filter(|_| bytes > 0);
        self.registration = register.and_then(|register| register.register(&self.arena));
        Ok(())
    }

    /// Makes room for the rows of `rows` nodes, of any values. Where that takes more memory, it must be left in the `reserve`.
    pub(super) fn resize(&mut self, rows: usize, reserve: &Reserve) -> Result<()> {
        let bytes = rows * self.columns * self.row_bytes();
        if bytes > self.arena.len() {
            // Some more, so that it need not grow again for the next batch.
            let bytes = bytes + bytes / 16;
            reserve.take((bytes - self.arena.len()) as u64, "a minibatch's features")?;
            self.renew(bytes)?;
        }
        self.rows = rows;
        Ok(())
    }

    /// Number of nodes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows that there are of each node: 2 if aggregates were asked for.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The type of the values.
    pub fn dtype(&self) -> OutputDtype {
        self.dtype
    }

    /// All values' bytes, in the machine's order: the features of all nodes, then the aggregates of all nodes.
    pub fn bytes(&self) -> &[u8] {
        &self.arena[..self.columns * self.column_bytes()]
    }

    pub(super) fn column_mut(&mut self, column: usize) -> &mut [u8] {
        let bytes = self.column_bytes();
        &mut self.arena[column * bytes..][..bytes]
    }

    fn row_bytes(&self) -> usize {
        self.dim * self.dtype.bytes()
    }

    fn column_bytes(&self) -> usize {
        self.rows * self.row_bytes()
    }

    /// All values, row by row.
    ///
    /// # Panics
    /// If they are not f32.
    pub fn f32s(&self) -> &[f32] {
        assert_eq!(self.dtype, OutputDtype::F32, "the type of the values");
        bytemuck::cast_slice(self.bytes())
    }

    /// The bits of all values, row by row.
    ///
    /// # Panics
    /// If they are not bf16.
    pub fn bf16_bits(&self) -> &[u16] {
        assert_eq!(self.dtype, OutputDtype::Bf16, "the type of the values");
        bytemuck::cast_slice(self.bytes())
    }
}

/// Memory for batches that are larger than those that were sampled to see how large they are.
#[derive(Debug)]
pub(super) struct Reserve {
    left: AtomicU64,
    budget: u64,
}

impl Reserve {
    /// How much of a budget is held back: one part of so many.
    pub const SHARE: u64 = 32;

    /// The reserve of a budget.
    pub fn of(budget: u64) -> Self {
        Self {
            left: AtomicU64::new(budget / Self::SHARE),
            budget,
        }
    }

    /// Takes some of it.
    pub fn take(&self, bytes: u64, what: &str) -> Result<()> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(bytes));
        match taken {
            Ok(_) => Ok(()),
            Err(left) => Err(Error::Budget {
                what: format!(
                    "a minibatch that is much larger than those that were sampled beforehand: {what} take {} more, and {} are \
                     left",
                    ByteSize(bytes),
                    ByteSize(left)
                ),
                given: self.budget,
                least: self.budget + (bytes - left) * Self::SHARE,
                remedy: "or sample with smaller batches or fewer neighbours (--fanouts)",
            }),
        }
    }

    /// Gives back what was taken.
    pub fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
    }
}
