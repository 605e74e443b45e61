//! Draws that are limited by time: no edge that is later than its seed.
//!
//! ```text
//! seed at time 5          edges that a draw may have, in the order of the list
//! time_equal              1 2 2 5 5 | 7 9
//! not time_equal          1 2 2 | 5 5 7 9
//! window 3                1 | 2 2 5 5 | 7 9
//! ```
//!
//! Edges have the times of their sources where nodes have times.
//!
//! A minibatch at a time has one seed, and its nodes are those that the seed reaches at this time. The minibatches of several seeds are
//! joined without sharing nodes.

use std::ops::Range;

use grappa_formats::NodeId;
use grappa_io::{Error, Result};

use super::{group::DrawnPositions, minibatch::Block};
use crate::{
    names::parse_names,
    view::{RelationTimes, TimeLimit},
};

/// The time that limits the draws of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeHops {
    /// The time of the seed, at all hops, as in PyTorch Geometric.
    #[default]
    Seed,
    /// The time of the edge over which the node was reached first, as in TGL, or of the node itself if nodes of its type have times. Over
    /// relations without times, the limit stays.
    Edge,
}

/// The edges that are drawn of those within the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeStrategy {
    /// Any of them, with the same probability.
    #[default]
    Uniform,
    /// The last ones.
    Last,
}

impl TimeHops {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Seed, Self::Edge];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seed => "seed",
            Self::Edge => "edge",
        }
    }
}

impl TimeStrategy {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Uniform, Self::Last];

    /// The name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Last => "last",
        }
    }
}

parse_names!(TimeHops, "limit of later hops", "seed and edge");
parse_names!(TimeStrategy, "strategy", "uniform and last");

/// How the time of a seed limits the edges of its minibatch. Relations without times are not limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeOptions {
    /// Whether edges at the time of the seed count.
    pub equal: bool,
    /// The time that limits later hops.
    pub hops: TimeHops,
    /// If given, edges are at most this much earlier than the limit, in the unit of the store.
    pub window: Option<i64>,
    /// Which edges within the limit are drawn.
    pub strategy: TimeStrategy,
}

impl Default for TimeOptions {
    /// As in PyTorch Geometric: uniform among the edges that are not later than the seed.
    fn default() -> Self {
        Self { equal: true, hops: TimeHops::Seed, window: None, strategy: TimeStrategy::Uniform }
    }
}

impl TimeOptions {
    pub(super) fn check(&self) -> Result<()> {
        match self.window {
            Some(window) if window < 0 => Err(Error::out_of_range("time_window", "0 or more", window)),
            _ => Ok(()),
        }
    }

    fn limit(&self, time: i64) -> TimeLimit {
        TimeLimit { time, equal: self.equal, window: self.window }
    }
}

/// The limits of the draws of a minibatch at a time.
#[derive(Debug)]
pub(super) struct BatchTimes<'a> {
    pub options: TimeOptions,
    /// The time of the seed.
    pub seed: i64,
    /// The limits of the nodes of each type. Unused if the seed limits all hops.
    pub limits: &'a mut Vec<Vec<i64>>,
}

/// The limits of the draws by one relation at one hop.
pub(super) struct HopTimes<'a, 'b> {
    pub batch: &'a mut BatchTimes<'b>,
    /// The times of the relation, if it has some.
    pub times: Option<&'a RelationTimes>,
    /// Whether the block gets the times of its edges.
    pub keeps_times: bool,
}

impl BatchTimes<'_> {
    /// Begins a minibatch. `seeds` are the numbers of seeds of each type.
    pub fn begin(&mut self, seeds: impl Iterator<Item = usize>) {
        if self.options.hops == TimeHops::Edge {
            self.limits.clear();
            self.limits.extend(seeds.map(|seeds| vec![self.seed; seeds]));
        }
    }

    /// The time that limits the draws of a node of a type.
    fn limit_of(&self, node_type: usize, index: usize) -> i64 {
        match self.options.hops {
            TimeHops::Seed => self.seed,
            TimeHops::Edge => self.limits[node_type][index],
        }
    }
}

impl HopTimes<'_, '_> {
    /// The positions that draws may have in the list of a destination, a node of a type with this index, which has `degree` edges. None if they
    /// are not limited.
    pub fn eligible(
        &self,
        (node, node_type, index): (NodeId, usize, usize),
        degree: u64,
    ) -> Result<Option<Range<u64>>> {
        let Some(times) = self.times else { return Ok(None) };
        let limit = self.batch.options.limit(self.batch.limit_of(node_type, index));
        times.within(node, degree, limit).map(Some)
    }

    /// Notes the drawn edges of a destination, whose edges in the block begin at `first_edge`: their times, and the limits of the nodes of
    /// the source type that they reach first.
    pub fn note(
        &mut self,
        (node, destination, index): (NodeId, usize, usize),
        source: usize,
        (drawn, positions): (DrawnPositions, &[u64]),
        first_edge: usize,
        block: &mut Block,
    ) -> Result<()> {
        let sets_limits = self.batch.options.hops == TimeHops::Edge;
        let notes_times = self.keeps_times && self.times.is_some();
        if !(sets_limits || notes_times) {
            return Ok(());
        }
        let limit = self.batch.limit_of(destination, index);
        let (limits, keeps_times) = (&mut *self.batch.limits, self.keeps_times);
        let Block { indices, edge_times, .. } = block;
        let mut edges = indices[first_edge..].iter();
        let mut note = |time: i64, has_time: bool| {
            let &index = edges.next().expect("an index for each drawn edge");
            if sets_limits && index as usize == limits[source].len() {
                limits[source].push(time);
            }
            if keeps_times && has_time {
                edge_times.push(time);
            }
        };
        let mut of_list = Vec::new();
        drawn.positions(positions).for_each(|position| of_list.push(position));
        match self.times {
            Some(times) => times.each_time(node, of_list.into_iter(), |time| note(time, true)),
            None => {
                of_list.into_iter().for_each(|_| note(limit, false));
                Ok(())
            }
        }
    }
}
