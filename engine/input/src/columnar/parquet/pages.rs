//! Reads pages of a Parquet file, and guards the Parquet reader against damaged files.

use std::{
    io::{self, BufRead, BufReader, Read},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use parquet::{
    errors::{ParquetError, Result as ParquetResult},
    file::reader::{ChunkReader, Length},
};

use super::claims::{check_metadata, check_page_header};
use crate::{
    extent::{Compression, Extent, Pieces},
    file::InputFile,
};

/// The last bytes of a file: the length of the metadata and a magic number.
const FOOTER_BYTES: u64 = 8;

/// Turns a panic of the Parquet reader into an error about the file. The reader asserts some properties of the file, so a
/// damaged file can make it panic. The caller drops all state of the reader with the error.
pub(super) fn guarded<T>(work: impl FnOnce() -> ParquetResult<T>) -> ParquetResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<&str>().map(|message| (*message).to_owned());
        let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(ParquetError::General(message.unwrap_or_else(|| "its contents are inconsistent".to_owned())))
    })
}

/// The file as the Parquet reader needs it. It is read at offsets, so threads do not share a position.
pub(super) struct Chunks(pub Arc<InputFile>);

impl Length for Chunks {
    fn len(&self) -> u64 {
        self.0.bytes()
    }
}

impl ChunkReader for Chunks {
    type T = HeaderReader;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        let bytes = self.0.bytes().checked_sub(start).ok_or_else(|| beyond(start))?;
        let mut extent = Extent::whole(&self.0, Compression::None);
        extent.offset = start;
        extent.bytes = bytes;
        Ok(HeaderReader {
            // Page headers are small, and pages are asked for by get_bytes.
            read: BufReader::with_capacity(4 << 10, Pieces::new(extent)),
            // Everything that is read this way is a page header, except the last bytes of the file.
            left: (bytes > FOOTER_BYTES).then_some(bytes),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.0.bytes()) {
            return Err(beyond(start));
        }
        let mut bytes = vec![0; length];
        self.0.read_exact_at(&mut bytes, start).map_err(|error| ParquetError::External(Box::new(error)))?;
        // What precedes the last bytes is the metadata.
        if start + length as u64 + FOOTER_BYTES == self.0.bytes() {
            check_metadata(&bytes)?;
        }
        Ok(bytes.into())
    }
}

/// Reads a page header, and checks its sizes first.
///
/// The Parquet reader also makes one of these at the start of a page whose header it has already read, and reads nothing
/// from it. So the check waits for the first read.
pub(super) struct HeaderReader {
    read: BufReader<Pieces>,
    /// Bytes from the header to the end of the file. None if the header is checked.
    left: Option<u64>,
}

impl Read for HeaderReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if let Some(left) = self.left {
            check_page_header(self.read.fill_buf()?, left).map_err(io::Error::other)?;
            self.left = None;
        }
        match self.read.read(into)? {
            // The Parquet reader skips fields that it does not know. If one claims 2^31 elements, it would go on after the end of
            // the file, which gives no bytes and no error.
            0 if !into.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => Ok(bytes),
        }
    }
}

fn beyond(start: u64) -> ParquetError {
    ParquetError::EOF(format!("bytes at offset {start} are beyond the end of the file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_header_that_goes_on_after_the_end_of_the_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("edges.parquet");
        // Field 14, unknown, is a list of 2^31 - 1 lists without elements. Only the first bytes of it are there.
        let header = [0x00, 0x00, 0xe9, 0xf9, 0xff, 0xff, 0xff, 0xff, 0x07, 0x05, 0x05, 0x05];
        std::fs::write(&path, header).unwrap();
        let mut header = Chunks(InputFile::open(&path).unwrap()).get_read(2).unwrap();
        header.left = None;
        let mut bytes = [0; 10];
        header.read_exact(&mut bytes).unwrap();
        let error = header.read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
