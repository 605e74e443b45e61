//! Tiles: destinations that are reduced together, and their edges by block of sources.

use std::{iter, mem, ops::Range};

use grappa_formats::{NodeId, features::FeatureLayout, manifest::FeatureDtype};
use grappa_io::{
    Error, Result,
    arena::Arena,
    prefetch::prefetch,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_sampling::{DecodedEdges, ListScratch, NodeSet, Pieces};

use super::{
    aggregation::{Aggregation, OwnRows},
    blocks::Blocks,
    budget::OWN_ROWS,
    edge_lists::{BlockEdges, EdgeLists, is_room},
    reduce::{ListSize, PART, Reduce, parts},
};

/// Bytes of a word in a tile's lists of edges.
const WORD_BYTES: u64 = 4;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Rows or edges that a thread processes between two checks of whether to stop.
const STOP_EVERY: usize = 1 << 16;
/// Bytes in a cache line.
const LINE_BYTES: usize = 64;

/// Cuts the destinations into tiles that fit the memory.
pub struct Tiler<'a, R> {
    pub aggregation: &'a Aggregation<'a>,
    reduce: &'a R,
    pub blocks: Blocks,
    threads: usize,
    /// The budget of a tile, in bytes.
    tile_bytes: u64,
    /// Bytes of the row of a destination that the tile keeps, and of its place; 0 if it keeps none.
    kept_bytes: u64,
    /// Destinations whose own rows are in memory at a time.
    own_nodes: u64,
    /// The position of the next tile's first destination.
    next: u64,
    spare: SpareTile,
    pub progress: &'a dyn Progress,
}

/// The memory of a finished tile, for the next one. New memory costs a page fault for each page, which in virtual machines takes longer
/// than all else that is done to the page.
#[derive(Default)]
struct SpareTile {
    states: Vec<f32>,
    kept: Vec<u8>,
    edges: Vec<Arena>,
}

/// Destinations, their states and their edges.
pub struct Tile {
    /// The positions of the destinations.
    pub positions: Range<u64>,
    /// Each destination has a state for each part of its adjacency list, until the tile is finished.
    states: Vec<f32>,
    strips: Vec<Strip>,
    /// The rows of the destinations, if they are kept.
    kept: Option<KeptRows>,
}

/// The encoded rows of a tile's destinations.
struct KeptRows {
    /// Row after row. Those of blocks that were not added yet are missing at the end.
    rows: Vec<u8>,
    /// The positions of the destinations among the sources.
    places: Vec<u64>,
    block_bits: u32,
}

impl KeptRows {
    /// The destinations whose rows are in a block.
    fn in_block(&self, block: u64) -> Range<usize> {
        let first = |block: u64| self.places.partition_point(|place| place >> self.block_bits < block);
        first(block)..first(block + 1)
    }

    /// Keeps the rows of a block, after the rows of the blocks before.
    fn keep(&mut self, block: u64, rows: &[u8], stride: usize) {
        let first = block << self.block_bits;
        let Range { start, end } = self.in_block(block);
        for place in &self.places[start..end] {
            let at = (place - first) as usize * stride;
            self.rows.extend_from_slice(&rows[at..at + stride]);
        }
    }
}

/// A strip before its edges are listed.
struct CutStrip {
    positions: Range<u64>,
    edges: u64,
}

/// The part of a tile that one thread works on.
struct Strip {
    edges: EdgeLists,
    sizes: Vec<ListSize>,
    /// Number of states.
    states: usize,
}

/// The vector without its values, if it has room for `values` values and for few more. Else a new, empty one.
fn emptied<T>(mut spare: Vec<T>, values: usize) -> Vec<T> {
    spare.clear();
    match is_room(spare.capacity(), values) {
        true => spare,
        false => Vec::new(),
    }
}

/// Returns `values` zeros, in the memory of `spare` if it has any.
fn zeros(mut spare: Vec<f32>, values: usize) -> Vec<f32> {
    if spare.capacity() == 0 {
        // Of new memory the system has zeroed the pages.
        return vec![0.0; values];
    }
    spare.resize(values, 0.0);
    spare
}

/// Bytes of a tile of some destinations with some edges.
pub fn bytes_of<R: Reduce>(destinations: u64, edges: u64, reduce: &R) -> u64 {
    let values = 4 * reduce.state_width() as u64;
    destinations * (values + size_of::<ListSize>() as u64) + edge_bytes(reduce) * edges
}

