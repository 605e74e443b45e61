//! Feature rows: from the bytes of the store to the values that are delivered.

use grappa_formats::{
    features::FeatureLayout,
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};

use super::options::OutputDtype;

/// How rows are stored, and as what they are delivered.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowFormat {
    pub stored: FeatureLayout,
    pub output: OutputDtype,
}

impl RowFormat {
    /// The format of the rows of a store.
    pub fn new(spec: &FeatureSpec, output: OutputDtype) -> Self {
        let dtype = match spec.source {
            FeatureSource::Stored => spec.dtype,
            // They are computed as f32.
            FeatureSource::Procedural => FeatureDtype::F32,
        };
        Self {
            stored: FeatureLayout {
                dtype,
                dim: spec.dim,
                stride: spec.row_stride,
            },
            output,
        }
    }

    /// Values of a row.
    pub fn dim(&self) -> usize {
        self.stored.dim as usize
    }

    /// Bytes of a delivered row.
    pub fn output_bytes(&self) -> usize {
        self.dim() * self.output.bytes()
    }

    /// Whether a delivered row is the bytes of the stored one.
    pub fn is_verbatim(&self) -> bool {
        matches!(
            (self.stored.dtype, self.output),
            (FeatureDtype::F32, OutputDtype::F32) | (FeatureDtype::Bf16, OutputDtype::Bf16)
        )
    }

    /// Memory to convert with.
    pub fn scratch(&self) -> RowScratch {
        RowScratch {
            values: vec![0.0; self.dim()],
            row: vec![0; self.stored.row_bytes()],
        }
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
