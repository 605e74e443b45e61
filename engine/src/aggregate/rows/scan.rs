//! Reads the rows of many nodes front to back, with many reads in flight.
//!
//! ```text
//! begin parts, until two are being read       their runs of rows become reads
//! pass as many reads to the engine as it takes
//! when a read is complete, put its rows into their part
//! when all reads of the first part are, the part is returned; the engine goes on reading the next one meanwhile
//! ```
//!
//! Files that exceed the memory are read past the system's cache: no rows are copied through it, and it keeps what others need. If they have
//! the rows of two columns, both are taken from one read. Other rows are read as [`read_each`](super::read_each) does.

use std::{
    collections::{BTreeSet, VecDeque},
    iter,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use grappa_formats::NodeId;
use grappa_io::{
    Error, Result,
    container::ClosedFile,
    progress::{Progress, check_stopped},
    read::{self, FileIndex, Read, ReadEngine, ReadFile},
    workers,
};
use grappa_sampling::NodeSet;

use super::{NodeRows, ReadRuns, StoredRows, read_each, read_each_ahead, read_each_encoded};

/// Parts that are read at a time.
const PARTS: usize = 2;
/// The engine's reads in flight, and the length of each: 8 MiB.
const DEPTH: usize = 32;
const READ_BYTES_MAX: u32 = 256 << 10;

/// Rows of nodes, part by part.
pub struct RowScan<'a> {
    columns: Vec<OpenColumn<'a>>,
    nodes: &'a NodeSet,
    /// Nodes of a part. The last one may have fewer.
    part_nodes: u64,
    /// Whether rows stay in their encoding.
    encoded: bool,
    threads: usize,
    /// None if no column is read past the system's cache.
    direct: Option<Direct>,
    /// The parts that were begun and not returned, and the number of the first of them.
    parts: VecDeque<PartBytes>,
    first_part: u64,
    /// The position of the first node of the next part.
    next: u64,
}

/// Rows that a scan reads.
#[derive(Clone, Copy)]
pub struct ScannedColumn<'a> {
    /// The rows.
    pub rows: &'a dyn NodeRows,
    /// The nodes whose rows these are, by position.
    pub nodes: &'a NodeSet,
}

/// A part of a scan.
pub struct ScannedPart {
    /// The positions of its nodes.
    pub positions: Range<u64>,
    /// Their rows of each column.
    pub columns: Vec<Vec<f32>>,
}

struct OpenColumn<'a> {
    scanned: ScannedColumn<'a>,
    source: RowSource<'a>,
}

/// Where the rows of a column come from.
enum RowSource<'a> {
    /// Through the system's cache, or from memory.
    Cached,
    /// From files that the engine reads. The indices of the files, by chunk.
    Direct(&'a StoredRows<'a>, Vec<Option<FileIndex>>),
    /// From the rows that the engine reads for another column, at an offset there.
    Beside { column: usize, offset: usize },
}

/// Reads past the system's cache.
struct Direct {
    engine: Box<dyn ReadEngine>,
    files: Arc<[ReadFile]>,
    /// Reads that the engine has no room for yet.
    waiting: VecDeque<Read>,
    /// The runs of reads that are not complete, by tag.
    runs: Vec<Option<Run>>,
    free_tags: Vec<u64>,
}

/// Rows that a read delivers.
struct Run {
    part: u64,
    column: usize,
    chunk: usize,
    /// Where they are among the nodes of the part.
    places: Range<usize>,
    /// Where the first one is in the payload.
    start: u64,
}

/// A part that is being read.
struct PartBytes {
    positions: Range<u64>,
    nodes: Vec<u64>,
    /// The rows of each column.
    columns: Vec<Vec<f32>>,
    files: BTreeSet<u32>,
    /// Reads that are not complete.
    missing: usize,
}

