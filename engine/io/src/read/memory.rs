//! Reads from byte vectors, for tests and for benches without a disk.

use std::{collections::VecDeque, io, path::PathBuf};

use super::{
    options::{Options, ReadEngine},
    request::Read,
    transfer::{Transfer, check_end},
};
use crate::{Error, Result};

/// An engine whose files are byte vectors. A read is complete when it is submitted.
pub struct Memory {
    files: Vec<Vec<u8>>,
    options: Options,
    /// Completed reads, in order.
    complete: VecDeque<(Read, io::Result<Vec<u8>>)>,
}

impl Memory {
    /// An engine that reads `files`. A [`FileIndex`](super::FileIndex) is an index into this list.
    pub fn new(files: Vec<Vec<u8>>, options: Options) -> Result<Self> {
        options.check()?;
        Ok(Self { files, options, complete: VecDeque::new() })
    }

    fn read(&self, read: &Read) -> io::Result<Vec<u8>> {
        let file = &self.files[read.file.0 as usize];
        check_end(read, file.len() as u64)?;
        let transfer = Transfer::new(*read, 1);
        let mut bytes = vec![0; transfer.span()];
        transfer.run(&mut bytes, |offset, part| {
            let from = &file[offset as usize..];
            let count = part.len().min(from.len());
            part[..count].copy_from_slice(&from[..count]);
            self.options.answer(read.file, offset, part, Ok(count))
        })?;
        Ok(bytes)
    }
}

impl ReadEngine for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn options(&self) -> &Options {
        &self.options
    }

    fn in_flight(&self) -> usize {
        self.complete.len()
    }

    fn submit(&mut self, reads: &[Read]) -> Result<usize> {
        let count = reads.len().min(self.options.depth - self.in_flight());
        for read in &reads[..count] {
            self.options.check_read(read, self.files.len());
            let bytes = self.read(read);
            self.complete.push_back((*read, bytes));
        }
        Ok(count)
    }

    fn complete(&mut self, done: &mut dyn FnMut(&Read, &[u8])) -> Result<usize> {
        let mut count = 0;
        while let Some((read, bytes)) = self.complete.pop_front() {
            match bytes {
                Ok(bytes) => done(&read, &bytes),
                Err(source) => {
                    self.complete.clear();
                    return Err(Error::Read {
                        path: PathBuf::from(format!("memory/{}", read.file.0)),
                        offset: read.offset,
                        source,
                    });
                }
            }
            count += 1;
        }
        Ok(count)
    }
}
