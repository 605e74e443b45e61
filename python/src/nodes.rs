//! The numbers that Python code calls nodes by.
//!
//! A store orders its nodes by chunks. Python sees the order of the user instead: node k is the one with the k-th smallest id of the
//! input, which is k itself for dense ids. Passes over the whole graph use positions in the store, because its files have that order.

use grappa_engine::{NodeId, Store, formats::DenseId};
use pyo3::{buffer::PyBuffer, exceptions::PyIndexError, prelude::*};

use crate::error::exception;

/// Numbers of a NumPy array of 64-bit integers.
pub struct Numbers(pub Vec<i64>);

impl<'a, 'py> FromPyObject<'a, 'py> for Numbers {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        PyBuffer::get(&object)?.to_vec(object.py()).map(Self)
    }
}

/// The nodes with these numbers.
pub fn nodes_of(store: &Store, numbers: &[i64]) -> PyResult<Vec<NodeId>> {
    let nodes = store.manifest().nodes;
    numbers
        .iter()
        .map(|&number| match u64::try_from(number) {
            Ok(number) if number < nodes => store.ids().node_of(DenseId(number)).map_err(exception),
            _ => Err(PyIndexError::new_err(format!("there is no node {number}: the graph has {nodes} nodes, from 0"))),
        })
        .collect()
}

/// The numbers of these nodes.
pub fn numbers_of(store: &Store, nodes: &[NodeId]) -> grappa_engine::Result<Vec<i64>> {
    let ids = store.ids().dense_ids(nodes)?;
    Ok(ids.into_iter().map(|id| id as i64).collect())
}

/// The nodes at these positions of the store.
pub fn nodes_at(store: &Store, positions: &[i64]) -> PyResult<Vec<NodeId>> {
    let nodes = store.manifest().nodes;
    positions
        .iter()
        .map(|&position| match u64::try_from(position) {
            Ok(position) if position < nodes => Ok(NodeId(position)),
            _ => Err(PyIndexError::new_err(format!(
                "there is no position {position}: the graph has {nodes} nodes, from 0"
            ))),
        })
        .collect()
}

/// The positions of these nodes in the store.
pub fn positions_of(nodes: &[NodeId]) -> Vec<i64> {
    nodes.iter().map(|node| node.0 as i64).collect()
}
