//! Attention: the attention weight of an edge, for each head, is the softmax of its logit over the edges of its destination.
//!
//! The destination is one of its own neighbors. A self-loop of the graph is a second one; PyTorch Geometric drops self-loops first,
//! so ingest without them to get the same numbers.
//!
//! All values are f32. Sampled neighbors need no scaling, because attention weights add up to 1.

use std::sync::Arc;

use grappa_formats::random;
use grappa_kernels::{
    attention::{self as kernels, Edges, Pairs, SLOPE},
    csr::Csr,
};
use tch::{Device, Kind, Tensor};

use super::{
    backend::Backend,
    graph::Block,
    linear::{Dropout, Epilogue, RowNames, apply},
};
use crate::shim;

/// Logits of `leaky_relu(source + destination)`, as GAT has them: `[edges, heads]` from the scores of sources, `[sources, heads]`, and of
/// destinations, `[destinations, heads]`.
pub(crate) fn sum_logits(backend: Backend, block: &Block, sources: &Tensor, destinations: &Tensor) -> Tensor {
    if !backend.has_kernels_for(sources) {
        let edges = block.tensors();
        let sums = sources.index_select(0, &edges.indices) + destinations.index_select(0, &edges.destinations);
        return leaky_relu(&sums);
    }
    let heads = sources.size()[1];
    let scores = [sources.contiguous(), destinations.contiguous()];
    let detached = scores.each_ref().map(Tensor::detach);
    let shape = Shape::new(block, sources, heads);
    let mut result = Tensor::empty([block.edges() as i64, heads], (Kind::Float, Device::Cpu));
    let [source_rows, destination_rows] = detached.each_ref().map(shim::values);
    kernels::sum_logits(shape.edges(&block.csr), source_rows, destination_rows, shim::values_mut(&mut result));
    let (csr, saved) = (Arc::clone(&block.csr), result.detach());
    shim::with_gradient(result, &scores.each_ref(), move |gradient, _| {
        let mut results = detached.each_ref().map(Tensor::empty_like);
        let [logits, gradient] = [&saved, gradient].map(shim::values);
        let score_gradients = results.each_mut().map(shim::values_mut);
        kernels::sum_logits_backward(shape.edges(&csr), csr.transposed(), logits, gradient, score_gradients);
        results.into_iter().map(Some).collect()
    })
}

fn leaky_relu(values: &Tensor) -> Tensor {
    // tch's leaky_relu has a fixed slope of 0.01.
    values.where_self(&values.gt(0.0), &(values * f64::from(SLOPE)))
}

/// Logits of `attention * leaky_relu(source + destination + edge)`, summed over the values of a head, as GATv2 has them: `[edges,
/// heads]` from `[sources, width]`, `[destinations, width]`, `[edges, width]` and `[width]`. Without rows of edges, these are zeros.
pub(crate) fn pair_logits(
    backend: Backend,
    block: &Block,
    [sources, destinations]: [&Tensor; 2],
    rows_of_edges: Option<&Tensor>,
    attention: &Tensor,
    heads: i64,
) -> Tensor {
    if !backend.has_kernels_for(sources) {
        let edges = block.tensors();
        let sum = sources.index_select(0, &edges.indices) + destinations.index_select(0, &edges.destinations);
        let sum = rows_of_edges.map_or_else(|| sum.shallow_clone(), |rows| &sum + rows);
        let product = leaky_relu(&sum) * attention;
        return product.view([block.edges() as i64, heads, -1]).sum_dim_intlist([2i64].as_slice(), false, Kind::Float);
    }
    let all = [sources, destinations, attention].into_iter().chain(rows_of_edges);
    let inputs: Vec<Tensor> = all.map(Tensor::contiguous).collect();
    let saved: Vec<Tensor> = inputs.iter().map(Tensor::detach).collect();
    let shape = Shape::new(block, sources, heads);
    let mut result = Tensor::empty([block.edges() as i64, heads], (Kind::Float, Device::Cpu));
    kernels::pair_logits(shape.edges(&block.csr), pairs(&saved), shim::values_mut(&mut result));
    let csr = Arc::clone(&block.csr);
    shim::with_gradient(result, &inputs.iter().collect::<Vec<_>>(), move |gradient, needs_gradient| {
        let [mut source_rows, mut destination_rows, mut edge_rows] =
            [0, 1, 3].map(|input| (needs_gradient.get(input) == Some(&true)).then(|| saved[input].empty_like()));
        let attention_gradient = kernels::pair_logits_backward(
            shape.edges(&csr),
            csr.transposed(),
            pairs(&saved),
            shim::values(gradient),
            [&mut edge_rows, &mut source_rows, &mut destination_rows].map(|rows| rows.as_mut().map(shim::values_mut)),
        );
        let attention_gradient = needs_gradient[2].then(|| Tensor::from_slice(&attention_gradient));
        let mut gradients = vec![source_rows, destination_rows, attention_gradient, edge_rows];
        gradients.truncate(saved.len());
        gradients
    })
}

