//! The bytes of a sweep: pairs of a node and a part, drawn edges, and what a hop added to a part.
//!
//! Numbers are varints, and differences from the number before where these are small.

use grappa_formats::{
    NodeId,
    varint::{put_varint, take_varint},
};

use crate::sample::Block;

/// Reads bytes that a sweep wrote. Every method returns none if they are damaged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(pub &'a [u8]);

impl Reader<'_> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub fn number(&mut self) -> Option<u64> {
        let (value, bytes) = take_varint(self.0)?;
        self.0 = &self.0[bytes..];
        Some(value)
    }

    /// A number that counts or indexes.
    #[inline]
    pub fn index(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    /// The number after `before`, by their difference.
    #[inline]
    pub fn after(&mut self, before: u64) -> Option<u64> {
        let folded = self.number()?;
        let difference = (folded >> 1) as i64 ^ -((folded & 1) as i64);
        Some(before.wrapping_add_signed(difference))
    }

    /// The length that [`put_with_length`] wrote.
    pub fn length(&mut self) -> Option<usize> {
        self.array().map(|length| u32::from_le_bytes(length) as usize)
    }

    pub fn time(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    /// A list of numbers, each by its difference from the one before.
    fn ids(&mut self, count: usize, mut push: impl FnMut(u64)) -> Option<()> {
        let mut before = 0;
        for _ in 0..count {
            before = self.after(before)?;
            push(before);
        }
        Some(())
    }
}

/// Appends a record after its length in bytes, so that readers can skip it.
#[inline]
pub(super) fn put_with_length(bytes: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = bytes.len();
    bytes.extend_from_slice(&[0; 4]);
    put(bytes);
    let (before, record) = bytes.split_at_mut(start + 4);
    let length = u32::try_from(record.len()).expect("the edges of a destination are below 4 GiB");
    before[start..].copy_from_slice(&length.to_le_bytes());
}

/// Appends `value` by its difference from `before`. Both are below 2^62.
#[inline]
pub(super) fn put_after(before: u64, value: u64, bytes: &mut Vec<u8>) {
    let difference = value.wrapping_sub(before) as i64;
    put_varint((difference << 1 ^ difference >> 63) as u64, bytes);
}

fn put_ids(ids: impl Iterator<Item = u64>, bytes: &mut Vec<u8>) {
    let mut before = 0;
    for id in ids {
        put_after(before, id, bytes);
        before = id;
    }
}

/// What is drawn for a destination by a relation at a hop, beside the sources.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EdgeColumns {
    pub weights: bool,
    pub ids: bool,
    pub times: bool,
}

/// A place in the pairs of a bucket: pairs come by part, and by index in the part.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PairPlace {
    part: u32,
    index: u32,
}

/// A node that a part expands at a hop.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// The node, as a number in its bucket.
    pub node: u64,
    pub part: u32,
    /// The index of the node among those of its type in the part.
    pub index: u32,
    /// The limit of its edges, if nodes have limits.
    pub limit: Option<i64>,
}

impl PairPlace {
    #[inline]
    pub fn put(&mut self, pair: Pair, bytes: &mut Vec<u8>) {
        let Self { part, index } = *self;
        put_varint((pair.part - part).into(), bytes);
        let before = if pair.part == part { index } else { 0 };
        put_varint((pair.index - before).into(), bytes);
        put_varint(pair.node, bytes);
        if let Some(limit) = pair.limit {
            bytes.extend_from_slice(&limit.to_le_bytes());
        }
        *self = Self { part: pair.part, index: pair.index };
    }

    #[inline]
    pub fn take(&mut self, bytes: &mut Reader<'_>, has_limit: bool) -> Option<Pair> {
        let part = self.part.checked_add(bytes.index()?)?;
        let before = if part == self.part { self.index } else { 0 };
        let index = before.checked_add(bytes.index()?)?;
        *self = Self { part, index };
        let node = bytes.number()?;
        let limit = if has_limit { Some(bytes.time()?) } else { None };
        Some(Pair { node, part, index, limit })
    }
}

/// Appends what a destination of a block drew: its degrees and the values of its edges. `drawn` has the sources of all edges of the block, and
/// their times, or nothing.
pub(super) fn put_drawn(
    block: &Block,
    (sources, times): (&[NodeId], &[i64]),
    destination: usize,
    columns: EdgeColumns,
    bytes: &mut Vec<u8>,
) {
    let edges = block.edges_of(destination);
    put_varint(edges.len() as u64, bytes);
    put_degrees(block, destination, bytes);
    put_ids(sources[edges.clone()].iter().map(|source| source.0), bytes);
    put_columns(block, times, edges, columns, bytes);
}

