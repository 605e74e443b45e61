//! What becomes of the rows of a node's in-neighbours.

use super::ScaledRows;

/// Reduces rows to a state, one row at a time.
///
/// A node's state starts as [`Reduce::begin`] makes it, takes in the row of each in-neighbour, in ascending order, by
/// [`Reduce::add`], and is completed by [`Reduce::finish`].
pub trait Reduce: Sync {
    /// Values in a source's row.
    fn source_width(&self) -> usize;

    /// Values in the destination's own row; 0 if it takes none.
    fn own_width(&self) -> usize {
        0
    }

    /// Values in a state.
    fn state_width(&self) -> usize {
        self.source_width()
    }

    /// Makes the state of a node without in-neighbours from its own row: zeros.
    fn begin(&self, _own: &[f32], state: &mut [f32]) {
        state.fill(0.0);
    }

    /// Takes an in-neighbour's row in.
    fn add(&self, state: &mut [f32], source: &[f32]);

    /// Completes the state of a node with so many in-edges.
    fn finish(&self, _degree: u64, _state: &mut [f32]) {}

    /// If only one in-neighbour of each node is taken in, drawn with equal chances: the seed of that.
    fn draws(&self) -> Option<u64> {
        None
    }
}

/// The sum of the rows.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    /// Values in a row.
    pub width: usize,
}

/// The mean of the rows; zeros for a node without in-edges. Parallel edges count as often as they are there.
#[derive(Debug, Clone, Copy)]
pub struct Mean {
    /// Values in a row.
    pub width: usize,
}

/// The normalised sum of GCN (Kipf and Welling, arXiv 1609.02907, eq. 2): in-neighbours, each over the root of its
/// in-degree plus 1, and all over that of the node. Sources are [`ScaledRows`](super::ScaledRows). The node itself, which
/// the paper counts among its neighbours, is left out: the layer adds it.
#[derive(Debug, Clone, Copy)]
pub struct GcnSum {
    /// Values in a row.
    pub width: usize,
}

/// The largest of the rows, value by value; zeros for a node without in-edges. NaN counts as larger than any number, as in
/// PyTorch.
#[derive(Debug, Clone, Copy)]
pub struct Max {
    /// Values in a row.
    pub width: usize,
}

/// The row of one in-neighbour, drawn with equal chances; zeros for a node without in-edges. A node's neighbour depends on the
/// seed alone, so the drawn row of drawn rows is that of the neighbour's neighbour.
#[derive(Debug, Clone, Copy)]
pub struct Drawn {
    /// Values in a row.
    pub width: usize,
    /// What the draws depend on.
    pub seed: u64,
}

impl Reduce for Drawn {
    fn source_width(&self) -> usize {
        self.width
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        state.copy_from_slice(source);
    }

    fn draws(&self) -> Option<u64> {
        Some(self.seed)
    }
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
            // What is compared with NaN is false, so a NaN stays.
            .for_each(|(max, value)| *max = if *value > *max || value.is_nan() { *value } else { *max });
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        if degree == 0 {
            state.fill(0.0);
        }
    }
}
