//! The feature feed: delivers minibatches with the features of their nodes, also if the features do not fit in memory.
//!
//! ```text
//! batch source --sample--> nodes --plan--> slots, misses --fetch--> feature rows --assemble--> buffer --> consumer
//!                                          \___________ a window at a time ___________/
//! ```
//!
//! A [`Feed`] holds everything that stays from epoch to epoch. [`Feed::epoch`] starts the threads of an epoch and
//! iterates over its [`Batch`]es in order. A batch depends on the source and the store only, and not on threads,
//! budget, windows or the read engine.
//!
//! Feature rows are held in the type in which they are stored. There are three kinds:
//!
//! - *Resident* rows: all rows of the owned chunks, if they fit in memory. They are read once and found by arithmetic.
//!   If no other rows can be needed, nothing is planned.
//! - *Pooled* rows: the pool has slots for the rows of in-flight batches, and for those that were needed most often.
//! - *Computed* rows, if the store has procedural features.
//!
//! A *window* is a sequence of batches whose missing rows are read together. It ends when it has the maximum number of
//! batches that the budget allows, or when its rows take half of the pool. If the reader is idle, it also ends if so
//! few rows are missing that waiting for more does not pay. So windows are short while nearly all rows are in memory,
//! and become passes over the files if few are. While one window is assembled and consumed, the next is sampled,
//! planned and read.
//!
//! A row consists of a node's features and, if requested, its pre-aggregated features
//! ([`Aggregates`](grappa_storage::aggregates::Aggregates)). Both are planned, read and evicted together.
//!
//! Any error (a failed read, a file that changed, a batch that does not fit) stops all threads and is the last item of
//! the iterator. A panic of a thread continues in the consumer.

mod access;
mod batch;
mod budget;
mod buffer;
mod coalescing;
mod core;
mod delivery;
mod demand;
mod edge_features;
mod files;
mod in_flight;
mod open;
mod options;
mod part;
mod partitions;
mod pipeline;
mod planner;
mod pool;
mod reader;
mod reserve;
mod resident;
mod resident_rows;
mod rows;
mod sharing;
mod source;
mod state;
mod stats;
#[cfg(test)]
mod tests;
mod worker;

pub(crate) use self::open::FeedPlan;
pub use self::{
    batch::Batch,
    budget::RESIDENT_ROWS,
    buffer::FeatureBuffer,
    delivery::{Epoch, Feed, Stopper},
    edge_features::GraphEdgeFeatures,
    options::{FeedOptions, HostProcesses, OutputDtype, RegisterMemory, Registration, RowOptions},
    part::{Division, Part, Seeded},
    partitions::{BatchPlace, MinibatchOptions, PartitionBatches},
    resident_rows::ResidentRows,
    rows::RowContent,
    source::{BatchSource, WorkAhead},
    stats::{FeedStats, Stall},
};
