//! The files that an engine reads, and their descriptors.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use grappa_formats::FormatError;
use rustix::{
    fs::{Advice, AtFlags, OFlags, StatxFlags},
    io::Errno,
    process::{Resource, getrlimit},
};

use super::{
    request::{FileIndex, Read},
    transfer,
};
use crate::{Error, Result, identity::Identity, regular};

/// Alignment of direct reads if the kernel does not report it: a page, because blocks of a disk are no larger.
pub(super) const ALIGN_MAX: u32 = 4096;

/// A file to read. Holds no descriptor.
#[derive(Debug, Clone)]
pub struct ReadFile {
    path: PathBuf,
    identity: Identity,
    /// Reads in multiples of this number of bytes may bypass the page cache. None if none may.
    direct_align: Option<u32>,
}

impl ReadFile {
    /// Checks the file `path` and records its identity. If `expected` is given, the file must have this length in
    /// bytes.
    pub fn open(path: &Path, expected: Option<u64>) -> Result<Self> {
        let file = regular::open(path)?;
        let identity = Identity::from_file(&file, path)?;
        if let Some(expected) = expected
            && expected != identity.bytes()
        {
            return Err(Error::format(path)(FormatError::Length { part: "file", expected, found: identity.bytes() }));
        }
        Ok(Self { path: path.to_owned(), identity, direct_align: direct_align(&file) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.identity.bytes()
    }

    /// Fails with [`Error::Changed`] if the file was replaced, written to, truncated or extended after it was opened.
    /// Costs a system call.
    ///
    /// If the check passes, all bytes read before it are from the file at the time of opening. Exception: the clock
    /// of the file system has a resolution of some milliseconds.
    pub fn check_unchanged(&self) -> Result<()> {
        self.identity.check_path(&self.path)
    }
}

fn direct_align(file: &File) -> Option<u32> {
    let status = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let Some(status) = status.ok().filter(|status| status.stx_mask & StatxFlags::DIOALIGN.bits() != 0) else {
        // Direct reads are tried if the file system does not report it.
        return Some(ALIGN_MAX);
    };
    // Buffers start at multiples of a page.
    let (align, memory) = (status.stx_dio_offset_align, status.stx_dio_mem_align);
    (align.is_power_of_two() && align <= ALIGN_MAX && memory <= ALIGN_MAX).then_some(align)
}

/// An open file, as one engine reads it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: File,
    /// Reads start and end at multiples of this. 1 unless reads are direct.
    pub(super) align: u32,
}

/// The open files of one engine: all files if the limit allows it, otherwise those read last.
pub(super) struct Descriptors {
    files: Arc<[ReadFile]>,
    direct: bool,
    capacity: usize,
    cells: Vec<FileCell>,
    /// The open files, in the order of the second-chance clock.
    clock: VecDeque<FileIndex>,
}

#[derive(Default)]
struct FileCell {
    open: Option<Arc<Open>>,
    /// Whether the file was used since the clock's hand last passed.
    used: bool,
    direct_refused: bool,
}

impl Descriptors {
    /// Opens nothing yet. With `direct`, files are opened to bypass the page cache if their file system supports it.
    pub(super) fn new(files: Arc<[ReadFile]>, direct: bool) -> Self {
        static TOLD: Once = Once::new();
        let capacity = free_descriptors();
        if capacity < files.len() {
            TOLD.call_once(|| {
                tracing::warn!(
                    "{} files are to be read, but at most {capacity} may be open at once: files are closed and reopened, \
                     which is slower; raise the limit (`ulimit -n`)",
                    files.len()
                );
            });
        }
        Self {
            direct,
            capacity,
            cells: files.iter().map(|_| FileCell::default()).collect(),
            clock: VecDeque::new(),
            files,
        }
    }

    pub(super) fn files(&self) -> &[ReadFile] {
        &self.files
    }

    /// Fails if a read ends beyond the length that its file had when it was opened.
    pub(super) fn check_end(&self, read: &Read) -> Result<()> {
        let bytes = self.files[read.file.0 as usize].bytes();
        transfer::check_end(read, bytes).map_err(|source| self.error(read, source))
    }

