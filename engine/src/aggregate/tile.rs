//! Tiles: destinations that are reduced together, and their edges by block of sources.

use std::{ops::Range, thread};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    prefetch::prefetch,
    progress::{Progress, check_stopped},
    workers,
};

use super::{Aggregation, Blocks, OwnRows, Reduce};

/// Bytes of an edge in a tile's lists.
const EDGE_BYTES: u64 = 8;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Destinations whose adjacency lists are looked at together.
const LOOK_NODES: u64 = 1 << 12;
/// Rows or edges that a thread processes between two checks of whether to stop.
const STOP_EVERY: usize = 1 << 16;
/// Values in a cache line.
const LINE_VALUES: usize = 16;

/// Cuts the destinations into tiles that fit the memory.
pub struct Tiler<'a, R> {
    aggregation: &'a Aggregation<'a>,
    reduce: &'a R,
    blocks: Blocks,
    threads: usize,
    /// The budget of a tile, in bytes.
    tile_bytes: u64,
    /// The position of the next tile's first destination.
    next: u64,
    progress: &'a dyn Progress,
}

/// Destinations, their states and their edges.
pub struct Tile<'a, R> {
    reduce: &'a R,
    positions: Range<u64>,
    states: Vec<f32>,
    strips: Vec<Strip>,
    progress: &'a dyn Progress,
}

/// The part of a tile that one thread works on.
struct Strip {
    /// The first edge of each block, and the end of the last.
    starts: Vec<usize>,
    /// For each edge: the destination's index in the strip, and the source's place in its block.
    edges: Vec<[u32; 2]>,
    degrees: Vec<u64>,
}

impl<'a, R: Reduce> Tiler<'a, R> {
    pub fn new(
        aggregation: &'a Aggregation<'a>,
        reduce: &'a R,
        first: u64,
        blocks: Blocks,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        Ok(Self {
            aggregation,
            reduce,
            blocks,
            threads: aggregation.budget.threads,
            tile_bytes: aggregation.budget.memory.saturating_sub(blocks.bytes()),
            next: first,
            progress,
        })
    }

    /// The next tile with its edges, or `None` after the last.
    pub fn next(&mut self) -> Result<Option<Tile<'a, R>>> {
        if self.next >= self.aggregation.destinations.len() {
            return Ok(None);
        }
        let strips = self.cut()?;
        let positions = self.next..strips.last().expect("a tile has a node").end;
        self.next = positions.end;
        let strips: Vec<Strip> = thread::scope(|scope| {
            let threads: Vec<_> = strips
                .into_iter()
                .map(|positions| workers::spawn(scope, || self.strip(positions)))
                .collect::<Result<_>>()?;
            threads.into_iter().map(workers::join).collect::<Result<_>>()
        })?;
        // Strips end early when the operation shall stop.
        check_stopped(self.progress)?;
        let mut ends = Vec::new();
        for position in [positions.start, positions.end - 1] {
            self.aggregation
                .destinations
                .nodes_at(position..position + 1, &mut ends);
        }
        self.aggregation.release(&ends);
        let values = (positions.end - positions.start) as usize * self.reduce.state_width();
        Ok(Some(Tile {
            reduce: self.reduce,
            positions,
            states: vec![0.0; values],
            strips,
            progress: self.progress,
        }))
    }

    /// Finds the end of the next tile, and cuts the tile into strips of about equal work.
    fn cut(&self) -> Result<Vec<Range<u64>>> {
        let width = (self.reduce.state_width() + self.reduce.own_width()) as u64;
        let row_bytes = 4 * width + 8;
        let mut bytes = 8 * self.blocks.count() * self.threads as u64;
        // Prefix sums of the costs of adjacency lists, at the end of each run of them. Strips are balanced by these.
        let mut marks = vec![(self.next, 0u64)];
        let (mut position, mut cost) = (self.next, 0);
        let end = self.aggregation.destinations.len();
        let mut nodes = Vec::new();
        let mut is_full = false;
        while position < end && !is_full {
            nodes.clear();
            let together = position..(position + LOOK_NODES).min(end);
            self.aggregation.destinations.nodes_at(together, &mut nodes);
            self.aggregation.each_list(&nodes, |index, row| {
                let degree = row.degree();
                let row_needs = row_bytes + EDGE_BYTES * degree;
                is_full |= bytes + row_needs > self.tile_bytes || position - self.next == u64::from(u32::MAX);
                if is_full {
                    return match position > self.next {
                        true => Ok(()),
                        false => Err(self.too_small(nodes[index], degree, row_needs + bytes)),
                    };
                }
                bytes += row_needs;
                cost += 1 + degree;
                position += 1;
                if position.is_multiple_of(1024) {
                    marks.push((position, cost));
                }
                Ok(())
            })?;
        }
        marks.push((position, cost));
        let threads = self.threads as u64;
        let end_of = |thread| match thread {
            0 => self.next,
            thread => marks[marks.partition_point(|&(_, at)| at < cost * thread / threads)].0,
        };
        let strips = (0..threads).map(|thread| end_of(thread)..end_of(thread + 1));
        Ok(strips.filter(|strip| !strip.is_empty()).collect())
    }

    /// Lists the edges of a strip by block. Adjacency lists are decoded twice: once to count the edges of each block, once
    /// to put them in place. That costs less than to hold them twice.
    fn strip(&self, positions: Range<u64>) -> Result<Strip> {
        let sources = self.aggregation.sources;
        let mut starts = vec![0; self.blocks.count() as usize + 1];
        let mut degrees = Vec::with_capacity((positions.end - positions.start) as usize);
        self.each_row(positions.clone(), |_, degree, list| {
            degrees.push(degree);
            for source in list {
                starts[(sources.position(NodeId(*source)) / self.blocks.block_sources) as usize + 1] += 1;
            }
        })?;
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut edges = vec![[0; 2]; starts[starts.len() - 1]];
        let mut next = starts.clone();
        self.each_row(positions, |row, _, list| {
            for source in list {
                let position = sources.position(NodeId(*source));
                let (block, place) = (
                    position / self.blocks.block_sources,
                    position % self.blocks.block_sources,
                );
                let next = &mut next[block as usize];
                edges[*next] = [row, place as u32];
                *next += 1;
            }
        })?;
        Ok(Strip { starts, edges, degrees })
    }

    /// The error of a budget that does not hold the adjacency list of a node, which takes `needs` bytes.
    fn too_small(&self, node: NodeId, degree: u64, needs: u64) -> Error {
        Error::Budget {
            what: format!(
                "the adjacency list of {}, which has {degree} edges",
                self.aggregation.store.ids().name(node)
            ),
            given: self.aggregation.budget.memory,
            least: 2 * needs + 2 * 4 * self.blocks.width as u64,
            remedy: "raise --memory",
        }
    }

    /// Passes the index, the in-degree and the sources of each destination to `each`.
    fn each_row(&self, positions: Range<u64>, mut each: impl FnMut(u32, u64, &[u64])) -> Result<()> {
        let (mut nodes, mut sources, mut number) = (Vec::new(), Vec::new(), 0);
        for first in positions.clone().step_by(LOOK_NODES as usize) {
            if self.progress.is_stopped() {
                return Ok(());
            }
            nodes.clear();
            let together = first..(first + LOOK_NODES).min(positions.end);
            self.aggregation.destinations.nodes_at(together, &mut nodes);
            self.aggregation.each_list(&nodes, |_, row| {
                sources.clear();
                row.decode_into(&mut sources);
                each(number, row.degree(), &sources);
                number += 1;
                Ok(())
            })?;
        }
        Ok(())
    }
}

