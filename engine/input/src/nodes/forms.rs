//! The forms that node data may have, the options for tables, what a file has, and its places in errors.

use std::path::Path;

use grappa_formats::features::ElementType;
use grappa_io::{Error, Position};

use crate::{
    columns::{Purpose, TableOptions},
    reading::Reading,
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
    pub name: &'static str,
    /// Names of the array in a `.npz` archive, the preferred one first.
    pub arrays: &'static [&'static str],
    pub shapes: &'static str,
    pub columns_max: u64,
    /// Whether an archive may hold a sparse matrix.
    pub sparse: bool,
    /// Whether a blank line of text is a row.
    pub blank_lines: bool,
    pub purpose: Purpose,
}

/// The rows of a file, as its header, its types or its first lines show them.
pub(super) struct Layout {
    pub reading: Reading,
    /// Numbers per row.
    pub columns: usize,
    /// The type of the numbers. Text counts as f32. Of several types it is the type of the first column.
    pub element: ElementType,
    /// The names of the columns with the data. Empty if it is a matrix, or has lists.
    pub names: Vec<String>,
    /// Whether the data are numbers, as far as types or the first rows of text show it.
    pub are_numbers: bool,
}

impl Layout {
    /// A matrix of numbers, whose rows are in the order of the ids.
    pub fn matrix(forms: &Forms, format: &'static str, columns: usize, element: ElementType) -> Self {
        let reading = Reading { content: forms.name, format, by_position: Some(true), ..Reading::default() };
        Self { reading, columns, element, names: Vec::new(), are_numbers: true }
    }
}

/// A place in an input file, which may be a part of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputPlace<'a> {
    /// The file.
    pub path: &'a Path,
    /// The line, row or offset in it.
    pub position: Position,
}

impl InputPlace<'_> {
    /// The error about what is there.
    pub fn error(self, problem: impl Into<String>) -> Error {
        Error::input(self.path, self.position, problem)
    }
}
