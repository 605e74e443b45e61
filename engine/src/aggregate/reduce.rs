//! How the rows of a node's in-neighbors become one row.

use grappa_formats::features::FeatureLayout;

use super::ScaledRows;

/// In-neighbors of a part of an adjacency list. Each part of a longer list has a state of its own, and states are merged in the end. A sum of
/// f32 loses small terms when it is large: from 2^24 on, ones no longer change it. So its error is the error of a sum of this many rows.
pub(super) const PART: u64 = 4096;

/// The number of parts of a list of `rows` rows.
pub(super) fn parts(rows: u64) -> u64 {
    rows.div_ceil(PART).max(1)
}

/// Reduces rows to a state, one row at a time.
///
/// [`Reduce::begin`] makes the state of a node. [`Reduce::add`] adds the row of each in-neighbor, in ascending order.
/// [`Reduce::finish`] completes the state. Long lists come in parts, which [`Reduce::begin_part`] begins and [`Reduce::merge`] adds.
pub trait Reduce: Sync {
    /// Values in a source's row.
    fn source_width(&self) -> usize;

    /// Values in the destination's own row; 0 if the reduction does not need it.
    fn own_width(&self) -> usize {
        0
    }

    /// Values of an edge; 0 if the reduction takes none.
    fn edge_width(&self) -> usize {
        0
    }

    /// Values in a state.
    fn state_width(&self) -> usize {
        self.source_width()
    }

    /// Makes the state of a node without in-neighbors from the node's own row. By default zeros.
    fn begin(&self, _own: &[f32], state: &mut [f32]) {
        state.fill(0.0);
    }

    /// Makes the state of a part of a node's in-neighbors other than the first. By default as [`Reduce::begin`].
    fn begin_part(&self, own: &[f32], state: &mut [f32]) {
        self.begin(own, state);
    }

    /// Adds the state of another part. By default adds its values.
    fn merge(&self, state: &mut [f32], part: &[f32]) {
        state.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }

    /// Adds the row of an in-neighbor.
    fn add(&self, state: &mut [f32], source: &[f32]);

    /// As [`Reduce::add`], along an edge with some values.
    #[inline]
    fn add_along(&self, state: &mut [f32], source: &[f32], _edge: &[f32]) {
        self.add(state, source);
    }

    /// As [`Reduce::add`], for an encoded row. `values` has room for a row.
    #[inline]
    fn add_encoded(&self, state: &mut [f32], source: &[u8], layout: FeatureLayout, values: &mut [f32]) {
        layout.decode_row(source, values);
        self.add(state, values);
    }

    /// Completes the state of a node.
    fn finish(&self, _list: ListSize, _state: &mut [f32]) {}
}

/// How many in-neighbors a node has, and how many of them were added to its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListSize {
    /// The node's in-degree.
    pub degree: u64,
    /// The number of rows that were added: fewer, or more, if in-neighbors were drawn.
    pub added: u64,
}

impl ListSize {
    /// The size of a list that has all `degree` in-neighbors.
    pub fn whole(degree: u64) -> Self {
        Self { degree, added: degree }
    }

    /// Scales a sum of drawn rows, so that its expectation is the sum of all rows (Horvitz-Thompson).
    fn scale_sum(self, state: &mut [f32]) {
        if self.degree != self.added && self.added > 0 {
            let scale = (self.degree as f64 / self.added as f64) as f32;
            state.iter_mut().for_each(|value| *value *= scale);
        }
    }
}

/// The sum of the rows.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// Values in a row.
    pub width: usize,
}

/// The mean of the rows; zeros for a node without in-edges. Parallel edges count once each.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    /// Values in a row.
    pub width: usize,
}

/// The sum of the rows, each times the weight of its edge.
#[derive(Debug, Clone, Copy)]
pub struct WeightedSum {
    /// Values in a row.
    pub width: usize,
}

/// The mean of the rows by the weights of their edges; zeros for a node whose weights add up to 0. The last value of a state is the sum of
/// the weights.
#[derive(Debug, Clone, Copy)]
pub struct WeightedMean {
    /// Values in a row.
    pub width: usize,
}

/// The normalized sum of GCN (Kipf and Welling, arXiv 1609.02907, eq. 2): each in-neighbor over the root of its in-degree +
/// 1, and the sum over the root of the node's in-degree + 1. Sources are [`ScaledRows`](super::ScaledRows). The paper counts
/// the node itself among its neighbors; here the layer adds it.
#[derive(Debug, Clone, Copy)]
pub struct GcnSum {
    /// Values in a row.
    pub width: usize,
}

/// As [`GcnSum`], with the weights of edges: each in-neighbor times the weight of its edge, and sums of the weights of in-edges for
/// in-degrees. Sources are [`ScaledRows::by_weights`](super::ScaledRows::by_weights). The last value of a state is the sum of the weights.
#[derive(Debug, Clone, Copy)]
pub struct WeightedGcnSum {
    /// Values in a row.
    pub width: usize,
}

