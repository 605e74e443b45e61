//! Aggregation of rows that exceed the memory: tile after tile, block after block.

use std::{ops::Range, thread};

use grappa_io::{
    Result,
    arena::Arena,
    progress::{Progress, check_stopped},
    workers,
};

use super::{
    aggregation::{Aggregation, OwnRows, SinkWithRows},
    blocks::Blocks,
    reduce::Reduce,
    rows::{NodeRows, in_ranges},
    tile::{Tile, Tiler},
};

/// The tiles of an aggregation, with the rows of one block of sources in memory at a time.
pub(super) struct Stream<'a, R> {
    tiler: Tiler<'a, R>,
    /// The rows of the current block, and space for the rows of the next one.
    front: Arena,
    back: Arena,
    /// The block whose rows are in `front`.
    loaded: Option<u64>,
}

impl<'a, R: Reduce> Stream<'a, R> {
    /// The tiles from the destination at position `first` on. `keeps_rows` tells whether tiles keep the rows of their destinations.
    pub fn new(
        aggregation: &'a Aggregation<'a>,
        reduce: &'a R,
        first: u64,
        keeps_rows: bool,
        progress: &'a dyn Progress,
    ) -> Result<Self> {
        let stride = aggregation.rows.layout().stride;
        let blocks = Blocks::new(aggregation.sources.len(), stride, aggregation.budget.memory);
        Ok(Self {
            tiler: Tiler::new(aggregation, reduce, first, blocks, keeps_rows, progress),
            front: Arena::new(blocks.block_bytes())?,
            back: Arena::new(if blocks.count() > 1 { blocks.block_bytes() } else { 0 })?,
            loaded: None,
        })
    }

    /// The next tile, with its edges. None after the last. There is memory for one tile at a time.
    pub fn next(&mut self) -> Result<Option<Tile>> {
        if self.loaded != Some(0) {
            // While edges are listed.
            self.tiler.aggregation.rows.read_ahead(self.tiler.blocks.positions(0));
        }
        self.tiler.next()
    }

    /// Adds all rows to a tile.
    pub fn add_rows(&mut self, tile: &mut Tile, own: &mut Option<&mut OwnRows<'_>>) -> Result<()> {
        let Tiler { aggregation, blocks, progress, .. } = self.tiler;
        let (rows, threads) = (aggregation.rows, aggregation.budget.threads);
        let layout = rows.layout();
        self.tiler.begin(tile, own)?;
        let used_blocks: Vec<u64> = (0..blocks.count()).filter(|&block| tile.uses(block)).collect();
        for (i, &block) in used_blocks.iter().enumerate() {
            check_stopped(progress)?;
            if self.loaded != Some(block) {
                read(rows, blocks.positions(block), &mut self.front, threads)?;
            }
            let next = used_blocks.get(i + 1).copied();
            thread::scope(|scope| {
                let back = &mut self.back;
                let reader = next
                    .map(|next| workers::spawn(scope, move || read(rows, blocks.positions(next), back, 1)))
                    .transpose()?;
                let added = self.tiler.add(tile, block, &self.front, layout);
                reader.map_or(Ok(()), workers::join).and(added)
            })?;
            self.loaded = Some(block);
            if next.is_some() {
                std::mem::swap(&mut self.front, &mut self.back);
                self.loaded = next;
            }
        }
        check_stopped(progress)
    }

    /// Passes all tiles to `sink`.
    pub fn run(mut self, own: &mut Option<&mut OwnRows<'_>>, sink: &mut SinkWithRows<'_>) -> Result<()> {
        while let Some(mut tile) = self.next()? {
            self.add_rows(&mut tile, own)?;
            self.pass(tile, sink)?;
        }
        Ok(())
    }

    /// Passes a tile that has all rows to `sink`.
    fn pass(&mut self, mut tile: Tile, sink: &mut SinkWithRows<'_>) -> Result<()> {
        let (positions, edges) = (tile.positions.clone(), tile.edges());
        let (states, kept_rows) = self.tiler.finish(&mut tile)?;
        sink(positions, states, kept_rows)?;
        self.tiler.take_back(tile);
        self.tiler.progress.advance(0, edges);
        Ok(())
    }
}

/// An aggregation whose first tile is made while its rows are ([`Aggregation::begin`]).
pub struct BegunAggregation<'a, R> {
    pub(super) stream: Stream<'a, R>,
    pub(super) tile: Option<Tile>,
}

impl<R: Reduce> BegunAggregation<'_, R> {
    /// Adds all rows to the first tile. Waits for those that are not made yet.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn add_rows(&mut self) -> Result<()> {
        match &mut self.tile {
            Some(tile) => self.stream.add_rows(tile, &mut None),
            None => Ok(()),
        }
    }

    /// Passes all results to `sink`, as [`Aggregation::run_with_rows`] does. The first tile must have all rows.
    ///
    /// # Errors
    /// As [`Aggregation::run`].
    pub fn finish(mut self, sink: &mut SinkWithRows<'_>) -> Result<()> {
        if let Some(tile) = self.tile.take() {
            self.stream.pass(tile, sink)?;
        }
        self.stream.run(&mut None, sink)
    }
}

/// Reads encoded rows on `threads` threads to the start of `out`.
fn read(rows: &dyn NodeRows, positions: Range<u64>, out: &mut [u8], threads: usize) -> Result<()> {
    rows.read_ahead(positions.clone());
    let stride = rows.layout().stride as usize;
    let out = &mut out[..(positions.end - positions.start) as usize * stride];
    in_ranges(positions.start, out, stride, threads, |positions, out| rows.read_encoded(positions, out))
}
