//! Reading the rows that a window misses.
//!
//! ```text
//! the misses are sorted by node, which is by file and offset
//! merge neighbours with small gaps into runs; cut what is too long for one read
//! keep as many runs under way as the engine takes; as each completes, copy its rows into their slots
//! check that the files did not change meanwhile
//! ```
//!
//! A page is read once a window, but for one where a run is cut. Where wanted rows are so dense that the gaps are cheaper
//! to read than to leave out, a window becomes passes over the files in order.
//!
//! Rows are compared with the checksums of their blocks before they go to their slots. So the first time a block is touched
//! it is read whole. In new files that costs no read, since blocks are pages.

use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use grappa_io::{
    Result,
    read::{FileIndex, Read, ReadEngine},
};

use super::{access::PoolRows, files::RowFiles, pool::Miss, rows::RowFormat, stats::Counters};

/// What is read is a whole number of pages.
const PAGE: u64 = 4096;
/// Reads that are made before they are handed to the engine.
const BATCH: usize = 64;

/// Where the rows of a window go.
pub(super) struct Target<'a> {
    pub files: &'a RowFiles,
    pub format: &'a RowFormat,
    pub pool: &'a PoolRows,
}

/// How reading ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fetched {
    /// All rows are in their slots.
    All,
    /// It was stopped.
    Stopped,
}

impl Target<'_> {
    /// Reads the rows of `misses`, which are sorted. Once `stop` is set it takes back what is under way and returns.
    pub fn fetch(
        &self,
        misses: &[Miss],
        engine: &mut dyn ReadEngine,
        counters: &Counters,
        stop: &AtomicBool,
    ) -> Result<Fetched> {
        let mut touched = Touched::new(self.files.files().len());
        let length_max = u64::from(engine.read_bytes_max());
        let mut runs = (0..self.format.columns().len()).flat_map(|column| Runs::new(self, column, misses, length_max));
        let mut under_way = UnderWay::default();
        let mut waiting: Vec<Read> = Vec::with_capacity(BATCH);
        let mut meter = DepthMeter::new(counters);
        loop {
            if stop.load(Ordering::Relaxed) {
                give_up(engine);
                return Ok(Fetched::Stopped);
            }
            loop {
                for (read, run) in runs.by_ref().take(BATCH - waiting.len()) {
                    touched.add(read.file);
                    waiting.push(Read {
                        tag: under_way.add(run),
                        ..read
                    });
                }
                let submitted = engine.submit(&waiting)?;
                for read in waiting.drain(..submitted) {
                    counters.reads.add(1);
                    counters.bytes_read.add(pages_of(&read));
                }
                if submitted == 0 || engine.in_flight() >= engine.depth() {
                    break;
                }
            }
            meter.start(engine.in_flight());
            let mut taken = Ok(());
            let completed = engine.complete(&mut |read, bytes| {
                let run = under_way.remove(read.tag);
                if taken.is_ok() {
                    taken = self.take(misses, &run, read, bytes);
                }
            })?;
            meter.stop();
            if let Err(error) = taken {
                give_up(engine);
                return Err(error);
            }
            if completed == 0 && waiting.is_empty() {
                break;
            }
        }
        for file in touched.iter() {
            self.files.files()[file.0 as usize].check_unchanged()?;
            self.files.checksums(file).release();
        }
        Ok(Fetched::All)
    }

    /// Checks what was read, and copies it into the slots of the misses of `run`.
    fn take(&self, misses: &[Miss], run: &Run, read: &Read, bytes: &[u8]) -> Result<()> {
        self.files.check_read(read.file, read.offset, bytes)?;
        let column = &self.format.columns()[run.column];
        let row_bytes = column.stored.row_bytes() as u64;
        let read_end = read.offset + u64::from(read.length);
        for &miss in &misses[run.misses.clone()] {
            let place = self.files.locate(run.column, miss.node());
            let (_, start) = place.expect("checked when it was planned");
            // All of the row, or the part of it that is in this read.
            let from = start.max(read.offset);
            let to = (start + row_bytes).min(read_end);
            let part = &bytes[(from - read.offset) as usize..(to - read.offset) as usize];
            let slot = self.pool.geometry.slot(miss) as usize;
            self.pool.slots.fill(slot, column.part + (from - start) as usize, part);
        }
        Ok(())
    }
}

/// What a read brings: rows of one column, all or, of a row that is longer than a read, a part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    column: usize,
    /// Which misses want the rows.
    misses: Range<usize>,
}

