//! One block of input: its bytes, and parsing them into edges.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use grappa_io::{Error, Position, Result};

use super::{
    bad_edge::BadEdge,
    batch::{EdgeBatch, EdgeOrder, Reject, TextBatch},
    content::Content,
    options::{BlockId, EdgeSourceOptions, IdKind, IdLimit, OnBadLine},
    order::MIXED,
    parse::{BlockLines, OnBad, Stop, parse_edges, parse_entries, parse_keys},
    text::TextLines,
};
use crate::{file::InputFile, input::Input, line_reader::LINE_BYTES_MAX, messages::long_line};

pub(super) struct EdgeFile {
    pub(super) file: Arc<InputFile>,
    pub(super) content: Content,
    /// The next block of a file whose number of blocks is known.
    pub(super) next: AtomicU64,
    pub(super) finished: AtomicBool,
    /// Entries of a matrix that were parsed.
    pub(super) entries: AtomicU64,
}

impl EdgeFile {
    pub(super) fn open(input: &Input, options: &EdgeSourceOptions) -> Result<Self> {
        let (file, content) = match input {
            Input::Path(path) => {
                let file = InputFile::open(path)?;
                let content = Content::open(&file, options)?;
                (file, content)
            }
            Input::Memory(input) => {
                let content = Content::in_memory(input, options)?;
                (InputFile::of_table(&input.name, content.total_bytes()), content)
            }
        };
        let finished = AtomicBool::new(matches!(content, Content::Nothing));
        Ok(Self { file, content, next: AtomicU64::new(0), finished, entries: AtomicU64::new(0) })
    }

    pub(super) fn has_edges(&self) -> bool {
        !matches!(self.content, Content::Nothing)
    }
}

