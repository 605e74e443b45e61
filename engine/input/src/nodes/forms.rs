//! The forms that node data may have, and the options for tables.

use crate::{
    columns::{Purpose, TableOptions},
    separator::Separator,
};

/// How to read tables of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableForm {
    /// The columns that the user names.
    pub columns: TableOptions,
    /// The separator of text. None finds it from the first lines.
    pub separator: Option<Separator>,
}

/// The forms that one kind of node data may have.
pub(super) struct Forms {
    /// The kind of data, in messages.
    pub name: &'static str,
    /// Names of the array in a `.npz` archive, the preferred one first.
    pub arrays: &'static [&'static str],
    /// Accepted shapes, in messages.
    pub shapes: &'static str,
    pub columns_max: u64,
    /// Whether an archive may hold a sparse matrix.
    pub sparse: bool,
    /// Whether a blank line of text is a row.
    pub blank_lines: bool,
    /// What a table is read for.
    pub purpose: Purpose,
}
