//! The common part of layers with several heads.

use tch::{Kind, Tensor};

use crate::nn::{
    linear::{Epilogue, apply},
    parameters::{Builder, Start},
};

/// The heads of a layer, and how their results are combined.
#[derive(Debug)]
pub(crate) struct Heads {
    /// Number of heads.
    pub(crate) count: i64,
    /// Values per head.
    pub(crate) width: i64,
    /// Whether the result is the mean of the heads. Otherwise it is their concatenation.
    mean: bool,
    bias: Tensor,
}

impl Heads {
    /// Heads between layers share the width and are concatenated. The heads of the last layer are averaged, as in PyTorch Geometric's
    /// models.
    pub(crate) fn new(builder: &mut Builder, outputs: i64, count: i64, last: bool) -> Self {
        Self {
            count,
            width: if last { outputs } else { outputs / count },
            mean: last,
            bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
        }
    }

    /// The layer's result, from the results of the heads, `[nodes, count * width]`.
    pub(crate) fn finish(&self, heads: &Tensor, epilogue: Epilogue, kind: Kind) -> Tensor {
        let values = combined(&heads.to_kind(Kind::Float), self.count, self.mean);
        apply(&(values + &self.bias), epilogue).to_kind(kind)
    }
}

/// The mean of the heads, or their concatenation, from `[nodes, count * width]`, f32.
pub(super) fn combined(heads: &Tensor, count: i64, mean: bool) -> Tensor {
    match mean {
        true => heads
            .view([heads.size()[0], count, -1])
            .mean_dim([1i64].as_slice(), false, Kind::Float),
        false => heads.shallow_clone(),
    }
}
