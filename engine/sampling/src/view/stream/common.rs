//! Sizes, engines and messages that the reader and the decoders share.

use std::sync::Arc;

use grappa_formats::{ChunkId, FormatError};
use grappa_io::{
    Error, Result,
    read::{self, Choice, Options, ReadEngine, ReadFile},
};
use grappa_storage::{Store, files};

use super::piece::PieceMemory;

/// Sizes are divided by 2^SCALE in tests, so that small graphs take many reads and fill the ring.
const SCALE: u32 = if cfg!(test) { 9 } else { 0 };
/// Approximate number of edges of a piece. Decoded, they take a megabyte.
pub(super) const PIECE_EDGES: u64 = 1 << 17 >> SCALE;
/// Memory of pieces that are read and not decoded, in bytes.
pub(super) const RING_BYTES: usize = 8 << 20 >> SCALE;
/// The maximum length of a read. Most pieces are shorter.
const READ_BYTES_MAX: u32 = 512 << 10 >> SCALE;
/// The maximum number of reads in flight.
const DEPTH: usize = 16;

/// Opens an engine that reads the given files.
pub(in crate::view) type OpenEngine<'a> = &'a (dyn Fn(Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> + Sync);

/// Opens an engine of the given kind.
pub(in crate::view) fn open_engine(choice: Choice, files: Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> {
    read::open(choice, files, engine_options())
}

/// The options of engines.
pub(in crate::view) fn engine_options() -> Options {
    Options { depth: DEPTH, read_bytes_max: READ_BYTES_MAX, threads: 4, ..Options::default() }
}

/// A message from a decoder to the reader.
pub(in crate::view) enum DecoderMessage {
    /// A piece was decoded. Returns its memory.
    Decoded(PieceMemory),
    /// No more pieces will be decoded.
    Stop,
}

/// The error if adjacency lists contradict the directory or the manifest.
pub(in crate::view) fn disagrees(store: &Store, chunk: ChunkId) -> Error {
    let path = store.path().join(files::of_chunk(chunk, "edges"));
    let problem = "the adjacency lists have more or fewer sources than the manifest says; find the damage with \
                `grappa-store verify`";
    Error::format(path)(FormatError::invalid(64, problem))
}
