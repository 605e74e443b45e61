//! Reduces the rows of each node's in-neighbors to one row. This is the product of a sparse and a dense matrix that exact
//! layer-wise inference and pre-aggregation need.
//!
//! [`Aggregation`] aggregates for a set of nodes, from the rows of another set that contains all their in-neighbors. If the
//! rows take at most half of the budget, they are kept in memory. Otherwise they are streamed:
//!
//! ```text
//! for each tile of destinations that fits the budget:
//!     list the tile's edges, sorted by block of sources
//!     for each block of sources:
//!         read its rows, and meanwhile reduce the rows of the previous block into the tile
//!     pass the tile to the caller
//! ```
//!
//! Cost: in memory, an edge costs the memory traffic of its source's row: 512 bytes for 128 values. Streamed, all rows that
//! the tile needs are read once per tile, front to back, and stay encoded until they are added. The disk then transfers (bytes
//! of all rows) x (number of tiles). The number of tiles is about (bytes of all states and kept rows + 4 bytes an edge) / budget.
//!
//! Sources are added in ascending order, so the result has the same bits for any budget, any number of threads, and any set of
//! destinations.
//!
//! [`Reduce`] defines a reduction. [`Mean`], [`Sum`], [`GcnSum`] and [`Max`] are here. Reductions with parameters are in the
//! trainer.

mod draw;
mod edge_lists;
mod in_memory;
mod reduce;
mod rows;
mod stream;
#[cfg(test)]
mod tests;
mod tile;
mod whole;

use std::{ops::Range, thread};

use grappa_formats::manifest::FeatureDtype;
use grappa_io::{Result, progress::Progress, workers};
use grappa_sampling::{InNeighbors, NodeSet};
use grappa_storage::Store;

pub(crate) use self::rows::pieces;
pub use self::whole::WholeGraph;
pub use self::{
    draw::DrawnNeighbors,
    reduce::{GcnSum, ListSize, Max, Mean, Reduce, Sum},
    rows::{
        AggregateRows, Beside, GrowingRows, NodeRows, RowScan, RowValues, RowsWriter, ScaledRows, ScannedColumn,
        ScannedPart, SelectedRows, StateRows, StoreFeatures, StoredRows, read_each, read_each_ahead,
    },
    stream::BegunAggregation,
};
use self::{
    in_memory::InMemory,
    stream::{Blocks, DestinationRows, Stream},
};

/// Memory and threads of an aggregation.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Memory in bytes, for rows, states and lists of edges.
    pub memory: u64,
    /// Worker threads.
    pub threads: usize,
}

impl Budget {
    /// Whether `rows` rows of `width` values, which are not in memory as f32, are streamed: the memory does not hold them and as much else.
    pub fn streams(self, rows: u64, width: usize) -> bool {
        StateRows::bytes_of(rows, width, FeatureDtype::F32) > self.memory / 2
    }
}

/// Receives the states of a range of positions among the destinations. It may keep the vector, and leave another in its place. What it leaves
/// is the memory of the next states.
pub type Sink<'a> = dyn FnMut(Range<u64>, &mut Vec<f32>) -> Result<()> + 'a;

/// As [`Sink`]. Also receives the destinations' rows in their encoding, if the pass has read them.
pub type SinkWithRows<'a> = dyn FnMut(Range<u64>, &mut Vec<f32>, Option<&[u8]>) -> Result<()> + 'a;

/// Writes the own rows ([`Reduce::begin`]) of a range of positions among the destinations. Ranges come in ascending order, each small beside
/// the budget.
pub type OwnRows<'a> = dyn FnMut(Range<u64>, &mut [f32]) -> Result<()> + 'a;

/// The nodes to aggregate for, and the rows to aggregate.
pub struct Aggregation<'a> {
    /// The graph.
    pub store: &'a Store,
    /// The in-neighbors of each node.
    pub lists: InNeighbors<'a>,
    /// The nodes that have rows. All listed in-neighbors of the destinations are among them.
    pub sources: &'a NodeSet,
    /// Their rows, by position in `sources`.
    pub rows: &'a dyn NodeRows,
    /// The nodes that get a state.
    pub destinations: &'a NodeSet,
    /// Memory and threads.
    pub budget: Budget,
}

