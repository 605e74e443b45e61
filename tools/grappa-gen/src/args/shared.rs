//! Options that graphs with and without types share.

use clap::{Args, builder::TypedValueParser};
use grappa_console::options::choices;
use grappa_engine::generate::{FeatureSource, SplitShares};

pub const GRAPH: &str = "Graph";
pub const MODEL: &str = "Model";
pub const EDGES: &str = "Changes to edges";
pub const FEATURES: &str = "Features";
pub const SPLITS: &str = "Splits";
pub const OUTPUT: &str = "Output";
pub const RESOURCES: &str = "Resources";

/// Shares of the nodes; the others are in no split.
#[derive(Debug, Clone, Copy, Args)]
pub struct Splits {
    /// Share of the nodes to train on
    #[arg(long, help_heading = SPLITS, value_name = "F", default_value_t = 0.6)]
    train_fraction: f64,
    /// Share of the nodes for validation
    #[arg(long, help_heading = SPLITS, value_name = "F", default_value_t = 0.2)]
    val_fraction: f64,
    /// Share of the nodes for the test; a node of none of the three shares is in no split
    #[arg(long, help_heading = SPLITS, value_name = "F", default_value_t = 0.2)]
    test_fraction: f64,
}

impl Splits {
    /// The shares as the engine has them.
    pub fn shares(self) -> SplitShares {
        SplitShares { train: self.train_fraction, val: self.val_fraction, test: self.test_fraction }
    }
}

/// How nodes are assigned to chunks: whether at random.
pub fn assignments() -> impl TypedValueParser<Value = bool> {
    choices([
        ("random", "Each chunk is a random sample of the nodes", true),
        ("range", "By id: nodes with close ids share a chunk", false),
    ])
}

/// Whether features are stored.
pub fn feature_sources() -> impl TypedValueParser<Value = FeatureSource> {
    choices([
        ("stored", "Write them to disk", FeatureSource::Stored),
        ("procedural", "Compute them whenever they are read", FeatureSource::Procedural),
    ])
}
