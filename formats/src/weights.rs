//! Edge weights: one f32 an edge, in the order of the rows.
//!
//! ```text
//! meta    offset  bytes  what
//!              0     24  the chunk's span
//!             24      8  E: number of edges
//! payload    4*e      4  weight of edge e
//!            4*E  0 or 4  zeros, up to a multiple of 8
//!       A + 8*a      8  edges in the rows before row 64 a; A is where that multiple is, and there are ceil(rows / 64)
//! ```
//!
//! The payload starts at a multiple of 8. Where a row's weights are follows from the last anchor and the degrees of the
//! rows since, which the chunk's rows know: an anchor costs an eighth of a byte a row. Anchors come last so that a
//! writer that does not know the degrees beforehand can stream.

use std::ops::Range;

use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length, check_payload_slice, u64_entry},
    container::Header,
    span::ChunkSpan,
};

/// Rows per anchor.
pub const ANCHOR_ROWS: u64 = 64;

/// Encodes the weights of a chunk row by row.
///
/// Memory: the bytes that were not taken, and an eighth of a byte a row.
#[derive(Debug, Default)]
pub struct WeightsEncoder {
    ready: Vec<u8>,
    anchors: Vec<u8>,
    rows: u64,
    edges: u64,
}

impl WeightsEncoder {
    /// Appends the weights of the next row.
    pub fn push_row(&mut self, weights: &[f32]) {
        if self.rows.is_multiple_of(ANCHOR_ROWS) {
            self.anchors.extend_from_slice(&self.edges.to_le_bytes());
        }
        self.ready
            .extend(weights.iter().flat_map(|weight| weight.to_le_bytes()));
        self.rows += 1;
        self.edges += weights.len() as u64;
    }

    /// How many bytes [`WeightsEncoder::take_bytes`] would give.
    pub fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// Takes the bytes of the payload that are ready.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.ready)
    }

    /// Ends the payload: returns what follows on the bytes that were taken.
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
    /// Which rows the file holds.
    pub span: ChunkSpan,
    /// Number of edges of these rows.
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

    /// Decodes and checks the meta, and that place and length of the payload are what it calls for.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::of(header, Self::BYTES)?;
        let meta = Self {
            span: ChunkSpan::decode(&mut fields)?,
            edges: fields.u64(),
        };
        if !header.payload_offset.is_multiple_of(8) {
            return Err(FormatError::invalid(
                16,
                format!("weights start at {}, which is no multiple of 8", header.payload_offset),
            ));
        }
        let values = meta
            .edges
            .checked_mul(4)
            .and_then(|bytes| bytes.checked_next_multiple_of(8));
        let expected = values.and_then(|bytes| bytes.checked_add(meta.anchors() * 8));
        check_payload_length(header, expected)?;
        Ok(meta)
    }

    /// Where the weights of these edges are in the payload, for who reads it in parts: 4 bytes each, little-endian.
    pub fn place_of(&self, edges: Range<u64>) -> Range<u64> {
        4 * edges.start..4 * edges.end
    }

    /// Where the anchors are in the payload: for each [`ANCHOR_ROWS`] rows the number of edges before them, 8 bytes,
    /// little-endian.
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

/// The weights of a chunk's edges.
#[derive(Debug, Clone, Copy)]
pub struct Weights<'a> {
    meta: WeightsMeta,
    anchors: &'a [u8],
    weights: &'a [[u8; 4]],
    /// Zeros, four bytes or none.
    padding: &'a [[u8; 4]],
    payload_offset: u64,
}

impl<'a> Weights<'a> {
    /// The weights in `payload`, which is that of the file with this header.
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

    /// What the file says about itself.
    pub fn meta(&self) -> &WeightsMeta {
        &self.meta
    }

    /// The edges of `row`, for [`Weights::get`] and [`Weights::copy`]; `degree_of` knows the degree of each row.
    ///
    /// # Panics
    /// If there is no such row.
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
                    "the weights of row {row}, counted from edge {first}, are not among those of {} edges",
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

    /// Copies the weights of edges into a slice of as many.
    ///
    /// # Panics
    /// If there are no such edges, or not as many.
    pub fn copy(&self, edges: Range<u64>, weights: &mut [f32]) {
        let source = &self.weights[edges.start as usize..edges.end as usize];
        assert_eq!(source.len(), weights.len(), "number of edges");
        for (weight, bytes) in weights.iter_mut().zip(source) {
            *weight = f32::from_le_bytes(*bytes);
        }
    }

    /// Checks anchors and number of edges against the degrees of all rows, and the padding.
    pub fn check(&self, degrees: impl IntoIterator<Item = u64>) -> Result<()> {
        let (mut rows, mut edges) = (0, Some(0u64));
        for degree in degrees {
            if rows % ANCHOR_ROWS == 0 && rows < self.meta.span.rows {
                let anchor = rows / ANCHOR_ROWS;
                let found = u64_entry(self.anchors, anchor as usize);
                if Some(found) != edges {
                    return Err(FormatError::invalid(
                        self.payload_offset + self.meta.anchors_at() + 8 * anchor,
                        format!(
                            "the weights put edge {found} first in row {rows}, the degrees before it say {edges:?}"
                        ),
                    ));
                }
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
        if rows != self.meta.span.rows || edges != Some(self.meta.edges) {
            return Err(FormatError::invalid(
                64,
                format!(
                    "weights of {} edges in {} rows, but the degrees are of {edges:?} edges in {rows} rows",
                    self.meta.edges, self.meta.span.rows
                ),
            ));
        }
        Ok(())
    }
}
