//! Edge lists, cut into blocks that many threads read and parse at once.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use grappa_io::{Error, Position, Result};

use super::{
    batch::{EdgeBatch, Reject, TextBatch},
    file::{Compression, InputFile},
    lines::{BadEdge, Block, IdLimit, parse_edges, parse_keys},
    npy,
    parquet::ParquetFile,
    table::{IdType, Table, Weights},
    text::{TextFile, TextLayout, TextStream},
    zip::{self, Npz},
};

/// How the edges are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EdgeFormat {
    /// Told from each file's first bytes and name.
    #[default]
    Auto,
    /// Text, columns separated by blanks, tabs or a comma.
    Tsv,
    /// As [`Tsv`](Self::Tsv), but the first line may be a header, and string keys are separated by commas and may be quoted.
    Csv,
    /// NumPy array [E, 2] or [2, E] of 32- or 64-bit integers. [2, 2] is read as [E, 2]. In a `.npz` archive, the array
    /// `edge_index`, `edges` or `edge_list`, or the only one.
    Npy,
    /// Pairs of little-endian 32-bit integers.
    U32,
    /// Pairs of little-endian 64-bit integers.
    U64,
    /// Apache Parquet: the first two columns, or those named like `src` and `dst`.
    Parquet,
}

/// What node ids are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdKind {
    /// Integers from 0.
    #[default]
    Integer,
    /// Any UTF-8 text.
    String,
}

/// What to do about lines that are no edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBadLine {
    /// The first one is an error.
    #[default]
    Fail,
    /// They are left out and listed in [`EdgeBatch::rejected`].
    Skip,
}

/// How to read edges.
#[derive(Debug, Clone)]
pub struct EdgeSourceOptions {
    /// How the edges are written.
    pub format: EdgeFormat,
    /// What node ids are.
    pub ids: IdKind,
    /// Below which integer ids must be.
    pub id_limit: IdLimit,
    /// A `.npy` array of one number per edge, parallel to the edges of all files; these must be binary.
    pub weights: Option<PathBuf>,
    /// What to do about lines that are no edges.
    pub on_bad_line: OnBadLine,
    /// How many bytes of input make a block; compressed text is cut after unpacking. A worker holds one block and its
    /// parsed edges: `block_bytes`, and 16 bytes (20 with a weight) per edge.
    pub block_bytes: usize,
}

impl Default for EdgeSourceOptions {
    fn default() -> Self {
        Self {
            format: EdgeFormat::Auto,
            ids: IdKind::Integer,
            id_limit: IdLimit::Dense,
            weights: None,
            on_bad_line: OnBadLine::Fail,
            block_bytes: 8 << 20,
        }
    }
}

/// A block's place in the input. The same files and options give the same blocks every time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Which of the files.
    pub file: u32,
    /// Which block of that file, from 0.
    pub block: u64,
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.file, self.block)
    }
}

/// The edges of a list of files.
///
/// Workers call [`next_block`](Self::next_block) and parse what they get, all at the same time. Plain files are read by
/// each worker for itself; a compressed file is unpacked by one worker at a time while the others parse, and several
/// compressed files are unpacked side by side.
pub struct EdgeSource {
    files: Vec<EdgeFile>,
    options: EdgeSourceOptions,
    weighted: bool,
    /// All files before this one are finished.
    front: AtomicUsize,
    /// Input bytes of skipped blocks, which the next block reports with its own.
    skipped_bytes: AtomicU64,
    /// Buffers of blocks that were parsed and dropped.
    buffers: Mutex<Vec<Vec<u8>>>,
}

struct EdgeFile {
    file: Arc<InputFile>,
    finished: AtomicBool,
    content: Content,
}

enum Content {
    /// No edges.
    Nothing,
    Text {
        text: TextFile,
        next: AtomicU64,
    },
    PackedText {
        layout: TextLayout,
        compression: Compression,
        /// Opened when its turn comes, closed at its end.
        stream: Mutex<Option<TextStream>>,
    },
    Table {
        table: Table,
        next: AtomicU64,
        /// Held while reading a table that must be read front to back.
        turn: Mutex<()>,
    },
    Parquet {
        parquet: ParquetFile,
        next: AtomicU64,
    },
}

/// What a worker that came for a block of a file gets.
enum Taken<'a> {
    Block(RawBlock<'a>),
    /// Another worker is unpacking the file.
    Busy,
    /// There are no more blocks.
    Finished,
}

