//! The thread that reads directories and pieces.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use crossbeam::channel::{Receiver, Sender};
use grappa_io::{
    Result,
    read::{Read, ReadEngine, ReadFile},
};
use grappa_storage::Store;

use super::{
    common::{DecoderMessage, OpenEngine, RING_BYTES, disagrees},
    piece::{Blocks, Directory, Piece, PieceMemory},
    plan::{Payload, StreamPlan},
};
use crate::tags::Tags;

impl StreamPlan {
    /// Reads all pieces and sends them in order. Returns early after [`DecoderMessage::Stop`].
    pub(in crate::view) fn read(
        &self,
        store: &Store,
        open: OpenEngine<'_>,
        ready: &Sender<Piece>,
        messages: &Receiver<DecoderMessage>,
    ) -> Result<()> {
        let mut reader = Reader {
            plan: self,
            store,
            engine: open(self.files.clone())?,
            targets: Tags::default(),
            waiting: VecDeque::new(),
            directories: self.chunks.iter().map(|_| PartialDirectory::default()).collect(),
            next_directory: 0,
            next_chunk: 0,
            next_piece: 0,
            pending: VecDeque::new(),
            sent: 0,
            ring_bytes: 0,
            buffers: Vec::new(),
        };
        reader.run(ready, messages)?;
        self.files.iter().try_for_each(ReadFile::check_unchanged)
    }
}

/// Requests bytes and assembles them into directories and pieces.
struct Reader<'a> {
    plan: &'a StreamPlan,
    store: &'a Store,
    engine: Box<dyn ReadEngine>,
    /// The targets of the reads in flight.
    targets: Tags<Target>,
    /// Reads that the engine has no room for yet.
    waiting: VecDeque<Read>,
    directories: Vec<PartialDirectory>,
    /// The index in the plan of the chunk whose directory is requested next.
    next_directory: usize,
    /// The index in the plan of the chunk whose pieces are requested, and its next piece.
    next_chunk: usize,
    next_piece: usize,
    /// Pieces that were requested and not sent, and the number of missing parts of each.
    pending: VecDeque<(Piece, u32)>,
    /// The number of pieces that were sent.
    sent: usize,
    ring_bytes: usize,
    buffers: Vec<Vec<u8>>,
}

/// The directory of a chunk while its parts arrive.
#[derive(Default)]
struct PartialDirectory {
    degrees: Option<Vec<u8>>,
    anchors: Option<Vec<u8>>,
    directory: Option<Arc<Directory>>,
}

/// Blocks that are being read. One or more reads fill them.
struct Target {
    part: PartOf,
    blocks: Blocks,
    missing_bytes: usize,
}

/// The object that blocks belong to: a directory, by the index of its chunk in the plan, or a piece, by its number.
#[derive(Clone, Copy)]
enum PartOf {
    Degrees(usize),
    Anchors(usize),
    Edges(usize),
    Weights(usize),
}

