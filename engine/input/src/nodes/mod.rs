//! Readers of per-node data: one row per node (features, labels, parts) or a list of nodes (splits).

mod features;
mod id_column;
mod labels;
mod node_file;
mod parquet_ids;
mod parquet_parts;
mod parquet_rows;
mod parts;
mod place;
mod sparse;
mod split;
mod table_columns;
mod text_rows;

pub(crate) use self::text_rows::lines_of;
pub use self::{
    features::{MatrixSource, NonFinite},
    labels::{LabelBatch, LabelSource},
    parts::PartSource,
    place::Place,
    split::{SplitSource, read_split_ids},
};
