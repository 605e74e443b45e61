//! Edge weights: one f32 per edge, in the order of the adjacency lists.
//!
//! ```text
//! meta    offset  bytes  content
//!              0     24  span of the chunk
//!             24      8  E: number of edges
//! payload    4*e      4  weight of edge e
//!            4*E  0 or 4  zeros, up to A, the next multiple of 8
//!       A + 8*a      8  anchor a: number of edges in the adjacency lists before list 64 a; ceil(nodes / 64) anchors
//! ```
//!
//! The payload starts at a multiple of 8. The position of a list's weights is the last anchor plus the degrees since,
//! which are in the file `degrees`. Anchors cost an eighth of a byte per node. They come last so that a writer that
//! does not know the degrees in advance can stream.

use std::ops::Range;

use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length, check_payload_slice, u64_entry},
    container::Header,
    error::invalid_if,
    span::ChunkSpan,
};

/// Adjacency lists per anchor.
pub const ANCHOR_ROWS: u64 = 64;

/// Encodes the edge weights of a chunk, one adjacency list after another.
///
/// Memory: the bytes that were not taken, and an eighth of a byte per node.
#[derive(Debug, Default)]
pub struct WeightsEncoder {
    ready: Vec<u8>,
    anchors: Vec<u8>,
    rows: u64,
    edges: u64,
}

impl WeightsEncoder {
    /// Appends the weights of the next adjacency list.
    pub fn push_row(&mut self, weights: &[f32]) {
        if self.rows.is_multiple_of(ANCHOR_ROWS) {
            self.anchors.extend_from_slice(&self.edges.to_le_bytes());
        }
        self.ready
            .extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
        self.rows += 1;
        self.edges += weights.len() as u64;
    }

    /// Number of bytes that [`WeightsEncoder::take_bytes`] would return.
    pub fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// Takes the bytes of the payload that are ready.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }

    /// Ends the payload. Returns the bytes that were not taken.
    pub fn finish(mut self) -> Vec<u8> {
        if !self.edges.is_multiple_of(2) {
            self.ready.extend_from_slice(&[0; 4]);
        }
        self.ready.extend_from_slice(&self.anchors);
        self.ready
    }
}

/// The meta of a file `chunk-<i>/weights`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeightsMeta {
    /// The nodes of the file.
    pub span: ChunkSpan,
    /// Number of in-edges of these nodes.
    pub edges: u64,
}

impl WeightsMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = ChunkSpan::BYTES + 8;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        let mut meta = Vec::with_capacity(Self::BYTES);
        self.span.encode_into(&mut meta);
        meta.extend_from_slice(&self.edges.to_le_bytes());
        meta
    }

    /// Decodes and checks the meta, and checks start and length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::of(header, Self::BYTES)?;
        let meta = Self {
            span: ChunkSpan::decode(&mut fields)?,
            edges: fields.u64(),
        };
        invalid_if!(
            !header.payload_offset.is_multiple_of(8),
            16,
            "weights start at {}, which is no multiple of 8",
            header.payload_offset
        );
        let values = meta
            .edges
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(8));
        let expected = values.and_then(|bytes| bytes.checked_add(meta.anchors() * 8));
        check_payload_length(header, expected)?;
        Ok(meta)
    }

    /// Byte range of the weights of `edges` in the payload, for readers of parts: a little-endian f32 each.
    pub fn place_of(&self, edges: Range<u64>) -> Range<u64> {
        4 * edges.start..4 * edges.end
    }

    /// Byte range of the anchors in the payload, for readers of parts. There is one little-endian `u64` for every
    /// [`ANCHOR_ROWS`] adjacency lists: the number of edges before them.
    pub fn place_of_anchors(&self) -> Range<u64> {
        self.anchors_at()..self.anchors_at() + 8 * self.anchors()
    }

    fn anchors_at(&self) -> u64 {
        (self.edges * 4).next_multiple_of(8)
    }

    fn anchors(&self) -> u64 {
        self.span.rows.div_ceil(ANCHOR_ROWS)
    }
}

