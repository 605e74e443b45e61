//! The learning rate of each step.
//!
//! It is a function of the number of finished epochs, with fractions. So it does not depend on the number of steps of an epoch,
//! which changes with the number of partitions. Only the schedule `plateau` has state: the scores of evaluations.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{
    config::{LrSchedule, RateOptions},
    early_stopping::EarlyStopping,
};

/// The state of the schedule `plateau`. The other schedules have none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    /// Product of all reductions so far.
    factor: f64,
    watch: EarlyStopping,
}

impl Default for LearningRate {
    fn default() -> Self {
        Self { factor: 1.0, watch: EarlyStopping::default() }
    }
}

impl LearningRate {
    /// The learning rate of the step with index `step` of `steps`, in the epoch with index `epoch`.
    ///
    /// Schedules use the time at which the step begins, so the first step has the full `lr`. The warmup uses the time at which it
    /// ends, so the first step is not wasted with a rate of 0.
    pub fn at(&self, options: &RateOptions, epoch: u64, step: u64, steps: u64) -> f64 {
        let begin = epoch as f64 + step as f64 / steps as f64;
        let end = epoch as f64 + (step + 1) as f64 / steps as f64;
        let decayed = match options.lr_schedule {
            LrSchedule::Constant => options.lr,
            LrSchedule::Cosine => {
                // The cosine starts after the warmup.
                let length = (options.epochs as f64 - options.warmup).max(f64::MIN_POSITIVE);
                let done = ((begin - options.warmup) / length).clamp(0.0, 1.0);
                options.lr_min + (options.lr - options.lr_min) * (1.0 + (PI * done).cos()) / 2.0
            }
            LrSchedule::Step => options.lr * options.lr_factor.powf((epoch / options.lr_step) as f64),
            LrSchedule::Plateau => options.lr * self.factor,
        };
        let warm = if end < options.warmup { end / options.warmup } else { 1.0 };
        decayed.max(options.lr_min) * warm
    }

    /// Takes the validation score of an evaluation (higher is better). After more than `lr-patience` evaluations without a
    /// better one, `plateau` reduces the learning rate and starts to count again.
    pub fn observe(&mut self, options: &RateOptions, score: f64) {
        if options.lr_schedule == LrSchedule::Plateau {
            self.watch.observe(score);
            if self.watch.waited > options.lr_patience {
                self.watch.waited = 0;
                self.factor *= options.lr_factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TrainConfig;

    fn config(lr_schedule: LrSchedule) -> RateOptions {
        RateOptions { lr: 0.1, lr_schedule, epochs: 100, ..TrainConfig::default().rate_options() }
    }

    fn at(config: &RateOptions, epoch: u64, step: u64) -> f64 {
        LearningRate::default().at(config, epoch, step, 10)
    }

    fn assert_close(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-12, "{actual} instead of {expected}");
    }

    #[test]
    fn a_warmup_rises_step_by_step_from_more_than_nothing() {
        let config = RateOptions { warmup: 1.5, ..config(LrSchedule::Constant) };
        for step in 0..20 {
            let expected = (0.1 * (step + 1) as f64 / 15.0).min(0.1);
            assert_close(at(&config, step / 10, step % 10), expected);
        }
    }

    #[test]
    fn schedules_have_these_rates_after_the_warmup() {
        let with = |schedule, warmup| RateOptions { warmup, ..config(schedule) };
        let constant = with(LrSchedule::Constant, 0.0);
        // The warmup ends within a step.
        let short = with(LrSchedule::Constant, 0.15);
        let cosine = RateOptions { lr_min: 0.02, ..with(LrSchedule::Cosine, 20.0) };
        // The warmup is as long as the run.
        let long = with(LrSchedule::Cosine, 100.0);
        let steps = RateOptions { lr_step: 30, lr_factor: 0.1, lr_min: 0.0005, ..with(LrSchedule::Step, 0.0) };
        for (config, epoch, step, expected) in [
            (&constant, 0, 0, 0.1),
            (&constant, 99, 9, 0.1),
            (&short, 0, 0, 0.1 * 0.1 / 0.15),
            (&short, 0, 1, 0.1),
            (&cosine, 4, 9, 0.025),
            (&cosine, 20, 0, 0.1),
            (&cosine, 40, 0, 0.02 + 0.08 * (1.0 + (PI / 4.0).cos()) / 2.0),
            (&cosine, 59, 10, 0.06),
            (&cosine, 100, 0, 0.02),
            (&cosine, 120, 0, 0.02),
            (&long, 49, 9, 0.05),
            (&long, 99, 9, 0.1),
            (&steps, 29, 9, 0.1),
            (&steps, 30, 0, 0.01),
            (&steps, 60, 0, 0.001),
            (&steps, 90, 0, 0.0005),
        ] {
            assert_close(at(config, epoch, step), expected);
        }
    }

    /// As PyTorch's ReduceLROnPlateau of the same patience with `mode="max"` and `threshold=0`.
    #[test]
    fn a_plateau_lowers_it_when_patience_is_over_and_then_waits_again() {
        let config = RateOptions { lr_patience: 2, lr_factor: 0.5, ..config(LrSchedule::Plateau) };
        let mut rate = LearningRate::default();
        let rates: Vec<f64> = [0.5, 0.5, 0.4, 0.5, 0.5, 0.5, 0.5, 0.6, 0.1, 0.1, 0.1]
            .map(|score| {
                rate.observe(&config, score);
                rate.at(&config, 1, 0, 1)
            })
            .into();
        let expected = [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.0125];
        rates.iter().zip(expected).for_each(|(&rate, expected)| assert_close(rate, expected));
    }

    #[test]
    fn evaluations_do_not_matter_to_other_schedules() {
        let config = config(LrSchedule::Constant);
        let mut rate = LearningRate::default();
        (0..50).for_each(|_| rate.observe(&config, 0.0));
        assert_eq!(rate, LearningRate::default());
    }
}
