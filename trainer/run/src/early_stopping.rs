//! Early stopping: the end of a run whose validation score, or loss, does not improve. A loss is observed as its negative.

use serde::{Deserialize, Serialize};

/// Counts the evaluations since the best one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct EarlyStopping {
    best: Option<f64>,
    /// Evaluations since the best one; 0 if there is none.
    pub waited: u64,
}

impl EarlyStopping {
    /// Takes the score of an evaluation (higher is better). Returns whether it is better than all before. NaN never is, and before there is
    /// a best score it does not count as waiting: a run must not end without a best model.
    pub fn observe(&mut self, score: f64) -> bool {
        let is_better = self.improves(score);
        if is_better {
            *self = Self { best: Some(score), waited: 0 };
        } else if self.best.is_some() {
            self.waited += 1;
        }
        is_better
    }

    /// Whether a score is better than all before. NaN never is.
    pub fn improves(&self, score: f64) -> bool {
        match self.best {
            None => !score.is_nan(),
            Some(best) => score > best,
        }
    }

    /// Whether `patience` evaluations were not better. A patience of 0 never ends.
    pub fn is_over(&self, patience: u64) -> bool {
        patience > 0 && self.waited >= patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_after_as_many_evaluations_without_a_better_one() {
        let mut stopping = EarlyStopping::default();
        let better: Vec<bool> = [0.5, 0.6, 0.6, 0.4, 0.7, 0.7, 0.1].map(|score| stopping.observe(score)).into();
        assert_eq!(better, [true, true, false, false, true, false, false]);
        assert_eq!((stopping.best, stopping.waited), (Some(0.7), 2));
        assert!(stopping.is_over(2) && !stopping.is_over(3));
    }

    #[test]
    fn a_patience_of_zero_never_ends() {
        let mut stopping = EarlyStopping::default();
        for _ in 0..1000 {
            stopping.observe(0.0);
        }
        assert!(!stopping.is_over(0));
    }

    #[test]
    fn a_score_that_is_no_number_is_never_the_best() {
        let mut stopping = EarlyStopping::default();
        assert!(!stopping.observe(f64::NAN));
        assert!(!stopping.is_over(1));
        assert!(stopping.observe(0.1));
        assert!(!stopping.observe(f64::NAN));
        assert_eq!((stopping.best, stopping.waited), (Some(0.1), 1));
    }
}
