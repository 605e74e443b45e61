//! Feature rows: from the bytes of the store to the values that are delivered.

use grappa_formats::{
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};

use super::options::OutputDtype;

/// What there is of a node: its features, and their aggregate over its in-neighbours if that is wanted. Of the columns of a
/// row, each has its own files; in memory they are side by side, and they are delivered one below the other.
#[derive(Debug, Clone)]
pub(super) struct RowFormat {
    columns: Vec<Column>,
}

/// How one column of rows is stored, and as what it is delivered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub stored: FeatureLayout,
    pub output: OutputDtype,
    /// Where its part of a row in memory starts, in bytes: a multiple of 8.
    pub part: usize,
}

impl RowFormat {
    /// Rows of columns that are stored like this. All have equally many values.
    pub fn new(stored: &[FeatureLayout], output: OutputDtype) -> Self {
        let mut end = 0;
        let column = |&stored: &FeatureLayout| {
            let part = end;
            end += stored.row_bytes().next_multiple_of(8);
            Column { stored, output, part }
        };
        Self {
            columns: stored.iter().map(column).collect(),
        }
    }

    /// Rows as they are stored in feature files, or computed.
    pub fn features(spec: &FeatureSpec) -> FeatureLayout {
        FeatureLayout {
            dtype: match spec.source {
                FeatureSource::Stored => spec.dtype,
                // They are computed as f32.
                FeatureSource::Procedural => FeatureDtype::F32,
            },
            dim: spec.dim,
            stride: spec.row_stride,
        }
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Values of a row of one column.
    pub fn dim(&self) -> usize {
        self.columns[0].stored.dim as usize
    }

    /// The type of the delivered values.
    pub fn output(&self) -> OutputDtype {
        self.columns[0].output
    }

    /// Bytes of all that is delivered of a node.
    pub fn output_bytes(&self) -> usize {
        self.columns.iter().map(Column::output_bytes).sum()
    }

    /// Bytes of all that is stored of a node.
    pub fn stored_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.stored.row_bytes()).sum()
    }

    /// Bytes of a node's place in memory, a multiple of 8.
    pub fn slot_bytes(&self) -> usize {
        let parts = self
            .columns
            .iter()
            .map(|column| column.stored.row_bytes().next_multiple_of(8));
        parts.sum()
    }

    /// Memory to convert with.
    pub fn scratch(&self) -> RowScratch {
        RowScratch {
            values: vec![0.0; self.dim()],
            row: vec![0; self.row_bytes_max()],
        }
    }

    /// Bytes of [`RowFormat::scratch`].
    pub fn scratch_bytes(&self) -> u64 {
        (self.dim() * size_of::<f32>() + self.row_bytes_max()) as u64
    }

    fn row_bytes_max(&self) -> usize {
        let row_bytes = self.columns.iter().map(|column| column.stored.row_bytes());
        row_bytes.max().unwrap_or_default()
    }
}

impl Column {
    /// Bytes of a delivered row.
    pub fn output_bytes(&self) -> usize {
        self.stored.dim as usize * self.output.bytes()
    }

    /// Whether a delivered row is the bytes of the stored one.
    pub fn is_verbatim(&self) -> bool {
        matches!(
            (self.stored.dtype, self.output),
            (FeatureDtype::F32, OutputDtype::F32) | (FeatureDtype::Bf16, OutputDtype::Bf16)
        )
    }

    /// Converts a stored row. `out` is aligned to its values.
    #[inline]
    pub fn convert(&self, row: &[u8], values: &mut [f32], out: &mut [u8]) {
        if self.is_verbatim() {
            out.copy_from_slice(&row[..out.len()]);
            return;
        }
        match self.output {
            OutputDtype::F32 => self.stored.decode_row(row, bytemuck::cast_slice_mut(out)),
            OutputDtype::Bf16 => {
                self.stored.decode_row(row, values);
                self.narrow(values, out);
            }
        }
    }

    /// Delivers the values that `write` computes.
    #[inline]
    pub fn write(&self, values: &mut [f32], out: &mut [u8], write: impl FnOnce(&mut [f32])) {
        match self.output {
            OutputDtype::F32 => write(bytemuck::cast_slice_mut(out)),
            OutputDtype::Bf16 => {
                write(values);
                self.narrow(values, out);
            }
        }
    }

    fn narrow(&self, values: &[f32], out: &mut [u8]) {
        let layout = FeatureLayout {
            dtype: FeatureDtype::Bf16,
            dim: self.stored.dim,
            stride: 2 * self.stored.dim,
        };
        layout.encode_row(values, out);
    }
}

/// Memory that a thread converts rows with.
#[derive(Debug)]
pub(super) struct RowScratch {
    /// One row of values.
    pub values: Vec<f32>,
    /// One row as it is stored.
    pub row: Vec<u8>,
}
