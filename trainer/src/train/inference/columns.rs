//! The first columns of rows, and columns in another order.

use std::ops::Range;

use grappa_engine::aggregate::{NodeRows, RowValues};
use grappa_formats::{features::FeatureLayout, manifest::FeatureDtype};

use crate::nn::ChangedRows;

/// Bytes of whole rows that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// The first `width` values of each row. With jumping knowledge they are the states, which neighbors aggregate; the others are
/// carried along.
pub(super) struct FirstColumns<'a> {
    rows: &'a dyn NodeRows,
    width: usize,
}

impl<'a> FirstColumns<'a> {
    pub(super) fn new(rows: &'a dyn NodeRows, width: usize) -> Self {
        Self { rows, width }
    }

    fn is_all(&self) -> bool {
        self.width == self.rows.width()
    }
}

impl NodeRows for FirstColumns<'_> {
    fn width(&self) -> usize {
        self.width
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        if self.is_all() {
            return self.rows.read(positions, out);
        }
        let piece = (READ_BYTES / (4 * self.rows.width())).max(1);
        let mut rows = Vec::new();
        for (out, first) in out.chunks_mut(piece * self.width).zip(positions.step_by(piece)) {
            let count = out.len() / self.width;
            rows.resize(count * self.rows.width(), 0.0);
            self.rows.read(first..first + count as u64, &mut rows)?;
            let columns = rows.chunks_exact(self.rows.width()).map(|row| &row[..self.width]);
            out.chunks_exact_mut(self.width).zip(columns).for_each(|(out, columns)| out.copy_from_slice(columns));
        }
        Ok(())
    }

    fn layout(&self) -> FeatureLayout {
        match self.is_all() {
            true => self.rows.layout(),
            false => FeatureLayout { dim: self.width as u32, stride: 4 * self.width as u32, dtype: FeatureDtype::F32 },
        }
    }

    fn file_end(&self, position: u64) -> u64 {
        self.rows.file_end(position)
    }

    fn read_encoded(&self, positions: Range<u64>, out: &mut [u8]) -> grappa_io::Result<()> {
        match self.is_all() {
            true => self.rows.read_encoded(positions, out),
            false => self.read(positions, bytemuck::cast_slice_mut(out)),
        }
    }

    fn read_ahead(&self, positions: Range<u64>) {
        self.rows.read_ahead(positions);
    }

    fn file_bytes(&self) -> u64 {
        self.rows.file_bytes()
    }

    fn in_memory(&self) -> Option<RowValues<'_>> {
        self.rows.in_memory()
    }
}

/// Features of a store in the order of the features that a model was trained on. `order` has the position in `rows` of each column.
///
/// # Panics
/// If `order` does not have a position for each column.
pub(crate) fn reordered<'a>(rows: &'a dyn NodeRows, order: &'a [usize]) -> ChangedRows<'a> {
    assert_eq!(order.len(), rows.width(), "a position for each column");
    ChangedRows::new(rows, move |row| {
        let stored = row.to_vec();
        for (value, &position) in row.iter_mut().zip(order) {
            *value = stored[position];
        }
    })
}
