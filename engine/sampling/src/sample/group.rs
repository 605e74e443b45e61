//! Destinations that are worked on together.

use grappa_formats::NodeId;
use grappa_io::Result;

use super::draw::DrawScratch;
use crate::view::rows::{Degrees, Positions, Rows};

/// How many they are: so many that the first of them has arrived when the last one was asked for, and so few that what is
/// known about them stays in the first level of the cache.
pub(super) const GROUP: usize = 64;

/// What is known about a group of destinations, or of walks: where their rows are, and what is kept of them.
#[derive(Debug)]
pub(super) struct Group<'a, R: Rows> {
    pub rows: &'a R,
    pub scratch: &'a mut GroupScratch,
    pub places: Vec<R::Place>,
    pub notes: R::Notes,
    heads: Vec<R::Head>,
}

/// What is kept of rows, whatever their kind. Its memory is used again and again.
#[derive(Debug, Default)]
pub(super) struct GroupScratch {
    pub taken: Vec<Taken>,
    pub positions: Vec<u64>,
    pub sources: Vec<NodeId>,
    pub weights: Vec<f32>,
    pub draw: DrawScratch,
}

impl GroupScratch {
    /// Bytes of memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        let Self {
            taken,
            positions,
            sources,
            weights,
            draw,
        } = self;
        let bytes = taken.capacity() * size_of::<Taken>()
            + positions.capacity() * size_of::<u64>()
            + sources.capacity() * size_of::<NodeId>()
            + weights.capacity() * size_of::<f32>();
        bytes as u64 + draw.bytes()
    }
}

impl<'a, R: Rows> Group<'a, R> {
    /// An empty group.
    pub(super) fn new(rows: &'a R, scratch: &'a mut GroupScratch) -> Self {
        Self {
            rows,
            scratch,
            places: Vec::with_capacity(GROUP),
            notes: R::Notes::default(),
            heads: Vec::with_capacity(GROUP),
        }
    }

    /// Begins a group: finds the rows of `nodes`. Fails if one is damaged.
    #[inline(always)]
    pub(super) fn locate(&mut self, nodes: impl Iterator<Item = NodeId>) -> Result<()> {
        let rows = self.rows;
        rows.keep_memory();
        R::clear(&mut self.notes);
        self.scratch.taken.clear();
        self.scratch.positions.clear();
        self.scratch.sources.clear();
        self.heads.clear();
        self.heads.extend(nodes.map(|node| rows.head(node)));
        self.heads.iter().for_each(|&head| rows.prefetch_head(head));
        self.places.clear();
        self.places.extend(self.heads.iter().map(|&head| rows.locate(head)));
        self.places.iter().for_each(|place| rows.prefetch_row(place));
        rows.take_damage()
    }

    /// The degrees of row number `row`.
    #[inline(always)]
    pub(super) fn degrees(&mut self, row: usize) -> Degrees {
        self.rows.degrees(&mut self.places[row], &mut self.notes)
    }

    /// Reads the weights of the first `count` edges of row number `row`.
    pub(super) fn read_weights(&mut self, row: usize, count: u64) -> Result<()> {
        self.scratch.weights.clear();
        let weights = &mut self.scratch.weights;
        self.rows.weights(&self.places[row], &self.notes, count, weights)
    }

    /// Notes what is kept of the next row.
    #[inline(always)]
    pub(super) fn take(&mut self, taken: Taken) {
        self.scratch.taken.push(taken);
    }

    /// Asks for the sources that are kept of all rows.
    #[inline(always)]
    pub(super) fn prefetch(&self) {
        for (place, taken) in self.places.iter().zip(&self.scratch.taken) {
            self.rows
                .prefetch_sources(place, taken.positions(&self.scratch.positions));
        }
    }

    /// Appends the sources that are kept of row number `row`.
    #[inline(always)]
    pub(super) fn read(&mut self, row: usize) {
        let GroupScratch {
            taken,
            positions,
            sources,
            ..
        } = &mut *self.scratch;
        let positions = taken[row].positions(positions);
        self.rows
            .sources_at(&self.places[row], &mut self.notes, positions, sources);
    }
}

/// The positions that are kept of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Taken {
    /// The first so many: all.
    First(u64),
    /// So many, from there on in the list of positions.
    These { start: usize, count: usize },
}

impl Taken {
    /// The positions from `start` on.
    #[inline(always)]
    pub(super) fn since(start: usize, positions: &[u64]) -> Self {
        Self::These {
            start,
            count: positions.len() - start,
        }
    }

    /// The positions, of those that the group has.
    #[inline(always)]
    pub(super) fn positions(self, all: &[u64]) -> Positions<'_> {
        match self {
            Self::First(count) => Positions::First(count),
            Self::These { start, count } => Positions::These(&all[start..start + count]),
        }
    }
}
