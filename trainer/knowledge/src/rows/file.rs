//! A file of rows: one generation of a table, or of a part of it. It is written once and never modified.
//!
//! ```text
//! magic "GRAPROWS", version u32, values of a row u32, rows u64, first row u64, distance of rows u64,
//! moments u32, whether updates are counted u32, the caller's key u64, checksum of the header u64
//! values          f32, row by row; then their checksum u64
//! moments         f32, as values, each with a checksum
//! updates         u32, and their checksum
//! ```
//!
//! All numbers are little-endian. Row `i` of the file is row `first + i * distance` of the table. Checksums are XXH3 of the bytes before.

use std::{
    fs::File,
    io::{BufReader, BufWriter, Read, Write},
    path::Path,
};

use bytemuck::Pod;
use grappa_io::{Error as EngineError, durable, regular};
use grappa_run::{Error, Result};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{RowOptimizer, Rows};

const MAGIC: [u8; 8] = *b"GRAPROWS";
const VERSION: u32 = 1;
/// Bytes that are read or written, and hashed, at a time.
const PIECE: usize = 1 << 20;

/// The beginning of a file of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsHeader {
    /// Values of a row.
    pub dim: u32,
    /// Rows in the file.
    pub rows: u64,
    /// The number of the first row.
    pub first: u64,
    /// The difference between the numbers of two rows that are adjacent in the file.
    pub distance: u64,
    /// Digest of the owner of the rows, such as a store and the options of a run.
    pub key: u64,
}

/// Bytes of the header.
const HEADER: usize = 64;

/// The header of a file, and what follows.
#[derive(Debug, Clone, Copy)]
struct RawHeader {
    version: u32,
    header: RowsHeader,
    moments: u32,
    counts_updates: u32,
}

impl RawHeader {
    fn encode(&self) -> [u8; HEADER] {
        let RowsHeader { dim, rows, first, distance, key } = self.header;
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend(MAGIC);
        bytes.extend([self.version, dim].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend([rows, first, distance].into_iter().flat_map(u64::to_le_bytes));
        bytes.extend([self.moments, self.counts_updates].into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(key.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes.try_into().expect("fields fill the header")
    }

    /// None if the bytes are no header.
    fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let word = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().expect("four bytes"));
        let long = |place: usize| u64::from_le_bytes(bytes[place..place + 8].try_into().expect("eight bytes"));
        (bytes[..8] == MAGIC && long(HEADER - 8) == xxh3_64(&bytes[..HEADER - 8])).then(|| Self {
            version: word(8),
            header: RowsHeader { dim: word(12), rows: long(16), first: long(24), distance: long(32), key: long(48) },
            moments: word(40),
            counts_updates: word(44),
        })
    }
}

/// Writes rows to a new file. When this returns, they may still be in the system's cache: see [`sync`].
pub(super) fn write_rows(path: &Path, header: RowsHeader, rows: &Rows) -> Result<()> {
    let file = durable::create_file(path)?;
    let raw = RawHeader {
        version: VERSION,
        header,
        moments: rows.moments.len() as u32,
        counts_updates: u32::from(!rows.updates.is_empty()),
    };
    let mut file = BufWriter::with_capacity(PIECE, file);
    let mut write = || -> std::io::Result<()> {
        file.write_all(&raw.encode())?;
        let moments = rows.moments.iter().map(|moments| bytemuck::cast_slice(&moments[..]));
        let updates = (!rows.updates.is_empty()).then(|| bytemuck::cast_slice(&rows.updates));
        for section in [bytemuck::cast_slice(&rows.values[..])].into_iter().chain(moments).chain(updates) {
            let mut hash = Xxh3::new();
            let section: &[u8] = section;
            for piece in section.chunks(PIECE) {
                hash.update(piece);
                file.write_all(piece)?;
            }
            file.write_all(&hash.digest().to_le_bytes())?;
        }
        file.flush()
    };
    write().map_err(EngineError::io("write", path))?;
    Ok(())
}

/// Syncs a file that was written before.
pub(super) fn sync(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(EngineError::io("open", path))?;
    durable::sync_file(&file, path)?;
    Ok(())
}

/// Reads rows with the state of their optimizer.
///
/// # Errors
/// If the file cannot be read, is damaged, or has other rows than `expected`.
pub fn read_rows(path: &Path, expected: RowsHeader, optimizer: RowOptimizer) -> Result<Rows> {
    let mut file = OpenRows::open(path, expected)?;
    let of_optimizer = [optimizer.moments() as u32, u32::from(optimizer.counts_updates())];
    if [file.raw.moments, file.raw.counts_updates] != of_optimizer {
        return Err(Error::run_file(path, "its rows were trained with another optimizer: start a new run"));
    }
    let mut rows = Rows::zeros(expected.rows as usize, expected.dim as usize, optimizer);
    file.section(&mut rows.values)?;
    for moments in &mut rows.moments {
        file.section(moments)?;
    }
    if optimizer.counts_updates() {
        file.section(&mut rows.updates)?;
    }
    Ok(rows)
}

/// Reads the values of rows into `values`, without the state of their optimizer.
///
/// # Errors
/// As [`read_rows`].
pub fn read_values(path: &Path, expected: RowsHeader, values: &mut Vec<f32>) -> Result<()> {
    values.resize(expected.rows as usize * expected.dim as usize, 0.0);
    OpenRows::open(path, expected)?.section(values)
}

struct OpenRows<'a> {
    path: &'a Path,
    file: BufReader<File>,
    raw: RawHeader,
}

impl<'a> OpenRows<'a> {
    fn open(path: &'a Path, expected: RowsHeader) -> Result<Self> {
        let mut file = BufReader::with_capacity(PIECE, regular::open(path)?);
        let mut bytes = [0; HEADER];
        read(path, &mut file, &mut bytes)?;
        let raw = RawHeader::decode(&bytes).ok_or_else(|| damaged(path))?;
        if raw.version > VERSION {
            return Err(Error::NewerVersion(format!(
                "{} has rows of version {}, and this program reads versions up to {VERSION}: use the newer program that wrote it",
                path.display(),
                raw.version
            )));
        }
        let (found, RowsHeader { dim, rows, .. }) = (raw.header, expected);
        if found.key != expected.key {
            let problem = "its rows belong to another store or another run: use the store that the run was trained on, or start a new run";
            return Err(Error::run_file(path, problem));
        }
        if found != expected {
            let problem = format!(
                "it has {} rows of {} values, expected {rows} rows of {dim} values: restore the file from a copy, or start a new run",
                found.rows, found.dim
            );
            return Err(Error::run_file(path, problem));
        }
        Ok(Self { path, file, raw })
    }

    /// Reads the next section and compares its checksum.
    fn section<T: Pod>(&mut self, values: &mut [T]) -> Result<()> {
        let mut hash = Xxh3::new();
        for piece in bytemuck::cast_slice_mut::<T, u8>(values).chunks_mut(PIECE) {
            read(self.path, &mut self.file, piece)?;
            hash.update(piece);
        }
        let mut checksum = [0; size_of::<u64>()];
        read(self.path, &mut self.file, &mut checksum)?;
        match hash.digest().to_le_bytes() == checksum {
            true => Ok(()),
            false => Err(damaged(self.path)),
        }
    }
}

fn read(path: &Path, file: &mut impl Read, bytes: &mut [u8]) -> Result<()> {
    file.read_exact(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => damaged(path),
        _ => EngineError::io("read", path)(error).into(),
    })
}

fn damaged(path: &Path) -> Error {
    Error::run_file(
        path,
        "damaged or truncated: its checksum does not match its contents; restore the file from a copy, or start a new run",
    )
}
