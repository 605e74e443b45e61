//! Evaluation while training, by exact inference. It also makes the historical embeddings of halo nodes.
//!
//! Only nodes that the scores depend on are computed ([`Needed`]). Test nodes are scored when the validation score improved, because
//! nothing else needs their score. If the test nodes cost little beside the validation nodes, one inference scores both.

use std::{ops::Range, time::Instant};

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, NodeSet, StoreFeatures};
use grappa_formats::NodeId;
use grappa_io::progress::Progress;
use grappa_run::scores::ScoreReport;
use grappa_storage::aggregates::Aggregates;
use roaring::RoaringTreemap;

use super::{
    Trainer,
    historical::{HistoricalFiles, Keep},
    inference::{Inference, Needed, OnRows},
    split::SplitScores,
};
use crate::Result;

/// Test nodes are scored with the validation nodes if that costs at most this much as the validation nodes alone.
const TOGETHER: f64 = 1.3;

/// Scores of an evaluation.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Scores on the validation nodes.
    pub val: ScoreReport,
    /// Scores on the test nodes; none if the validation score did not improve and they were not computed.
    pub test: Option<ScoreReport>,
    /// Wall time.
    pub seconds: f64,
}

/// The nodes to compute for the scores of the validation and of the test nodes.
#[derive(Debug)]
pub(super) enum ScoredNodes {
    /// One inference for both.
    Together(Needed),
    /// The validation nodes, and the test nodes.
    Apart(Needed, Needed),
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
            let memory = self.make_room();
            // Frees the old files before it writes the new ones.
            (self.historical, self.historical_origin) = (None, None);
            let all = Needed::all(&self.store, self.config.layers);
            self.historical = self.infer(memory, &all, self.keep(), progress, &mut |_, _| Ok(()))?;
            self.historical_is_of_now();
        }
        Ok(())
    }

    /// Evaluates the model by exact inference. `improves` says whether a validation score is better than all before; the test nodes
    /// are scored if it is, or if there is no validation score. `ranked` adds the area under the ROC curve.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        ranked: bool,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Evaluation> {
        let begin = Instant::now();
        let memory = self.make_room();
        // Frees the old files before it writes the new ones. If the disk is full, the next steps have none.
        (self.historical, self.historical_origin) = (None, None);
        let (val, test) = (self.splits.val().clone(), self.splits.test().clone());
        if self.uses_historical() {
            let all = Needed::all(&self.store, self.config.layers);
            let (historical, mut reports) = self.scores(memory, &all, self.keep(), &[&val, &test], ranked, progress)?;
            self.historical = historical;
            self.historical_is_of_now();
            let test = reports.pop();
            return Ok(Evaluation {
                val: reports.remove(0),
                test,
                seconds: begin.elapsed().as_secs_f64(),
            });
        }
        if self.scored_nodes.is_none() {
            self.scored_nodes = Some(self.scored_nodes(progress)?);
        }
        let scored = self.scored_nodes.as_ref().expect("just made");
        let scores = |needed, splits: &[&RoaringTreemap]| {
            let (_, reports) = self.scores(memory, needed, Keep::Nothing, splits, ranked, progress)?;
            Ok::<_, crate::Error>(reports)
        };
        let (val, test) = match scored {
            ScoredNodes::Together(needed) => {
                let mut reports = scores(needed, &[&val, &test])?;
                let test = reports.pop();
                (reports.remove(0), test)
            }
            ScoredNodes::Apart(of_val, of_test) => {
                let val = scores(of_val, &[&val])?.remove(0);
                let test = match score(&val).is_none_or(improves) {
                    true => scores(of_test, &[&test])?.pop(),
                    false => None,
                };
                (val, test)
            }
        };
        Ok(Evaluation {
            val,
            test,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }

    /// Finds the nodes to compute for the scores.
    fn scored_nodes(&self, progress: &dyn Progress) -> Result<ScoredNodes> {
        let nodes = self.store.manifest().nodes;
        let needed = |splits: &[&RoaringTreemap]| {
            let members = splits.iter().flat_map(|split| split.iter()).map(NodeId);
            Needed::of(
                &self.store,
                NodeSet::of(nodes, members),
                self.config.layers,
                self.aggregates.is_some(),
                self.config.threads(),
                progress,
            )
        };
        let (val, test) = (self.splits.val(), self.splits.test());
        let both = needed(&[val, test])?;
        if val.is_empty() || test.is_empty() {
            return Ok(ScoredNodes::Together(both));
        }
        let of_val = needed(&[val])?;
        if both.work() <= TOGETHER * of_val.work() {
            return Ok(ScoredNodes::Together(both));
        }
        Ok(ScoredNodes::Apart(of_val, needed(&[test])?))
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

    /// Scores the nodes of `splits`, which are among those that are wanted. Also returns the historical embeddings that `keep` asks for.
    fn scores(
        &self,
        memory: u64,
        needed: &Needed,
        keep: Keep,
        splits: &[&RoaringTreemap],
        ranked: bool,
        progress: &dyn Progress,
    ) -> Result<(Option<HistoricalFiles>, Vec<ScoreReport>)> {
        let mut scores = SplitScores::new(splits.iter().copied(), self.labels.spec(), ranked);
        let mut nodes = Vec::new();
        let historical = self.infer(memory, needed, keep, progress, &mut |positions: Range<u64>, logits| {
            nodes.clear();
            needed.wanted().nodes_at(positions, &mut nodes);
            scores.add(&nodes, logits, &self.labels)
        })?;
        Ok((historical, scores.reports()))
    }

    /// Computes the logits of the wanted nodes, and the historical embeddings that `keep` asks for.
    fn infer(
        &self,
        memory: u64,
        needed: &Needed,
        keep: Keep,
        progress: &dyn Progress,
        on_logits: &mut OnRows<'_>,
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
        inference.run_needed(&self.model, needed, keep, progress, on_logits)
    }
}
