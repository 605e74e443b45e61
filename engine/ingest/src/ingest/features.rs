//! Features as a column: read as f32, checked, and encoded.

use std::sync::{Mutex, MutexGuard, PoisonError};

use grappa_formats::{
    ChunkSpan,
    container::FileKind,
    features::{ElementType, FeatureLayout, FeaturesMeta},
    manifest::{FeatureDtype, FeatureSource, FeatureSpec},
};
use grappa_input::MatrixSource;
use grappa_io::{Error, Position, Result, text};

use crate::ingest::{
    columns::{ColumnForm, ColumnInput},
    stage::Stage,
};

pub struct FeatureInput<'a> {
    matrix: MatrixSource,
    layout: FeatureLayout,
    nodes: u64,
    allow_nan: bool,
    id_of_row: &'a IdOfRow<'a>,
    overflows: Mutex<Option<Overflows>>,
}

/// Gives the external id of the node of a row.
pub type IdOfRow<'a> = dyn Fn(u64) -> Result<String> + Sync + 'a;

/// The values that are finite, but not in the stored type.
struct Overflows {
    count: u64,
    /// Row, column and value of the first one.
    first: (u64, usize, f32),
}

impl<'a> FeatureInput<'a> {
    /// The feature rows of `matrix`, one for each of `nodes` nodes. They are stored as `dtype`; by default as f16 if the
    /// file has f16, otherwise as f32. `if_more` is advice for a file with more rows.
    pub fn new(
        mut matrix: MatrixSource,
        dtype: Option<FeatureDtype>,
        nodes: u64,
        if_more: &'static str,
        allow_nan: bool,
        id_of_row: &'a IdOfRow<'a>,
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
        Ok(Self { matrix, layout, nodes, allow_nan, id_of_row, overflows: Mutex::default() })
    }

    pub fn spec(&self) -> FeatureSpec {
        let FeatureLayout { dtype, dim, stride } = self.layout;
        FeatureSpec { dim, dtype, row_stride: stride, source: FeatureSource::Stored }
    }

    fn overflows(&self) -> MutexGuard<'_, Option<Overflows>> {
        self.overflows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the values of the rows from `first` on that are finite, but not in the stored type.
    fn note_overflows(&self, first: u64, values: &[f32]) {
        // Cheap as long as there are none.
        if self.layout.unstorable(values) == 0 {
            return;
        }
        let one = FeatureLayout::new(self.layout.dtype, 1);
        let values = values.iter().enumerate();
        let mut lost = values.filter(|&(_, &value)| value.is_finite() && one.unstorable(&[value]) > 0);
        let Some((at, &value)) = lost.next() else { return };
        let place = (first + (at / self.matrix.dim()) as u64, at % self.matrix.dim(), value);
        let count = 1 + lost.count() as u64;
        let mut all = self.overflows();
        *all = Some(match all.take() {
            None => Overflows { count, first: place },
            Some(other) => Overflows {
                count: other.count + count,
                first: if place.0 < other.first.0 { place } else { other.first },
            },
        });
    }
}

impl ColumnInput for FeatureInput<'_> {
    fn form(&self) -> ColumnForm {
        ColumnForm {
            stage: Stage::Features,
            name: "features",
            kind: FileKind::FEATURES,
            rows: self.nodes,
            row_bytes: self.layout.stride as usize,
            read_cost: self.matrix.read_cost(),
            held_bytes: self.matrix.held_bytes(),
            is_sequential: self.matrix.is_sequential(),
            other_row: None,
        }
    }

    fn meta(&self, span: ChunkSpan) -> Vec<u8> {
        FeaturesMeta { span, layout: self.layout, with_features: false }.encode()
    }

    fn read(&self, first: u64, count: usize, rows: &mut Vec<u8>) -> Result<()> {
        let mut values = Vec::new();
        let read = self.matrix.read_rows(first, count, &mut values)?;
        if read != count {
            let problem = format!("expected {} rows, one per node, found {}", self.nodes, first + read as u64);
            return Err(Error::input(self.matrix.path(), Position::Whole, problem));
        }
        self.note_overflows(first, &values);
        let start = rows.len();
        rows.resize(start + count * self.layout.stride as usize, 0);
        self.layout.encode_rows(&values, &mut rows[start..]);
        Ok(())
    }

    fn is_sound(&self) -> bool {
        self.matrix.is_sound(self.allow_nan) && (self.allow_nan || self.overflows().is_none())
    }

    fn finish(&self) -> Result<()> {
        self.matrix.check()?;
        self.matrix.check_values(self.allow_nan, self.id_of_row)?;
        for (column, count) in self.matrix.unseen() {
            tracing::warn!(
                "{}: the column {} has values that are none of the categories of --schema-of ({count}), so they are other",
                self.matrix.path().display(),
                text::printable(column)
            );
        }
        for warning in self.matrix.loss_warnings() {
            tracing::warn!("{}: {warning}", self.matrix.path().display());
        }
        if self.allow_nan {
            return Ok(());
        }
        let Some(Overflows { count, first }) = self.overflows().take() else {
            return Ok(());
        };
        let (row, column, value) = first;
        let problem = format!(
            "column {column} of node {} is {value}, too large for {}, and so are {} more values; store the features with \
             --feature-dtype {}, or give --allow-nan to store such values as infinity",
            text::printable(&(self.id_of_row)(row)?),
            self.layout.dtype.name(),
            count - 1,
            match self.layout.dtype {
                FeatureDtype::F16 => "bf16 or f32",
                _ => "f32",
            }
        );
        Err(self.matrix.place(row).error(problem))
    }
}
