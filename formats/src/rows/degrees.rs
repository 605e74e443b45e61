//! The in-degrees of a chunk without its adjacency lists: the file `degrees` alone. A slice has the in-degrees of its
//! halo nodes.

use super::{RowCodec, RowSizes, Rows, RowsMeta, check::first_difference, directory::DirectoryWriter, elias_fano_bits};
use crate::{FormatError, NODES_MAX, Result, container::HEADER_BYTES, error::invalid_if};

/// Encodes in-degrees as the directory of adjacency lists in Elias-Fano code.
///
/// Memory: 64 bytes per 54 nodes, and 6 bytes per node with 255 or more in-edges.
#[derive(Debug)]
pub struct DegreesEncoder {
    universe: u64,
    first_node: u64,
    edges: u64,
    edge_bits: u64,
    directory: DirectoryWriter,
}

impl DegreesEncoder {
    /// An encoder of the in-degrees of nodes `first_node..`, of a graph of `universe` nodes.
    ///
    /// # Panics
    /// If there are more than 2^40 nodes.
    pub fn new(universe: u64, first_node: u64) -> Self {
        assert!(universe <= NODES_MAX, "{universe} nodes");
        Self { universe, first_node, edges: 0, edge_bits: 0, directory: DirectoryWriter::default() }
    }

    /// Reserves the memory of `nodes` more nodes, apart from those with 255 or more in-edges.
    pub fn reserve(&mut self, nodes: u64) {
        self.directory.reserve(nodes);
    }

    /// Appends the in-degree of the next node.
    ///
    /// # Panics
    /// If there are more nodes than the graph has, or in-edges than a chunk can have.
    pub fn push(&mut self, degree: u64) {
        let node = self.first_node + self.directory.rows;
        assert!(node < NODES_MAX, "the in-degree of node {node}");
        self.directory.push(self.edge_bits, degree);
        self.edges += degree;
        self.edge_bits += elias_fano_bits(degree, self.universe.saturating_sub(1));
    }

    /// The payload of `degrees`, and its meta.
    pub fn finish(self) -> (Vec<u8>, RowsMeta) {
        let meta = RowsMeta {
            codec: RowCodec::EliasFano,
            universe: self.universe,
            first_node: self.first_node,
            rows: self.directory.rows,
            edges: self.edges,
            edge_bits: self.edge_bits,
            exceptions: self.directory.exceptions(),
        };
        (self.directory.finish(), meta)
    }
}

/// The in-degrees of a chunk, in place: the payload of its file `degrees`.
///
/// ```
/// use grappa_formats::rows::{ChunkDegrees, DegreesEncoder, RowSizes};
///
/// let mut encoder = DegreesEncoder::new(1000, 0);
/// for degree in [3, 0, 12] {
///     encoder.push(degree);
/// }
/// let (payload, meta) = encoder.finish();
/// let sizes = RowSizes::from_meta(&meta);
/// assert_eq!(ChunkDegrees::new(&meta, &sizes, &payload)?.directory().degree(2), 12);
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChunkDegrees<'a>(Rows<'a>);

impl<'a> ChunkDegrees<'a> {
    /// The in-degrees in this payload. Checks only its code and length.
    ///
    /// # Panics
    /// If the sizes are for other files.
    pub fn new(meta: &RowsMeta, sizes: &'a RowSizes, payload: &'a [u8]) -> Result<Self> {
        invalid_if!(
            meta.codec != RowCodec::EliasFano,
            HEADER_BYTES as u64,
            "in-degrees without adjacency lists must be in Elias-Fano code"
        );
        Rows::part(meta, sizes, 0, &[], payload).map(Self)
    }

