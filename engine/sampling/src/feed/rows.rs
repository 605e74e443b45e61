//! The format of feature rows: as stored, in memory, and as delivered.

use grappa_formats::{
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};

use super::options::OutputDtype;

/// The columns of a row: a node's features, and its pre-aggregated features if they are requested. Each column has its
/// own files. In memory the columns of a node are adjacent. Batches have the first column of all nodes, then the
/// second.
#[derive(Debug, Clone)]
pub(super) struct RowFormat {
    pub columns: Vec<Column>,
}

/// The format of one column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub stored: FeatureLayout,
    pub output: OutputDtype,
    /// The offset of the column in a slot, in bytes: a multiple of 8.
    pub offset: usize,
}

impl RowFormat {
    /// Rows whose columns have these layouts. All have the same number of values.
    pub fn new(stored: &[FeatureLayout], output: OutputDtype) -> Self {
        let mut end = 0;
        let columns = stored.iter().map(|&stored| {
            let offset = end;
            end += stored.row_bytes().next_multiple_of(8);
            Column { stored, output, offset }
        });
        Self { columns: columns.collect() }
    }

    /// The layout of rows in feature files. Computed rows are like rows of f32.
    pub fn features(spec: &FeatureSpec) -> FeatureLayout {
        FeatureLayout {
            dtype: match spec.source {
                FeatureSource::Stored => spec.dtype,
                FeatureSource::Procedural => FeatureDtype::F32,
            },
            dim: spec.dim,
            stride: spec.row_stride,
        }
    }

    /// Values per row of a column.
    pub fn dim(&self) -> usize {
        self.columns[0].stored.dim as usize
    }

    /// The type of the delivered values.
    pub fn output(&self) -> OutputDtype {
        self.columns[0].output
    }

    /// Bytes per node as delivered, over all columns.
    pub fn output_bytes(&self) -> usize {
        self.columns.iter().map(Column::output_bytes).sum()
    }

    /// Bytes per node as stored, over all columns.
    pub fn stored_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.stored.row_bytes()).sum()
    }

    /// Bytes of a slot: the columns of a node, each padded to a multiple of 8.
    pub fn slot_bytes(&self) -> usize {
        let parts = self.columns.iter().map(|column| column.stored.row_bytes().next_multiple_of(8));
        parts.sum()
    }

    /// Creates the memory of a thread for conversions.
    pub fn scratch(&self) -> RowScratch {
        RowScratch { values: vec![0.0; self.dim()], row: vec![0; self.row_bytes_max()] }
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

    /// Whether a delivered row has the same bytes as the stored row.
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
        let layout = FeatureLayout { dtype: FeatureDtype::Bf16, dim: self.stored.dim, stride: 2 * self.stored.dim };
        layout.encode_row(values, out);
    }
}

/// Memory for converting rows, one per thread.
#[derive(Debug)]
pub(super) struct RowScratch {
    /// One row of values.
    pub values: Vec<f32>,
    /// One stored row.
    pub row: Vec<u8>,
}
