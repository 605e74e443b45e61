//! The split of each node in a column of a table: train, val or test, or a mask for each.

use std::ops::Deref;

use grappa_io::{Error, Position, Result};

use super::{
    forms::{Forms, TableForm},
    node_file::{Content, NodeFile},
};
use crate::{
    columns::Purpose,
    input::Input,
    messages::{Checked, shown},
    table::{Cell, Form, boolean_of, form_of},
};

/// The names of splits.
pub const SPLITS: [&str; 3] = ["train", "val", "test"];

const FORMS: Forms = Forms {
    name: "splits",
    arrays: &[],
    shapes: "a row per node",
    columns_max: SPLITS.len() as u64,
    sparse: false,
    blank_lines: false,
    purpose: Purpose::Splits,
};

/// The columns of a table that have the split of each node.
pub struct SplitColumns {
    file: NodeFile,
    /// The split of each column of masks. None if a column has the names of splits.
    masks: Option<Vec<usize>>,
}

impl Deref for SplitColumns {
    type Target = NodeFile;

    fn deref(&self) -> &NodeFile {
        &self.file
    }
}

impl SplitColumns {
    /// Opens the table in `path`, text or Parquet, whose columns the user names: one with `train`, `val`, `valid`, `validation` or
    /// `test`, in any case, or nothing; or masks of zeros and ones, called `train_mask` and the like.
    pub fn open(input: impl Into<Input>, form: &TableForm) -> Result<Self> {
        let file = NodeFile::open(&input.into(), &FORMS, form)?;
        if let Content::Dense(_) | Content::Sparse(_) = file.content {
            let problem = "--split-column names a column of a table, and this is none; give the ids with --train, --val and --test";
            return Err(Error::input(file.path(), Position::Whole, problem));
        }
        let masks: Option<Vec<usize>> = file.layout.names.iter().map(|name| split_of_mask(name)).collect();
        if masks.is_none() && file.layout.names.len() != 1 {
            let problem = "give --split-column with one column of train, val and test, or with masks that are called train_mask, \
                        val_mask and test_mask";
            return Err(Error::input(file.path(), Position::Whole, problem));
        }
        Ok(Self { file, masks })
    }

    /// Replaces the contents of `out` with the splits of up to `count` rows from row `first` on, as indices of [`SPLITS`]. None: the
    /// node is in no split. Returns the number of rows, which is 0 at the end.
    pub fn read_rows(&self, first: u64, count: usize, out: &mut Vec<Option<usize>>) -> Result<usize> {
        out.clear();
        self.file.read_cells(first, count, &mut |_, cells| {
            let cells = cells?;
            out.push(match &self.masks {
                None => split_of_value(cells[0])?,
                Some(masks) => self.split_of_masks(masks, cells)?,
            });
            Ok(())
        })
    }

    fn split_of_masks(&self, masks: &[usize], cells: &[Cell<'_>]) -> Checked<Option<usize>> {
        let mut split = None;
        for ((&mask, &cell), name) in masks.iter().zip(cells).zip(&self.file.layout.names) {
            let value =
                boolean_of(cell).map_err(|_| format!("expected 0 or 1 in the mask {name}, found {}", value(cell)))?;
            if value != Some(1.0) {
                continue;
            }
            match split {
                Some(other) if other != mask => {
                    return Err(format!(
                        "the node is in the masks of {} and {}; splits must not overlap",
                        SPLITS[other], SPLITS[mask]
                    ));
                }
                _ => split = Some(mask),
            }
        }
        Ok(split)
    }
}

fn value(cell: Cell<'_>) -> String {
    shown(cell.category().unwrap_or_default().as_bytes())
}

/// The split that a value names.
fn split_of_value(cell: Cell<'_>) -> Checked<Option<usize>> {
    let text = match cell {
        Cell::Missing => return Ok(None),
        Cell::Raw(text) | Cell::String(text) if form_of(text) == Form::Missing || text.eq_ignore_ascii_case("none") => {
            return Ok(None);
        }
        Cell::Raw(text) | Cell::String(text) => split_named(text),
        _ => None,
    };
    match text {
        Some(split) => Ok(Some(split)),
        None => Err(format!(
            "expected train, val, valid, validation, test or nothing in the column of --split-column, found {}",
            value(cell)
        )),
    }
}

fn split_named(text: &str) -> Option<usize> {
    const NAMES: [&[&str]; 3] = [&["train", "training"], &["val", "valid", "validation", "dev"], &["test", "testing"]];
    NAMES.iter().position(|names| names.iter().any(|name| name.eq_ignore_ascii_case(text)))
}

/// The split of a mask with this name: `train_mask`, `is_train` or `train`.
fn split_of_mask(name: &str) -> Option<usize> {
    let lower = name.trim().to_ascii_lowercase();
    let word = lower.strip_suffix("_mask").or_else(|| lower.strip_prefix("is_")).unwrap_or(&lower);
    split_named(word)
}
