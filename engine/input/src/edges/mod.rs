//! Edge lists. Files are cut into numbered blocks, which many threads read and parse at the same time.
//!
//! ```text
//! EdgeSource ── next_block ──> RawBlock (bytes) ── parse ──> EdgeBatch (integer ids)
//!     │                                         └─ parse_text > TextBatch (string ids)
//!     └ Content of each file: TextFile, TextStream (compressed text), Table (arrays, raw pairs), ColumnFile
//! ```

mod bad_edge;
mod batch;
mod block;
mod column_file;
mod content;
mod edge_array;
mod encoded;
mod fields;
mod fit;
mod foreign;
mod layout;
mod matrix_market;
mod options;
mod order;
mod packed_text;
mod parse;
mod picked_columns;
mod row_check;
mod table;
mod text;
mod time;

use std::{
    path::Path,
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use grappa_formats::{schema::Column, time_axis::TimeUnit};
use grappa_io::{
    Error, Position, Result,
    workers::{self, ReadAhead},
};

pub use self::{
    bad_edge::BadEdge,
    batch::{EdgeBatch, Keys, REJECT_BYTES_MAX, Reject, TextBatch, integer_of},
    block::RawBlock,
    edge_array::EDGE_FEATURES_MAX,
    options::{
        BlockId, Comments, EdgeFormat, EdgeSourceOptions, EndIds, HeaderLine, IdKind, IdLimit, LimitSource,
        NodeTypeOfEnd, OnBadLine,
    },
};
use self::{
    block::{EdgeFile, SharedByBlocks},
    content::Content,
    edge_array::EdgeArray,
    encoded::EdgeEncoder,
    layout::READ_AS,
    packed_text::TextStream,
    text::TextLines,
};
pub(crate) use self::{
    fields::{id_of_float, integer, is_comment},
    time::{TimeValue, bit_of, coarsest_unit, times_of, timestamps, unit_of},
};
use crate::{
    conversions::Conversion, file::read_past_cache_if_large, input::Input, reading::Reading, spread::Spread,
    table::described,
};

/// The edges of a list of files.
///
/// Some threads read blocks ([`read_ahead`](Self::read_ahead)), others parse them, concurrently. Blocks of plain files are
/// read by any of them. One thread at a time unpacks a compressed file; several compressed files are unpacked side by side.
pub struct EdgeSource {
    files: Vec<EdgeFile>,
    shared: SharedByBlocks,
    weighted: bool,
    /// Features of an edge, in columns or in a separate file.
    features: usize,
    /// Whether features are numbers, or it is known what they become.
    knows_features: bool,
    /// The separate file of features.
    feature_array: Option<EdgeArray>,
    /// All files before this one are finished.
    front: AtomicUsize,
    /// Input bytes of skipped blocks. The next block reports them with its own.
    skipped_bytes: AtomicU64,
    has_skipped: AtomicBool,
}

/// The answer to a worker that asks a file for a block.
enum NextBlock<'a> {
    Block(RawBlock<'a>),
    /// Another worker is unpacking the file.
    Busy,
    Finished,
}

impl EdgeSource {
    /// Opens all files, detects their formats, and checks headers and sizes. Reads at most the first lines of each.
    pub fn open(inputs: &[impl Clone + Into<Input>], options: EdgeSourceOptions) -> Result<Self> {
        assert!(options.block_bytes > 0, "a block needs at least one byte");
        if inputs.is_empty() {
            return Err(Error::out_of_range("--edges", "at least one file", "none"));
        }
        let columns = options.columns.features.len();
        if columns as u64 > EDGE_FEATURES_MAX {
            let expected = format!("at most {EDGE_FEATURES_MAX} columns");
            return Err(Error::out_of_range("--edge-features-from", expected, columns));
        }
        let weights = options.weights.as_ref().map(EdgeArray::weights).transpose()?;
        let has_times = options.columns.time.is_some();
        let mut files: Vec<EdgeFile> =
            inputs.iter().map(|input| EdgeFile::open(&input.clone().into(), &options)).collect::<Result<_>>()?;
        if has_times && let Some(file) = files.iter().find(|file| !file.content.may_have_times()) {
            let problem = "times of edges are read from columns of text and Parquet, and this file has no columns with names or numbers; \
                           write the edges as text or Parquet, or omit --time";
            return Err(Error::input(file.file.path(), Position::Whole, problem));
        }
        let in_column = weights_in_column(&files, options.allow_empty)?;
        if weights.is_some() && in_column {
            let file = files.iter().find(|file| file.has_edges()).expect("a file has weights");
            return Err(Error::input(
                file.file.path(),
                Position::Whole,
                "the edges have weights already; omit --weights, or leave theirs out with --weight none",
            ));
        }
        let weighted = in_column || weights.is_some();
        let features = options.features.as_ref().map(|input| EdgeArray::features(input, weighted)).transpose()?;
        let feature_array = features.clone();
        let width = match (&features, EdgeEncoder::from_options(&options)) {
            (Some(array), _) => array.width,
            (None, Some(encoder)) if columns > 0 => encoder.dim(),
            (None, _) => columns,
        };
        let arrays: Vec<EdgeArray> = weights.into_iter().chain(features).collect();
        arrays.iter().try_for_each(|array| check_separate(array, &files))?;
        let mut first_row = 0;
        for file in &mut files {
            let rows = file.content.rows().unwrap_or(0);
            match &mut file.content {
                Content::Table(table) => table
                    .attach(first_row, &arrays, options.columns.order.as_deref(), options.block_bytes)
                    .map_err(|problem| file.file.error(problem))?,
                Content::Columns(columns) => columns.attach(first_row, &arrays, options.block_bytes),
                Content::Nothing | Content::Text(_) | Content::PackedText { .. } => {}
            }
            first_row += rows;
        }
        read_past_cache_if_large(files.iter().map(|file| &*file.file));
        let are_numbers = files.iter().all(|file| file.content.has_numeric_features());
        Ok(Self {
            knows_features: are_numbers || options.encoded.is_some(),
            files,
            shared: SharedByBlocks::new(options),
            weighted,
            features: width,
            feature_array,
            front: AtomicUsize::new(0),
            skipped_bytes: AtomicU64::new(0),
            has_skipped: AtomicBool::new(false),
        })
    }

    /// Size of all files on disk, compressed or not; for an archive, only the member with the edges. The sum of
    /// [`RawBlock::input_bytes`] over all blocks.
    pub fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| match &file.content {
                Content::Nothing => 0,
                Content::Table(table) => table.bytes,
                Content::Text(_) | Content::PackedText { .. } | Content::Columns(_) => file.file.bytes(),
            })
            .sum()
    }

    /// Number of rows, where it is known before reading: in every format except text.
    pub fn edges_hint(&self) -> Option<u64> {
        self.files.iter().try_fold(0, |sum: u64, file| Some(sum + file.content.rows()?))
    }

    /// Whether every edge has a weight.
    pub fn weighted(&self) -> bool {
        self.weighted
    }

    /// The number of features of an edge.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Whether the features of edges are float16 in their file.
    pub fn has_f16_features(&self) -> bool {
        self.feature_array.as_ref().is_some_and(EdgeArray::is_f16)
    }

    /// Warnings about columns of features, among the edges parsed so far, that lose their differences as 32-bit floats.
    pub fn loss_warnings(&self) -> Vec<String> {
        let columns = self.feature_columns();
        let file_spreads = self.files.iter().filter_map(|file| match &file.content {
            Content::Columns(file) => Some(file.spreads()),
            content => Some(content.layout()?.form.spreads()),
        });
        let whole = Spread::columns(self.features);
        for spreads in file_spreads.chain(self.feature_array.as_ref().map(|array| &*array.spreads)) {
            whole.iter().zip(spreads).for_each(|(all, spread)| all.merge(spread));
        }
        Spread::warnings(&whole, |column| match columns.get(column) {
            Some(column) => format!("edge feature {}", described(column)),
            None => format!("edge feature {}", column + 1),
        })
    }

    /// The columns of edge features, and what each becomes. Empty if they have no names.
    pub fn feature_columns(&self) -> Vec<Column> {
        match &self.options().encoded {
            Some(encoded) => encoded.iter().map(|reading| reading.column.clone()).collect(),
            None => self.feature_names().into_iter().map(Column::number).collect(),
        }
    }

    /// The names of the columns of edge features. Empty if they have no names.
    fn feature_names(&self) -> Vec<String> {
        let mut names = self.files.iter().map(|file| file.content.feature_names());
        names.find(|names| !names.is_empty()).unwrap_or_default()
    }

    /// The number of nodes that the files state: the rows of the largest matrix.
    pub fn stated_nodes(&self) -> Option<u64> {
        self.files.iter().filter_map(|file| file.content.stated_nodes()).max()
    }

    /// Whether the integers of all blocks probably count from 1: there is a 1, and no 0.
    pub fn counts_from_one(&self) -> bool {
        self.shared.has_one_without_zero() && !self.has_skipped.load(Ordering::Relaxed)
    }

    /// The unit of a store for times in this source: the unit of the first block with edges. None if the source has no edges.
    ///
    /// # Errors
    /// If a block can't be read, or it has both integers and dates.
    pub fn find_time_unit(&self) -> Result<Option<TimeUnit>> {
        let mut batch = EdgeBatch::default();
        let mut text = TextBatch::default();
        while let Some(block) = self.next_block(&|_| false)? {
            let units = match self.options().are_strings() {
                true => {
                    block.parse_text(&mut text, &mut |_| Ok(()))?;
                    text.order.units
                }
                false => {
                    block.parse(&mut batch, &mut |_| Ok(()))?;
                    batch.order.units
                }
            };
            let path = self.path(block.id().file);
            let unit = unit_of(units).map_err(|problem| Error::input(path, Position::Whole, problem))?;
            if unit.is_some() {
                return Ok(unit);
            }
        }
        Ok(None)
    }

    /// How the files are read: one entry for all files that are read in the same way.
    pub fn readings(&self) -> Vec<Reading> {
        let mut readings: Vec<Reading> = Vec::new();
        for file in &self.files {
            let Some(mut reading) = file.content.reading(self.weighted) else {
                continue;
            };
            reading.encodings = self.options().encoded.clone().unwrap_or_default();
            match readings.iter_mut().find(|other| other.is_like(&reading)) {
                Some(other) => other.add(&reading),
                None => {
                    reading.file = file.file.path().to_owned();
                    readings.push(reading);
                }
            }
        }
        readings
    }

    /// The options the source was opened with.
    pub fn options(&self) -> &EdgeSourceOptions {
        &self.shared.options
    }

    /// Whether a file may have edges. Text is known not to have any if it has no line but comments and a header.
    pub fn has_edges(&self, file: usize) -> bool {
        self.files[file].has_edges()
    }

    /// The path of a block's file.
    pub fn path(&self, file: u32) -> &Path {
        self.files[file as usize].file.path()
    }

    /// Messages about files that may be meant in another way than they are read: first lines of text that may be headers or
    /// edges, arrays that may have sources and targets in rows or in columns, and
    /// files without edges.
    pub fn warnings(&self) -> Vec<String> {
        let first_lines = READ_AS.into_iter().filter_map(|read_as| self.first_lines(read_as));
        first_lines.chain(self.square_arrays()).chain(self.no_edges()).collect()
    }

    /// The warning about first lines that are read in one way.
    fn first_lines(&self, read_as: &str) -> Option<String> {
        let mut alike = self.files.iter().filter_map(|file| {
            let line = file.content.layout()?.first_line.as_ref()?;
            (line.2 == read_as).then_some((file.file.path(), line))
        });
        let (path, (number, text, _)) = alike.next()?;
        let more = in_more_files(alike.count());
        Some(format!("{}{}: the first line, {text}, {read_as}{more}", path.display(), Position::Line(*number)))
    }

    /// The warning about arrays that may have sources and targets in rows or in columns.
    fn square_arrays(&self) -> Option<String> {
        let files = self.files.iter();
        let mut square = files.filter(|file| matches!(&file.content, Content::Table(table) if table.is_square));
        let file = &square.next()?.file;
        Some(format!(
            "{}: the array of shape (2, 2) is read as two edges, each a row of source and target; if its first row has the \
             sources and its second one the targets, convert it: {}{}",
            file.path().display(),
            file.remedy(Conversion::Transpose),
            in_more_files(square.count())
        ))
    }

    fn no_edges(&self) -> Option<String> {
        let is_empty = !self.files.iter().any(EdgeFile::has_edges);
        is_empty.then(|| {
            format!(
                "{}: there are no edges in this file{}; the store has nodes only",
                self.files[0].file.path().display(),
                in_more_files(self.files.len() - 1)
            )
        })
    }

    /// Runs `work` while `threads` other threads read the blocks that `skip` does not reject. `work` gets them, in no particular
    /// order, and parses them. There are at most twice as many blocks in memory as threads, if as many threads parse.
    ///
    /// # Errors
    /// Those of `work`, or if a thread cannot be started.
    pub fn read_ahead<'a, R>(
        &'a self,
        threads: usize,
        skip: &(dyn Fn(BlockId) -> bool + Sync),
        work: impl FnOnce(&ReadAhead<RawBlock<'a>>) -> Result<R>,
    ) -> Result<R> {
        workers::read_ahead(threads, || self.next_block(skip), work)
    }

    /// Reads the next block that no worker has taken and `skip` does not reject. Returns none when all are taken. Blocks
    /// come in no particular order.
    ///
    /// # Panics
    /// If the features have other values than numbers, and [`Self::fit`] has not said what they become.
    pub fn next_block(&self, skip: &dyn Fn(BlockId) -> bool) -> Result<Option<RawBlock<'_>>> {
        assert!(self.knows_features, "the columns of features are fitted before edges are read");
        loop {
            let mut busy = None;
            for index in self.front.load(Ordering::Acquire)..self.files.len() {
                let file = &self.files[index];
                if file.finished.load(Ordering::Acquire) {
                    // A failed exchange is harmless: another thread has moved the front, which is only where searches start.
                    let _ = self.front.compare_exchange(index, index + 1, Ordering::AcqRel, Ordering::Relaxed);
                    continue;
                }
                match self.take(index, skip, false)? {
                    NextBlock::Block(block) => return Ok(Some(block)),
                    NextBlock::Busy => busy = busy.or(Some(index)),
                    NextBlock::Finished => {}
                }
            }
            // Every file is finished or being unpacked by another worker. Wait for the first of the latter.
            let Some(index) = busy else { return Ok(None) };
            if let NextBlock::Block(block) = self.take(index, skip, true)? {
                return Ok(Some(block));
            }
        }
    }

    /// Lets reads go past the page cache. Returns whether the file system allows it.
    #[cfg(test)]
    pub(crate) fn read_past_cache(&self) -> bool {
        self.files.iter().for_each(|file| file.file.read_past_cache());
        self.files.iter().all(|file| file.file.is_direct())
    }

    /// Fails unless the members of all archives have their CRC-32, and matrices their number of entries. It reads the bytes of
    /// archives that were not read yet, such as skipped blocks. Call it before you rely on any edge.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| match &file.content {
            Content::Table(table) => table.check(),
            // Compressed text is verified as it is unpacked, Parquet pages as they are read.
            content => match content.layout().and_then(|layout| layout.matrix) {
                Some(matrix) if !self.has_skipped.load(Ordering::Relaxed) => {
                    matrix.check(file.entries.load(Ordering::Relaxed), file.file.path())
                }
                _ => Ok(()),
            },
        })
    }

    /// Takes a block of this file. With `wait`, it waits for the worker that is unpacking the file.
    fn take(&self, index: usize, skip: &dyn Fn(BlockId) -> bool, wait: bool) -> Result<NextBlock<'_>> {
        fn lock<T>(mutex: &Mutex<T>, wait: bool) -> Option<MutexGuard<'_, T>> {
            match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if wait => Some(mutex.lock().unwrap_or_else(PoisonError::into_inner)),
                Err(TryLockError::WouldBlock) => None,
            }
        }
        let block = match &self.files[index].content {
            Content::PackedText { stream, .. } => {
                let Some(mut stream) = lock(stream, wait) else {
                    return Ok(NextBlock::Busy);
                };
                self.read_packed(index, &mut stream, skip)?
            }
            content => {
                let _turn = match content {
                    Content::Table(table) if table.is_sequential() => match lock(&table.turn, wait) {
                        None => return Ok(NextBlock::Busy),
                        turn => turn,
                    },
                    _ => None,
                };
                self.claim(index, skip).map(|id| self.read(id)).transpose()?
            }
        };
        Ok(block.map_or(NextBlock::Finished, NextBlock::Block))
    }

    fn skip(&self, input_bytes: u64) {
        self.has_skipped.store(true, Ordering::Relaxed);
        self.skipped_bytes.fetch_add(input_bytes, Ordering::Relaxed);
    }

    /// Takes the next wanted block of a file whose number of blocks is known. Marks the file finished after its last block.
    fn claim(&self, index: usize, skip: &dyn Fn(BlockId) -> bool) -> Option<BlockId> {
        let EdgeFile { content, next, finished, .. } = &self.files[index];
        loop {
            // The counter passes the last block by at most one per worker: once finished is set, no worker comes here.
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= content.blocks() {
                finished.store(true, Ordering::Release);
                return None;
            }
            let id = BlockId { file: index as u32, block };
            if !skip(id) {
                return Some(id);
            }
            self.skip(content.input_bytes(block));
        }
    }

    /// Reads a block of a file whose number of blocks is known.
    fn read(&self, id: BlockId) -> Result<RawBlock<'_>> {
        let content = &self.files[id.file as usize].content;
        let mut block = self.block(id, content.input_bytes(id.block));
        match content {
            Content::Text(text) => block.lines = text.read(id.block, &mut block.buffer)?,
            Content::Table(table) => table.read(id.block, &mut block.buffer)?,
            // A worker reads the pages of its block while it parses them.
            Content::Nothing | Content::PackedText { .. } | Content::Columns(_) => {}
        }
        Ok(block)
    }

    /// Unpacks the next wanted block. Returns none at the end of the file.
    fn read_packed(
        &self,
        index: usize,
        stream: &mut Option<TextStream>,
        skip: &dyn Fn(BlockId) -> bool,
    ) -> Result<Option<RawBlock<'_>>> {
        let file = &self.files[index];
        let Content::PackedText { layout, compression, .. } = &file.content else {
            unreachable!("only packed text is unpacked")
        };
        if file.finished.load(Ordering::Acquire) {
            return Ok(None);
        }
        let open = match stream {
            Some(stream) => stream,
            None => {
                let block_bytes = self.shared.options.block_bytes;
                stream.insert(TextStream::open(&file.file, *compression, layout, block_bytes)?)
            }
        };
        let mut block = self.block(BlockId { file: index as u32, block: 0 }, 0);
        while let Some(next) = open.next_block(&mut block.buffer)? {
            block.id.block = next.block;
            if skip(block.id) {
                self.skip(next.input_bytes);
                continue;
            }
            block.input_bytes += next.input_bytes + self.skipped_bytes.swap(0, Ordering::Relaxed);
            block.lines = next.lines;
            return Ok(Some(block));
        }
        self.skipped_bytes.fetch_add(block.input_bytes, Ordering::Relaxed);
        *stream = None;
        file.finished.store(true, Ordering::Release);
        Ok(None)
    }

    /// A block with an empty buffer.
    fn block(&self, id: BlockId, input_bytes: u64) -> RawBlock<'_> {
        RawBlock {
            shared: &self.shared,
            file: &self.files[id.file as usize],
            id,
            input_bytes: input_bytes + self.skipped_bytes.swap(0, Ordering::Relaxed),
            buffer: self.shared.buffers().pop().unwrap_or_default(),
            lines: TextLines::default(),
        }
    }
}

