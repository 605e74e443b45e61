//! The numbers by which training divides memory and work. A run decides with them, and a plan predicts its decisions.

use grappa_io::ledger::MemoryShare;

/// The share of memory that a list of edges may take, of those that link prediction learns or scores.
pub const EDGE_LIST: MemoryShare = MemoryShare::one(
    "list of edges",
    4,
    "the edges of a part or of an epoch with their order; refused above 1/4, so that adjacency lists, the same again for halo nodes and \
     features keep the rest; chosen, not measured",
);
/// The largest number of partitions that is chosen. Each is read once an epoch, with as much again for its variable
/// part.
pub const PARTITIONS_MAX: u32 = 1024;
/// The share of memory that one kind of adjacency list may take: resident pages of mapped lists; lists in memory,
/// unless everything fits; and sampled in-neighbors of halo nodes.
pub const LISTS: MemoryShare = MemoryShare::one(
    "adjacency lists",
    4,
    "at most 1/4 where lists and features do not fit together, so that halo lists may take another 1/4 and features keep half; chosen, \
     not measured",
);
/// The share of memory that sweeps take to sort pairs and edges, beside mapped lists.
pub const SWEEPS: MemoryShare = MemoryShare::one(
    "sweeps",
    8,
    "1/8 to sort the nodes and edges of many minibatches: with less, the lists are read more often; chosen, not measured",
);
/// The smallest number of in-neighbors of a halo node that is chosen.
pub const HALO_NEIGHBORS_MIN: u32 = 10;
/// A halo node has this many times as many in-neighbors as it draws of them, if memory allows. They stay the same for a super-epoch, so
/// fewer draws would repeat: 25 of which 10 are drawn lose 0.4 points with GAT on a graph of mean degree 35.
pub const HALO_DRAWS: u32 = 10;
/// The share of the memory for these lists that a chosen number may fill if all nodes are halo nodes.
pub const CHOSEN_HALO_LISTS: MemoryShare = MemoryShare::one(
    "in-neighbors of halo nodes",
    2,
    "lists of a chosen number fill at most 1/2 of their room, because the estimate takes all nodes for halo nodes of mean degree; chosen, \
     not measured",
);
/// The default number of epochs between two repartitionings.
pub const REPARTITION_EVERY: u64 = 5;
/// The default number of seeds of a step, over all its partitions.
pub const SEEDS_OF_A_STEP: usize = 1024;

/// The default maximum number of batches of a window.
pub const LOOKAHEAD_MAX: u64 = 64;
/// If batches are small, a window may have more batches by default, up to this number of nodes in all of them.
pub const LOOKAHEAD_NODES: u64 = 1 << 22;
/// The share of a feed's memory that read buffers may take, unless reads would become too short or too few.
pub const READ_BUFFERS: MemoryShare = MemoryShare::one(
    "read buffers",
    8,
    "all reads in flight of the read engine; halved down to 16 reads of 64 KiB until they take at most 1/8, so that rows keep most of a \
     small budget; chosen, not measured",
);
/// The share of a feed's memory that is held back for large minibatches.
pub const RESERVE: MemoryShare = MemoryShare::one(
    "reserve of large minibatches",
    32,
    "1/32 for minibatches larger than those that were sampled in advance, whose margin is 1/8 of a minibatch; chosen, not measured",
);

/// The work of training for each sampled edge, in aggregated edges: forward and backward passes, sampling, and the
/// update of the states of few destinations per edge.
pub const SAMPLED_EDGE_WORK: f64 = 8.0;
/// The work of updating a state, in aggregated edges: a product of a row and two square matrices, next to the memory
/// traffic of a row.
pub const STATE_WORK: f64 = 16.0;
/// The share of memory that the inputs of the first layer may keep between evaluations.
pub const FIRST_INPUTS: MemoryShare = MemoryShare::one(
    "first inputs of evaluations",
    32,
    "inputs of the first layer stay from one evaluation to the next if they take at most 1/32: they save time only where evaluations \
     are small, and the feed does not leave room for them; chosen, not measured",
);
/// The share of memory that pre-aggregation takes before training begins.
pub const PREAGGREGATION: MemoryShare = MemoryShare::fraction(
    "pre-aggregation",
    [7, 8],
    "libtorch is loaded before, and nothing else of the run is in memory; chosen, not measured",
);
/// The embeddings of an evaluation of links are in memory if they take at most this share of it.
pub const EMBEDDINGS: MemoryShare = MemoryShare::one(
    "embeddings of all nodes",
    3,
    "embeddings of links are in memory if they take at most 1/3, beside the states of the two layers around them; chosen, not measured",
);
/// Refreshes of historical embeddings may take this part of the work of training.
const HISTORY_PART: f64 = 0.25;
/// With `auto`, an exact evaluation may take this part of an epoch.
const EXACT_PART: f64 = 0.25;
/// An exact evaluation with no more work is always done: it takes some 20 ms.
const LITTLE_WORK: f64 = 2e6;
/// A sampled evaluation takes about this part of the time of training on as many nodes: larger fanouts, but no backward
/// passes.
const SAMPLED_EVALUATION_PART: f64 = 1.3;

/// The most work of an exact evaluation with `auto`, next to an `epoch` of work with a number of `seeds`. The
/// evaluation scores `scored` nodes.
pub fn exact_evaluation_work_max(epoch: f64, seeds: f64, scored: f64) -> f64 {
    let sampled = epoch * SAMPLED_EVALUATION_PART * scored / seeds;
    sampled.max(EXACT_PART * epoch).max(LITTLE_WORK)
}

/// The most work of all refreshes of historical embeddings in training of this `work`.
pub fn refresh_work_max(work: f64) -> f64 {
    HISTORY_PART * work
}