impl<R: Reduce> Tile<'_, R> {
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    pub fn edges(&self) -> u64 {
        self.strips.iter().map(|strip| strip.edges.len() as u64).sum()
    }

    /// Whether the strip has an edge from this block.
    pub fn uses(&self, block: u64) -> bool {
        self.strips.iter().any(|strip| !strip.block(block).is_empty())
    }

    /// Initialises the states.
    pub fn begin(&mut self, own: &mut Option<&mut OwnRows<'_>>) -> Result<()> {
        let (reduce, width) = (self.reduce, self.reduce.own_width());
        let mut rows = vec![0.0; (self.positions.end - self.positions.start) as usize * width];
        if let Some(own) = own {
            own(self.positions.clone(), &mut rows)?;
        }
        for (i, state) in self.states.chunks_exact_mut(reduce.state_width()).enumerate() {
            reduce.begin(&rows[i * width..][..width], state);
        }
        Ok(())
    }

    /// Adds the edges from a block whose rows are `rows`. Returns early when the operation shall stop.
    pub fn add(&mut self, block: u64, rows: &[f32]) -> Result<()> {
        let (reduce, width, state_width) = (self.reduce, self.reduce.source_width(), self.reduce.state_width());
        let progress = self.progress;
        self.each_strip(|strip, states| {
            let edges = strip.block(block);
            for (i, [destination, source]) in edges.iter().enumerate() {
                if i.is_multiple_of(STOP_EVERY) && progress.is_stopped() {
                    return;
                }
                if let Some([_, ahead]) = edges.get(i + AHEAD) {
                    let first = *ahead as usize * width;
                    (first..first + width)
                        .step_by(LINE_VALUES)
                        .for_each(|at| prefetch(rows, at));
                }
                reduce.add(
                    &mut states[*destination as usize * state_width..][..state_width],
                    &rows[*source as usize * width..][..width],
                );
            }
        })?;
        Ok(())
    }

    /// Completes the states and passes them on.
    pub fn finish(&mut self) -> Result<&mut Vec<f32>> {
        let reduce = self.reduce;
        self.each_strip(|strip, states| {
            for (degree, state) in strip.degrees.iter().zip(states.chunks_exact_mut(reduce.state_width())) {
                reduce.finish(*degree, state);
            }
        })?;
        Ok(&mut self.states)
    }

    /// Runs `work` for each strip and its states, each on its own thread.
    fn each_strip<T: Send>(&mut self, work: impl Fn(&Strip, &mut [f32]) -> T + Sync) -> Result<Vec<T>> {
        let width = self.reduce.state_width();
        let work = &work;
        thread::scope(|scope| {
            let mut states = self.states.as_mut_slice();
            let mut threads = Vec::new();
            for strip in &self.strips {
                let (now, rest) = states.split_at_mut(strip.degrees.len() * width);
                states = rest;
                threads.push(workers::spawn(scope, move || work(strip, now))?);
            }
            Ok(threads.into_iter().map(workers::join).collect())
        })
    }
}

impl Strip {
    fn block(&self, block: u64) -> &[[u32; 2]] {
        let block = block as usize;
        &self.edges[self.starts[block]..self.starts[block + 1]]
    }
}
