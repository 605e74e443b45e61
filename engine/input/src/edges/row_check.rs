//! Checks the rows of arrays and tables, and removes the bad ones.

use grappa_io::Result;

use super::{BadEdge, EdgeBatch, IdLimit};

/// Called for each bad row with its number in the file, the row written as a line, and its fault. An error ends the block.
pub(super) type OnBadRow<'a> = dyn FnMut(u64, &[u8], BadEdge) -> Result<()> + 'a;

/// The conditions that the rows of a batch must meet.
pub(super) struct RowCheck<'a> {
    /// The number, in the file, of the batch's first row.
    pub first_row: u64,
    pub limit: IdLimit,
    /// Whether sources and targets were signed integers. Then values of 2^63 or more were negative.
    pub signed: [bool; 2],
    /// For each row, whether a value is missing. None if no value is.
    pub missing: Option<&'a [bool]>,
}

impl RowCheck<'_> {
    /// Removes the bad rows. If there are none, which is quick to see, nothing is moved.
    pub fn sift(&self, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let largest = |ids: &[u64]| ids.iter().copied().fold(0, u64::max);
        if self.missing.is_none()
            && largest(&into.sources) < self.exclusive(0)
            && largest(&into.targets) < self.exclusive(1)
            && into.weights.iter().all(|weight| weight.is_finite())
        {
            return Ok(());
        }
        let mut kept = 0;
        for row in 0..into.sources.len() {
            let ids = [into.sources[row], into.targets[row]];
            let weight = into.weights.get(row).copied();
            if let Some(bad) = self.bad(row, ids, weight) {
                let line = self.line(row, ids, weight);
                on_bad(self.first_row + row as u64, line.as_bytes(), bad)?;
                continue;
            }
            [into.sources[kept], into.targets[kept]] = ids;
            if let Some(weight) = weight {
                into.weights[kept] = weight;
            }
            kept += 1;
        }
        into.sources.truncate(kept);
        into.targets.truncate(kept);
        into.weights.truncate(kept);
        Ok(())
    }

    /// The smallest bad id in a column, as an unsigned number.
    fn exclusive(&self, column: usize) -> u64 {
        let limit = self.limit.exclusive();
        if self.signed[column] { limit.min(1 << 63) } else { limit }
    }

    fn is_missing(&self, row: usize) -> bool {
        self.missing.is_some_and(|missing| missing[row])
    }

    fn bad(&self, row: usize, ids: [u64; 2], weight: Option<f32>) -> Option<BadEdge> {
        if self.is_missing(row) {
            return Some(BadEdge::Null);
        }
        for (column, id) in ids.into_iter().enumerate() {
            if id >= self.exclusive(column) {
                return Some(if self.signed[column] && id >= 1 << 63 {
                    BadEdge::Negative
                } else {
                    BadEdge::TooLarge(self.limit)
                });
            }
        }
        weight
            .filter(|weight| !weight.is_finite())
            .map(|_| BadEdge::WeightNotFinite)
    }

    /// The row as a line of text.
    fn line(&self, row: usize, ids: [u64; 2], weight: Option<f32>) -> String {
        if self.is_missing(row) {
            return "null".to_owned();
        }
        let [source, target] = [0, 1].map(|column| {
            if self.signed[column] {
                (ids[column] as i64).to_string()
            } else {
                ids[column].to_string()
            }
        });
        match weight {
            Some(weight) => format!("{source}\t{target}\t{weight}"),
            None => format!("{source}\t{target}"),
        }
    }
}