/// The runs of the reads that are waiting or submitted. A read's tag is the index of its run, so the numbers of a run need
/// not fit into a tag, however many rows a window misses. It holds as many runs as there are reads at once.
#[derive(Debug, Default)]
struct UnderWay {
    runs: Vec<Option<Run>>,
    free: Vec<usize>,
}

impl UnderWay {
    /// Keeps `run`, and returns the tag for its read.
    fn add(&mut self, run: Run) -> u64 {
        let index = match self.free.pop() {
            Some(index) => {
                self.runs[index] = Some(run);
                index
            }
            None => {
                self.runs.push(Some(run));
                self.runs.len() - 1
            }
        };
        index as u64
    }

    /// Returns the run of the read with this tag, which may then be used for another one.
    ///
    /// # Panics
    /// If no read under way has it.
    fn remove(&mut self, tag: u64) -> Run {
        let index = tag as usize;
        let run = self.runs.get_mut(index).and_then(Option::take);
        self.free.push(index);
        run.expect("a read completes once, with the tag that it was submitted with")
    }
}

/// Takes back what is under way.
fn give_up(engine: &mut dyn ReadEngine) {
    // An error would end it, too.
    while matches!(engine.complete(&mut |_, _| {}), Ok(1..)) {}
}

/// Makes reads of a column of sorted misses.
struct Runs<'a> {
    target: &'a Target<'a>,
    column: usize,
    misses: &'a [Miss],
    /// The first miss that is not read yet.
    next: usize,
    /// How many bytes of its row are.
    done: u64,
    length_max: u64,
}

impl<'a> Runs<'a> {
    fn new(target: &'a Target<'a>, column: usize, misses: &'a [Miss], length_max: u64) -> Self {
        Self {
            target,
            column,
            misses,
            next: 0,
            done: 0,
            // Parts of a row start at words, and at least one must fit. (Engines that read less are for tests.)
            length_max: (length_max - length_max % 8).max(8),
        }
    }

    fn locate(&self, miss: Miss) -> (FileIndex, u64) {
        let place = self.target.files.locate(self.column, miss.node());
        place.expect("checked when it was planned")
    }

    /// Whether all blocks of a run were found right before.
    fn is_right(&self, file: FileIndex, run: Range<u64>) -> bool {
        let checksums = self.target.files.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        checksums.are_right(run.start - payload_offset..run.end - payload_offset)
    }

    /// Whether the blocks of a run fit one read.
    fn blocks_fit(&self, file: FileIndex, run: Range<u64>) -> bool {
        let blocks = self.blocks_around(file, run);
        blocks.end - blocks.start <= self.length_max
    }

    /// Whether a run fits one read, with its blocks or without.
    fn fits(&self, file: FileIndex, run: Range<u64>, with_blocks: bool) -> bool {
        match with_blocks {
            true => self.blocks_fit(file, run),
            false => run.end - run.start <= self.length_max,
        }
    }

    /// The blocks of a run, in bytes from the start of the file.
    fn blocks_around(&self, file: FileIndex, run: Range<u64>) -> Range<u64> {
        let checksums = self.target.files.checksums(file);
        let payload_offset = checksums.header().payload_offset;
        let blocks = checksums.blocks_around(run.start - payload_offset..run.end - payload_offset);
        blocks.start + payload_offset..blocks.end + payload_offset
    }
}

impl Iterator for Runs<'_> {
    /// A read without its tag, and what it brings.
    type Item = (Read, Run);

    fn next(&mut self) -> Option<(Read, Run)> {
        let first = self.next;
        let (file, row) = self.locate(*self.misses.get(first)?);
        let row_bytes = self.target.format.columns()[self.column].stored.row_bytes() as u64;
        let start = row + self.done;
        let mut end = row + row_bytes;
        // Rows that are cut, and blocks that are longer than a read, are read as they are, and the blocks beside.
        let rounds_out = self.done == 0 && self.blocks_fit(file, start..end);
        if end - start > self.length_max {
            end = start + self.length_max;
            self.done += self.length_max;
        } else {
            self.done = 0;
            self.next += 1;
            while let Some(&miss) = self.misses.get(self.next) {
                let (next_file, row) = self.locate(miss);
                // Two rows on one page have no gap, however far apart they are.
                let gap = row.saturating_sub(end);
                let apart =
                    next_file != file || (gap > self.target.pool.bridge_bytes && row / PAGE != (end - 1) / PAGE);
                if apart || !self.fits(file, start..row + row_bytes, rounds_out) {
                    break;
                }
                end = row + row_bytes;
                self.next += 1;
            }
        }
        let mut bytes = start..end;
        if rounds_out && !self.is_right(file, bytes.clone()) {
            bytes = self.blocks_around(file, bytes);
        }
        let read = Read {
            file,
            offset: bytes.start,
            length: (bytes.end - bytes.start) as u32,
            tag: 0,
        };
        let run = Run {
            column: self.column,
            misses: first..self.next.max(first + 1),
        };
        Some((read, run))
    }
}

