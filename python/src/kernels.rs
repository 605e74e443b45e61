//! Kernels of `grappa-kernels` on the memory of arrays. `grappa.ops` calls them with tensors of PyTorch.
//!
//! Arrays of 32-bit integers are offsets, indices and places of edges, none of them negative. `transposed` is one array with the three lists
//! of [`Transposed`]. Rows of edges after the last offset are unused, and results have zeros there.

use grappa_kernels::{
    attention::{self, Edges, Pairs},
    csr::{EdgeError, SortedEdges, Transposed, sort_by_destination, transpose},
    pairs::{self, Weights},
    transformed::{self, Linear},
};
use pyo3::{
    buffer::PyBuffer,
    exceptions::{PyIndexError, PyValueError},
    prelude::*,
};

use crate::{
    array::{values, values_mut},
    threads,
};

type Floats = PyBuffer<f32>;
type Integers = PyBuffer<i32>;

/// The width of a row and the number of heads.
type Shape = (usize, usize);

/// Sorts edges by destination, and returns their number. With `loops`, edges from a node to itself are left out, and the first destinations
/// get one each.
#[pyfunction]
pub fn sort_edges(
    py: Python<'_>,
    ends: [PyBuffer<i64>; 2],
    num_sources: usize,
    loops: Option<usize>,
    into: [Integers; 3],
) -> PyResult<usize> {
    let [sources, destinations] = &ends;
    let [offsets, indices, places] = &into;
    let ends = [values(sources)?, values(destinations)?];
    let [offsets, indices, places] = [unsigned_mut(offsets)?, unsigned_mut(indices)?, unsigned_mut(places)?];
    let count = offsets.len() - 1;
    let sorted = SortedEdges { offsets, indices, places };
    py.detach(|| sort_by_destination(ends, num_sources, loops, sorted)).map_err(|error| match error {
        EdgeError::TooMany => {
            PyValueError::new_err("edges need numbers of more than 32 bits; give fewer edges or nodes")
        }
        EdgeError::End { edge, end, is_source } => {
            let (name, count) = if is_source { ("source", num_sources) } else { ("destination", count) };
            PyIndexError::new_err(format!("edge {edge} has the {name} {end}, and there are {count} {name}s"))
        }
    })
}

/// Sorts the edges of a CSR by source.
#[pyfunction]
pub fn transpose_edges(py: Python<'_>, offsets: Integers, indices: Integers, transposed: Integers) -> PyResult<()> {
    let (offsets, indices) = (unsigned(&offsets)?, unsigned(&indices)?);
    let transposed = unsigned_mut(&transposed)?;
    let sources = sources_of(transposed.len(), indices.len())?;
    let used = used_indices(offsets, indices, sources)?;
    let (starts, rest) = transposed.split_at_mut(sources + 1);
    let (destinations, edges) = rest.split_at_mut(indices.len());
    destinations[used.len()..].fill(0);
    edges[used.len()..].fill(0);
    let lists = [starts, &mut destinations[..used.len()], &mut edges[..used.len()]];
    py.detach(|| transpose(offsets, used, lists));
    Ok(())
}

/// The softmax of logits over the edges of each destination.
#[pyfunction]
pub fn edge_softmax(
    py: Python<'_>,
    threads: usize,
    offsets: Integers,
    heads: usize,
    logits: Floats,
    weights: Floats,
) -> PyResult<()> {
    let (logits, weights) = (values(&logits)?, values_mut(&weights)?);
    let (edges, weights) = of_offsets(unsigned(&offsets)?, heads, weights)?;
    on_threads(py, threads, || attention::softmax(edges, logits, weights));
    Ok(())
}

/// The gradient of the logits of `edge_softmax`.
#[pyfunction]
pub fn edge_softmax_backward(
    py: Python<'_>,
    threads: usize,
    offsets: Integers,
    heads: usize,
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [weights, gradient] = &inputs;
    let (weights, gradient, results) = (values(weights)?, values(gradient)?, values_mut(&results)?);
    let (edges, results) = of_offsets(unsigned(&offsets)?, heads, results)?;
    on_threads(py, threads, || attention::softmax_backward(edges, weights, gradient, results));
    Ok(())
}