/// Bytes of an edge in a tile's lists.
fn edge_bytes<R: Reduce>(reduce: &R) -> u64 {
    WORD_BYTES * EdgeLists::edge_words(reduce.edge_width())
}

/// The number of destinations whose own rows are in memory at a time, and the bytes of these rows.
pub fn own_rows<R: Reduce>(reduce: &R, memory: u64) -> (u64, u64) {
    let row_bytes = 4 * reduce.own_width() as u64;
    let nodes = OWN_ROWS.bytes(memory).checked_div(row_bytes).unwrap_or(u64::MAX).max(1);
    (nodes, nodes.saturating_mul(row_bytes))
}

impl<'a, R: Reduce> Tiler<'a, R> {
    pub fn new(
        aggregation: &'a Aggregation<'a>,
        reduce: &'a R,
        first: u64,
        blocks: Blocks,
        keeps_rows: bool,
        progress: &'a dyn Progress,
    ) -> Self {
        let memory = aggregation.budget.memory;
        let (own_nodes, own_bytes) = own_rows(reduce, memory);
        Self {
            aggregation,
            reduce,
            blocks,
            threads: aggregation.budget.threads,
            tile_bytes: memory.saturating_sub(blocks.bytes() + own_bytes),
            own_nodes,
            kept_bytes: if keeps_rows { u64::from(blocks.stride) + size_of::<u64>() as u64 } else { 0 },
            next: first,
            spare: SpareTile::default(),
            progress,
        }
    }

    /// The next tile with its edges, or `None` after the last.
    pub fn next(&mut self) -> Result<Option<Tile>> {
        if self.next >= self.aggregation.destinations.len() {
            return Ok(None);
        }
        let (strips, states) = self.cut()?;
        let positions = self.next..strips.last().expect("a tile has a node").positions.end;
        self.next = positions.end;
        let destinations = (positions.end - positions.start) as usize;
        // What does not fit is freed before more is allocated.
        let spare = mem::take(&mut self.spare);
        let values = states * self.reduce.state_width();
        let states = emptied(spare.states, values);
        let kept = emptied(spare.kept, destinations * self.blocks.stride as usize);
        let spare_edges = spare.edges.into_iter().map(Some).chain(iter::repeat_with(|| None));
        let this = &*self;
        let strips = strips.into_iter().zip(spare_edges);
        let strips = workers::each(strips, |(strip, spare)| this.strip(strip, spare))?;
        // Strips end early when the operation shall stop.
        check_stopped(self.progress)?;
        tracing::debug!(
            destinations,
            edges = strips.iter().flat_map(|strip| &strip.sizes).map(|size| size.added).sum::<u64>(),
            bytes = self.tile_bytes,
            blocks = self.blocks.count(),
            "listed the edges of a tile"
        );
        Ok(Some(Tile {
            states: zeros(states, values),
            strips,
            kept: (self.kept_bytes > 0).then(|| self.kept_rows(positions.clone(), kept)),
            positions,
        }))
    }

    /// Takes the memory of a tile back, for the next one.
    pub fn take_back(&mut self, tile: Tile) {
        self.spare = SpareTile {
            states: tile.states,
            kept: tile.kept.map_or_else(Vec::new, |kept| kept.rows),
            edges: tile.strips.into_iter().map(|strip| strip.edges.words).collect(),
        };
    }

