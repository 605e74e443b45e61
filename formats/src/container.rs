//! Container files: a header, a payload, and a table of checksums.
//!
//! ```text
//! offset  bytes  content
//!      0      8  magic 89 'GRAPPA' 0A
//!      8      4  kind, four ASCII letters ("ROWS", "FEAT", ...)
//!     12      4  format version
//!     16      8  P: payload offset
//!     24      8  L: payload length
//!     32      4  M: meta length
//!     36      4  B: checksum block length
//!     40      8  XXH3-64 of bytes 64..P (the meta and the zeros after it)
//!     48      8  XXH3-64 of the checksum table
//!     56      8  XXH3-64 of bytes 0..56: the file's digest
//!     64      M  meta; its layout depends on the kind
//!   64+M         zeros up to P
//!      P      L  payload
//!    P+L  8*ceil(L/B)  checksum table: XXH3-64 of each B bytes of payload
//! ```
//!
//! All integers are little-endian. Exactly one checksum covers each byte of the file, and the digest covers the other
//! checksums. So the digest identifies the whole file; the manifest records it. Opening a file reads the header and
//! checks the length of the file. Payload blocks are checked when they are read ([`Header::check_block`]).
//!
//! Writers stream: they pass the payload to a [`BlockHasher`], append the table, and write the header last.
//! [`encode_file`] and [`decode_file`] do everything in memory, for small files.

use std::{fmt, ops::Range};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::{FormatError, Result, error::invalid_if};

/// The checksum of bytes in files: XXH3-64.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// The first bytes of every container file. The first byte is not ASCII and the last one is a line feed, so a transfer
/// in text mode damages them.
pub const MAGIC: [u8; 8] = *b"\x89GRAPPA\n";

/// The newest format version that this crate reads. [`FileKind::version`] is the version that it writes.
pub const FORMAT_VERSION: u32 = 3;

/// Length of the fixed part of the header in bytes.
pub const HEADER_BYTES: usize = 64;

/// Payload bytes per checksum in files that are read as a whole.
pub const BLOCK_BYTES: usize = 64 << 10;

/// The maximum length of a checksum block, so that readers may allocate one.
pub const BLOCK_BYTES_MAX: u32 = 16 << 20;

/// The maximum start of the payload, so that readers may allocate the bytes before it.
pub const PREFIX_BYTES_MAX: u64 = 16 << 20;

/// Length of a page in bytes. In files with random reads, the payload starts at a multiple of it and each page has a
/// checksum. A reader can therefore check the pages that it needs without reading others.
pub const PAGE_BYTES: u64 = 4096;

/// The first byte of the meta of adjacency lists that are in the order of time, which version 3 introduced: the number of their codec.
pub(crate) const ROWS_BY_TIME: u8 = 2;

/// The kind of a container file, four ASCII letters.
///
/// ```
/// use grappa_formats::container::FileKind;
///
/// assert_eq!(FileKind::ROWS.to_string(), "ROWS");
/// // Pages of adjacency lists are read at random, so each has a checksum. A split is read as a whole.
/// assert_eq!((FileKind::ROWS.block_bytes(), FileKind::SPLIT.block_bytes()), (4096, 65_536));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKind(pub [u8; 4]);

impl FileKind {
    /// `manifest`.
    pub const MANIFEST: Self = Self(*b"MANI");
    /// `chunk-<i>/edges`: the adjacency lists of a chunk.
    pub const ROWS: Self = Self(*b"ROWS");
    /// `chunk-<i>/degrees`: start and degree of each adjacency list.
    pub const DEGREES: Self = Self(*b"DEGR");
    /// `chunk-<i>/weights`: edge weights, one f32 per edge.
    pub const WEIGHTS: Self = Self(*b"WGHT");
    /// `chunk-<i>/edge-features`: one vector per edge.
    pub const EDGE_FEATURES: Self = Self(*b"EFEA");
    /// `chunk-<i>/features` and `aggregates/<kind>/chunk-<i>`: one vector per node.
    pub const FEATURES: Self = Self(*b"FEAT");
    /// `chunk-<i>/labels`: one class, or one set of classes, per node.
    pub const LABELS: Self = Self(*b"LABL");
    /// `splits/<name>.roaring`: a set of nodes.
    pub const SPLIT: Self = Self(*b"SPLT");
    /// `ids/dictionary`: the external ids, sorted.
    pub const DICTIONARY: Self = Self(*b"DICT");
    /// `ids/order`: the node permutation, as a table in both directions.
    pub const PERMUTATION: Self = Self(*b"ORDR");
    /// `assignments/<generation>`: the partitions that see each edge bucket.
    pub const ASSIGNMENT: Self = Self(*b"ASGN");
    /// `aggregates/<kind>/index`: the files with pre-aggregated features.
    pub const AGGREGATES: Self = Self(*b"AGGR");
    /// `schema`: the names of features and classes.
    pub const SCHEMA: Self = Self(*b"SCHM");

