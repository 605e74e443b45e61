//! The linear part of a layer with the functions that follow it: `dropout(relu(x1 w1ᵀ + x2 w2ᵀ + .. + b))`.
//!
//! On a processor this is one pass over the rows: see [`grappa_kernels::linear`]. Other devices use libtorch's operators.

use grappa_formats::random;
use grappa_kernels::{
    Instructions,
    linear::{self as kernel, Gradients, Number, Products, RequestedGradients, Term},
    sparse::NonzeroRows,
};
use half::bf16;
use tch::{Device, Kind, Tensor};

use crate::{
    nn::{
        backend::Backend,
        parameters::{Builder, Start},
    },
    shim::{self, Element},
};
pub(crate) use grappa_kernels::epilogue::{Dropout, Epilogue, RowNames};

/// The sum of the products `x wᵀ` of all terms (x, w), with x of `[rows, inputs]` and w of `[outputs, inputs]`, plus the bias
/// `[outputs]`; then the epilogue. Parameters are f32. The result has the type of x.
pub(crate) fn linear(terms: &[(&Tensor, &Tensor)], bias: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
    linear_with(Backend::Fastest, terms, bias, epilogue)
}

pub(crate) fn linear_with(
    backend: Backend,
    terms: &[(&Tensor, &Tensor)],
    bias: Option<&Tensor>,
    epilogue: Epilogue,
) -> Tensor {
    let x = terms[0].0;
    if !backend.has_kernels_for(x) {
        return with_operators(terms, bias, epilogue);
    }
    match x.kind() {
        Kind::BFloat16 => with_kernel::<bf16>(backend.instructions(), terms, bias, epilogue),
        _ => with_kernel::<f32>(backend.instructions(), terms, bias, epilogue),
    }
}

pub(crate) fn apply(values: &Tensor, epilogue: Epilogue) -> Tensor {
    if epilogue == Epilogue::NONE {
        return values.shallow_clone();
    }
    match (Backend::Fastest.has_kernels_for(values), values.kind()) {
        (false, _) => apply_with_operators(values, &epilogue),
        (true, Kind::BFloat16) => apply_with_kernel::<bf16>(values, epilogue),
        (true, _) => apply_with_kernel::<f32>(values, epilogue),
    }
}

fn apply_with_kernel<T: Element>(values: &Tensor, epilogue: Epilogue) -> Tensor {
    let values = values.contiguous();
    let columns = *values.size().last().expect("rows") as usize;
    let mut result = values.detach().empty_like();
    epilogue.forward_all(columns, shim::values::<T>(&values), shim::values_mut(&mut result));
    let saved = result.detach();
    shim::with_gradient(result, &[&values], move |gradient, _| {
        let mut values_gradient = gradient.empty_like();
        let [saved, gradients] = [&saved, gradient].map(shim::values::<T>);
        epilogue.backward_all(columns, saved, gradients, shim::values_mut(&mut values_gradient));
        vec![Some(values_gradient)]
    })
}

fn apply_with_operators(values: &Tensor, epilogue: &Epilogue) -> Tensor {
    let active = match epilogue.relu {
        true => values.relu(),
        false => values.shallow_clone(),
    };
    match &epilogue.dropout {
        Some(dropout) => &active * mask(&active, dropout),
        None => active,
    }
}

fn with_kernel<T: Number + Element>(
    instructions: Instructions,
    terms: &[(&Tensor, &Tensor)],
    bias: Option<&Tensor>,
    epilogue: Epilogue,
) -> Tensor {
    let terms: Vec<(Tensor, Tensor)> = terms
        .iter()
        .map(|(x, weight)| {
            assert_eq!((x.dim(), x.size()[1]), (2, weight.size()[1]), "rows of {:?}", weight.size());
            (x.contiguous(), weight.contiguous())
        })
        .collect();
    let rows = terms[0].0.size()[0];
    let outputs = terms[0].1.size()[0];
    assert!(terms.iter().all(|(x, _)| x.size()[0] == rows), "terms of as many rows");
    let mut result = Tensor::empty([rows, outputs], (T::KIND, Device::Cpu));
    // Detached, because the backward pass must not keep the autograd graph alive.
    let detached: Vec<(Tensor, Tensor)> = terms.iter().map(|(x, weight)| (x.detach(), weight.detach())).collect();
    let inputs: Vec<&Tensor> = terms.iter().flat_map(|(x, weight)| [x, weight]).chain(bias).collect();
    let nonzeros = kernel::forward::<T>(
        Products { instructions, terms: &as_terms(&detached, &[]), outputs: outputs as usize, epilogue: &epilogue },
        bias.map(shim::values),
        shim::gradients_are_recorded(&inputs),
        shim::values_mut(&mut result),
    );
    let saved = result.detach();
    shim::with_gradient(result, &inputs, move |gradient, needs_gradient| {
        let terms = &as_terms(&detached, &nonzeros);
        let products = Products { instructions, terms, outputs: outputs as usize, epilogue: &epilogue };
        backward::<T>(products, gradient, &saved, needs_gradient)
    })
}

