//! Rows from disk to those who decode them: in order, many reads at a time, in bounded memory.
//!
//! ```text
//! reader     for each chunk: its directory, one chunk ahead of its pieces
//!            for each piece, while the ring has room: the bytes of its rows, and of their weights
//!            as pieces become complete: handed on, in order
//! decoders   take the next piece, decode it, give its memory back to the ring
//! ```
//!
//! A *piece* is some successive rows of a chunk. The ring is the memory of all pieces that are being read, or are read and
//! not decoded: [`RING_BYTES`], or a single piece if that is larger. Beside it, there are the directories of two or three
//! chunks, of about 10 bits a row, and the buffers of the engine: [`DEPTH`] times [`READ_BYTES`].
//!
//! What is read is whole blocks of the payload, the one at the border of two pieces twice, so that each can be compared
//! with its checksum: directories when they are there, pieces by whoever decodes them.
//!
//! Nobody waits for ever: the reader waits for decoders only when no read is under way and the ring is full, so that there
//! are pieces for them; and decoders wait for pieces that were handed on before their own. Whoever gives up tells the
//! others.
//!
//! On two cores, R-MAT 22 with edge factor 16 is in memory after 0.23 s, cold, and 0.29 s with one thread that decodes:
//! 129 MB at up to 0.56 GB/s, of a disk that reads 1.4, because decoding takes 3 ns an edge of 2 bytes. Through mappings it
//! was 0.38 and 0.47 s.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use crossbeam::channel::{Receiver, Sender};
use grappa_formats::{
    ChunkId, FormatError,
    rows::{PADDING_BYTES, RowSizes, Rows, RowsMeta},
    weights::{ANCHOR_ROWS, WeightsMeta},
};
use grappa_io::{
    Error, Result,
    container::{Checksums, ContainerFile},
    read::{self, Choice, FileIndex, Options, Read, ReadEngine, ReadFile},
};
use grappa_storage::{AdjacencyFiles, Store, files};

use super::kept::Kept;

