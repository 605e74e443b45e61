//! Edge lists, cut into blocks that many threads read and parse at once.

mod bad_edge;
mod batch;
mod block;
mod content;
mod edge_weights;
mod fields;
mod layout;
mod options;
mod packed_text;
mod parquet;
mod parse;
mod row_check;
mod table;
mod text;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use grappa_io::{Error, Position, Result};

pub use self::{
    bad_edge::{BadEdge, IdLimit},
    batch::{EdgeBatch, Keys, REJECT_BYTES_MAX, Reject, TextBatch},
    block::RawBlock,
    options::{BlockId, EdgeFormat, EdgeSourceOptions, IdKind, OnBadLine},
};
use self::{
    block::Payload, content::Content, edge_weights::EdgeWeights, packed_text::TextStream, table::Table, text::TextFile,
};
pub(crate) use self::{fields::integer, fields::is_comment, fields::trim};
use crate::file::InputFile;

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

/// What a worker that came for a block of a file gets.
enum NextBlock<'a> {
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
        let mut weights = options.weights.as_deref().map(EdgeWeights::open).transpose()?;
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
                    NextBlock::Block(block) => return Ok(Some(block)),
                    NextBlock::Busy => busy = busy.or(Some(index)),
                    NextBlock::Finished => {}
                }
            }
            // Every file is finished, or others are unpacking those that are not: then wait for one of these.
            let Some(index) = busy else { return Ok(None) };
            if let NextBlock::Block(block) = self.take(index, skip, true)? {
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
            Content::Nothing => None,
            Content::Text { text, next } => self
                .claim(index, next, text.blocks(), &|block| text.input_bytes(block), skip)
                .map(|id| self.read_text(index, text, id)),
            Content::PackedText { stream, .. } => {
                let Some(mut stream) = lock(stream, wait) else {
                    return Ok(NextBlock::Busy);
                };
                self.read_packed(index, &mut stream, skip).transpose()
            }
            Content::Table { table, next, turn } => {
                let turn = if table.is_sequential() {
                    match lock(turn, wait) {
                        Some(turn) => Some(turn),
                        None => return Ok(NextBlock::Busy),
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
        Ok(block.transpose()?.map_or(NextBlock::Finished, NextBlock::Block))
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
