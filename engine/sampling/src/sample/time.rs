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
//! Seeds at different times are [parts](super::apart) of a minibatch that share no nodes: the nodes of a part are those that its seeds reach
//! at their time.

use grappa_io::{Error, Result};

use crate::{names::parse_names, view::TimeLimit};

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

/// The limits of the draws of the destinations of a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct HopLimits<'a> {
    pub options: TimeOptions,
    /// The time of each part, and the part of each destination.
    pub times: &'a [i64],
    pub parts: &'a [u32],
    /// The limits of destinations that have limits of their own.
    pub limits: &'a [i64],
}

impl HopLimits<'_> {
    /// The limit of the draws of a destination.
    #[inline(always)]
    pub fn of(&self, destination: usize) -> TimeLimit {
        let time = match self.options.hops {
            TimeHops::Seed => self.times[self.parts[destination] as usize],
            TimeHops::Edge => self.limits[destination],
        };
        self.options.limit(time)
    }
}