fn put_degrees(block: &Block, destination: usize, bytes: &mut Vec<u8>) {
    let [visible, global] = [block.visible[destination], block.global[destination]];
    match block.halo[destination] {
        true => put_varint(0, bytes),
        false => {
            put_varint(global + 1, bytes);
            put_varint(global - visible, bytes);
        }
    }
}

fn take_degrees(bytes: &mut Reader<'_>, block: &mut Block) -> Option<()> {
    let (visible, global, halo) = match bytes.number()? {
        0 => (0, 0, true),
        more => (more - 1 - bytes.number().filter(|hidden| *hidden < more)?, more - 1, false),
    };
    block.visible.push(visible);
    block.global.push(global);
    block.halo.push(halo);
    Some(())
}

fn put_columns(block: &Block, times: &[i64], edges: std::ops::Range<usize>, columns: EdgeColumns, bytes: &mut Vec<u8>) {
    if columns.weights {
        block.edge_weights[edges.clone()].iter().for_each(|weight| bytes.extend_from_slice(&weight.to_le_bytes()));
    }
    if columns.ids {
        put_ids(block.edge_ids[edges.clone()].iter().copied(), bytes);
    }
    if columns.times {
        times[edges].iter().for_each(|time| bytes.extend_from_slice(&time.to_le_bytes()));
    }
}

fn take_columns(bytes: &mut Reader<'_>, count: usize, columns: EdgeColumns, block: &mut Block) -> Option<()> {
    if columns.weights {
        for _ in 0..count {
            block.edge_weights.push(bytes.array().map(f32::from_le_bytes)?);
        }
    }
    if columns.ids {
        bytes.ids(count, |id| block.edge_ids.push(id))?;
    }
    if columns.times {
        for _ in 0..count {
            block.edge_times.push(bytes.time()?);
        }
    }
    Some(())
}

/// Reads what [`put_drawn`] wrote, and appends it to `block` as its next destination. Sources are appended to `sources`.
pub(super) fn take_drawn(
    bytes: &mut Reader<'_>,
    columns: EdgeColumns,
    block: &mut Block,
    sources: &mut Vec<NodeId>,
) -> Option<()> {
    let count = bytes.index()? as usize;
    take_degrees(bytes, block)?;
    bytes.ids(count, |source| sources.push(NodeId(source)))?;
    take_columns(bytes, count, columns, block)?;
    block.offsets.push(sources.len() as u32);
    Some(())
}

/// Appends a block of a part. The first `skipped` destinations draw nothing.
pub(super) fn put_block(block: &Block, skipped: usize, columns: EdgeColumns, bytes: &mut Vec<u8>) {
    put_varint(block.destinations as u64, bytes);
    put_varint(skipped as u64, bytes);
    for destination in skipped..block.destinations {
        let edges = block.edges_of(destination);
        put_varint(edges.len() as u64, bytes);
        put_degrees(block, destination, bytes);
        block.indices[edges.clone()].iter().for_each(|&index| put_varint(index.into(), bytes));
        put_columns(block, &block.edge_times, edges, columns, bytes);
    }
}

/// Replaces `block` with what [`put_block`] wrote. The number of its sources is not among it.
pub(super) fn take_block(bytes: &mut Reader<'_>, columns: EdgeColumns, block: &mut Block) -> Option<()> {
    block.clear();
    let (destinations, skipped) = (bytes.index()? as usize, bytes.index()? as usize);
    if skipped > destinations || destinations - skipped > bytes.0.len() {
        return None;
    }
    block.begin(destinations);
    block.skip(skipped);
    for _ in skipped..destinations {
        let count = bytes.index()? as usize;
        take_degrees(bytes, block)?;
        for _ in 0..count {
            block.indices.push(bytes.index()?);
        }
        take_columns(bytes, count, columns, block)?;
        block.offsets.push(block.indices.len() as u32);
    }
    Some(())
}

/// Appends the nodes of a type that a hop added to a part, and their limits, if they have some.
pub(super) fn put_nodes(nodes: &[NodeId], limits: &[i64], bytes: &mut Vec<u8>) {
    put_varint(nodes.len() as u64, bytes);
    nodes.iter().for_each(|node| put_varint(node.0, bytes));
    limits.iter().for_each(|limit| bytes.extend_from_slice(&limit.to_le_bytes()));
}

/// Appends the nodes that [`put_nodes`] wrote to `nodes`, and their limits, if they have some, to `limits`.
pub(super) fn take_nodes(bytes: &mut Reader<'_>, nodes: &mut Vec<NodeId>, limits: Option<&mut Vec<i64>>) -> Option<()> {
    let count = bytes.index()?;
    for _ in 0..count {
        nodes.push(NodeId(bytes.number()?));
    }
    if let Some(limits) = limits {
        for _ in 0..count {
            limits.push(bytes.time()?);
        }
    }
    Some(())
}
