//! Draws k of d positions of an adjacency list, ascending.
//!
//! All kinds of view order the sources of a list in the same way, so the same positions are the same sources. Without
//! replacement, every set of k positions is equally likely. The fastest way to draw one depends on k and d:
//!
//! - d at most 64: Floyd's algorithm with the set in a register (Bentley and Floyd, "A Sample of Brilliance", 1987);
//! - d at most 64 k: the same, with the set in a bitmap of at most k words;
//! - k at most 16: k numbers at once, sorted by counting for each how many are smaller, which takes a few vector
//!   comparisons. If two are equal, which is rare, all are drawn again;
//! - otherwise: k numbers, sorted; duplicates are replaced by new numbers until there are none.
//!
//! The time is proportional to k (to k log k in the last case) and does not depend on d.

#[cfg(test)]
mod tests;

use super::random::{self, Draws};

/// The largest k that is sorted by counting.
const COUNTED_MAX: usize = 16;

/// Reusable memory for drawing.
#[derive(Debug, Default)]
pub(super) struct DrawScratch {
    /// A bitmap. All zeros between calls.
    bits: Vec<u64>,
    /// Cumulative sums of edge weights.
    pub weight_sums: Vec<f64>,
    /// The time at which each position is drawn, and the position.
    pub times: Vec<(f64, u64)>,
    /// Positions that were drawn by rejection.
    pub drawn: Vec<u64>,
}

impl DrawScratch {
    pub(super) fn bytes(&self) -> u64 {
        let Self { bits, weight_sums, times, drawn } = self;
        let bytes = (bits.capacity() + drawn.capacity()) * size_of::<u64>()
            + weight_sums.capacity() * size_of::<f64>()
            + times.capacity() * size_of::<(f64, u64)>();
        bytes as u64
    }
}

/// Draws positions of adjacency lists one list at a time.
#[derive(Debug, Default)]
pub(crate) struct Draw {
    scratch: DrawScratch,
    positions: Vec<u64>,
}

impl Draw {
    /// `k` different positions below `d`, ascending; `k < d`. They depend on `key`.
    pub(crate) fn positions(&mut self, key: u64, d: u64, k: u32) -> &[u64] {
        self.positions.clear();
        without_replacement(&mut random::draws(key), d, k, &mut self.scratch, &mut self.positions);
        &self.positions
    }

    /// `k` positions below `d`, ascending; `d > 0`. They depend on `key`.
    pub(crate) fn with_replacement(&mut self, key: u64, d: u64, k: u32) -> &[u64] {
        self.positions.clear();
        with_replacement(&mut random::draws(key), d, k, &mut self.positions);
        &self.positions
    }
}

/// Appends `k` different positions below `d`, ascending; `k < d`.
#[inline]
pub(super) fn without_replacement(
    draws: &mut Draws,
    d: u64,
    k: u32,
    scratch: &mut DrawScratch,
    positions: &mut Vec<u64>,
) {
    debug_assert!(u64::from(k) < d, "{k} of {d}");
    if d <= 64 {
        // Floyd's algorithm: for each of the k last positions, draw one up to it. If that is in the set already, take
        // the last position itself.
        let mut set = 0u64;
        for last in d - u64::from(k)..d {
            let drawn = draws.below(last + 1);
            let is_drawn = set >> drawn & 1;
            // `last` is free, because all earlier draws were below it.
            set |= 1 << if is_drawn == 1 { last } else { drawn };
        }
        while set != 0 {
            positions.push(u64::from(set.trailing_zeros()));
            set &= set - 1;
        }
    } else if d <= 64 * u64::from(k) {
        by_bitmap(draws, d, k, &mut scratch.bits, positions);
    } else if k as usize <= COUNTED_MAX {
        by_counting(draws, d, k as usize, positions);
    } else {
        by_sorting(draws, d, k as usize, positions);
    }
}

/// Appends `k` positions below `d`, drawn independently, ascending; `d > 0`.
pub(super) fn with_replacement(draws: &mut Draws, d: u64, k: u32, positions: &mut Vec<u64>) {
    let start = positions.len();
    positions.extend((0..k).map(|_| draws.below(d)));
    positions[start..].sort_unstable();
}

fn by_bitmap(draws: &mut Draws, d: u64, k: u32, bits: &mut Vec<u64>, positions: &mut Vec<u64>) {
    let words = d.div_ceil(64) as usize;
    if bits.len() < words {
        bits.resize(words, 0);
    }
    let bits = &mut bits[..words];
    for last in d - u64::from(k)..d {
        let drawn = draws.below(last + 1);
        let (word, bit) = ((drawn / 64) as usize, drawn % 64);
        if bits[word] >> bit & 1 == 0 {
            bits[word] |= 1 << bit;
        } else {
            // As above, `last` is free.
            bits[(last / 64) as usize] |= 1 << (last % 64);
        }
    }
    for (word, base) in bits.iter_mut().zip((0..).step_by(64)) {
        // Leaves the bitmap empty for the next call.
        let mut set = std::mem::take(word);
        while set != 0 {
            positions.push(base + u64::from(set.trailing_zeros()));
            set &= set - 1;
        }
    }
}

fn by_counting(draws: &mut Draws, d: u64, k: usize, positions: &mut Vec<u64>) {
    // Only the first k entries count. The inner loop covers all, so its length is constant and it becomes vector
    // instructions.
    let mut drawn = [u64::MAX; COUNTED_MAX];
    let mut smaller = [0u64; COUNTED_MAX];
    loop {
        for place in &mut drawn[..k] {
            *place = draws.below(d);
        }
        smaller.fill(0);
        for &one in &drawn[..k] {
            for (count, &other) in smaller.iter_mut().zip(&drawn) {
                *count += u64::from(one < other);
            }
        }
        // The counts are 0 to k - 1 if all numbers differ. Equal numbers make the sum smaller.
        if smaller[..k].iter().sum::<u64>() == (k * (k - 1) / 2) as u64 {
            break;
        }
    }
    let start = positions.len();
    positions.resize(start + k, 0);
    let positions = &mut positions[start..];
    for (&one, &place) in drawn[..k].iter().zip(&smaller) {
        positions[place as usize] = one;
    }
}

fn by_sorting(draws: &mut Draws, d: u64, k: usize, positions: &mut Vec<u64>) {
    let start = positions.len();
    loop {
        let missing = start + k - positions.len();
        if missing == 0 {
            return;
        }
        positions.extend((0..missing).map(|_| draws.below(d)));
        let drawn = &mut positions[start..];
        drawn.sort_unstable();
        let mut unique = 0;
        for i in 0..drawn.len() {
            drawn[unique] = drawn[i];
            unique += usize::from(i + 1 == drawn.len() || drawn[i + 1] != drawn[i]);
        }
        positions.truncate(start + unique);
    }
}
