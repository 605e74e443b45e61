//! Tables of Arrow columns: Parquet files, and tables in memory.
//!
//! A [`ColumnTable`] can be read any number of times, by any number of threads. A [`Cursor`] reads rows of some columns front to back.
//! A column is a top-level field of the schema. Dictionaries are replaced by their values, so readers see plain arrays.

mod parquet;
mod row_group;
mod table;
pub(crate) mod types;
pub(crate) mod values;

pub(crate) use self::table::{ColumnTable, Cursor};
pub use self::table::{TableColumn, read_table};