/// All is smaller in tests, so that small graphs take many reads and fill the ring.
const SCALE: u32 = if cfg!(test) { 9 } else { 0 };
/// Edges in a piece, about: a megabyte decoded.
const PIECE_EDGES: u64 = 1 << 17 >> SCALE;
/// Memory of pieces that are read and not decoded.
const RING_BYTES: usize = 8 << 20 >> SCALE;
/// The longest read: more than most pieces have.
const READ_BYTES: u32 = 512 << 10 >> SCALE;
/// Reads under way.
const DEPTH: usize = 16;
/// Opens the engine that reads these files.
pub(super) type OpenEngine<'a> = &'a (dyn Fn(Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> + Sync);

/// Opens an engine of a kind.
pub(super) fn open_engine(choice: Choice, files: Arc<[ReadFile]>) -> Result<Box<dyn ReadEngine>> {
    read::open(choice, files, engine_options())
}

/// How engines are to read.
pub(super) fn engine_options() -> Options {
    Options {
        depth: DEPTH,
        read_bytes_max: READ_BYTES,
        threads: 4,
        ..Options::default()
    }
}

/// Which rows are to be read, and where they are.
pub(super) struct Plan {
    files: Arc<[ReadFile]>,
    chunks: Vec<ChunkPlan>,
}

struct ChunkPlan {
    chunk: ChunkId,
    meta: RowsMeta,
    sizes: Arc<RowSizes>,
    edges: Place,
    degrees: Place,
    weights: Option<(Place, WeightsMeta)>,
    pieces: Vec<Range<u64>>,
}

/// A payload.
#[derive(Clone)]
struct Place {
    file: FileIndex,
    checksums: Arc<Checksums>,
}

/// Whole blocks of a payload.
#[derive(Debug)]
struct Blocks {
    checksums: Arc<Checksums>,
    /// Where they start in the payload.
    start: u64,
    bytes: Vec<u8>,
}

impl Blocks {
    /// Fails if one of them is damaged.
    fn check(&self) -> Result<()> {
        self.checksums
            .check(self.start, &self.bytes)
            .map_err(Error::format(self.checksums.path()))
    }

    /// These bytes of the payload, which are in them.
    fn part(&self, payload: &Range<u64>) -> &[u8] {
        &self.bytes[(payload.start - self.start) as usize..(payload.end - self.start) as usize]
    }
}

/// What finds the rows of a chunk.
#[derive(Debug)]
struct Directory {
    meta: RowsMeta,
    sizes: Arc<RowSizes>,
    degrees: Vec<u8>,
    /// Of the weights, if they are wanted.
    anchors: Vec<u8>,
}

/// A piece whose bytes are there.
#[derive(Debug)]
pub(super) struct Piece {
    /// Its chunk.
    pub chunk: ChunkId,
    /// Which rows of it.
    pub rows: Range<u64>,
    directory: Arc<Directory>,
    /// The blocks that its rows are in.
    edges: Blocks,
    /// Where in their payload its weights are, and the blocks that they are in, if they were wanted.
    weights: Option<(Range<u64>, Blocks)>,
}

/// What decoders tell the reader.
pub(super) enum Told {
    /// A piece was decoded: its memory.
    Decoded(Spare),
    /// Nobody takes pieces any more.
    Stop,
}

/// Memory of a piece that was decoded.
pub(super) struct Spare {
    bytes: usize,
    buffers: [Vec<u8>; 2],
}

impl Piece {
    /// Fails if a byte of it is damaged. To be called before anything of it is believed.
    pub(super) fn check(&self) -> Result<()> {
        self.edges.check()?;
        self.weights.as_ref().map_or(Ok(()), |(_, blocks)| blocks.check())
    }

    /// Its rows; other rows of the chunk are empty, or those of a neighbouring piece.
    pub(super) fn rows(&self) -> Rows<'_> {
        let Directory {
            meta, sizes, degrees, ..
        } = &*self.directory;
        Rows::part(meta, sizes, self.edges.start, &self.edges.bytes, degrees)
            .expect("lengths were checked with the headers")
    }

    /// The weights of its edges, if they were wanted.
    pub(super) fn weights(&self) -> &[[u8; 4]] {
        match &self.weights {
            Some((place, blocks)) => blocks.part(place).as_chunks().0,
            None => &[],
        }
    }

    /// Its memory, for the ring.
    pub(super) fn into_spare(self) -> Spare {
        let weights = self.weights.map_or(Vec::new(), |(_, blocks)| blocks.bytes);
        Spare {
            bytes: self.edges.bytes.len() + weights.len(),
            buffers: [self.edges.bytes, weights],
        }
    }
}

impl Plan {
    /// The rows that are kept of a store.
    pub(super) fn new(kept: &Kept<'_>) -> Result<Self> {
        let mut opened = Vec::new();
        let mut chunks = Vec::new();
        for chunk in kept.owned.chunks() {
            let files = AdjacencyFiles::open(kept.store, kept.store.span(chunk)?, kept.weights)?;
            let mut place = |file: &ContainerFile| {
                let place = Place {
                    file: FileIndex(opened.len() as u32),
                    checksums: Arc::new(Checksums::of(file)?),
                };
                opened.push(ReadFile::open(file.path(), Some(file.bytes()))?);
                Ok::<_, Error>(place)
            };
            chunks.push(ChunkPlan {
                chunk,
                edges: place(&files.edges)?,
                degrees: place(&files.degrees)?,
                weights: match &files.weights {
                    Some((file, meta)) => Some((place(file)?, *meta)),
                    None => None,
                },
                pieces: pieces(&files.meta),
                meta: files.meta,
                sizes: files.sizes,
            });
        }
        Ok(Self {
            files: opened.into(),
            chunks,
        })
    }

