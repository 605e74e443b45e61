//! Evaluation while training, by exact inference or by sampled neighbours.
//!
//! Only nodes that the scores depend on are computed ([`Needed`]). Test nodes are scored when the validation score improved, because
//! nothing else needs their score. If the test nodes cost little beside the validation nodes, one inference scores both.

use std::ops::Range;

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, StoreFeatures};
use grappa_formats::manifest::FeatureDtype;
use grappa_io::progress::Progress;
use grappa_run::{
    config::{Evaluate, Monitor},
    model::Precision,
    scores::ScoreReport,
};
use grappa_sampling::NodeSet;
use grappa_storage::aggregates::Aggregates;
use roaring::RoaringTreemap;
use tch::Tensor;

use super::{
    Trainer,
    historical::HistoricalRows,
    inference::{FirstInputs, Inference, Needed},
    scored::{Scored, ScoredNodes},
    split::SplitScores,
};
use crate::{Result, nn::Model};

/// Columns of the feed.
const FEATURES: usize = 0;
const AGGREGATES: usize = 1;

/// Scores of an evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Scores on the validation nodes.
    pub val: ScoreReport,
    /// Scores on the test nodes; none if the validation score did not improve and they were not computed.
    pub test: Option<ScoreReport>,
    /// How the scores were computed: exactly or by sampling.
    pub method: Evaluate,
}

/// Memory for an inference, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    /// For states and features while it runs.
    pub(super) inference: u64,
    /// For the historical embeddings, which stay while the next steps train.
    pub(super) kept: u64,
}

impl Evaluation {
    /// The number that decides which evaluation is best, higher is better: accuracy on the validation nodes, micro F1 for
    /// multi-label tasks, or the negative loss. None without validation nodes.
    pub fn score(&self, monitor: Monitor) -> Option<f64> {
        score(&self.val, monitor)
    }

    /// Accuracy on the test nodes, if they were scored.
    pub fn test_accuracy(&self) -> Option<f64> {
        self.test.as_ref().and_then(|test| test.accuracy)
    }
}

/// The scores of an inference for validation and test nodes.
fn together(reports: Vec<ScoreReport>, method: Evaluate) -> Evaluation {
    let [val, test] = <[ScoreReport; 2]>::try_from(reports).expect("two splits were scored");
    Evaluation {
        val,
        test: Some(test),
        method,
    }
}

fn score(val: &ScoreReport, monitor: Monitor) -> Option<f64> {
    match (monitor, &val.confusion) {
        // A loss that is not finite is never the best.
        (Monitor::Loss, _) => (val.nodes > 0).then(|| -val.loss.unwrap_or(f64::NAN)),
        (Monitor::Score, Some(_)) => val.accuracy,
        (Monitor::Score, None) => val.micro_f1.or(val.accuracy),
    }
}

impl Trainer {
    /// Evaluates the model after `epoch`, as [`Trainer::prepare`] planned. `improves` says whether a validation score is better than
    /// all before; the test nodes are scored if it is, or if there is no validation score. `ranked` adds the area under the ROC curve.
    ///
    /// If the next epoch begins with a refresh of the historical embeddings, the same inference makes them.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        ranked: bool,
        epoch: u64,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Evaluation> {
        let scored = match self.scored_nodes.take() {
            Some(scored) => scored,
            None => self.scored_nodes(self.config.evaluate, progress)?,
        };
        let evaluated = match &scored {
            ScoredNodes::Together(both) if !both.needed.is_sampled() && self.is_refreshed_with(epoch) => {
                self.evaluate_and_refresh(ranked, progress)
            }
            _ => self.evaluate_nodes(&scored, ranked, improves, progress),
        };
        self.scored_nodes = Some(scored);
        evaluated
    }

