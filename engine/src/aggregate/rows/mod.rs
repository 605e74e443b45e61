//! One row of values for each node of a set.

mod states;
mod stored;

use std::{ops::Range, thread};

use grappa_formats::{ChunkId, NodeId, chunks::ChunkMap};
use grappa_io::{Result, workers};
use grappa_sampling::NodeSet;
use grappa_storage::{MappedChunks, Store};

pub(crate) use self::stored::StoredRows;
pub use self::{
    states::StateRows,
    stored::{AggregateRows, StoreFeatures},
};

/// Bytes of stored rows that are read at a time before they are decoded.
const READ_BYTES: usize = 1 << 20;
/// Rows that are at most this far apart are read together. Reading the bytes in between costs about as much as another read.
const GAP_BYTES: usize = 16 << 10;
/// Reading fewer rows takes less time than starting a thread.
const ROWS_PER_THREAD: usize = 1 << 10;

/// A row of values for each node of a [`NodeSet`], by position. Where nothing is said, it is the set of all nodes of a store.
pub trait NodeRows: Sync {
    /// Values in a row.
    fn width(&self) -> usize;

    /// Reads the rows at some positions into `out`, whose length is exactly theirs.
    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()>;

    /// All rows, if they are in memory.
    fn in_memory(&self) -> Option<&[f32]> {
        None
    }
}

/// Reads the rows at ascending `positions` on `threads` threads into `out`, whose length is exactly theirs. Positions that are
/// close to each other are read together, with the rows between them.
///
/// # Errors
/// If files cannot be read.
pub fn read_each(rows: &dyn NodeRows, positions: &[u64], out: &mut [f32], threads: usize) -> Result<()> {
    let width = rows.width();
    assert_eq!(out.len(), positions.len() * width, "room for the rows");
    if threads <= 1 || positions.len() < ROWS_PER_THREAD {
        return read_some(rows, positions, out);
    }
    let part = positions.len().div_ceil(threads);
    thread::scope(|scope| {
        let readers: Vec<_> = positions
            .chunks(part)
            .zip(out.chunks_mut(part * width))
            .map(|(positions, out)| workers::spawn(scope, move || read_some(rows, positions, out)))
            .collect::<Result<_>>()?;
        readers.into_iter().try_for_each(workers::join)
    })
}

fn read_some(rows: &dyn NodeRows, positions: &[u64], out: &mut [f32]) -> Result<()> {
    let width = rows.width();
    if let Some(values) = rows.in_memory() {
        for (position, out) in positions.iter().zip(out.chunks_exact_mut(width)) {
            out.copy_from_slice(&values[*position as usize * width..][..width]);
        }
        return Ok(());
    }
    let row_bytes = 4 * width.max(1);
    let (gap, most) = (
        (GAP_BYTES / row_bytes).max(1) as u64,
        (READ_BYTES / row_bytes).max(1) as u64,
    );
    let mut values = Vec::new();
    let (mut start, mut out) = (0, out);
    while let Some(&first) = positions.get(start) {
        let mut end = start + 1;
        while let Some(&next) = positions.get(end)
            && next - positions[end - 1] <= gap
            && next - first < most
        {
            end += 1;
        }
        let last = positions[end - 1];
        let (now, rest) = out.split_at_mut((end - start) * width);
        if last - first == (end - start - 1) as u64 {
            rows.read(first..last + 1, now)?;
        } else {
            values.resize((last - first + 1) as usize * width, 0.0);
            rows.read(first..last + 1, &mut values)?;
            for (position, out) in positions[start..end].iter().zip(now.chunks_exact_mut(width)) {
                out.copy_from_slice(&values[(position - first) as usize * width..][..width]);
            }
        }
        (start, out) = (end, rest);
    }
    Ok(())
}

/// The rows of the nodes of a set, from rows of all nodes.
pub struct SelectedRows<'a> {
    /// The rows of all nodes.
    pub rows: &'a dyn NodeRows,
    /// The nodes whose rows these are.
    pub set: &'a NodeSet,
}