    /// Finds the end of the next tile, and cuts the tile into strips of about equal work. Returns these and the number of states.
    fn cut(&self) -> Result<(Vec<CutStrip>, usize)> {
        let blocks = self.blocks.count();
        let far_words = EdgeLists::far_words(self.reduce.edge_width());
        let far_bytes = (far_words * WORD_BYTES * blocks).div_ceil(u64::from(self.blocks.code().far()));
        let row_bytes = bytes_of(1, 0, self.reduce) + far_bytes + self.kept_bytes;
        let part_bytes = 4 * self.reduce.state_width() as u64 + far_bytes;
        let mut bytes = self.threads as u64 * EdgeLists::bytes_of_lists(blocks, self.segment_words());
        // Prefix sums of the costs of adjacency lists, at the end of each run of them. Strips are balanced by these.
        let mut marks = vec![(self.next, 0u64)];
        let (mut position, mut cost, mut states) = (self.next, 0, 0);
        let Aggregation { lists, destinations, .. } = self.aggregation;
        let pieces = Pieces::of_degrees(destinations, self.next..destinations.len(), lists.chunks());
        let (mut nodes, mut degrees) = (Vec::new(), Vec::new());
        'full: while pieces.next(&mut nodes).is_some() {
            lists.chunks().degrees(&nodes, &mut degrees)?;
            for (node, &degree) in nodes.iter().zip(&degrees) {
                let added = lists.length(degree);
                let row_needs = row_bytes + (parts(added) - 1) * part_bytes + edge_bytes(self.reduce) * added;
                let is_full = bytes + row_needs > self.tile_bytes || states + parts(added) > u64::from(u32::MAX);
                if is_full && position == self.next {
                    return Err(self.too_small(*node, degree)?);
                }
                if is_full {
                    break 'full;
                }
                bytes += row_needs;
                states += parts(added);
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
            CutStrip { positions: first..end, edges: cost - cost_before - (end - first) }
        });
        let strips = strips.filter(|strip| !strip.positions.is_empty()).collect();
        Ok((strips, states as usize))
    }

    /// Room in `rows` for the rows of the destinations at some positions.
    fn kept_rows(&self, positions: Range<u64>, mut rows: Vec<u8>) -> KeptRows {
        let Aggregation { destinations, sources, .. } = self.aggregation;
        let mut nodes = Vec::new();
        destinations.nodes_at(positions, &mut nodes);
        rows.reserve_exact(nodes.len() * self.blocks.stride as usize);
        KeptRows {
            rows,
            places: nodes.into_iter().map(|node| sources.position(node)).collect(),
            block_bits: self.blocks.block_bits,
        }
    }

    fn segment_words(&self) -> u64 {
        let (width, threads) = (self.reduce.edge_width(), self.threads as u64);
        EdgeLists::segment_words(width, self.blocks.count(), threads, self.tile_bytes)
    }

    /// Lists the edges of a strip by block.
    fn strip(&self, CutStrip { positions, edges }: CutStrip, spare: Option<Arena>) -> Result<Strip> {
        let (sources, blocks) = (self.aggregation.sources, self.blocks.count());
        let code = self.blocks.code();
        let states_max = positions.end - positions.start + edges / PART;
        let far = EdgeLists::far_edges(code, blocks, states_max);
        let (width, counts) = (self.reduce.edge_width(), [edges, far.min(edges)]);
        let mut lists = EdgeLists::new(code, width, blocks, self.segment_words(), counts, spare)?;
        let mut listed = ListedEdges {
            width,
            sizes: Vec::with_capacity((positions.end - positions.start) as usize),
            ..ListedEdges::default()
        };
        let (mut nodes, mut decoded, mut scratch) = (Vec::new(), DecodedEdges::default(), ListScratch::default());
        let pieces = Pieces::new(self.aggregation.destinations, positions, self.aggregation.lists.chunks());
        while pieces.next(&mut nodes).is_some() && !self.progress.is_stopped() {
            self.aggregation.lists.each(&nodes, &mut scratch, |_, list| {
                listed.sizes.push(ListSize { degree: list.degree(), added: list.len() });
                list.decode_in_pieces(&mut decoded, |decoded| listed.add(decoded, &mut lists, sources))
            })?;
            listed.add(&mut decoded, &mut lists, sources);
            self.aggregation.lists.chunks().release(&nodes);
        }
        Ok(Strip { edges: lists, sizes: listed.sizes, states: listed.state as usize })
    }

    /// The error of a budget that does not hold the adjacency list of a node.
    fn too_small(&self, node: NodeId, degree: u64) -> Result<Error> {
        Ok(Error::Budget {
            operation: format!(
                "the adjacency list of {}, which has {degree} edges",
                self.aggregation.store.ids().name(node)
            ),
            given: self.aggregation.budget.memory,
            least: self.sufficient_memory()?,
            remedy: "raise --memory",
        })
    }

    /// A budget that holds the longest adjacency list. All larger ones hold it too.
    fn sufficient_memory(&self) -> Result<u64> {
        let Aggregation { lists, destinations, .. } = self.aggregation;
        let pieces = Pieces::of_degrees(destinations, 0..destinations.len(), lists.chunks());
        let (mut nodes, mut degrees, mut longest) = (Vec::new(), Vec::new(), 0);
        while pieces.next(&mut nodes).is_some() {
            check_stopped(self.progress)?;
            lists.chunks().degrees(&nodes, &mut degrees)?;
            let lengths = degrees.iter().map(|&degree| lists.length(degree));
            longest = lengths.fold(longest, u64::max);
        }
        // With more memory, rows may be streamed from their own files and not from a copy: the rows of all nodes, in which up to an eighth is
        // padding.
        let sources = self.aggregation.store.source_nodes();
        let stride = self.blocks.stride + self.blocks.stride / 8;
        // An upper bound for blocks of any size of the bytes of far edges per destination.
        let width = self.reduce.edge_width();
        let far_bytes = EdgeLists::edge_words(width) * ((sources >> 28) + 2);
        let more_parts = (parts(longest) - 1) * (4 * self.reduce.state_width() as u64 + far_bytes);
        let row_bytes = bytes_of(1, longest, self.reduce) + far_bytes + more_parts + self.kept_bytes;
        let sufficient = iter::successors(Some(1 << 10), |memory| Some(memory + memory / 64)).find(|memory| {
            let blocks = Blocks::new(sources, stride, *memory);
            let blocks_bytes = blocks.bytes_max(*memory);
            let lists_bytes = EdgeLists::bytes_of_lists_max(width, blocks.count(), self.threads as u64, *memory);
            let (_, own_bytes) = own_rows(self.reduce, *memory);
            blocks_bytes + lists_bytes + own_bytes + row_bytes <= *memory
        });
        Ok(sufficient.expect("what is needed grows more slowly than the memory"))
    }
}

