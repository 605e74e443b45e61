//! The common part of layers with several heads.

use tch::{Kind, Tensor};

use crate::nn::{
    linear::{Epilogue, apply, float},
    softmax,
};

/// The heads of a layer, and how their results are combined.
#[derive(Debug)]
pub(crate) struct Heads {
    pub(crate) count: i64,
    /// Values per head.
    pub(crate) width: i64,
    /// Whether the result is the mean of the heads. Otherwise it is their concatenation.
    mean: bool,
}

impl Heads {
    /// Heads between layers share the width and are concatenated. The heads of the last layer are averaged, as in PyTorch Geometric's
    /// models.
    pub(crate) fn new(outputs: i64, count: i64, last: bool) -> Self {
        Self { count, width: if last { outputs } else { outputs / count }, mean: last }
    }

    pub(crate) fn values(&self) -> i64 {
        self.count * self.width
    }

    pub(in crate::nn) fn of_state(&self) -> softmax::Heads {
        softmax::Heads { count: self.count as usize, width: self.width as usize }
    }

    /// The layer's result, from the results of the heads, `[nodes, count * width]`, and what is added to their combination: a bias, or a
    /// row for each node.
    pub(crate) fn finish(&self, heads: &Tensor, added: &Tensor, epilogue: Epilogue, kind: Kind) -> Tensor {
        let heads = float(heads);
        let values = match self.mean {
            true => heads.view([heads.size()[0], self.count, -1]).mean_dim([1i64].as_slice(), false, Kind::Float),
            false => heads,
        };
        apply(&(values + added), epilogue).to_kind(kind)
    }
}
