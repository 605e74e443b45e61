//! Readers of per-node data: one row per node (features, labels, parts) or a list of nodes (splits).

mod class_names;
mod features;
mod labels;
mod node_file;
mod parquet_column;
mod parquet_ids;
mod parquet_parts;
mod parquet_rows;
mod parts;
mod place;
mod sparse;
mod split;
mod split_columns;
mod text_rows;
mod text_table;

pub(crate) use self::text_rows::lines_of;
pub use self::{
    features::{MatrixSource, NonFinite},
    labels::{LabelBatch, LabelSource},
    parts::PartSource,
    place::Place,
    split::{SplitSource, read_split_ids},
    split_columns::{SPLITS, SplitColumns},
};
use crate::{columns::TableOptions, separator::Separator};

/// How to read tables of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableForm {
    /// The columns that the user names.
    pub columns: TableOptions,
    /// The separator of text. None finds it from the first lines.
    pub separator: Option<Separator>,
}
