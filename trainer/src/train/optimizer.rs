//! Optimizers. They work on the flat vector of all parameters, so a step is a few operators for any model.

use grappa_run::config::{Optimizer as Kind, TrainConfig};
use tch::{Tensor, no_grad};

/// The defaults of PyTorch (Kingma and Ba: "Adam", arXiv 1412.6980).
const BETAS: (f64, f64) = (0.9, 0.999);
const EPSILON: f64 = 1e-8;

/// Updates parameters from gradients.
#[derive(Debug)]
pub struct Optimizer {
    kind: Kind,
    weight_decay: f64,
    momentum: f64,
    steps: u64,
    /// Moments, zero at first: the running mean of the gradient (or its momentum), and that of its square.
    first: Tensor,
    second: Tensor,
}

impl Optimizer {
    /// An optimizer without steps.
    pub fn new(config: &TrainConfig, values: &Tensor) -> Self {
        Self {
            kind: config.optimizer,
            weight_decay: config.weight_decay,
            momentum: config.momentum,
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
        });
    }

    fn sgd(&mut self, values: &Tensor, gradient: &Tensor, rate: f64) {
        let (mut values, mut gradient) = (values.shallow_clone(), gradient.shallow_clone());
        if self.weight_decay > 0.0 {
            gradient += values.shallow_clone() * self.weight_decay;
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
        if self.weight_decay > 0.0 {
            match self.kind {
                Kind::AdamW => values *= 1.0 - rate * self.weight_decay,
                _ => gradient += values.shallow_clone() * self.weight_decay,
            }
        }
        let (beta1, beta2) = BETAS;
        let _ = self.first.lerp_(&gradient, 1.0 - beta1);
        self.second *= beta2;
        let _ = self
            .second
            .addcmul_(&gradient, &(gradient.shallow_clone() * (1.0 - beta2)));
        let correct = |beta: f64| 1.0 - beta.powf(self.steps as f64);
        let deviation = self.second.sqrt() / correct(beta2).sqrt() + EPSILON;
        let _ = values.addcdiv_(&(self.first.shallow_clone() * (-rate / correct(beta1))), &deviation);
    }
}
