//! Rows of a table that are stored together.

use arrow_schema::ArrowError;

/// The result of an operation on Arrow arrays.
pub(super) type ArrowResult<T> = Result<T, ArrowError>;

/// Rows that are stored together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowGroup {
    pub first_row: u64,
    pub rows: u64,
}
