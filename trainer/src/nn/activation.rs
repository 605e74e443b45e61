//! Nonlinearities between layers.

use grappa_run::model::Activation as Kind;
use tch::Tensor;

use super::{
    linear::{Epilogue, apply},
    parameters::{Builder, Start},
};

#[derive(Debug)]
pub(crate) struct Activation {
    kind: Kind,
    /// The slope of PReLU below 0, of `[1]`.
    slope: Option<Tensor>,
}

impl Activation {
    pub(crate) fn new(builder: &mut Builder, kind: Kind) -> Self {
        /// PyTorch's.
        const SLOPE: f32 = 0.25;
        Self { kind, slope: (kind == Kind::Prelu).then(|| builder.parameter("weight", &[1], Start::Constant(SLOPE))) }
    }

    /// Whether the epilogue of a layer computes it.
    pub(crate) fn is_relu(&self) -> bool {
        self.kind == Kind::Relu
    }

    /// The nonlinearity, then the dropout of the epilogue.
    pub(crate) fn apply(&self, values: &Tensor, epilogue: Epilogue) -> Tensor {
        let active = match (self.kind, &self.slope) {
            (Kind::Elu, _) => values.elu(),
            (Kind::Gelu, _) => values.gelu("none"),
            // tch's slope is 0.01, PyTorch's default.
            (Kind::LeakyRelu, _) => values.leaky_relu(),
            (Kind::Prelu, Some(slope)) => values.prelu(&slope.to_kind(values.kind())),
            _ => return apply(values, Epilogue { relu: true, ..epilogue }),
        };
        apply(&active, Epilogue { relu: false, ..epilogue })
    }
}