/// Which edges of a strip are listed by block.
#[derive(Default)]
struct ListedEdges {
    /// Values of an edge.
    width: usize,
    /// The sizes of all adjacency lists so far.
    sizes: Vec<ListSize>,
    /// The number of adjacency lists whose edges are all listed.
    whole: usize,
    /// The number of listed edges of the next one.
    next_edges: u64,
    /// The state that the next edge is added to.
    state: u32,
}

impl ListedEdges {
    /// Lists the next edges, and clears `decoded`.
    fn add(&mut self, decoded: &mut DecodedEdges, lists: &mut EdgeLists, all: &NodeSet) {
        let (mut positions, mut left) = (all.positions(&decoded.sources).enumerate(), decoded.sources.len() as u64);
        while let Some(size) = self.sizes.get(self.whole) {
            let part_edges = PART - self.next_edges % PART;
            let count = left.min(size.added - self.next_edges).min(part_edges);
            for (edge, position) in positions.by_ref().take(count as usize) {
                let values = &decoded.values[edge * self.width..][..self.width];
                lists.push(self.state, position, values);
            }
            left -= count;
            self.next_edges += count;
            let is_whole = self.next_edges == size.added;
            if is_whole {
                self.whole += 1;
                self.next_edges = 0;
            } else if left == 0 && count < part_edges {
                break;
            }
            self.state += u32::from(is_whole || count == part_edges);
        }
        drop(positions);
        decoded.clear();
    }
}

impl Tile {
    pub fn edges(&self) -> u64 {
        let sizes = self.strips.iter().flat_map(|strip| &strip.sizes);
        sizes.map(|size| size.added).sum()
    }

    /// Whether the tile has an edge from this block, or a destination in it whose row it keeps.
    pub fn uses(&self, block: u64) -> bool {
        let has_edges = self.strips.iter().any(|strip| !strip.edges.is_empty(block));
        has_edges || self.kept.as_ref().is_some_and(|kept| !kept.in_block(block).is_empty())
    }
}

