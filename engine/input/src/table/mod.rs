//! A table as it is: columns of numbers, booleans, categories and dates, with missing values, become the numbers of feature rows.
//!
//! ```text
//! cell        a value, and the form that its text has: number, code, boolean, date, ...
//! fit         pass 1, only if a table needs it: the forms of all values of each column decide its encoding
//! encoder     pass 2: each row becomes numbers
//! problems    values that have no place in the encoding of their column: counted, with the first few of each kind
//! options     what the user says about missing values and categories
//! ```
//!
//! A table whose first rows are numbers alone has no pass 1: its columns are numbers, and any other value is a problem.
//!
//! **Memory** of pass 1: the different texts of each column, up to the limit of categories.

mod cell;
mod date;
mod encoder;
mod fit;
mod options;
mod problems;

pub use self::options::{EncodingOptions, MissingOption, MissingOptions, Replacement};
pub(crate) use self::{
    cell::{Cell, Form, HEXADECIMAL, form_of, is_missing},
    date::{Moment, moment_of},
    encoder::{Encoder, boolean_of, described},
    fit::{ColumnFit, Fitted},
    problems::{Kind as ProblemKind, Problems, RowNames},
};
