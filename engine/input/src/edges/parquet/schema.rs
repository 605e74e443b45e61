//! Picks the columns of a Parquet file that hold the edges.

use parquet::schema::types::SchemaDescriptor;

use super::super::{
    IdKind,
    column_names::{SOURCE_NAMES, TARGET_NAMES},
};
use crate::parquet::types::{described, is_flat, is_integer, is_number, is_signed, is_string};

const WEIGHT_NAMES: [&str; 3] = ["weight", "weights", "w"];

/// The columns of a table that hold its edges.
pub(super) struct EdgeColumns {
    /// Sources, targets.
    pub ids: [usize; 2],
    /// Whether the ids are signed integers.
    pub signed: [bool; 2],
    pub weight: Option<usize>,
    /// Whether weights are signed, if they are integers.
    pub signed_weight: bool,
    /// The message about columns of ids without known names. None if the names are known.
    pub guessed: Option<String>,
}

impl EdgeColumns {
    /// Finds the columns by name, else takes the first two whose type fits. An error says what was expected.
    pub fn pick(schema: &SchemaDescriptor, ids: IdKind) -> Result<Self, String> {
        let is_flat = |&column: &usize| is_flat(&schema.column(column));
        let columns: Vec<usize> = (0..schema.num_columns()).filter(is_flat).collect();
        let named = |names: &[&str]| {
            names.iter().find_map(|name| {
                let found = |&&column: &&usize| schema.column(column).name().eq_ignore_ascii_case(name);
                columns.iter().find(found).copied()
            })
        };
        let is_id = |column: usize| match ids {
            IdKind::Integer => is_integer(&schema.column(column)),
            IdKind::String => is_string(&schema.column(column)),
        };
        let mut guessed = None;
        let picked = match (named(&SOURCE_NAMES), named(&TARGET_NAMES)) {
            (Some(source), Some(target)) => [source, target],
            _ => {
                let mut fitting = columns.iter().copied().filter(|&column| is_id(column));
                let (Some(source), Some(target)) = (fitting.next(), fitting.next()) else {
                    return Err(no_columns(schema, ids));
                };
                let name = |column| schema.column(column).name().escape_debug().to_string();
                guessed = Some(format!(
                    "the column \"{}\" is read as the source of each edge and \"{}\" as its target, because no columns have \
                     names such as src and dst; rename them if these are not the edges",
                    name(source),
                    name(target)
                ));
                [source, target]
            }
        };
        if let Some(&column) = picked.iter().find(|&&column| !is_id(column)) {
            let column = described(&schema.column(column));
            return Err(match ids {
                IdKind::Integer => format!(
                    "expected integers in column {column}; strings need --ids string, other types a cast to int64"
                ),
                IdKind::String => {
                    format!("expected strings in column {column}; integers need --ids dense or sparse")
                }
            });
        }
        let weight = named(&WEIGHT_NAMES).filter(|column| !picked.contains(column));
        if let Some(column) = weight
            && !is_number(&schema.column(column))
        {
            return Err(format!(
                "expected numbers in column {}; cast it to float, or rename it if it holds no weights",
                described(&schema.column(column))
            ));
        }
        Ok(Self {
            ids: picked,
            signed: picked.map(|column| is_signed(&schema.column(column))),
            weight,
            signed_weight: weight.is_none_or(|column| is_signed(&schema.column(column))),
            guessed,
        })
    }
}

/// The message about a table without two columns of ids.
fn no_columns(schema: &SchemaDescriptor, ids: IdKind) -> String {
    let names: Vec<_> = schema.columns().iter().map(|column| described(column)).collect();
    let (wanted, others) = match ids {
        IdKind::Integer => ("integers", "strings need --ids string"),
        IdKind::String => ("strings", "integers need --ids dense or sparse"),
    };
    format!(
        "expected two columns of {wanted} (such as src and dst), found {}; {others}",
        names.join(", ")
    )
}
