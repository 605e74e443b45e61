//! Tiles: destinations that are reduced together, and their edges by block of sources.

use std::{ops::Range, thread};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    prefetch::prefetch,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_sampling::sample::draw_below;
use grappa_storage::{Chunk, Store};

use super::{Blocks, Budget, NodeRows, Reduce, rows::pieces};

/// Bytes of an edge in a tile's lists.
const EDGE_BYTES: u64 = 8;
/// Distance, in edges, at which a source's row is prefetched.
const AHEAD: usize = 8;
/// Rows or edges that a thread processes between two checks of whether to stop.
const STOP_EVERY: usize = 1 << 16;
/// Values in a cache line.
const LINE_VALUES: usize = 16;

/// Cuts the destinations into tiles that fit the memory.
pub struct Tiler<'a, R> {
    store: &'a Store,
    reduce: &'a R,
    chunks: Vec<Chunk>,
    blocks: Blocks,
    threads: usize,
    /// The budget of a tile, in bytes.
    tile_bytes: u64,
    /// The budget of the whole aggregation, which the error about too little memory names.
    memory: u64,
    next_node: u64,
    progress: &'a dyn Progress,
}

/// Destinations, their states and their edges.
pub struct Tile<'a, R> {
    reduce: &'a R,
    nodes: Range<u64>,
    states: Vec<f32>,
    strips: Vec<Strip>,
    progress: &'a dyn Progress,
}

/// The part of a tile that one thread works on.
struct Strip {
    nodes: Range<u64>,
    /// The first edge of each block, and the end of the last.
    starts: Vec<usize>,
    /// For each edge: the destination's index in the strip, and the source's index in its block.
    edges: Vec<[u32; 2]>,
    degrees: Vec<u64>,
}

impl<'a, R: Reduce> Tiler<'a, R> {
    pub fn new(
        store: &'a Store,
        reduce: &'a R,
        first: u64,
        budget: Budget,
        blocks: Blocks,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let chunks = store
            .present_chunks()
            .map(|chunk| store.chunk(chunk))
            .collect::<Result<_>>()?;
        Ok(Self {
            store,
            reduce,
            chunks,
            blocks,
            threads: budget.threads,
            tile_bytes: budget.memory.saturating_sub(blocks.bytes()),
            memory: budget.memory,
            next_node: first,
            progress,
        })
    }

