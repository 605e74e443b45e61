//! Decisions after an epoch that all ranks take alike.

use grappa_run::{
    checkpoint::{Best, RunState},
    config::TrainConfig,
};

use crate::{Result, distributed::ProcessGroup};

/// Whether the model is evaluated after an epoch.
pub fn is_evaluated(config: &TrainConfig, epoch: u64) -> bool {
    epoch + 1 == config.epochs || (epoch + 1).is_multiple_of(config.eval_every)
}

/// Sends the score of an evaluation from rank 0 to the others. They get its bits, because JSON has no NaN.
pub fn score_of_first(group: &ProcessGroup, score: impl FnOnce() -> Option<f64>) -> Result<Option<f64>> {
    let bits = group.share("score", || Ok(score().map(f64::to_bits)))?;
    Ok(bits.map(f64::from_bits))
}

/// Takes the score of an evaluation of the last finished epoch. Returns whether it is the best one.
pub fn observe(state: &mut RunState, config: &TrainConfig, score: f64, test: Option<f64>) -> bool {
    let is_best = state.early_stopping.observe(score);
    state.learning_rate.observe(config, score);
    if is_best {
        state.best = Some(Best {
            epoch: state.epoch,
            step: state.step,
            val: score,
            test,
        });
    }
    is_best
}
