//! Reduces the feature rows of each node's in-neighbours to one row, out of core. This is the product of a sparse and a
//! dense matrix that exact layer-wise inference and pre-aggregation need.
//!
//! ```text
//! for each tile of destinations that fits the budget:
//!     list the tile's edges, sorted by block of sources
//!     for each block of sources:
//!         read its rows, and meanwhile reduce the rows of the previous block into the tile
//!     pass the tile to the caller
//! ```
//!
//! Cost: if the rows of all nodes take less than half of the budget, there is one block, and it is read once. Otherwise all
//! rows are read once per tile, front to back. The disk then transfers (bytes of all rows) x (number of tiles). The number
//! of tiles is about (bytes of all states + 8 bytes an edge) / budget. In memory, an edge costs the cache misses of its
//! source's row: 512 bytes for 128 values, which is about 20 million edges a second and core.
//!
//! Sources are added in ascending order, so the result has the same bits for any budget and any number of threads.
//!
//! [`Reduce`] defines a reduction. [`Mean`], [`Sum`], [`GcnSum`] and [`Max`] are here. Reductions with parameters are in the
//! trainer.

mod reduce;
mod rows;
#[cfg(test)]
mod tests;
mod tile;

use std::{ops::Range, thread};

use grappa_io::{
    Error, Position, Result,
    progress::{Progress, check_stopped},
    workers,
};
use grappa_storage::Store;

pub(crate) use self::rows::{StoredRows, pieces};
use self::tile::Tiler;
pub use self::{
    reduce::{Drawn, GcnSum, Max, Mean, Reduce, Sum},
    rows::{AggregateRows, Beside, NodeRows, ScaledRows, ScratchRows, StoreFeatures},
};

/// The largest block of sources, in bytes. Larger blocks only leave less memory for the tile.
const BLOCK_BYTES_MAX: u64 = 128 << 20;
/// A block takes 1/BLOCK_SHARE of the budget. Two blocks are in memory at a time.
const BLOCK_SHARE: u64 = 8;

/// Memory and threads of an aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Memory in bytes, for rows, states and lists of edges.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
}

/// Receives the states of a range of nodes.
pub type Sink<'a> = dyn FnMut(Range<u64>, &mut [f32]) -> Result<()> + 'a;

/// Reduces the rows of the in-neighbours of every node from `first` on.
///
/// `sink` receives the results tile by tile, in the order of nodes: a range of nodes, and [`Reduce::state_width`] values for
/// each of them. Parts of a state that are not a result are undefined.
///
/// `own` has the rows of the destinations themselves, if [`Reduce::begin`] takes them.
///
/// # Errors
/// If the store is a slice, the budget does not hold the longest adjacency list, files cannot be read, or `sink` fails.
///
/// # Panics
/// If the widths of rows and reduction differ.
#[expect(
    clippy::too_many_arguments,
    reason = "each is another thing, and callers name most of them alike"
)]
pub fn aggregate<R: Reduce>(
    store: &Store,
    rows: &dyn NodeRows,
    own: Option<&dyn NodeRows>,
    reduce: &R,
    first: u64,
    budget: Budget,
    progress: &dyn Progress,
    sink: &mut Sink<'_>,
) -> Result<()> {
    assert_eq!(rows.width(), reduce.source_width(), "values in a row");
    assert_eq!(
        own.map_or(0, NodeRows::width),
        reduce.own_width(),
        "values of a destination"
    );
    let manifest = store.manifest();
    if !manifest.is_whole() {
        let what = "the store is a slice of its graph, and sources of its edges are missing; this takes a whole store";
        return Err(Error::input(store.path(), Position::Whole, what));
    }
    let blocks = Blocks::new(manifest.nodes, rows.width(), budget.memory);
    let mut tiler = Tiler::new(store, reduce, first, budget, blocks, progress)?;
    progress.stage("aggregating", None);

    let mut front = vec![0.0; blocks.values()];
    let mut back = vec![0.0; if blocks.count() > 1 { blocks.values() } else { 0 }];
    let mut loaded = None;
    while let Some(mut tile) = tiler.next()? {
        tile.begin(own)?;
        let wanted: Vec<u64> = (0..blocks.count()).filter(|&block| tile.uses(block)).collect();
        for (i, &block) in wanted.iter().enumerate() {
            check_stopped(progress)?;
            if loaded != Some(block) {
                read(rows, blocks.nodes(block), &mut front, budget.threads)?;
            }
            let next = wanted.get(i + 1).copied();
            thread::scope(|scope| {
                let back = &mut back;
                let reader = next
                    .map(|next| workers::spawn(scope, move || read(rows, blocks.nodes(next), back, 1)))
                    .transpose()?;
                let added = tile.add(block, &front);
                reader.map_or(Ok(()), workers::join).and(added)
            })?;
            loaded = Some(block);
            if next.is_some() {
                std::mem::swap(&mut front, &mut back);
                loaded = next;
            }
        }
        check_stopped(progress)?;
        let nodes = tile.nodes();
        let edges = tile.edges();
        sink(nodes, tile.finish()?)?;
        progress.advance(0, edges);
    }
    Ok(())
}

/// Reads rows on `threads` threads.
fn read(rows: &dyn NodeRows, nodes: Range<u64>, out: &mut [f32], threads: usize) -> Result<()> {
    let count = (nodes.end - nodes.start) as usize;
    let part = count.div_ceil(threads).max(1);
    let width = rows.width();
    thread::scope(|scope| {
        let readers: Vec<_> = out[..count * width]
            .chunks_mut(part * width)
            .enumerate()
            .map(|(i, out)| {
                let first = nodes.start + (i * part) as u64;
                workers::spawn(scope, move || rows.read(first..first + (out.len() / width) as u64, out))
            })
            .collect::<Result<_>>()?;
        readers.into_iter().try_for_each(workers::join)
    })
}

/// The sources, cut into ranges of nodes. The rows of one range are in memory together.
#[derive(Debug, Clone, Copy)]
struct Blocks {
    nodes: u64,
    width: usize,
    block_nodes: u64,
}

impl Blocks {
    fn new(nodes: u64, width: usize, memory: u64) -> Self {
        let row_bytes = 4 * width as u64;
        // The lists of edges have 32 bits for the position in a block.
        let block_nodes = if nodes.saturating_mul(row_bytes) <= memory / 2 && nodes <= u64::from(u32::MAX) {
            nodes
        } else {
            ((memory / BLOCK_SHARE).min(BLOCK_BYTES_MAX) / row_bytes).clamp(1, nodes)
        };
        Self {
            nodes,
            width,
            block_nodes: block_nodes.max(1),
        }
    }

    fn count(self) -> u64 {
        self.nodes.div_ceil(self.block_nodes)
    }

    /// Values in the largest block.
    fn values(self) -> usize {
        self.block_nodes.min(self.nodes) as usize * self.width
    }

    /// Bytes of memory that the blocks take.
    fn bytes(self) -> u64 {
        4 * self.values() as u64 * self.count().min(2)
    }

    fn nodes(self, block: u64) -> Range<u64> {
        let first = block * self.block_nodes;
        first..(first + self.block_nodes).min(self.nodes)
    }
}