impl Aggregation<'_> {
    /// Aggregates for the destinations from position `first` on.
    ///
    /// `sink` receives the results tile by tile, in the order of nodes: a range of positions, and [`Reduce::state_width`] values
    /// for each of them. Parts of a state that are not a result are undefined. `own` writes the own rows of destinations, if
    /// [`Reduce::begin`] takes them.
    ///
    /// # Errors
    /// If the budget does not hold the longest adjacency list, files cannot be read, or `own` or `sink` fails.
    ///
    /// # Panics
    /// If the widths of rows and reduction differ.
    pub fn run<R: Reduce>(
        &self,
        reduce: &R,
        first: u64,
        own: Option<&mut OwnRows<'_>>,
        progress: &dyn Progress,
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let rows = DestinationRows::Unread;
        self.run_as(reduce, first, own, rows, progress, &mut |positions, states, _| {
            sink(positions, states)
        })
    }

    /// As [`Aggregation::run`] for all destinations, all of which are sources too, and by a reduction without own rows. If rows are
    /// streamed, those of the destinations are passed to `sink`, which would read most of the file once more to get them.
    ///
    /// # Errors
    /// As [`Aggregation::run`].
    ///
    /// # Panics
    /// As [`Aggregation::run`].
    pub fn run_with_rows<R: Reduce>(
        &self,
        reduce: &R,
        progress: &dyn Progress,
        sink: &mut SinkWithRows<'_>,
    ) -> Result<()> {
        self.run_as(reduce, 0, None, DestinationRows::Kept, progress, sink)
    }

    fn run_as<R: Reduce>(
        &self,
        reduce: &R,
        first: u64,
        mut own: Option<&mut OwnRows<'_>>,
        destination_rows: DestinationRows,
        progress: &dyn Progress,
        sink: &mut SinkWithRows<'_>,
    ) -> Result<()> {
        assert_eq!(self.rows.width(), reduce.source_width(), "values in a row");
        assert_eq!(own.is_some(), reduce.own_width() > 0, "own rows");
        progress.stage("aggregating", None);
        let mut without_rows = |positions: Range<u64>, states: &mut Vec<f32>| sink(positions, states, None);
        if let Some(values) = self.rows.in_memory() {
            return InMemory::new(self, values, reduce, progress).run(first, &mut own, &mut without_rows);
        }
        if !self.streams() {
            let mut rows = StateRows::new(self.sources.len(), self.rows.width())?;
            read_all(self.rows, rows.values_mut(), self.budget.threads)?;
            let less = Aggregation {
                budget: Budget {
                    memory: self.budget.memory - self.bytes_in_memory(),
                    ..self.budget
                },
                rows: &rows,
                ..*self
            };
            let values = rows.in_memory().expect("they are f32");
            return InMemory::new(&less, values, reduce, progress).run(first, &mut own, &mut without_rows);
        }
        Stream::new(self, reduce, first, destination_rows, progress)?.run(&mut own, sink)
    }

    /// Begins [`Aggregation::run_with_rows`]: lists the edges of the first tile. [`BegunAggregation`] continues. If the rows are
    /// [`GrowingRows`], they may still be written while the first tile takes them. So the processor has work while a disk determines how
    /// fast they are made.
    ///
    /// # Errors
    /// As [`Aggregation::run`].
    ///
    /// # Panics
    /// As [`Aggregation::run`], and if rows are not streamed.
    pub fn begin<'a, R: Reduce>(
        &'a self,
        reduce: &'a R,
        progress: &'a dyn Progress,
    ) -> Result<BegunAggregation<'a, R>> {
        assert_eq!(self.rows.width(), reduce.source_width(), "values in a row");
        assert_eq!(reduce.own_width(), 0, "own rows");
        assert!(self.streams(), "rows that memory holds have no tiles");
        BegunAggregation::new(Stream::new(self, reduce, 0, DestinationRows::Kept, progress)?)
    }

    /// Whether rows are streamed, because they exceed the memory.
    fn streams(&self) -> bool {
        self.rows.in_memory().is_none() && self.budget.streams(self.sources.len(), self.rows.width())
    }

    /// About how many times [`Aggregation::run`] reads all rows.
    ///
    /// # Errors
    /// If in-degrees are damaged.
    fn passes<R: Reduce>(&self, reduce: &R) -> Result<u64> {
        let Budget { memory, threads } = self.budget;
        if !self.streams() {
            return Ok(1);
        }
        let edges = self.lists.edges_to(self.destinations, threads)?;
        let bytes = tile::bytes_of(self.destinations.len(), edges, reduce);
        let blocks = Blocks::new(self.sources.len(), self.rows.layout().stride, memory);
        Ok(bytes.div_ceil(memory.saturating_sub(blocks.bytes()).max(1)))
    }

    /// Bytes of all rows as f32.
    fn bytes_in_memory(&self) -> u64 {
        4 * self.rows.width() as u64 * self.sources.len()
    }
}

/// Reads all rows on `threads` threads.
fn read_all(rows: &dyn NodeRows, out: &mut [f32], threads: usize) -> Result<()> {
    let width = rows.width();
    let part = (out.len() / width).div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = out.chunks_mut(part * width).zip((0..).step_by(part));
        let readers: Vec<_> = parts
            .map(|(out, first)| {
                let positions = first..first + (out.len() / width) as u64;
                workers::spawn(scope, move || rows.read(positions, out))
            })
            .collect::<Result<_>>()?;
        readers.into_iter().try_for_each(workers::join)
    })
}
