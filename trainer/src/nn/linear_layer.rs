//! A linear layer with its parameters.

use tch::Tensor;

use super::{
    linear::{Epilogue, float, linear},
    parameters::{Builder, Start},
};

/// `x wᵀ + b`, with the parameters of PyTorch's Linear.
#[derive(Debug)]
pub(crate) struct LinearLayer {
    /// `[outputs, inputs]`.
    pub(crate) weight: Tensor,
    /// `[outputs]`.
    pub(crate) bias: Option<Tensor>,
}

impl LinearLayer {
    pub(crate) fn new(
        builder: &mut Builder,
        name: &str,
        [inputs, outputs]: [i64; 2],
        weight: Start,
        bias: Option<Start>,
    ) -> Self {
        builder.scope(name, |builder| Self {
            weight: builder.parameter("weight", &[outputs, inputs], weight),
            bias: bias.map(|start| builder.parameter("bias", &[outputs], start)),
        })
    }

    /// With a bias, and with the initial values of PyTorch's Linear.
    pub(crate) fn of_pytorch(builder: &mut Builder, name: &str, [inputs, outputs]: [i64; 2]) -> Self {
        let start = Start::linear(inputs);
        Self::new(builder, name, [inputs, outputs], start, Some(start))
    }

    /// Values of a row that it takes.
    pub(crate) fn inputs(&self) -> i64 {
        self.weight.size()[1]
    }

    /// Values of a row that it makes.
    pub(crate) fn outputs(&self) -> i64 {
        self.weight.size()[0]
    }

    /// The outputs `[rows, outputs]`, in the type of the rows.
    pub(crate) fn of(&self, rows: &Tensor, epilogue: Epilogue) -> Tensor {
        linear(&[(rows, &self.weight)], self.bias.as_ref(), epilogue)
    }

    /// The outputs as f32.
    pub(crate) fn in_f32(&self, rows: &Tensor) -> Tensor {
        float(&self.of(rows, Epilogue::NONE))
    }
}
