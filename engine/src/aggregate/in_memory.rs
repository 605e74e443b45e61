//! Aggregation of rows that are in memory: no lists of edges are made, and each adjacency list is decoded once.
//!
//! Threads take groups of destinations. For each group they decode the adjacency lists into a list of edges that stays in the
//! cache, then add the sources' rows, which they prefetch some edges ahead. So the cost of an edge is the memory traffic of its
//! source's row.

use std::sync::Mutex;

use grappa_formats::NodeId;
use grappa_io::{
    Result,
    prefetch::prefetch,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_sampling::{DecodedEdges, List, ListScratch};

use super::{
    aggregation::{Aggregation, OwnRows, Sink},
    budget::TILE_IN_MEMORY,
    reduce::{ListSize, PART, Reduce},
    rows::RowValues,
};

/// Destinations of a tile: the rows that the caller gets at once.
const TILE_NODES: u64 = 1 << 15;
/// Destinations that a thread takes at a time.
const GROUP_NODES: usize = 128;
/// Edges that a thread lists before it adds their sources' rows. They stay in the cache.
const EDGES: usize = PART as usize;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Values in a cache line.
const LINE_VALUES: usize = 16;

/// Destinations of a tile, with `memory` bytes beside the rows.
fn tile_nodes<R: Reduce>(memory: u64, reduce: &R) -> u64 {
    (TILE_IN_MEMORY.bytes(memory) / node_bytes(reduce).max(1)).clamp(1, TILE_NODES)
}

/// Bytes of the state and the own row of a destination.
fn node_bytes<R: Reduce>(reduce: &R) -> u64 {
    4 * (reduce.state_width() + reduce.own_width()) as u64
}

/// Bytes of a tile, with `memory` bytes beside the rows.
pub(super) fn tile_bytes<R: Reduce>(memory: u64, reduce: &R) -> u64 {
    tile_nodes(memory, reduce) * node_bytes(reduce)
}

pub(super) struct InMemory<'a, R> {
    pub aggregation: &'a Aggregation<'a>,
    /// The rows of all sources, by position.
    pub values: RowValues<'a>,
    pub reduce: &'a R,
    pub progress: &'a dyn Progress,
}

