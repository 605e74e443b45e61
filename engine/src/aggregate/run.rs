//! The choice between rows in memory and rows that are streamed.

use std::ops::Range;

use grappa_formats::manifest::FeatureDtype;
use grappa_io::{Result, ledger::Lease, progress::Progress};

use super::{
    aggregation::{Aggregation, OwnRows, Sink, SinkWithRows},
    blocks::Blocks,
    budget::{BLOCK, Budget, OWN_ROWS, ROWS, TILE_IN_MEMORY},
    in_memory::{self, InMemory},
    reduce::Reduce,
    rows::{NodeRows, StateRows, in_ranges},
    stream::{BegunAggregation, Stream},
    tile,
};

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
        self.run_as(reduce, first, own, false, progress, &mut |positions, states, _| sink(positions, states))
    }

    /// As [`Aggregation::run`] for all destinations, which are sources too, and by a reduction without own rows. If rows are
    /// streamed, the rows of the destinations are passed to `sink`, which would read most of the file once more to get them.
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
        self.run_as(reduce, 0, None, true, progress, sink)
    }

    fn run_as<R: Reduce>(
        &self,
        reduce: &R,
        first: u64,
        mut own: Option<&mut OwnRows<'_>>,
        keeps_rows: bool,
        progress: &dyn Progress,
        sink: &mut SinkWithRows<'_>,
    ) -> Result<()> {
        assert_eq!(self.rows.width(), reduce.source_width(), "values in a row");
        assert_eq!(own.is_some(), reduce.own_width() > 0, "own rows");
        progress.stage("aggregating", None);
        let mut without_rows = |positions: Range<u64>, states: &mut Vec<f32>| sink(positions, states, None);
        if let Some(values) = self.rows.in_memory() {
            return InMemory { aggregation: self, values, reduce, progress }.run(first, &mut own, &mut without_rows);
        }
        if !self.streams() {
            let mut rows = StateRows::new(self.sources.len(), self.rows.width())?;
            in_ranges(0, rows.values_mut(), self.rows.width(), self.budget.threads, |positions, out| {
                self.rows.read(positions, out)
            })?;
            let less = Aggregation {
                budget: Budget { memory: self.budget.memory - rows.memory(), ..self.budget },
                rows: &rows,
                ..*self
            };
            let values = rows.in_memory().expect("they are f32");
            let in_memory = InMemory { aggregation: &less, values, reduce, progress };
            return in_memory.run(first, &mut own, &mut without_rows);
        }
        Stream::new(self, reduce, first, keeps_rows, progress)?.run(&mut own, sink)
    }

    /// Begins [`Aggregation::run_with_rows`]: lists the edges of the first tile. [`BegunAggregation`] continues. If the rows are
    /// [`GrowingRows`](super::GrowingRows), they may still be written while the first tile takes them. So the processor has work while a disk determines how
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
        let mut stream = Stream::new(self, reduce, 0, true, progress)?;
        Ok(BegunAggregation { tile: stream.next()?, stream })
    }

    /// Who takes how much of the budget in [`Aggregation::run`].
    pub fn leases<R: Reduce>(&self, reduce: &R) -> Vec<Lease> {
        let memory = self.budget.memory;
        if !self.streams() {
            let rows = match self.rows.in_memory() {
                // Others own them.
                Some(_) => 0,
                None => StateRows::bytes_of(self.sources.len(), self.rows.width(), FeatureDtype::F32),
            };
            let tile = in_memory::tile_bytes(memory.saturating_sub(rows), reduce);
            return vec![ROWS.lease_of(rows), TILE_IN_MEMORY.lease_of(tile)];
        }
        let blocks = Blocks::new(self.sources.len(), self.rows.layout().stride, memory).bytes();
        let (_, own_rows) = tile::own_rows(reduce, memory);
        let tile = memory.saturating_sub(blocks + own_rows);
        vec![
            BLOCK.lease_of(blocks),
            OWN_ROWS.lease_of(own_rows),
            Lease::new(
                "states and edges of a tile",
                tile,
                "all that is left: larger tiles read the sources fewer times",
            ),
        ]
    }

    /// About how many times [`Aggregation::run`] reads all rows.
    ///
    /// # Errors
    /// If in-degrees are damaged.
    pub(super) fn passes<R: Reduce>(&self, reduce: &R) -> Result<u64> {
        if !self.streams() {
            return Ok(1);
        }
        let edges = self.lists.edges_to(self.destinations, self.budget.threads)?;
        let stride = self.rows.layout().stride;
        Ok(self.budget.passes((self.sources.len(), stride), (self.destinations.len(), edges), reduce))
    }
}

impl Budget {
    /// About how many times streamed rows are read: those of a number of sources, of `stride` bytes each, which are reduced to the states of
    /// a number of destinations with a number of edges.
    pub fn passes<R: Reduce>(
        self,
        (sources, stride): (u64, u32),
        (destinations, edges): (u64, u64),
        reduce: &R,
    ) -> u64 {
        let bytes = tile::bytes_of(destinations, edges, reduce);
        let blocks = Blocks::new(sources, stride, self.memory);
        bytes.div_ceil(self.memory.saturating_sub(blocks.bytes()).max(1))
    }
}