pub(super) struct SharedByBlocks {
    pub(super) options: EdgeSourceOptions,
    /// Whether an edge has the integer 0, or 1.
    has_ids: [AtomicBool; 2],
    /// The kinds of values so far in the column with the order of the edges.
    order_kinds: AtomicU8,
    /// Buffers of dropped blocks, for reuse.
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl SharedByBlocks {
    pub(super) fn new(options: EdgeSourceOptions) -> Self {
        Self {
            options,
            has_ids: [const { AtomicBool::new(false) }; 2],
            order_kinds: AtomicU8::new(0),
            buffers: Mutex::default(),
        }
    }

    pub(super) fn buffers(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a block has the integer 1, and none has 0.
    pub(super) fn has_one_without_zero(&self) -> bool {
        let [zero, one] = self.has_ids.each_ref().map(|has| has.load(Ordering::Relaxed));
        one && !zero
    }

    /// Notes whether a batch of dense ids has 0 and 1. When both were found, it costs nothing.
    fn note_ids(&self, batch: &EdgeBatch) {
        if self.options.id_limit == IdLimit::Sparse {
            return;
        }
        for (id, has) in (0..).zip(&self.has_ids) {
            if !has.load(Ordering::Relaxed) && (batch.sources.contains(&id) || batch.targets.contains(&id)) {
                has.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// The bytes of a block, read and not yet parsed. When it is dropped, the next block reuses its buffer.
pub struct RawBlock<'a> {
    pub(super) shared: &'a SharedByBlocks,
    pub(super) file: &'a EdgeFile,
    pub(super) id: BlockId,
    pub(super) input_bytes: u64,
    /// Whole lines, or the output of [`Table::read`](super::table::Table::read), or nothing for Parquet, whose pages are read while they
    /// are parsed.
    pub(super) buffer: Vec<u8>,
    pub(super) lines: TextLines,
}

impl Drop for RawBlock<'_> {
    fn drop(&mut self) {
        self.shared.buffers().push(std::mem::take(&mut self.buffer));
    }
}

impl RawBlock<'_> {
    /// The place of the block in the input.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Input bytes of this block and of skipped blocks before it, for progress reports.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// The error that the input differs from an earlier pass over it.
    pub fn changed(&self) -> Error {
        let problem =
            "found ids that were not there in the first pass over this file: something is changing it; start again";
        Error::input(self.file.file.path(), Position::Whole, problem)
    }

    /// Parses integer ids into `into`, which is emptied first. Calls `on_reject` with each line or row that is left out, in
    /// order.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::String`].
    pub fn parse(&self, into: &mut EdgeBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        assert_eq!(self.shared.options.ids, IdKind::Integer, "string ids are parsed by parse_text");
        into.clear();
        self.parse_integers(into, on_reject)?;
        self.shared.note_ids(into);
        self.check_order(&into.order)
    }

    fn parse_integers(&self, into: &mut EdgeBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        let limit = self.shared.options.id_limit;
        let mut on_bad_row =
            |row: u64, line: &[u8], bad: BadEdge| self.reject(Position::Row(row), line, bad, on_reject);
        match &self.file.content {
            Content::Columns(file) => file.parse(self.id.block, limit, into, &mut on_bad_row),
            Content::Table(table) => table.parse(self.id.block, &self.buffer, limit, into, &mut on_bad_row),
            content => {
                let layout = content.layout().expect("text has a layout");
                self.parse_lines(on_reject, &mut |block, on_bad| {
                    let Some(matrix) = layout.matrix else {
                        return parse_edges(block, &layout.form, limit, into, on_bad);
                    };
                    let entries = parse_entries(block, &layout.form, matrix, into, on_bad)?;
                    self.file.entries.fetch_add(entries, Ordering::Relaxed);
                    Ok(())
                })
            }
        }
    }

    /// Parses string ids into `into`, which is emptied first. Calls `on_reject` as [`parse`](Self::parse) does.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::Integer`].
    pub fn parse_text(&self, into: &mut TextBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        assert_eq!(self.shared.options.ids, IdKind::String, "integer ids are parsed by parse");
        into.clear();
        self.parse_strings(into, on_reject)?;
        self.check_order(&into.order)
    }

    fn parse_strings(&self, into: &mut TextBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        match &self.file.content {
            Content::Columns(file) => file.parse_text(self.id.block, into, &mut |row, line, bad| {
                self.reject(Position::Row(row), line, bad, on_reject)
            }),
            Content::Table(_) => unreachable!("tables of numbers are refused when opened for strings"),
            content => {
                let layout = content.layout().expect("text has a layout");
                self.parse_lines(on_reject, &mut |block, on_bad| parse_keys(block, &layout.form, into, on_bad))
            }
        }
    }

    /// Fails if the column with the order of the edges has numbers and dates.
    fn check_order(&self, order: &EdgeOrder) -> Result<()> {
        let kinds = order.kinds | self.shared.order_kinds.fetch_or(order.kinds, Ordering::Relaxed);
        match kinds == MIXED {
            true => Err(self.file.file.error(
                "the column of --edge-split-by has both numbers and dates, so their order is not known; write all of its values in \
                 one way",
            )),
            false => Ok(()),
        }
    }

    fn parse_lines(
        &self,
        on_reject: &mut dyn FnMut(Reject) -> Result<()>,
        parse: &mut dyn FnMut(BlockLines<'_>, &mut OnBad<'_>) -> std::result::Result<(), Stop>,
    ) -> Result<()> {
        let TextLines { start, end, .. } = self.lines;
        let mut counter = LineCounter { at: start, line: 0 };
        let parsed = parse(BlockLines::new(&self.buffer, start, end), &mut |at, line, bad| {
            let position = self.line(&mut counter, at)?;
            self.reject(position, line, bad, on_reject)
        });
        parsed.map_err(|stop| match stop {
            Stop::Error(error) => error,
            Stop::LongLine(at) => match self.line(&mut LineCounter { at: start, line: 0 }, at) {
                Ok(position) => Error::input(self.file.file.path(), position, long_line(LINE_BYTES_MAX)),
                Err(error) => error,
            },
        })
    }

    fn reject(
        &self,
        position: Position,
        line: &[u8],
        bad: BadEdge,
        on_reject: &mut dyn FnMut(Reject) -> Result<()>,
    ) -> Result<()> {
        let (options, path) = (&self.shared.options, self.file.file.path());
        match options.on_bad_line {
            OnBadLine::Fail => Err(bad.error(options, path, position, line, bad.message(line, path))),
            OnBadLine::Skip => on_reject(Reject::new(position, bad, line)),
        }
    }

    /// The number of the line at `at` in the buffer. Calls with one counter must have rising `at`.
    fn line(&self, counter: &mut LineCounter, at: usize) -> Result<Position> {
        if counter.line == 0 {
            counter.line = match (self.lines.first_line, &self.file.content) {
                (Some(line), _) => line,
                (None, Content::Text(text)) => text.line_at(self.lines.offset)?,
                (None, _) => unreachable!("streams count lines as they go, and rows have no lines"),
            };
        }
        counter.line += memchr::memchr_iter(b'\n', &self.buffer[counter.at..at]).count() as u64;
        counter.at = at;
        Ok(Position::Line(counter.line))
    }
}

/// Counts the lines of a block between bad lines. Counting starts at the first bad line, so good blocks pay nothing.
struct LineCounter {
    at: usize,
    /// The number of the line at `at`; 0 until the number of the block's first line is known.
    line: u64,
}
