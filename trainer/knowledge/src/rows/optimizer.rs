//! Optimizers of rows.

use grappa_run::config::Optimizer;

// As in PyTorch and in the papers.
const ADAM_BETAS: [f32; 2] = [0.9, 0.999];
const ADAM_EPSILON: f32 = 1e-8;
const ADAGRAD_EPSILON: f32 = 1e-10;

/// Optimizer of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowOptimizer {
    /// Adam, with the bias correction of the row's own updates.
    Adam,
    /// Adagrad.
    Adagrad,
    /// Plain steps.
    Sgd,
}

impl RowOptimizer {
    /// The optimizer of this name. None if rows have none.
    pub fn named(optimizer: Optimizer) -> Option<Self> {
        match optimizer {
            Optimizer::Adam => Some(Self::Adam),
            Optimizer::Adagrad => Some(Self::Adagrad),
            Optimizer::Sgd => Some(Self::Sgd),
            Optimizer::AdamW => None,
        }
    }

    /// Number of moments of each value of a row.
    pub fn moments(self) -> usize {
        match self {
            Self::Adam => 2,
            Self::Adagrad => 1,
            Self::Sgd => 0,
        }
    }

    /// Whether the optimizer counts the updates of a row.
    pub fn counts_updates(self) -> bool {
        self == Self::Adam
    }

    /// Changes the values of a row after its update number `updates`, counted from 1.
    #[inline]
    pub fn update(
        self,
        rate: f32,
        updates: u32,
        gradient: &[f32],
        values: &mut [f32],
        moments: [Option<&mut [f32]>; 2],
    ) {
        match (self, moments) {
            (Self::Adam, [Some(first), Some(second)]) => {
                let unbiased = ADAM_BETAS.map(|beta| (1.0 - f64::from(beta).powf(f64::from(updates))) as f32);
                let (rate, root) = (rate / unbiased[0], 1.0 / unbiased[1].sqrt());
                let (first, second) = (&mut first[..gradient.len()], &mut second[..gradient.len()]);
                let values = &mut values[..gradient.len()];
                for k in 0..gradient.len() {
                    let g = gradient[k];
                    first[k] = ADAM_BETAS[0] * first[k] + (1.0 - ADAM_BETAS[0]) * g;
                    second[k] = ADAM_BETAS[1] * second[k] + (1.0 - ADAM_BETAS[1]) * g * g;
                    values[k] -= rate * first[k] / (second[k].sqrt() * root + ADAM_EPSILON);
                }
            }
            (Self::Adagrad, [Some(sums), _]) => {
                let (sums, values) = (&mut sums[..gradient.len()], &mut values[..gradient.len()]);
                for k in 0..gradient.len() {
                    sums[k] += gradient[k] * gradient[k];
                    values[k] -= rate * gradient[k] / (sums[k].sqrt() + ADAGRAD_EPSILON);
                }
            }
            _ => values.iter_mut().zip(gradient).for_each(|(value, gradient)| *value -= rate * gradient),
        }
    }
}