/// The maximum of the rows, value by value; zeros for a node without in-edges. As in PyTorch, NaN is larger than any number.
#[derive(Debug, Clone, Copy)]
pub struct Max {
    /// Values in a row.
    pub width: usize,
}

/// Adds rows of `self.width` values, also encoded ones.
macro_rules! adds_rows {
    () => {
        fn source_width(&self) -> usize {
            self.width
        }

        #[inline]
        fn add(&self, state: &mut [f32], source: &[f32]) {
            state.iter_mut().zip(source).for_each(|(sum, value)| *sum += value);
        }

        #[inline]
        fn add_encoded(&self, state: &mut [f32], source: &[u8], layout: FeatureLayout, _: &mut [f32]) {
            layout.add_row(source, state);
        }
    };
}

impl Reduce for Sum {
    adds_rows!();

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        list.scale_sum(state);
    }
}

impl Reduce for Mean {
    adds_rows!();

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        let factor = 1.0 / list.added.max(1) as f32;
        state.iter_mut().for_each(|value| *value *= factor);
    }
}

impl Reduce for WeightedSum {
    fn source_width(&self) -> usize {
        self.width
    }

    fn edge_width(&self) -> usize {
        1
    }

    fn add(&self, state: &mut [f32], source: &[f32]) {
        self.add_along(state, source, &[1.0]);
    }

    #[inline]
    fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
        let weight = edge[0];
        state.iter_mut().zip(source).for_each(|(sum, value)| *sum += weight * value);
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        list.scale_sum(state);
    }
}

/// Adds rows of `self.width` values times weights, and the weights to the last value of the state.
macro_rules! adds_weighted_rows {
    () => {
        fn source_width(&self) -> usize {
            self.width
        }

        fn edge_width(&self) -> usize {
            1
        }

        fn state_width(&self) -> usize {
            self.width + 1
        }

        fn add(&self, state: &mut [f32], source: &[f32]) {
            self.add_along(state, source, &[1.0]);
        }

        #[inline]
        fn add_along(&self, state: &mut [f32], source: &[f32], edge: &[f32]) {
            let (total, sums) = split_total(state);
            *total += edge[0];
            sums.iter_mut().zip(source).for_each(|(sum, value)| *sum += edge[0] * value);
        }
    };
}

/// The sum of the weights in a state, and the sums of rows.
fn split_total(state: &mut [f32]) -> (&mut f32, &mut [f32]) {
    state.split_last_mut().expect("a state has a sum of weights")
}

impl Reduce for WeightedMean {
    adds_weighted_rows!();

    fn finish(&self, _list: ListSize, state: &mut [f32]) {
        let (total, sums) = split_total(state);
        let factor = if *total > 0.0 { total.recip() } else { 0.0 };
        sums.iter_mut().for_each(|value| *value *= factor);
    }
}

impl Reduce for WeightedGcnSum {
    adds_weighted_rows!();

    fn finish(&self, _list: ListSize, state: &mut [f32]) {
        let (total, sums) = split_total(state);
        let factor = ScaledRows::weighted_factor(*total);
        sums.iter_mut().for_each(|value| *value *= factor);
    }
}

impl Reduce for GcnSum {
    adds_rows!();

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        list.scale_sum(state);
        let factor = ScaledRows::factor(list.degree);
        state.iter_mut().for_each(|value| *value *= factor);
    }
}

/// The larger value; NaN if one is NaN.
///
/// If this were one choice between both, the compiler would store only the values that change, with a masked store of a vector. That is
/// slow on some AMD processors (Zen 4).
#[inline(always)]
fn larger(max: f32, value: f32) -> f32 {
    // The comparison is false if `max` is NaN, so that stays.
    let larger = if value > max { value } else { max };
    let nan = if value.is_nan() { f32::NAN.to_bits() } else { 0 };
    f32::from_bits(larger.to_bits() | nan)
}

impl Reduce for Max {
    fn source_width(&self) -> usize {
        self.width
    }

    fn begin(&self, _own: &[f32], state: &mut [f32]) {
        state.fill(f32::NEG_INFINITY);
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        state.iter_mut().zip(source).for_each(|(max, value)| *max = larger(*max, *value));
    }

    fn merge(&self, state: &mut [f32], part: &[f32]) {
        self.add(state, part);
    }

    fn finish(&self, list: ListSize, state: &mut [f32]) {
        if list.added == 0 {
            state.fill(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maximum_is_nan_from_the_first_nan_on() {
        let rows = [[1.0, f32::NAN, -1.0], [3.0, 2.0, f32::NEG_INFINITY], [2.0, f32::INFINITY, -0.5]];
        let max = Max { width: 3 };
        let mut state = [0.0; 3];
        max.begin(&[], &mut state);
        rows.iter().for_each(|row| max.add(&mut state, row));
        assert_eq!([state[0], state[2]], [3.0, -0.5]);
        assert!(state[1].is_nan());
        max.add(&mut state, &[f32::NAN; 3]);
        assert!(state.iter().all(|value| value.is_nan()));
    }
}