    /// Number of pieces.
    pub(super) fn pieces(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.pieces.len()).sum()
    }

    /// The chunk of the last piece; none if there is none.
    pub(super) fn last_chunk(&self) -> Option<ChunkId> {
        let mut chunks = self.chunks.iter().rev();
        chunks.find(|chunk| !chunk.pieces.is_empty()).map(|chunk| chunk.chunk)
    }

    /// Reads all pieces and hands them on, in order. Returns early if it is told to stop.
    pub(super) fn read(
        &self,
        store: &Store,
        open: OpenEngine<'_>,
        ready: &Sender<Piece>,
        told: &Receiver<Told>,
    ) -> Result<()> {
        let mut reader = Reader {
            plan: self,
            store,
            engine: open(self.files.clone())?,
            targets: Vec::new(),
            free_tags: Vec::new(),
            waiting: VecDeque::new(),
            directories: self.chunks.iter().map(|_| Coming::default()).collect(),
            next_directory: 0,
            next_chunk: 0,
            next_piece: 0,
            coming: VecDeque::new(),
            handed_on: 0,
            ring_bytes: 0,
            buffers: Vec::new(),
        };
        reader.run(ready, told)?;
        self.files.iter().try_for_each(ReadFile::check_unchanged)
    }
}

/// Cuts the rows of a chunk into pieces of whole anchors of weights.
fn pieces(meta: &RowsMeta) -> Vec<Range<u64>> {
    let count = meta.edges.div_ceil(PIECE_EDGES).clamp(1, meta.rows.max(1));
    let start = |i: u64| {
        let row = (u128::from(i) * u128::from(meta.rows) / u128::from(count)) as u64;
        if i < count { row - row % ANCHOR_ROWS } else { row }
    };
    let rows = (0..count).map(|i| start(i)..start(i + 1));
    rows.filter(|rows| !rows.is_empty()).collect()
}

/// What is wrong if rows are not where, or not as many as, they should be.
pub(super) fn disagrees(store: &Store, chunk: ChunkId) -> Error {
    let path = store.path().join(files::of_chunk(chunk, "edges"));
    let what =
        "the rows have more or fewer sources than the manifest says; `grappa-store verify` tells what is damaged";
    Error::format(path)(FormatError::invalid(64, what))
}

/// Asks for bytes, and puts them where they belong.
struct Reader<'a> {
    plan: &'a Plan,
    store: &'a Store,
    engine: Box<dyn ReadEngine>,
    /// What is being read, by the tag of its reads.
    targets: Vec<Option<Target>>,
    free_tags: Vec<usize>,
    /// Reads that the engine has no room for yet.
    waiting: VecDeque<Read>,
    directories: Vec<Coming>,
    /// The chunk whose directory is asked for next.
    next_directory: usize,
    /// The chunk, and the piece of it, that is asked for next.
    next_chunk: usize,
    next_piece: usize,
    /// Pieces that were asked for and not handed on, and how many parts of each are missing.
    coming: VecDeque<(Piece, u32)>,
    /// How many pieces were.
    handed_on: usize,
    ring_bytes: usize,
    buffers: Vec<Vec<u8>>,
}

/// The directory of a chunk, as it comes.
#[derive(Default)]
struct Coming {
    degrees: Option<Vec<u8>>,
    anchors: Option<Vec<u8>>,
    directory: Option<Arc<Directory>>,
}

/// Some bytes of a file.
struct Target {
    whose: Whose,
    blocks: Blocks,
    missing: usize,
}

/// What bytes are a part of: a chunk, or a piece by its number.
#[derive(Clone, Copy)]
enum Whose {
    Degrees(usize),
    Anchors(usize),
    Edges(usize),
    Weights(usize),
}