/// Bytes of the pages that a read touches.
fn pages_of(read: &Read) -> u64 {
    let end = (read.offset + u64::from(read.length)).next_multiple_of(PAGE);
    end - read.offset / PAGE * PAGE
}

/// Which files were read.
struct Touched(Vec<bool>);

impl Touched {
    fn new(files: usize) -> Self {
        Self(vec![false; files])
    }

    fn add(&mut self, file: FileIndex) {
        self.0[file.0 as usize] = true;
    }

    fn iter(&self) -> impl Iterator<Item = FileIndex> {
        (0..)
            .map(FileIndex)
            .zip(&self.0)
            .filter_map(|(file, &touched)| touched.then_some(file))
    }
}

/// Sums up how many reads were under way, and for how long.
struct DepthMeter<'a> {
    counters: &'a Counters,
    since: Instant,
    depth: u64,
}

impl<'a> DepthMeter<'a> {
    fn new(counters: &'a Counters) -> Self {
        Self {
            counters,
            since: Instant::now(),
            depth: 0,
        }
    }

    fn start(&mut self, depth: usize) {
        self.since = Instant::now();
        self.depth = depth as u64;
    }

    fn stop(&mut self) {
        if self.depth > 0 {
            let nanoseconds = self.since.elapsed().as_nanos() as u64;
            self.counters.read_ns.add(nanoseconds);
            self.counters.depth_ns.add(nanoseconds * self.depth);
        }
    }
}

/// The first bytes of a payload, read as they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub file: FileIndex,
    pub bytes: u64,
    /// Where in memory it goes.
    pub to: u64,
}

/// Reads payloads from front to back, as fast as the engine goes, and checks them.
pub(super) fn read_whole(
    pieces: &[Piece],
    files: &RowFiles,
    engine: &mut dyn ReadEngine,
    memory: &mut [u8],
) -> Result<()> {
    let length_max = u64::from(engine.read_bytes_max());
    let mut reads = pieces
        .iter()
        .flat_map(|piece| {
            let header = files.checksums(piece.file).header();
            let block_bytes = u64::from(header.block_bytes);
            // Whole blocks, so that each can be checked while it is in the processor's cache.
            let length_max = match length_max - length_max % block_bytes {
                0 => length_max,
                blocks => blocks,
            };
            (0..piece.bytes.div_ceil(length_max)).map(move |part| {
                let at = part * length_max;
                Read {
                    file: piece.file,
                    offset: header.payload_offset + at,
                    length: (piece.bytes - at).min(length_max) as u32,
                    tag: piece.to + at,
                }
            })
        })
        .peekable();
    let mut waiting = Vec::with_capacity(BATCH);
    loop {
        loop {
            waiting.extend(reads.by_ref().take(BATCH - waiting.len()));
            let submitted = engine.submit(&waiting)?;
            waiting.drain(..submitted);
            if submitted == 0 || engine.in_flight() >= engine.depth() {
                break;
            }
        }
        let mut checked = Ok(());
        let completed = engine.complete(&mut |read, bytes| {
            memory[read.tag as usize..][..bytes.len()].copy_from_slice(bytes);
            let checksums = files.checksums(read.file);
            // Blocks that are longer than a read come below.
            if checked.is_ok() && u64::from(checksums.header().block_bytes) <= length_max {
                checked = files.check_read(read.file, read.offset, bytes);
            }
        })?;
        if let Err(error) = checked {
            give_up(engine);
            return Err(error);
        }
        if completed == 0 && waiting.is_empty() && reads.peek().is_none() {
            break;
        }
    }
    for piece in pieces {
        files.files()[piece.file.0 as usize].check_unchanged()?;
        let bytes = &memory[piece.to as usize..(piece.to + piece.bytes) as usize];
        let checksums = files.checksums(piece.file);
        files.check_read(piece.file, checksums.header().payload_offset, bytes)?;
        checksums.release();
    }
    Ok(())
}

#[cfg(test)]
mod tests;
