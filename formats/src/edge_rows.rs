//! Rows of edges, in the order of the adjacency lists: edge weights, and edge features.
//!
//! ```text
//! meta    offset  bytes  content
//!              0     24  span of the chunk
//!             24      8  E: number of edges
//!                        edge features only:
//!             32      4  dim: values per row
//!             36      4  stride: bytes from one row to the next
//!             40      1  dtype, as of features of nodes
//!             41      7  zeros
//! payload  e*stride      row of edge e; weights are rows of one f32, with a stride of 4
//!          E*stride 0 or 4  zeros, up to A, the next multiple of 8
//!       A + 8*a      8  anchor a: number of edges in the adjacency lists before list 64 a; ceil(nodes / 64) anchors
//! ```
//!
//! The payload starts at a multiple of 8. The first row of a list is the last anchor plus the degrees since, which are
//! in the file `degrees`. Anchors cost an eighth of a byte per node. They come last so that a writer that does not know
//! the degrees in advance can stream.

use std::ops::Range;

use crate::{
    FormatError, Result,
    bytes::{Fields, check_payload_length, check_payload_slice, u64_entry},
    container::{FileKind, Header},
    dtype::FeatureDtype,
    error::invalid_if,
    features::FeatureLayout,
    span::ChunkSpan,
};

/// Adjacency lists per anchor.
pub const ANCHOR_ROWS: u64 = 64;

/// The layout of an edge weight.
pub const WEIGHT: FeatureLayout = FeatureLayout { dtype: FeatureDtype::F32, dim: 1, stride: 4 };

/// Encodes the rows of the edges of a chunk, one adjacency list after another.
///
/// Memory: the bytes that were not taken, and an eighth of a byte per node.
#[derive(Debug)]
pub struct EdgeRowsEncoder {
    /// The layout of a row.
    pub layout: FeatureLayout,
    /// The bytes of the payload that are ready. The caller may take them at any time.
    pub ready: Vec<u8>,
    anchors: Vec<u8>,
    rows: u64,
    edges: u64,
}

impl EdgeRowsEncoder {
    /// An encoder of rows in `layout`.
    pub fn new(layout: FeatureLayout) -> Self {
        Self { layout, ready: Vec::new(), anchors: Vec::new(), rows: 0, edges: 0 }
    }

    /// Appends the rows of the edges of the next adjacency list: `dim` values per edge.
    ///
    /// # Panics
    /// If the last row is not whole.
    pub fn push_list(&mut self, values: &[f32]) {
        let edges = values.len() / self.layout.dim as usize;
        let start = self.begin_list(edges as u64);
        self.ready.resize(start + edges * self.layout.stride as usize, 0);
        self.layout.encode_rows(values, &mut self.ready[start..]);
    }

    /// As [`EdgeRowsEncoder::push_list`], for rows that are encoded already.
    ///
    /// # Panics
    /// If the last row is not whole.
    pub fn push_encoded(&mut self, rows: &[u8]) {
        let stride = self.layout.stride as usize;
        assert!(rows.len().is_multiple_of(stride), "{} bytes", rows.len());
        self.begin_list((rows.len() / stride) as u64);
        self.ready.extend_from_slice(rows);
    }

    /// Counts a list of `edges` edges. Returns where its rows start.
    fn begin_list(&mut self, edges: u64) -> usize {
        if self.rows.is_multiple_of(ANCHOR_ROWS) {
            self.anchors.extend_from_slice(&self.edges.to_le_bytes());
        }
        self.rows += 1;
        self.edges += edges;
        self.ready.len()
    }

    /// Ends the payload. Returns the bytes that were not taken.
    pub fn finish(mut self) -> Vec<u8> {
        if !(self.edges * u64::from(self.layout.stride)).is_multiple_of(8) {
            self.ready.extend_from_slice(&[0; 4]);
        }
        self.ready.extend_from_slice(&self.anchors);
        self.ready
    }
}

/// The meta of a file `chunk-<i>/weights` or `chunk-<i>/edge-features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EdgeRowsMeta {
    /// The nodes of the file.
    pub span: ChunkSpan,
    /// Number of in-edges of these nodes.
    pub edges: u64,
    /// The layout of a row. That of weights is [`WEIGHT`].
    pub layout: FeatureLayout,
}

impl EdgeRowsMeta {
    /// Length of an encoded meta of weights or of edge features.
    pub fn bytes(kind: FileKind) -> usize {
        match kind {
            FileKind::WEIGHTS => ChunkSpan::BYTES + 8,
            _ => ChunkSpan::BYTES + 24,
        }
    }

    /// The meta of the container file, of weights or of edge features.
    pub fn encode(&self, kind: FileKind) -> Vec<u8> {
        let mut meta = Vec::with_capacity(Self::bytes(kind));
        self.span.encode_into(&mut meta);
        meta.extend_from_slice(&self.edges.to_le_bytes());
        if kind != FileKind::WEIGHTS {
            self.layout.encode_into(&mut meta);
        }
        meta.resize(Self::bytes(kind), 0);
        meta
    }

