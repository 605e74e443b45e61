//! The weights of classes in the training loss.

use std::path::Path;

use grappa_formats::{NodeId, random};
use grappa_io::{Error as EngineError, Position, progress::Silent, regular};
use grappa_run::{class_names, config::ClassWeights, model::Task};

use roaring::RoaringTreemap;

use super::training_data::TrainingData;
use crate::train::ranks::Processes;
use crate::{Error, Result};

/// A larger file is certainly no list of weights.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The weight of each class; none if all are 1. All ranks must call it.
///
/// # Errors
/// If a class has no training nodes and weights are balanced, or the file has no weight for each class.
pub(crate) fn class_weights(
    choice: &ClassWeights,
    data: &TrainingData,
    processes: &Processes,
) -> Result<Option<Vec<f32>>> {
    let listed = match choice {
        ClassWeights::None => return Ok(None),
        ClassWeights::Balanced => None,
        ClassWeights::File(path) => {
            Some(processes.broadcast("class weights", || read(path, data.labels().spec().classes as usize))?)
        }
    };
    let [inside, outside] = count(data.splits.train(), data, processes)?;
    let task = data.task();
    if let (None, Some(class)) = (&listed, inside.iter().position(|&nodes| nodes == 0)) {
        return Err(Error::Options(format!(
            "class-weights is balanced, and class {} has no training nodes, so it has no weight: add some of its nodes to --train of \
             grappa-ingest, or give --class-weights a file with one number per line",
            class_names::name(&data.store.schema()?.classes, class as u64)
        )));
    }
    Ok(Some(match (task, listed) {
        (Task::MultiClass, listed) => {
            let weights = listed.unwrap_or_else(|| inside.iter().map(|&nodes| 1.0 / nodes as f64).collect());
            let sum: f64 = weights.iter().zip(&inside).map(|(weight, &nodes)| weight * nodes as f64).sum();
            let nodes: u64 = inside.iter().sum();
            let mean = sum / nodes as f64;
            if mean <= 0.0 {
                return Err(Error::Options(format!(
                    "class-weights {choice} has weight 0 for the classes of all training nodes, so there is nothing to learn: give \
                     them weights above 0"
                )));
            }
            weights.iter().map(|weight| (weight / mean) as f32).collect()
        }
        (_, Some(listed)) => listed.iter().map(|&weight| weight as f32).collect(),
        (_, None) => {
            let sides = inside.iter().zip(&outside);
            sides.map(|(&inside, &outside)| (outside as f64 / inside as f64) as f32).collect()
        }
    }))
}

/// A number that differs if weights do.
pub(crate) fn digest(weights: &[f32]) -> u64 {
    let bits = weights.iter().map(|weight| u64::from(weight.to_bits()));
    bits.fold(weights.len() as u64, random::combine)
}

/// The numbers of nodes that are in each class, and of those that are known to be outside of it, on all hosts. All ranks must call it.
pub(crate) fn count(nodes: &RoaringTreemap, data: &TrainingData, processes: &Processes) -> Result<[Vec<u64>; 2]> {
    let classes = data.labels().spec().classes as usize;
    let mut counts = vec![0; 2 * classes];
    // The first rank of each host speaks for it.
    if processes.hosts.count() == 1 || processes.share_within().worker() == 0 {
        for node in nodes.iter().map(NodeId) {
            data.labels().for_each_class(node, |class, is_in| counts[class + classes * usize::from(!is_in)] += 1)?;
        }
    }
    if let Some(group) = processes.with_slices() {
        group.sum(&mut counts, &Silent)?;
    }
    let outside = counts.split_off(classes);
    Ok([counts, outside])
}

/// Reads a file with a weight for each of `classes` classes.
fn read(path: &Path, classes: usize) -> Result<Vec<f64>> {
    let text = regular::read_text(path, FILE_BYTES_MAX)?;
    let mut weights = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let weight = text.trim().parse::<f64>().ok();
        let Some(weight) = weight.filter(|weight| weight.is_finite() && *weight >= 0.0) else {
            let problem =
                format!("expected the weight of class {}, a number of at least 0, found `{}`", line - 1, text.trim());
            return Err(EngineError::input(path, Position::Line(line), problem).into());
        };
        weights.push(weight);
    }
    if weights.len() != classes {
        let problem = format!(
            "expected {classes} weights, one line per class, found {}: write one number per line, in the order of the classes",
            weights.len()
        );
        return Err(EngineError::input(path, Position::Whole, problem).into());
    }
    Ok(weights)
}
