//! Input files: opened once, read at offsets by any thread, or decompressed front to back.
//!
//! Files are read with `pread` into the caller's buffers and never mapped: mapped pages would count as memory of the
//! process, and a file that shrinks under a mapping kills it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    num::NonZeroU64,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use grappa_io::{Error, Position, Result, regular};
use rustix::fs::Advice;

use super::crc::{CrcMismatch, MemberCrc};

/// Compressed bytes are read from the file in pieces of this size.
const PIECE_BYTES: usize = 256 << 10;

/// A regular file, open for reading.
#[derive(Debug)]
pub(super) struct InputFile {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl InputFile {
    /// Opens `path`, which must be a regular file: blocks are read from anywhere in it, and read again on `--resume`.
    pub fn open(path: &Path) -> Result<Arc<Self>> {
        if path.is_dir() {
            return Err(Error::input(
                path,
                Position::Whole,
                "this is a folder; name the files in it, or use --ogb for a folder of the Open Graph Benchmark",
            ));
        }
        let file = regular::open(path)?;
        let metadata = file.metadata().map_err(Error::io("read", path))?;
        // Advice only: a file system that ignores it is merely slower.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        Ok(Arc::new(Self {
            file,
            path: path.to_owned(),
            bytes: metadata.len(),
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes when the file was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `into` from `offset`. A file that turns out shorter than it was is an error.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.file
            .read_exact_at(into, offset)
            .map_err(|source| match source.kind() {
                io::ErrorKind::UnexpectedEof => Error::input(
                    &self.path,
                    Position::Offset(offset),
                    format!(
                        "expected {} more bytes here, but the file ends; it had {} bytes when it was opened: \
                         something is changing it",
                        into.len(),
                        self.bytes
                    ),
                ),
                _ => Error::io("read", &self.path)(source),
            })
    }

    /// The first `bytes` bytes, or all if there are fewer.
    pub fn head(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut head = vec![0; (bytes as u64).min(self.bytes) as usize];
        self.read_exact_at(&mut head, 0)?;
        Ok(head)
    }

    /// Tells the kernel to start reading this range in the background.
    pub fn will_need(&self, offset: u64, bytes: u64) {
        if let Some(bytes) = NonZeroU64::new(bytes.min(self.bytes.saturating_sub(offset))) {
            let _ = rustix::fs::fadvise(&self.file, offset, Some(bytes), Advice::WillNeed);
        }
    }
}

/// How a file's bytes are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Gzip,
    Zstd,
    /// A deflated member of a zip archive.
    Deflate,
}

impl Compression {
    /// Recognises a compressed file by its first bytes; names lie more often.
    pub fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Self::Zstd,
            // A Zstandard file may begin with a skippable frame.
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

/// A part of a file: all of it, or a member of an archive.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    pub file: Arc<InputFile>,
    /// Where it starts in the file.
    pub offset: u64,
    /// How many bytes of the file it takes.
    pub bytes: u64,
    pub compression: Compression,
    /// The member of the archive, for messages.
    pub member: Option<Arc<str>>,
    /// The CRC of the member's unpacked bytes. Everything that is read of them is checked.
    pub crc: Option<Arc<MemberCrc>>,
}

impl Extent {
    pub fn whole(file: &Arc<InputFile>, compression: Compression) -> Self {
        Self {
            offset: 0,
            bytes: file.bytes(),
            file: file.clone(),
            compression,
            member: None,
            crc: None,
        }
    }

    /// An error about the extent as a whole.
    pub fn error(&self, what: impl AsRef<str>) -> Error {
        Error::input(self.file.path(), Position::Whole, self.in_member(what.as_ref()))
    }

    /// An error at an offset of the unpacked bytes.
    pub fn error_at(&self, offset: u64, what: impl AsRef<str>) -> Error {
        let position = match self.compression {
            Compression::None => Position::Offset(self.offset + offset),
            // An offset that nobody can look at says nothing.
            _ => Position::Whole,
        };
        Error::input(self.file.path(), position, self.in_member(what.as_ref()))
    }

    fn in_member(&self, what: &str) -> String {
        match &self.member {
            Some(member) => format!("in its member {member}: {what}"),
            None => what.to_owned(),
        }
    }