/// The sums of rows of sources, weighted by edge and head.
#[pyfunction]
pub fn weighted_sum(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    shape: Shape,
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [rows, weights] = &inputs;
    let (rows, weights, results) = (values(rows)?, values(weights)?, values_mut(&results)?);
    let edges = edges(&csr, shape, rows)?;
    on_threads(py, threads, || attention::weighted_sum(edges, rows, weights, results));
    Ok(())
}

/// The gradient of the rows of `weighted_sum`.
#[pyfunction]
pub fn weighted_sum_backward(
    py: Python<'_>,
    threads: usize,
    transposed: (Integers, usize),
    shape: Shape,
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [gradient, weights] = &inputs;
    let (gradient, weights, results) = (values(gradient)?, values(weights)?, values_mut(&results)?);
    let transposed = lists(&transposed)?;
    let (width, heads) = shape;
    on_threads(py, threads, || attention::weighted_sum_backward(transposed, width, heads, gradient, weights, results));
    Ok(())
}

/// The products of the rows of both ends of each edge, by head.
#[pyfunction]
pub fn edge_products(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    shape: Shape,
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [rows, destinations] = &inputs;
    let (rows, destinations) = (values(rows)?, values(destinations)?);
    let edges = edges(&csr, shape, rows)?;
    let results = used_rows(edges, values_mut(&results)?);
    on_threads(py, threads, || attention::products(edges, destinations, rows, results));
    Ok(())
}

/// The logits of GAT.
#[pyfunction]
pub fn sum_logits(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    heads: usize,
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [sources, destinations] = &inputs;
    let (sources, destinations) = (values(sources)?, values(destinations)?);
    let edges = edges(&csr, (heads, heads), sources)?;
    let results = used_rows(edges, values_mut(&results)?);
    on_threads(py, threads, || attention::sum_logits(edges, sources, destinations, results));
    Ok(())
}

/// The gradients of the scores of `sum_logits`.
#[pyfunction]
pub fn sum_logits_backward(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    transposed: (Integers, usize),
    heads: usize,
    inputs: [Floats; 2],
    into: [Floats; 2],
) -> PyResult<()> {
    let [logits, gradient] = &inputs;
    let [of_sources, of_destinations] = &into;
    let (logits, gradient) = (values(logits)?, values(gradient)?);
    let of_scores = [values_mut(of_sources)?, values_mut(of_destinations)?];
    let edges = edges(&csr, (heads, heads), of_scores[0])?;
    let transposed = lists(&transposed)?;
    on_threads(py, threads, || attention::sum_logits_backward(edges, transposed, logits, gradient, of_scores));
    Ok(())
}

/// The attention of GATv2, from rows of sources and destinations and the attention vector. Fills the weights of edges, and the sums.
#[pyfunction]
pub fn pair_attention(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    heads: usize,
    inputs: [Floats; 3],
    factors: Option<Floats>,
    into: [Floats; 2],
) -> PyResult<()> {
    let (pairs, factors) = (pairs(&inputs)?, factors.as_ref().map(values).transpose()?);
    let [weights, sums] = &into;
    let (weights, sums) = (values_mut(weights)?, values_mut(sums)?);
    let edges = edges(&csr, (pairs.attention.len(), heads), pairs.sources)?;
    let weights = used_rows(edges, weights);
    on_threads(py, threads, || pairs::attend(edges, pairs, factors, [weights, sums]));
    Ok(())
}

/// The gradients of the inputs of `pair_attention`, from these and the gradient of its sums.
#[pyfunction]
pub fn pair_attention_backward(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    transposed: (Integers, usize),
    inputs: ([Floats; 3], Floats),
    weights: (usize, Floats, Option<Floats>),
    into: [Floats; 3],
) -> PyResult<()> {
    let (heads, weights, factors) = weights;
    let (pairs, gradient) = (pairs(&inputs.0)?, values(&inputs.1)?);
    let factors = factors.as_ref().map(values).transpose()?;
    let weights = Weights { softmax: values(&weights)?, factors };
    let [of_sources, of_destinations, of_attention] = &into;
    let results = [values_mut(of_sources)?, values_mut(of_destinations)?];
    let of_attention = values_mut(of_attention)?;
    let edges = edges(&csr, (pairs.attention.len(), heads), pairs.sources)?;
    let transposed = lists(&transposed)?;
    on_threads(py, threads, || {
        of_attention.copy_from_slice(&pairs::attend_backward(edges, transposed, pairs, weights, gradient, results));
    });
    Ok(())
}

