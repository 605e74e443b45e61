//! Edge weights and edge features in a separate file.

use std::sync::Arc;

use grappa_formats::features::ElementType;
use grappa_io::Result;

use super::{
    order::{EdgePlace, WEIGHT, no_such_value},
    row_check::weight_of,
};
use crate::{
    input::Input,
    messages::Checked,
    npy::{ArrayReader, NpyArray},
    spread::Spread,
};

/// The most features of an edge.
pub const EDGE_FEATURES_MAX: u64 = 1 << 12;

const WEIGHTS: &str = "weights";

/// An array with a row of values per edge: weights, or features.
#[derive(Clone)]
pub(super) struct EdgeArray {
    pub reader: Arc<ArrayReader>,
    kind: &'static str,
    /// Values of an edge.
    pub width: usize,
    /// Where they begin among all values of an edge.
    at: usize,
    /// The spread of each feature so far. Weights have none.
    pub spreads: Arc<[Spread]>,
}

impl EdgeArray {
    pub fn weights(input: &Input) -> Result<Self> {
        Self::weights_of(NpyArray::of_input(input)?)
    }

    pub fn weights_of(array: NpyArray) -> Result<Self> {
        if !matches!(*array.shape, [_] | [_, 1]) {
            return Err(
                array.error(format!("weights must have shape [E], one per edge, found {}", array.shape_shown()))
            );
        }
        Ok(Self::new(array, WEIGHTS, 1, 0))
    }

    /// A file with the features of each edge. They come after the weight, if edges have one.
    pub fn features(input: &Input, after_weight: bool) -> Result<Self> {
        let array = NpyArray::of_input(input)?;
        let width = match *array.shape {
            [_] => 1,
            [_, width @ 1..=EDGE_FEATURES_MAX] => width,
            _ => {
                return Err(array.error(format!(
                    "edge features must have shape [E], or [E, d] with d from 1 to {}, found {}",
                    EDGE_FEATURES_MAX,
                    array.shape_shown()
                )));
            }
        };
        Ok(Self::new(array, "rows of edge features", width as usize, usize::from(after_weight)))
    }

    fn new(array: NpyArray, kind: &'static str, width: usize, at: usize) -> Self {
        let spreads = Spread::columns(if kind == WEIGHTS { 0 } else { width }).into();
        Self { reader: Arc::new(array.reader()), kind, width, at, spreads }
    }

    pub fn expect_rows(&self, edges: u64) -> Result<()> {
        let array = &self.reader.array;
        match array.shape[0] == edges {
            true => Ok(()),
            false => {
                Err(array.error(format!("expected {edges} {}, one per edge, found {}", self.kind, array.shape[0])))
            }
        }
    }

    pub fn is_f16(&self) -> bool {
        self.reader.array.element == ElementType::F16
    }

    pub fn is_weights(&self) -> bool {
        self.kind == WEIGHTS
    }

    pub fn row_bytes(&self) -> usize {
        self.width * self.reader.array.element.bytes()
    }

    /// Puts the rows in `bytes` into `into`, which has `width` values per edge.
    pub fn convert(&self, bytes: &[u8], width: usize, into: &mut [f32]) {
        if self.is_weights() && self.reader.array.element == ElementType::F64 {
            let (values, _) = bytes.as_chunks();
            let places = into.iter_mut().skip(self.at).step_by(width);
            places.zip(values).for_each(|(place, value)| *place = weight_of(f64::from_le_bytes(*value)));
            return;
        }
        Spread::add_rows(&self.spreads, self.reader.array.element, bytes);
        if width == self.width {
            return self.reader.array.element.to_f32(bytes, into);
        }
        let rows = bytes.chunks_exact(self.row_bytes()).zip(into.chunks_exact_mut(width));
        for (row, into) in rows {
            self.reader.array.element.to_f32(row, &mut into[self.at..][..self.width]);
        }
    }
}

/// A column of an array of values of edges.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArrayColumn {
    /// The number of the array.
    pub array: usize,
    pub column: usize,
}

impl ArrayColumn {
    /// The column that the user calls so: `weight`, or the number of a feature, from 1.
    pub fn named(name: &str, arrays: &[EdgeArray]) -> Checked<Self> {
        let mut known = Vec::new();
        for (at, array) in arrays.iter().enumerate() {
            for column in 0..array.width {
                let own = if array.is_weights() { WEIGHT.to_owned() } else { (column + 1).to_string() };
                if own == name {
                    return Ok(Self { array: at, column });
                }
                known.push(own);
            }
        }
        Err(no_such_value(name, &known))
    }

    /// Appends the places of the rows in the bytes of its array.
    pub fn places(self, array: &EdgeArray, bytes: &[u8]) -> impl Iterator<Item = EdgePlace> {
        let element = array.reader.array.element;
        let size = element.bytes();
        bytes
            .chunks_exact(array.row_bytes())
            .map(move |row| EdgePlace::of_number(element.to_f64(&row[self.column * size..][..size])))
    }
}
