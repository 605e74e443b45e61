//! Draws that are limited by the times of seeds.

use std::sync::Arc;

use grappa_engine::{
    Minibatch, Result, Store,
    sample::{Sampler, TimeOptions},
    store::NodeTimes,
};
use pyo3::{exceptions::PyValueError, prelude::*};

use crate::{error::exception, nodes::reserved};

/// The purpose of the memory, in errors.
const PARTS: &str = "the seeds of the nodes of a batch; give a smaller batch_size or num_neighbors";

/// How the time of a seed limits the edges of its neighborhood, as the package gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TimeDrawing {
    /// Whether edges at the time of the seed count.
    equal: bool,
    /// The limit of later hops: `"seed"` or `"edge"`.
    hops: String,
    /// The most that edges are earlier than the limit.
    window: Option<i64>,
    /// `"uniform"` or `"last"`.
    strategy: String,
}

impl TimeDrawing {
    /// The sampler with these limits, and with the times of drawn edges.
    ///
    /// # Errors
    /// If the sampler cannot be limited.
    pub fn apply(&self, sampler: Sampler) -> PyResult<Sampler> {
        let invalid = |error: &dyn ToString| PyValueError::new_err(error.to_string());
        let options = TimeOptions {
            equal: self.equal,
            hops: self.hops.parse().map_err(|error| invalid(&error))?,
            window: self.window,
            strategy: self.strategy.parse().map_err(|error| invalid(&error))?,
        };
        Ok(sampler.with_times(options).map_err(exception)?.with_edge_times())
    }
}

/// The times of some seeds, given by their indices in the list of all seeds.
pub fn times_at(times: &[i64], indices: &[i64]) -> Vec<i64> {
    indices.iter().map(|&index| times[index as usize]).collect()
}

/// The times of the nodes of a store, if it has some and batches are at times.
///
/// # Errors
/// If a file cannot be read.
pub fn node_times(store: &Store, at_times: bool) -> PyResult<Option<Arc<NodeTimes>>> {
    match at_times {
        true => Ok(store.node_times().map_err(exception)?.cloned()),
        false => Ok(None),
    }
}

/// The time of each node of a minibatch.
///
/// # Errors
/// If the system refuses the memory.
pub fn times_of(times: &NodeTimes, minibatch: &Minibatch) -> Result<Vec<i64>> {
    let mut of_nodes = reserved(minibatch.nodes.len(), PARTS)?;
    of_nodes.extend(minibatch.nodes.iter().map(|&node| times.time(node)));
    Ok(of_nodes)
}

/// The seed of each node of a minibatch whose seeds were sampled apart, as the number of its part.
///
/// # Errors
/// If the system refuses the memory.
pub fn part_of_each(minibatch: &Minibatch) -> Result<Vec<i64>> {
    let mut parts = reserved(minibatch.nodes.len(), PARTS)?;
    parts.extend(minibatch.parts.iter().map(|&part| i64::from(part)));
    // A minibatch of one part does not list it.
    parts.resize(minibatch.nodes.len(), 0);
    Ok(parts)
}

/// The times of the seeds of the epochs of a loader, in the order of the list of seeds.
pub type ListedTimes = Option<Arc<Vec<i64>>>;