/// The weighted sums of rows that a linear layer transforms.
#[pyfunction]
pub fn linear_sum(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    layer: (Floats, usize, usize),
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [rows, weights] = &inputs;
    let (rows, weights, results) = (values(rows)?, values(weights)?, values_mut(&results)?);
    let layer = linear(&layer)?;
    let edges = edges(&csr, (layer.inputs, layer.heads), rows)?;
    on_threads(py, threads, || transformed::weighted_sum(edges, layer, rows, weights, results));
    Ok(())
}

/// The gradients of the weights of edges and of the layer of `linear_sum`.
#[pyfunction]
pub fn linear_sum_backward(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    layer: (Floats, usize, usize),
    inputs: [Floats; 3],
    into: [Floats; 2],
) -> PyResult<()> {
    let [rows, weights, gradient] = &inputs;
    let (rows, weights, gradient) = (values(rows)?, values(weights)?, values(gradient)?);
    let [of_weights, of_layer] = &into;
    let (of_weights, of_layer) = (values_mut(of_weights)?, values_mut(of_layer)?);
    let layer = linear(&layer)?;
    let edges = edges(&csr, (layer.inputs, layer.heads), rows)?;
    let results = [used_rows(edges, of_weights), of_layer];
    on_threads(py, threads, || {
        transformed::weighted_sum_backward(edges, layer, rows, weights, gradient, results);
    });
    Ok(())
}

/// The products of queries of destinations and rows that a linear layer transforms.
#[pyfunction]
pub fn linear_products(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    layer: (Floats, usize, usize),
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [rows, queries] = &inputs;
    let (rows, queries) = (values(rows)?, values(queries)?);
    let layer = linear(&layer)?;
    let edges = edges(&csr, (layer.inputs, layer.heads), rows)?;
    let results = used_rows(edges, values_mut(&results)?);
    on_threads(py, threads, || transformed::products(edges, layer, rows, queries, results));
    Ok(())
}

/// The gradients of the queries and of the layer of `linear_products`.
#[pyfunction]
pub fn linear_products_backward(
    py: Python<'_>,
    threads: usize,
    csr: (Integers, Integers),
    layer: (Floats, usize, usize),
    inputs: [Floats; 3],
    into: [Floats; 2],
) -> PyResult<()> {
    let [rows, queries, gradient] = &inputs;
    let (rows, queries, gradient) = (values(rows)?, values(queries)?, values(gradient)?);
    let [of_queries, of_layer] = &into;
    let results = [values_mut(of_queries)?, values_mut(of_layer)?];
    let layer = linear(&layer)?;
    let edges = edges(&csr, (layer.inputs, layer.heads), rows)?;
    on_threads(py, threads, || {
        transformed::products_backward(edges, layer, rows, queries, gradient, results);
    });
    Ok(())
}

/// The gradient of the rows of `linear_sum`, or of `linear_products`, with queries in the place of the gradient and that in the place of
/// the weights.
#[pyfunction]
pub fn linear_rows_backward(
    py: Python<'_>,
    threads: usize,
    transposed: (Integers, usize),
    layer: (Floats, usize, usize),
    inputs: [Floats; 2],
    results: Floats,
) -> PyResult<()> {
    let [weights, gradient] = &inputs;
    let (weights, gradient, results) = (values(weights)?, values(gradient)?, values_mut(&results)?);
    let (transposed, layer) = (lists(&transposed)?, linear(&layer)?);
    on_threads(py, threads, || transformed::rows_backward(transposed, layer, weights, gradient, results));
    Ok(())
}