impl<R: Reduce> Tiler<'_, R> {
    /// Initializes the states of a tile.
    pub fn begin(&self, tile: &mut Tile, own: &mut Option<&mut OwnRows<'_>>) -> Result<()> {
        let (reduce, width) = (self.reduce, self.reduce.own_width());
        let mut rows = Vec::new();
        let mut states = tile.states.chunks_exact_mut(reduce.state_width());
        let mut sizes = tile.strips.iter().flat_map(|strip| &strip.sizes);
        let mut next = tile.positions.start;
        while next < tile.positions.end {
            let nodes = next..tile.positions.end.min(next.saturating_add(self.own_nodes));
            next = nodes.end;
            let count = (nodes.end - nodes.start) as usize;
            rows.resize(count * width, 0.0);
            if let Some(own) = own {
                own(nodes, &mut rows)?;
            }
            for (i, size) in sizes.by_ref().take(count).enumerate() {
                let own = &rows[i * width..][..width];
                let mut states = states.by_ref().take(parts(size.added) as usize);
                reduce.begin(own, states.next().expect("a destination has a state"));
                states.for_each(|state| reduce.begin_part(own, state));
            }
        }
        Ok(())
    }

    /// Adds the edges of a tile from a block whose encoded rows are `rows`. Blocks come in ascending order. Returns early when the operation shall
    /// stop.
    pub fn add(&self, tile: &mut Tile, block: u64, rows: &[u8], layout: FeatureLayout) -> Result<()> {
        let (reduce, stride, state_width) = (self.reduce, layout.stride as usize, self.reduce.state_width());
        if let Some(kept) = &mut tile.kept {
            kept.keep(block, rows, stride);
        }
        self.each_strip(tile, |strip, states| {
            let edges = strip.edges.of_block(block);
            let mut ahead = edges.clone();
            let prefetch_next = |ahead: &mut BlockEdges<'_>, states: &[f32]| {
                let Some((destination, source, _)) = ahead.next() else {
                    return;
                };
                prefetch_part(rows, source as usize * stride, stride);
                prefetch_part(states, destination as usize * state_width, state_width);
            };
            (0..AHEAD).for_each(|_| prefetch_next(&mut ahead, states));
            let mut values = vec![0.0; layout.dim as usize];
            for (i, (destination, source, along)) in edges.enumerate() {
                if i.is_multiple_of(STOP_EVERY) && self.progress.is_stopped() {
                    return;
                }
                prefetch_next(&mut ahead, states);
                let row = &rows[source as usize * stride..][..stride];
                let state = &mut states[destination as usize * state_width..][..state_width];
                match layout.dtype {
                    FeatureDtype::F32 => reduce.add_along(state, bytemuck::cast_slice(row), along),
                    _ if along.is_empty() => reduce.add_encoded(state, row, layout, &mut values),
                    _ => {
                        layout.decode_row(row, &mut values);
                        reduce.add_along(state, &values, along);
                    }
                }
            }
        })
    }

    /// Completes the states of a tile. Returns them, and the rows that were kept.
    pub fn finish<'t>(&self, tile: &'t mut Tile) -> Result<(&'t mut Vec<f32>, Option<&'t [u8]>)> {
        let (reduce, width) = (self.reduce, self.reduce.state_width());
        self.each_strip(tile, |strip, states| {
            let mut first = 0;
            for (i, size) in strip.sizes.iter().enumerate() {
                let end = first + parts(size.added) as usize * width;
                let (state, others) = states[first..end].split_at_mut(width);
                others.chunks_exact(width).for_each(|part| reduce.merge(state, part));
                reduce.finish(*size, state);
                if first != i * width {
                    states.copy_within(first..first + width, i * width);
                }
                first = end;
            }
        })?;
        // The states that were merged into others are behind the first states of a strip, one for each destination.
        let (mut from, mut to) = (0, 0);
        for strip in &tile.strips {
            let values = strip.sizes.len() * width;
            if from != to {
                tile.states.copy_within(from..from + values, to);
            }
            from += strip.states * width;
            to += values;
        }
        tile.states.truncate(to);
        Ok((&mut tile.states, tile.kept.as_ref().map(|kept| &kept.rows[..])))
    }

    /// Runs `work` for each strip of a tile and its states, each on its own thread.
    fn each_strip(&self, tile: &mut Tile, work: impl Fn(&Strip, &mut [f32]) + Sync) -> Result<()> {
        let width = self.reduce.state_width();
        let mut states = tile.states.as_mut_slice();
        let strips = tile.strips.iter().map(|strip| {
            let now = states.split_off_mut(..strip.states * width).expect("strips have all states");
            (strip, now)
        });
        workers::each(strips, |(strip, states)| {
            work(strip, states);
            Ok(())
        })
        .map(drop)
    }
}

/// Prefetches all cache lines of a part of `values`.
#[inline(always)]
fn prefetch_part<T>(values: &[T], first: usize, count: usize) {
    let line = LINE_BYTES / size_of::<T>();
    (first..first + count).step_by(line).for_each(|at| prefetch(values, at));
}
