//! Exact inference while training: how good the model is, and what it leaves for halo nodes.

use std::time::Instant;

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, StoreFeatures};
use grappa_io::progress::Progress;
use grappa_storage::aggregates::Aggregates;
use tch::Tensor;

use super::{
    Evaluation, Trainer,
    history::{Keep, KeptHistory},
    inference::Inference,
    split,
};
use crate::Result;

impl Trainer {
    /// Whether halo nodes are given what the last exact inference left.
    pub(super) fn uses_history(&self) -> bool {
        self.keep() != Keep::Nothing
    }

    /// Makes the history of halo nodes anew, if they have one.
    pub(super) fn refresh_history(&mut self, progress: &dyn Progress) -> Result<()> {
        if self.uses_history() {
            let memory = self.make_room();
            // Its files go before those of the next come.
            (self.history, self.history_from) = (None, None);
            self.history = self.infer(memory, self.keep(), progress, &mut |_, _| Ok(()))?;
            self.history_is_of_now();
        }
        Ok(())
    }

    /// Evaluates the model by exact inference.
    ///
    /// # Errors
    /// If files can't be read or written, or memory is too small.
    pub fn evaluate(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Evaluation> {
        let begin = Instant::now();
        let memory = self.make_room();
        // Its files go before those of the next come; without room for these, the steps to come go without.
        (self.history, self.history_from) = (None, None);
        let mut scores = split::SplitScores::new(&self.splits, self.labels.spec(), ranked);
        self.history = self.infer(memory, self.keep(), progress, &mut |nodes, logits| {
            scores.add(nodes, logits, &self.labels)
        })?;
        let [train, val, test] = scores.reports();
        if self.uses_history() {
            self.history_is_of_now();
        }
        Ok(Evaluation {
            train,
            val,
            test,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Memory that inference may take. A feed that reads as it goes has all that views leave: it makes room, and the next epoch
    /// opens another.
    fn make_room(&mut self) -> u64 {
        let memory = self.config.memory.0;
        let held = match self.feed.take_if(|feed| !feed.is_resident()) {
            None if self.feed.is_some() => self.feature_bytes() * (1 + u64::from(self.aggregates.is_some())),
            _ => 0,
        };
        let views: u64 = self.parts.iter().map(|part| part.view.bytes()).sum();
        memory.saturating_sub(views + held).max(memory / 4)
    }

    /// Computes the logits of all nodes, and what is to be kept.
    fn infer(
        &self,
        memory: u64,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut dyn FnMut(std::ops::Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<Option<KeptHistory>> {
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
            scratch: &self.scratch,
            device: self.device,
        };
        inference.run(&self.model, keep, progress, on_logits)
    }
}
