//! Predictions for a few nodes.

use std::path::Path;

use grappa_engine::aggregate::Budget;
use grappa_formats::NodeId;
use grappa_io::{ledger::Ledger, progress::Progress};
use grappa_run::{model::Task, scores::ScoreReport};
use grappa_sampling::NodeSet;
use roaring::RoaringTreemap;

use super::{
    memory::PredictionMemory,
    nan::{NanOutputs, NanRows},
    probability::predicted,
    scored::Scored,
};
use crate::{
    Error, Result,
    links::distinct,
    train::{
        host_values,
        labels::NodeLabels,
        trained_model::{InferenceRequest, Output, PredictedGraph, RequestedNodes, Trained},
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
    /// Who may take how much of the memory, by stage.
    pub memory: Ledger,
}

/// The prediction for a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The node.
    pub node: NodeId,
    /// The predicted classes with their probabilities: one class, or for multi-label tasks all labels with a probability above 0.5. In
    /// regression, the targets with their values. None if an output is NaN.
    pub classes: Vec<(u64, f32)>,
    /// Its classes in the store. None if it has no label there, and in regression.
    pub labels: Option<Vec<u64>>,
    /// In regression, its targets in the store, NaN for those that it lacks. None if it has none.
    pub targets: Option<Vec<f32>>,
}

/// Predicts the given nodes of a store, in their order, and computes only what they depend on. Scratch files are in `scratch`.
///
/// # Errors
/// If the model does not fit the store, files cannot be read, scratch files cannot be written, or memory is too small.
///
/// # Panics
/// If a node does not exist.
pub fn predict_nodes<'a>(
    trained: &Trained,
    on: impl Into<PredictedGraph<'a>>,
    nodes: &[NodeId],
    budget: Budget,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Predictions> {
    if trained.task() == Task::Links {
        return Err(Error::Options(
            "the model predicts links, and nothing for single nodes: use --links or --top-k, or --embeddings with --out".into(),
        ));
    }
    let on = on.into();
    let store = on.nodes;
    trained.check_graph(on)?;
    trained.check_memory(store, budget)?;
    let count = store.manifest().nodes;
    assert!(nodes.iter().all(|node| node.0 < count), "nodes of {count}");
    let labels = store.manifest().labels.map(|_| NodeLabels::new(store)).transpose()?;
    let columns = trained.model().options().outputs;
    let wanted = NodeSet::from_members(count, nodes.iter().copied());
    let request = InferenceRequest { nodes: RequestedNodes::Nodes(wanted), output: Output::Logits };
    let sorted = distinct(nodes.iter().copied());
    let set: RoaringTreemap = sorted.iter().map(|node| node.0).collect();
    let mut scored = Scored::new(trained, store, &set)?;
    let mut predictions = Vec::with_capacity(sorted.len());
    let mut nan = NanRows::default();
    let mut memory = PredictionMemory::new(budget);
    trained.infer(on, request, memory.inference_of_few()?, scratch, progress, &mut |positions, rows| {
        if let Some(scored) = &mut scored {
            scored.add(rows)?;
        }
        let rows = host_values(rows);
        nan.add(positions.start, &rows, columns);
        for logits in rows.chunks_exact(columns) {
            let node = sorted[predictions.len()];
            predictions.push(Prediction {
                node,
                classes: predicted(trained.task(), logits),
                labels: labels.as_ref().map_or(Ok(None), |labels| labels_of(labels, node))?,
                targets: labels.as_ref().map_or(Ok(None), |labels| targets_of(labels, node))?,
            });
        }
        Ok(())
    })?;
    let places = nodes.iter().map(|node| sorted.binary_search(node));
    Ok(Predictions {
        nodes: places.map(|place| predictions[place.expect("all nodes were computed")].clone()).collect(),
        scores: scored.map(Scored::report),
        nan: nan.found(Some(&set)),
        memory: memory.ledger,
    })
}

fn labels_of(labels: &NodeLabels, node: NodeId) -> Result<Option<Vec<u64>>> {
    if labels.task() == Task::Regression {
        return Ok(None);
    }
    let (mut members, mut has_label) = (Vec::new(), false);
    labels.for_each_class(node, |class, is_in| {
        has_label = true;
        members.extend(is_in.then_some(class as u64));
    })?;
    Ok(has_label.then_some(members))
}

fn targets_of(labels: &NodeLabels, node: NodeId) -> Result<Option<Vec<f32>>> {
    if labels.task() != Task::Regression {
        return Ok(None);
    }
    let values = labels.values(node)?;
    Ok(values.iter().any(|value| !value.is_nan()).then_some(values))
}
