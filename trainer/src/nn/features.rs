//! The normalization of features before the first layer.
//!
//! It is part of the model: a store's features stay as they are, and a model brings the means and deviations of the store that it
//! was trained on to any other. Training normalizes the rows of a minibatch, and exact inference normalizes rows as it reads them.

use std::ops::Range;

use grappa_engine::aggregate::NodeRows;
use grappa_run::model::FeatureNorm;
use tch::{Device, Kind, Tensor};

use super::{linear::float, parameters::Builder};

/// How the rows of features are normalized.
#[derive(Debug)]
pub(crate) enum Normalization {
    None,
    Row,
    /// Buffers: the mean and the standard deviation of each column, f32 of `[inputs]`.
    Standard {
        mean: Tensor,
        deviation: Tensor,
    },
}

impl Normalization {
    pub(crate) fn new(builder: &mut Builder, kind: FeatureNorm, inputs: i64) -> Self {
        match kind {
            FeatureNorm::None => Self::None,
            FeatureNorm::Row => Self::Row,
            FeatureNorm::Standard => Self::Standard {
                mean: builder.buffer("feature_mean", &[inputs], 0.0),
                deviation: builder.buffer("feature_deviation", &[inputs], 1.0),
            },
        }
    }

    /// Normalizes rows. It computes in f32, and the result has the type of its input.
    pub(crate) fn apply(&self, rows: &Tensor) -> Tensor {
        let values = float(rows);
        let normal = match self {
            Self::None => return rows.shallow_clone(),
            Self::Row => {
                let sums = values.abs().sum_dim_intlist([1i64].as_slice(), true, Kind::Float);
                // Rows of zeros stay.
                &values / sums.where_self(&sums.gt(0.0), &sums.ones_like())
            }
            Self::Standard { mean, deviation } => (values - mean) / deviation,
        };
        normal.to_kind(rows.kind())
    }

    /// The same for rows that exact inference reads; none if they stay as they are.
    pub(crate) fn of_rows<'a>(&self, rows: &'a dyn NodeRows) -> Option<ChangedRows<'a>> {
        Some(match self {
            Self::None => return None,
            Self::Row => ChangedRows::new(rows, |row| {
                let sum: f32 = row.iter().map(|value| value.abs()).sum();
                if sum > 0.0 {
                    row.iter_mut().for_each(|value| *value /= sum);
                }
            }),
            Self::Standard { mean, deviation } => {
                let [mean, deviation] = [mean, deviation]
                    .map(|buffer| Vec::<f32>::try_from(buffer.to_device(Device::Cpu)).expect("buffers are f32"));
                ChangedRows::new(rows, move |row| {
                    for (value, (mean, deviation)) in row.iter_mut().zip(mean.iter().zip(&deviation)) {
                        *value = (*value - mean) / deviation;
                    }
                })
            }
        })
    }
}

type ChangeRow<'a> = dyn Fn(&mut [f32]) + Send + Sync + 'a;

pub(crate) struct ChangedRows<'a> {
    rows: &'a dyn NodeRows,
    change: Box<ChangeRow<'a>>,
}

impl<'a> ChangedRows<'a> {
    pub(crate) fn new(rows: &'a dyn NodeRows, change: impl Fn(&mut [f32]) + Send + Sync + 'a) -> Self {
        Self { rows, change: Box::new(change) }
    }
}

impl NodeRows for ChangedRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
        self.rows.read(positions, out)?;
        out.chunks_exact_mut(self.width()).for_each(|row| (self.change)(row));
        Ok(())
    }

    fn read_ahead(&self, positions: Range<u64>) {
        self.rows.read_ahead(positions);
    }

    fn file_bytes(&self) -> u64 {
        self.rows.file_bytes()
    }

    fn file_end(&self, position: u64) -> u64 {
        self.rows.file_end(position)
    }
}
