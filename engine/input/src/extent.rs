//! Parts of input files, read at offsets or unpacked front to back.

use std::{
    io::{self, BufReader, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_io::{Error, Position, Result};

use crate::{crc::MemberCrc, file::InputFile, gzip::GzipMembers};

/// Compressed data is read from the file in pieces of this many bytes.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// The compression of a file or of a member of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
    /// A deflated member of a zip archive.
    Deflate,
}

impl Compression {
    /// Recognizes a compressed file by its first bytes, which are more reliable than its name.
    pub fn from_head(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A Zstandard file may start with a skippable frame.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "Zstandard",
            Self::Deflate => "deflate",
        }
    }
}

/// A byte range of a file: the whole file, or a member of an archive.
#[derive(Debug, Clone)]
pub(crate) struct Extent {
    pub file: Arc<InputFile>,
    pub offset: u64,
    pub bytes: u64,
    pub compression: Compression,
    /// The member of the archive, for messages.
    pub member: Option<Arc<str>>,
    /// The CRC-32 of the member's unpacked bytes. Every read is added to it.
    pub crc: Option<Arc<MemberCrc>>,
}

impl Extent {
    pub fn whole(file: &Arc<InputFile>, compression: Compression) -> Self {
        Self { offset: 0, bytes: file.bytes(), file: file.clone(), compression, member: None, crc: None }
    }

    /// An error about the extent as a whole.
    pub fn error(&self, problem: impl AsRef<str>) -> Error {
        self.file.error(self.in_member(problem.as_ref()))
    }

    /// An error at an offset of the unpacked bytes.
    pub fn error_at(&self, offset: u64, problem: impl AsRef<str>) -> Error {
        let position = match self.compression {
            Compression::None => Position::Offset(self.offset + offset),
            // An offset in unpacked bytes is of no use to the user.
            _ => Position::Whole,
        };
        Error::input(self.file.path(), position, self.in_member(problem.as_ref()))
    }

    fn in_member(&self, problem: &str) -> String {
        match &self.member {
            Some(member) => format!("in its member {member}: {problem}"),
            None => problem.to_owned(),
        }
    }

    /// Fills `into` from `offset` of a plain extent.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(into, self.offset + offset)?;
        self.note(offset, into)
    }

    /// Adds the unpacked bytes at `offset` to the CRC.
    fn note(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match &self.crc {
            Some(crc) => crc.note(offset, bytes).map_err(|found| self.mismatch(crc, found)),
            None => Ok(()),
        }
    }

    fn mismatch(&self, crc: &MemberCrc, found: u32) -> Error {
        self.error(format!(
            "the CRC-32 of its bytes is {found:08x}, but the archive records {:08x}: the file is damaged; fetch \
             it again, or write it again",
            crc.expected
        ))
    }

    /// The error about unpacked bytes that end before the announced number.
    pub fn ends_early(&self) -> Error {
        self.error("its data ends earlier than announced; the file is damaged: write it again")
    }

    /// Fails unless the member's bytes have the CRC-32 that its archive records. It reads the bytes that were not read yet; if
    /// all were read, it costs nothing. Call it before you rely on the member's data.
    pub fn check(&self) -> Result<()> {
        let Some(crc) = &self.crc else { return Ok(()) };
        if self.compression == Compression::None {
            let mut piece = Vec::new();
            while let Some(gap) = crc.first_gap() {
                piece.resize((gap.end - gap.start).min(PIECE_BYTES as u64) as usize, 0);
                self.read_exact_at(&mut piece, gap.start)?;
            }
        } else if crc.first_gap().is_some() {
            self.stream()?.skip(u64::MAX)?;
            if crc.first_gap().is_some() {
                return Err(self.ends_early());
            }
        }
        crc.compare().map_err(|found| self.mismatch(crc, found))
    }

    /// A reader of the unpacked bytes from their start.
    pub fn stream(&self) -> Result<Stream> {
        let consumed = Arc::new(AtomicU64::new(0));
        let packed = BufReader::with_capacity(PIECE_BYTES, Pieces { extent: self.clone(), consumed: consumed.clone() });
        let unpacked: Box<dyn Read + Send> = match self.compression {
            Compression::None => Box::new(packed),
            Compression::Gzip => Box::new(GzipMembers::new(packed)),
            Compression::Zstd => Box::new(
                zstd::stream::read::Decoder::with_buffer(packed).map_err(Error::io("decompress", self.file.path()))?,
            ),
            Compression::Deflate => Box::new(Checked {
                unpacked: flate2::bufread::DeflateDecoder::new(packed),
                extent: self.clone(),
                at: 0,
            }),
        };
        Ok(Stream { unpacked, extent: self.clone(), consumed })
    }
}

/// Reads an extent's packed bytes piece by piece.
pub(crate) struct Pieces {
    extent: Extent,
    consumed: Arc<AtomicU64>,
}

impl Pieces {
    pub fn new(extent: Extent) -> Self {
        Self { extent, consumed: Arc::default() }
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at = self.consumed.load(Ordering::Relaxed);
        let part_bytes = (into.len() as u64).min(self.extent.bytes - at) as usize;
        let read = self.extent.file.read_at(&mut into[..part_bytes], self.extent.offset + at)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        if self.extent.compression == Compression::None {
            self.extent.note(at, &into[..read]).map_err(io::Error::other)?;
        }
        Ok(read)
    }
}

/// Passes on the unpacked bytes of a member, and adds them to its CRC.
struct Checked<R> {
    unpacked: R,
    extent: Extent,
    at: u64,
}

impl<R: Read> Read for Checked<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.unpacked.read(into)?;
        self.extent.note(self.at, &into[..read]).map_err(io::Error::other)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Unpacked bytes, front to back.
pub(crate) struct Stream {
    unpacked: Box<dyn Read + Send>,
    extent: Extent,
    consumed: Arc<AtomicU64>,
}

impl Stream {
    pub fn path(&self) -> &Path {
        self.extent.file.path()
    }

    /// Bytes read from the file, in whole pieces.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// Fills `into` as far as there are bytes. Returns the number of bytes filled.
    pub fn read_full(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.unpacked.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok(filled)
    }

    /// Reads and drops up to `bytes` bytes. Returns how many there were.
    pub fn skip(&mut self, bytes: u64) -> Result<u64> {
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut skipped = 0;
        while skipped < bytes {
            let part_bytes = (bytes - skipped).min(piece.len() as u64) as usize;
            let read = self.read_full(&mut piece[..part_bytes])?;
            skipped += read as u64;
            if read < part_bytes {
                break;
            }
        }
        Ok(skipped)
    }

    /// Turns an error of the decoder into one about the file.
    fn error(&self, error: io::Error) -> Error {
        let error = match error.downcast::<Error>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        let path = self.extent.file.path();
        let at = Position::Offset(self.extent.offset + self.consumed());
        let kind = self.extent.compression.name();
        let problem = match error.kind() {
            _ if error.raw_os_error().is_some() => return Error::io("read", path)(error),
            io::ErrorKind::UnexpectedEof => {
                format!("the {kind} data ends too early: the file is truncated; fetch or write it again")
            }
            _ => format!("the {kind} data cannot be unpacked ({error}); fetch or write it again"),
        };
        Error::input(path, at, self.extent.in_member(&problem))
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.read_full(into).map_err(io::Error::other)
    }
}
