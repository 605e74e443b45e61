//! Features of edges that are not numbers alone: times, booleans, categories and missing values.

use std::sync::Arc;

use grappa_formats::schema::Column;

use super::{
    bad_edge::{BadEdge, Checked},
    options::EdgeSourceOptions,
};
use crate::{
    spread::Spread,
    table::{Cell, Encoder, ProblemKind},
};

/// Encodes the columns of edge features as numbers, as [`Encoder`] encodes columns of nodes.
#[derive(Debug)]
pub(super) struct EdgeEncoder(Encoder);

impl EdgeEncoder {
    fn new(columns: Vec<Column>) -> Self {
        Self(Encoder::new(columns))
    }

    /// The encoder of the features, if they are known not to be numbers alone.
    pub fn from_options(options: &EdgeSourceOptions) -> Option<Arc<Self>> {
        let encoded = options.encoded.as_ref()?;
        Some(Arc::new(Self::new(encoded.iter().map(|reading| reading.column.clone()).collect())))
    }

    /// Reads no column. It stands for the encoder that [`EdgeSource::fit`](super::EdgeSource::fit) makes.
    pub fn unfitted() -> Self {
        Self::new(Vec::new())
    }

    pub fn is_fitted(&self) -> bool {
        !self.0.columns.is_empty()
    }

    /// The spread of the numbers of each column so far.
    pub fn spreads(&self) -> &[Spread] {
        self.0.spreads()
    }

    /// Numbers of an edge.
    pub fn dim(&self) -> usize {
        self.0.dim()
    }

    /// Appends the numbers of a value in column `at`. If it does not fit, it may append nothing.
    pub fn value(&self, at: usize, cell: Cell<'_>, out: &mut Vec<f32>) -> Checked<()> {
        if !self.is_fitted() {
            return Ok(());
        }
        let start = out.len();
        self.0.cell(at, cell, out).map_err(|kind| match kind {
            ProblemKind::NotBoolean => BadEdge::FeatureNotBoolean(at + 1),
            ProblemKind::NotDate | ProblemKind::OtherDate => BadEdge::FeatureNotDate(at + 1),
            _ => BadEdge::Feature(at + 1),
        })?;
        match out[start..].iter().find(|number| !number.is_finite()) {
            None => Ok(()),
            Some(number) if number.is_nan() => Err(BadEdge::EmptyFeature(at + 1)),
            Some(_) => Err(BadEdge::FeatureNotFinite(at + 1)),
        }
    }
}
