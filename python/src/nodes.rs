//! The numbers that Python code calls nodes by.
//!
//! A store orders its nodes by chunks. Python sees the order of the user instead: node k is the one with the k-th smallest id of the
//! input, which is k itself for dense ids. Passes over the whole graph use positions in the store, because its files have that order.

use grappa_engine::{ChunkId, NodeId, Store, formats::DenseId, io::heap};
use pyo3::{buffer::PyBuffer, exceptions::PyIndexError, prelude::*};

use crate::error::exception;

/// The purpose of the memory, in errors.
const NUMBERS: &str = "the numbers of nodes";

/// Numbers of a NumPy array of 64-bit integers.
pub struct Numbers(pub Vec<i64>);

impl<'a, 'py> FromPyObject<'a, 'py> for Numbers {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::get(&object)?;
        let mut numbers = heap::zeroed(buffer.item_count(), NUMBERS).map_err(exception)?;
        buffer.copy_to_slice(object.py(), &mut numbers)?;
        Ok(Self(numbers))
    }
}

/// An empty vector with room for `count` values. A failed allocation of another kind would end the interpreter.
///
/// # Errors
/// If the system refuses the memory.
pub fn reserved<T>(count: usize, purpose: &'static str) -> grappa_engine::Result<Vec<T>> {
    let mut values = Vec::new();
    heap::reserve(&mut values, count, purpose)?;
    Ok(values)
}

/// Collects the values of an iterator, at most `count`.
///
/// # Errors
/// If the system refuses the memory.
pub fn collected<T>(
    values: impl IntoIterator<Item = T>,
    count: usize,
    purpose: &'static str,
) -> grappa_engine::Result<Vec<T>> {
    let mut collected = reserved(count, purpose)?;
    // Exactly as many are reserved, so nothing grows.
    collected.extend(values.into_iter().take(count));
    Ok(collected)
}

/// All values of `parts`, one part after another.
///
/// # Errors
/// If the system refuses the memory.
pub fn joined<T: Copy>(parts: &[&[T]], purpose: &'static str) -> grappa_engine::Result<Vec<T>> {
    let mut joined = reserved(parts.iter().map(|part| part.len()).sum(), purpose)?;
    parts.iter().for_each(|part| joined.extend_from_slice(part));
    Ok(joined)
}

/// The indices of `nodes` by chunk, and ascending within it: files are read front to back, and each is mapped once.
///
/// # Errors
/// If the system refuses the memory.
pub fn by_chunk(store: &Store, nodes: &[NodeId]) -> grappa_engine::Result<Vec<(ChunkId, Vec<usize>)>> {
    let mut order = reserved(nodes.len(), NUMBERS)?;
    order.extend(0..nodes.len());
    order.sort_unstable_by_key(|&at| nodes[at]);
    let chunk_of = |at: usize| store.chunks().chunk_of(nodes[at]);
    let groups = order.chunk_by(|&a, &b| chunk_of(a) == chunk_of(b));
    let copied = groups.map(|group| {
        let mut copy = reserved(group.len(), NUMBERS)?;
        copy.extend_from_slice(group);
        Ok((chunk_of(group[0]), copy))
    });
    copied.collect()
}

pub fn nodes_of(store: &Store, numbers: &[i64]) -> PyResult<Vec<NodeId>> {
    let mut nodes = reserved(numbers.len(), NUMBERS).map_err(exception)?;
    for number in in_range(store, numbers, "node") {
        nodes.push(store.ids().node_of(DenseId(number?)).map_err(exception)?);
    }
    Ok(nodes)
}

pub fn nodes_at(store: &Store, positions: &[i64]) -> PyResult<Vec<NodeId>> {
    let mut nodes = reserved(positions.len(), NUMBERS).map_err(exception)?;
    for position in in_range(store, positions, "position") {
        nodes.push(NodeId(position?));
    }
    Ok(nodes)
}

/// Numbers from 0 to the last node; others are an `IndexError`.
fn in_range(store: &Store, numbers: &[i64], kind: &str) -> impl Iterator<Item = PyResult<u64>> {
    let nodes = store.manifest().nodes;
    numbers.iter().map(move |&number| match u64::try_from(number) {
        Ok(number) if number < nodes => Ok(number),
        _ => Err(PyIndexError::new_err(format!("there is no {kind} {number}: the graph has {nodes} nodes, from 0"))),
    })
}

pub fn numbers_of(store: &Store, nodes: &[NodeId]) -> grappa_engine::Result<Vec<i64>> {
    let ids = store.ids().dense_ids(nodes)?;
    Ok(ids.into_iter().map(|id| id as i64).collect())
}

pub fn positions_of(nodes: &[NodeId]) -> grappa_engine::Result<Vec<i64>> {
    collected(nodes.iter().map(|node| node.0 as i64), nodes.len(), NUMBERS)
}
