//! Predictions for a few nodes.

use std::path::Path;

use grappa_engine::aggregate::Budget;
use grappa_formats::NodeId;
use grappa_io::progress::Progress;
use grappa_run::{model::Task, scores::ScoreReport};
use grappa_sampling::NodeSet;
use grappa_storage::Store;
use roaring::RoaringTreemap;

use super::{
    nan::{NanOutputs, NanRows},
    options::PredictBudget,
    probability::predicted,
    scored::Scored,
};
use crate::{
    Result,
    train::{
        host_values::values,
        inference::check_sets,
        labels::NodeLabels,
        trained::{Output, Trained, Wanted},
    },
};

/// Predictions for some nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Predictions {
    /// In the order of the nodes.
    pub nodes: Vec<Prediction>,
    /// Scores of the labelled ones, each counted once. None if the store has no labels or another number of classes than the model.
    pub scores: Option<ScoreReport>,
    /// As [`Predicted::nan`](super::Predicted::nan).
    pub nan: Option<NanOutputs>,
}

/// The prediction for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The node.
    pub node: NodeId,
    /// The predicted classes with their probabilities: one class, or for multi-label tasks all labels with a probability above 0.5.
    /// None if a logit is NaN.
    pub classes: Vec<(u64, f32)>,
    /// Its classes in the store. None if it has no label there.
    pub labels: Option<Vec<u64>>,
}

/// Predicts the given nodes of a store, in their order, and computes only what they depend on. Scratch files are in `scratch`.
///
/// # Errors
/// If the model does not fit the store, files cannot be read, scratch files cannot be written, or memory is too small.
///
/// # Panics
/// If a node does not exist.
pub fn predict_nodes(
    trained: &Trained,
    store: &Store,
    nodes: &[NodeId],
    budget: PredictBudget,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Predictions> {
    trained.check_store(store)?;
    check_sets(
        store.manifest().nodes,
        trained.model().options().layers,
        budget.memory,
        "raise --memory",
    )?;
    let count = store.manifest().nodes;
    assert!(nodes.iter().all(|node| node.0 < count), "nodes of {count}");
    let labels = store.manifest().labels.map(|_| NodeLabels::new(store)).transpose()?;
    let columns = trained.model().options().outputs;
    let wanted = Wanted {
        nodes: NodeSet::of(count, nodes.iter().copied()),
        output: Output::Logits,
    };
    let mut sorted: Vec<NodeId> = nodes.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let set: RoaringTreemap = sorted.iter().map(|node| node.0).collect();
    let mut scored = Scored::of(trained, store, &set)?;
    let mut predictions = Vec::with_capacity(sorted.len());
    let inference = Budget {
        memory: budget.memory,
        threads: budget.threads,
    };
    let mut nan = NanRows::default();
    trained.infer(store, wanted, inference, scratch, progress, &mut |positions, rows| {
        if let Some(scored) = &mut scored {
            scored.add(rows)?;
        }
        let rows = values(rows);
        nan.add(positions.start, &rows, columns);
        for logits in rows.chunks_exact(columns) {
            let node = sorted[predictions.len()];
            predictions.push(Prediction {
                node,
                classes: predicted(trained.task(), logits),
                labels: labels.as_ref().map_or(Ok(None), |labels| labels_of(labels, node))?,
            });
        }
        Ok(())
    })?;
    let places = nodes.iter().map(|node| sorted.binary_search(node));
    Ok(Predictions {
        nodes: places
            .map(|place| predictions[place.expect("all nodes were computed")].clone())
            .collect(),
        scores: scored.map(Scored::report),
        nan: nan.found(Some(&set)),
    })
}

fn labels_of(labels: &NodeLabels, node: NodeId) -> Result<Option<Vec<u64>>> {
    Ok(match labels.task() {
        Task::MultiClass => u64::try_from(labels.class(node)?).ok().map(|class| vec![class]),
        Task::MultiLabel => labels.set(node)?.map(|set| {
            let members = (0..).zip(set).filter(|(_, bit)| *bit == 1);
            members.map(|(class, _)| class).collect()
        }),
    })
}
