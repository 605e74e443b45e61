//! Tiles: destinations that are reduced together, and their edges by block of sources.

use std::{ops::Range, thread};

use grappa_formats::{NodeId, features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::{
    Error, Result,
    prefetch::prefetch,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_sampling::{ListScratch, Pieces};

use super::{Aggregation, Blocks, ListSize, OwnRows, Reduce};

/// Bytes of an edge in a tile's lists.
const EDGE_BYTES: u64 = 4;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Rows or edges that a thread processes between two checks of whether to stop.
const STOP_EVERY: usize = 1 << 16;
/// Bytes in a cache line.
const LINE_BYTES: usize = 64;

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

/// A tile before its edges are listed.
struct Cut {
    strips: Vec<CutStrip>,
    /// Whether memory holds the sources of all edges until the states exist.
    holds: bool,
}

/// A strip before its edges are listed.
struct CutStrip {
    positions: Range<u64>,
    edges: u64,
}

/// The part of a tile that one thread works on.
struct Strip {
    /// Where the edges of each block start, and where those of the last end.
    starts: Vec<usize>,
    edges: Vec<u32>,
    code: EdgeCode,
    sizes: Vec<ListSize>,
}

impl Blocks {
    fn code(self) -> EdgeCode {
        EdgeCode {
            place_bits: self.block_bits,
        }
    }
}

/// How an edge of a block is encoded in 32 bits: the source's place in the block, and above it how many destinations lie between its
/// destination and that of the edge before. If that does not fit, all upper bits are ones, and the destination follows.
#[derive(Debug, Clone, Copy)]
struct EdgeCode {
    place_bits: u32,
}

impl EdgeCode {
    /// The places in a block, as bits that are ones.
    fn places(self) -> u32 {
        !(u32::MAX << self.place_bits)
    }

    /// The number of the upper bits that stands for a destination that follows.
    fn far(self) -> u32 {
        u32::MAX >> self.place_bits
    }

    /// Number of words of an edge to a destination that follows an edge to `before`.
    #[inline(always)]
    fn words(self, before: u32, destination: u32) -> usize {
        1 + usize::from(destination - before >= self.far())
    }

    /// Encodes an edge that follows one to `before`.
    #[inline(always)]
    fn push(self, before: u32, (destination, place): (u32, u32), mut push: impl FnMut(u32)) {
        let step = (destination - before).min(self.far());
        push(step << self.place_bits | place);
        if step == self.far() {
            push(destination);
        }
    }
}

/// The edges of a block, in the order of their destinations: destination and place.
#[derive(Debug, Clone)]
struct BlockEdges<'a> {
    codes: &'a [u32],
    code: EdgeCode,
    destination: u32,
}

impl Iterator for BlockEdges<'_> {
    type Item = (u32, u32);

    #[inline(always)]
    fn next(&mut self) -> Option<(u32, u32)> {
        let (&edge, mut rest) = self.codes.split_first()?;
        let step = edge >> self.code.place_bits;
        if step == self.code.far() {
            (self.destination, rest) = (rest[0], &rest[1..]);
        } else {
            self.destination += step;
        }
        self.codes = rest;
        Some((self.destination, edge & self.code.places()))
    }
}

