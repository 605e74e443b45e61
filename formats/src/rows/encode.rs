//! Encoder: from rows to the payloads of `edges` and `degrees`.

use super::{
    bits::BitWriter,
    directory::{DirectoryWriter, HEAD_BYTES},
    elias_fano, gap,
    meta::{RowCodec, RowsMeta},
};
use crate::NODES_MAX;

/// Encodes the rows of a chunk one after the other.
///
/// Memory: the bytes that were not taken yet, the lines of the directory, 64 bytes per 54 rows, and 6 bytes per
/// exception that was not taken yet. Exceptions are the rows of 255 or more sources in Elias-Fano, and of 255 or more
/// bits with gaps.
#[derive(Debug)]
pub struct RowsEncoder {
    codec: RowCodec,
    universe: u64,
    first_node: u64,
    edges: u64,
    rows: BitWriter,
    directory: DirectoryWriter,
}

/// The last part of an encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowsTail {
    /// The rest of the payload of `edges`, after the bytes that were taken.
    pub edges_payload_rest: Vec<u8>,
    /// The payload of `degrees`, without the exceptions that were taken.
    pub degrees_payload: Vec<u8>,
    /// The meta of both files.
    pub meta: RowsMeta,
}

impl RowsEncoder {
    /// An encoder of the rows of nodes `first_node..`, of a graph of `universe` nodes.
    ///
    /// # Panics
    /// If there are more than 2^40 nodes.
    pub fn new(codec: RowCodec, universe: u64, first_node: u64) -> Self {
        assert!(universe <= NODES_MAX, "{universe} nodes");
        Self {
            codec,
            universe,
            first_node,
            edges: 0,
            rows: BitWriter::default(),
            directory: DirectoryWriter::default(),
        }
    }

    /// Reserves the directory of `rows` more rows. Without that, it may take twice its memory while it grows.
    pub fn reserve(&mut self, rows: u64) {
        self.directory.reserve(rows);
    }

    /// Appends the next row, which may be empty.
    ///
    /// # Panics
    /// If `sources` do not ascend, unless they are in the order of time, or are not all below the universe, or there are more rows than nodes.
    pub fn push(&mut self, sources: &[u64]) {
        let node = self.first_node + self.directory.rows;
        assert!(node < NODES_MAX, "the row of node {node}");
        let source_max = match self.codec {
            RowCodec::ByTime => sources.iter().max(),
            RowCodec::EliasFano | RowCodec::Gap(_) => {
                assert!(sources.is_sorted(), "the sources of node {node} do not ascend");
                sources.last()
            }
        };
        assert!(
            source_max.is_none_or(|&source| source < self.universe),
            "a source of node {node} is not below {}",
            self.universe
        );
        self.edges += sources.len() as u64;
        let start = self.rows.bits();
        let source_max = self.universe.saturating_sub(1);
        let code = match &self.codec {
            codec @ (RowCodec::EliasFano | RowCodec::ByTime) => {
                let degree = sources.len() as u64;
                elias_fano::encode(&mut self.rows, sources, codec.shape(degree, source_max));
                degree
            }
            RowCodec::Gap(code) => gap::encode(&mut self.rows, code, node, sources, source_max),
        };
        self.directory.push(start, code);
    }

    /// Number of bytes that [`RowsEncoder::take_bytes`] would return.
    pub fn finished_bytes(&self) -> usize {
        self.rows.finished_bytes()
    }

    /// Takes the finished bytes of the payload of `edges`. Take them every megabyte to bound the memory.
    pub fn take_bytes(&mut self) -> Vec<u8> {
        self.rows.take_bytes()
    }

    /// Number of bytes that [`RowsEncoder::take_exceptions`] would return.
    pub fn exceptions_bytes(&self) -> usize {
        self.directory.exceptions.len()
    }

    /// Takes the finished bytes of the end of the payload of `degrees`. If some are taken, all that remain must be
    /// taken before [`RowsEncoder::finish`].
    pub fn take_exceptions(&mut self) -> Vec<u8> {
        self.directory.take_exceptions()
    }

    /// How a line of the directory starts whose first row is the next one.
    pub(super) fn directory_head(&self) -> [u8; HEAD_BYTES] {
        self.directory.head(self.rows.bits())
    }

    /// Finishes the encoding.
    ///
    /// # Panics
    /// If some exceptions were taken, and not all.
    pub fn finish(self) -> RowsTail {
        let meta = RowsMeta {
            codec: self.codec,
            universe: self.universe,
            first_node: self.first_node,
            rows: self.directory.rows,
            edges: self.edges,
            edge_bits: self.rows.bits(),
            exceptions: self.directory.exceptions(),
        };
        RowsTail { edges_payload_rest: self.rows.finish(), degrees_payload: self.directory.finish(), meta }
    }
}
