//! Minibatches: the nodes and edges of a training step, sampled for its seeds.
//!
//! A [`Sampler`] defines how neighbors are chosen, a [`PartitionView`](crate::view::PartitionView) which neighbors
//! there are, and a [`BatchKey`] which random numbers are used. These three and the seeds determine a [`Minibatch`]. It
//! does not depend on threads or on the kind of view.
//!
//! # Semantics
//! A minibatch has one [`Block`] per hop (a message-flow graph in DGL) and one list of nodes for all blocks. It is
//! sampled like DGL's `NeighborSampler`:
//!
//! - At each hop, every node that was reached so far is a destination and draws in-neighbors. Nodes that drew at an
//!   earlier hop draw again, independently. PyG draws once per node, so its batches have fewer edges;
//!   [`Sampler::drawing_once`] does the same.
//! - Without replacement, a node whose in-degree is at most the fanout keeps all in-edges. With replacement, it has as
//!   many edges as the fanout, or none if it has no in-edges.
//! - A node without in-edges is a destination without edges. It is a source of its block nevertheless, because
//!   destinations are sources.
//! - A self-loop is an edge like any other: the node may draw itself. None is added.
//! - Parallel edges are different edges. A source with m edges to a destination may be drawn m times without
//!   replacement, and the block then has the edge m times.
//! - A repeated seed is as many destinations, and each draws in-neighbors of its own. Edges from it come from the first
//!   one, as in DGL and PyG.
//!
//! # Time
//! A sampler [with times](Sampler::with_times) draws from the edges that are not later than the time of the seed. Each seed has a minibatch
//! of its own ([`Sampler::sample_at`]). A node without such edges has none.
//!
//! The edges of a destination are in the order of its adjacency list (see [`view`](crate::view)), not in the order of
//! draws.
//!
//! # Cost
//! Sampling is limited by memory latency. For each destination it reads the head of an adjacency list and the cache
//! lines of the sampled sources; for each edge, an entry of the table that relabels the source. So destinations are
//! processed in groups, in stages: prefetch the heads; read them and draw positions; prefetch the sources; read them
//! and prefetch the table entries; relabel. About twenty cache misses are then in flight at once.
//!
//! R-MAT 22 with edge factor 16, fanouts 15,10,5 and 1024 seeds: 154.8 K edges to 30.7 K destinations, 87.4 K nodes.

mod apart;
mod coverage;
mod draw;
mod fanouts;
mod find;
mod group;
mod join;
mod levels;
mod minibatch;
mod neighbors;
mod random;
mod relabel;
mod sampler;
mod size;
#[cfg(test)]
pub(crate) mod tests;
mod time;
mod walk_parts;
mod walks;
mod weighted;

pub(crate) use apart::SeedParts;
pub use coverage::{coverage, coverage_of_types, loss_weights};
pub(crate) use draw::Draw;
pub use fanouts::Fanouts;
pub(crate) use find::{FindScratch, find_edges};
pub(crate) use group::GroupScratch;
pub use join::{Join, JoinScratch};
pub use minibatch::{Block, LinkPairs, Minibatch};
pub(crate) use neighbors::DrawnEdges;
pub use random::BatchKey;
pub use random::draw_below;
pub(crate) use random::{Draws, HopKey, link_draws};
pub(crate) use relabel::Hashed;
pub(crate) use sampler::{Destinations, HopOfRelation, RelationHop};
pub use sampler::{Sampler, Scratch};
#[cfg(test)]
pub(crate) use size::MINIBATCH_NODES_MAX;
pub(crate) use size::check_size;
pub use time::{TimeHops, TimeOptions, TimeStrategy};
pub use walks::RandomWalks;
