//! Read-only mappings of files.

#![expect(unsafe_code, reason = "mapping a file is unsafe because others may change it")]

use std::{fs::File, ops::Deref, path::Path};

use memmap2::{Advice, Mmap};

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
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}