    /// Fills `into` from `offset` of a plain extent.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(into, self.offset + offset)?;
        self.note(offset, into)
    }

    /// Takes into account for the CRC that these are the unpacked bytes at `offset`.
    fn note(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match &self.crc {
            Some(crc) => crc.note(offset, bytes).map_err(|mismatch| self.mismatch(mismatch)),
            None => Ok(()),
        }
    }

    fn mismatch(&self, CrcMismatch { expected, found }: CrcMismatch) -> Error {
        self.error(format!(
            "the CRC-32 of its bytes is {found:08x}, but the archive says {expected:08x}: the file is damaged; fetch it \
             again, or write it again with numpy.savez"
        ))
    }

    fn ends_early(&self) -> Error {
        self.error("its data ends earlier than announced; the file is damaged: write it again")
    }

    /// Fails if the member's bytes do not have the CRC that its archive says, and reads those that nobody has read. Call
    /// it before believing what was read; where all was read, it costs nothing.
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
        crc.compare().map_err(|mismatch| self.mismatch(mismatch))
    }

    /// A reader of the unpacked bytes from their start.
    pub fn stream(&self) -> Result<Stream> {
        let consumed = Arc::new(AtomicU64::new(0));
        let packed = BufReader::with_capacity(
            PIECE_BYTES,
            Pieces {
                extent: self.clone(),
                consumed: consumed.clone(),
            },
        );
        let unpacked: Box<dyn Read + Send> = match self.compression {
            Compression::None => Box::new(packed),
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(packed)),
            Compression::Zstd => Box::new(
                zstd::stream::read::Decoder::with_buffer(packed).map_err(Error::io("decompress", self.file.path()))?,
            ),
            Compression::Deflate => Box::new(Checked {
                unpacked: flate2::bufread::DeflateDecoder::new(packed),
                extent: self.clone(),
                at: 0,
            }),
        };
        Ok(Stream {
            unpacked,
            extent: self.clone(),
            consumed,
        })
    }
}

/// Reads an extent's packed bytes piece by piece.
pub(super) struct Pieces {
    extent: Extent,
    consumed: Arc<AtomicU64>,
}

impl Pieces {
    pub fn new(extent: Extent) -> Self {
        Self {
            extent,
            consumed: Arc::default(),
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let at = self.consumed.load(Ordering::Relaxed);
        let wanted = (into.len() as u64).min(self.extent.bytes - at) as usize;
        let read = self
            .extent
            .file
            .file
            .read_at(&mut into[..wanted], self.extent.offset + at)?;
        self.consumed.fetch_add(read as u64, Ordering::Relaxed);
        if self.extent.compression == Compression::None {
            self.extent.note(at, &into[..read]).map_err(io::Error::other)?;
        }
        Ok(read)
    }
}

/// Hands on what is unpacked of a member, and checks it.
struct Checked<R> {
    unpacked: R,
    extent: Extent,
    /// Unpacked so far.
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
pub(super) struct Stream {
    unpacked: Box<dyn Read + Send>,
    extent: Extent,
    consumed: Arc<AtomicU64>,
}

impl Stream {
    /// How many bytes of the file have been read, in whole pieces.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// Fills `into` as far as there are bytes; says how far.
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

    /// Reads and drops `bytes` bytes; says how many there were.
    pub fn skip(&mut self, bytes: u64) -> Result<u64> {
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        let mut skipped = 0;
        while skipped < bytes {
            let wanted = (bytes - skipped).min(piece.len() as u64) as usize;
            let read = self.read_full(&mut piece[..wanted])?;
            skipped += read as u64;
            if read < wanted {
                break;
            }
        }
        Ok(skipped)
    }

    /// Says what is wrong with the packed bytes.
    fn error(&self, error: io::Error) -> Error {
        let error = match error.downcast::<Error>() {
            Ok(error) => return error,
            Err(error) => error,
        };
        let path = self.extent.file.path();
        let at = Position::Offset(self.extent.offset + self.consumed());
        let kind = self.extent.compression.name();
        match error.kind() {
            _ if error.raw_os_error().is_some() => Error::io("read", path)(error),
            io::ErrorKind::UnexpectedEof => Error::input(
                path,
                at,
                self.extent.in_member(&format!(
                    "the {kind} data ends too early: the file is truncated; fetch or write it again"
                )),
            ),
            _ => Error::input(
                path,
                at,
                self.extent.in_member(&format!(
                    "the {kind} data cannot be unpacked ({error}); fetch or write it again"
                )),
            ),
        }
    }
}

/// Reads an extent's unpacked bytes from anywhere.
///
/// A plain extent is read in place by any number of threads. A packed one is unpacked by one thread at a time; going on
/// from where the last read ended costs nothing extra, going forward unpacks what is between, going back starts again
/// from the beginning.
pub(super) struct ExtentReader {
    extent: Extent,
    /// The stream and how many bytes it has given.
    stream: Mutex<Option<(Stream, u64)>>,
}

impl ExtentReader {
    pub fn new(extent: Extent) -> Self {
        Self {
            extent,
            stream: Mutex::new(None),
        }
    }

