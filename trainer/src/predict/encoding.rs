//! The rows of predictions in scratch files.

use grappa_run::{model::Task, scores::largest};

use super::{options::Values, probability::probability};

/// Bytes of a row with a class, an i64, -1 for none; then its probability, an f32.
pub(super) const ROW_BYTES: usize = 12;

/// The layout of the rows in scratch files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    /// The class, i64; -1 for none. Then its probability, f32.
    Class,
    /// The values, f32.
    Floats,
}

impl Encoding {
    /// The shortest layout from which values can be written.
    pub(super) fn new(values: Values, task: Task) -> Self {
        match (values, task) {
            (Values::Classes, Task::MultiClass) => Self::Class,
            _ => Self::Floats,
        }
    }

    pub(super) fn row_bytes(self, columns: usize) -> usize {
        match self {
            Self::Class => ROW_BYTES,
            Self::Floats => 4 * columns,
        }
    }

    /// Converts rows of `columns` values and appends them.
    pub(super) fn encode(self, rows: &[f32], columns: usize, bytes: &mut Vec<u8>) {
        if self == Self::Floats {
            bytes.extend(rows.iter().flat_map(|value| value.to_le_bytes()));
            return;
        }
        for row in rows.chunks_exact(columns) {
            let best = largest(row);
            bytes.extend(best.map_or(-1, |class| class as i64).to_le_bytes());
            bytes.extend(best.map_or(f32::NAN, |best| probability(row, best)).to_le_bytes());
        }
    }
}
