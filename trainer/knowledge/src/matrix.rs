//! Matrices whose rows are padded for products.

use grappa_kernels::{for_each, padded};

/// Rows that a thread copies at a time.
const ROWS: usize = 256;

/// Rows of f32. Padding after the values of a row is 0.
#[derive(Debug, Clone, Default)]
pub struct Matrix {
    /// Row by row, with padding.
    pub data: Vec<f32>,
    /// Values of a row with padding.
    pub stride: usize,
}

impl Matrix {
    /// `rows` rows of zeros with `columns` values each.
    pub fn zeros(rows: usize, columns: usize) -> Self {
        let stride = padded(columns);
        Self { data: vec![0.0; rows * stride], stride }
    }

    /// Makes this a matrix of `rows` rows of zeros, in the same memory if it is large enough.
    pub fn reset(&mut self, rows: usize, columns: usize) {
        self.stride = padded(columns);
        self.data.clear();
        self.data.resize(rows * self.stride, 0.0);
    }

    /// As [`Matrix::reset`], but old values stay where the shape is the same: the caller writes all of them.
    pub fn resize(&mut self, rows: usize, columns: usize) {
        match self.data.len() == rows * padded(columns) && self.stride == padded(columns) {
            true => {}
            false => self.reset(rows, columns),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.data.len() / self.stride.max(1)
    }

    /// A row, with padding.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data[row * self.stride..][..self.stride]
    }

    /// Fills all rows, several at a time: `fill` gets the number of a row and its place.
    pub fn fill_rows(&mut self, fill: impl Fn(usize, &mut [f32]) + Sync) {
        let stride = self.stride;
        let parts: Vec<_> = self.data.chunks_mut(ROWS * stride).enumerate().collect();
        for_each(parts, |(part, rows)| {
            rows.chunks_mut(stride).enumerate().for_each(|(row, values)| fill(part * ROWS + row, values));
        });
    }
}

/// Some rows, with padding, which is 0.
#[derive(Debug, Clone, Copy)]
pub struct PaddedRows<'a> {
    /// Row by row.
    pub data: &'a [f32],
    /// Values of a row with padding.
    pub stride: usize,
    /// Values of a row without padding.
    pub dim: usize,
}

impl<'a> PaddedRows<'a> {
    /// Number of rows.
    pub fn count(&self) -> usize {
        self.data.len() / self.stride
    }

    /// A row, without padding.
    pub fn row(&self, row: usize) -> &'a [f32] {
        &self.data[row * self.stride..][..self.dim]
    }

    /// Some of the rows.
    #[must_use]
    pub fn range(&self, first: usize, end: usize) -> Self {
        Self { data: &self.data[first * self.stride..end * self.stride], ..*self }
    }
}
