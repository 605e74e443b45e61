//! Reduces the rows of each node's in-neighbors to one row. This is the product of a sparse and a dense matrix that exact
//! layer-wise inference and pre-aggregation need.
//!
//! [`Aggregation`] aggregates for a set of nodes, from the rows of another set that contains all their in-neighbors. If the
//! rows take at most half of the budget, they are kept in memory. Otherwise they are streamed:
//!
//! ```text
//! for each tile of destinations that fits the budget:
//!     list the tile's edges, sorted by block of sources
//!     for each block of sources:
//!         read its rows, and meanwhile reduce the rows of the previous block into the tile
//!     pass the tile to the caller
//! ```
//!
//! Cost: in memory, an edge costs the memory traffic of its source's row: 512 bytes for 128 values. Streamed, all rows that
//! the tile needs are read once per tile, front to back, and stay encoded until they are added. The disk then transfers (bytes
//! of all rows) x (number of tiles). The number of tiles is about (bytes of all states and kept rows + 4 bytes an edge) / budget.
//!
//! Sources are added in ascending order, so the result has the same bits for any budget, any number of threads, and any set of
//! destinations.
//!
//! [`Reduce`] defines a reduction. [`Mean`], [`Sum`], [`GcnSum`] and [`Max`] are here, and the first three with weights of edges.
//! Reductions with parameters are in the trainer.

mod aggregation;
mod blocks;
mod budget;
mod draw;
mod edge_lists;
mod in_memory;
mod reduce;
mod rows;
mod run;
mod stream;
#[cfg(test)]
mod tests;
mod tile;
mod weight_sums;
mod whole;

pub(crate) use self::rows::pieces;
pub use self::{
    aggregation::{Aggregation, OwnRows, Sink, SinkWithRows},
    budget::Budget,
    draw::DrawnNeighbors,
    reduce::{GcnSum, ListSize, Max, Mean, Reduce, Sum, WeightedGcnSum, WeightedMean, WeightedSum},
    rows::{
        Beside, GrowingRows, NodeRows, RowScan, RowValues, RowsWriter, ScaledRows, ScannedColumn, ScannedPart,
        SelectedRows, StateRows, StoredRows, read_each, read_each_ahead, store_features,
    },
    stream::BegunAggregation,
    weight_sums::AllWeights,
    whole::WholeGraph,
};
