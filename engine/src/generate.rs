//! Stores and files of random graphs: recipes of graphs, and the functions that write them.

pub use grappa_formats::manifest::{EdgeOptions, FeatureDtype, FeatureSource, SelfLoops};
pub use grappa_ingestion::generate::{
    EdgeListFormat, EdgeListSummary, check_features_memory, print_edge_list,
    store::{FeatureOptions, StoreOptions, StoreSummary, generate_store},
    write_classes, write_edge_list, write_features, write_split,
};
pub use grappa_storage::writer::partial_folder;
pub use grappa_synthetic::{
    AdjacencyBuffer, AdjacencyLists, BlockModel, ErdosRenyi, Features, Generator, Model, Recipe, Rmat, RmatClasses,
    Split, SplitShares,
};
