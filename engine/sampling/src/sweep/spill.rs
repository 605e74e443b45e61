//! Scratch files of a sweep. They have no names, so a killed process leaves none behind.

use std::{
    fs::File,
    iter,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_formats::container::checksum;
use grappa_io::{Error, Result, heap, size::ByteSize, unnamed::unnamed_file};
use grappa_storage::writer::{damaged_scratch, scratch_error};

/// The purpose of the memory, in errors.
pub(super) const SWEEP: &str = "a sweep";

/// The disk space of all scratch files of a run.
#[derive(Debug)]
pub(super) struct DiskSpace {
    folder: PathBuf,
    bytes_max: u64,
    used: AtomicU64,
    peak: AtomicU64,
    written: AtomicU64,
}

impl DiskSpace {
    pub fn new(folder: &Path, bytes_max: u64) -> Self {
        Self {
            folder: folder.to_owned(),
            bytes_max,
            used: AtomicU64::default(),
            peak: AtomicU64::default(),
            written: AtomicU64::default(),
        }
    }

    /// Bytes that are used now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever used.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// All bytes that were written so far, also of files that are gone.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Result<()> {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(used, Ordering::Relaxed);
        self.written.fetch_add(bytes, Ordering::Relaxed);
        if used <= self.bytes_max {
            return Ok(());
        }
        Err(Error::conflict(
            format!(
                "scratch files of swept minibatches in {} exceed {}",
                self.folder.display(),
                ByteSize(self.bytes_max).rounded_up()
            ),
            "free disk space, or name a folder on a larger disk with --tmp",
        ))
    }
}

/// A scratch file that is written once and then read. Its space is free again when it is dropped.
#[derive(Debug)]
pub(super) struct ScratchFile {
    file: File,
    disk: Arc<DiskSpace>,
    bytes: AtomicU64,
}

/// Bytes of a scratch file, and their checksum.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    start: u64,
    bytes: u64,
    checksum: u64,
}

impl Extent {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl ScratchFile {
    pub fn create(disk: &Arc<DiskSpace>) -> Result<Self> {
        Ok(Self { file: unnamed_file(&disk.folder)?, disk: disk.clone(), bytes: AtomicU64::new(0) })
    }

    /// Appends bytes, and returns their place. Threads may append at the same time.
    fn append(&self, bytes: &[u8]) -> Result<u64> {
        let count = bytes.len() as u64;
        let start = self.bytes.fetch_add(count, Ordering::Relaxed);
        self.disk.take(count)?;
        self.file.write_all_at(bytes, start).map_err(Error::io("write a scratch file in", &self.disk.folder))?;
        Ok(start)
    }

    /// Appends records, which end at `ends` in `bytes`.
    pub fn append_records(&self, bytes: &[u8], ends: &[usize]) -> Result<Vec<Extent>> {
        let place = self.append(bytes)?;
        let starts = iter::once(0).chain(ends.iter().copied());
        let extents = starts.zip(ends).map(|(start, &end)| {
            let record = &bytes[start..end];
            Extent { start: place + start as u64, bytes: record.len() as u64, checksum: checksum(record) }
        });
        Ok(extents.collect())
    }

    /// Appends the bytes of an extent to `out`.
    pub fn read(&self, extent: Extent, out: &mut Vec<u8>) -> Result<()> {
        let (first, count) = (out.len(), extent.bytes as usize);
        heap::grow(out, count, SWEEP)?;
        out.resize(first + count, 0);
        let read = self.file.read_exact_at(&mut out[first..], extent.start);
        read.map_err(Error::io("read a scratch file in", &self.disk.folder)).map_err(scratch_error)?;
        match checksum(&out[first..]) == extent.checksum {
            true => Ok(()),
            false => Err(self.damaged()),
        }
    }

    /// The error about a file that is not what was written.
    pub fn damaged(&self) -> Error {
        damaged_scratch(&self.disk.folder)
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        self.disk.used.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

/// A scratch file whose records are in buckets. Threads write it by [`BucketWriter`].
#[derive(Debug)]
pub(super) struct Buckets {
    file: ScratchFile,
    extents: Vec<Mutex<Vec<Extent>>>,
}

impl Buckets {
    pub fn create(disk: &Arc<DiskSpace>, buckets: usize) -> Result<Self> {
        let extents = (0..buckets).map(|_| Mutex::default()).collect();
        Ok(Self { file: ScratchFile::create(disk)?, extents })
    }

    pub fn len(&self) -> usize {
        self.extents.len()
    }

    /// The extents of a bucket. Each has whole records.
    pub fn extents(&self, bucket: usize) -> Vec<Extent> {
        self.extents[bucket].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Bytes of a bucket.
    pub fn bytes(&self, bucket: usize) -> u64 {
        self.extents(bucket).iter().map(Extent::bytes).sum()
    }

    pub fn file(&self) -> &ScratchFile {
        &self.file
    }

    fn append(&self, bucket: usize, bytes: &[u8]) -> Result<()> {
        let extent = self.file.append_records(bytes, &[bytes.len()])?;
        self.extents[bucket].lock().unwrap_or_else(PoisonError::into_inner).extend(extent);
        Ok(())
    }
}

/// A thread's buffers of [`Buckets`].
pub(super) struct BucketWriter<'a> {
    buckets: &'a Buckets,
    buffers: Vec<Vec<u8>>,
    buffer_bytes: usize,
}

impl<'a> BucketWriter<'a> {
    /// Buffers are written when they have `buffer_bytes`.
    pub fn new(buckets: &'a Buckets, buffer_bytes: usize) -> Self {
        Self { buckets, buffers: vec![Vec::new(); buckets.len()], buffer_bytes }
    }

    /// Adds a record, which `put` appends to the buffer of its bucket. Returns whether it is the last one of an extent.
    #[inline]
    pub fn push(&mut self, bucket: usize, put: impl FnOnce(&mut Vec<u8>)) -> Result<bool> {
        let buffer = &mut self.buffers[bucket];
        put(buffer);
        if buffer.len() < self.buffer_bytes {
            return Ok(false);
        }
        self.buckets.append(bucket, buffer)?;
        buffer.clear();
        Ok(true)
    }

    /// Writes what is left.
    pub fn finish(self) -> Result<()> {
        let left = self.buffers.iter().enumerate().filter(|(_, buffer)| !buffer.is_empty());
        left.into_iter().try_for_each(|(bucket, buffer)| self.buckets.append(bucket, buffer))
    }
}

/// A scratch file with a record for each part, in their order.
#[derive(Debug)]
pub(super) struct PartFile {
    file: ScratchFile,
    records: Vec<Extent>,
}

impl PartFile {
    pub fn create(disk: &Arc<DiskSpace>) -> Result<Self> {
        Ok(Self { file: ScratchFile::create(disk)?, records: Vec::new() })
    }

    /// Appends the records of the next parts, which end at `ends` in `bytes`.
    pub fn push(&mut self, bytes: &[u8], ends: &[usize]) -> Result<()> {
        heap::grow(&mut self.records, ends.len(), SWEEP)?;
        self.records.extend(self.file.append_records(bytes, ends)?);
        Ok(())
    }

    /// Replaces `out` with the record of a part.
    pub fn read(&self, part: usize, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        self.file.read(self.records[part], out)
    }

    pub fn damaged(&self) -> Error {
        self.file.damaged()
    }
}