impl EdgeSource {
    /// Opens all files, tells their formats, and checks their headers and sizes. Reads at most the first lines.
    pub fn open(paths: &[PathBuf], options: EdgeSourceOptions) -> Result<Self> {
        assert!(options.block_bytes > 0, "a block needs at least one byte");
        if paths.is_empty() {
            return Err(Error::out_of_range("--edges", "at least one file", "none"));
        }
        let mut files = Vec::with_capacity(paths.len());
        let mut rows_before = Some(0);
        let mut weighted: Option<(bool, &Path)> = None;
        let mut weights = options.weights.as_deref().map(Weights::open).transpose()?;
        for path in paths {
            let file = InputFile::open(path)?;
            let content = Content::open(&file, &options)?;
            if matches!(content, Content::Nothing) {
                files.push(EdgeFile {
                    file,
                    finished: AtomicBool::new(true),
                    content,
                });
                continue;
            }
            let file_weighted = content.weighted();
            if weights.is_some() && file_weighted {
                return Err(Error::input(
                    path,
                    Position::Whole,
                    "the edges have weights in a third column; omit --weights, or drop the column",
                ));
            }
            if let Some((others, other)) = weighted
                && others != file_weighted
            {
                let (with, without) = if others {
                    (other, path.as_path())
                } else {
                    (path.as_path(), other)
                };
                return Err(Error::input(
                    without,
                    Position::Whole,
                    format!(
                        "edges here have no weight, those of {} have one; all files must agree",
                        with.display()
                    ),
                ));
            }
            weighted = Some((file_weighted, path));
            rows_before = content.rows().zip(rows_before).map(|(rows, before)| rows + before);
            if weights.is_some() && rows_before.is_none() {
                return Err(Error::input(
                    path,
                    Position::Whole,
                    "--weights goes with .npy, u32, u64 and Parquet edges, whose rows are counted; in text, make the \
                     weight a third column",
                ));
            }
            files.push(EdgeFile {
                file,
                finished: AtomicBool::new(false),
                content,
            });
        }
        let Some((in_columns, _)) = weighted else {
            return Err(Error::input(
                &paths[0],
                Position::Whole,
                if paths.len() == 1 {
                    "there are no edges in this file"
                } else {
                    "there are no edges in this file, nor in any of the others"
                },
            ));
        };
        if let Some(weights) = &mut weights {
            weights.expect_rows(rows_before.expect("checked with each file"))?;
        }
        let weighted = in_columns || weights.is_some();
        let mut first_row = 0;
        for file in &mut files {
            let rows = file.content.rows().unwrap_or(0);
            match &mut file.content {
                Content::Table { table, .. } => table.attach(first_row, weights.clone(), options.block_bytes),
                Content::Parquet { parquet, .. } => parquet.attach(first_row, weights.clone(), options.block_bytes),
                Content::Nothing | Content::Text { .. } | Content::PackedText { .. } => {}
            }
            first_row += rows;
        }
        Ok(Self {
            files,
            options,
            weighted,
            front: AtomicUsize::new(0),
            skipped_bytes: AtomicU64::new(0),
            buffers: Mutex::default(),
        })
    }

