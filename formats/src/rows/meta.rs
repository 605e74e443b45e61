//! The meta of a chunk's files `edges` and `degrees`.

use super::{
    bits::PADDING_BYTES,
    directory::directory_bytes,
    elias_fano::Shape,
    gap::{BLOCK, GapCode},
};
use crate::{
    FormatError, NODES_MAX, Result,
    chunks::ChunkMap,
    container::{HEADER_BYTES, ROWS_BY_TIME},
    error::invalid_if,
};

/// Offset of the meta in the file.
const META_AT: u64 = HEADER_BYTES as u64;

/// The codec of the rows of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowCodec {
    /// Elias-Fano over the universe of all nodes.
    EliasFano,
    /// Gaps and runs.
    Gap(GapCode),
    /// Sources in the order of the times of their edges, as whole numbers. They do not ascend.
    ByTime,
}

impl RowCodec {
    /// Whether the directory has degrees. Otherwise it has sizes, and the rows have their degrees.
    pub fn has_degrees_in_directory(self) -> bool {
        match self {
            Self::EliasFano | Self::ByTime => true,
            Self::Gap(_) => false,
        }
    }

    /// The size in bits of a row whose number in the directory is `number`.
    #[inline(always)]
    pub(super) fn row_bits(self, number: u64, source_max: u64) -> u64 {
        match self {
            Self::Gap(_) => number,
            Self::EliasFano | Self::ByTime => self.shape(number, source_max).row_bits(number),
        }
    }

    /// The layout of a row of `degree` sources. Gap code has none.
    #[inline(always)]
    pub(super) fn shape(self, degree: u64, source_max: u64) -> Shape {
        match self {
            Self::EliasFano => Shape::for_degree(degree, source_max),
            Self::ByTime => Shape::whole(source_max),
            Self::Gap(_) => Shape::default(),
        }
    }
}

/// The meta of the files `edges` and `degrees` of a chunk, the same in both.
///
/// ```text
/// offset  bytes  content
///      0      1  codec: 0 Elias-Fano, 1 gap, 2 by time
///      1      1  gap: 1 if first sources are relative to their row's node; otherwise 0
///      2      4  gap: Exp-Golomb parameters of first sources, degrees, gaps, run lengths; otherwise 0
///      6      2  0
///      8      8  number of nodes from which edges come: every source is below
///     16      8  node of the first row
///     24      8  number of rows
///     32      8  number of edges
///     40      8  length of the rows in bits
///     48      8  number of exceptions in the directory
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowsMeta {
    /// The codec of the rows.
    pub codec: RowCodec,
    /// The number of nodes from which edges come, which are those of the graph unless they have another type: every source is below.
    pub universe: u64,
    /// The node of the first row.
    pub first_node: u64,
    /// The number of rows.
    pub rows: u64,
    /// The number of edges.
    pub edges: u64,
    /// The length of the rows in bits, without padding.
    pub edge_bits: u64,
    /// The number of exceptions in the directory.
    pub exceptions: u64,
}

impl RowsMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = 56;

    /// The bytes of the container's meta.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = match self.codec {
            RowCodec::EliasFano => vec![0; 8],
            RowCodec::ByTime => vec![ROWS_BY_TIME, 0, 0, 0, 0, 0, 0, 0],
            RowCodec::Gap(code) => {
                let relative = u8::from(code.first_is_relative);
                vec![1, relative, code.first_k, code.degree_k, code.gap_k, code.run_k, 0, 0]
            }
        };
        for number in [self.universe, self.first_node, self.rows, self.edges, self.edge_bits, self.exceptions] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Decodes a container's meta, and checks that its numbers are consistent.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let Some((&[codec, relative, first_k, degree_k, gap_k, run_k, 0, 0], numbers)) = bytes.split_first_chunk()
        else {
            return Err(FormatError::invalid(
                META_AT,
                "the description of the rows is too short or has reserved bits set",
            ));
        };
        let &[universe, first_node, rows, edges, edge_bits, exceptions] = numbers.as_chunks().0 else {
            return Err(FormatError::Length {
                part: "the description of the rows",
                expected: Self::BYTES as u64,
                found: bytes.len() as u64,
            });
        };
        let codec = match (codec, relative) {
            (0, 0) if [first_k, degree_k, gap_k, run_k] == [0; 4] => RowCodec::EliasFano,
            (ROWS_BY_TIME, 0) if [first_k, degree_k, gap_k, run_k] == [0; 4] => RowCodec::ByTime,
            (1, 0 | 1) if [first_k, degree_k, gap_k, run_k].iter().all(|&k| k < GapCode::K_END) => {
                RowCodec::Gap(GapCode { first_is_relative: relative == 1, first_k, degree_k, gap_k, run_k })
            }
            _ => {
                let problem = format!("row codec {codec} with parameters {:?}", &bytes[1..8]);
                return Err(FormatError::invalid(META_AT, problem));
            }
        };
        let [universe, first_node, rows, edges, edge_bits, exceptions] =
            [universe, first_node, rows, edges, edge_bits, exceptions].map(u64::from_le_bytes);
        let meta = Self { codec, universe, first_node, rows, edges, edge_bits, exceptions };
        meta.check()?;
        Ok(meta)
    }

    /// The length of the payload of `edges` in bytes.
    pub fn edges_payload_bytes(&self) -> u64 {
        self.edge_bits.div_ceil(8) + PADDING_BYTES as u64
    }

    /// The length of the payload of `degrees` in bytes.
    pub fn degrees_payload_bytes(&self) -> u64 {
        directory_bytes(self.rows, self.exceptions).expect("checked when decoded")
    }

    fn check(&self) -> Result<()> {
        let Self { universe, first_node, rows, edges, edge_bits, exceptions, .. } = *self;
        invalid_if!(universe > NODES_MAX, META_AT, "{universe} nodes are more than 2^40");
        let end = first_node.checked_add(rows);
        invalid_if!(
            rows > ChunkMap::CHUNK_NODES_MAX || end.is_none_or(|end| end > NODES_MAX),
            META_AT,
            "{rows} rows from node {first_node} on are more than 2^32, or more than the 2^40 nodes that a graph can have"
        );
        // The directory stores bit positions in 48 bits, and a block of sources takes at least one bit.
        invalid_if!(
            edge_bits > 1 << 49 || edges > edge_bits * BLOCK,
            META_AT,
            "{edges} edges do not fit {edge_bits} bits"
        );
        invalid_if!(exceptions > rows, META_AT, "{exceptions} exceptions among {rows} rows");
        Ok(())
    }
}