    /// The directory. Its adjacency lists are empty, and their lengths are the in-degrees.
    pub fn directory(&self) -> &Rows<'a> {
        &self.0
    }

    /// Checks every bit of the payload. In-degrees have exactly one encoding, so decoded ones must give the same bytes.
    /// The offset of an error counts from the start of the payload.
    pub fn check(&self) -> Result<()> {
        let meta = &self.0.meta;
        // The directory has 48 bits for the place of a list.
        let bits_max = meta.edge_bits.min((1 << 48) - 1);
        let mut encoder = DegreesEncoder::new(meta.universe, meta.first_node);
        for row in 0..meta.rows {
            encoder.push(self.0.degree(row));
            if encoder.edge_bits > bits_max {
                let at = self.0.directory_line(row).start as u64;
                return Err(FormatError::invalid(at, "more in-edges than the file has, in this line or before"));
            }
        }
        let (payload, found) = encoder.finish();
        if let Some(at) = first_difference(&payload, self.0.degrees_payload()) {
            return Err(FormatError::invalid(at as u64, "these bytes are not the encoding of any in-degrees"));
        }
        if found != *meta {
            let problem = format!("in-degrees of {} edges, not {}", found.edges, meta.edges);
            return Err(FormatError::invalid(0, problem));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{random, rows::RowsEncoder};

    /// In-degrees of about 2, and a few of up to 2000.
    fn degree(node: u64) -> u64 {
        let draw = random::hash(node);
        if draw.is_multiple_of(20) { draw % 2000 } else { draw % 4 }
    }

    #[test]
    fn in_degrees_are_encoded_as_in_the_directory_of_elias_fano_lists() {
        for (nodes, first, rows) in [(1, 0, 1), (3000, 0, 3000), (3000, 1000, 541), (1 << 40, (1 << 40) - 100, 100)] {
            let mut lists = RowsEncoder::new(RowCodec::EliasFano, nodes, first);
            let mut degrees = DegreesEncoder::new(nodes, first);
            degrees.reserve(rows);
            for node in first..first + rows {
                lists.push(&vec![node / 2; degree(node) as usize]);
                degrees.push(degree(node));
            }
            let whole = lists.finish();
            let (payload, meta) = degrees.finish();
            assert_eq!((&payload, meta), (&whole.degrees_payload, whole.meta));
            let sizes = RowSizes::from_meta(&meta);
            let read = ChunkDegrees::new(&meta, &sizes, &payload).unwrap();
            for row in 0..rows {
                assert_eq!(read.directory().degree(row), degree(first + row));
            }
            read.check().unwrap();
        }
    }

    #[test]
    fn every_flipped_bit_and_every_other_meta_is_found() {
        let mut degrees = DegreesEncoder::new(1000, 7);
        (7..150).for_each(|node| degrees.push(degree(node)));
        let (payload, meta) = degrees.finish();
        let sizes = RowSizes::from_meta(&meta);
        let check = |meta: &RowsMeta, payload: &[u8]| {
            ChunkDegrees::new(meta, &sizes, payload).and_then(|degrees| degrees.check())
        };
        assert!(meta.exceptions > 0, "{meta:?}");
        for bit in 0..8 * payload.len() {
            let mut flipped = payload.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            check(&meta, &flipped).unwrap_err();
        }
        let RowsMeta { edges, edge_bits, exceptions, .. } = meta;
        for other in [
            RowsMeta { edges: edges + 1, ..meta },
            RowsMeta { edge_bits: edge_bits + 1, ..meta },
            RowsMeta { exceptions: exceptions - 1, ..meta },
        ] {
            check(&other, &payload).unwrap_err();
        }
    }

    #[test]
    fn in_degrees_in_gap_code_are_refused() {
        let code = crate::rows::GapCode { first_is_relative: false, first_k: 0, degree_k: 0, gap_k: 0, run_k: 0 };
        let tail = RowsEncoder::new(RowCodec::Gap(code), 10, 0).finish();
        let error = ChunkDegrees::new(&tail.meta, &RowSizes::from_meta(&tail.meta), &tail.degrees_payload).unwrap_err();
        assert!(error.to_string().contains("Elias-Fano"), "{error}");
    }
}
