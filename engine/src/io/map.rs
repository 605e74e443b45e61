//! Read-only mappings of files.

#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

use std::{
    fs::File,
    ops::{Deref, Range},
    path::Path,
};

use memmap2::{Advice, Mmap, UncheckedAdvice};

use crate::{Error, Result};

/// A file mapped for reading. Dereferences to its bytes.
///
/// Finished files of a store are never modified, which is what makes handing out `&[u8]` sound: whoever truncates or
/// rewrites one under a running program gets what the operating system gives (SIGBUS, or other bytes).
#[derive(Debug)]
pub struct Mapping {
    map: Mmap,
}

/// How a mapping will be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Front to back: read ahead.
    Sequential,
    /// Here and there: don't.
    Random,
}

impl Mapping {
    /// Maps all of `file`, which is called `path` in errors.
    pub fn new(file: &File, path: &Path, access: Access) -> Result<Self> {
        // SAFETY: the bytes must not change while the mapping lives. Files of a store are written under another name
        // and not touched once they have theirs.
        let map = unsafe { Mmap::map(file) }.map_err(Error::io("map", path))?;
        let advice = match access {
            Access::Sequential => Advice::Sequential,
            Access::Random => Advice::Random,
        };
        map.advise(advice)
            .map_err(Error::io("advise on the mapping of", path))?;
        Ok(Self { map })
    }

    /// Gives back the memory of pages that were read, so that a pass over a large file holds a small part of it. Who
    /// reads them again has them read from the file again.
    pub fn release(&self, range: Range<usize>) {
        // SAFETY: dropping pages of a read-only mapping of a file leaves the bytes it shows as they are: they come from
        // the file. (Of anonymous memory, it would zero them.)
        let result = unsafe {
            self.map
                .unchecked_advise_range(UncheckedAdvice::DontNeed, range.start, range.len())
        };
        // Only memory was to be saved.
        if let Err(error) = result {
            tracing::debug!("cannot release mapped pages: {error}");
        }
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