impl<'a> RowScan<'a> {
    /// A scan of the rows of `nodes`, `part_nodes` at a time. Files of more than `memory` bytes are read past the system's cache.
    ///
    /// # Errors
    /// If a file cannot be opened.
    pub fn new(
        columns: &[ScannedColumn<'a>],
        nodes: &'a NodeSet,
        part_nodes: u64,
        memory: u64,
        threads: usize,
    ) -> Result<Self> {
        let mut files = Vec::new();
        let columns: Vec<OpenColumn<'_>> = columns
            .iter()
            .map(|&scanned| OpenColumn::open(scanned, columns, memory, &mut files))
            .collect::<Result<_>>()?;
        Ok(Self {
            columns,
            nodes,
            part_nodes,
            encoded: false,
            threads,
            direct: (!files.is_empty()).then(|| Direct::new(files)).transpose()?,
            parts: VecDeque::new(),
            first_part: 0,
            next: 0,
        })
    }

    /// The same scan of rows in their encoding: each number of a part has four bytes of it.
    #[must_use]
    pub fn encoded(self) -> Self {
        Self { encoded: true, ..self }
    }

    /// Passes all parts to `each`. The next ones are read on another thread meanwhile.
    ///
    /// # Errors
    /// As [`RowScan::next`], if a thread cannot be started, and if `each` fails.
    pub fn each<E: From<Error>>(
        self,
        progress: &dyn Progress,
        mut each: impl FnMut(ScannedPart) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let scan = Mutex::new(self);
        let read = || scan.lock().unwrap_or_else(PoisonError::into_inner).next(progress);
        workers::read_ahead(1, read, |parts| {
            Ok(iter::from_fn(|| parts.next().transpose()).try_for_each(|part| each(part?)))
        })?
    }

    /// The next part. None after the last one.
    ///
    /// # Errors
    /// If a file cannot be read or has changed, or progress says to stop. Then the scan is over.
    pub fn next(&mut self, progress: &dyn Progress) -> Result<Option<ScannedPart>> {
        loop {
            check_stopped(progress)?;
            while self.parts.len() < PARTS && self.next < self.nodes.len() {
                self.begin()?;
            }
            if let Some(direct) = &mut self.direct {
                let submitted = direct.engine.submit(direct.waiting.make_contiguous())?;
                direct.waiting.drain(..submitted);
            }
            match self.parts.front() {
                None => return Ok(None),
                Some(part) if part.missing == 0 => break,
                Some(_) => self.complete()?,
            }
        }
        let mut part = self.parts.pop_front().expect("there is one");
        self.first_part += 1;
        if let Some(direct) = &self.direct {
            let files = part.files.iter().map(|&file| &direct.files[file as usize]);
            files.into_iter().try_for_each(ReadFile::check_unchanged)?;
        }
        for (column, rows) in self.columns.iter().zip(&mut part.columns) {
            let (scanned, threads) = (column.scanned, self.threads);
            match (&column.source, self.encoded) {
                (RowSource::Direct(..) | RowSource::Beside { .. }, _) => {}
                (RowSource::Cached, true) => {
                    read_each_encoded(
                        scanned.rows,
                        &scanned.places(&part.nodes),
                        bytemuck::cast_slice_mut(rows),
                        threads,
                    )?;
                }
                (RowSource::Cached, false) => read_each(scanned.rows, &scanned.places(&part.nodes), rows, threads)?,
            }
        }
        Ok(Some(ScannedPart { positions: part.positions, columns: part.columns }))
    }

    fn begin(&mut self) -> Result<()> {
        let positions = self.next..(self.next + self.part_nodes).min(self.nodes.len());
        let mut nodes = Vec::new();
        self.nodes.nodes_at(positions.clone(), &mut nodes);
        let nodes: Vec<u64> = nodes.into_iter().map(|node| node.0).collect();
        let encoded = self.encoded;
        let mut part = PartBytes {
            columns: self.columns.iter().map(|column| vec![0.0; nodes.len() * column.numbers(encoded)]).collect(),
            files: BTreeSet::new(),
            missing: 0,
            positions,
            nodes,
        };
        self.next = part.positions.end;
        let number = self.first_part + self.parts.len() as u64;
        for (column, of_column) in self.columns.iter().enumerate() {
            let (rows, files) = match &of_column.source {
                RowSource::Direct(rows, files) => (rows, files),
                RowSource::Beside { .. } => continue,
                RowSource::Cached => {
                    read_each_ahead(of_column.scanned.rows, &of_column.scanned.places(&part.nodes));
                    continue;
                }
            };
            let direct = self.direct.as_mut().expect("the engine reads the files");
            let mut places = 0;
            for (first, last, of_run) in ReadRuns::from_positions(*rows, &part.nodes, run_bytes(rows)) {
                let (chunk, row) = rows.place(first)?;
                let chunk = chunk.0 as usize;
                let index = files[chunk].expect("the chunk is there");
                let file = rows.files()[chunk].as_ref().expect("the chunk is there");
                let stride = u64::from(rows.layout().stride);
                let run =
                    Run { part: number, column, chunk, places: places..places + of_run.len(), start: row * stride };
                places = run.places.end;
                part.missing += 1;
                part.files.insert(index.0);
                direct.read(run, file, index, row * stride..(row + last - first + 1) * stride)?;
            }
        }
        self.parts.push_back(part);
        Ok(())
    }

    /// Waits until some reads are complete, and takes their rows.
    fn complete(&mut self) -> Result<()> {
        let direct = self.direct.as_mut().expect("it has reads");
        let (columns, parts, runs) = (&self.columns, &mut self.parts, &mut direct.runs);
        let mut taken = Ok(());
        direct.engine.complete(&mut |read, bytes| {
            let run = runs[read.tag as usize].take().expect("a tag in use");
            direct.free_tags.push(read.tag);
            let part = &mut parts[(run.part - self.first_part) as usize];
            part.missing -= 1;
            if taken.is_ok() {
                taken = take(columns, &run, part, read.offset, bytes, self.encoded);
            }
        })?;
        taken
    }
}

impl ScannedColumn<'_> {
    fn places(&self, nodes: &[u64]) -> Vec<u64> {
        nodes.iter().map(|&node| self.nodes.position(NodeId(node))).collect()
    }
}