fn backward<T: Number + Element>(
    products: Products<'_, T>,
    gradient: &Tensor,
    result: &Tensor,
    needs_gradient: &[bool],
) -> Vec<Option<Tensor>> {
    let [rows, outputs] = [0, 1].map(|dimension| gradient.size()[dimension]);
    let terms = products.terms;
    let mut row_gradients: Vec<Option<Tensor>> = terms
        .iter()
        .zip(needs_gradient.chunks(2))
        .map(|(term, needs_gradient)| {
            let shape = [rows, term.inputs as i64];
            needs_gradient[0].then(|| Tensor::empty(shape, (T::KIND, Device::Cpu)))
        })
        .collect();
    let Gradients { weights, bias } = kernel::backward(
        products,
        shim::values(gradient),
        shim::values(result),
        RequestedGradients {
            x: row_gradients.iter_mut().map(|x| x.as_mut().map(shim::values_mut)).collect(),
            weights: needs_gradient.chunks_exact(2).map(|needs_gradient| needs_gradient[1]).collect(),
        },
    );
    let weight_gradients =
        weights.iter().zip(terms).zip(needs_gradient.chunks(2)).map(|((gradient, term), needs_gradient)| {
            needs_gradient[1].then(|| Tensor::from_slice(gradient).view([outputs, term.inputs as i64]))
        });
    let term_gradients = row_gradients.into_iter().zip(weight_gradients).flat_map(|(x, weight)| [x, weight]);
    let bias_gradient = (needs_gradient.len() % 2 == 1).then(|| Some(Tensor::from_slice(&bias)));
    term_gradients.chain(bias_gradient).collect()
}

/// `nonzeros` is the result of the forward pass.
fn as_terms<'a, T: Number + Element>(
    terms: &'a [(Tensor, Tensor)],
    nonzeros: &'a [Vec<NonzeroRows>],
) -> Vec<Term<'a, T>> {
    terms
        .iter()
        .enumerate()
        .map(|(index, (x, weight))| Term {
            x: shim::values(x),
            inputs: x.size()[1] as usize,
            weight: shim::values(weight),
            nonzeros: nonzeros.get(index).map_or(&[], Vec::as_slice),
        })
        .collect()
}

fn with_operators(terms: &[(&Tensor, &Tensor)], bias: Option<&Tensor>, epilogue: Epilogue) -> Tensor {
    let kind = terms[0].0.kind();
    let bias = bias.map(|bias| bias.to_kind(kind));
    let products = terms.iter().enumerate().map(|(index, (x, weight))| {
        // libtorch adds the bias in the operator of the first product.
        x.linear(&weight.to_kind(kind), bias.as_ref().filter(|_| index == 0))
    });
    let sum = products.reduce(|sum, product| sum + product).expect("there are terms");
    apply_with_operators(&sum, &epilogue)
}

/// The dropout mask: 0 for a dropped value, 1 / (1 - probability) for the others.
fn mask(values: &Tensor, dropout: &Dropout) -> Tensor {
    if values.device() == Device::Cpu {
        // The same mask as in the kernel.
        let ones = Tensor::ones(values.size(), (Kind::Float, Device::Cpu));
        let dropout = Some(dropout.clone());
        return apply_with_kernel::<f32>(&ones, Epilogue { relu: false, dropout }).to_kind(values.kind());
    }
    // A seed per call, so the mask does not depend on earlier draws from libtorch's generator.
    tch::manual_seed(random::mix(dropout.key).cast_signed());
    let keep = 1.0 - dropout.probability;
    (values.empty_like().detach().bernoulli_float_(keep) / keep).to_kind(values.kind())
}

/// The values as f32, in which norms and losses compute.
pub(crate) fn float(values: &Tensor) -> Tensor {
    values.to_kind(Kind::Float)
}

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

    /// The same parameters.
    pub(crate) fn shallow_clone(&self) -> Self {
        Self { weight: self.weight.shallow_clone(), bias: self.bias.as_ref().map(Tensor::shallow_clone) }
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
    pub(crate) fn apply(&self, rows: &Tensor, epilogue: Epilogue) -> Tensor {
        linear(&[(rows, &self.weight)], self.bias.as_ref(), epilogue)
    }

    pub(crate) fn in_f32(&self, rows: &Tensor) -> Tensor {
        float(&self.apply(rows, Epilogue::NONE))
    }
}
