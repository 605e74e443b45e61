//! Learnable rows: values, the moments of their optimizer, and the number of updates of each row.
//!
//! A table knows nothing of triples: a row is learned from gradients that are addressed to it. Only rows with gradients change (lazy Adam),
//! so a step costs as much as its gradients, for any number of rows. The bias correction of Adam uses the updates of the row.

mod file;
mod generations;
mod optimizer;

use std::ops::Range;

use grappa_formats::random;
use grappa_io::array::{Array, PAGE_BYTES, Storage};
use grappa_kernels::for_each;

pub use self::{
    file::{RowsHeader, read_rows, read_values},
    generations::{Generation, Generations, TableShape},
    optimizer::RowOptimizer,
};
use crate::matrix::Matrix;

/// Gradients of a part of an update, which a thread adds up and applies.
const PART: usize = 256;

/// A table of learnable rows, in memory or on a disk.
#[derive(Debug, PartialEq)]
pub struct Rows {
    dim: usize,
    values: Array<f32>,
    /// The moments that the optimizer has, in its order.
    moments: Vec<Array<f32>>,
    /// Updates of each row; empty if the optimizer does not count them.
    updates: Array<u32>,
}

/// The place of a row, and of one of its gradients. Gradients of a row are added up in the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GradientOf {
    /// The row.
    pub row: u32,
    /// The number of the gradient.
    pub gradient: u32,
}

impl Rows {
    /// Rows whose values are uniform in `-range..range`. The values of row `i` follow from `key` and `number(i)`.
    pub fn random(
        rows: usize,
        dim: usize,
        optimizer: RowOptimizer,
        range: f32,
        key: u64,
        number: impl Fn(usize) -> u64 + Sync,
    ) -> Self {
        let mut new = Self::zeros(rows, dim, optimizer);
        new.randomize(0..rows, range, key, number);
        new
    }

    /// Makes the values of some rows uniform in `-range..range`, as [`Rows::random`] does.
    pub fn randomize(&mut self, rows: Range<usize>, range: f32, key: u64, number: impl Fn(usize) -> u64 + Sync) {
        let (dim, first) = (self.dim, rows.start);
        let parts: Vec<_> = self.values[rows.start * dim..rows.end * dim].chunks_mut(PART * dim).enumerate().collect();
        for_each(parts, |(part, values)| {
            for (row, values) in values.chunks_mut(dim).enumerate() {
                let key = random::combine(key, number(first + part * PART + row));
                for (place, value) in (0..).zip(values) {
                    // 24 bits are exact in f32.
                    let uniform = (random::draw_at(key, place) >> 40) as f32 / (1 << 24) as f32;
                    *value = range * (2.0 * uniform - 1.0);
                }
            }
        });
    }

    /// Rows of zeros in memory.
    pub fn zeros(rows: usize, dim: usize, optimizer: RowOptimizer) -> Self {
        Self::zeros_in(&Storage::Memory, rows, dim, optimizer).expect("arrays in memory need no file")
    }

    /// Rows of zeros.
    ///
    /// # Errors
    /// If the disk has no room for them.
    pub fn zeros_in(storage: &Storage, rows: usize, dim: usize, optimizer: RowOptimizer) -> grappa_io::Result<Self> {
        let values = rows * dim;
        let moments = (0..optimizer.moments()).map(|_| Array::zeros(values, storage));
        Ok(Self {
            dim,
            values: Array::zeros(values, storage)?,
            moments: moments.collect::<grappa_io::Result<_>>()?,
            updates: Array::zeros(if optimizer.counts_updates() { rows } else { 0 }, storage)?,
        })
    }

