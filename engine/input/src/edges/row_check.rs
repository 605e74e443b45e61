//! Checks the rows of arrays and tables, and removes the bad ones.

use super::{BadEdge, EdgeBatch, IdLimit, fields::id_of_float};

/// Called for each bad row with its number in the file, the row written as a line, and its fault. An error ends the block.
pub(super) type OnBadRow<'a> = dyn FnMut(u64, &[u8], BadEdge) -> grappa_io::Result<()> + 'a;

/// The conditions that the rows of a batch must meet.
#[derive(Clone, Copy)]
pub(super) struct RowCheck<'a> {
    /// The number, in the file, of the batch's first row.
    pub first_row: u64,
    pub limits: [IdLimit; 2],
    /// Whether sources and targets were signed integers. Then values of 2^63 or more were negative.
    pub signed: [bool; 2],
    /// The faults of each row. Empty if there are none.
    pub faults: &'a [Fault],
    /// Whether the first value of an edge is its weight.
    pub weighted: bool,
}

/// Values of a row that are no ids and no weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fault {
    pub missing: bool,
    /// Whether a missing value is an id.
    pub no_id: bool,
    /// Whether source and target are floats that are no integers. The ids have the bits of the floats.
    pub float: [bool; 2],
    /// What is wrong with another value.
    pub other: Option<BadEdge>,
}

impl Fault {
    /// The fault of a row with a missing value.
    pub fn missing_value(self) -> Option<BadEdge> {
        self.missing.then_some(if self.no_id { BadEdge::NullId } else { BadEdge::Null })
    }
}

pub(super) fn faults_of(faults: &mut Vec<Fault>, rows: usize) -> &mut [Fault] {
    faults.resize(rows, Fault::default());
    faults
}

/// Turns the bits of floats with `digits` binary digits into the ids of a column, and notes the faults of its rows. A float that is no id
/// stays.
pub(super) fn ids_of_floats(ids: &mut [u64], digits: u32, column: usize, faults: &mut Vec<Fault>) {
    let rows = ids.len();
    for (row, id) in ids.iter_mut().enumerate() {
        let value = f64::from_bits(*id);
        match id_of_float(value, digits) {
            Ok(found) => *id = found,
            Err(BadEdge::NullId) => {
                let fault = &mut faults_of(faults, rows)[row];
                (fault.missing, fault.no_id) = (true, true);
                *id = 0;
            }
            Err(_) => faults_of(faults, rows)[row].float[column] = true,
        }
    }
}

/// The bits of a NaN that stands for a weight which would become zero, until its row is refused.
const TOO_SMALL: u32 = 0x7fc0_5a11;

/// A weight of 64 bits in 32. One that is not zero but would be becomes a NaN that [`not_finite`] knows.
pub(super) fn weight_of(value: f64) -> f32 {
    match value as f32 {
        0.0 if value != 0.0 => f32::from_bits(TOO_SMALL),
        weight => weight,
    }
}

/// The fault of the first value of an edge that is not finite. `weighted`: the first value is the weight.
pub(super) fn not_finite(values: &[f32], weighted: bool) -> Option<BadEdge> {
    let at = values.iter().position(|value| !value.is_finite())?;
    Some(match (at, weighted) {
        (0, true) if values[0].to_bits() == TOO_SMALL => BadEdge::WeightTooSmall,
        (0, true) => BadEdge::WeightNotFinite,
        _ => BadEdge::FeatureNotFinite(at + usize::from(!weighted)),
    })
}

fn largest(ids: &[u64]) -> u64 {
    ids.iter().copied().fold(0, u64::max)
}

impl RowCheck<'_> {
    /// Removes the bad rows. If there are none, which is quick to see, nothing is moved.
    pub fn sift(&self, into: &mut EdgeBatch, on_bad: &mut OnBadRow<'_>) -> grappa_io::Result<()> {
        if self.faults.is_empty()
            && largest(&into.sources) < self.exclusive(0)
            && largest(&into.targets) < self.exclusive(1)
            && into.values.iter().all(|value| value.is_finite())
        {
            return Ok(());
        }
        let mut sound = 0;
        let rows = into.sources.len();
        let width = into.values.len() / rows.max(1);
        for row in 0..rows {
            let ids = [into.sources[row], into.targets[row]];
            let values = &into.values[row * width..][..width];
            if let Some(bad) = self.bad(row, ids, values) {
                let line = self.line(row, ids, values);
                on_bad(self.first_row + row as u64, line.as_bytes(), bad)?;
                continue;
            }
            [into.sources[sound], into.targets[sound]] = ids;
            into.values.copy_within(row * width..(row + 1) * width, sound * width);
            into.order.shift(row, sound);
            sound += 1;
        }
        into.sources.truncate(sound);
        into.targets.truncate(sound);
        into.values.truncate(sound * width);
        into.order.truncate(sound);
        Ok(())
    }

    /// The smallest bad id in a column, as an unsigned number.
    fn exclusive(&self, column: usize) -> u64 {
        let limit = self.limits[column].exclusive();
        if self.signed[column] { limit.min(1 << 63) } else { limit }
    }

    fn fault(&self, row: usize) -> Fault {
        self.faults.get(row).copied().unwrap_or_default()
    }

    pub fn bad(&self, row: usize, ids: [u64; 2], values: &[f32]) -> Option<BadEdge> {
        let fault = self.fault(row);
        if let Some(missing) = fault.missing_value() {
            return Some(missing);
        }
        if fault.other.is_some() {
            return fault.other;
        }
        for (column, id) in ids.into_iter().enumerate() {
            if fault.float[column] {
                let value = id_of_float(f64::from_bits(id), f64::MANTISSA_DIGITS);
                // A float of fewer digits is rounded sooner.
                return Some(value.err().unwrap_or(BadEdge::Rounded));
            }
            if id >= self.exclusive(column) {
                return Some(if self.signed[column] && id >= 1 << 63 {
                    BadEdge::Negative
                } else {
                    BadEdge::TooLarge(self.limits[column]).of_end(column)
                });
            }
        }
        not_finite(values, self.weighted)
    }

    /// The id in a column of a row, as text.
    pub fn id(&self, row: usize, column: usize, id: u64) -> String {
        if self.fault(row).float[column] {
            f64::from_bits(id).to_string()
        } else if self.signed[column] {
            (id as i64).to_string()
        } else {
            id.to_string()
        }
    }

    fn line(&self, row: usize, ids: [u64; 2], values: &[f32]) -> String {
        let fault = self.fault(row);
        if fault.missing {
            return "null".to_owned();
        }
        let [source, target] = [0, 1].map(|column| self.id(row, column, ids[column]));
        let values = values.iter().map(|value| format!("\t{value}"));
        format!("{source}\t{target}{}", values.collect::<String>())
    }
}