impl Reader<'_> {
    fn run(&mut self, ready: &Sender<Piece>, messages: &Receiver<DecoderMessage>) -> Result<()> {
        loop {
            for message in messages.try_iter() {
                let DecoderMessage::Decoded(memory) = message else {
                    return Ok(());
                };
                self.take_back(memory);
            }
            self.request_directories()?;
            self.request_pieces()?;
            let submitted = self.engine.submit(self.waiting.make_contiguous())?;
            self.waiting.drain(..submitted);
            if self.engine.in_flight() > 0 {
                self.complete()?;
                while let Some((piece, _)) = self.pending.pop_front_if(|(_, missing)| *missing == 0) {
                    self.sent += 1;
                    ready.send(piece).expect("the receiver outlives the reader");
                }
            } else if self.next_chunk == self.plan.chunks.len() {
                return Ok(());
            } else {
                // Nothing is in flight and pieces remain, so the ring is full.
                match messages.recv() {
                    Ok(DecoderMessage::Decoded(memory)) => self.take_back(memory),
                    Ok(DecoderMessage::Stop) | Err(_) => return Ok(()),
                }
            }
        }
    }

    fn take_back(&mut self, memory: PieceMemory) {
        self.ring_bytes -= memory.bytes;
        let buffers = memory.buffers.into_iter();
        self.buffers.extend(buffers.filter(|buffer| buffer.capacity() > 0));
    }

    /// Requests the directories of the chunk whose pieces are next, and of the chunk after it.
    fn request_directories(&mut self) -> Result<()> {
        while self.next_directory < self.plan.chunks.len().min(self.next_chunk + 2) {
            let number = self.next_directory;
            let chunk = &self.plan.chunks[number];
            let degrees = 0..chunk.meta.degrees_payload_bytes();
            self.request(PartOf::Degrees(number), &chunk.degrees, degrees)?;
            if let Some((payload, meta)) = &chunk.weights {
                self.request(PartOf::Anchors(number), payload, meta.place_of_anchors())?;
            }
            self.next_directory += 1;
        }
        Ok(())
    }

    /// Requests pieces of chunks whose directory has arrived, as long as the ring has room.
    fn request_pieces(&mut self) -> Result<()> {
        while let Some(chunk) = self.plan.chunks.get(self.next_chunk) {
            let Some(nodes) = chunk.pieces.get(self.next_piece) else {
                self.directories[self.next_chunk].directory = None;
                self.next_chunk += 1;
                self.next_piece = 0;
                self.request_directories()?;
                continue;
            };
            let Some(directory) = self.directories[self.next_chunk].directory.clone() else {
                break;
            };
            let edges = directory.edges_of(nodes).ok_or_else(|| disagrees(self.store, chunk.chunk))?;
            let weights = match &chunk.weights {
                Some((payload, meta)) => {
                    let range = directory.weights_of(nodes, meta);
                    Some((payload, range.ok_or_else(|| disagrees(self.store, chunk.chunk))?))
                }
                None => None,
            };
            let weight_bytes = weights.as_ref().map_or(0, |(payload, range)| payload.bytes_of(range));
            let bytes = chunk.edges.bytes_of(&edges) + weight_bytes;
            if self.ring_bytes > 0 && self.ring_bytes + bytes > RING_BYTES {
                break;
            }
            self.ring_bytes += bytes;
            self.next_piece += 1;
            let number = self.sent + self.pending.len();
            let piece = Piece {
                chunk: chunk.chunk,
                nodes: nodes.clone(),
                directory,
                edges: chunk.edges.blocks(edges.clone(), Vec::new()),
                weights: weights.clone().map(|(payload, range)| (range.clone(), payload.blocks(range, Vec::new()))),
            };
            let parts = 1 + u32::from(weights.is_some());
            self.pending.push_back((piece, parts));
            self.request(PartOf::Edges(number), &chunk.edges, edges)?;
            if let Some((payload, range)) = weights {
                self.request(PartOf::Weights(number), payload, range)?;
            }
        }
        Ok(())
    }

    /// Requests the blocks that contain a range of a payload.
    fn request(&mut self, part: PartOf, payload: &Payload, range: Range<u64>) -> Result<()> {
        let bytes = payload.checksums.blocks_around(range.clone());
        let length = (bytes.end - bytes.start) as usize;
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.resize(length, 0);
        let target = Target { part, blocks: payload.blocks(range, buffer), missing_bytes: length };
        if length == 0 {
            return self.arrived(target);
        }
        let length_max = u64::from(self.engine.options().read_bytes_max);
        let tag = self.targets.add(target);
        let payload_offset = payload.checksums.header().payload_offset;
        let starts = bytes.clone().step_by(length_max as usize);
        self.waiting.extend(starts.map(|start| Read {
            file: payload.file,
            offset: payload_offset + start,
            length: (bytes.end - start).min(length_max) as u32,
            tag,
        }));
        Ok(())
    }

    /// Waits until some reads are complete, and takes their bytes.
    fn complete(&mut self) -> Result<()> {
        let targets = &mut self.targets;
        let mut complete = Vec::new();
        self.engine.complete(&mut |read, bytes| {
            let target = targets.get_mut(read.tag);
            let blocks = &mut target.blocks;
            let at = (read.offset - blocks.checksums.header().payload_offset - blocks.start) as usize;
            blocks.bytes[at..at + bytes.len()].copy_from_slice(bytes);
            target.missing_bytes -= bytes.len();
            if target.missing_bytes == 0 {
                complete.push(read.tag);
            }
        })?;
        for tag in complete {
            let target = self.targets.remove(tag);
            self.arrived(target)?;
        }
        Ok(())
    }

    /// Moves complete blocks into their piece or directory.
    fn arrived(&mut self, target: Target) -> Result<()> {
        let blocks = target.blocks;
        let number = match target.part {
            PartOf::Edges(number) | PartOf::Weights(number) => {
                let (piece, missing) = &mut self.pending[number - self.sent];
                *missing -= 1;
                match (target.part, &mut piece.weights) {
                    (PartOf::Weights(_), Some((_, weights))) => *weights = blocks,
                    _ => piece.edges = blocks,
                }
                return Ok(());
            }
            PartOf::Degrees(number) | PartOf::Anchors(number) => number,
        };
        blocks.check()?;
        let (partial, chunk) = (&mut self.directories[number], &self.plan.chunks[number]);
        match (target.part, &chunk.weights) {
            (PartOf::Anchors(_), Some((_, meta))) => {
                partial.anchors = Some(blocks.part(&meta.place_of_anchors()).to_vec());
            }
            _ => partial.degrees = Some(blocks.bytes),
        }
        if partial.degrees.is_some() && (partial.anchors.is_some() || chunk.weights.is_none()) {
            partial.directory = Some(Arc::new(Directory {
                meta: chunk.meta,
                sizes: Arc::clone(&chunk.sizes),
                degrees: partial.degrees.take().unwrap_or_default(),
                anchors: partial.anchors.take().unwrap_or_default(),
            }));
        }
        Ok(())
    }
}
