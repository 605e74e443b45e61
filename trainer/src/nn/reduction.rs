//! A layer's aggregation as the engine does it out of core: see [`grappa_engine::aggregate`].

use grappa_engine::aggregate::{Max, Mean, Reduce, Sum};

/// The aggregation of one layer over all in-neighbours.
///
/// Its rows are [`Model::messages`](super::Model::messages), its states begin with what
/// [`Model::update`](super::Model::update) takes.
#[derive(Debug, Clone, Copy)]
pub enum Reduction {
    /// The mean.
    Mean(Mean),
    /// The largest, value by value.
    Max(Max),
    /// The sum.
    Sum(Sum),
    /// The sum over the root of the in-degree + 1. GCN's messages are divided by that of the source.
    Gcn(Sum),
}

macro_rules! each {
    ($self:ident, $reduce:ident => $do:expr) => {
        match $self {
            Self::Mean($reduce) => $do,
            Self::Max($reduce) => $do,
            Self::Sum($reduce) | Self::Gcn($reduce) => $do,
        }
    };
}

impl Reduce for Reduction {
    fn source_width(&self) -> usize {
        each!(self, reduce => reduce.source_width())
    }

    fn own_width(&self) -> usize {
        each!(self, reduce => reduce.own_width())
    }

    fn state_width(&self) -> usize {
        each!(self, reduce => reduce.state_width())
    }

    fn begin(&self, own: &[f32], state: &mut [f32]) {
        each!(self, reduce => reduce.begin(own, state));
    }

    #[inline]
    fn add(&self, state: &mut [f32], source: &[f32]) {
        each!(self, reduce => reduce.add(state, source));
    }

    fn finish(&self, degree: u64, state: &mut [f32]) {
        each!(self, reduce => reduce.finish(degree, state));
        if let Self::Gcn(_) = self {
            let factor = (degree as f32 + 1.0).sqrt().recip();
            state.iter_mut().for_each(|value| *value *= factor);
        }
    }
}