/// Sources, destinations, attention, and edges if there are rows of these.
fn pairs(inputs: &[Tensor]) -> Pairs<'_> {
    Pairs {
        sources: shim::values(&inputs[0]),
        destinations: shim::values(&inputs[1]),
        attention: shim::values(&inputs[2]),
        edges: inputs.get(3).map(shim::values),
    }
}

/// Logits of the transformer: the products of each head's values of the destination's query and of the source's key plus the row of the
/// edge: `[edges, heads]` from `[sources, width]`, `[destinations, width]` and `[edges, width]`.
pub(crate) fn dot_logits(
    backend: Backend,
    block: &Block,
    [keys, queries]: [&Tensor; 2],
    rows_of_edges: Option<&Tensor>,
    heads: i64,
) -> Tensor {
    let logits = products(backend, block, keys, queries, heads);
    match rows_of_edges {
        None => logits,
        Some(rows) => logits + products(backend, block.alone(), rows, queries, heads),
    }
}

/// For each edge and head, the product of the rows of its source, `[sources, width]`, and of its destination, `[destinations, width]`.
fn products(backend: Backend, block: &Block, sources: &Tensor, destinations: &Tensor, heads: i64) -> Tensor {
    if !backend.has_kernels_for(sources) {
        let edges = block.tensors();
        let products = sources.index_select(0, &edges.indices) * destinations.index_select(0, &edges.destinations);
        return products.view([block.edges() as i64, heads, -1]).sum_dim_intlist([2i64].as_slice(), false, Kind::Float);
    }
    let inputs = [sources.contiguous(), destinations.contiguous()];
    let saved = inputs.each_ref().map(Tensor::detach);
    let shape = Shape::new(block, sources, heads);
    let result = shape.products(&block.csr, &saved[1], &saved[0]);
    let csr = Arc::clone(&block.csr);
    shim::with_gradient(result, &inputs.each_ref(), move |gradient, needs_gradient| {
        let [sources, destinations] = &saved;
        vec![
            needs_gradient[0].then(|| shape.weighted_sum_backward(&csr, destinations, gradient, sources)),
            needs_gradient[1].then(|| shape.weighted_sum(&csr, sources, gradient)),
        ]
    })
}

/// For each destination and head, the sum of its sources' rows `[sources, width]`, and of its edges' rows `[edges, width]` if there are
/// any, weighted by the softmax of the logits `[edges, heads]`. The dropout is of the weights.
pub(crate) fn attend(
    backend: Backend,
    block: &Block,
    rows: &Tensor,
    rows_of_edges: Option<&Tensor>,
    logits: &Tensor,
    dropout: Option<Dropout>,
) -> Tensor {
    let dropout = dropout.map(|dropout| {
        let names = dropout.names.map(|names| edge_names(&block.csr.offsets, &names));
        Dropout { names, ..dropout }
    });
    let weights = apply(&softmax(backend, block, logits), Epilogue { relu: false, dropout });
    let sums = weighted_sum(backend, block, rows, &weights);
    match rows_of_edges {
        None => sums,
        Some(rows) => sums + weighted_sum(backend, block.alone(), rows, &weights),
    }
}

/// An edge is named after its destination and its place among the edges of that.
fn edge_names(offsets: &[u32], destinations: &[u64]) -> RowNames {
    let mut names = Vec::with_capacity(offsets.last().map_or(0, |&edges| edges as usize));
    for (name, bounds) in destinations.iter().zip(offsets.windows(2)) {
        let name = random::mix(*name);
        names.extend((0..u64::from(bounds[1] - bounds[0])).map(|edge| random::combine(name, edge)));
    }
    names.into()
}