    /// Bytes of all files (of an archive, those of its edges) as they are on disk, compressed or not: what [`RawBlock::input_bytes`] adds up to.
    pub fn total_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| match &file.content {
                Content::Nothing => 0,
                Content::Table { table, .. } => table.total_bytes(),
                Content::Text { .. } | Content::PackedText { .. } | Content::Parquet { .. } => file.file.bytes(),
            })
            .sum()
    }

    /// How many rows there are, if that is known before reading: with every format but text.
    pub fn edges_hint(&self) -> Option<u64> {
        self.files
            .iter()
            .try_fold(0, |sum: u64, file| Some(sum + file.content.rows()?))
    }

    /// Whether every edge has a weight.
    pub fn weighted(&self) -> bool {
        self.weighted
    }

    /// The options the source was opened with.
    pub fn options(&self) -> &EdgeSourceOptions {
        &self.options
    }

    /// The path of a block's file.
    pub fn path(&self, file: u32) -> &Path {
        self.files[file as usize].file.path()
    }

    /// Reads the next block that nobody has read and `skip` does not want left out; none when all are taken. Blocks
    /// come in no particular order.
    pub fn next_block(&self, skip: &dyn Fn(BlockId) -> bool) -> Result<Option<RawBlock<'_>>> {
        loop {
            let mut busy = None;
            for index in self.front.load(Ordering::Acquire)..self.files.len() {
                let file = &self.files[index];
                if file.finished.load(Ordering::Acquire) {
                    // Harmless if another thread has moved it further meanwhile: it is where the search starts.
                    let _ = self
                        .front
                        .compare_exchange(index, index + 1, Ordering::AcqRel, Ordering::Relaxed);
                    continue;
                }
                match self.take(index, skip, false)? {
                    Taken::Block(block) => return Ok(Some(block)),
                    Taken::Busy => busy = busy.or(Some(index)),
                    Taken::Finished => {}
                }
            }
            // Every file is finished, or others are unpacking those that are not: then wait for one of these.
            let Some(index) = busy else { return Ok(None) };
            if let Taken::Block(block) = self.take(index, skip, true)? {
                return Ok(Some(block));
            }
        }
    }

    /// Fails unless the bytes of all archives have the CRCs that they should have. Bytes that were not read, as those of
    /// skipped blocks, are read now. Nothing that was read may be believed before.
    pub fn check(&self) -> Result<()> {
        self.files.iter().try_for_each(|file| match &file.content {
            Content::Table { table, .. } => table.check(),
            // Compressed text has checksums of its own, which are checked as it is unpacked; Parquet pages may have.
            Content::Nothing | Content::Text { .. } | Content::PackedText { .. } | Content::Parquet { .. } => Ok(()),
        })
    }

    /// Takes a block of this file, if need be after waiting for who is unpacking it.
    fn take(&self, index: usize, skip: &dyn Fn(BlockId) -> bool, wait: bool) -> Result<Taken<'_>> {
        fn lock<T>(mutex: &Mutex<T>, wait: bool) -> Option<MutexGuard<'_, T>> {
            match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if wait => Some(mutex.lock().unwrap_or_else(PoisonError::into_inner)),
                Err(TryLockError::WouldBlock) => None,
            }
        }
        let block = match &self.files[index].content {
            Content::Nothing => None,
            Content::Text { text, next } => self
                .claim(index, next, text.blocks(), &|block| text.input_bytes(block), skip)
                .map(|id| self.read_text(index, text, id)),
            Content::PackedText { stream, .. } => {
                let Some(mut stream) = lock(stream, wait) else {
                    return Ok(Taken::Busy);
                };
                self.read_packed(index, &mut stream, skip).transpose()
            }
            Content::Table { table, next, turn } => {
                let turn = if table.is_sequential() {
                    match lock(turn, wait) {
                        Some(turn) => Some(turn),
                        None => return Ok(Taken::Busy),
                    }
                } else {
                    None
                };
                let block = self
                    .claim(index, next, table.blocks(), &|block| table.input_bytes(block), skip)
                    .map(|id| self.read_table(index, table, id));
                drop(turn);
                block
            }
            // A worker reads its own pages while it parses them.
            Content::Parquet { parquet, next } => self
                .claim(index, next, parquet.blocks(), &|block| parquet.input_bytes(block), skip)
                .map(|id| Ok(self.block(index, id, parquet.input_bytes(id.block)))),
        };
        Ok(block.transpose()?.map_or(Taken::Finished, Taken::Block))
    }

    /// Takes the next wanted block of a file whose blocks are known, and marks the file finished after its last.
    fn claim(
        &self,
        index: usize,
        next: &AtomicU64,
        blocks: u64,
        input_bytes: &dyn Fn(u64) -> u64,
        skip: &dyn Fn(BlockId) -> bool,
    ) -> Option<BlockId> {
        loop {
            // Beyond the last block the counter grows by a few at most: once finished is set nobody comes here.
            let block = next.fetch_add(1, Ordering::Relaxed);
            if block >= blocks {
                self.files[index].finished.store(true, Ordering::Release);
                return None;
            }
            let id = BlockId {
                file: index as u32,
                block,
            };
            if !skip(id) {
                return Some(id);
            }
            self.skipped_bytes.fetch_add(input_bytes(block), Ordering::Relaxed);
        }
    }

    fn read_text<'a>(&'a self, index: usize, text: &'a TextFile, id: BlockId) -> Result<RawBlock<'a>> {
        let mut block = self.block(index, id, text.input_bytes(id.block));
        let lines = text.read(id.block, &mut block.buffer)?;
        block.payload = Payload::Lines {
            start: lines.start,
            end: lines.end,
            offset: lines.offset,
            first_line: None,
        };
        Ok(block)
    }

    fn read_table<'a>(&'a self, index: usize, table: &'a Table, id: BlockId) -> Result<RawBlock<'a>> {
        let mut block = self.block(index, id, table.input_bytes(id.block));
        table.read(id.block, &mut block.buffer)?;
        block.payload = Payload::Rows;
        Ok(block)
    }

    /// Unpacks the next wanted block; none at the end of the file.
    fn read_packed(
        &self,
        index: usize,
        stream: &mut Option<TextStream>,
        skip: &dyn Fn(BlockId) -> bool,
    ) -> Result<Option<RawBlock<'_>>> {
        let file = &self.files[index];
        let Content::PackedText {
            layout, compression, ..
        } = &file.content
        else {
            unreachable!("only packed text is unpacked")
        };
        if file.finished.load(Ordering::Acquire) {
            return Ok(None);
        }
        let open = match stream {
            Some(stream) => stream,
            None => stream.insert(TextStream::open(
                &file.file,
                *compression,
                layout,
                self.options.block_bytes,
            )?),
        };
        let mut block = self.block(
            index,
            BlockId {
                file: index as u32,
                block: 0,
            },
            0,
        );
        while let Some(lines) = open.next_block(&mut block.buffer)? {
            let id = BlockId {
                file: index as u32,
                block: lines.block,
            };
            if skip(id) {
                self.skipped_bytes.fetch_add(lines.input_bytes, Ordering::Relaxed);
                continue;
            }
            block.id = id;
            block.input_bytes = lines.input_bytes + self.skipped_bytes.swap(0, Ordering::Relaxed);
            block.payload = Payload::Lines {
                start: 0,
                end: lines.end,
                offset: lines.offset,
                first_line: Some(lines.first_line),
            };
            return Ok(Some(block));
        }
        *stream = None;
        file.finished.store(true, Ordering::Release);
        Ok(None)
    }

    /// A block with a buffer, and nothing in it yet.
    fn block(&self, index: usize, id: BlockId, input_bytes: u64) -> RawBlock<'_> {
        let buffer = self
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default();
        RawBlock {
            source: self,
            file: &self.files[index],
            id,
            input_bytes: input_bytes + self.skipped_bytes.swap(0, Ordering::Relaxed),
            buffer,
            payload: Payload::Rows,
        }
    }
}

