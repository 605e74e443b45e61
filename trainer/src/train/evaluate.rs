//! Evaluation while training, by exact inference. It also makes the historical embeddings of halo nodes.

use std::time::Instant;

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, StoreFeatures};
use grappa_io::progress::Progress;
use grappa_run::scores::ScoreReport;
use grappa_storage::aggregates::Aggregates;
use tch::Tensor;

use super::{
    Trainer,
    historical::{HistoricalFiles, Keep},
    inference::Inference,
    split,
};
use crate::Result;

/// Scores of an exact evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Scores on the training nodes.
    pub train: ScoreReport,
    /// Scores on the validation nodes.
    pub val: ScoreReport,
    /// Scores on the test nodes.
    pub test: ScoreReport,
    /// Wall time.
    pub seconds: f64,
}

impl Evaluation {
    /// The score that decides which evaluation is best: accuracy on the validation nodes, or micro F1 for multi-label tasks.
    pub fn score(&self) -> Option<f64> {
        match self.val.confusion {
            Some(_) => self.val.accuracy,
            None => self.val.micro_f1.or(self.val.accuracy),
        }
    }
}

impl Trainer {
    /// Whether halo nodes use historical embeddings.
    pub(super) fn uses_historical(&self) -> bool {
        self.keep() != Keep::Nothing
    }

    /// Makes the historical embeddings of halo nodes from the current parameters, if they use any.
    pub(super) fn refresh_historical(&mut self, progress: &dyn Progress) -> Result<()> {
        if self.uses_historical() {
            let memory = self.make_room();
            // Frees the old files before it writes the new ones.
            (self.historical, self.historical_origin) = (None, None);
            self.historical = self.infer(memory, self.keep(), progress, &mut |_, _| Ok(()))?;
            self.historical_is_of_now();
        }
        Ok(())
    }

    /// Evaluates the model by exact inference. `ranked` adds the area under the ROC curve.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Evaluation> {
        let begin = Instant::now();
        let memory = self.make_room();
        // Frees the old files before it writes the new ones. If the disk is full, the next steps have none.
        (self.historical, self.historical_origin) = (None, None);
        let mut scores = split::SplitScores::new(&self.splits, self.labels.spec(), ranked);
        self.historical = self.infer(memory, self.keep(), progress, &mut |nodes, logits| {
            scores.add(nodes, logits, &self.labels)
        })?;
        let [train, val, test] = scores.reports();
        if self.uses_historical() {
            self.historical_is_of_now();
        }
        Ok(Evaluation {
            train,
            val,
            test,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Frees memory for inference and returns its budget. A feed that does not hold all features has taken all memory that the
    /// views leave, so it is closed; the next epoch opens another.
    fn make_room(&mut self) -> u64 {
        let memory = self.config.memory.0;
        self.loader.close_feed_on_disk();
        let held = match self.loader.feed() {
            Some(_) => self.loader.feature_bytes() * (1 + u64::from(self.aggregates.is_some())),
            None => 0,
        };
        let views: u64 = self.loader.parts().iter().map(|part| part.view.bytes()).sum();
        memory.saturating_sub(views + held).max(memory / 4)
    }

    /// Computes the logits of all nodes, and the historical embeddings that `keep` asks for.
    fn infer(
        &self,
        memory: u64,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut dyn FnMut(std::ops::Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<HistoricalFiles>> {
        let budget = Budget {
            memory,
            threads: self.config.threads(),
        };
        let features = StoreFeatures::open(&self.store)?;
        let aggregates = match self.aggregates {
            Some(kind) => Aggregates::open(&self.store, kind)?,
            None => None,
        };
        let aggregates = aggregates.map(|aggregates| AggregateRows::new(&self.store, aggregates));
        let inference = Inference {
            store: &self.store,
            features: &features as &dyn NodeRows,
            first_hop: aggregates.as_ref().map(|rows| rows as &dyn NodeRows),
            budget,
            scratch: &self.folder,
            device: self.device,
        };
        inference.run(&self.model, keep, progress, on_logits)
    }
}
