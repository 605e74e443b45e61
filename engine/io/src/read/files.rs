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

use super::{FileIndex, Read, transfer};
use crate::{Error, Result, identity::Identity, regular};

/// What direct reads are aligned to where the kernel does not say: a page, which a disk's blocks do not exceed.
pub(super) const ALIGN_MAX: u32 = 4096;

/// A file that is to be read. Holds no descriptor.
#[derive(Debug, Clone)]
pub struct ReadFile {
    path: PathBuf,
    identity: Identity,
    direct: Direct,
}

/// Whether reads may bypass the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direct {
    /// In multiples of so many bytes.
    Aligned(u32),
    /// The file system does not say: it is tried, in multiples of [`ALIGN_MAX`].
    Unknown,
    /// The file system says no.
    Refused,
}

impl ReadFile {
    /// Looks at the file `path`, and remembers which one it is. If `expected` is given, its length in bytes must be that.
    pub fn open(path: &Path, expected: Option<u64>) -> Result<Self> {
        let file = regular::open(path)?;
        let identity = Identity::of(&file, path)?;
        if let Some(expected) = expected
            && expected != identity.bytes()
        {
            return Err(Error::format(path)(FormatError::Length {
                what: "file",
                expected,
                found: identity.bytes(),
            }));
        }
        Ok(Self {
            path: path.to_owned(),
            identity,
            direct: Direct::of(&file),
        })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes when it was opened.
    pub fn bytes(&self) -> u64 {
        self.identity.bytes()
    }

    /// Fails with [`Error::Changed`] if the file was replaced, written to, cut or extended since it was opened. Costs a
    /// system call.
    ///
    /// What was read of a file before a check that passes is what the file held when it was opened: as far as the clock
    /// of its file system can tell, which is some milliseconds.
    pub fn check_unchanged(&self) -> Result<()> {
        self.identity.check_path(&self.path)
    }
}

impl Direct {
    fn of(file: &File) -> Self {
        let Ok(status) = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) else {
            return Self::Unknown;
        };
        if status.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return Self::Unknown;
        }
        // Buffers start at multiples of a page.
        match (status.stx_dio_offset_align, status.stx_dio_mem_align) {
            (align, memory) if align.is_power_of_two() && align <= ALIGN_MAX && memory <= ALIGN_MAX => {
                Self::Aligned(align)
            }
            _ => Self::Refused,
        }
    }
}

/// An open file, as one engine reads it.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) file: File,
    /// Reads start and end at multiples of so many bytes: more than 1 if they are direct.
    pub(super) align: u32,
}

/// The descriptors of one engine: of all files if there may be so many, else of those read last.
pub(super) struct Descriptors {
    files: Arc<[ReadFile]>,
    direct: bool,
    capacity: usize,
    cells: Vec<Cell>,
    /// The files that are open, for the second-chance clock.
    clock: VecDeque<FileIndex>,
}

#[derive(Default)]
struct Cell {
    open: Option<Arc<Open>>,
    /// Whether it was asked for since the clock's hand last passed.
    used: bool,
    direct_refused: bool,
}

impl Descriptors {
    /// Opens nothing yet. With `direct`, files are opened to bypass the page cache where they can.
    pub(super) fn new(files: Arc<[ReadFile]>, direct: bool) -> Self {
        static TOLD: Once = Once::new();
        let capacity = free_descriptors();
        if capacity < files.len() {
            TOLD.call_once(|| {
                tracing::warn!(
                    "{} files are to be read, and no more than {capacity} may be open at once: they are opened again and \
                     again, which is slower; raise the limit (`ulimit -n`)",
                    files.len()
                );
            });
        }
        Self {
            direct,
            capacity,
            cells: files.iter().map(|_| Cell::default()).collect(),
            clock: VecDeque::new(),
            files,
        }
    }

    /// The files.
    pub(super) fn files(&self) -> &[ReadFile] {
        &self.files
    }

    /// Fails if a file ended before a read does when it was opened.
    pub(super) fn check_end(&self, read: &Read) -> Result<()> {
        let bytes = self.files[read.file.0 as usize].bytes();
        transfer::check_end(read, bytes).map_err(|source| self.error(read, source))
    }

    /// Says which read failed.
    pub(super) fn error(&self, read: &Read, source: io::Error) -> Error {
        Error::Read {
            path: self.files[read.file.0 as usize].path.clone(),
            offset: read.offset,
            source,
        }
    }

    /// Opens all files, if there may be so many.
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

    /// A descriptor, which stays open while the caller keeps it. None if as many as may be open are kept: some read must
    /// be completed first.
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
                    // Somebody else in this process took those that we counted on.
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

    /// Opens a file through the page cache, and will from now on: its file system takes direct opens, but not direct reads.
    pub(super) fn refuse_direct(&mut self, index: FileIndex) -> Result<Arc<Open>> {
        let (file, cell) = (&self.files[index.0 as usize], &mut self.cells[index.0 as usize]);
        if let Some(open) = &cell.open
            && cell.direct_refused
        {
            // Another read of it was refused before.
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

    /// Closes the file that was not used for about the longest time. False if all are kept by reads.
    fn close_one(&mut self) -> bool {
        // The first round takes away the second chances.
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
    fn descriptor(&self, direct: bool) -> Result<Open> {
        let open = |flags: OFlags| {
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(flags.bits() as i32)
                .open(&self.path)
                .map_err(Error::io("open", &self.path))?;
            self.identity.check_file(&file, &self.path)?;
            Ok(file)
        };
        if direct && self.direct != Direct::Refused {
            match open(OFlags::DIRECT) {
                Ok(file) => {
                    let align = match self.direct {
                        Direct::Aligned(align) => align,
                        Direct::Unknown | Direct::Refused => ALIGN_MAX,
                    };
                    return Ok(Open { file, align });
                }
                Err(Error::Io { source, .. }) if Errno::from_io_error(&source) == Some(Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
        if direct {
            tell_buffered(&self.path);
        }
        let file = open(OFlags::empty())?;
        // What is wanted is known: reading ahead of it takes memory and bandwidth from it. A kernel that has no ear for
        // advice reads as well.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        Ok(Open { file, align: 1 })
    }
}

fn tell_buffered(path: &Path) {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tracing::warn!(
            "the file system of {} takes no direct reads (O_DIRECT): they go through the page cache, which takes memory \
             and is slower",
            path.display()
        );
    });
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// How many descriptors an engine may hold: half of those the process may still open, at least 1.
fn free_descriptors() -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return usize::MAX;
    };
    let taken = fs::read_dir("/proc/self/fd").map_or(64, Iterator::count);
    ((limit as usize).saturating_sub(taken) / 2).max(1)
}
