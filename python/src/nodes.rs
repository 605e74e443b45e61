//! The numbers that Python code calls nodes by.
//!
//! A store orders its nodes by chunks. Python sees the order of the user instead: node k is the one with the k-th smallest id of the
//! input, which is k itself for dense ids.

use grappa_engine::{NodeId, Store, formats::DenseId};
use pyo3::{exceptions::PyIndexError, prelude::*};

use crate::error::exception;

/// The nodes with these numbers.
pub fn nodes_of(store: &Store, numbers: &[i64]) -> PyResult<Vec<NodeId>> {
    let nodes = store.manifest().nodes;
    let node = |&number: &i64| match u64::try_from(number) {
        Ok(number) if number < nodes => store.ids().node_of(DenseId(number)).map_err(exception),
        _ => Err(PyIndexError::new_err(format!(
            "there is no node {number}: the graph has {nodes} nodes, from 0"
        ))),
    };
    numbers.iter().map(node).collect()
}

/// The numbers of these nodes.
pub fn numbers_of(store: &Store, nodes: &[NodeId]) -> grappa_engine::Result<Vec<i64>> {
    let number = |&node| store.ids().dense_id(node).map(|id| id.0 as i64);
    nodes.iter().map(number).collect()
}