    /// Decodes and checks the meta, and checks start and length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let mut fields = Fields::from_header(header, Self::bytes(header.kind))?;
        let span = ChunkSpan::decode(&mut fields)?;
        let edges = fields.u64();
        let mut layout = WEIGHT;
        if header.kind != FileKind::WEIGHTS {
            let at = fields.offset();
            layout = FeatureLayout::decode(&mut fields)?;
            fields.zeros::<7>()?;
            layout.check(false, at)?;
        }
        let meta = Self { span, edges, layout };
        invalid_if!(
            !header.payload_offset.is_multiple_of(8),
            16,
            "rows of edges start at {}, which is no multiple of 8",
            header.payload_offset
        );
        let values = edges.checked_mul(u64::from(layout.stride)).and_then(|bytes| bytes.checked_next_multiple_of(8));
        let expected = values.and_then(|bytes| bytes.checked_add(meta.anchors() * 8));
        check_payload_length(header, expected)?;
        Ok(meta)
    }

    /// Byte range of the rows of `edges` in the payload, for readers of parts.
    pub fn place_of(&self, edges: Range<u64>) -> Range<u64> {
        let stride = u64::from(self.layout.stride);
        stride * edges.start..stride * edges.end
    }

    /// Byte range of the anchors in the payload, for readers of parts. There is one little-endian `u64` for every
    /// [`ANCHOR_ROWS`] adjacency lists: the number of edges before them.
    pub fn place_of_anchors(&self) -> Range<u64> {
        self.anchors_at()..self.anchors_at() + 8 * self.anchors()
    }

    /// Length of the payload of a file with the rows of `edges` edges to `nodes` nodes.
    pub fn payload_bytes(layout: FeatureLayout, edges: u64, nodes: u64) -> u64 {
        (edges * u64::from(layout.stride)).next_multiple_of(8) + 8 * nodes.div_ceil(ANCHOR_ROWS)
    }

    fn anchors_at(&self) -> u64 {
        self.place_of(0..self.edges).end.next_multiple_of(8)
    }

    fn anchors(&self) -> u64 {
        self.span.rows.div_ceil(ANCHOR_ROWS)
    }
}

/// Reader of the rows of the edges of a chunk.
///
/// ```
/// use grappa_formats::{
///     ChunkId, ChunkSpan,
///     chunks::ChunkMap,
///     container::{FileKind, decode_file, encode_file},
///     edge_rows::{EdgeRows, EdgeRowsEncoder, EdgeRowsMeta, WEIGHT},
/// };
///
/// let degrees = [2, 0, 1]; // of the nodes of the chunk
/// let mut encoder = EdgeRowsEncoder::new(WEIGHT);
/// for weights in [&[0.5, 2.0][..], &[], &[1.0]] {
///     encoder.push_list(weights);
/// }
/// let span = ChunkSpan::for_chunk(&ChunkMap::uniform(3, 1), ChunkId(0));
/// let meta = EdgeRowsMeta { span, edges: 3, layout: WEIGHT };
/// let (file, _) = encode_file(FileKind::WEIGHTS, meta.encode(FileKind::WEIGHTS), &encoder.finish());
///
/// let (header, payload) = decode_file(&file, FileKind::WEIGHTS)?;
/// let weights = EdgeRows::new(&header, payload)?;
/// let edges = weights.range(2, |row| degrees[row as usize])?;
/// let mut values = [0.0];
/// weights.copy(edges, &mut values);
/// assert_eq!(values, [1.0]);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct EdgeRows<'a> {
    /// The meta of the file.
    pub meta: EdgeRowsMeta,
    anchors: &'a [u8],
    rows: &'a [u8],
    /// Zeros: four bytes or none.
    padding: &'a [u8],
    payload_offset: u64,
}

impl<'a> EdgeRows<'a> {
    /// Reads `payload`, the payload of the file with this header. Checks the meta, not the anchors.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        let meta = EdgeRowsMeta::decode(header)?;
        let (rows, anchors) = payload.split_at(meta.anchors_at() as usize);
        let (rows, padding) = rows.split_at(meta.place_of(0..meta.edges).end as usize);
        Ok(Self { meta, anchors, rows, padding, payload_offset: header.payload_offset })
    }

    /// The edges of node `row` of the chunk, as numbers for [`EdgeRows::rows`] and [`EdgeRows::copy`]. `degree_of`
    /// gives the in-degree of any node of the chunk.
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
        let start = (anchor * ANCHOR_ROWS..row).map(&degree_of).try_fold(first, u64::checked_add);
        let end = start.and_then(|start| start.checked_add(degree_of(row)));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.meta.edges => Ok(start..end),
            _ => Err(FormatError::invalid(
                self.payload_offset + self.meta.anchors_at() + 8 * anchor,
                format!(
                    "the edges of node {row} of the chunk, counted from edge {first}, are beyond the {} edges",
                    self.meta.edges
                ),
            )),
        }
    }

    /// The encoded rows of `edges`, each with its padding.
    ///
    /// # Panics
    /// If there are no such edges.
    #[inline]
    pub fn rows(&self, edges: Range<u64>) -> &'a [u8] {
        let place = self.meta.place_of(edges);
        &self.rows[place.start as usize..place.end as usize]
    }

    /// Decodes the rows of `edges` into `values`.
    ///
    /// # Panics
    /// If there are no such edges, or `values` has another length.
    pub fn copy(&self, edges: Range<u64>, values: &mut [f32]) {
        self.meta.layout.decode_rows(self.rows(edges), values);
    }

    /// Checks the anchors and the number of edges against the degrees of all nodes, the rows, and that all padding is 0.
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
        self.meta.layout.check_rows(self.rows, self.payload_offset, false)?;
        if self.padding.iter().any(|&byte| byte != 0) {
            return Err(FormatError::invalid(
                self.payload_offset + self.rows.len() as u64,
                "the bytes between the rows of edges and their anchors are not 0",
            ));
        }
        invalid_if!(
            rows != self.meta.span.rows || edges != Some(self.meta.edges),
            64,
            "the file has rows of {} edges of {} nodes, but the degrees are of {edges:?} edges of {rows} nodes",
            self.meta.edges,
            self.meta.span.rows
        );
        Ok(())
    }
}