    /// `time-axis`: the points in time that positions in `times` stand for.
    pub const TIME_AXIS: Self = Self(*b"AXIS");
    /// `chunk-<i>/times`: the times of a chunk's edges, as positions on the axis.
    pub const TIMES: Self = Self(*b"TIME");
    /// `chunk-<i>/time-degrees`: start and length of the times of each adjacency list.
    pub const TIME_DEGREES: Self = Self(*b"TDEG");

    /// `manifest` of a graph with types: its node types and relations.
    pub const GRAPH: Self = Self(*b"GRPH");
    /// `manifest` of a member of such a graph: a node type or a relation.
    pub const MEMBER: Self = Self(*b"MEMB");

    /// Whether readers need single pages of the payload.
    fn is_read_at_random(self) -> bool {
        let whole = [
            Self::MANIFEST,
            Self::SPLIT,
            Self::ASSIGNMENT,
            Self::AGGREGATES,
            Self::SCHEMA,
            Self::TIME_AXIS,
            Self::GRAPH,
            Self::MEMBER,
        ];
        !whole.contains(&self)
    }

    /// The format version of a file of this kind with this meta: the one that introduced the kind, or the codec of adjacency lists. Readers
    /// of older versions so report that the file is newer.
    pub fn version(self, meta: &[u8]) -> u32 {
        match self {
            Self::GRAPH | Self::MEMBER => 2,
            Self::TIME_AXIS | Self::TIMES | Self::TIME_DEGREES => 3,
            Self::ROWS | Self::DEGREES if meta.first() == Some(&ROWS_BY_TIME) => 3,
            _ => 1,
        }
    }

    /// Payload bytes per checksum in new files of this kind.
    pub fn block_bytes(self) -> usize {
        if self.is_read_at_random() { PAGE_BYTES as usize } else { BLOCK_BYTES }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileKind({self})")
    }
}

/// Whether a container file is of a kind. Nothing is checked.
pub fn is_of_kind(file: &[u8], kind: FileKind) -> bool {
    file.get(8..12) == Some(&kind.0)
}

/// The decoded header of a container file.
///
/// ```
/// use grappa_formats::{
///     FormatError,
///     container::{FileKind, Header, encode_file},
/// };
///
/// let (mut file, digest) = encode_file(FileKind::SPLIT, Vec::new(), b"payload");
/// let header = Header::decode(&file, FileKind::SPLIT, file.len() as u64)?;
/// assert_eq!((header.payload_bytes, header.digest()), (7, digest));
///
/// // A damaged byte is an error with its offset.
/// file[30] ^= 1;
/// let error = Header::decode(&file, FileKind::SPLIT, file.len() as u64).unwrap_err();
/// assert!(matches!(error, FormatError::Checksum { part: "header", offset: 0, .. }));
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The kind of the file.
    pub kind: FileKind,
    /// Start of the payload, in bytes from the start of the file.
    pub payload_offset: u64,
    /// Length of the payload in bytes.
    pub payload_bytes: u64,
    /// Payload bytes per checksum.
    pub block_bytes: u32,
    /// The description of the payload, in the layout of the kind.
    pub meta: Vec<u8>,
    /// XXH3-64 of the checksum table.
    pub table_checksum: u64,
}

impl Header {
    /// Start of the payload in a new file of this kind with `meta_bytes` bytes of meta.
    pub fn payload_offset(kind: FileKind, meta_bytes: usize) -> u64 {
        let align = if kind.is_read_at_random() { PAGE_BYTES } else { 64 };
        (HEADER_BYTES as u64 + meta_bytes as u64).next_multiple_of(align)
    }

