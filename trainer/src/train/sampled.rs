//! Evaluation by minibatches of the scored nodes over the whole graph, with larger fanouts than in training.
//!
//! Most evaluations that sample neighbors take one pass for each layer instead (`scored`): it computes a node once, and reads files in
//! their order. Minibatches remain for random walks, and for slices of graphs so large that memory does not hold sets of their nodes.
//! All evaluations of a run draw the same neighbors, so that they can be compared. The ranks of a host divide the minibatches.

use std::sync::Arc;

use grappa_io::progress::{Progress, check_stopped};
use grappa_sampling::sample::Sampler;
use roaring::RoaringTreemap;
use tch::{Tensor, no_grad};

use super::{Trainer, load::ModelTensors, split::SplitScores};
use crate::{
    Result,
    nn::{Pass, Scaling},
};

/// A minibatch has at least this many seeds, unless memory is too small.
const BATCH_MIN: usize = 16;

impl Trainer {
    /// Scores on the nodes of a split, from sampled neighbors, as far as this process has its minibatches. `ranked` adds the area under
    /// the ROC curve.
    ///
    /// # Errors
    /// If files cannot be read, memory is too small, or progress says to stop.
    pub(super) fn sampled_scores<'a>(
        &mut self,
        split: &'a RoaringTreemap,
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<SplitScores<'a>> {
        let sampler = Arc::new(self.config.evaluation_sampler(self.aggregates.is_some())?);
        // Each sampled hop reaches twice as many nodes as in training, and different seeds share fewer of them. With this
        // number of seeds, a minibatch has at most about as many nodes as one of training, for which the feed has memory.
        let hops = self.config.layers - usize::from(self.aggregates.is_some());
        let seeds = self.config.batch() * self.config.concurrent() as usize;
        let mut batch = (seeds >> (hops + 1).min(usize::BITS as usize - 1)).max(BATCH_MIN);
        loop {
            let scores = match split.is_empty() {
                true => Ok(SplitScores::new([split], self.labels.spec(), ranked)),
                false => self.scores_of_batches(split, &sampler, batch, ranked, progress),
            };
            // The processes of a host divide the same minibatches.
            match self.agree(scores, progress) {
                Err(error) if error.is_budget() && batch > 1 => batch /= 2,
                scores => return scores,
            }
        }
    }

    fn scores_of_batches<'a>(
        &mut self,
        split: &'a RoaringTreemap,
        sampler: &Arc<Sampler>,
        batch: usize,
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<SplitScores<'a>> {
        let share = self.share_within_host();
        let batches = self
            .loader
            .whole_graph_batches(split, sampler.clone(), batch, share, progress)?;
        progress.steps("evaluating", batches.steps());
        // While batches arrive, the trainer is busy with them.
        let feed = self.loader.feed().expect("batches are delivered by a feed").clone();
        let mut scores = SplitScores::new([split], self.labels.spec(), ranked);
        let loading = self.loading();
        for batch in feed.epoch(&batches) {
            check_stopped(progress)?;
            let batch = Arc::new(batch?);
            let tensors = loading.model_tensors(&batch)?;
            let logits = no_grad(|| self.logits(&tensors));
            let minibatch = batch.minibatch();
            scores.add(&minibatch.nodes[..minibatch.seeds], &logits, &self.labels)?;
            progress.advance(1, minibatch.edges() as u64);
        }
        Ok(scores)
    }

    /// The logits of the seeds of a batch over the whole graph.
    fn logits(&self, tensors: &ModelTensors) -> Tensor {
        let pass = Pass {
            training: None,
            names: None,
            scaling: Scaling::HorvitzThompson,
        };
        self.model.forward(&tensors.blocks, tensors.input(), &[], pass)
    }
}
