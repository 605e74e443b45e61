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
use grappa_sampling::sample::draw_below;
use grappa_storage::Chunk;

use super::{Aggregation, OwnRows, Reduce, Sink};

/// Destinations of a tile: the rows that the caller gets at once.
const TILE_NODES: u64 = 1 << 15;
/// Destinations that a thread takes at a time.
const GROUP_NODES: usize = 128;
/// Edges that a thread lists before it adds their sources' rows.
const EDGES: usize = 4096;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Values in a cache line.
const LINE_VALUES: usize = 16;

/// Aggregates the rows `values` of all sources.
pub(super) fn run<R: Reduce>(
    aggregation: &Aggregation<'_>,
    values: &[f32],
    first: u64,
    reduce: &R,
    own: &mut Option<&mut OwnRows<'_>>,
    progress: &dyn Progress,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let (width, own_width) = (reduce.state_width(), reduce.own_width());
    let chunks = aggregation.open_chunks()?;
    let node_bytes = 4 * (width + own_width) as u64;
    let tile_nodes = (aggregation.budget.memory / 4 / node_bytes.max(1)).clamp(1, TILE_NODES);
    let end = aggregation.destinations.len();
    let (mut states, mut own_rows, mut nodes) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = first;
    while at < end {
        check_stopped(progress)?;
        let positions = at..(at + tile_nodes).min(end);
        at = positions.end;
        nodes.clear();
        aggregation.destinations.nodes_at(positions.clone(), &mut nodes);
        states.resize(nodes.len() * width, 0.0);
        own_rows.resize(nodes.len() * own_width, 0.0);
        if let Some(own) = own {
            own(positions.clone(), &mut own_rows)?;
        }
        let edges = tile(aggregation, &chunks, values, reduce, &nodes, &own_rows, &mut states)?;
        aggregation.release(&chunks, &nodes);
        check_stopped(progress)?;
        sink(positions, &mut states)?;
        progress.advance(0, edges);
    }
    Ok(())
}

/// Aggregates for `nodes`, and returns the number of their edges.
fn tile<R: Reduce>(
    aggregation: &Aggregation<'_>,
    chunks: &[Chunk],
    values: &[f32],
    reduce: &R,
    nodes: &[NodeId],
    own: &[f32],
    states: &mut [f32],
) -> Result<u64> {
    let (width, own_width) = (reduce.state_width(), reduce.own_width());
    let groups = nodes
        .chunks(GROUP_NODES)
        .zip(states.chunks_mut(GROUP_NODES * width))
        .enumerate();
    let groups = Mutex::new((groups, 0));
    workers::run(aggregation.budget.threads, |worker| {
        let mut edges = Edges::default();
        let mut added = 0;
        while worker.goes_on() {
            let next = groups.lock().expect("no thread panics").0.next();
            let Some((number, (nodes, states))) = next else { break };
            let own = &own[number * GROUP_NODES * own_width..][..nodes.len() * own_width];
            added += edges.add_group(aggregation, chunks, values, reduce, nodes, own, states)?;
        }
        groups.lock().expect("no thread panics").1 += added;
        Ok(())
    })?;
    let (_, edges) = groups.into_inner().expect("no thread panicked");
    Ok(edges)
}

/// The edges of some destinations: index of the destination in its group, position of the source.
#[derive(Default)]
struct Edges {
    listed: Vec<(u32, u64)>,
    sources: Vec<u64>,
}

impl Edges {
    #[expect(clippy::too_many_arguments, reason = "each is another thing")]
    fn add_group<R: Reduce>(
        &mut self,
        aggregation: &Aggregation<'_>,
        chunks: &[Chunk],
        values: &[f32],
        reduce: &R,
        nodes: &[NodeId],
        own: &[f32],
        states: &mut [f32],
    ) -> Result<u64> {
        let (width, own_width) = (reduce.state_width(), reduce.own_width());
        for (i, state) in states.chunks_exact_mut(width).enumerate() {
            reduce.begin(&own[i * own_width..][..own_width], state);
        }
        let mut degrees = [0; GROUP_NODES];
        let mut count = 0;
        aggregation.each_list(chunks, nodes, |destination, row| {
            degrees[destination] = row.degree();
            count += row.degree();
            let mut list = |source: u64| {
                let position = aggregation.sources.position(NodeId(source));
                self.listed.push((destination as u32, position));
            };
            match reduce.draws() {
                Some(_) if row.is_empty() => {}
                Some(seed) => list(row.get(draw_below(seed, nodes[destination].0, row.degree()))),
                None if row.degree() <= EDGES as u64 => {
                    self.sources.clear();
                    row.decode_into(&mut self.sources);
                    self.sources.iter().copied().for_each(list);
                }
                // The list of a hub does not fit the cache.
                None => {
                    for source in row.iter() {
                        let position = aggregation.sources.position(NodeId(source));
                        self.listed.push((destination as u32, position));
                        if self.listed.len() >= EDGES {
                            self.add(values, reduce, states);
                        }
                    }
                }
            }
            if self.listed.len() >= EDGES {
                self.add(values, reduce, states);
            }
            Ok(())
        })?;
        self.add(values, reduce, states);
        for (degree, state) in degrees.iter().zip(states.chunks_exact_mut(width)) {
            reduce.finish(*degree, state);
        }
        Ok(count)
    }

    /// Adds the rows of the listed sources.
    fn add<R: Reduce>(&mut self, values: &[f32], reduce: &R, states: &mut [f32]) {
        let (width, state_width) = (reduce.source_width(), reduce.state_width());
        for (i, (destination, source)) in self.listed.iter().enumerate() {
            if let Some((_, ahead)) = self.listed.get(i + AHEAD) {
                let first = *ahead as usize * width;
                (first..first + width)
                    .step_by(LINE_VALUES)
                    .for_each(|at| prefetch(values, at));
            }
            reduce.add(
                &mut states[*destination as usize * state_width..][..state_width],
                &values[*source as usize * width..][..width],
            );
        }
        self.listed.clear();
    }
}
