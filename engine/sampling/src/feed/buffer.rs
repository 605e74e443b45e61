//! Buffers of delivered features, which are reused from batch to batch.

use std::{ops::Range, sync::Arc};

use grappa_io::{Result, arena::Arena};

use super::{
    options::{OutputDtype, RegisterMemory, Registration},
    reserve::MemoryReserve,
    rows::{RowContent, RowFormat},
};

/// The features of the nodes of a minibatch, a row-major matrix without gaps for each node type that has features. If pre-aggregated
/// features were requested, a matrix of them follows for each relation into the type whose sources have features.
///
/// The memory starts at a page. It is filled again after the batch is dropped, so it is registered with a device only
/// once.
#[derive(Debug)]
pub struct FeatureBuffer {
    register: Option<Arc<dyn RegisterMemory>>,
    /// Declared before the memory, so that it is dropped first.
    registration: Option<Registration>,
    arena: Arena,
    matrices: Vec<Matrix>,
    dtype: OutputDtype,
}

/// The shape of a matrix of a buffer.
#[derive(Debug, Clone, Copy)]
struct Matrix {
    node_type: usize,
    content: RowContent,
    rows: usize,
    dim: usize,
}

impl Matrix {
    fn bytes(&self, dtype: OutputDtype) -> usize {
        self.rows * self.dim * dtype.bytes()
    }
}

impl FeatureBuffer {
    /// A buffer for the feature rows of `nodes(type)` nodes of each node type.
    pub(super) fn new(
        nodes: impl Fn(usize) -> usize,
        format: &RowFormat,
        register: Option<Arc<dyn RegisterMemory>>,
    ) -> Result<Self> {
        let matrices = format.columns.iter().map(|column| Matrix {
            node_type: column.row_type.node_type,
            content: column.content,
            rows: 0,
            dim: column.stored.dim as usize,
        });
        let mut buffer = Self {
            register,
            registration: None,
            arena: Arena::new(0)?,
            matrices: matrices.collect(),
            dtype: format.columns[0].output,
        };
        buffer.reallocate(format.output_bytes(nodes))?;
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

    /// Sets the number of rows of each type, with unspecified values. Additional memory is taken from the `reserve`.
    pub(super) fn resize(&mut self, nodes: impl Fn(usize) -> usize, reserve: &MemoryReserve) -> Result<()> {
        let of_matrix = |matrix: &Matrix| Matrix { rows: nodes(matrix.node_type), ..*matrix }.bytes(self.dtype);
        let bytes = self.matrices.iter().map(of_matrix).sum::<usize>();
        if bytes > self.arena.len() {
            // Allocate a little more than needed, so that the next batch probably fits too.
            let bytes = bytes + bytes / 16;
            reserve.take_for_features((bytes - self.arena.len()) as u64)?;
            self.reallocate(bytes)?;
        }
        for matrix in &mut self.matrices {
            matrix.rows = nodes(matrix.node_type);
        }
        Ok(())
    }

    /// Number of rows of the first matrix.
    pub fn rows(&self) -> usize {
        self.matrices[0].rows
    }

    /// Number of matrices. In a store without types: 2 if pre-aggregated features were requested, otherwise 1.
    pub fn columns(&self) -> usize {
        self.matrices.len()
    }

    /// Values per row of the first matrix.
    pub fn dim(&self) -> usize {
        self.matrices[0].dim
    }

    /// The node type of each matrix, its content, its rows, and the values in a row.
    pub fn shapes(&self) -> impl ExactSizeIterator<Item = (usize, RowContent, [usize; 2])> + '_ {
        self.matrices.iter().map(|matrix| (matrix.node_type, matrix.content, [matrix.rows, matrix.dim]))
    }

    /// The bytes of the features of a node type, row by row, and the number of values in a row. None if its nodes have none.
    pub fn of_type(&self, node_type: usize) -> Option<(&[u8], usize)> {
        let is_wanted = |matrix: &Matrix| matrix.node_type == node_type && matrix.content == RowContent::Features;
        let column = self.matrices.iter().position(is_wanted)?;
        Some((&self.arena[self.place(column)], self.matrices[column].dim))
    }

    /// The type of the values.
    pub fn dtype(&self) -> OutputDtype {
        self.dtype
    }

    /// The bytes of all values, in the machine's byte order, matrix by matrix.
    pub fn bytes(&self) -> &[u8] {
        &self.arena[..self.place(self.matrices.len()).start]
    }

    /// As [`bytes`](Self::bytes).
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let end = self.place(self.matrices.len()).start;
        &mut self.arena[..end]
    }

    pub(super) fn column_mut(&mut self, column: usize) -> &mut [u8] {
        let place = self.place(column);
        &mut self.arena[place]
    }

    /// The place of a matrix. The one after the last is empty.
    fn place(&self, column: usize) -> Range<usize> {
        let bytes = |matrices: &[Matrix]| matrices.iter().map(|matrix| matrix.bytes(self.dtype)).sum::<usize>();
        let start = bytes(&self.matrices[..column]);
        start..start + self.matrices.get(column).map_or(0, |matrix| matrix.bytes(self.dtype))
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