impl<R: Reduce> InMemory<'_, R> {
    /// Aggregates for the destinations from position `first` on, as [`Aggregation::run`] says.
    pub(super) fn run(&self, first: u64, own: &mut Option<&mut OwnRows<'_>>, sink: &mut Sink<'_>) -> Result<()> {
        let (width, own_width) = (self.reduce.state_width(), self.reduce.own_width());
        let tile_nodes = tile_nodes(self.aggregation.budget.memory, self.reduce);
        let end = self.aggregation.destinations.len();
        let (mut states, mut own_rows) = (Vec::new(), Vec::new());
        let (mut nodes, mut later) = (Vec::new(), Vec::new());
        let chunks = self.aggregation.lists.chunks();
        let tile = |at: u64| at.min(end)..(at + tile_nodes).min(end);
        let load = |at: u64, nodes: &mut Vec<NodeId>| {
            nodes.clear();
            self.aggregation.destinations.nodes_at(tile(at), nodes);
            chunks.read_ahead(nodes);
        };
        load(first, &mut later);
        for at in (first..end).step_by(tile_nodes as usize) {
            let positions = tile(at);
            std::mem::swap(&mut nodes, &mut later);
            load(positions.end, &mut later);
            states.resize(nodes.len() * width, 0.0);
            own_rows.resize(nodes.len() * own_width, 0.0);
            if let Some(own) = own {
                own(positions.clone(), &mut own_rows)?;
            }
            let edges = self.tile(&nodes, &own_rows, &mut states)?;
            chunks.release(&nodes);
            sink(positions, &mut states)?;
            self.progress.advance(0, edges);
        }
        Ok(())
    }

    /// Aggregates for `nodes`, and returns the number of their edges.
    fn tile(&self, nodes: &[NodeId], own: &[f32], states: &mut [f32]) -> Result<u64> {
        let (width, own_width) = (self.reduce.state_width(), self.reduce.own_width());
        let groups = nodes.chunks(GROUP_NODES).zip(states.chunks_mut(GROUP_NODES * width)).enumerate();
        let groups = Mutex::new((groups, 0));
        workers::run(self.aggregation.budget.threads, |worker| {
            let (mut edges, mut scratch) = (Edges::default(), ListScratch::default());
            let mut added = 0;
            while worker.goes_on() {
                let next = groups.lock().expect("no thread panics").0.next();
                let Some((number, (nodes, states))) = next else { break };
                check_stopped(self.progress)?;
                let own = &own[number * GROUP_NODES * own_width..][..nodes.len() * own_width];
                added += self.group(&mut edges, &mut scratch, nodes, own, states)?;
            }
            groups.lock().expect("no thread panics").1 += added;
            Ok(())
        })?;
        let (_, edges) = groups.into_inner().expect("no thread panicked");
        Ok(edges)
    }

    /// Aggregates for the nodes of a group, and returns the number of their edges.
    fn group(
        &self,
        edges: &mut Edges,
        scratch: &mut ListScratch,
        nodes: &[NodeId],
        own: &[f32],
        states: &mut [f32],
    ) -> Result<u64> {
        let (width, own_width) = (self.reduce.state_width(), self.reduce.own_width());
        for (i, state) in states.chunks_exact_mut(width).enumerate() {
            self.reduce.begin(&own[i * own_width..][..own_width], state);
        }
        let mut sizes = [ListSize::whole(0); GROUP_NODES];
        let mut count = 0;
        self.aggregation.lists.each(nodes, scratch, |destination, list| {
            sizes[destination] = ListSize { degree: list.degree(), added: list.len() };
            count += list.len();
            if list.len() > PART {
                self.add(&mut edges.listed, states);
                let own = &own[destination * own_width..][..own_width];
                return self.add_parts(edges, &list, own, &mut states[destination * width..][..width]);
            }
            edges.decoded.sources.clear();
            list.decode_into(&mut edges.decoded.sources);
            list.append_values(0..list.len(), &mut edges.listed.values)?;
            let positions = self.aggregation.sources.positions(&edges.decoded.sources);
            let listed = positions.map(|position| (destination as u32, position));
            edges.listed.ends.extend(listed);
            if edges.listed.ends.len() >= EDGES {
                self.add(&mut edges.listed, states);
            }
            Ok(())
        })?;
        self.add(&mut edges.listed, states);
        for (size, state) in sizes.iter().zip(states.chunks_exact_mut(width)) {
            self.reduce.finish(*size, state);
        }
        Ok(count)
    }

    /// Adds a list of several parts to the state of its node. No other edges are listed.
    fn add_parts(&self, edges: &mut Edges, list: &List<'_>, own: &[f32], state: &mut [f32]) -> Result<()> {
        let mut part = vec![0.0; state.len()];
        let mut is_first = true;
        let mut add_part = |listed: &mut Listed| {
            if std::mem::take(&mut is_first) {
                self.add(listed, state);
            } else {
                self.reduce.begin_part(own, &mut part);
                self.add(listed, &mut part);
                self.reduce.merge(state, &part);
            }
        };
        let (listed, width) = (&mut edges.listed, self.reduce.edge_width());
        let mut take = |decoded: &mut DecodedEdges| {
            for (edge, position) in self.aggregation.sources.positions(&decoded.sources).enumerate() {
                listed.ends.push((0, position));
                listed.values.extend_from_slice(&decoded.values[edge * width..][..width]);
                if listed.ends.len() == EDGES {
                    add_part(listed);
                }
            }
            decoded.clear();
        };
        edges.decoded.clear();
        list.decode_in_pieces(&mut edges.decoded, &mut take)?;
        take(&mut edges.decoded);
        if !listed.ends.is_empty() {
            add_part(listed);
        }
        Ok(())
    }

    /// Adds the rows of the listed sources, and clears the list.
    fn add(&self, listed: &mut Listed, states: &mut [f32]) {
        let (width, state_width) = (self.reduce.source_width(), self.reduce.state_width());
        let edge_width = self.reduce.edge_width();
        for (i, (destination, source)) in listed.ends.iter().enumerate() {
            if let Some((_, ahead)) = listed.ends.get(i + AHEAD) {
                let first = self.values.start(*ahead);
                (first..first + width).step_by(LINE_VALUES).for_each(|at| prefetch(self.values.values, at));
            }
            self.reduce.add_along(
                &mut states[*destination as usize * state_width..][..state_width],
                self.values.row(*source, width),
                &listed.values[i * edge_width..][..edge_width],
            );
        }
        listed.clear();
    }
}

#[derive(Default)]
struct Edges {
    listed: Listed,
    /// The edges of one destination, or some of them.
    decoded: DecodedEdges,
}

/// Edges whose sources' rows are added next.
#[derive(Default)]
struct Listed {
    /// Index of the destination in its group, position of the source.
    ends: Vec<(u32, u64)>,
    /// The values of the edges, row by row.
    values: Vec<f32>,
}

impl Listed {
    fn clear(&mut self) {
        self.ends.clear();
        self.values.clear();
    }
}