fn on_threads(py: Python<'_>, threads: usize, run: impl FnOnce() + Send) {
    py.detach(|| {
        threads::set(threads);
        run();
    });
}

fn unsigned(integers: &Integers) -> PyResult<&[u32]> {
    Ok(bytemuck::cast_slice(values(integers)?))
}

fn unsigned_mut(integers: &Integers) -> PyResult<&mut [u32]> {
    Ok(bytemuck::cast_slice_mut(values_mut(integers)?))
}

fn pairs([sources, destinations, attention]: &[Floats; 3]) -> PyResult<Pairs<'_>> {
    let [sources, destinations, attention] = [values(sources)?, values(destinations)?, values(attention)?];
    Ok(Pairs { sources, destinations, edges: None, attention })
}

/// A matrix, the number of its columns, and the number of heads among which its rows are divided.
fn linear((weight, inputs, heads): &(Floats, usize, usize)) -> PyResult<Linear<'_>> {
    let weight = values(weight)?;
    let outputs = weight.len() / (inputs * heads).max(1);
    Ok(Linear { weight, inputs: *inputs, outputs, heads: *heads })
}

/// The edges of a CSR with rows of sources.
fn edges<'a>((offsets, indices): &'a (Integers, Integers), (width, heads): Shape, rows: &[f32]) -> PyResult<Edges<'a>> {
    let offsets = unsigned(offsets)?;
    let indices = used_indices(offsets, unsigned(indices)?, rows.len() / width.max(1))?;
    Ok(Edges { offsets, indices, width, heads })
}

/// Edges without sources, and the part of `results` that belongs to them. Fills the rest with zeros.
fn of_offsets<'a, 'b>(
    offsets: &'a [u32],
    heads: usize,
    results: &'b mut [f32],
) -> PyResult<(Edges<'a>, &'b mut [f32])> {
    let rows = results.len() / heads.max(1);
    check_offsets(offsets, rows)?;
    let edges = Edges { offsets, indices: &[], width: heads, heads };
    Ok((edges, used_rows(edges, results)))
}

/// The part of `results` that belongs to edges. Fills the rest with zeros.
fn used_rows<'a>(edges: Edges<'_>, results: &'a mut [f32]) -> &'a mut [f32] {
    let count = edges.offsets[edges.offsets.len() - 1] as usize;
    let (used, unused) = results.split_at_mut(count * edges.heads);
    unused.fill(0.0);
    used
}

fn check_offsets(offsets: &[u32], edges: usize) -> PyResult<()> {
    let ascend = offsets.first() == Some(&0) && offsets.is_sorted();
    match ascend && offsets.last().is_some_and(|&last| last as usize <= edges) {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!("the offsets of edges do not ascend from 0 to at most {edges}"))),
    }
}

/// The indices of the edges that offsets count.
fn used_indices<'a>(offsets: &[u32], indices: &'a [u32], sources: usize) -> PyResult<&'a [u32]> {
    check_offsets(offsets, indices.len())?;
    let used = &indices[..offsets[offsets.len() - 1] as usize];
    match used.iter().fold(true, |all, &index| all & ((index as usize) < sources)) {
        true => Ok(used),
        false => Err(PyValueError::new_err(format!("an edge has a source that is not among the {sources} rows"))),
    }
}

/// The number of sources of transposed edges in an array of so many values.
fn sources_of(length: usize, edges: usize) -> PyResult<usize> {
    let sources = length.checked_sub(2 * edges + 1);
    sources.ok_or_else(|| PyValueError::new_err(format!("{length} values are too few for {edges} transposed edges")))
}

/// The lists in an array for a number of sources.
fn lists((transposed, sources): &(Integers, usize)) -> PyResult<Transposed<'_>> {
    let transposed = unsigned(transposed)?;
    let (offsets, rest) = transposed
        .split_at_checked(sources + 1)
        .ok_or_else(|| PyValueError::new_err(format!("transposed edges of {sources} sources are too short")))?;
    check_offsets(offsets, rest.len() / 2)?;
    let (indices, edges) = rest.split_at(rest.len() / 2);
    Ok(Transposed { offsets, indices, edges })
}