/// Bytes of a tile of some destinations with some edges.
pub fn bytes_of<R: Reduce>(destinations: u64, edges: u64, reduce: &R) -> u64 {
    let values = 4 * (reduce.state_width() + reduce.own_width()) as u64;
    destinations * (values + size_of::<ListSize>() as u64) + EDGE_BYTES * edges
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
        let Cut { strips, holds } = self.cut()?;
        let positions = self.next..strips.last().expect("a tile has a node").positions.end;
        self.next = positions.end;
        let this = &*self;
        let strips: Vec<Strip> = thread::scope(|scope| {
            let threads: Vec<_> = strips
                .into_iter()
                .map(|strip| workers::spawn(scope, move || this.strip(strip, holds)))
                .collect::<Result<_>>()?;
            threads.into_iter().map(workers::join).collect::<Result<_>>()
        })?;
        // Strips end early when the operation shall stop.
        check_stopped(self.progress)?;
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
    fn cut(&self) -> Result<Cut> {
        let blocks = self.blocks.count();
        // Destinations that follow an edge: in each block, at most one for so many destinations.
        let following = (4 * blocks).div_ceil(u64::from(self.blocks.code().far()));
        let row_bytes = bytes_of(1, 0, self.reduce) + following;
        let mut bytes = 16 * blocks * self.threads as u64;
        // Prefix sums of the costs of adjacency lists, at the end of each run of them. Strips are balanced by these.
        let mut marks = vec![(self.next, 0u64)];
        let (mut position, mut cost) = (self.next, 0);
        let destinations = self.aggregation.destinations;
        let pieces = self.pieces(self.next..destinations.len());
        let mut nodes = Vec::new();
        'full: while pieces.next(&mut nodes).is_some() {
            for node in &nodes {
                let (degree, added) = self.aggregation.lists.degree_and_length(*node)?;
                let row_needs = row_bytes + EDGE_BYTES * added;
                let is_full = bytes + row_needs > self.tile_bytes || position - self.next == u64::from(u32::MAX);
                if is_full && position == self.next {
                    return Err(self.too_small(*node, degree, row_needs + bytes));
                }
                if is_full {
                    break 'full;
                }
                bytes += row_needs;
                cost += 1 + added;
                position += 1;
                if position.is_multiple_of(1024) {
                    marks.push((position, cost));
                }
            }
        }
        marks.push((position, cost));
        let threads = self.threads as u64;
        let end_of = |thread| match thread {
            0 => marks[0],
            thread => marks[marks.partition_point(|&(_, at)| at < cost * thread / threads)],
        };
        let strips = (0..threads).map(|thread| {
            let ((first, cost_before), (end, cost)) = (end_of(thread), end_of(thread + 1));
            CutStrip {
                positions: first..end,
                edges: cost - cost_before - (end - first),
            }
        });
        let destinations = position - self.next;
        let of_states = destinations * 4 * (self.reduce.state_width() + self.reduce.own_width()) as u64;
        let of_sources = size_of::<u32>() as u64 * (cost - destinations);
        let holds =
            self.aggregation.sources.len() <= 1 << u32::BITS && bytes - of_states + of_sources <= self.tile_bytes;
        Ok(Cut {
            strips: strips.filter(|strip| !strip.positions.is_empty()).collect(),
            holds,
        })
    }

    /// The destinations at some positions, whose lists are read ahead.
    fn pieces(&self, positions: Range<u64>) -> Pieces<'a> {
        let Aggregation {
            lists, destinations, ..
        } = self.aggregation;
        Pieces::new(destinations, positions, lists.chunks())
    }

    /// Lists the edges of a strip by block: first counts those of each block, then puts them in place. If memory `holds` their sources in
    /// between, adjacency lists are not decoded again.
    fn strip(&self, CutStrip { positions, edges }: CutStrip, holds: bool) -> Result<Strip> {
        let (sources, code, count) = (
            self.aggregation.sources,
            self.blocks.code(),
            self.blocks.count() as usize,
        );
        let mut starts = vec![0; count + 1];
        let mut last = vec![0; count];
        let mut sizes: Vec<ListSize> = Vec::with_capacity((positions.end - positions.start) as usize);
        let mut held = holds.then(|| Vec::<u32>::with_capacity(edges as usize));
        self.each_row(positions.clone(), |row, size, list| {
            sizes.push(size);
            for position in sources.positions(list) {
                let block = (position >> code.place_bits) as usize;
                starts[block + 1] += code.words(last[block], row);
                last[block] = row;
                if let Some(held) = &mut held {
                    held.push(position as u32);
                }
            }
        })?;
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut edges = vec![0; starts[count]];
        let mut next = starts.clone();
        last.fill(0);
        let mut put = |row: u32, position: u64| {
            let block = (position >> code.place_bits) as usize;
            code.push(last[block], (row, position as u32 & code.places()), |word| {
                edges[next[block]] = word;
                next[block] += 1;
            });
            last[block] = row;
        };
        if let Some(held) = &held {
            let mut left = &held[..];
            for (row, size) in sizes.iter().enumerate() {
                // The operation may have been stopped in the middle.
                let (list, rest) = left.split_at(left.len().min(size.added as usize));
                list.iter().for_each(|&position| put(row as u32, position.into()));
                left = rest;
            }
        } else {
            self.each_row(positions, |row, _, list| {
                sources.positions(list).for_each(|position| put(row, position));
            })?;
        }
        Ok(Strip {
            starts,
            edges,
            code,
            sizes,
        })
    }

    /// The error of a budget that does not hold the adjacency list of a node, which takes `needs` bytes.
    fn too_small(&self, node: NodeId, degree: u64, needs: u64) -> Error {
        Error::Budget {
            what: format!(
                "the adjacency list of {}, which has {degree} edges",
                self.aggregation.store.ids().name(node)
            ),
            given: self.aggregation.budget.memory,
            least: 2 * needs + 2 * u64::from(self.blocks.stride),
            remedy: "raise --memory",
        }
    }

    /// Passes the index, the size of the list and the sources of each destination to `each`.
    fn each_row(&self, positions: Range<u64>, mut each: impl FnMut(u32, ListSize, &[u64])) -> Result<()> {
        let (mut nodes, mut sources, mut number) = (Vec::new(), Vec::new(), 0);
        let mut scratch = ListScratch::default();
        let pieces = self.pieces(positions);
        while pieces.next(&mut nodes).is_some() {
            if self.progress.is_stopped() {
                return Ok(());
            }
            self.aggregation.lists.each(&nodes, &mut scratch, |_, list| {
                sources.clear();
                list.decode_into(&mut sources);
                let size = ListSize {
                    degree: list.degree(),
                    added: list.len(),
                };
                each(number, size, &sources);
                number += 1;
                Ok(())
            })?;
            self.aggregation.lists.chunks().release(&nodes);
        }
        Ok(())
    }
}