    /// Encodes the `payload_offset` bytes before the payload: header, meta and zeros.
    ///
    /// # Panics
    /// If the meta does not fit before the payload.
    pub fn encode(&self) -> Vec<u8> {
        let payload_offset = usize::try_from(self.payload_offset).expect("payload offset fits memory");
        assert!(HEADER_BYTES + self.meta.len() <= payload_offset, "meta of {} bytes", self.meta.len());
        let mut bytes = vec![0; payload_offset];
        bytes[64..64 + self.meta.len()].copy_from_slice(&self.meta);
        let meta_checksum = xxh3_64(&bytes[64..]);
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.kind.0);
        bytes[12..16].copy_from_slice(&self.kind.version(&self.meta).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.payload_offset.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[32..36].copy_from_slice(&(self.meta.len() as u32).to_le_bytes());
        bytes[36..40].copy_from_slice(&self.block_bytes.to_le_bytes());
        bytes[40..48].copy_from_slice(&meta_checksum.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.table_checksum.to_le_bytes());
        let digest = xxh3_64(&bytes[..56]);
        bytes[56..64].copy_from_slice(&digest.to_le_bytes());
        bytes
    }

    /// The number of bytes, from the start of the file, that [`Header::decode`] needs. `fixed` is the first
    /// [`HEADER_BYTES`] bytes.
    ///
    /// Checks magic bytes, version and header checksum first, so a damaged length is an error.
    pub fn prefix_bytes(fixed: &[u8; HEADER_BYTES]) -> Result<u64> {
        let magic: [u8; 8] = array(fixed, 0);
        if magic != MAGIC {
            return Err(FormatError::Magic { expected: MAGIC, found: magic });
        }
        let version = u32_at(fixed, 12);
        if version > FORMAT_VERSION {
            return Err(FormatError::NewerVersion { found: version, supported: FORMAT_VERSION });
        }
        FormatError::expect_checksum("header", 0, u64_at(fixed, 56), xxh3_64(&fixed[..56]))?;
        invalid_if!(version == 0, 12, "format version 0 was never written");
        let payload_offset = u64_at(fixed, 16);
        invalid_if!(payload_offset > PREFIX_BYTES_MAX, 16, "the payload starts later than any writer puts it");
        Ok(payload_offset)
    }

    /// Decodes and fully checks the header of a file of `file_bytes` bytes: magic bytes, version, kind, checksums of
    /// header and meta, and the length of the file.
    ///
    /// `prefix` is the start of the file, at least up to the payload ([`Header::prefix_bytes`]).
    pub fn decode(prefix: &[u8], kind: FileKind, file_bytes: u64) -> Result<Self> {
        let Some(fixed) = prefix.first_chunk::<HEADER_BYTES>() else {
            return Err(FormatError::Length {
                part: "header",
                expected: HEADER_BYTES as u64,
                found: prefix.len() as u64,
            });
        };
        let payload_offset = Self::prefix_bytes(fixed)?;
        let found_kind = FileKind(array(fixed, 8));
        if found_kind != kind {
            return Err(FormatError::Kind { expected: kind.to_string(), found: found_kind.to_string() });
        }
        let header = Self {
            kind,
            payload_offset,
            payload_bytes: u64_at(fixed, 24),
            block_bytes: u32_at(fixed, 36),
            meta: Vec::new(),
            table_checksum: u64_at(fixed, 48),
        };
        let meta_end = HEADER_BYTES as u64 + u64::from(u32_at(fixed, 32));
        invalid_if!(
            !(1..=BLOCK_BYTES_MAX).contains(&header.block_bytes) || meta_end > payload_offset,
            16,
            "header lengths contradict each other"
        );
        FormatError::expect_length("file", header.file_bytes().unwrap_or(u64::MAX), file_bytes)?;
        let Some(described) = prefix.get(HEADER_BYTES..payload_offset as usize) else {
            return Err(FormatError::Length { part: "meta", expected: payload_offset, found: prefix.len() as u64 });
        };
        FormatError::expect_checksum("meta", HEADER_BYTES as u64, u64_at(fixed, 40), xxh3_64(described))?;
        let meta = prefix[HEADER_BYTES..meta_end as usize].to_vec();
        let (version, expected) = (u32_at(fixed, 12), kind.version(&meta));
        invalid_if!(version != expected, 12, "files of kind {kind} have format version {expected}, not {version}");
        Ok(Self { meta, ..header })
    }

