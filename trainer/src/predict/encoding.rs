//! The rows of predictions in scratch files.

use grappa_run::{
    model::Task,
    scores::{is_undecided, largest},
};

use super::probability::{probabilities, probability};

/// Bytes of a row with a class, an i64, -1 for none; then its probability, an f32.
pub(super) const ROW_BYTES: usize = 12;

/// The layout of the rows in scratch files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// The class, i64; -1 for none.
    Class,
    /// The class, i64; -1 for none. Then its probability, f32.
    ClassAndProbability,
    /// One byte per class; -1 in all of them for no set.
    Set,
    /// The probability of each class, f32.
    Probabilities(Task),
    /// The values, f32.
    Floats,
}

impl Encoding {
    pub(super) fn row_bytes(self, columns: usize) -> usize {
        match self {
            Self::Class => 8,
            Self::ClassAndProbability => ROW_BYTES,
            Self::Set => columns,
            Self::Probabilities(_) | Self::Floats => 4 * columns,
        }
    }

    /// Converts rows of `width` values and appends them.
    pub(super) fn encode(self, rows: &[f32], columns: usize, bytes: &mut Vec<u8>) {
        for row in rows.chunks_exact(columns) {
            match self {
                Self::Probabilities(task) => {
                    let probabilities = probabilities(task, row).into_iter();
                    bytes.extend(probabilities.flat_map(f32::to_le_bytes));
                }
                Self::Floats => bytes.extend(row.iter().flat_map(|value| value.to_le_bytes())),
                Self::Set => {
                    match is_undecided(row) {
                        // As an export writes the labels of a node that has none.
                        true => bytes.resize(bytes.len() + columns, u8::MAX),
                        false => bytes.extend(row.iter().map(|logit| u8::from(*logit > 0.0))),
                    }
                }
                Self::Class | Self::ClassAndProbability => {
                    let best = largest(row);
                    bytes.extend(best.map_or(-1, |class| class as i64).to_le_bytes());
                    if self == Self::ClassAndProbability {
                        let probability = best.map_or(f32::NAN, |best| probability(row, best));
                        bytes.extend(probability.to_le_bytes());
                    }
                }
            }
        }
    }
}