    /// Fails unless the CRC is right: see [`Extent::check`].
    pub fn check(&self) -> Result<()> {
        self.extent.check()
    }

    pub fn extent(&self) -> &Extent {
        &self.extent
    }

    /// Whether going forward is the only cheap way.
    pub fn is_sequential(&self) -> bool {
        self.extent.compression != Compression::None
    }

    /// Tells the kernel to start reading this range in the background.
    pub fn will_need(&self, offset: u64, bytes: u64) {
        if !self.is_sequential() {
            let bytes = bytes.min(self.extent.bytes.saturating_sub(offset));
            self.extent.file.will_need(self.extent.offset + offset, bytes);
        }
    }

    /// Fills `into` from `offset`.
    pub fn read_exact_at(&self, into: &mut [u8], offset: u64) -> Result<()> {
        if !self.is_sequential() {
            return self.extent.read_exact_at(into, offset);
        }
        let mut guard = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut stream, at) = match guard.take() {
            Some((stream, at)) if at <= offset => (stream, at),
            _ => (self.extent.stream()?, 0),
        };
        let skipped = stream.skip(offset - at)?;
        if skipped < offset - at || stream.read_full(into)? < into.len() {
            return Err(self.extent.ends_early());
        }
        *guard = Some((stream, offset + into.len() as u64));
        Ok(())
    }
}

/// Lines of a stream with their offsets, for looking into a file before it is read in earnest.
pub(super) struct Lines {
    reader: BufReader<StreamReader>,
    offset: u64,
    number: u64,
    line_bytes_max: usize,
}

struct StreamReader(Stream);

impl Read for StreamReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_full(into).map_err(io::Error::other)
    }
}

/// One line, without its end.
pub(super) struct Line {
    /// Offset of its first byte in the unpacked bytes.
    pub offset: u64,
    /// Counted from 1.
    pub number: u64,
    pub bytes: Vec<u8>,
}

impl Lines {
    /// Lines longer than `line_bytes_max` are an error.
    pub fn new(stream: Stream, line_bytes_max: usize) -> Self {
        Self {
            reader: BufReader::with_capacity(PIECE_BYTES, StreamReader(stream)),
            offset: 0,
            number: 0,
            line_bytes_max,
        }
    }

    /// Offset of the next line.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next line, or none at the end.
    pub fn next_line(&mut self) -> Result<Option<Line>> {
        let mut bytes = Vec::new();
        let limit = self.line_bytes_max as u64 + 1;
        let read = (&mut self.reader)
            .take(limit)
            .read_until(b'\n', &mut bytes)
            .map_err(|error| match error.downcast::<Error>() {
                Ok(error) => error,
                Err(error) => Error::io("read", self.reader.get_ref().0.extent.file.path())(error),
            })?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let offset = self.offset;
        self.offset += read as u64;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        } else if read as u64 == limit {
            return Err(Error::input(
                self.reader.get_ref().0.extent.file.path(),
                Position::Line(self.number),
                long_line(self.line_bytes_max),
            ));
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        Ok(Some(Line {
            offset,
            number: self.number,
            bytes,
        }))
    }
}

/// The longest line of an edge list, in bytes. Longer ones come from binary files and from files that never end a line.
pub(super) const LINE_BYTES_MAX: usize = 1 << 20;

/// The message about a line beyond `bytes_max`.
pub(super) fn long_line(bytes_max: usize) -> String {
    format!(
        "this line is longer than {bytes_max} bytes, so these are no lines of text; if it is a binary file of edges, name \
         its --format (npy, u32, u64 or parquet)"
    )
}

/// Bytes of the user's as a message can carry them: quoted, escaped and shortened.
pub(super) fn shown(bytes: &[u8]) -> String {
    const CHARS_MAX: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * CHARS_MAX)]);
    let mut shown: String = text.chars().take(CHARS_MAX).flat_map(char::escape_debug).collect();
    if bytes.len() > shown.len() && text.chars().count() > CHARS_MAX {
        shown.push('…');
    }
    format!("\"{shown}\"")
}
