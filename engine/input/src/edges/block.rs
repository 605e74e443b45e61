//! One block of input: its bytes, and parsing them into edges.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use grappa_io::{Error, Position, Result, text::printable};

use super::{
    bad_edge::BadEdge,
    batch::{EdgeBatch, EdgeOrder, Reject, TextBatch, integer_of},
    content::Content,
    layout::TextLayout,
    options::{BlockId, EdgeSourceOptions, IdKind, IdLimit, OnBadLine},
    order::MIXED,
    parse::{BlockLines, OnBad, Stop, parse_edges, parse_entries, parse_keys},
    row_check::OnBadRow,
    text::TextLines,
};
use crate::{
    file::InputFile,
    input::Input,
    line_reader::LINE_BYTES_MAX,
    messages::long_line,
    separator::{trim, unquoted},
};

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
            Input::Parts(parts) => {
                let problem = "the edges of several files are read file by file; name each of them";
                return Err(Error::input(&parts.name, Position::Whole, problem));
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
        if self.options.limits().contains(&IdLimit::Sparse) {
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
    /// If an end has strings.
    pub fn parse(&self, into: &mut EdgeBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        assert!(!self.shared.options.are_strings(), "string ids are parsed by parse_text");
        into.clear();
        self.parse_integers(into, on_reject)?;
        self.shared.note_ids(into);
        self.check_order(&into.order)
    }

    fn parse_integers(&self, into: &mut EdgeBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        let limits = self.shared.options.limits();
        let mut on_bad_row =
            |row: u64, line: &[u8], bad: BadEdge| self.reject(Position::Row(row), line, bad, on_reject);
        match &self.file.content {
            Content::Columns(file) => file.parse(self.id.block, limits, into, &mut on_bad_row),
            Content::Table(table) => table.parse(self.id.block, &self.buffer, limits, into, &mut on_bad_row),
            content => {
                let layout = content.layout().expect("text has a layout");
                self.parse_lines(on_reject, &mut |block, on_bad| {
                    let Some(matrix) = layout.matrix else {
                        return parse_edges(block, &layout.form, limits, into, on_bad);
                    };
                    let entries = parse_entries(block, &layout.form, matrix, into, on_bad)?;
                    self.file.entries.fetch_add(entries, Ordering::Relaxed);
                    Ok(())
                })
            }
        }
    }

    /// Parses ids with strings at one end at least into `into`, which is emptied first. Calls `on_reject` as [`parse`](Self::parse) does.
    ///
    /// # Panics
    /// If both ends have integers.
    pub fn parse_text(&self, into: &mut TextBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        assert!(self.shared.options.are_strings(), "integer ids are parsed by parse");
        into.clear();
        self.parse_strings(into, on_reject)?;
        self.check_order(&into.order)
    }

    fn parse_strings(&self, into: &mut TextBatch, on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        let ids = self.shared.options.key_form();
        match &self.file.content {
            Content::Columns(file) => file.parse_text(self.id.block, ids, into, &mut |row, line, bad| {
                self.reject(Position::Row(row), line, bad, on_reject)
            }),
            Content::Table(_) => unreachable!("tables of numbers are refused when opened for strings"),
            content => {
                let layout = content.layout().expect("text has a layout");
                self.parse_lines(on_reject, &mut |block, on_bad| parse_keys(block, &layout.form, ids, into, on_bad))
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
            if bad == BadEdge::OtherRelation {
                return Ok(());
            }
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
        let is_of_types = options.ends.iter().any(|end| end.node_type.is_some());
        match (options.on_bad_line, bad) {
            // A relation has no edge where a row has no id.
            _ if is_of_types && bad.is_missing_id() => on_reject(Reject::new(position, bad, line)),
            (OnBadLine::Skip, _) => on_reject(Reject::new(position, bad, line)),
            (OnBadLine::Fail, BadEdge::NotANode(end)) => {
                let shown = self.end_of(line, end);
                Err(Error::input(path, position, BadEdge::not_a_node(options, end, &shown)))
            }
            (OnBadLine::Fail, _) => Err(bad.error(options, path, position, line, bad.message(line, path))),
        }
    }

    /// The id at one end of a line, or of a row written as a line, and the name of its column.
    fn end_of(&self, line: &[u8], end: usize) -> String {
        let reading = self.file.content.reading(false).unwrap_or_default();
        let name = reading.columns.iter().find(|(role, _)| *role == ["source", "target"][end]);
        let name = name.map_or_else(String::new, |(_, name)| format!(" in column {}", printable(name)));
        let id = match self.file.content.layout() {
            Some(TextLayout { form, matrix: None, .. }) => {
                let column = if end == 0 { form.columns.source } else { form.columns.target };
                form.separator.fields(trim(line)).ok().and_then(|fields| Some(fields.get(column)?.to_vec()))
            }
            Some(_) => None,
            None => line.split(|&byte| byte == b'\t').nth(end).map(<[u8]>::to_vec),
        };
        let id = id.unwrap_or_else(|| line.to_vec());
        format!("{}{name}", printable(&String::from_utf8_lossy(unquoted(&id))))
    }

    /// Rejects edges that were parsed and have an end that is no node of its type: `bad` has their indices in the batch, ascending, and
    /// the end. The block is parsed again, to find their lines or rows.
    ///
    /// # Errors
    /// Those of `on_reject`, or that an end is no node, if bad lines are errors.
    pub fn reject_edges(&self, bad: &[(usize, usize)], on_reject: &mut dyn FnMut(Reject) -> Result<()>) -> Result<()> {
        let mut bad = bad.iter().copied().peekable();
        match &self.file.content {
            Content::Columns(_) | Content::Table(_) => {
                let (mut others, mut batch) = (Vec::new(), ParsedBlock::default());
                self.parse_rows(&mut batch, &mut |row, _, _| {
                    others.push(row);
                    Ok(())
                })?;
                let mut others = others.into_iter().peekable();
                let mut row = self.first_row();
                for edge in 0..batch.len() {
                    while others.next_if(|&other| other == row).is_some() {
                        row += 1;
                    }
                    if let Some((_, end)) = bad.next_if(|&(index, _)| index == edge) {
                        self.reject(Position::Row(row), &batch.line(edge, self), BadEdge::NotANode(end), on_reject)?;
                    }
                    row += 1;
                }
                Ok(())
            }
            _ => {
                let TextLines { start, end, .. } = self.lines;
                let mut counter = LineCounter { at: start, line: 0 };
                let (mut at, mut edges) = (start, 0);
                while at < end && bad.peek().is_some() {
                    let next = at + memchr::memchr(b'\n', &self.buffer[at..end]).map_or(end - at, |length| length + 1);
                    let mut batch = ParsedBlock::default();
                    self.parse_line(at..next, &mut batch);
                    edges += batch.len();
                    let line = self.buffer[at..next].trim_ascii_end();
                    while let Some((_, end)) = bad.next_if(|&(index, _)| index < edges) {
                        self.reject(self.line(&mut counter, at)?, line, BadEdge::NotANode(end), on_reject)?;
                    }
                    at = next;
                }
                Ok(())
            }
        }
    }

    /// The first row of a block of a table.
    fn first_row(&self) -> u64 {
        match &self.file.content {
            Content::Columns(file) => file.first_row_of(self.id.block),
            Content::Table(table) => table.first_row_of(self.id.block),
            _ => 0,
        }
    }

    /// Parses the rows of a table. Calls `on_bad` with each row that is no edge.
    fn parse_rows(&self, batch: &mut ParsedBlock, on_bad: &mut OnBadRow<'_>) -> Result<()> {
        let options = &self.shared.options;
        match (&self.file.content, options.are_strings()) {
            (Content::Columns(file), true) => {
                file.parse_text(self.id.block, options.key_form(), &mut batch.text, on_bad)
            }
            (Content::Columns(file), false) => file.parse(self.id.block, options.limits(), &mut batch.integers, on_bad),
            (Content::Table(table), _) => {
                table.parse(self.id.block, &self.buffer, options.limits(), &mut batch.integers, on_bad)
            }
            _ => unreachable!("the file is a table"),
        }
    }

    /// Parses a line of text that was parsed before. It may be no edge.
    fn parse_line(&self, range: Range<usize>, batch: &mut ParsedBlock) {
        let options = &self.shared.options;
        let layout = self.file.content.layout().expect("text has a layout");
        let line = BlockLines::new(&self.buffer, range.start, range.end);
        let on_bad: &mut OnBad<'_> = &mut |_, _, _| Ok(());
        // Lines that cannot be parsed were refused the first time.
        let _ = match (layout.matrix, options.are_strings()) {
            (Some(matrix), _) => parse_entries(line, &layout.form, matrix, &mut batch.integers, on_bad).map(|_| ()),
            (None, true) => parse_keys(line, &layout.form, options.key_form(), &mut batch.text, on_bad),
            (None, false) => parse_edges(line, &layout.form, options.limits(), &mut batch.integers, on_bad),
        };
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

/// The edges of a block that is parsed again.
#[derive(Default)]
struct ParsedBlock {
    integers: EdgeBatch,
    text: TextBatch,
}

impl ParsedBlock {
    fn len(&self) -> usize {
        self.integers.sources.len().max(self.text.sources.len())
    }

    /// An edge of a table, written as a line.
    fn line(&self, edge: usize, block: &RawBlock<'_>) -> Vec<u8> {
        let options = &block.shared.options;
        let ends = [(0, &self.text.sources, &self.integers.sources), (1, &self.text.targets, &self.integers.targets)];
        let ids = ends.map(|(end, keys, integers)| match (options.are_strings(), options.kinds()[end]) {
            (true, IdKind::String) => keys.get(edge).to_vec(),
            (true, IdKind::Integer) => integer_of(keys.get(edge)).to_string().into_bytes(),
            (false, _) => integers[edge].to_string().into_bytes(),
        });
        ids.join(&b'\t')
    }
}

/// Counts the lines of a block between bad lines. Counting starts at the first bad line, so good blocks pay nothing.
struct LineCounter {
    at: usize,
    /// The number of the line at `at`; 0 until the number of the block's first line is known.
    line: u64,
}