    /// Bytes of a row in memory.
    pub fn row_bytes(dim: usize, optimizer: RowOptimizer) -> u64 {
        4 * ((1 + optimizer.moments()) * dim + usize::from(optimizer.counts_updates())) as u64
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The values of a row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.dim..][..self.dim]
    }

    /// The values of all rows.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values of all rows, to be changed. The state of the optimizer stays.
    pub fn values_mut(&mut self) -> &mut Array<f32> {
        &mut self.values
    }

    /// The values of all rows, without the state of the optimizer.
    pub fn into_values(self) -> Vec<f32> {
        self.values.into_vec()
    }

    /// The moments of the optimizer, in its order.
    pub fn moments(&self) -> &[Array<f32>] {
        &self.moments
    }

    /// Updates of each row; empty if the optimizer does not count them.
    pub fn updates(&self) -> &[u32] {
        &self.updates
    }

    /// The state of the optimizer, to be changed: its moments, and the updates of each row.
    pub fn optimizer_mut(&mut self) -> (&mut [Array<f32>], &mut Array<u32>) {
        (&mut self.moments, &mut self.updates)
    }

    /// Starts reads of the values of some rows; with `whole`, also of the state of the optimizer. In memory, it does nothing. Rows ascend.
    pub fn read_ahead(&self, rows: impl Iterator<Item = usize> + Clone, whole: bool) {
        if !self.is_on_disk() {
            return;
        }
        let moments = self.moments.iter().filter(|_| whole);
        for array in [&self.values].into_iter().chain(moments) {
            rows.clone().for_each(|row| array.read_ahead(row * self.dim..(row + 1) * self.dim));
        }
    }

    /// Starts reads of the values of adjacent rows. In memory, it does nothing.
    pub fn read_ahead_range(&self, rows: Range<usize>) {
        self.values.read_ahead(rows.start * self.dim..rows.end * self.dim);
    }

    /// Whether the rows are on a disk.
    pub fn is_on_disk(&self) -> bool {
        self.values.is_on_disk()
    }

    /// Releases the pages of rows on a disk from the memory of the process.
    pub fn release(&self) {
        self.values.release();
        self.moments.iter().for_each(Array::release);
        self.updates.release();
    }

    /// The most bytes of pages that a change of a row touches.
    pub fn touched_bytes(dim: usize, optimizer: RowOptimizer) -> u64 {
        let arrays = 1 + optimizer.moments() + usize::from(optimizer.counts_updates());
        Self::row_bytes(dim, optimizer) + arrays as u64 * PAGE_BYTES
    }

    /// Adds up the gradients of each row and changes the rows. `gradients` lists the rows of `matrix` that are gradients, sorted. The numbers
    /// of rows begin with `first`.
    pub fn update(
        &mut self,
        optimizer: RowOptimizer,
        rate: f32,
        gradients: &[GradientOf],
        first: u32,
        matrix: &Matrix,
    ) {
        let dim = self.dim;
        let mut rest = RowsPart {
            first,
            values: &mut self.values,
            moments: self.moments.iter_mut().map(|moments| &mut **moments).collect(),
            updates: &mut self.updates,
        };
        let mut parts = Vec::with_capacity(gradients.len().div_ceil(PART));
        let mut left = gradients;
        while let Some(last) = left.get(PART.min(left.len()).saturating_sub(1)) {
            let row = last.row;
            let (of_part, others) = left.split_at(left.partition_point(|gradient| gradient.row <= row));
            left = others;
            let end = (row + 1 - rest.first) as usize;
            parts.push((rest.split_off(end, dim), of_part));
        }
        for_each(parts, |(mut rows, gradients)| {
            let mut sum = vec![0.0f32; dim];
            for of_row in gradients.chunk_by(|one, next| one.row == next.row) {
                sum.copy_from_slice(&matrix.row(of_row[0].gradient as usize)[..dim]);
                for other in &of_row[1..] {
                    let other = &matrix.row(other.gradient as usize)[..dim];
                    sum.iter_mut().zip(other).for_each(|(sum, other)| *sum += other);
                }
                rows.update((of_row[0].row - rows.first) as usize, optimizer, rate, &sum);
            }
        });
    }
}

/// Consecutive rows of a table.
struct RowsPart<'a> {
    /// The number of the first row.
    first: u32,
    values: &'a mut [f32],
    moments: Vec<&'a mut [f32]>,
    updates: &'a mut [u32],
}

impl RowsPart<'_> {
    /// Takes the first `rows` rows.
    fn split_off(&mut self, rows: usize, dim: usize) -> Self {
        let values = rows * dim;
        let counted = if self.updates.is_empty() { 0 } else { rows };
        let part = Self {
            first: self.first,
            values: self.values.split_off_mut(..values).expect("rows of the table"),
            moments: self
                .moments
                .iter_mut()
                .map(|moments| moments.split_off_mut(..values).expect("moments of the rows"))
                .collect(),
            updates: self.updates.split_off_mut(..counted).expect("counts of the rows"),
        };
        self.first += rows as u32;
        part
    }

    fn update(&mut self, row: usize, optimizer: RowOptimizer, rate: f32, gradient: &[f32]) {
        let range = row * gradient.len()..(row + 1) * gradient.len();
        let updates = self.updates.get_mut(row).map_or(0, |updates| {
            *updates += 1;
            *updates
        });
        let values = &mut self.values[range.clone()];
        let mut moments = self.moments.iter_mut().map(|moments| &mut moments[range.clone()]);
        optimizer.update(rate, updates, gradient, values, [moments.next(), moments.next()]);
    }
}
