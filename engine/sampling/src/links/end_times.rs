//! The times from which links exist, if edges have no times and their ends do.

use std::sync::Arc;

use grappa_formats::{NodeId, time_axis::TimeAxis};
use grappa_io::Result;
use grappa_storage::{Graph, NodeTimes};

/// The times of the ends of a relation, as far as these have times. A link exists from the time of its later end on.
#[derive(Debug, Clone, Default)]
pub struct EndTimes {
    sources: Option<Arc<NodeTimes>>,
    destinations: Option<Arc<NodeTimes>>,
}

impl EndTimes {
    /// The times of both ends of the relation of this number.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    ///
    /// # Panics
    /// If there is no such relation.
    pub fn open(graph: &Graph, relation: usize) -> Result<Self> {
        let entry = &graph.manifest().relations[relation];
        let times = |node_type: u32| graph.node_times(node_type as usize).map(Option::<&_>::cloned);
        Ok(Self { sources: times(entry.source)?, destinations: times(entry.destination)? })
    }

    /// Whether neither end has times.
    pub fn is_empty(&self) -> bool {
        self.axes().next().is_none()
    }

    /// The times of destinations, if they have times.
    pub fn destinations(&self) -> Option<&NodeTimes> {
        self.destinations.as_deref()
    }

    /// The times of sources, if they have times.
    pub fn sources(&self) -> Option<&NodeTimes> {
        self.sources.as_deref()
    }

    /// The axes of the ends that have times.
    pub fn axes(&self) -> impl Iterator<Item = &TimeAxis> {
        [&self.sources, &self.destinations].into_iter().flatten().map(|times| times.axis())
    }

    /// The time of the later end of a link. None if neither end has times.
    ///
    /// # Panics
    /// If an end does not exist.
    pub fn of_link(&self, source: NodeId, target: NodeId) -> Option<i64> {
        let source = self.sources.as_ref().map(|times| times.time(source));
        let target = self.destinations.as_ref().map(|times| times.time(target));
        source.max(target)
    }

    /// Whether both ends of a link are there at a time.
    ///
    /// # Panics
    /// If an end does not exist.
    pub fn are_there(&self, (source, target): (NodeId, NodeId), time: i64) -> bool {
        self.of_link(source, target).is_none_or(|from| from <= time)
    }

    /// The first time of an end, and the last one. None without times, or without nodes.
    pub fn span(&self) -> Option<[i64; 2]> {
        let axes = self.axes().filter(|axis| axis.positions() > 0);
        let ends = axes.map(|axis| [axis.time(0), axis.time(axis.positions() - 1)]);
        ends.reduce(|all, axis| [all[0].min(axis[0]), all[1].max(axis[1])])
    }
}