impl NodeRows for SelectedRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, positions: Range<u64>, out: &mut [f32]) -> Result<()> {
        if self.set.is_all() {
            return self.rows.read(positions, out);
        }
        let mut nodes = Vec::new();
        self.set.nodes_at(positions, &mut nodes);
        let nodes: Vec<u64> = nodes.into_iter().map(|node| node.0).collect();
        read_each(self.rows, &nodes, out, 1)
    }

    fn in_memory(&self) -> Option<&[f32]> {
        self.rows.in_memory().filter(|_| self.set.is_all())
    }
}

fn check_room(nodes: &Range<u64>, width: usize, out: &[f32]) {
    let values = (nodes.end - nodes.start) * width as u64;
    assert_eq!(out.len() as u64, values, "room for the rows");
}

/// Rows times 1 / sqrt(in-degree + 1) of their nodes. GCN's symmetric normalisation with self-loops (Kipf and Welling, arXiv
/// 1609.02907, eq. 2) is this factor, a sum, and the same factor again.
pub struct ScaledRows<'a> {
    rows: &'a dyn NodeRows,
    chunks: MappedChunks,
}

impl<'a> ScaledRows<'a> {
    /// Scales `rows` by the degrees of the nodes of `store`.
    pub fn new(rows: &'a dyn NodeRows, store: &'a Store) -> Result<Self> {
        Ok(Self {
            rows,
            chunks: MappedChunks::open(store)?,
        })
    }

    /// The factor of a node with `degree` in-edges.
    pub fn factor(degree: u64) -> f32 {
        ((degree + 1) as f32).sqrt().recip()
    }
}

impl NodeRows for ScaledRows<'_> {
    fn width(&self) -> usize {
        self.rows.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        self.rows.read(nodes.clone(), out)?;
        let mut values = out.chunks_exact_mut(self.width());
        for (chunk, rows) in pieces(self.chunks.map(), nodes) {
            for (row, values) in self.chunks[chunk].rows().range(rows).zip(&mut values) {
                let factor = Self::factor(row?.degree());
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
        Ok(())
    }
}

/// The concatenation of two rows of each node.
pub struct Beside<'a>(pub &'a dyn NodeRows, pub &'a dyn NodeRows);

impl NodeRows for Beside<'_> {
    fn width(&self) -> usize {
        self.0.width() + self.1.width()
    }

    fn read(&self, nodes: Range<u64>, out: &mut [f32]) -> Result<()> {
        check_room(&nodes, self.width(), out);
        let piece = (READ_BYTES / 4 / self.width()).max(1);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        for (out, first) in out.chunks_mut(piece * self.width()).zip(nodes.clone().step_by(piece)) {
            let nodes = first..(first + piece as u64).min(nodes.end);
            for (rows, values) in [(self.0, &mut one), (self.1, &mut other)] {
                values.resize((nodes.end - nodes.start) as usize * rows.width(), 0.0);
                rows.read(nodes.clone(), values)?;
            }
            let rows = out.chunks_exact_mut(self.width());
            let parts = one.chunks_exact(self.0.width()).zip(other.chunks_exact(self.1.width()));
            for (out, (one, other)) in rows.zip(parts) {
                let (first, second) = out.split_at_mut(one.len());
                first.copy_from_slice(one);
                second.copy_from_slice(other);
            }
        }
        Ok(())
    }
}

/// Cuts a range of nodes at the boundaries of chunks: each chunk, and the range of rows in it.
pub(crate) fn pieces(map: &ChunkMap, nodes: Range<u64>) -> impl Iterator<Item = (ChunkId, Range<u64>)> + '_ {
    let mut at = nodes.start;
    std::iter::from_fn(move || {
        (at < nodes.end).then(|| {
            let chunk = map.chunk_of(NodeId(at));
            let range = map.range(chunk);
            let end = range.end.min(nodes.end);
            let rows = at - range.start..end - range.start;
            at = end;
            (chunk, rows)
        })
    })
}
