//! Aggregation over the whole graph.

use std::{ops::Range, path::Path, slice::ChunksExact};

use grappa_formats::NodeId;
use grappa_io::{Error, Position, Result, ledger::Lease, progress::Progress};
use grappa_sampling::{EdgeValues, InNeighbors, NodeSet};
use grappa_storage::{MappedChunks, Relation};

use super::{
    aggregation::{Aggregation, Sink},
    budget::{Budget, SETS},
    reduce::{ListSize, Reduce},
    rows::{NodeRows, StateRows},
};

/// Results of nodes with and without in-neighbors that are put together, and passed on together. No budget counts them.
const RESULT_NODES: u64 = 1 << 15;
const RESULT_BYTES: usize = 1 << 20;

/// Reduces the rows of all in-neighbors of every node, by a reduction without own rows.
///
/// In graphs with few large degrees, most nodes have no in-edges or no out-edges. The former have the same result, and the rows of the
/// latter are not needed. If rows are read many times, those that are needed are copied to a scratch file first.
pub struct WholeGraph<'a> {
    /// The edges, and the nodes at their ends.
    pub relation: Relation<'a>,
    /// The rows of all sources.
    pub rows: &'a dyn NodeRows,
    /// The values of edges that the reduction takes. The store has them.
    pub edge_values: EdgeValues,
    /// Memory and threads.
    pub budget: Budget,
    /// Folder for a scratch file. Without it, rows are not copied.
    pub scratch: Option<&'a Path>,
}

impl WholeGraph<'_> {
    /// Aggregates for the nodes from `first` on. `sink` receives ranges of nodes in order. Returns who took how much of the budget: nothing if
    /// there are no nodes from `first` on.
    ///
    /// # Errors
    /// As [`Aggregation::run`], and if the store is a slice.
    ///
    /// # Panics
    /// As [`Aggregation::run`].
    pub fn run<R: Reduce>(
        &self,
        reduce: &R,
        first: u64,
        progress: &dyn Progress,
        sink: &mut Sink<'_>,
    ) -> Result<Vec<Lease>> {
        let Relation { edges: store, .. } = self.relation;
        if !store.manifest().is_whole() {
            let problem =
                "the store is a slice of its graph, and sources of its edges are missing; this takes a whole store";
            return Err(Error::input(store.path(), Position::Whole, problem));
        }
        let nodes = store.manifest().nodes;
        if first == nodes {
            // An earlier run made all.
            return Ok(Vec::new());
        }
        let (all_sources, all) = (NodeSet::all(store.source_nodes()), NodeSet::all(nodes));
        let chunks = MappedChunks::open(store)?;
        let lists = InNeighbors::all(&chunks).with_values(self.edge_values);
        let sets = NodeSet::bytes_of(store.source_nodes()) + NodeSet::bytes_of(nodes);
        let destinations = match sets <= SETS.bytes(self.budget.memory) {
            true => lists.destinations(self.budget.threads)?,
            false => all,
        };
        let set_bytes = if destinations.is_all() { 0 } else { sets };
        // A larger budget may be the first that holds sets, which take at most their share of it.
        let mut aggregation = Aggregation {
            store,
            lists,
            sources: &all_sources,
            rows: self.rows,
            destinations: &destinations,
            budget: Budget { memory: self.budget.memory - set_bytes, ..self.budget },
        };
        let copy = self.copy(&aggregation, reduce, progress)?;
        if let Some((sources, rows)) = &copy {
            (aggregation.sources, aggregation.rows) = (sources, rows);
        }
        // The state of a node without in-neighbors.
        let mut empty = vec![0.0; reduce.state_width()];
        reduce.begin(&[], &mut empty);
        reduce.finish(ListSize::whole(0), &mut empty);
        let mut filled = Filled {
            destinations: &destinations,
            nodes: ((RESULT_BYTES / size_of_val(&empty[..])) as u64).clamp(1, RESULT_NODES),
            empty,
            next: first,
            sink,
        };
        let mut take = |positions: Range<u64>, states: &mut Vec<f32>| filled.take(positions, states);
        aggregation.run(reduce, destinations.position(NodeId(first)), None, progress, &mut take).map_err(
            Error::in_budget(self.budget.memory, |least| least + sets.min(SETS.budget_beside(least) - least)),
        )?;
        filled.fill_to(nodes)?;
        Ok([aggregation.leases(reduce), vec![SETS.lease_of(set_bytes)]].concat())
    }

    /// A copy of the rows that are needed, and their nodes, if that saves reading.
    pub(super) fn copy<R: Reduce>(
        &self,
        aggregation: &Aggregation<'_>,
        reduce: &R,
        progress: &dyn Progress,
    ) -> Result<Option<(NodeSet, StateRows)>> {
        let Some(scratch) = self.scratch else { return Ok(None) };
        let (threads, passes) = (self.budget.threads, aggregation.passes(reduce)?);
        // Finding the sources costs about a pass.
        if aggregation.destinations.is_all() || self.rows.file_bytes() == 0 || passes < 3 {
            return Ok(None);
        }
        let sources = aggregation.lists.sources_of(aggregation.destinations, threads, progress)?;
        if StateRows::copy_bytes(scratch, self.rows, sources.len(), passes) == 0 {
            return Ok(None);
        }
        let rows = StateRows::copied(scratch, self.rows, &sources, self.budget, progress)?;
        Ok(Some((sources, rows)))
    }
}

/// Puts the results of destinations between the results of nodes without in-neighbors.
struct Filled<'a, 's> {
    destinations: &'a NodeSet,
    empty: Vec<f32>,
    /// Nodes whose results are passed on together.
    nodes: u64,
    next: u64,
    sink: &'a mut Sink<'s>,
}

impl Filled<'_, '_> {
    fn take(&mut self, positions: Range<u64>, states: &mut Vec<f32>) -> Result<()> {
        if self.destinations.is_all() {
            self.next = positions.end;
            return (self.sink)(positions, states);
        }
        let mut nodes = Vec::new();
        let mut states = states.chunks_exact(self.empty.len());
        for first in positions.clone().step_by(RESULT_NODES as usize) {
            nodes.clear();
            let part = first..positions.end.min(first + RESULT_NODES);
            self.destinations.nodes_at(part, &mut nodes);
            self.take_nodes(&nodes, &mut states)?;
        }
        Ok(())
    }

    /// Passes on the results of some destinations, and of the nodes without in-neighbors before them.
    fn take_nodes(&mut self, mut nodes: &[NodeId], states: &mut ChunksExact<'_, f32>) -> Result<()> {
        while !nodes.is_empty() {
            let first = self.next;
            let (now, later) = nodes.split_at(nodes.partition_point(|node| node.0 < first + self.nodes));
            let end = now.last().map_or(first + self.nodes, |last| last.0 + 1);
            let mut results = self.empty.repeat((end - first) as usize);
            for node in now {
                let state = states.next().expect("one state for each destination");
                results[(node.0 - first) as usize * state.len()..][..state.len()].copy_from_slice(state);
            }
            (self.sink)(first..end, &mut results)?;
            (self.next, nodes) = (end, later);
        }
        Ok(())
    }

    /// Passes on the results of nodes without in-neighbors before `end`.
    fn fill_to(&mut self, end: u64) -> Result<()> {
        while self.next < end {
            let nodes = self.next..end.min(self.next + self.nodes);
            self.next = nodes.end;
            let mut results = self.empty.repeat((nodes.end - nodes.start) as usize);
            (self.sink)(nodes, &mut results)?;
        }
        Ok(())
    }
}