    /// Evaluates the model exactly, whatever the configuration says. Frees the historical embeddings.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub fn evaluate_exactly(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Evaluation> {
        (self.historical, self.historical_origin) = (None, None);
        self.scored_nodes.iter_mut().for_each(ScoredNodes::clear);
        let room = self.make_room(false);
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        let needed = self.needed(&[&val, &test], &[], &[], f64::INFINITY, progress)?;
        let once = Scored {
            needed: needed.expect("there is no limit"),
            first_inputs: FirstInputs::new(0, &self.folder, 0),
        };
        let reports = self.scores(room, &once, &[&val, &test], ranked, progress)?;
        Ok(together(reports, Evaluate::Exact))
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
            ScoredNodes::Minibatches => (None, None),
            ScoredNodes::Apart(of_val, of_test) => (Some(of_val), Some(of_test)),
            ScoredNodes::Together(both) => {
                let room = self.make_room(false);
                let reports = self.scores(room, both, &[&val, &test], ranked, progress)?;
                return Ok(together(reports, scored.method()));
            }
        };
        let monitor = self.config.monitor;
        let mut scores_of = |split: &RoaringTreemap, scored: Option<&Scored>| match scored {
            None => self.sampled_scores(split, ranked, progress),
            Some(scored) => {
                let room = self.make_room(false);
                let mut reports = self.scores(room, scored, &[split], ranked, progress)?;
                Ok(reports.remove(0))
            }
        };
        let val = scores_of(&val, of_val)?;
        let test = match score(&val, monitor).is_none_or(improves) {
            true => Some(scores_of(&test, of_test)?),
            false => None,
        };
        Ok(Evaluation {
            val,
            test,
            method: scored.method(),
        })
    }

    /// Frees memory for inference, with `keeps` for one that saves historical embeddings. A feed that does not hold all features has
    /// taken all memory that the views leave, so it is closed; the next epoch opens another, and historical embeddings have to be in
    /// files.
    pub(super) fn make_room(&mut self, keeps: bool) -> Room {
        let memory = self.config.memory.0;
        self.loader.close_feed_on_disk();
        let views = self.loader.adjacency_bytes();
        let features = self.loader.feature_bytes() * (1 + u64::from(self.aggregates.is_some()));
        // Those of the evaluations, and those of an exact inference at the end.
        let sets = NodeSet::bytes_of(self.store.manifest().nodes) * 2 * (self.config.layers as u64 + 1);
        let held = views + sets + self.historical.as_ref().map_or(0, HistoricalRows::memory);
        let free = memory.saturating_sub(held);
        // The first refresh is before the feed opens.
        if self.loader.feed().is_none() && features > free {
            return Room {
                inference: free.max(memory / 4),
                kept: 0,
            };
        }
        let free = free.saturating_sub(features);
        let kept = if keeps { free / 2 } else { 0 };
        Room {
            inference: (free - kept).max(memory / 4),
            kept,
        }
    }

    /// Exact scores and historical embeddings, from one inference.
    fn evaluate_and_refresh(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Evaluation> {
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        let mut scores = SplitScores::new([&*val, &*test], self.labels.spec(), ranked);
        self.refresh(Some(&mut scores), progress)?;
        Ok(together(scores.reports(), Evaluate::Exact))
    }

    /// Scores the nodes of `splits`, which are among those that are wanted.
    fn scores(
        &self,
        room: Room,
        scored: &Scored,
        splits: &[&RoaringTreemap],
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<Vec<ScoreReport>> {
        let mut scores = SplitScores::new(splits.iter().copied(), self.labels.spec(), ranked);
        let mut take = self.taking(&scored.needed, &mut scores);
        let room = Room {
            inference: room.inference.saturating_sub(scored.first_inputs.bytes()),
            ..room
        };
        self.with_inference(room, |inference, model| {
            let inference = Inference {
                first_inputs: Some(&scored.first_inputs),
                ..inference
            };
            inference.run_needed(model, &scored.needed, progress, &mut take)
        })?;
        drop(take);
        Ok(scores.reports())
    }

    /// Receives logits of the wanted nodes and adds them to `scores`.
    pub(super) fn taking<'a>(
        &'a self,
        needed: &'a Needed,
        scores: &'a mut SplitScores<'_>,
    ) -> impl FnMut(Range<u64>, &Tensor) -> Result<()> + 'a {
        let mut nodes = Vec::new();
        move |positions, logits| {
            nodes.clear();
            needed.wanted().nodes_at(positions, &mut nodes);
            scores.add(&nodes, logits, &self.labels)
        }
    }

    /// Calls `infer` with an inference over the store, and the model.
    pub(super) fn with_inference<T>(
        &self,
        room: Room,
        infer: impl FnOnce(Inference<'_>, &Model) -> Result<T>,
    ) -> Result<T> {
        let budget = Budget {
            memory: room.inference,
            threads: self.config.threads(),
        };
        let features = self.features()?;
        let first_hop = self.first_hop_rows()?;
        let inference = Inference {
            store: &self.store,
            chunks: &self.chunks,
            features: &*features,
            first_hop: first_hop.as_deref(),
            first_inputs: None,
            budget,
            kept_memory: room.kept,
            scratch: &self.folder,
            rounded_states: match (&self.refresh_plan, self.config.evaluate_states) {
                // Training must not depend on memory.
                (Some(_), _) | (None, Precision::F32) => FeatureDtype::F32,
                (None, Precision::Bf16) => FeatureDtype::Bf16,
            },
            device: self.device,
        };
        infer(inference, &self.model)
    }

    /// The features of all nodes: those of the feed if it holds them, and else those in files.
    fn features(&self) -> Result<Box<dyn NodeRows + '_>> {
        match self.loader.feed().and_then(|feed| feed.resident_rows(FEATURES)) {
            Some(rows) => Ok(Box::new(rows)),
            None => Ok(Box::new(StoreFeatures::open(&self.store)?)),
        }
    }

    /// The pre-aggregated features of all nodes, if the model takes them.
    fn first_hop_rows(&self) -> Result<Option<Box<dyn NodeRows + '_>>> {
        let Some(kind) = self.aggregates else { return Ok(None) };
        if let Some(rows) = self.loader.feed().and_then(|feed| feed.resident_rows(AGGREGATES)) {
            return Ok(Some(Box::new(rows)));
        }
        let aggregates = Aggregates::open(&self.store, kind)?;
        Ok(aggregates.map(|aggregates| Box::new(AggregateRows::new(&self.store, aggregates)) as _))
    }
}