/// A block's bytes, read and not yet parsed. Dropping it gives its buffer to the next.
pub struct RawBlock<'a> {
    source: &'a EdgeSource,
    file: &'a EdgeFile,
    id: BlockId,
    input_bytes: u64,
    buffer: Vec<u8>,
    payload: Payload,
}

enum Payload {
    /// Whole lines in `buffer[start..end]`, the first of them at `offset` of the (unpacked) file.
    Lines {
        start: usize,
        end: usize,
        offset: u64,
        /// Its number from 1, where that is known without counting.
        first_line: Option<u64>,
    },
    /// What [`Table::read`] left in the buffer; nothing for Parquet, which is read as it is parsed.
    Rows,
}

impl Drop for RawBlock<'_> {
    fn drop(&mut self) {
        self.source
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(std::mem::take(&mut self.buffer));
    }
}

impl RawBlock<'_> {
    /// Its place in the input.
    pub fn id(&self) -> BlockId {
        self.id
    }

    /// Bytes of the input file it took, and those of skipped blocks before it: for progress.
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes
    }

    /// That what is read now differs from what was read before.
    pub fn changed(&self) -> Error {
        let what =
            "there are ids that were not there when the file was read first: something is changing it; start again";
        Error::input(self.file.file.path(), Position::Whole, what)
    }

    /// Parses integer ids into `into`, which is emptied first.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::String`].
    pub fn parse(&self, into: &mut EdgeBatch) -> Result<()> {
        assert_eq!(
            self.source.options.ids,
            IdKind::Integer,
            "string ids are parsed by parse_text"
        );
        into.clear();
        let limit = self.source.options.id_limit;
        let mut rejected = std::mem::take(&mut into.rejected);
        let result = match (&self.file.content, &self.payload) {
            (Content::Parquet { parquet, .. }, _) => {
                parquet.parse(self.id.block, limit, into, &mut |row, line, bad| {
                    self.reject(Position::Row(row), line, bad, &mut rejected)
                })
            }
            (Content::Table { table, .. }, _) => {
                table.parse(self.id.block, &self.buffer, limit, into, &mut |row, line, bad| {
                    self.reject(Position::Row(row), line, bad, &mut rejected)
                })
            }
            (_, &Payload::Lines { start, end, .. }) => {
                let mut lines = LineCounter::new(start);
                parse_edges(
                    Block::new(&self.buffer, start, end),
                    self.source.weighted,
                    limit,
                    into,
                    &mut |at, line, bad| {
                        let position = self.line(&mut lines, at)?;
                        self.reject(position, line, bad, &mut rejected)
                    },
                    &|at, what| self.long(at, what),
                )
            }
            (_, Payload::Rows) => unreachable!("text has lines"),
        };
        into.rejected = rejected;
        result
    }

    /// Parses string ids into `into`, which is emptied first.
    ///
    /// # Panics
    /// If the source was opened with [`IdKind::Integer`].
    pub fn parse_text(&self, into: &mut TextBatch) -> Result<()> {
        assert_eq!(
            self.source.options.ids,
            IdKind::String,
            "integer ids are parsed by parse"
        );
        into.clear();
        let mut rejected = std::mem::take(&mut into.rejected);
        let result = match (&self.file.content, &self.payload) {
            (Content::Parquet { parquet, .. }, _) => parquet.parse_text(self.id.block, into, &mut |row, line, bad| {
                self.reject(Position::Row(row), line, bad, &mut rejected)
            }),
            (Content::Text { text, .. }, &Payload::Lines { start, end, .. }) => {
                self.parse_keys(text.layout(), start, end, into, &mut rejected)
            }
            (Content::PackedText { layout, .. }, &Payload::Lines { start, end, .. }) => {
                self.parse_keys(layout, start, end, into, &mut rejected)
            }
            (Content::Table { .. }, _) => unreachable!("tables of numbers are refused when opened for strings"),
            (Content::Nothing, _) => unreachable!("nothing has no blocks"),
            (_, Payload::Rows) => unreachable!("text has lines"),
        };
        into.rejected = rejected;
        result
    }

    fn parse_keys(
        &self,
        layout: &TextLayout,
        start: usize,
        end: usize,
        into: &mut TextBatch,
        rejected: &mut Vec<Reject>,
    ) -> Result<()> {
        let mut lines = LineCounter::new(start);
        parse_keys(
            Block::new(&self.buffer, start, end),
            self.source.weighted,
            layout.separator,
            into,
            &mut |at, line, bad| {
                let position = self.line(&mut lines, at)?;
                self.reject(position, line, bad, rejected)
            },
            &|at, what| self.long(at, what),
        )
    }

    fn reject(&self, position: Position, line: &[u8], bad: BadEdge, rejected: &mut Vec<Reject>) -> Result<()> {
        match self.source.options.on_bad_line {
            OnBadLine::Fail => Err(Error::input(self.file.file.path(), position, bad.message(line))),
            OnBadLine::Skip => {
                rejected.push(Reject::new(position, bad, line));
                Ok(())
            }
        }
    }

    fn long(&self, at: usize, what: String) -> Error {
        let Payload::Lines { start, .. } = self.payload else {
            unreachable!("rows have no length")
        };
        match self.line(&mut LineCounter::new(start), at) {
            Ok(position) => Error::input(self.file.file.path(), position, what),
            Err(error) => error,
        }
    }

    /// The number of the line at `at` in the buffer. Later lines must be asked for later.
    fn line(&self, counter: &mut LineCounter, at: usize) -> Result<Position> {
        let &Payload::Lines { offset, first_line, .. } = &self.payload else {
            unreachable!("rows have no line numbers")
        };
        if counter.line == 0 {
            counter.line = match (first_line, &self.file.content) {
                (Some(line), _) => line,
                (None, Content::Text { text, .. }) => text.line_at(offset)?,
                (None, _) => unreachable!("streams count lines as they go"),
            };
        }
        counter.line += memchr::memchr_iter(b'\n', &self.buffer[counter.at..at]).count() as u64;
        counter.at = at;
        Ok(Position::Line(counter.line))
    }
}