fn softmax(backend: Backend, block: &Block, logits: &Tensor) -> Tensor {
    let heads = logits.size()[1];
    if !backend.has_kernels_for(logits) {
        let destinations = &block.tensors().destinations;
        let zeros = Tensor::zeros([block.destinations() as i64, heads], (Kind::Float, block.device()));
        let index = destinations.to_kind(Kind::Int64).unsqueeze(1).expand_as(logits);
        let largest = zeros.internal_scatter_reduce(0, &index, &logits.detach(), "amax", false);
        let powers = (logits - largest.index_select(0, destinations)).exp();
        let sums = zeros.index_add(0, destinations, &powers);
        return powers / sums.index_select(0, destinations);
    }
    let logits = logits.contiguous();
    let shape = Shape::new(block, &logits, heads);
    let mut result = logits.detach().empty_like();
    kernels::softmax(shape.edges(&block.csr), shim::values(&logits), shim::values_mut(&mut result));
    let (csr, saved) = (Arc::clone(&block.csr), result.detach());
    shim::with_gradient(result, &[&logits], move |gradient, _| {
        let mut result = saved.empty_like();
        let [weights, gradient] = [&saved, gradient].map(shim::values);
        kernels::softmax_backward(shape.edges(&csr), weights, gradient, shim::values_mut(&mut result));
        vec![Some(result)]
    })
}

fn weighted_sum(backend: Backend, block: &Block, rows: &Tensor, weights: &Tensor) -> Tensor {
    let heads = weights.size()[1];
    if !backend.has_kernels_for(rows) {
        let edges = block.tensors();
        let rows = rows.index_select(0, &edges.indices).view([block.edges() as i64, heads, -1]);
        let weighted = (rows * weights.unsqueeze(2)).flatten(1, 2);
        let zeros = Tensor::zeros([block.destinations() as i64, weighted.size()[1]], (Kind::Float, block.device()));
        return zeros.index_add(0, &edges.destinations, &weighted);
    }
    let inputs = [rows.contiguous(), weights.contiguous()];
    let saved = inputs.each_ref().map(Tensor::detach);
    let shape = Shape::new(block, rows, heads);
    let result = shape.weighted_sum(&block.csr, &saved[0], &saved[1]);
    let csr = Arc::clone(&block.csr);
    shim::with_gradient(result, &inputs.each_ref(), move |gradient, needs_gradient| {
        let [rows, weights] = &saved;
        vec![
            needs_gradient[0].then(|| shape.weighted_sum_backward(&csr, gradient, weights, rows)),
            needs_gradient[1].then(|| shape.products(&csr, gradient, rows)),
        ]
    })
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    width: usize,
    heads: usize,
}

impl Shape {
    fn new(block: &Block, rows: &Tensor, heads: i64) -> Self {
        let size = rows.size();
        assert!(size[0] as usize == block.sources() || size[0] as usize == block.edges(), "rows of shape {size:?}");
        Self { width: size[1] as usize, heads: heads as usize }
    }

    fn products(self, csr: &Csr, destinations: &Tensor, sources: &Tensor) -> Tensor {
        let mut result = Tensor::empty([csr.indices.len() as i64, self.heads as i64], (Kind::Float, Device::Cpu));
        let [destinations, sources] = [destinations, sources].map(shim::values);
        kernels::products(self.edges(csr), destinations, sources, shim::values_mut(&mut result));
        result
    }

    fn weighted_sum(self, csr: &Csr, rows: &Tensor, weights: &Tensor) -> Tensor {
        let mut result = Tensor::empty([csr.destinations() as i64, self.width as i64], (Kind::Float, Device::Cpu));
        let [rows, weights] = [rows, weights].map(shim::values);
        kernels::weighted_sum(self.edges(csr), rows, weights, shim::values_mut(&mut result));
        result
    }

    /// The gradient of the rows of sources.
    fn weighted_sum_backward(self, csr: &Csr, gradient: &Tensor, weights: &Tensor, rows: &Tensor) -> Tensor {
        let mut result = rows.empty_like();
        let [gradient, weights] = [gradient, weights].map(shim::values);
        kernels::weighted_sum_backward(
            csr.transposed(),
            self.width,
            self.heads,
            gradient,
            weights,
            shim::values_mut(&mut result),
        );
        result
    }

    fn edges(self, csr: &Csr) -> Edges<'_> {
        Edges { offsets: &csr.offsets, indices: &csr.indices, width: self.width, heads: self.heads }
    }
}