impl<R: Reduce> Tile<'_, R> {
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    pub fn edges(&self) -> u64 {
        let sizes = self.strips.iter().flat_map(|strip| &strip.sizes);
        sizes.map(|size| size.added).sum()
    }

    /// Whether the strip has an edge from this block.
    pub fn uses(&self, block: u64) -> bool {
        self.strips.iter().any(|strip| !strip.codes(block).is_empty())
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

    /// Adds the edges from a block whose encoded rows are `rows`. Returns early when the operation shall stop.
    pub fn add(&mut self, block: u64, rows: &[u8], layout: FeatureLayout) -> Result<()> {
        let (reduce, stride, state_width) = (self.reduce, layout.stride as usize, self.reduce.state_width());
        let progress = self.progress;
        self.each_strip(|strip, states| {
            let edges = strip.edges_of(block);
            let mut ahead = edges.clone();
            let prefetch_next = |ahead: &mut BlockEdges<'_>, states: &[f32]| {
                let Some((destination, source)) = ahead.next() else {
                    return;
                };
                prefetch_part(rows, source as usize * stride, stride);
                prefetch_part(states, destination as usize * state_width, state_width);
            };
            (0..AHEAD).for_each(|_| prefetch_next(&mut ahead, states));
            let mut values = vec![0.0; layout.dim as usize];
            for (i, (destination, source)) in edges.enumerate() {
                if i.is_multiple_of(STOP_EVERY) && progress.is_stopped() {
                    return;
                }
                prefetch_next(&mut ahead, states);
                let row = &rows[source as usize * stride..][..stride];
                let state = &mut states[destination as usize * state_width..][..state_width];
                match layout.dtype {
                    FeatureDtype::F32 => reduce.add(state, bytemuck::cast_slice(row)),
                    _ => {
                        layout.decode_row(row, &mut values);
                        reduce.add(state, &values);
                    }
                }
            }
        })?;
        Ok(())
    }

    /// Completes the states and passes them on.
    pub fn finish(&mut self) -> Result<&mut Vec<f32>> {
        let reduce = self.reduce;
        self.each_strip(|strip, states| {
            for (size, state) in strip.sizes.iter().zip(states.chunks_exact_mut(reduce.state_width())) {
                reduce.finish(*size, state);
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
                let (now, rest) = states.split_at_mut(strip.sizes.len() * width);
                states = rest;
                threads.push(workers::spawn(scope, move || work(strip, now))?);
            }
            Ok(threads.into_iter().map(workers::join).collect())
        })
    }
}

/// Prefetches all cache lines of a part of `values`.
#[inline(always)]
fn prefetch_part<T>(values: &[T], first: usize, count: usize) {
    let line = LINE_BYTES / size_of::<T>();
    (first..first + count).step_by(line).for_each(|at| prefetch(values, at));
}

impl Strip {
    fn codes(&self, block: u64) -> &[u32] {
        let block = block as usize;
        &self.edges[self.starts[block]..self.starts[block + 1]]
    }

    fn edges_of(&self, block: u64) -> BlockEdges<'_> {
        BlockEdges {
            codes: self.codes(block),
            code: self.code,
            destination: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn edges_of_a_block_come_back(
            place_bits in 0u32..=20,
            steps in prop::collection::vec((prop_oneof![0u32..3, 4000u32..4200, 0u32..1 << 27], any::<u32>()), 0..50),
        ) {
            let code = EdgeCode { place_bits };
            let (mut codes, mut edges, mut before) = (Vec::new(), Vec::new(), 0);
            for (step, place) in steps {
                let edge = (before + step, place & code.places());
                code.push(before, edge, |word| codes.push(word));
                before = edge.0;
                edges.push(edge);
            }
            let decoded = BlockEdges { codes: &codes, code, destination: 0 };
            prop_assert_eq!(decoded.collect::<Vec<_>>(), edges);
        }
    }
}
