//! Generates the files of a chunk.

use std::sync::{Mutex, PoisonError};

use grappa_formats::{
    ChunkId, ChunkSpan,
    container::FileKind,
    features::{FeatureLayout, FeaturesMeta},
    labels::LabelsMeta,
};
use grappa_io::{
    Result,
    container::{ContainerWriter, WrittenFile},
};
use grappa_storage::writer::{AdjacencyWriter, StoreFolder};
use grappa_synthetic::Features;

use super::{
    generation::Generation,
    journal::ChunkDone,
    pieces::{LabelBlocks, Piece},
    team_plan::{COLUMN_WINDOW_BYTES, EDGE_COST},
};
use crate::in_order::{PlannedPiece, in_order};

/// Bytes of a piece of feature rows or labels.
const COLUMN_PIECE_BYTES: u64 = 256 << 10;

impl Generation<'_> {
    /// Writes all files of a chunk. They are complete, but not synced.
    pub(super) fn write_chunk(
        &self,
        folder: &StoreFolder,
        features: Option<(FeatureLayout, &Features)>,
        chunk: ChunkId,
    ) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let (done, mut files) = match self.has_edges {
            true => self.adjacency(folder, chunk)?,
            false => (ChunkDone { edges: 0, drawn: 0, bucket_edges: Vec::new(), files: Vec::new() }, Vec::new()),
        };
        let span = ChunkSpan::for_chunk(&self.nodes.chunks, chunk);
        if let Some((layout, features)) = features {
            let meta = FeaturesMeta { span, layout, with_features: false }.encode();
            let path = folder.chunk(chunk)?.join("features");
            let writer = ContainerWriter::create(&path, FileKind::FEATURES, meta.len())?;
            files.push(self.column(writer, meta, span, layout.stride, |label, values: &mut Vec<f32>, out| {
                values.resize(layout.dim as usize, 0.0);
                features.row(label, values);
                let start = out.len();
                out.resize(start + layout.stride as usize, 0);
                layout.encode_row(values, &mut out[start..]);
            })?);
        }
        if let Some(spec) = self.labels {
            let meta = LabelsMeta { span, spec }.encode();
            let path = folder.chunk(chunk)?.join("labels");
            let writer = ContainerWriter::create(&path, FileKind::LABELS, meta.len())?;
            files.push(self.column(writer, meta, span, spec.row_bytes(), |label, (), out| {
                spec.encode_single(self.generator.class(label), out)
            })?);
        }
        Ok((done, files))
    }

    /// Writes the adjacency lists of a chunk.
    fn adjacency(&self, folder: &StoreFolder, chunk: ChunkId) -> Result<(ChunkDone, Vec<WrittenFile>)> {
        let mut writer = AdjacencyWriter::create(folder, self.ends(), chunk, false, None)?;
        let mut drawn = 0;
        let pool = Mutex::new(Vec::new());
        let nodes = self.nodes.chunks.range(chunk);
        let (mut next_node, mut labels) =
            (nodes.start, LabelBlocks::new(self.nodes.permutation.as_ref(), nodes).peekable());
        in_order(
            self.teams.team_threads,
            self.teams.window,
            || {
                let mut piece: Piece = pool.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
                piece.plan(next_node, &mut labels, &self.generator);
                next_node += piece.labels.len() as u64;
                Ok((!piece.labels.is_empty()).then(|| PlannedPiece { cost: piece.bound, piece }))
            },
            |piece| Ok(self.make(piece)),
            |piece| {
                for list in piece.lists.lists().iter() {
                    writer.push(list, &[], &[])?;
                }
                drawn += piece.drawn;
                self.progress.advance(piece.drawn * 8, piece.drawn);
                if !piece.is_large {
                    pool.lock().unwrap_or_else(PoisonError::into_inner).push(piece);
                }
                Ok(())
            },
        )?;
        let (entry, files) = writer.finish()?;
        let done = ChunkDone { edges: entry.edges, drawn, bucket_edges: entry.bucket_edges, files: Vec::new() };
        Ok((done, files))
    }

    /// Generates the adjacency lists of a piece.
    fn make<'s>(&'s self, mut piece: Piece<'s>) -> Piece<'s> {
        // Only a single adjacency list exceeds the window, and `in_order` makes it when all pieces before it are encoded. So
        // a team that waits here holds no memory that another team waits for, and no deadlock is possible.
        piece.is_large = piece.bound > self.teams.window;
        if piece.is_large {
            piece.reserved = Some(self.gate.take(piece.bound * EDGE_COST));
        }
        let permutation = self.source_nodes().permutation.as_ref();
        self.generator.adjacency_lists(&piece.labels, permutation, &mut piece.lists);
        piece.drawn = piece.lists.lists().edges() as u64;
        piece.lists.apply(self.options.edge_options, piece.first_node);
        if piece.is_large {
            piece.lists.free_scratch();
        }
        piece
    }

    /// Writes a file with one row of `row_bytes` bytes per node: a feature row or a label. `row` appends the row of a label.
    fn column<S: Default>(
        &self,
        mut writer: ContainerWriter,
        meta: Vec<u8>,
        span: ChunkSpan,
        row_bytes: u32,
        row: impl Fn(u64, &mut S, &mut Vec<u8>) + Sync,
    ) -> Result<WrittenFile> {
        let end = span.first_node.0 + span.rows;
        let piece_rows = (COLUMN_PIECE_BYTES / u64::from(row_bytes)).max(1);
        let mut starts = (span.first_node.0..end).step_by(piece_rows as usize);
        let window = COLUMN_WINDOW_BYTES * self.teams.team_threads as u64;
        in_order(
            self.teams.team_threads,
            window,
            || {
                Ok(starts.next().map(|start| {
                    let piece = start..end.min(start + piece_rows);
                    PlannedPiece { cost: (piece.end - piece.start) * u64::from(row_bytes), piece }
                }))
            },
            |nodes| {
                let mut bytes = Vec::with_capacity((nodes.end - nodes.start) as usize * row_bytes as usize);
                let mut state = S::default();
                for label in LabelBlocks::new(self.nodes.permutation.as_ref(), nodes) {
                    row(label, &mut state, &mut bytes);
                }
                Ok(bytes)
            },
            |bytes: Vec<u8>| {
                self.progress.advance(bytes.len() as u64, 0);
                writer.write(&bytes)
            },
        )?;
        writer.finish(meta)
    }
}
