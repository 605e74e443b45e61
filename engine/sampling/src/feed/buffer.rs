//! Buffers of delivered features, which are reused from batch to batch.

use std::sync::Arc;

use grappa_io::{Result, arena::Arena};

use super::{
    options::{OutputDtype, RegisterMemory, Registration},
    reserve::MemoryReserve,
    rows::RowFormat,
};

/// The features of the nodes of a minibatch, a row-major matrix without gaps. If pre-aggregated features were
/// requested, a second matrix of the same shape follows.
///
/// The memory starts at a page. It is filled again after the batch is dropped, so it is registered with a device only
/// once.
#[derive(Debug)]
pub struct FeatureBuffer {
    register: Option<Arc<dyn RegisterMemory>>,
    /// Declared before the memory, so that it is dropped first.
    registration: Option<Registration>,
    arena: Arena,
    /// Rows of each matrix.
    rows: usize,
    columns: usize,
    dim: usize,
    dtype: OutputDtype,
}

impl FeatureBuffer {
    /// A buffer with room for the feature rows of `rows` nodes.
    pub(super) fn new(rows: usize, format: &RowFormat, register: Option<Arc<dyn RegisterMemory>>) -> Result<Self> {
        let mut buffer = Self {
            register,
            registration: None,
            arena: Arena::new(0)?,
            rows: 0,
            columns: format.columns.len(),
            dim: format.dim(),
            dtype: format.output(),
        };
        buffer.reallocate(rows * format.output_bytes())?;
        Ok(buffer)
    }

    fn reallocate(&mut self, bytes: usize) -> Result<()> {
        // The old memory is released first, so that both never exist at the same time.
        self.registration = None;
        self.arena = Arena::new(0)?;
        self.arena = Arena::new(bytes)?;
        let register = self.register.as_ref().filter(|_| bytes > 0);
        self.registration = register.and_then(|register| register.register(&self.arena));
        Ok(())
    }

    /// Sets the number of rows, with unspecified values. Additional memory is taken from the `reserve`.
    pub(super) fn resize(&mut self, rows: usize, reserve: &MemoryReserve) -> Result<()> {
        let bytes = rows * self.columns * self.row_bytes();
        if bytes > self.arena.len() {
            // Allocate a little more than needed, so that the next batch probably fits too.
            let bytes = bytes + bytes / 16;
            reserve.take_for_features((bytes - self.arena.len()) as u64)?;
            self.reallocate(bytes)?;
        }
        self.rows = rows;
        Ok(())
    }

    /// Number of nodes.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows per node: 2 if pre-aggregated features were requested, otherwise 1.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The type of the values.
    pub fn dtype(&self) -> OutputDtype {
        self.dtype
    }

    /// The bytes of all values, in the machine's byte order: the features of all nodes, then the pre-aggregated
    /// features of all nodes.
    pub fn bytes(&self) -> &[u8] {
        &self.arena[..self.columns * self.column_bytes()]
    }

    /// As [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let bytes = self.columns * self.column_bytes();
        &mut self.arena[..bytes]
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

    /// All values, in the order of [`bytes`](Self::bytes).
    ///
    /// # Panics
    /// If the values are not f32.
    pub fn f32s(&self) -> &[f32] {
        assert_eq!(self.dtype, OutputDtype::F32, "the values are not f32");
        bytemuck::cast_slice(self.bytes())
    }
}
