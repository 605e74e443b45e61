//! Positions in adjacency lists.

/// Positions in an adjacency list.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Positions<'a> {
    /// This many positions from the start of the list.
    First(u64),
    /// Explicit positions, ascending. A position may occur more than once.
    Listed(&'a [u64]),
}

impl Positions<'_> {
    /// Calls `each` for each position.
    #[inline(always)]
    pub(crate) fn for_each(self, each: impl FnMut(u64)) {
        match self {
            Self::First(count) => (0..count).for_each(each),
            Self::Listed(positions) => positions.iter().copied().for_each(each),
        }
    }
}
