//! Building a store from edge lists, features, labels and splits: [`ingest`], its options, and the types of their fields.

pub use grappa_formats::{
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, SelfLoops},
    schema::{CategoryForm, Schema},
};
pub use grappa_ingestion::ingest::{Assign, IngestOptions, RandomSplit, Shares, SplitFile, Summary, examine, ingest};
pub use grappa_input::{
    ColumnReading, Comments, EdgeColumnOptions, EdgeFormat, EncodingOptions, HeaderLine, MissingOption, MissingOptions,
    OnBadLine, Reading, Replacement, Separator, TableForm, TableOptions, ogb,
};
pub use grappa_storage::writer::{kept_in, partial_folder};
