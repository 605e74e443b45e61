//! The dense part of a layer: `dropout(relu(x1 w1ᵀ + x2 w2ᵀ + .. + b))`.

use tch::{Kind, Tensor};

use super::{aggregate::Backend, random};

/// Multi-hidden-unit dropout, with a mask that is a function of the key and of the value's place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Dropout {
    /// The part of values that becomes 0, in [0, 1).
    pub(crate) probability: f64,
    /// What the mask depends on.
    pub(crate) key: u64,
}

/// What follows the sum.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Epilogue {
    pub(crate) relu: bool,
    pub(crate) dropout: Option<Dropout>,
}

/// The sum of products `x wᵀ` for each term (x, w), with x of `[rows, inputs]` and w of `[outputs, inputs]`, plus the bias
/// `[outputs]`; then the epilogue. Weights are f32; the result has the type of x.
pub(crate) fn affine(terms: &[(&Tensor, &Tensor)], bias: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
    affine_with(Backend::Fastest, terms, bias, epilogue)
}

pub(crate) fn affine_with(
    _backend: Backend,
    terms: &[(&Tensor, &Tensor)],
    bias: Option<&Tensor>,
    epilogue: Epilogue,
) -> Tensor {
    let kind = terms[0].0.kind();
    let mut sum: Option<Tensor> = None;
    for (x, weight) in terms {
        // The bias goes with the first product: one operator.
        let bias = if sum.is_none() {
            bias.map(|bias| bias.to_kind(kind))
        } else {
            None
        };
        let product = x.linear(&weight.to_kind(kind), bias.as_ref());
        sum = Some(match sum {
            None => product,
            Some(sum) => sum + product,
        });
    }
    let sum = sum.expect("an affine function has terms");
    apply(sum, epilogue)
}

/// The epilogue alone.
pub(crate) fn apply(values: Tensor, epilogue: Epilogue) -> Tensor {
    let values = if epilogue.relu { values.relu() } else { values };
    match epilogue.dropout {
        None => values,
        Some(dropout) => &values * mask(&values, dropout),
    }
}

/// 0 where a value is dropped, 1 / (1 - probability) elsewhere.
fn mask(values: &Tensor, dropout: Dropout) -> Tensor {
    // libtorch's generator, started anew: nothing depends on what was drawn from it before.
    tch::manual_seed(random::mix(dropout.key) as i64);
    let keep = 1.0 - dropout.probability;
    let kept = Tensor::empty_like(&values.detach()).bernoulli_float_(keep);
    (kept / keep).to_kind(values.kind())
}

/// Where a sum is not followed by a nonlinearity.
pub(crate) const NOTHING: Epilogue = Epilogue {
    relu: false,
    dropout: None,
};

/// Values for a norm or a loss, which compute in f32.
pub(crate) fn float(values: &Tensor) -> Tensor {
    values.to_kind(Kind::Float)
}