/// Counts the lines of a block on the way from one bad line to the next. Nothing is counted until there is one.
struct LineCounter {
    at: usize,
    /// The number of the line at `at`; 0 as long as that of the block's first line is not known.
    line: u64,
}

impl LineCounter {
    fn new(start: usize) -> Self {
        Self { at: start, line: 0 }
    }
}

impl Content {
    /// What is in `file`.
    fn open(file: &Arc<InputFile>, options: &EdgeSourceOptions) -> Result<Self> {
        let head = file.head(64 << 10)?;
        if head.is_empty() {
            return Ok(Self::Nothing);
        }
        let compression = Compression::of(&head);
        let format = match options.format {
            EdgeFormat::Auto => format_of(file.path(), &head, compression)?,
            format => format,
        };
        if matches!(format, EdgeFormat::Tsv | EdgeFormat::Csv) {
            let Some(layout) = TextLayout::sniff(file, compression, format == EdgeFormat::Csv, options)? else {
                return Ok(Self::Nothing);
            };
            return Ok(if compression == Compression::None {
                Self::Text {
                    text: TextFile::new(file.clone(), layout, options.block_bytes),
                    next: AtomicU64::new(0),
                }
            } else {
                Self::PackedText {
                    layout,
                    compression,
                    stream: Mutex::new(None),
                }
            });
        }
        let refuse = |what: &str| Err(Error::input(file.path(), Position::Whole, what));
        // Raw pairs may begin with any bytes, so for them the name has to say it too.
        let raw = matches!(format, EdgeFormat::U32 | EdgeFormat::U64);
        if compression != Compression::None && (!raw || names_compression(file.path())) {
            return refuse("a compressed binary file cannot be read from several places at once; unpack it first");
        }
        if format == EdgeFormat::Parquet {
            let parquet = ParquetFile::open(file, options.ids)?;
            if parquet.rows() == 0 {
                return Ok(Self::Nothing);
            }
            return Ok(Self::Parquet {
                parquet,
                next: AtomicU64::new(0),
            });
        }
        if options.ids == IdKind::String {
            return refuse("the ids in this file are integers; omit --ids string (--ids sparse takes any integers)");
        }
        let table = match format {
            EdgeFormat::Npy if head.starts_with(zip::MAGIC) => {
                Table::npy(Npz::open(file)?.first_of(&["edge_index", "edges", "edge_list"], "edges")?)?
            }
            EdgeFormat::Npy => Table::npy(npy::NpyArray::open(file)?)?,
            EdgeFormat::U32 => Table::raw(file.clone(), IdType::U32)?,
            EdgeFormat::U64 => Table::raw(file.clone(), IdType::U64)?,
            EdgeFormat::Auto | EdgeFormat::Tsv | EdgeFormat::Csv | EdgeFormat::Parquet => {
                unreachable!("decided above")
            }
        };
        if table.rows() == 0 {
            return Ok(Self::Nothing);
        }
        Ok(Self::Table {
            table,
            next: AtomicU64::new(0),
            turn: Mutex::new(()),
        })
    }

