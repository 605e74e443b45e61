//! Features as a column: read as f32, checked, and encoded.

use std::sync::atomic::{AtomicU64, Ordering};

use grappa_formats::{
    features::{ElementType, FeatureLayout},
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};
use grappa_input::MatrixSource;
use grappa_io::{Error, Position, Result};

use crate::ingest::columns::ColumnInput;

/// The feature rows of the input.
pub struct FeatureInput {
    matrix: MatrixSource,
    layout: FeatureLayout,
    nodes: u64,
    allow_nan: bool,
    /// Number of values that are finite, but not in the stored type.
    overflows: AtomicU64,
}

impl FeatureInput {
    /// The feature rows of `matrix`, one for each of `nodes` nodes. They are stored as `dtype`; by default as f16 if the
    /// file has f16, otherwise as f32. `if_more` is advice for a file with more rows.
    pub fn new(
        mut matrix: MatrixSource,
        dtype: Option<FeatureDtype>,
        nodes: u64,
        if_more: &'static str,
        allow_nan: bool,
    ) -> Result<Self> {
        matrix.expect_rows(nodes, if_more)?;
        let dtype = dtype.unwrap_or(match matrix.dtype() {
            ElementType::F16 => FeatureDtype::F16,
            _ => FeatureDtype::F32,
        });
        if allow_nan && dtype == FeatureDtype::Int8 {
            return Err(Error::conflict(
                "int8 features cannot hold NaN or infinity",
                "omit --allow-nan, or choose another --feature-dtype",
            ));
        }
        let layout = FeatureLayout::new(dtype, matrix.dim() as u32);
        Ok(Self {
            matrix,
            layout,
            nodes,
            allow_nan,
            overflows: AtomicU64::new(0),
        })
    }

    /// The layout of a feature row.
    pub fn layout(&self) -> FeatureLayout {
        self.layout
    }

    /// The manifest's entry.
    pub fn spec(&self) -> FeatureSpec {
        let FeatureLayout { dtype, dim, stride } = self.layout;
        FeatureSpec {
            dim,
            dtype,
            row_stride: stride,
            source: FeatureSource::Stored,
        }
    }
}

impl ColumnInput for FeatureInput {
    fn rows(&self) -> u64 {
        self.nodes
    }

    fn row_bytes(&self) -> usize {
        self.layout.stride as usize
    }

    fn is_sequential(&self) -> bool {
        self.matrix.is_sequential()
    }

    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let mut values = Vec::new();
        let read = self.matrix.read_rows(first, count, &mut values)?;
        if read != count {
            let what = format!(
                "expected {} rows, one per node, found {}",
                self.nodes,
                first + read as u64
            );
            return Err(Error::input(self.matrix.path(), Position::Whole, what));
        }
        let not_finite = values.iter().filter(|value| !value.is_finite()).count();
        let overflows = self.layout.unstorable(&values) - not_finite;
        self.overflows.fetch_add(overflows as u64, Ordering::Relaxed);
        let start = rows.len();
        rows.resize(start + count * self.row_bytes(), 0);
        self.layout.encode_rows(&values, &mut rows[start..]);
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.allow_nan || self.matrix.non_finite().is_none() && self.overflows.load(Ordering::Relaxed) == 0
    }

    fn finish(&self) -> Result<()> {
        self.matrix.check()?;
        if self.allow_nan {
            return Ok(());
        }
        self.matrix.check_finite()?;
        match self.overflows.load(Ordering::Relaxed) {
            0 => Ok(()),
            count => Err(Error::input(
                self.matrix.path(),
                Position::Whole,
                format!(
                    "{count} values are too large for {}; give --feature-dtype f32 or bf16, or --allow-nan to store them as \
                     infinity",
                    self.layout.dtype.name()
                ),
            )),
        }
    }
}
