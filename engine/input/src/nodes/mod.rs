//! Readers of per-node data: one row per node (features, labels, parts) or a list of nodes (splits).

mod class_names;
mod column_ids;
mod column_parts;
mod column_rows;
mod features;
mod forms;
mod labels;
mod node_file;
mod parts;
mod sparse;
mod split;
mod split_columns;
mod table_schema;
mod text_rows;
mod text_table;
mod times;

pub use self::{
    features::{MatrixSource, NonFinite},
    forms::{InputPlace, TableForm},
    labels::{LabelBatch, LabelSource, LabelType},
    node_file::NodeFile,
    parts::PartSource,
    split::{SplitSource, read_split_ids},
    split_columns::{SPLITS, SplitColumns},
    table_schema::{ColumnSchema, ColumnValues, TableSchema, text_values},
    times::NodeTimeSource,
};
