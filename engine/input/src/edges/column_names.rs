//! The names of columns: which ones are known, and the order of columns that they show.

use super::fields::{KeySeparator, unquoted};

/// Names for the column of sources, the most specific first.
pub(super) const SOURCE_NAMES: [&str; 24] = [
    "source",
    "src",
    "from",
    "source_id",
    "src_id",
    "from_id",
    "source_node",
    "src_node",
    "from_node",
    "u",
    "head",
    "subject",
    "start",
    "start_id",
    "citing",
    "follower",
    "from_user",
    "sender",
    "node1",
    "node_1",
    "id1",
    "id_1",
    "user1",
    "user_1",
];

/// Names for the column of targets.
pub(super) const TARGET_NAMES: [&str; 28] = [
    "target",
    "dst",
    "dest",
    "destination",
    "to",
    "target_id",
    "dst_id",
    "destination_id",
    "to_id",
    "target_node",
    "dst_node",
    "destination_node",
    "to_node",
    "v",
    "tail",
    "object",
    "end",
    "end_id",
    "cited",
    "followee",
    "to_user",
    "receiver",
    "node2",
    "node_2",
    "id2",
    "id_2",
    "user2",
    "user_2",
];

/// Names for a third column of weights.
const WEIGHT_NAMES: [&str; 16] = [
    "weight",
    "weights",
    "edge_weight",
    "w",
    "wt",
    "value",
    "val",
    "score",
    "strength",
    "count",
    "freq",
    "frequency",
    "similarity",
    "distance",
    "amount",
    "rating",
];

/// The positions of the columns of sources and targets, as the names in a line say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedColumns {
    source: usize,
    target: usize,
}

/// The order of the columns with ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnOrder {
    /// Sources first.
    SourceTarget,
    /// Targets first.
    TargetSource,
}

impl NamedColumns {
    /// Finds the columns by name in a line of fields. None unless there is one of sources and one of targets.
    pub fn find(fields: &[&[u8]]) -> Option<Self> {
        let named = |names: &[&str]| {
            fields
                .iter()
                .position(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name.as_bytes())))
        };
        Some(Self {
            source: named(&SOURCE_NAMES)?,
            target: named(&TARGET_NAMES)?,
        })
    }

    /// The order of the columns. None if another column is before one of them.
    pub fn order(self) -> Option<ColumnOrder> {
        match (self.source, self.target) {
            (0, 1) => Some(ColumnOrder::SourceTarget),
            (1, 0) => Some(ColumnOrder::TargetSource),
            _ => None,
        }
    }
}

/// Whether a header has a third column whose name does not say that it has weights.
pub(super) fn names_other_than_weights(fields: &[&[u8]]) -> bool {
    let Some(third) = fields.get(2) else { return false };
    !WEIGHT_NAMES
        .iter()
        .any(|name| third.eq_ignore_ascii_case(name.as_bytes()))
}

/// Calls `look` with the fields of a line that may have column names, without quotes. A CSV line is split at commas only.
/// There are at most four fields, and none if a quote is not closed.
pub(super) fn with_fields<T>(line: &[u8], csv: bool, strings: bool, look: impl FnOnce(&[&[u8]]) -> T) -> T {
    // Numbers may be separated by commas in any text.
    let comma = if strings { csv } else { line.contains(&b',') };
    let separator = if comma {
        KeySeparator::Comma
    } else if line.contains(&b'\t') {
        KeySeparator::Tab
    } else {
        KeySeparator::Blanks
    };
    let Ok(fields) = separator.fields(line) else {
        return look(&[]);
    };
    let fields: Vec<&[u8]> = fields.iter().map(|field| unquoted(field)).collect();
    look(&fields)
}

/// Whether there are at least two fields, and no field is a number.
pub(super) fn has_no_numbers(fields: &[&[u8]]) -> bool {
    let is_name = |field: &&[u8]| std::str::from_utf8(field).is_ok_and(|text| text.parse::<f64>().is_err());
    fields.len() >= 2 && fields.iter().all(is_name) && fields.iter().take(2).all(|field| !field.is_empty())
}