impl Reader<'_> {
    fn run(&mut self, ready: &Sender<Piece>, told: &Receiver<Told>) -> Result<()> {
        loop {
            for told in told.try_iter() {
                let Told::Decoded(spare) = told else { return Ok(()) };
                self.take_back(spare);
            }
            self.ask_for_directories()?;
            self.ask_for_pieces()?;
            let submitted = self.engine.submit(self.waiting.make_contiguous())?;
            self.waiting.drain(..submitted);
            if self.engine.in_flight() > 0 {
                self.complete()?;
                while let Some((piece, _)) = self.coming.pop_front_if(|(_, missing)| *missing == 0) {
                    self.handed_on += 1;
                    ready
                        .send(piece)
                        .expect("there are decoders until they were waited for");
                }
            } else if self.next_chunk == self.plan.chunks.len() {
                return Ok(());
            } else {
                // The ring is full.
                match told.recv() {
                    Ok(Told::Decoded(spare)) => self.take_back(spare),
                    Ok(Told::Stop) | Err(_) => return Ok(()),
                }
            }
        }
    }

    fn take_back(&mut self, spare: Spare) {
        self.ring_bytes -= spare.bytes;
        let buffers = spare.buffers.into_iter();
        self.buffers.extend(buffers.filter(|buffer| buffer.capacity() > 0));
    }

    /// Asks for the directories of the chunk whose pieces are next, and of the one after that.
    fn ask_for_directories(&mut self) -> Result<()> {
        while self.next_directory < self.plan.chunks.len().min(self.next_chunk + 2) {
            let number = self.next_directory;
            let chunk = &self.plan.chunks[number];
            let degrees = 0..chunk.meta.degrees_payload_bytes();
            self.ask(Whose::Degrees(number), &chunk.degrees, degrees)?;
            if let Some((place, meta)) = &chunk.weights {
                self.ask(Whose::Anchors(number), place, meta.place_of_anchors())?;
            }
            self.next_directory += 1;
        }
        Ok(())
    }

    /// Asks for pieces whose chunk's directory is there, as long as the ring has room.
    fn ask_for_pieces(&mut self) -> Result<()> {
        while let Some(chunk) = self.plan.chunks.get(self.next_chunk) {
            let Some(rows) = chunk.pieces.get(self.next_piece) else {
                self.directories[self.next_chunk].directory = None;
                self.next_chunk += 1;
                self.next_piece = 0;
                self.ask_for_directories()?;
                continue;
            };
            let Some(directory) = self.directories[self.next_chunk].directory.clone() else {
                break;
            };
            let disagrees = || disagrees(self.store, chunk.chunk);
            let edges = directory.edges_of(rows).ok_or_else(disagrees)?;
            let weights = match &chunk.weights {
                Some((place, meta)) => Some((place, directory.weights_of(rows, meta).ok_or_else(disagrees)?)),
                None => None,
            };
            let bytes_of = |place: &Place, payload: &Range<u64>| {
                let blocks = place.checksums.blocks_around(payload.clone());
                (blocks.end - blocks.start) as usize
            };
            let of_weights = weights.as_ref().map_or(0, |(place, payload)| bytes_of(place, payload));
            let bytes = bytes_of(&chunk.edges, &edges) + of_weights;
            if self.ring_bytes > 0 && self.ring_bytes + bytes > RING_BYTES {
                break;
            }
            self.ring_bytes += bytes;
            self.next_piece += 1;
            let number = self.handed_on + self.coming.len();
            let piece = Piece {
                chunk: chunk.chunk,
                rows: rows.clone(),
                directory,
                edges: chunk.edges.blocks(edges.clone(), Vec::new()),
                weights: weights
                    .clone()
                    .map(|(place, payload)| (payload.clone(), place.blocks(payload, Vec::new()))),
            };
            let parts = 1 + u32::from(weights.is_some());
            self.coming.push_back((piece, parts));
            self.ask(Whose::Edges(number), &chunk.edges, edges)?;
            if let Some((place, payload)) = weights {
                self.ask(Whose::Weights(number), place, payload)?;
            }
        }
        Ok(())
    }

    /// Asks for the blocks that have a part in these bytes of a payload.
    fn ask(&mut self, whose: Whose, place: &Place, payload: Range<u64>) -> Result<()> {
        let bytes = place.checksums.blocks_around(payload.clone());
        let length = (bytes.end - bytes.start) as usize;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(length, 0);
        let target = Target {
            whose,
            blocks: place.blocks(payload, buffer),
            missing: length,
        };
        if length == 0 {
            return self.arrived(target);
        }
        let length_max = u64::from(self.engine.read_bytes_max());
        let tag = self.free_tags.pop().unwrap_or_else(|| {
            self.targets.push(None);
            self.targets.len() - 1
        });
        let payload_offset = place.checksums.header().payload_offset;
        let starts = bytes.clone().step_by(length_max as usize);
        self.waiting.extend(starts.map(|start| Read {
            file: place.file,
            offset: payload_offset + start,
            length: (bytes.end - start).min(length_max) as u32,
            tag: tag as u64,
        }));
        self.targets[tag] = Some(target);
        Ok(())
    }

    /// Waits until some reads are complete, and takes their bytes.
    fn complete(&mut self) -> Result<()> {
        let targets = &mut self.targets;
        let mut complete = Vec::new();
        self.engine.complete(&mut |read, bytes| {
            let target = targets[read.tag as usize].as_mut().expect("a tag that was given");
            let blocks = &mut target.blocks;
            let at = (read.offset - blocks.checksums.header().payload_offset - blocks.start) as usize;
            blocks.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            target.missing -= bytes.len();
            if target.missing == 0 {
                complete.push(read.tag as usize);
            }
        })?;
        for tag in complete {
            let target = self.targets[tag].take().expect("a tag that was given");
            self.free_tags.push(tag);
            self.arrived(target)?;
        }
        Ok(())
    }

    /// Puts bytes where they belong.
    fn arrived(&mut self, target: Target) -> Result<()> {
        let blocks = target.blocks;
        let number = match target.whose {
            Whose::Edges(number) | Whose::Weights(number) => {
                let (piece, missing) = &mut self.coming[number - self.handed_on];
                *missing -= 1;
                match (target.whose, &mut piece.weights) {
                    (Whose::Weights(_), Some((_, weights))) => *weights = blocks,
                    _ => piece.edges = blocks,
                }
                return Ok(());
            }
            Whose::Degrees(number) | Whose::Anchors(number) => number,
        };
        blocks.check()?;
        let (coming, chunk) = (&mut self.directories[number], &self.plan.chunks[number]);
        match (target.whose, &chunk.weights) {
            (Whose::Anchors(_), Some((_, meta))) => {
                coming.anchors = Some(blocks.part(&meta.place_of_anchors()).to_vec());
            }
            _ => coming.degrees = Some(blocks.bytes),
        }
        if coming.degrees.is_some() && (coming.anchors.is_some() || chunk.weights.is_none()) {
            coming.directory = Some(Arc::new(Directory {
                meta: chunk.meta,
                sizes: Arc::clone(&chunk.sizes),
                degrees: coming.degrees.take().unwrap_or_default(),
                anchors: coming.anchors.take().unwrap_or_default(),
            }));
        }
        Ok(())
    }
}

