//! Verifies blocks of a payload when they are first read, with the file's table of checksums.
//!
//! A file has one checksum per block of its payload. Blocks have 4 KiB in files with random access. A reader of a part
//! of a payload passes the whole blocks around it to [`Checksums::check`]. A bit per block records which ones were
//! verified; testing it costs a load. The table itself is verified with its checksum in the header before its first
//! use. It is mapped, so it is read on demand and takes no heap memory.
//!
//! A block that is read from the disk again is not verified again.

use std::{
    fs::File,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::container::Header;

use crate::{
    Error, Result,
    map::{Access, Mapping},
};

/// The checksums of one file's payload, and a record of the verified blocks. Shared by threads.
#[derive(Debug)]
pub struct Checksums {
    path: PathBuf,
    header: Header,
    /// log2 of the length of a block, if that is a power of two.
    shift: Option<u32>,
    table: Mapping,
    /// Whether the table matches the header. Computed at its first use.
    table_is_right: OnceLock<grappa_formats::Result<()>>,
    /// A bit for each block: whether it was verified.
    right: Box<[AtomicU64]>,
}

impl Checksums {
    /// The checksums of the open file `path`. Reads nothing yet.
    pub(super) fn new(path: &Path, file: &File, header: Header) -> Result<Self> {
        let table = header.table_offset()..header.table_offset() + header.blocks() * 8;
        Ok(Self {
            path: path.to_owned(),
            shift: header.block_bytes.is_power_of_two().then(|| header.block_bytes.trailing_zeros()),
            table: Mapping::part(file, path, table, Access::Random)?,
            table_is_right: OnceLock::new(),
            right: (0..header.blocks().div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            header,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether all blocks that contain these bytes of the payload were verified. False for bytes beyond its end.
    #[inline(always)]
    pub fn are_right(&self, payload: Range<u64>) -> bool {
        if payload.start >= payload.end {
            return true;
        }
        let (first, last) = (self.block_of(payload.start), self.block_of(payload.end - 1));
        let (first_word, last_word) = (first / 64, last / 64);
        let (from, to) = (u64::MAX << (first % 64), u64::MAX >> (63 - last % 64));
        if first_word == last_word {
            return !self.bits(first_word) & from & to == 0;
        }
        !self.bits(first_word) & from == 0
            && (first_word + 1..last_word).all(|word| self.bits(word) == u64::MAX)
            && !self.bits(last_word) & to == 0
    }

    /// Word `word` of the record of verified blocks. 0 beyond its end.
    #[inline(always)]
    fn bits(&self, word: u64) -> u64 {
        match self.right.get(word as usize) {
            Some(bits) => bits.load(Ordering::Relaxed),
            None => 0,
        }
    }

    /// The range of the whole blocks that contain these bytes of the payload.
    pub fn blocks_around(&self, payload: Range<u64>) -> Range<u64> {
        if payload.start >= payload.end {
            return payload;
        }
        let block_bytes = u64::from(self.header.block_bytes);
        let end = payload.end.next_multiple_of(block_bytes);
        payload.start / block_bytes * block_bytes..end.min(self.header.payload_bytes)
    }

    /// Verifies the blocks that `bytes` contains whole, unless they were verified before. `bytes` are the bytes of the
    /// payload from `start` on. The error does not name the file.
    pub fn check(&self, start: u64, bytes: &[u8]) -> grappa_formats::Result<()> {
        let end = start + bytes.len() as u64;
        let block_bytes = u64::from(self.header.block_bytes);
        for index in start.div_ceil(block_bytes)..self.header.blocks() {
            let block = self.header.block(index);
            if block.end > end {
                break;
            }
            if !self.is_right(index) {
                self.check_block(index, &bytes[(block.start - start) as usize..(block.end - start) as usize])?;
            }
        }
        Ok(())
    }

    /// Verifies all blocks that overlap `bytes`, which are the bytes of the payload from `start` on. `read` reads a block
    /// that is not whole in `bytes`: it gets a buffer of the block's length and the block's offset in the payload.
    pub fn check_with(
        &self,
        start: u64,
        bytes: &[u8],
        mut read: impl FnMut(&mut [u8], u64) -> Result<()>,
    ) -> Result<()> {
        let end = start + bytes.len() as u64;
        if self.are_right(start..end) {
            return Ok(());
        }
        self.check(start, bytes).map_err(Error::format(&self.path))?;
        let mut buffer = Vec::new();
        // Only the first and the last block can be unverified.
        for index in [self.block_of(start), self.block_of(end - 1)] {
            if !self.is_right(index) {
                let block = self.header.block(index);
                buffer.resize((block.end - block.start) as usize, 0);
                read(&mut buffer, block.start)?;
                // The caller uses its own bytes, so these are verified, with the rest of the block.
                let (from, to) = (start.max(block.start), end.min(block.end));
                buffer[(from - block.start) as usize..(to - block.start) as usize]
                    .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
                self.check_block(index, &buffer).map_err(Error::format(&self.path))?;
            }
        }
        Ok(())
    }

    /// Compares a block with its checksum, and records success.
    fn check_block(&self, index: u64, bytes: &[u8]) -> grappa_formats::Result<()> {
        self.check_table()?;
        self.header.check_block(&self.table, index, bytes)?;
        self.right[(index / 64) as usize].fetch_or(1 << (index % 64), Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn check_table(&self) -> grappa_formats::Result<()> {
        let checked = self.table_is_right.get_or_init(|| {
            self.table.read_ahead();
            let checked = self.header.check_table(&self.table);
            self.table.release_all();
            checked
        });
        checked.clone()
    }

    #[inline(always)]
    fn is_right(&self, index: u64) -> bool {
        self.right[(index / 64) as usize].load(Ordering::Relaxed) >> (index % 64) & 1 == 1
    }

    #[inline(always)]
    fn block_of(&self, byte: u64) -> u64 {
        match self.shift {
            Some(shift) => byte >> shift,
            None => byte / u64::from(self.header.block_bytes),
        }
    }

    /// Maximum memory in bytes: after the whole table was read.
    pub fn memory_bytes(&self) -> u64 {
        (self.table.len() + self.right.len() * size_of::<u64>()) as u64
    }

    /// Releases the memory of the table's pages.
    pub fn release(&self) {
        self.table.release_all();
    }
}
