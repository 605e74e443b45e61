//! The node permutation as a table, for orders of nodes that the user gives.
//!
//! ```text
//! meta    offset  bytes  content
//!              0      8  N: number of nodes
//! payload    5*k      5  the node of dense id k
//!        5*(N+v)      5  the dense id of node v
//! ```
//!
//! The table takes ten bytes per node, and a lookup in either direction is one random access. A
//! [`Feistel`](crate::permutation::Feistel) permutation needs no table.

use std::ops::Range;

use crate::{
    DenseId, NODES_MAX, NodeId, Result,
    bytes::{Fields, check_payload_length, check_payload_slice},
    container::Header,
    error::invalid_if,
    random,
};

/// Bytes per entry.
pub const ENTRY_BYTES: usize = 5;

/// Appends nodes, or dense ids, to a payload.
///
/// # Panics
/// If one of them is not below 2^40.
pub fn encode_entries(entries: &[u64], payload: &mut Vec<u8>) {
    payload.reserve(entries.len() * ENTRY_BYTES);
    for &id in entries {
        payload.extend_from_slice(&entry(id));
    }
}

/// The entry of a node or dense id.
///
/// # Panics
/// If it is not below 2^40.
#[inline]
pub fn entry(id: u64) -> [u8; ENTRY_BYTES] {
    assert!(id < NODES_MAX, "node or dense id {id}");
    let [a, b, c, d, e, ..] = id.to_le_bytes();
    [a, b, c, d, e]
}

/// The meta of the file `ids/order`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PermutationTableMeta {
    /// Number of nodes.
    pub nodes: u64,
}

impl PermutationTableMeta {
    /// Length of an encoded meta.
    pub const BYTES: usize = 8;

    /// The meta of the container file.
    pub fn encode(&self) -> Vec<u8> {
        self.nodes.to_le_bytes().to_vec()
    }

    /// Decodes and checks the meta, and checks the length of the payload against it.
    pub fn decode(header: &Header) -> Result<Self> {
        let nodes = Fields::from_header(header, Self::BYTES)?.node_count("nodes")?;
        check_payload_length(header, Some(nodes * 2 * ENTRY_BYTES as u64))?;
        Ok(Self { nodes })
    }
}

/// Reader of a permutation of `0..nodes` and its inverse.
///
/// ```
/// use grappa_formats::{
///     DenseId, NodeId,
///     container::{FileKind, decode_file, encode_file},
///     permutation_table::{PermutationTable, PermutationTableMeta, encode_entries},
/// };
///
/// // The nodes of dense ids 0, 1 and 2, then the dense ids of nodes 0, 1 and 2.
/// let mut payload = Vec::new();
/// encode_entries(&[2, 0, 1], &mut payload);
/// encode_entries(&[1, 2, 0], &mut payload);
/// let (file, _) = encode_file(FileKind::PERMUTATION, PermutationTableMeta { nodes: 3 }.encode(), &payload);
///
/// let (header, payload) = decode_file(&file, FileKind::PERMUTATION)?;
/// let table = PermutationTable::new(&header, payload)?;
/// assert_eq!((table.node(DenseId(0))?, table.dense_id(NodeId(2))?), (NodeId(2), DenseId(0)));
/// table.check(0..3)?;
/// # Ok::<(), grappa_formats::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PermutationTable<'a> {
    nodes: &'a [[u8; ENTRY_BYTES]],
    dense_ids: &'a [[u8; ENTRY_BYTES]],
    payload_offset: u64,
}

impl<'a> PermutationTable<'a> {
    /// Reads `payload`, the payload of the file with this header.
    pub fn new(header: &Header, payload: &'a [u8]) -> Result<Self> {
        check_payload_slice(header, payload)?;
        let meta = PermutationTableMeta::decode(header)?;
        let (nodes, dense_ids) = payload.as_chunks().0.split_at(meta.nodes as usize);
        Ok(Self { nodes, dense_ids, payload_offset: header.payload_offset })
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The node of a dense id.
    ///
    /// # Errors
    /// [`Invalid`](crate::FormatError::Invalid) if the entry is not a node.
    ///
    /// # Panics
    /// If the id is not below the number of nodes.
    #[inline]
    pub fn node(&self, id: DenseId) -> Result<NodeId> {
        self.entry(self.nodes, id.0, 0).map(NodeId)
    }

    /// The dense id of a node: the inverse of [`PermutationTable::node`].
    ///
    /// # Errors
    /// [`Invalid`](crate::FormatError::Invalid) if the entry is not a dense id.
    ///
    /// # Panics
    /// If `node` is not below the number of nodes.
    #[inline]
    pub fn dense_id(&self, node: NodeId) -> Result<DenseId> {
        self.entry(self.dense_ids, node.0, self.nodes()).map(DenseId)
    }

    /// Checks that each dense id of a range comes back from its node.
    ///
    /// If this holds for all dense ids, both tables are permutations: two dense ids cannot share a node, because the
    /// node has only one dense id.
    ///
    /// # Panics
    /// If the range ends beyond the number of nodes.
    pub fn check(&self, ids: Range<u64>) -> Result<()> {
        for id in ids.map(DenseId) {
            let node = self.node(id)?;
            let back = self.dense_id(node)?;
            invalid_if!(
                back != id,
                self.offset(id.0),
                "dense id {id} has node {node}, but that node has dense id {back}"
            );
        }
        Ok(())
    }

    /// The sum of the hashes of the pairs of dense id and node that the nodes of a range of dense ids are in.
    ///
    /// # Errors
    /// [`Invalid`](crate::FormatError::Invalid) if an entry is not a node.
    ///
    /// # Panics
    /// If the range ends beyond the number of nodes.
    pub fn sum_of_ids(&self, ids: Range<u64>) -> Result<u64> {
        ids.map(DenseId).try_fold(0, |sum: u64, id| Ok(sum.wrapping_add(hash_of_pair(id, self.node(id)?))))
    }

    /// As [`PermutationTable::sum_of_ids`], by the other table. Over all dense ids and all nodes, both sums are equal
    /// if each table is the inverse of the other; if not, they differ but for one case in 2^64.
    ///
    /// # Errors
    /// [`Invalid`](crate::FormatError::Invalid) if an entry is not a dense id.
    ///
    /// # Panics
    /// If the range ends beyond the number of nodes.
    pub fn sum_of_nodes(&self, nodes: Range<u64>) -> Result<u64> {
        nodes.map(NodeId).try_fold(0, |sum: u64, node| Ok(sum.wrapping_add(hash_of_pair(self.dense_id(node)?, node))))
    }

    #[inline]
    fn entry(&self, table: &[[u8; ENTRY_BYTES]], i: u64, table_start: u64) -> Result<u64> {
        let [a, b, c, d, e] = table[i as usize];
        let entry = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        invalid_if!(
            entry >= self.nodes(),
            self.offset(table_start + i),
            "the node permutation has the entry {entry}, but there are {} nodes",
            self.nodes()
        );
        Ok(entry)
    }

    #[cold]
    fn offset(&self, entry: u64) -> u64 {
        self.payload_offset + entry * ENTRY_BYTES as u64
    }
}

/// A hash of a dense id and its node.
fn hash_of_pair(id: DenseId, node: NodeId) -> u64 {
    random::combine(random::hash(id.0), node.0)
}
