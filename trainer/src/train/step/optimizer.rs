//! Optimizers. They work on the flat vector of all parameters, so a step is a few operators for any model.
//!
//! On a processor Adam is one loop ([`adam`]), because each of its ten operators would wake threads.

use grappa_kernels::update::{Moments, Rates, adam};
use grappa_run::config::{Optimizer as Kind, PerLayer};
use tch::{Device, Tensor, no_grad};

use crate::{nn::Parameters, shim};

/// The defaults of PyTorch (Kingma and Ba: "Adam", arXiv 1412.6980).
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

/// Updates parameters from gradients.
#[derive(Debug)]
pub struct Optimizer {
    kind: Kind,
    decay: Decay,
    momentum: f64,
    steps: u64,
    /// Moments, zero at first: the running mean of the gradient (or its momentum), and the running mean of its square.
    first: Tensor,
    second: Tensor,
}

impl Optimizer {
    /// An optimizer without steps. `decay` is the weight decay of each layer, and the number of layers.
    pub fn new(kind: Kind, momentum: f64, decay: (&PerLayer, usize), parameters: &Parameters) -> Self {
        let values = parameters.flat_values();
        Self {
            kind,
            decay: Decay::new(decay, parameters),
            momentum,
            steps: 0,
            first: values.zeros_like(),
            second: values.zeros_like(),
        }
    }

    /// Number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The moments, by name. They are the tensors themselves, not copies.
    pub fn moments(&self) -> [(&'static str, &Tensor); 2] {
        [("first", &self.first), ("second", &self.second)]
    }

    /// Continues after `steps` steps.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// Updates `values` from `gradient`, which it may overwrite.
    pub fn step(&mut self, values: &Tensor, gradient: &Tensor, rate: f64) {
        self.steps += 1;
        no_grad(|| match self.kind {
            Kind::Sgd => self.sgd(values, gradient, rate),
            Kind::Adam | Kind::AdamW => self.adam(values, gradient, rate),
            Kind::Adagrad => unreachable!("a checked configuration of a model with layers does not use Adagrad"),
        });
    }

    fn sgd(&mut self, values: &Tensor, gradient: &Tensor, rate: f64) {
        let (mut values, mut gradient) = (values.shallow_clone(), gradient.shallow_clone());
        if let Some(decayed) = self.decay.apply(&values) {
            gradient += decayed;
        }
        if self.momentum > 0.0 {
            self.first *= self.momentum;
            self.first += gradient;
            gradient = self.first.shallow_clone();
        }
        values -= gradient * rate;
    }

    fn adam(&mut self, values: &Tensor, gradient: &Tensor, rate: f64) {
        let (mut values, mut gradient) = (values.shallow_clone(), gradient.shallow_clone());
        if let Some(decayed) = self.decay.apply(&values) {
            match self.kind {
                Kind::AdamW => values -= decayed * rate,
                _ => gradient += decayed,
            }
        }
        let [first, second] = [BETAS.0, BETAS.1].map(|beta| 1.0 - beta.powf(self.steps as f64));
        let rates = Rates { betas: BETAS, step: rate / first, deviation: second.sqrt(), epsilon: EPSILON };
        match values.device() {
            Device::Cpu => {
                let moments =
                    Moments { first: shim::values_mut(&mut self.first), second: shim::values_mut(&mut self.second) };
                adam(rates, shim::values(&gradient), moments, shim::values_mut(&mut values));
            }
            _ => self.adam_by_operators(rates, &mut values, &gradient),
        }
    }

    /// As the kernel, on any device.
    fn adam_by_operators(&mut self, rates: Rates, values: &mut Tensor, gradient: &Tensor) {
        let (beta1, beta2) = rates.betas;
        let _ = self.first.lerp_(gradient, 1.0 - beta1);
        self.second *= beta2;
        let _ = self.second.addcmul_(gradient, &(gradient.shallow_clone() * (1.0 - beta2)));
        let deviation = self.second.sqrt() / rates.deviation + rates.epsilon;
        let _ = values.addcdiv_(&(self.first.shallow_clone() * -rates.step), &deviation);
    }
}

/// Weight decay.
#[derive(Debug)]
enum Decay {
    None,
    /// The same for all parameters.
    Uniform(f64),
    /// Of each parameter, f32 of `[parameters]`.
    Each(Tensor),
}

impl Decay {
    fn new((per_layer, layers): (&PerLayer, usize), parameters: &Parameters) -> Self {
        match per_layer.uniform() {
            Some(0.0) => Self::None,
            Some(decay) => Self::Uniform(decay),
            None => {
                let parts = parameters.named().iter().map(|(name, tensor)| {
                    let decay = per_layer.at_layer(layer_of(name, layers));
                    tensor.detach().full_like(decay).view([-1])
                });
                Self::Each(Tensor::cat(&parts.collect::<Vec<_>>(), 0))
            }
        }
    }

    /// The values times their decay; none if there is no decay.
    fn apply(&self, values: &Tensor) -> Option<Tensor> {
        match self {
            Self::None => None,
            Self::Uniform(decay) => Some(values * *decay),
            Self::Each(decays) => Some(values * decays),
        }
    }
}

/// The layer that a parameter belongs to: the number in its name, as in `norms.0.weight`. What follows all layers belongs to the last.
fn layer_of(name: &str, layers: usize) -> usize {
    let number = name.split('.').nth(1).and_then(|part| part.parse().ok());
    number.unwrap_or(layers - 1)
}

#[cfg(test)]
mod tests {
    use tch::Kind as Type;

    use super::*;

    #[test]
    fn adam_in_one_loop_equals_the_operators() {
        let zeros = || Tensor::zeros([1000], (Type::Float, Device::Cpu));
        let optimizer = || Optimizer {
            kind: Kind::Adam,
            decay: Decay::None,
            momentum: 0.0,
            steps: 0,
            first: zeros(),
            second: zeros(),
        };
        let (mut ours, mut theirs) = (optimizer(), optimizer());
        let (our_values, mut their_values) = (zeros(), zeros());
        for step in 1..=50i32 {
            let gradient = (Tensor::arange(1000, (Type::Float, Device::Cpu)) * 0.7 + f64::from(step)).sin();
            ours.step(&our_values, &gradient, 0.01);
            let rates = Rates {
                betas: BETAS,
                step: 0.01 / (1.0 - BETAS.0.powi(step)),
                deviation: (1.0 - BETAS.1.powi(step)).sqrt(),
                epsilon: EPSILON,
            };
            theirs.adam_by_operators(rates, &mut their_values, &gradient);
        }
        assert!(our_values.abs().max().double_value(&[]) > 0.01, "values changed");
        for (ours, theirs) in
            [(&our_values, &their_values), (&ours.first, &theirs.first), (&ours.second, &theirs.second)]
        {
            assert!(ours.allclose(theirs, 1e-5, 1e-7, false), "{ours:?} {theirs:?}");
        }
    }
}
