//! The stages of an ingest, as its journal calls them.

use serde::{Deserialize, Serialize};

/// The stages that spill records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stage {
    /// Edges, by the segment of the source's key.
    BySource,
    /// Edges, by the segment of the destination's key.
    ByTarget,
    /// Edges, by the shard of the destination.
    Edges,
    /// Feature rows, by the shard of the node.
    Features,
    /// Labels, by the shard of the node.
    Labels,
}
