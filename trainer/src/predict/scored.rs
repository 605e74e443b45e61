//! Scores of predictions.

use grappa_formats::NodeId;
use grappa_run::scores::ScoreReport;
use grappa_storage::Store;
use roaring::RoaringTreemap;
use tch::Tensor;

use crate::{
    Result,
    train::{labels::NodeLabels, splits::SplitScores, trained_model::Trained},
};

/// Scores of the labelled nodes of a set, whose logits come in the order of nodes.
pub(super) struct Scored<'a> {
    labels: NodeLabels,
    scores: SplitScores<'a>,
    left: roaring::treemap::Iter<'a>,
}

impl<'a> Scored<'a> {
    /// None if the store has no labels, or other classes than the model.
    pub fn new(trained: &Trained, store: &Store, nodes: &'a RoaringTreemap) -> Result<Option<Self>> {
        if !trained.has_classes_of(store)? {
            return Ok(None);
        }
        let labels = NodeLabels::new(store)?;
        Ok(Some(Self {
            scores: SplitScores::new([nodes], labels.spec(), false, trained.target_scale().as_ref()),
            left: nodes.iter(),
            labels,
        }))
    }

    /// Adds the logits of the next nodes.
    pub fn add(&mut self, logits: &Tensor) -> Result<()> {
        let rows = logits.size()[0] as usize;
        let nodes: Vec<NodeId> = self.left.by_ref().take(rows).map(NodeId).collect();
        self.scores.add(&nodes, logits, &self.labels)
    }

    pub fn report(self) -> ScoreReport {
        let reports = self.scores.reports();
        reports.into_iter().next().expect("there is one set")
    }
}