    pub(super) fn error(&self, read: &Read, source: io::Error) -> Error {
        Error::Read { path: self.files[read.file.0 as usize].path.clone(), offset: read.offset, source }
    }

    /// Opens all files. None if the limit is too low.
    pub(super) fn open_all(&mut self) -> Result<Option<Vec<Arc<Open>>>> {
        if self.capacity < self.files.len() {
            return Ok(None);
        }
        let mut all = Vec::with_capacity(self.files.len());
        for index in 0..self.files.len() as u32 {
            match self.get(FileIndex(index))? {
                Some(open) => all.push(open),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// An open file, which stays open while the caller keeps it. None if the limit of open files is reached and all are
    /// in use: a read must complete first.
    ///
    /// # Panics
    /// If there is no such file.
    pub(super) fn get(&mut self, index: FileIndex) -> Result<Option<Arc<Open>>> {
        let cell = &mut self.cells[index.0 as usize];
        cell.used = true;
        if let Some(open) = &cell.open {
            return Ok(Some(open.clone()));
        }
        let direct = self.direct && !cell.direct_refused;
        while self.clock.len() >= self.capacity {
            if !self.close_one() {
                return Ok(None);
            }
        }
        let open = loop {
            match self.files[index.0 as usize].descriptor(direct) {
                Ok(open) => break Arc::new(open),
                Err(Error::Io { source, .. }) if is_out_of_descriptors(&source) && !self.clock.is_empty() => {
                    // Other code of this process took the descriptors that we counted on.
                    if !self.close_one() {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(error),
            }
        };
        self.cells[index.0 as usize].open = Some(open.clone());
        self.clock.push_back(index);
        Ok(Some(open))
    }

    /// Opens a file through the page cache, now and later: its file system accepts direct opens, but not direct reads.
    pub(super) fn refuse_direct(&mut self, index: FileIndex) -> Result<Arc<Open>> {
        let (file, cell) = (&self.files[index.0 as usize], &mut self.cells[index.0 as usize]);
        if let Some(open) = &cell.open
            && cell.direct_refused
        {
            // Another read of this file was refused before.
            return Ok(open.clone());
        }
        tell_buffered(&file.path);
        let open = Arc::new(file.descriptor(false)?);
        cell.direct_refused = true;
        if cell.open.replace(open.clone()).is_none() {
            self.clock.push_back(index);
        }
        Ok(open)
    }

    /// Closes approximately the least recently used file. False if reads use all files.
    fn close_one(&mut self) -> bool {
        // The first round clears the `used` flags.
        for _ in 0..2 * self.clock.len() {
            let Some(index) = self.clock.pop_front() else { break };
            let cell = &mut self.cells[index.0 as usize];
            let kept = cell.open.as_ref().is_some_and(|open| Arc::strong_count(open) > 1);
            if !kept && !cell.used {
                cell.open = None;
                return true;
            }
            cell.used = false;
            self.clock.push_back(index);
        }
        false
    }
}

impl ReadFile {
    fn open_with(&self, flags: OFlags) -> Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits() as i32)
            .open(&self.path)
            .map_err(Error::io("open", &self.path))?;
        self.identity.check_file(&file, &self.path)?;
        Ok(file)
    }

    fn descriptor(&self, direct: bool) -> Result<Open> {
        if direct && let Some(align) = self.direct_align {
            match self.open_with(OFlags::DIRECT) {
                Ok(file) => return Ok(Open { file, align }),
                Err(Error::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
        if direct {
            tell_buffered(&self.path);
        }
        let file = self.open_with(OFlags::empty())?;
        // All reads are explicit, so readahead would waste memory and bandwidth. An error is harmless: it is only
        // advice.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Open { file, align: 1 })
    }
}

fn tell_buffered(path: &Path) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            "the file system of {} does not support direct reads (O_DIRECT): reads go through the page cache, which takes \
             memory and is slower",
            path.display()
        );
    });
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Maximum number of descriptors of an engine: half of those that the process may still open, at least 1.
fn free_descriptors() -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return usize::MAX;
    };
    let taken = fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
    ((limit as usize).saturating_sub(taken) / 2).max(1)
}