impl<'a> OpenColumn<'a> {
    /// A column of a scan of `all` columns. Adds the files that the engine reads for it to `files`.
    fn open(
        scanned: ScannedColumn<'a>,
        all: &[ScannedColumn<'a>],
        memory: u64,
        files: &mut Vec<ReadFile>,
    ) -> Result<Self> {
        let Some(rows) = direct_rows(scanned, memory) else {
            return Ok(Self { scanned, source: RowSource::Cached });
        };
        for (column, &other) in all.iter().enumerate() {
            if let Some(offset) = direct_rows(other, memory).and_then(|other| rows.offset_in(other)) {
                return Ok(Self { scanned, source: RowSource::Beside { column, offset } });
            }
        }
        let mut add = |file: &ClosedFile| {
            // Fails if it is not the file that was opened.
            drop(file.open()?);
            files.push(ReadFile::open(file.path(), Some(file.bytes()))?);
            Ok::<_, Error>(FileIndex(files.len() as u32 - 1))
        };
        let indices = rows.files().iter().map(|file| file.as_ref().map(&mut add).transpose());
        Ok(Self { source: RowSource::Direct(rows, indices.collect::<Result<_>>()?), scanned })
    }

    /// Numbers of a row in a part.
    fn numbers(&self, encoded: bool) -> usize {
        match encoded {
            true => self.scanned.rows.layout().stride as usize / size_of::<f32>(),
            false => self.scanned.rows.width(),
        }
    }

    /// The offset of the column in the rows that the engine reads for another column, if it comes from them.
    fn offset_in(&self, number: usize, read: usize) -> Option<usize> {
        match self.source {
            RowSource::Direct(..) if number == read => Some(0),
            RowSource::Beside { column, offset } if column == read => Some(offset),
            _ => None,
        }
    }
}

/// The rows of a column, if the engine reads them.
fn direct_rows<'a>(scanned: ScannedColumn<'a>, memory: u64) -> Option<&'a StoredRows<'a>> {
    scanned.rows.stored().filter(|rows| {
        let with_blocks = u64::from(rows.layout().stride) + 2 * block_bytes_max(rows);
        scanned.nodes.is_all() && rows.file_bytes() > memory && with_blocks <= u64::from(READ_BYTES_MAX)
    })
}

fn block_bytes_max(rows: &StoredRows<'_>) -> u64 {
    let blocks = rows.files().iter().flatten().map(|file| file.header().block_bytes);
    blocks.max().unwrap_or(0).into()
}

/// The most bytes of a run, so that a read has room for them and for the rest of their first and last block.
fn run_bytes(rows: &StoredRows<'_>) -> usize {
    READ_BYTES_MAX as usize - 2 * block_bytes_max(rows) as usize
}

/// Verifies the bytes of a completed read, and takes the rows of `run` for all columns that are in them.
fn take(
    columns: &[OpenColumn<'_>],
    run: &Run,
    part: &mut PartBytes,
    offset: u64,
    bytes: &[u8],
    encoded: bool,
) -> Result<()> {
    let RowSource::Direct(rows, _) = columns[run.column].source else {
        unreachable!("the engine reads the column");
    };
    let file = rows.files()[run.chunk].as_ref().expect("the chunk is there");
    let at = offset - file.header().payload_offset;
    file.check_read(bytes, at)?;
    let stride = u64::from(rows.layout().stride);
    let nodes = &part.nodes[run.places.clone()];
    for (number, column) in columns.iter().enumerate() {
        let Some(offset) = column.offset_in(number, run.column) else {
            continue;
        };
        let (numbers, layout) = (column.numbers(encoded), column.scanned.rows.layout());
        let out = &mut part.columns[number][run.places.start * numbers..run.places.end * numbers];
        for (&node, out) in nodes.iter().zip(out.chunks_exact_mut(numbers)) {
            let start = run.start + (node - nodes[0]) * stride - at;
            let row = &bytes[start as usize + offset..][..layout.row_bytes()];
            match encoded {
                // The rest is padding, and zero.
                true => bytemuck::cast_slice_mut(out)[..row.len()].copy_from_slice(row),
                false => layout.decode_row(row, out),
            }
        }
    }
    Ok(())
}

impl Direct {
    fn new(files: Vec<ReadFile>) -> Result<Self> {
        let files: Arc<[ReadFile]> = files.into();
        let options = read::Options { depth: DEPTH, read_bytes_max: READ_BYTES_MAX, ..read::Options::default() };
        Ok(Self {
            engine: read::open(read::Choice::Auto, files.clone(), options)?,
            files,
            waiting: VecDeque::new(),
            runs: Vec::new(),
            free_tags: Vec::new(),
        })
    }

    /// Adds a read of a range of the payload of `file`, which has this index in the engine.
    fn read(&mut self, run: Run, file: &ClosedFile, index: FileIndex, payload: Range<u64>) -> Result<()> {
        let payload = file.to_verify(payload)?;
        let tag = self.free_tags.pop().unwrap_or(self.runs.len() as u64);
        if tag == self.runs.len() as u64 {
            self.runs.push(None);
        }
        self.waiting.push_back(Read {
            file: index,
            offset: file.header().payload_offset + payload.start,
            length: (payload.end - payload.start) as u32,
            tag,
        });
        self.runs[tag as usize] = Some(run);
        Ok(())
    }
}