    /// The digest of the file: the checksum of the header, which contains the other checksums.
    pub fn digest(&self) -> u64 {
        let bytes = self.encode();
        u64_at(bytes.first_chunk::<HEADER_BYTES>().expect("a header is longer"), 56)
    }

    /// Number of checksum blocks.
    pub fn blocks(&self) -> u64 {
        self.payload_bytes.div_ceil(u64::from(self.block_bytes))
    }

    /// The byte range of block `index` in the payload.
    pub fn block(&self, index: u64) -> Range<u64> {
        let block_bytes = u64::from(self.block_bytes);
        let start = index * block_bytes;
        start..self.payload_bytes.min(start + block_bytes)
    }

    /// Start of the checksum table, in bytes from the start of the file.
    pub fn table_offset(&self) -> u64 {
        self.payload_offset + self.payload_bytes
    }

    /// Length of the whole file in bytes. `None` if it overflows, which only happens for damaged headers.
    pub fn file_bytes(&self) -> Option<u64> {
        self.payload_offset.checked_add(self.payload_bytes)?.checked_add(self.blocks().checked_mul(8)?)
    }

    /// Checks the checksum table against the header.
    pub fn check_table(&self, table: &[u8]) -> Result<()> {
        let (offset, expected) = (self.table_offset(), self.table_checksum);
        FormatError::expect_checksum("checksum table", offset, expected, xxh3_64(table))
    }

    /// Checks `bytes`, block `index` of the payload, against its entry in the checksum table.
    ///
    /// # Panics
    /// If the table has no entry for block `index`.
    pub fn check_block(&self, table: &[u8], index: u64, bytes: &[u8]) -> Result<()> {
        let at = usize::try_from(index * 8).expect("table fits memory");
        let expected = u64::from_le_bytes(table[at..at + 8].try_into().expect("eight bytes"));
        let offset = self.payload_offset + index * u64::from(self.block_bytes);
        FormatError::expect_checksum("payload block", offset, expected, xxh3_64(bytes))
    }
}

/// Computes the checksum table of a payload that arrives in pieces of any length.
///
/// ```
/// use grappa_formats::container::{BlockHasher, FileKind};
///
/// let mut hasher = BlockHasher::new(4);
/// hasher.update(b"pay");
/// hasher.update(b"load");
/// let (header, table) = hasher.finish(FileKind::SPLIT, Vec::new(), 64);
/// assert_eq!((header.blocks(), table.len()), (2, 16));
/// header.check_block(&table, 1, b"oad")?;
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
pub struct BlockHasher {
    block_bytes: usize,
    current: Xxh3,
    current_bytes: usize,
    table: Vec<u8>,
    payload_bytes: u64,
}

impl BlockHasher {
    /// A hasher for a new payload, with one checksum per `block_bytes` bytes.
    ///
    /// # Panics
    /// If `block_bytes` is not in `1..=BLOCK_BYTES_MAX`.
    pub fn new(block_bytes: usize) -> Self {
        assert!((1..=BLOCK_BYTES_MAX as usize).contains(&block_bytes), "blocks of {block_bytes} bytes");
        Self { block_bytes, current: Xxh3::new(), current_bytes: 0, table: Vec::new(), payload_bytes: 0 }
    }