    fn weighted(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Text { text, .. } => text.layout().weighted,
            Self::PackedText { layout, .. } => layout.weighted,
            Self::Table { .. } => false,
            Self::Parquet { parquet, .. } => parquet.weighted(),
        }
    }

    fn rows(&self) -> Option<u64> {
        match self {
            Self::Nothing => Some(0),
            Self::Text { .. } | Self::PackedText { .. } => None,
            Self::Table { table, .. } => Some(table.rows()),
            Self::Parquet { parquet, .. } => Some(parquet.rows()),
        }
    }
}

/// Tells a file's format from its first bytes, then its name.
fn format_of(path: &Path, head: &[u8], compression: Compression) -> Result<EdgeFormat> {
    if head.starts_with(npy::MAGIC) || head.starts_with(zip::MAGIC) {
        return Ok(EdgeFormat::Npy);
    }
    if head.starts_with(b"PAR1") {
        return Ok(EdgeFormat::Parquet);
    }
    let mut name = PathBuf::from(path.file_name().unwrap_or_default());
    if compression != Compression::None && names_compression(&name) {
        name.set_extension("");
    }
    Ok(match extension(&name).as_str() {
        "csv" => EdgeFormat::Csv,
        "npy" | "npz" => EdgeFormat::Npy,
        "parquet" | "pq" => EdgeFormat::Parquet,
        "u32" => EdgeFormat::U32,
        "u64" => EdgeFormat::U64,
        _ if compression == Compression::None && head.contains(&0) => {
            return Err(Error::input(
                path,
                Position::Offset(head.iter().position(|&byte| byte == 0).unwrap_or(0) as u64),
                "a NUL byte: this is a binary file (name its --format: npy, u32, u64 or parquet) or text in UTF-16 \
                 (convert it: iconv -t utf-8)",
            ));
        }
        _ => EdgeFormat::Tsv,
    })
}

/// A name's last extension, in lower case.
fn extension(name: &Path) -> String {
    name.extension()
        .map(|extension| extension.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default()
}

fn names_compression(name: &Path) -> bool {
    matches!(extension(name).as_str(), "gz" | "zst" | "zstd" | "bgz")
}
