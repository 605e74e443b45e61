//! What layers with several heads have in common.

use tch::{Kind, Tensor};

use crate::nn::{
    linear::{Epilogue, apply},
    parameters::{Builder, Start},
};

/// How heads share the values of a result.
#[derive(Debug)]
pub(crate) struct Heads {
    /// How many.
    pub(crate) count: i64,
    /// Values of each.
    pub(crate) width: i64,
    /// Whether the result is their mean; else they are one beside the other.
    mean: bool,
    bias: Tensor,
}

impl Heads {
    /// Between layers, heads are beside each other and have their share of the values; the last layer's are averaged, as
    /// PyTorch Geometric's models do.
    pub(crate) fn new(builder: &mut Builder, outputs: i64, count: i64, last: bool) -> Self {
        Self {
            count,
            width: if last { outputs } else { outputs / count },
            mean: last,
            bias: builder.parameter("bias", &[outputs], Start::Constant(0.0)),
        }
    }

    /// A layer's result from those of heads, `[nodes, count * width]`.
    pub(crate) fn finish(&self, heads: &Tensor, epilogue: Epilogue, kind: Kind) -> Tensor {
        let heads = heads.to_kind(Kind::Float);
        let values = if self.mean {
            heads
                .view([-1, self.count, self.width])
                .mean_dim([1i64].as_slice(), false, Kind::Float)
        } else {
            heads
        };
        apply(&(values + &self.bias), epilogue).to_kind(kind)
    }
}