/// Reader of the edge weights of a chunk.
///
/// ```
/// use grappa_formats::{
///     ChunkId, ChunkSpan,
///     chunks::ChunkMap,
///     container::{FileKind, decode_file, encode_file},
///     weights::{Weights, WeightsEncoder, WeightsMeta},
/// };
///
/// let degrees = [2, 0, 1]; // of the nodes of the chunk
/// let mut encoder = WeightsEncoder::default();
/// for weights in [&[0.5, 2.0][..], &[], &[1.0]] {
///     encoder.push_row(weights);
/// }
/// let meta = WeightsMeta { span: ChunkSpan::of(&ChunkMap::uniform(3, 1), ChunkId(0)), edges: 3 };
/// let (file, _) = encode_file(FileKind::WEIGHTS, meta.encode(), &encoder.finish());
///
/// let (header, payload) = decode_file(&file, FileKind::WEIGHTS)?;
/// let weights = Weights::new(&header, payload)?;
/// let edges = weights.range(2, |row| degrees[row as usize])?;
/// assert_eq!(weights.get(edges.start), 1.0);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    meta: WeightsMeta,
    anchors: &'a [u8],
    weights: &'a [[u8; 4]],
    /// Zeros: four bytes or none.
    padding: &'a [[u8; 4]],
    payload_offset: u64,
}

impl<'a> Weights<'a> {
    /// Reads `payload`, the payload of the file with this header. Checks the meta, not the anchors.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        let meta = WeightsMeta::decode(header)?;
        let (weights, anchors) = payload.split_at(meta.anchors_at() as usize);
        let (weights, padding) = weights.as_chunks().0.split_at(meta.edges as usize);
        Ok(Self {
            meta,
            anchors,
            weights,
            padding,
            payload_offset: header.payload_offset,
        })
    }

    /// The meta of the file.
    pub fn meta(&self) -> &WeightsMeta {
        &self.meta
    }

    /// The edges of node `row` of the chunk, as numbers for [`Weights::get`] and [`Weights::copy`]. `degree_of` gives
    /// the in-degree of any node of the chunk.
    ///
    /// # Errors
    /// [`FormatError::Invalid`] if anchors and degrees give edges that the file does not have.
    ///
    /// # Panics
    /// If there is no such node.
    pub fn range(&self, row: u64, degree_of: impl Fn(u64) -> u64) -> Result<Range<u64>> {
        assert!(row < self.meta.span.rows, "row {row} of {}", self.meta.span.rows);
        let anchor = row / ANCHOR_ROWS;
        let first = u64_entry(self.anchors, anchor as usize);
        let start = (anchor * ANCHOR_ROWS..row)
            .map(&degree_of)
            .try_fold(first, u64::checked_add);
        let end = start.and_then(|start| start.checked_add(degree_of(row)));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.meta.edges => Ok(start..end),
            _ => Err(FormatError::invalid(
                self.payload_offset + self.meta.anchors_at() + 8 * anchor,
                format!(
                    "the weights of node {row} of the chunk, counted from edge {first}, are beyond the {} edges",
                    self.meta.edges
                ),
            )),
        }
    }

    /// The weight of an edge.
    ///
    /// # Panics
    /// If there is no such edge.
    #[inline]
    pub fn get(&self, edge: u64) -> f32 {
        f32::from_le_bytes(self.weights[edge as usize])
    }

    /// Copies the weights of `edges` to `weights`.
    ///
    /// # Panics
    /// If there are no such edges, or `weights` has another length.
    pub fn copy(&self, edges: Range<u64>, weights: &mut [f32]) {
        let source = &self.weights[edges.start as usize..edges.end as usize];
        assert_eq!(source.len(), weights.len(), "number of edges");
        for (weight, bytes) in weights.iter_mut().zip(source) {
            *weight = f32::from_le_bytes(*bytes);
        }
    }

    /// Checks the anchors and the number of edges against the degrees of all nodes, and that the padding is 0.
    pub fn check(&self, degrees: impl IntoIterator<Item = u64>) -> Result<()> {
        let (mut rows, mut edges) = (0, Some(0u64));
        for degree in degrees {
            if rows % ANCHOR_ROWS == 0 && rows < self.meta.span.rows {
                let anchor = rows / ANCHOR_ROWS;
                let found = u64_entry(self.anchors, anchor as usize);
                invalid_if!(
                    Some(found) != edges,
                    self.payload_offset + self.meta.anchors_at() + 8 * anchor,
                    "the anchor of node {rows} of the chunk is edge {found}, but the degrees before it sum to {edges:?}"
                );
            }
            rows += 1;
            edges = edges.and_then(|edges| edges.checked_add(degree));
        }
        if self.padding.iter().any(|bytes| *bytes != [0; 4]) {
            return Err(FormatError::invalid(
                self.payload_offset + 4 * self.meta.edges,
                "the bytes between the weights and their anchors are not 0",
            ));
        }
        invalid_if!(
            rows != self.meta.span.rows || edges != Some(self.meta.edges),
            64,
            "the file has the weights of {} edges of {} nodes, but the degrees are of {edges:?} edges of {rows} nodes",
            self.meta.edges,
            self.meta.span.rows
        );
        Ok(())
    }
}