/// The end of a warning that is about more files than the one that it names.
fn in_more_files(more: usize) -> String {
    match more {
        0 => String::new(),
        more => format!(" (the same in {more} more files)"),
    }
}

/// Whether the edges have weights in a column. Fails unless all files with edges agree.
fn weights_in_column(files: &[EdgeFile], allow_empty: bool) -> Result<bool> {
    let mut with_edges = files.iter().filter(|file| file.has_edges());
    let Some(first) = with_edges.next() else {
        if allow_empty {
            return Ok(false);
        }
        let problem = format!(
            "there are no edges in this file{}; if the graph has nodes only, give their number with --nodes, or with --ids sparse or \
             string their ids with --node-ids",
            if files.len() == 1 { "" } else { " or any of the others" }
        );
        return Err(Error::input(files[0].file.path(), Position::Whole, problem));
    };
    let weighted = first.content.weighted();
    let Some(other) = with_edges.find(|file| file.content.weighted() != weighted) else {
        return Ok(weighted);
    };
    let (with, without) = if weighted { (first, other) } else { (other, first) };
    Err(Error::input(
        without.file.path(),
        Position::Whole,
        format!(
            "edges here have no weight, the edges of {} have one; all files must agree",
            with.file.path().display()
        ),
    ))
}

/// Fails unless a separate file of values goes with the edges: their rows are counted, and it has as many.
fn check_separate(array: &EdgeArray, files: &[EdgeFile]) -> Result<()> {
    let mut edges = 0;
    for file in files.iter().filter(|file| file.has_edges()) {
        let Some(rows) = file.content.rows() else {
            let remedy = match array.is_weights() {
                true => {
                    "--weights needs .npy, u32, u64 or Parquet edges, whose rows are counted; in text, write the weight as a third column"
                }
                false => {
                    "--edge-features needs .npy, u32, u64 or Parquet edges, whose rows are counted; in text, write features as columns, \
                     and name them with --edge-features-from"
                }
            };
            return Err(Error::input(file.file.path(), Position::Whole, remedy));
        };
        edges += rows;
    }
    array.expect_rows(edges)
}
