//! Matrices in the coordinate format of Matrix Market, as `scipy.io.mmwrite` writes them.
//!
//! ```text
//! %%MatrixMarket matrix coordinate real symmetric
//! % comments
//! 3 3 2                  rows, columns, entries
//! 2 1 0.5                row and column of an entry, from 1, and its value
//! ```
//!
//! The entry of row `i` and column `j` is an edge from node `i - 1` to node `j - 1`. A symmetric matrix has one entry for both
//! directions.

use std::path::Path;

use grappa_io::{Error, Position, Result};

use super::{
    EdgeSourceOptions, IdLimit,
    bad_edge::{BadEdge, Checked},
    fields::{LineForm, edge_of},
    order::{WEIGHT, no_such_value},
};
use crate::{conversions::Conversion, line_reader::Line, messages::shown, separator::Separator};

const BANNER: &[u8] = b"%%matrixmarket";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Matrix {
    /// The number of rows, and of columns.
    pub nodes: u64,
    entries: u64,
    /// Whether an entry stands for both directions.
    pub symmetric: bool,
    /// The upper bounds of the ids of rows and of columns, which count from 0.
    limits: [IdLimit; 2],
}

impl Matrix {
    /// Whether a file with this first line is a matrix.
    pub fn has_banner(line: &[u8]) -> bool {
        let start = line.get(..BANNER.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(BANNER))
    }

    /// Reads the first line, and the first one after it that is no comment.
    pub fn of_head(
        first: &Line,
        size: Option<&Line>,
        path: &Path,
        options: &EdgeSourceOptions,
    ) -> Result<(Self, LineForm)> {
        let refuse = |line: &Line, problem: String| Err(Error::input(path, Position::Line(line.number), problem));
        if options.are_strings() || options.columns.is_given() || options.separator.is_some() {
            let problem = "a matrix has numbers of rows and columns as ids; omit --ids string, --separator, --src, --dst and --weight";
            return refuse(first, problem.to_owned());
        }
        let banner = String::from_utf8_lossy(&first.bytes).to_ascii_lowercase();
        let words: Vec<&str> = banner.split_ascii_whitespace().skip(1).collect();
        let (weighted, symmetric) = match words[..] {
            ["matrix", "coordinate", "pattern", symmetry @ ("general" | "symmetric")] => {
                (false, symmetry == "symmetric")
            }
            ["matrix", "coordinate", "real" | "integer", symmetry @ ("general" | "symmetric")] => {
                (true, symmetry == "symmetric")
            }
            _ => {
                return refuse(
                    first,
                    format!(
                        "expected a matrix in coordinates, pattern, real or integer, general or symmetric, found {}; write it as one: \
                         {}",
                        shown(&first.bytes),
                        Conversion::GeneralMtx.command(path)
                    ),
                );
            }
        };
        let Some(size) = size else {
            return refuse(
                first,
                "expected a line with the numbers of rows, columns and entries, found none".to_owned(),
            );
        };
        let numbers = String::from_utf8_lossy(&size.bytes)
            .split_ascii_whitespace()
            .map(|number| number.parse::<u64>().ok())
            .collect::<Option<Vec<_>>>();
        let (rows, columns, entries) = match numbers.as_deref() {
            Some(&[rows, columns, entries]) => (rows, columns, entries),
            _ => {
                let problem =
                    format!("expected the numbers of rows, columns and entries, found {}", shown(&size.bytes));
                return refuse(size, problem);
            }
        };
        if rows != columns {
            let problem = format!(
                "the matrix has {rows} rows and {columns} columns, but edges between nodes make a square one; if columns are other nodes \
                 than rows, number them after the rows: {}",
                Conversion::BipartiteMtx.command(path)
            );
            return refuse(size, problem);
        }
        let matrix = Self { nodes: rows, entries, symmetric, limits: options.limits() };
        let mut form = LineForm::plain(Separator::Spaces, weighted);
        form.columns.order = match options.columns.order.as_deref() {
            None => None,
            Some(WEIGHT) if weighted => Some(2),
            Some(name) => {
                let known = weighted.then(|| WEIGHT.to_owned());
                return refuse(first, no_such_value(name, known.as_slice()));
            }
        };
        Ok((matrix, form))
    }

    /// Fails if `found` entries are less than the size says.
    pub fn check(&self, found: u64, path: &Path) -> Result<()> {
        if found >= self.entries {
            return Ok(());
        }
        let problem = format!(
            "expected {} entries, as the size of the matrix says, found {found}; the file is truncated: write it again",
            self.entries
        );
        Err(Error::input(path, Position::Whole, problem))
    }

    /// The entry on a line, with row and column from 0. None on a blank line.
    pub fn entry(&self, line: &[u8], form: &LineForm) -> Checked<Option<(u64, u64, f32)>> {
        let Some((row, column, value)) = edge_of(line, form, [IdLimit::Sparse; 2])? else {
            return Ok(None);
        };
        let places = 1..=self.nodes;
        if !places.contains(&row) || !places.contains(&column) {
            return Err(BadEdge::OutsideMatrix(self.nodes));
        }
        let (row, column) = (row - 1, column - 1);
        for (end, (id, limit)) in [row, column].into_iter().zip(self.limits).enumerate() {
            if id >= limit.exclusive() {
                return Err(BadEdge::TooLarge(limit).of_end(end));
            }
        }
        Ok(Some((row, column, value)))
    }
}
