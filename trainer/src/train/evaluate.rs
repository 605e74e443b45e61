//! Evaluation while training, by exact inference or by sampled neighbors.
//!
//! Only nodes that the scores depend on are computed ([`Needed`]). Test nodes are scored when the validation score improved, because
//! nothing else needs their score. If the test nodes cost little beside the validation nodes, one inference scores both.
//!
//! If several processes train together, each scores a part of the nodes. Rank 0 adds up the counts, so it reports the scores that a
//! single process has.

use std::ops::Range;

use grappa_engine::aggregate::{Budget, NodeRows, StoreFeatures, StoredRows};
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
    inference::{Inference, Needed},
    scored::{Scored, ScoredNodes},
    split::SplitScores,
};
use crate::{
    Result,
    nn::Model,
    runtime::{release_memory, release_memory_above},
};

/// The splits that are scored.
pub(super) const VAL: usize = 0;
pub(super) const TEST: usize = 1;

/// The memory of the tensors of steps stays during an inference if it is at most 1/STEP_SHARE of what is free. The inference leaves as much
/// in any case, so that its results do not depend on it.
const STEP_SHARE: u64 = 8;

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
        // Neither a model without predictions nor a loss that is not finite is ever the best.
        _ if val.is_undecided() => Some(f64::NAN),
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
    /// None on ranks other than 0. They all have to take part; only rank 0 asks whether a score `improves`.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        ranked: bool,
        epoch: u64,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Option<Evaluation>> {
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

    /// Finds the nodes of an exact evaluation, whatever the configuration says. Frees the historical embeddings.
    ///
    /// # Errors
    /// If files cannot be read, or memory is too small.
    pub(super) fn scored_exactly(&mut self, progress: &dyn Progress) -> Result<Scored> {
        (self.historical, self.historical_origin) = (None, None);
        self.scored_nodes.iter_mut().for_each(ScoredNodes::clear);
        let [val, test] = &self.scored_splits;
        let needed = self.needed(&[val, test], &[], &[], f64::INFINITY, progress)?;
        Ok(Scored::once(needed.expect("there is no limit"), &self.folder))
    }

    /// Evaluates the model exactly. All ranks call it with what [`Trainer::scored_exactly`] found, or failed with.
    ///
    /// # Errors
    /// As [`Trainer::evaluate`].
    pub(super) fn evaluate_exactly(
        &mut self,
        scored: Result<Scored>,
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<Option<Evaluation>> {
        let room = self.make_room(false);
        let [val, test] = self.scored_splits.clone();
        let scores = scored.and_then(|once| self.scores(room, &once, &[&val, &test], ranked, progress));
        let reports = self.reports(scores, progress)?;
        Ok(reports.map(|reports| together(reports, Evaluate::Exact)))
    }

    fn evaluate_nodes(
        &mut self,
        scored: &ScoredNodes,
        ranked: bool,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Option<Evaluation>> {
        let (of_val, of_test) = match scored {
            ScoredNodes::Minibatches => (None, None),
            ScoredNodes::Apart(both) => {
                let [of_val, of_test] = &**both;
                (Some(of_val), Some(of_test))
            }
            ScoredNodes::Together(both) => {
                let [val, test] = self.scored_splits.clone();
                let room = self.make_room(false);
                let scores = self.scores(room, both, &[&val, &test], ranked, progress);
                let reports = self.reports(scores, progress)?;
                return Ok(reports.map(|reports| together(reports, scored.method())));
            }
        };
        let val = self.report(VAL, of_val, ranked, progress)?;
        let is_tested = self.told_by_first("test", || {
            let val = val.as_ref().expect("rank 0 has the scores");
            Ok(score(val, self.config.monitor).is_none_or(improves))
        })?;
        let test = match is_tested {
            true => self.report(TEST, of_test, ranked, progress)?,
            false => None,
        };
        let method = scored.method();
        Ok(val.map(|val| Evaluation { val, test, method }))
    }

    /// The scores of the validation or of the test nodes, by an inference or, without one, by minibatches. None on ranks other than 0.
    fn report(
        &mut self,
        split: usize,
        scored: Option<&Scored>,
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<Option<ScoreReport>> {
        let all = [self.splits.val(), self.splits.test()][split].clone();
        let own = self.scored_splits[split].clone();
        let scores = match scored {
            // The processes of a host divide the minibatches, not the nodes.
            None => self.sampled_scores(&all, ranked, progress),
            Some(scored) => {
                let room = self.make_room(false);
                self.scores(room, scored, &[&own], ranked, progress)
            }
        };
        let reports = self.reports(scores, progress)?;
        Ok(reports.map(|mut reports| reports.remove(0)))
    }

    /// The scores of all processes, after each has scored its part. None on ranks other than 0.
    fn reports(&self, scored: Result<SplitScores<'_>>, progress: &dyn Progress) -> Result<Option<Vec<ScoreReport>>> {
        self.reports_of(self.agree(scored, progress)?, progress)
    }

    /// The scores of all processes, none of which failed.
    fn reports_of(&self, mut scores: SplitScores<'_>, progress: &dyn Progress) -> Result<Option<Vec<ScoreReport>>> {
        let Some(group) = &self.group else {
            return Ok(Some(scores.reports()));
        };
        let Some(all) = group.gather_words(&scores.to_words(), progress)? else {
            return Ok(None);
        };
        all[1..].iter().for_each(|words| scores.merge_words(words));
        Ok(Some(scores.reports()))
    }

    /// Frees memory for inference, with `keeps` for one that saves historical embeddings. A feed that does not hold all features has
    /// taken all memory that the views leave, so it is closed; the next epoch opens another, and historical embeddings have to be in
    /// files. Views in turn are freed too: a pass over rows in files reads all of them once for each part of its results that fits the
    /// memory.
    pub(super) fn make_room(&mut self, keeps: bool) -> Room {
        let memory = self.config.memory.0;
        self.loader.close_feed_on_disk();
        let views = self.loader.free_views_in_turn();
        let features = match self.loader.feed() {
            Some(feed) => feed.resident_bytes(),
            None => self.loader.feature_bytes() * (1 + u64::from(self.aggregates.is_some())),
        };
        // Those of the evaluations, and those of an exact inference at the end.
        let sets = NodeSet::bytes_of(self.store.manifest().nodes) * 2 * (self.config.layers as u64 + 1);
        let historical = self.historical.as_ref().map_or(0, |rows| rows.memory());
        // An evaluation in progress has taken its own, and counts them.
        let first_inputs = self.scored_nodes.as_ref().map_or(0, ScoredNodes::memory);
        let held = views + sets + historical + first_inputs + self.kept_batch_memory();
        let free = memory.saturating_sub(held);
        // The first refresh is before the feed opens.
        if self.loader.feed().is_none() && features > free {
            release_memory();
            return Room {
                inference: free.max(memory / 4),
                kept: 0,
            };
        }
        let free = free.saturating_sub(features);
        let kept = if keeps { free / 2 } else { 0 };
        let of_steps = free / STEP_SHARE;
        let inference = free - kept - of_steps;
        match inference < memory / 4 {
            true => release_memory(),
            false => release_memory_above(of_steps),
        }
        Room {
            inference: inference.max(memory / 4),
            kept,
        }
    }

    /// Frees what inferences keep only to save time, before a feed opens: it may take all memory that the views leave.
    pub(super) fn make_room_for_feed(&mut self) {
        self.scored_nodes.iter_mut().for_each(ScoredNodes::free_memory);
        release_memory();
    }

    /// Exact scores and historical embeddings, from one inference.
    fn evaluate_and_refresh(&mut self, ranked: bool, progress: &dyn Progress) -> Result<Option<Evaluation>> {
        let [val, test] = self.scored_splits.clone();
        let mut scores = SplitScores::new([&*val, &*test], self.labels.spec(), ranked);
        let refreshed = self.refresh(Some(&mut scores), progress);
        let scores = self.refreshed(refreshed.map(|()| scores), progress)?;
        let reports = self.reports_of(scores, progress)?;
        Ok(reports.map(|reports| together(reports, Evaluate::Exact)))
    }

    /// Scores the nodes of `splits`, which are among those that are wanted.
    fn scores<'a>(
        &self,
        room: Room,
        scored: &Scored,
        splits: &[&'a RoaringTreemap],
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<SplitScores<'a>> {
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
        Ok(scores)
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
        Ok(aggregates.map(|aggregates| Box::new(StoredRows::of_aggregates(&self.store, aggregates)) as _))
    }
}
