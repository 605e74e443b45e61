//! Evaluation while training, by exact inference or by sampled neighbours. Exact inference also makes the historical embeddings of
//! halo nodes.
//!
//! Only nodes that the scores depend on are computed ([`Needed`]). Test nodes are scored when the validation score improved, because
//! nothing else needs their score. If the test nodes cost little beside the validation nodes, one inference scores both.

use std::{ops::Range, time::Instant};

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, NodeSet, StoreFeatures};
use grappa_formats::NodeId;
use grappa_io::progress::Progress;
use grappa_run::{config::Evaluate, scores::ScoreReport};
use grappa_storage::aggregates::Aggregates;
use roaring::RoaringTreemap;

use super::{
    Trainer,
    historical::{HistoricalRows, Keep},
    inference::{Inference, Needed, OnRows},
    split::SplitScores,
};
use crate::Result;

/// With `auto`, an exact evaluation may take this share of an epoch.
const EXACT_SHARE: f64 = 0.25;
/// An exact evaluation with so little work is always done: it takes some 20 ms.
const LITTLE_WORK: f64 = 2e6;
/// An epoch takes as long as aggregating about so many edges for each sampled one: forward and backward passes, sampling, and the
/// update of the states of few destinations per edge.
const SAMPLED_EDGE_WORK: f64 = 8.0;
/// A sampled evaluation takes about this share of the time of training on as many nodes: larger fanouts, but no backward passes.
const SAMPLED_EVALUATION: f64 = 1.3;

/// Test nodes are scored with the validation nodes if that costs at most this much as the validation nodes alone.
const TOGETHER: f64 = 1.3;

/// Scores of an evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Scores on the validation nodes.
    pub val: ScoreReport,
    /// Scores on the test nodes; none if the validation score did not improve and they were not computed.
    pub test: Option<ScoreReport>,
    /// How the scores were computed: exactly or by sampling.
    pub method: Evaluate,
    /// Wall time.
    pub seconds: f64,
}

/// The nodes to compute for the scores of the validation and of the test nodes.
#[derive(Debug)]
pub(super) enum ScoredNodes {
    /// Minibatches of sampled neighbours.
    Sampled,
    /// One inference for both.
    Together(Needed),
    /// The validation nodes, and the test nodes.
    Apart(Needed, Needed),
}

/// Memory for an inference, in bytes.
#[derive(Debug, Clone, Copy)]
struct Room {
    /// For states and features while it runs.
    inference: u64,
    /// For the historical embeddings, which stay while the next steps train.
    kept: u64,
}

impl Evaluation {
    /// The score that decides which evaluation is best: accuracy on the validation nodes, or micro F1 for multi-label tasks.
    pub fn score(&self) -> Option<f64> {
        score(&self.val)
    }

    /// Accuracy on the test nodes, if they were scored.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.test.as_ref().and_then(|test| test.accuracy)
    }
}

/// The exact scores on validation and test nodes.
fn together(reports: Vec<ScoreReport>) -> Evaluation {
    let [val, test] = <[ScoreReport; 2]>::try_from(reports).expect("two splits were scored");
    Evaluation {
        val,
        test: Some(test),
        method: Evaluate::Exact,
        seconds: 0.0,
    }
}

impl ScoredNodes {
    fn method(&self) -> Evaluate {
        match self {
            Self::Sampled => Evaluate::Sampled,
            Self::Together(_) | Self::Apart(..) => Evaluate::Exact,
        }
    }
}