    /// The next tile with its edges, or `None` after the last.
    pub fn next(&mut self) -> Result<Option<Tile<'a, R>>> {
        let nodes = self.store.manifest().nodes;
        if self.next_node == nodes {
            return Ok(None);
        }
        let strips = self.cut()?;
        let tile = self.next_node..strips.last().expect("a tile has a node").end;
        self.next_node = tile.end;
        let strips: Vec<Strip> = thread::scope(|scope| {
            let threads: Vec<_> = strips
                .into_iter()
                .map(|nodes| workers::spawn(scope, || self.strip(nodes)))
                .collect::<Result<_>>()?;
            threads.into_iter().map(workers::join).collect::<Result<_>>()
        })?;
        // Strips end early when the operation shall stop.
        check_stopped(self.progress)?;
        // Resident mapped pages count as memory of this process, and the tile needs them no more.
        for (chunk, rows) in pieces(self.store, tile.clone()) {
            self.chunks[chunk.0 as usize].release_rows(rows);
        }
        let values = (tile.end - tile.start) as usize * self.reduce.state_width();
        Ok(Some(Tile {
            reduce: self.reduce,
            nodes: tile,
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
        let mut marks = vec![(self.next_node, 0u64)];
        let (mut node, mut cost) = (self.next_node, 0);
        'tile: for (chunk, rows) in pieces(self.store, self.next_node..self.store.manifest().nodes) {
            let chunk = self.chunks[chunk.0 as usize].rows();
            for row in chunk.range(rows) {
                let degree = match (row?.degree(), self.reduce.draws()) {
                    (degree, Some(_)) => degree.min(1),
                    (degree, None) => degree,
                };
                let row_needs = row_bytes + EDGE_BYTES * degree;
                if bytes + row_needs > self.tile_bytes || node - self.next_node == u64::from(u32::MAX) {
                    if node > self.next_node {
                        break 'tile;
                    }
                    return Err(Error::Budget {
                        what: format!(
                            "the adjacency list of {}, which has {degree} edges",
                            self.store.ids().name(NodeId(node))
                        ),
                        given: self.memory,
                        least: 2 * (row_needs + bytes) + 2 * 4 * self.blocks.width as u64,
                        remedy: "raise --memory",
                    });
                }
                bytes += row_needs;
                cost += 1 + degree;
                node += 1;
                if node.is_multiple_of(1024) {
                    marks.push((node, cost));
                }
            }
        }
        marks.push((node, cost));
        let threads = self.threads as u64;
        let end_of = |thread| match thread {
            0 => self.next_node,
            thread => marks[marks.partition_point(|&(_, at)| at < cost * thread / threads)].0,
        };
        let strips = (0..threads).map(|thread| end_of(thread)..end_of(thread + 1));
        Ok(strips.filter(|strip| !strip.is_empty()).collect())
    }

    /// Lists the edges of a strip by block. Adjacency lists are decoded twice: once to count the edges of each block, once
    /// to put them in place. That costs less than to hold them twice.
    fn strip(&self, nodes: Range<u64>) -> Result<Strip> {
        let mut starts = vec![0; self.blocks.count() as usize + 1];
        let mut degrees = Vec::with_capacity((nodes.end - nodes.start) as usize);
        self.each_row(nodes.clone(), |_, sources| {
            degrees.push(sources.len() as u64);
            for source in sources {
                starts[(source / self.blocks.block_nodes) as usize + 1] += 1;
            }
        })?;
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        let mut edges = vec![[0; 2]; starts[starts.len() - 1]];
        let mut next = starts.clone();
        self.each_row(nodes.clone(), |row, sources| {
            for source in sources {
                let (block, place) = (source / self.blocks.block_nodes, source % self.blocks.block_nodes);
                let next = &mut next[block as usize];
                edges[*next] = [row, place as u32];
                *next += 1;
            }
        })?;
        Ok(Strip {
            nodes,
            starts,
            edges,
            degrees,
        })
    }

    fn each_row(&self, nodes: Range<u64>, mut each: impl FnMut(u32, &[u64])) -> Result<()> {
        let (mut sources, mut number) = (Vec::new(), 0);
        let draws = self.reduce.draws();
        let first = nodes.start;
        for (chunk, rows) in pieces(self.store, nodes) {
            for row in self.chunks[chunk.0 as usize].rows().range(rows) {
                if (number as usize).is_multiple_of(STOP_EVERY) && self.progress.is_stopped() {
                    return Ok(());
                }
                let row = row?;
                sources.clear();
                match draws {
                    Some(_) if row.is_empty() => {}
                    Some(seed) => sources.push(row.get(draw_below(seed, first + u64::from(number), row.degree()))),
                    None => row.decode_into(&mut sources),
                }
                each(number, &sources);
                number += 1;
            }
        }
        Ok(())
    }
}

impl<R: Reduce> Tile<'_, R> {
    pub fn nodes(&self) -> Range<u64> {
        self.nodes.clone()
    }

    pub fn edges(&self) -> u64 {
        self.strips.iter().map(|strip| strip.edges.len() as u64).sum()
    }

    /// Whether the strip has an edge from this block.
    pub fn uses(&self, block: u64) -> bool {
        self.strips.iter().any(|strip| !strip.block(block).is_empty())
    }

    /// Initialises the states.
    pub fn begin(&mut self, own: Option<&dyn NodeRows>) -> Result<()> {
        let (reduce, width) = (self.reduce, self.reduce.own_width());
        let results = self.each_strip(|strip, states| {
            let mut rows = vec![0.0; strip.degrees.len() * width];
            if let Some(own) = own {
                own.read(strip.nodes.clone(), &mut rows)?;
            }
            for (i, state) in states.chunks_exact_mut(reduce.state_width()).enumerate() {
                reduce.begin(&rows[i * width..][..width], state);
            }
            Ok(())
        })?;
        results.into_iter().collect()
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
    pub fn finish(&mut self) -> Result<&mut [f32]> {
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
