//! Reads past the page cache, for files that it cannot hold.
//!
//! The kernel copies such a file through its page cache, and reclaims each page for a later one. That can take more processor
//! time than the work on the bytes. It does not read ahead here: read large pieces, on more than one thread.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
};

use rustix::fs::OFlags;

use crate::arena::Arena;

/// Direct reads start and end at multiples of this, except for the end of the file.
const ALIGN: u64 = 4096;
/// Bytes per read. The kernel divides a read of this size into several that are under way together.
const PIECE_BYTES: usize = 4 << 20;

thread_local! {
    /// An aligned buffer for a piece.
    static PIECE: RefCell<Option<Arena>> = const { RefCell::new(None) };
}

/// A file, open for direct reads. Any thread may read from it; each one that does has a buffer of at most 4 MiB.
#[derive(Debug)]
pub struct DirectFile(File);

impl DirectFile {
    /// Opens an open file once more, and reads its first block. None if its file system refuses direct reads.
    pub fn from_file(file: &File) -> Option<Self> {
        // The path may name another file by now. This names the open one.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let opened = OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path);
        // Some file systems open a file in this way, and refuse to read it, or need a larger alignment.
        let probed = opened.map(Self).and_then(|file| {
            match file.read_exact_at(&mut [0], 0) {
                // An empty file.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(file),
                read => read.map(|()| file),
            }
        });
        probed.inspect_err(|error| tracing::debug!("reads go through the page cache: {error}")).ok()
    }

    /// Fills `into` from `offset`, as [`FileExt::read_exact_at`] does.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        PIECE.with_borrow_mut(|piece| {
            let piece = match piece {
                Some(piece) => piece,
                None => piece.insert(Arena::new(PIECE_BYTES).map_err(io::Error::other)?),
            };
            self.read_with(piece, into, offset)
        })
    }

    fn read_with(&self, piece: &mut [u8], mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            let start = offset / ALIGN * ALIGN;
            let before = (offset - start) as usize;
            let read_bytes = (before + into.len()).next_multiple_of(ALIGN as usize).min(PIECE_BYTES);
            let read = match self.0.read_at(&mut piece[..read_bytes], start) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if read <= before {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let bytes = (read - before).min(into.len());
            let (now, later) = into.split_at_mut(bytes);
            now.copy_from_slice(&piece[before..before + bytes]);
            (into, offset) = (later, offset + bytes as u64);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_file_is_read_and_its_end_is_an_error() {
        let bytes: Vec<u8> = (0..5 * PIECE_BYTES as u32 / 2 + 77).map(|i| (i / 3) as u8).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, &bytes).unwrap();
        let Some(file) = DirectFile::from_file(&File::open(&path).unwrap()) else {
            grappa_skip::skip!("the file system of temporary files refuses O_DIRECT");
        };
        // Another file under the same name is not what was opened.
        std::fs::remove_file(&path).unwrap();
        let end = bytes.len();
        for range in [0..1, 0..end, 4095..4097, 4096..8192, 1000..end - 1000, end - 1..end, end..end] {
            let mut read = vec![0; range.len()];
            file.read_exact_at(&mut read, range.start as u64).unwrap();
            assert!(read == bytes[range.clone()], "{range:?}");
        }
        for (start, length) in [(end - 1, 2), (end, 1), (end + 5000, 1), (0, end + 1)] {
            let error = file.read_exact_at(&mut vec![0; length], start as u64).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{start} {length}");
        }
    }
}