    /// Appends to the payload.
    pub fn update(&mut self, mut bytes: &[u8]) {
        self.payload_bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            if self.current_bytes == 0 && bytes.len() >= self.block_bytes {
                let (block, rest) = bytes.split_at(self.block_bytes);
                self.table.extend_from_slice(&xxh3_64(block).to_le_bytes());
                bytes = rest;
                continue;
            }
            let take = bytes.len().min(self.block_bytes - self.current_bytes);
            self.current.update(&bytes[..take]);
            self.current_bytes += take;
            bytes = &bytes[take..];
            if self.current_bytes == self.block_bytes {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        self.table.extend_from_slice(&self.current.digest().to_le_bytes());
        self.current.reset();
        self.current_bytes = 0;
    }

    /// Number of payload bytes so far.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Ends the payload. Returns the header that precedes it and the table that follows it.
    pub fn finish(mut self, kind: FileKind, meta: Vec<u8>, payload_offset: u64) -> (Header, Vec<u8>) {
        if self.current_bytes > 0 {
            self.end_block();
        }
        let header = Header {
            kind,
            payload_offset,
            payload_bytes: self.payload_bytes,
            block_bytes: self.block_bytes as u32,
            meta,
            table_checksum: xxh3_64(&self.table),
        };
        (header, self.table)
    }
}

/// Encodes a container file in memory, for small payloads. Returns its bytes and its digest.
///
/// ```
/// use grappa_formats::container::{FileKind, decode_file, encode_file};
///
/// let (file, digest) = encode_file(FileKind::SPLIT, b"meta".to_vec(), b"payload");
/// let (header, payload) = decode_file(&file, FileKind::SPLIT)?;
/// assert_eq!((&header.meta[..], payload), (&b"meta"[..], &b"payload"[..]));
/// assert_eq!(header.digest(), digest);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
pub fn encode_file(kind: FileKind, meta: Vec<u8>, payload: &[u8]) -> (Vec<u8>, u64) {
    let mut hasher = BlockHasher::new(kind.block_bytes());
    hasher.update(payload);
    let offset = Header::payload_offset(kind, meta.len());
    let (header, table) = hasher.finish(kind, meta, offset);
    let mut file = header.encode();
    // The manifest may be large.
    file.reserve_exact(payload.len() + table.len());
    file.extend_from_slice(payload);
    file.extend_from_slice(&table);
    (file, header.digest())
}

/// Decodes a container file in memory and checks every byte of it. Returns its header and payload.
pub fn decode_file(file: &[u8], kind: FileKind) -> Result<(Header, &[u8])> {
    let header = Header::decode(file, kind, file.len() as u64)?;
    // The length of the file was checked against the header, so these ranges are inside it.
    let (payload_at, table_at) = (header.payload_offset as usize, header.table_offset() as usize);
    let (payload, table) = (&file[payload_at..table_at], &file[table_at..]);
    header.check_table(table)?;
    for (index, block) in payload.chunks(header.block_bytes as usize).enumerate() {
        header.check_block(table, index as u64, block)?;
    }
    Ok((header, payload))
}

fn array<const N: usize>(bytes: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("inside the fixed header")
}

fn u32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_block_is_named_by_its_offset() {
        let payload: Vec<u8> = (0..3 * BLOCK_BYTES + 5).map(|i| (i * 7 % 251) as u8).collect();
        let (mut file, _) = encode_file(FileKind::SPLIT, vec![1, 2, 3], &payload);
        let at = 128 + 2 * BLOCK_BYTES;
        file[at + 77] ^= 1;
        let error = decode_file(&file, FileKind::SPLIT).unwrap_err();
        assert!(matches!(error, FormatError::Checksum { part: "payload block", .. }), "{error}");
        assert_eq!(error.offset(), at as u64);
    }

    #[test]
    fn pieces_hash_as_the_whole_does() {
        let payload: Vec<u8> = (0..5 * BLOCK_BYTES / 2).map(|i| i as u8).collect();
        for block_bytes in [BLOCK_BYTES, PAGE_BYTES as usize, 1000] {
            let mut pieces = BlockHasher::new(block_bytes);
            for piece in payload.chunks(40_001) {
                pieces.update(piece);
            }
            let mut whole = BlockHasher::new(block_bytes);
            whole.update(&payload);
            let (header, table) = whole.finish(FileKind::ROWS, vec![], 64);
            assert_eq!(pieces.finish(FileKind::ROWS, vec![], 64), (header.clone(), table.clone()));
            assert_eq!(header.blocks(), payload.len().div_ceil(block_bytes) as u64);
            for index in 0..header.blocks() {
                let block = header.block(index);
                let block = &payload[block.start as usize..block.end as usize];
                header.check_block(&table, index, block).unwrap();
            }
        }
    }
}