impl Place {
    /// The blocks that have a part in these bytes of the payload.
    fn blocks(&self, payload: Range<u64>, bytes: Vec<u8>) -> Blocks {
        Blocks {
            start: self.checksums.blocks_around(payload).start,
            checksums: Arc::clone(&self.checksums),
            bytes,
        }
    }
}

impl Directory {
    /// Where rows are in the payload of `edges`; none if the directory is damaged.
    fn edges_of(&self, rows: &Range<u64>) -> Option<Range<u64>> {
        let found = Rows::part(&self.meta, &self.sizes, 0, &[], &self.degrees).expect("its length was asked for");
        let start = found.locate(rows.start).extent().start;
        let end = found.locate(rows.end - 1).extent().end + PADDING_BYTES as u64;
        (start <= end && end <= self.meta.edges_payload_bytes()).then_some(start..end)
    }

    /// Where the weights of the edges of rows are in their payload; none if the anchors are damaged.
    fn weights_of(&self, rows: &Range<u64>, meta: &WeightsMeta) -> Option<Range<u64>> {
        let edges_before = |row: u64| {
            if row == self.meta.rows {
                return Some(meta.edges);
            }
            let anchor = *self.anchors.as_chunks().0.get((row / ANCHOR_ROWS) as usize)?;
            Some(u64::from_le_bytes(anchor))
        };
        let (start, end) = (edges_before(rows.start)?, edges_before(rows.end)?);
        (start <= end && end <= meta.edges).then(|| meta.place_of(start..end))
    }
}

#[cfg(test)]
mod tests;
