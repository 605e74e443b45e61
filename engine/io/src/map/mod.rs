//! Read-only mappings of files.
//!
//! If a file is truncated, or its disk fails, touching a mapped byte raises a signal that kills the process; no call
//! returns an error. Programs call [`report_faults`] at their start, so that a message names the file.

#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

mod faults;
mod resident;
mod table;

use std::{
    fs::File,
    io,
    ops::{Deref, Range},
    path::{Path, PathBuf},
};

use memmap2::{Advice, Mmap, MmapOptions, UncheckedAdvice};

use self::table::Listed;
pub use self::{
    faults::report_faults,
    resident::{FaultMeter, ResidentLimit},
};
use super::identity::Identity;
use crate::{Error, Result};

/// A file or a part of a file, mapped for reading. Dereferences to its bytes.
///
/// Handing out `&[u8]` is sound because finished files of a store are never modified. If a file is truncated under a
/// running program, the program gets a SIGBUS ([`report_faults`]). If a file is rewritten, the program sees other
/// bytes; [`Mapping::check_unchanged`] detects it.
#[derive(Debug)]
pub struct Mapping {
    /// Declared before the mapping, so that it is dropped first. Otherwise the table could list an address that another
    /// mapping already has.
    _listed: Listed,
    map: Mmap,
    path: PathBuf,
    identity: Identity,
}

/// The expected access pattern of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Front to back, with readahead.
    Sequential,
    /// Random access, without readahead.
    Random,
}

impl Mapping {
    /// Maps all of `file`. `path` is its name in errors.
    pub fn new(file: &File, path: &Path, access: Access) -> Result<Self> {
        let bytes = file.metadata().map_err(Error::io("read the length of", path))?.len();
        Self::part(file, path, 0..bytes, access)
    }

    /// Maps a range of bytes of `file`. The file must have them.
    pub fn part(file: &File, path: &Path, part: Range<u64>, access: Access) -> Result<Self> {
        let identity = Identity::from_file(file, path)?;
        let bytes = usize::try_from(part.end - part.start).expect("a mapping fits the address space");
        let mut options = MmapOptions::new();
        options.offset(part.start).len(bytes);
        // SAFETY: the bytes must not change while the mapping lives. Files of a store are written under a temporary
        // name, and not modified after they are renamed.
        let map = unsafe { options.map(file) }.map_err(Error::io("map", path))?;
        let advice = match access {
            Access::Sequential => Advice::Sequential,
            Access::Random => Advice::Random,
        };
        map.advise(advice).map_err(Error::io("advise on the mapping of", path))?;
        Ok(Self { _listed: table::list(&map, path, part.start as usize), map, path: path.to_owned(), identity })
    }

    /// Fails with [`Error::Changed`] if the file was replaced, written to, truncated or extended after it was mapped.
    /// Costs a system call.
    pub fn check_unchanged(&self) -> Result<()> {
        self.identity.check_path(&self.path)
    }

    /// Releases the memory of a range of pages, so that a pass over a large file keeps a small part resident. A later
    /// access reads them from the file again.
    pub fn release(&self, range: Range<usize>) {
        // SAFETY: dropping pages of a read-only file mapping does not change its bytes: they come from the file. (In
        // anonymous memory, they would become zero.)
        let result = unsafe { self.map.unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len()) };
        // Ignored: this only saves memory.
        if let Err(error) = result {
            tracing::debug!("cannot release mapped pages: {error}");
        }
    }

    /// Starts reading the mapping into the page cache. Returns when the reads are under way.
    pub fn read_ahead(&self) {
        self.read_ahead_part(0..self.map.len());
    }

    /// Starts reading a part of the mapping into the page cache.
    pub fn read_ahead_part(&self, range: Range<usize>) {
        // Ignored: this only saves time.
        if let Err(error) = self.map.advise_range(Advice::WillNeed, range.start, range.len()) {
            tracing::debug!("cannot read ahead: {error}");
        }
    }

    /// Number of the mapping's pages that are in the page cache. To ask reads nothing.
    pub fn cached_pages(&self) -> Result<usize> {
        let mut pages = vec![0u8; self.map.len().div_ceil(rustix::param::page_size())];
        // SAFETY: the range is the mapping's, and `pages` has a byte for each of its pages.
        let failed = unsafe { libc::mincore(self.map.as_ptr().cast_mut().cast(), self.map.len(), pages.as_mut_ptr()) };
        if failed != 0 {
            return Err(Error::io("ask what is cached of", &self.path)(io::Error::last_os_error()));
        }
        Ok(pages.iter().filter(|&page| page & 1 == 1).count())
    }

    /// Releases the memory of all pages.
    pub fn release_all(&self) {
        self.release(0..self.map.len());
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    pub(super) fn resident_bytes(mapping: &Mapping) -> u64 {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", mapping.as_ptr().addr());
        let entry = maps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = entry.filter_map(|line| line.strip_prefix("Rss:")).next().unwrap();
        rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }

    #[test]
    fn released_pages_take_no_memory_and_are_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let mapping = Mapping::new(&File::open(&path).unwrap(), &path, Access::Random).unwrap();
        for _ in 0..2 {
            assert!(mapping.iter().all(|&byte| byte == 7));
            assert_eq!(resident_bytes(&mapping), 1 << 20);
            mapping.release(0..1 << 19);
            assert_eq!(resident_bytes(&mapping), 1 << 19);
            mapping.release_all();
            assert_eq!(resident_bytes(&mapping), 0);
        }
    }

    #[test]
    fn read_ahead_fills_the_page_cache_and_takes_no_memory_of_the_process() {
        const BYTES: usize = 8 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![7; BYTES]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mapping = Mapping::new(&file, &path, Access::Random).unwrap();
        // On a file system in memory, all pages are cached from the start.
        let before = mapping.cached_pages().unwrap();
        mapping.read_ahead();
        let begin = std::time::Instant::now();
        while mapping.cached_pages().unwrap() < BYTES / 4096 {
            assert!(begin.elapsed().as_secs() < 30, "{:?} pages", mapping.cached_pages());
            std::thread::yield_now();
        }
        assert!(before == 0 || before == BYTES / 4096, "{before} pages before");
        assert_eq!(resident_bytes(&mapping), 0);
    }

    #[test]
    fn a_part_of_a_file_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        for part in [0..20_000, 5000..5001, 4096..12_288, 20_000..20_000] {
            let mapping = Mapping::part(&file, &path, part.clone(), Access::Random).unwrap();
            assert_eq!(*mapping, bytes[part.start as usize..part.end as usize]);
            mapping.read_ahead();
            mapping.release_all();
        }
    }

    #[test]
    fn a_change_of_a_mapped_file_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, [7; 100]).unwrap();
        let mapping = Mapping::new(&File::open(&path).unwrap(), &path, Access::Random).unwrap();
        mapping.check_unchanged().unwrap();
        File::options().append(true).open(&path).unwrap().set_len(101).unwrap();
        let error = mapping.check_unchanged().unwrap_err().to_string();
        assert!(error.contains("changed from 100 to 101 bytes"), "{error}");
    }
}
