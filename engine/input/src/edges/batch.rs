//! Parsed edges of one block. A worker clears and refills its batch block after block, so its memory is allocated once.

use grappa_io::{Position, Result, heap};

use super::{
    BadEdge,
    order::EdgePlace,
    time::{TimeValue, bit_of},
};

/// The purpose of the memory, in errors.
pub(super) const BLOCK: &str = "a block of edges";

/// Edges with integer ids, in file order: edge `k` goes from `sources[k]` to `targets[k]`.
#[derive(Debug, Default)]
pub struct EdgeBatch {
    /// The column of sources.
    pub sources: Vec<u64>,
    /// The column of targets.
    pub targets: Vec<u64>,
    /// The finite values of each edge, one edge after another: the weight, if the source is weighted, then the features.
    pub values: Vec<f32>,
    /// The place of each edge in the order of the edges, if the source has one.
    pub order: EdgeOrder,
}

/// The places of edges in the order that a column says, and their times, which another column says.
#[derive(Debug, Default)]
pub struct EdgeOrder {
    /// A number, or the days since 1970-01-01, of each edge. Empty if the source has no such column.
    pub values: Vec<f64>,
    /// The kinds of these values, as bits.
    pub(super) kinds: u8,
    /// The time of each edge. Empty if the source has no such column.
    pub times: Vec<i64>,
    /// The units of these times in the input, as bits.
    pub(super) units: u8,
}

impl EdgeOrder {
    pub(super) fn push(&mut self, place: EdgePlace) {
        self.values.push(place.value);
        self.kinds |= place.kind;
    }

    pub(super) fn push_time(&mut self, time: TimeValue) {
        self.times.push(time.value);
        self.units |= bit_of(time.unit);
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.times.clear();
        (self.kinds, self.units) = (0, 0);
    }

    /// The numbers of places and of times.
    pub(super) fn lengths(&self) -> [usize; 2] {
        [self.values.len(), self.times.len()]
    }

    /// Removes what was added since [`Self::lengths`] returned these.
    pub(super) fn truncate_to(&mut self, [values, times]: [usize; 2]) {
        self.values.truncate(values);
        self.times.truncate(times);
    }

    /// Moves what an edge has to the place of an edge before it.
    pub fn shift(&mut self, from: usize, to: usize) {
        if let Some(&place) = self.values.get(from) {
            self.values[to] = place;
        }
        if let Some(&time) = self.times.get(from) {
            self.times[to] = time;
        }
    }

    /// Keeps the first `edges` edges.
    pub fn truncate(&mut self, edges: usize) {
        self.truncate_to([edges; 2]);
    }
}

impl EdgeBatch {
    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
        self.values.clear();
        self.order.clear();
    }

    /// The column of sources, 0, or of targets.
    pub(super) fn end_mut(&mut self, end: usize) -> &mut Vec<u64> {
        match end {
            0 => &mut self.sources,
            _ => &mut self.targets,
        }
    }

    /// Adds an edge without features. `weighted` is the same for all edges of a batch.
    #[inline(always)]
    pub(super) fn push(&mut self, (source, target, weight): (u64, u64, f32), weighted: bool) {
        self.sources.push(source);
        self.targets.push(target);
        if weighted {
            self.values.push(weight);
        }
    }

    /// Reserves memory for edges with `width` values each.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn reserve(&mut self, edges: usize, width: usize) -> Result<()> {
        // Exactly: a vector that grows by doubling may hold twice its edges, and memory budgets count on less.
        heap::reserve(&mut self.sources, edges, BLOCK)?;
        heap::reserve(&mut self.targets, edges, BLOCK)?;
        heap::reserve(&mut self.values, width * edges, BLOCK)
    }
}

/// Edges with strings as ids, at one end at least. At the other, a key may be an integer: its eight bytes, the highest first.
#[derive(Debug, Default)]
pub struct TextBatch {
    /// The column of sources.
    pub sources: Keys,
    /// The column of targets.
    pub targets: Keys,
    /// As [`EdgeBatch::values`].
    pub values: Vec<f32>,
    /// As [`EdgeBatch::order`].
    pub order: EdgeOrder,
}

impl TextBatch {
    pub(super) fn clear(&mut self) {
        self.sources.clear();
        self.targets.clear();
        self.values.clear();
        self.order.clear();
    }
}

/// A list of strings in one buffer. Each is valid UTF-8 and not empty, but in [`TextBatch`] also eight bytes of an integer.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Keys {
    /// The bytes of all keys.
    pub bytes: Vec<u8>,
    /// The end of each key in `bytes`. A key starts where the one before it ends.
    pub ends: Vec<usize>,
}

impl Keys {
    /// Number of keys.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key at `index`, which must be below `len()`.
    pub fn get(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start..self.ends[index]]
    }

    /// All keys in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Adds a key at the end.
    pub fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    /// Removes all keys and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// The integer that a key of a [`TextBatch`] is.
///
/// # Panics
/// If it has not eight bytes.
pub fn integer_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key.try_into().expect("an integer has eight bytes"))
}

/// A line or row that is not an edge, and is left out under [`OnBadLine::Skip`](super::OnBadLine::Skip).
///
/// A reject takes much more memory than a short line, so parsers hand out one at a time and keep none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The line of a text file, or the row of an array or table.
    pub position: Position,
    /// The problem with it.
    pub reason: BadEdge,
    /// The line without its line end, or the row written as a line. Bytes that are not UTF-8 are replaced, and the text is
    /// cut after [`REJECT_BYTES_MAX`] bytes.
    pub text: Box<str>,
}

/// The bytes kept of a rejected line.
pub const REJECT_BYTES_MAX: usize = 1024;

impl Reject {
    pub(super) fn new(position: Position, reason: BadEdge, line: &[u8]) -> Self {
        let line = &line[..line.len().min(REJECT_BYTES_MAX)];
        Self { position, reason, text: String::from_utf8_lossy(line).into() }
    }
}