fn score(val: &ScoreReport) -> Option<f64> {
    match val.confusion {
        Some(_) => val.accuracy,
        None => val.micro_f1.or(val.accuracy),
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
            let room = self.make_room();
            // Frees the old files before it writes the new ones.
            (self.historical, self.historical_origin) = (None, None);
            let all = Needed::all(&self.store, self.config.layers);
            self.historical = self.infer(room, &all, self.keep(), progress, &mut |_, _| Ok(()))?;
            self.historical_is_of_now();
        }
        Ok(())
    }

    /// Evaluates the model as [`TrainConfig::evaluate`](grappa_run::config::TrainConfig) says. `epoch_edges` are the edges that the
    /// first epoch sampled, which tell whether `auto` is exact. `improves` says whether a validation score is better than all
    /// before; the test nodes are scored if it is, or if there is no validation score. `ranked` adds the area under the ROC curve.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        ranked: bool,
        epoch_edges: u64,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Evaluation> {
        let begin = Instant::now();
        // Historical embeddings take an exact inference of all nodes, which has the scores too.
        if !self.uses_historical() {
            let scored = match self.scored_nodes.take() {
                Some(scored) => scored,
                None => self.scored_nodes(epoch_edges, progress)?,
            };
            let evaluated = self.evaluate_nodes(&scored, ranked, improves, progress);
            self.scored_nodes = Some(scored);
            return Ok(Evaluation {
                seconds: begin.elapsed().as_secs_f64(),
                ..evaluated?
            });
        }
        let room = self.make_room();
        // Frees the old files before it writes the new ones. If the disk is full, the next steps have none.
        (self.historical, self.historical_origin) = (None, None);
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        let all = Needed::all(&self.store, self.config.layers);
        let (historical, reports) = self.scores(room, &all, self.keep(), &[&val, &test], ranked, progress)?;
        self.historical = historical;
        self.historical_is_of_now();
        Ok(Evaluation {
            seconds: begin.elapsed().as_secs_f64(),
            ..together(reports)
        })
    }

    /// Evaluates the model exactly, whatever the configuration says, and makes no historical embeddings.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub fn evaluate_exactly(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Evaluation> {
        let begin = Instant::now();
        let room = self.make_room();
        (self.historical, self.historical_origin) = (None, None);
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        let needed = self.needed(&[&val, &test], f64::INFINITY, progress)?;
        let needed = needed.expect("there is no limit");
        let (_, reports) = self.scores(room, &needed, Keep::Nothing, &[&val, &test], ranked, progress)?;
        Ok(Evaluation {
            seconds: begin.elapsed().as_secs_f64(),
            ..together(reports)
        })
    }

    fn evaluate_nodes(
        &mut self,
        scored: &ScoredNodes,
        ranked: bool,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Evaluation> {
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        let (of_val, of_test) = match scored {
            ScoredNodes::Sampled => (None, None),
            ScoredNodes::Apart(of_val, of_test) => (Some(of_val), Some(of_test)),
            ScoredNodes::Together(needed) => {
                let room = self.make_room();
                let (_, reports) = self.scores(room, needed, Keep::Nothing, &[&val, &test], ranked, progress)?;
                return Ok(together(reports));
            }
        };
        let mut scores_of = |split: &RoaringTreemap, needed: Option<&Needed>| match needed {
            None => self.sampled_scores(split, ranked, progress),
            Some(needed) => {
                let room = self.make_room();
                let (_, mut reports) = self.scores(room, needed, Keep::Nothing, &[split], ranked, progress)?;
                Ok(reports.remove(0))
            }
        };
        let val = scores_of(&val, of_val)?;
        let test = match score(&val).is_none_or(improves) {
            true => Some(scores_of(&test, of_test)?),
            false => None,
        };
        Ok(Evaluation {
            val,
            test,
            method: scored.method(),
            seconds: 0.0,
        })
    }

    /// Decides how to evaluate, and finds the nodes to compute.
    fn scored_nodes(&self, epoch_edges: u64, progress: &dyn Progress) -> Result<ScoredNodes> {
        let (val, test) = (self.splits.val(), self.splits.test());
        let work_max = match self.config.evaluate {
            Evaluate::Sampled => return Ok(ScoredNodes::Sampled),
            Evaluate::Exact => f64::INFINITY,
            Evaluate::Auto => {
                let epoch = SAMPLED_EDGE_WORK * epoch_edges as f64;
                let scored = if val.is_empty() { test } else { val }.len() as f64;
                let sampled = epoch * SAMPLED_EVALUATION * scored / self.splits.train().len() as f64;
                sampled.max(EXACT_SHARE * epoch).max(LITTLE_WORK)
            }
        };
        let both = |work_max| self.needed(&[val, test], work_max, progress);
        if val.is_empty() || test.is_empty() {
            return Ok(both(work_max)?.map_or(ScoredNodes::Sampled, ScoredNodes::Together));
        }
        let Some(of_val) = self.needed(&[val], work_max, progress)? else {
            return Ok(ScoredNodes::Sampled);
        };
        if let Some(both) = both(work_max.min(TOGETHER * of_val.work()))? {
            return Ok(ScoredNodes::Together(both));
        }
        let of_test = self.needed(&[test], f64::INFINITY, progress)?;
        Ok(ScoredNodes::Apart(of_val, of_test.expect("there is no limit")))
    }

    /// The nodes that the scores of some splits depend on; none if they are more work than `work_max`.
    fn needed(&self, splits: &[&RoaringTreemap], work_max: f64, progress: &dyn Progress) -> Result<Option<Needed>> {
        let members = splits.iter().flat_map(|split| split.iter()).map(NodeId);
        Needed::of(
            &self.store,
            NodeSet::of(self.store.manifest().nodes, members),
            self.config.layers,
            self.aggregates.is_some(),
            work_max,
            self.config.threads(),
            progress,
        )
    }

    /// Frees memory for inference. A feed that does not hold all features has taken all memory that the views leave, so it is
    /// closed; the next epoch opens another, and historical embeddings have to be in files.
    fn make_room(&mut self) -> Room {
        let memory = self.config.memory.0;
        self.loader.close_feed_on_disk();
        let views: u64 = self.loader.parts().iter().map(|part| part.view.bytes()).sum();
        let Some(_) = self.loader.feed() else {
            return Room {
                inference: memory.saturating_sub(views).max(memory / 4),
                kept: 0,
            };
        };
        let held = views + self.loader.feature_bytes() * (1 + u64::from(self.aggregates.is_some()));
        let free = memory.saturating_sub(held);
        let kept = if self.uses_historical() { free / 2 } else { 0 };
        Room {
            inference: (free - kept).max(memory / 4),
            kept,
        }
    }

    /// Scores the nodes of `splits`, which are among those that are wanted. Also returns the historical embeddings that `keep` asks for.
    fn scores(
        &self,
        room: Room,
        needed: &Needed,
        keep: Keep,
        splits: &[&RoaringTreemap],
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<(Option<HistoricalRows>, Vec<ScoreReport>)> {
        let mut scores = SplitScores::new(splits.iter().copied(), self.labels.spec(), ranked);
        let mut nodes = Vec::new();
        let historical = self.infer(room, needed, keep, progress, &mut |positions: Range<u64>, logits| {
            nodes.clear();
            needed.wanted().nodes_at(positions, &mut nodes);
            scores.add(&nodes, logits, &self.labels)
        })?;
        Ok((historical, scores.reports()))
    }

    /// Computes the logits of the wanted nodes, and the historical embeddings that `keep` asks for.
    fn infer(
        &self,
        room: Room,
        needed: &Needed,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut OnRows<'_>,
    ) -> Result<Option<HistoricalRows>> {
        let budget = Budget {
            memory: room.inference,
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
            kept_memory: room.kept,
            scratch: &self.folder,
            device: self.device,
        };
        inference.run_needed(&self.model, needed, keep, progress, on_logits)
    }
}
