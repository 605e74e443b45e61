//! How the rows of a node's in-neighbours become one row.

use super::ScaledRows;

/// Reduces rows to a state, one row at a time.
///
/// [`Reduce::begin`] makes the state of a node. [`Reduce::add`] adds the row of each in-neighbour, in ascending order.
/// [`Reduce::finish`] completes the state.
pub trait Reduce: Sync {
    /// Values in a source's row.
    fn source_width(&self) -> usize;

    /// Values in the destination's own row; 0 if the reduction does not need it.
    fn own_width(&self) -> usize {
        0
    }

    /// Values in a state.
    fn state_width(&self) -> usize {
        self.source_width()
    }

    /// Makes the state of a node without in-neighbours from the node's own row. By default zeros.
    fn begin(&self, _own: &[f32], state: &mut [f32]) {
        state.fill(0.0);
    }

    /// Adds the row of an in-neighbour.
    fn add(&self, state: &mut [f32], source: &[f32]);

    /// Completes the state of a node with `degree` in-edges.
    fn finish(&self, _degree: u64, _state: &mut [f32]) {}
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

/// The normalised sum of GCN (Kipf and Welling, arXiv 1609.02907, eq. 2): each in-neighbour over the root of its in-degree +
/// 1, and the sum over the root of the node's in-degree + 1. Sources are [`ScaledRows`](super::ScaledRows). The paper counts
/// the node itself among its neighbours; here the layer adds it.
#[derive(Debug, Clone, Copy)]
pub struct GcnSum {
    /// Values in a row.
    pub width: usize,
}

/// The maximum of the rows, value by value; zeros for a node without in-edges. As in PyTorch, NaN is larger than any number.
#[derive(Debug, Clone, Copy)]
pub struct Max {
    /// Values in a row.
    pub width: usize,
}

impl Reduce for Sum {
    fn source_width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        state.iter_mut().zip(source).for_each(|(sum, value)| *sum += value);
    }
}

impl Reduce for Mean {
    fn source_width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        state.iter_mut().zip(source).for_each(|(sum, value)| *sum += value);
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        let factor = 1.0 / degree.max(1) as f32;
        state.iter_mut().for_each(|value| *value *= factor);
    }
}

impl Reduce for GcnSum {
    fn source_width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        state.iter_mut().zip(source).for_each(|(sum, value)| *sum += value);
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        let factor = ScaledRows::factor(degree);
        state.iter_mut().for_each(|value| *value *= factor);
    }
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
        state
            .iter_mut()
            .zip(source)
            // Comparisons with NaN are false, so a NaN stays.
            .for_each(|(max, value)| *max = if *value > *max || value.is_nan() { *value } else { *max });
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        if degree == 0 {
            state.fill(0.0);
        }
    }
}
