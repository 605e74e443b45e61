//! Aggregation: reduces the messages of a destination's in-neighbors to one row.
//!
//! A layer has three parts. The *message* is a function of a source's state. The *aggregation* reduces messages. The *update* is a
//! function of a destination's own state and its aggregate. This module is the aggregation over the [`Block`] of one hop:
//!
//! - [`Aggregate::Mean`], [`Aggregate::Sum`], [`Aggregate::Gcn`] and [`Aggregate::WeightedMean`] are one operator with
//!   different factors, `results[d] * sum of edges[e] * sources[s] * x[s]`, which is linear in `x`;
//! - [`Aggregate::Max`] is the maximum, value by value;
//! - attention has factors that depend on states: see [`attention`](super::attention).
//!
//! A destination without edges gets zeros, as in PyTorch Geometric.
//!
//! **Edge weights.** If a block has any, they are factors of the messages, and a mean divides by their sum.
//!
//! **Sampled sums.** GCN and GIN add up neighbors, so a sample of them gives too small a sum. With uniform draws, with or without
//! replacement, each draw has the mean of all neighbors as its expectation. So the sampled sum times (in-degree / number of draws)
//! has the full sum as its expectation (Horvitz-Thompson). [`Scaling::HorvitzThompson`] multiplies by that. A mean needs no
//! scaling, and a maximum cannot be scaled.
//!
//! **Cost.** Processors use [`grappa_kernels::gather`], other devices libtorch's `embedding_bag`. With two threads, 117 K edges,
//! 128 values per row and sources that exceed the cache, `embedding_bag` is as fast forward, and 40 times slower backward, because
//! it adds gradients into rows with one thread.

use std::sync::Arc;

use grappa_kernels::{
    csr::{Csr, Transposed},
    gather::{GatherPlan, gather},
    max,
};
use half::bf16;
use tch::{Device, Kind, Tensor};

use super::{
    aggregate_kind::{Aggregate, Scaling},
    backend::Backend,
    graph::Block,
    historical::HistoricalEmbeddings,
};
use crate::{
    runtime::{send, send_together},
    shim::{self, Element},
};

/// The factors of a linear aggregation. None means 1.
#[derive(Debug, Default)]
struct Factors {
    results: Option<Vec<f32>>,
    sources: Option<Vec<f32>>,
    /// Whether edge weights are factors, too.
    edges: bool,
}

/// Aggregates the messages of a block's sources, `[sources, width]`, to `[destinations, width]`.
///
/// # Panics
/// If `kind` is [`Aggregate::Attention`]; if shapes disagree; if the block lacks degrees of sources and the
/// kind needs them.
pub fn aggregate(
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    messages: &Tensor,
    historical: Option<&HistoricalEmbeddings>,
) -> Tensor {
    let (_, aggregated) = aggregate_with(Backend::Fastest, block, kind, scaling, messages, false);
    with_historical(aggregated, historical)
}

/// The states of the destinations, from the states of all sources, `[sources, width]`.
pub(crate) fn own_states(backend: Backend, block: &Block, rows: &Tensor) -> Tensor {
    match (&block.own, backend.has_kernels_for(rows)) {
        (None, _) => rows.narrow(0, 0, block.destinations() as i64),
        (Some(own), true) => copies_with_kernel(backend, own, rows),
        (Some(_), false) => {
            let places = block.tensors().own.as_ref().expect("tensors have what the block has");
            rows.index_select(0, places)
        }
    }
}

/// The row of each edge's source, `[edges, width]`, from the rows of sources.
pub(crate) fn rows_of_edges(backend: Backend, block: &Block, rows: &Tensor) -> Tensor {
    match backend.has_kernels_for(rows) {
        true => copies_with_kernel(backend, &block.ends()[0], rows),
        false => rows.index_select(0, &block.tensors().indices),
    }
}

fn copies_with_kernel(backend: Backend, places: &Arc<Csr>, rows: &Tensor) -> Tensor {
    match rows.kind() {
        Kind::BFloat16 => copies_of::<bf16>(backend, places, rows),
        _ => copies_of::<f32>(backend, places, rows),
    }
}

fn copies_of<T: Element>(backend: Backend, places: &Arc<Csr>, rows: &Tensor) -> Tensor {
    let rows = rows.contiguous();
    let (saved_places, sources) = (Arc::clone(places), rows.size()[0]);
    shim::with_gradient(copies::<T>(backend, places, &rows), &[&rows], move |gradient, _| {
        vec![Some(sum_copies::<T>(backend, &saved_places, gradient, sources))]
    })
}

/// The rows at places, `[places, width]`.
fn copies<T: Element>(backend: Backend, places: &Csr, rows: &Tensor) -> Tensor {
    let mut result = Tensor::empty([places.destinations() as i64, rows.size()[1]], (T::KIND, Device::Cpu));
    sum::<T>(backend, rows, GatherPlan::from_lists(&places.offsets, &places.indices), &mut result);
    result
}

/// For each of `count` sources, the sum of the rows whose place it is; zeros for sources after the last place.
fn sum_copies<T: Element>(backend: Backend, places: &Csr, rows: &Tensor, count: i64) -> Tensor {
    let result = Tensor::empty([count, rows.size()[1]], (T::KIND, Device::Cpu));
    let (Transposed { offsets, indices, .. }, last) = (places.transposed(), places.sources as i64);
    sum::<T>(backend, rows, GatherPlan::from_lists(offsets, indices), &mut result.narrow(0, 0, last));
    let _ = result.narrow(0, last, count - last).zero_();
    result
}

/// Adds up rows, `[rows, width]`, as planned.
fn sum<T: Element>(backend: Backend, rows: &Tensor, plan: GatherPlan<'_, T>, result: &mut Tensor) {
    let width = rows.size()[1] as usize;
    gather::<T>(backend.instructions(), shim::values(rows), width, plan, shim::values_mut(result));
}

/// The sum of the rows of each destination's edges, `[destinations, width]`, from `[edges, width]`.
pub(crate) fn sum_of_edges(backend: Backend, block: &Block, scaling: Scaling, rows: &Tensor) -> Tensor {
    let sums = match (backend.has_kernels_for(rows), rows.kind()) {
        (false, kind) => {
            let zeros = Tensor::zeros([block.destinations() as i64, rows.size()[1]], (kind, block.device()));
            zeros.index_add(0, &block.tensors().destinations, rows)
        }
        (true, Kind::BFloat16) => sums_with_kernel::<bf16>(backend, block, rows),
        (true, _) => sums_with_kernel::<f32>(backend, block, rows),
    };
    match factors(block, Aggregate::Sum, scaling).results {
        Some(factors) => sums * send(Tensor::from_slice(&factors), block.device()).unsqueeze(1).to_kind(rows.kind()),
        None => sums,
    }
}

fn sums_with_kernel<T: Element>(backend: Backend, block: &Block, rows: &Tensor) -> Tensor {
    let rows = rows.contiguous();
    let destinations = Arc::clone(&block.ends()[1]);
    let result = sum_copies::<T>(backend, &destinations, &rows, block.destinations() as i64);
    shim::with_gradient(result, &[&rows], move |gradient, _| vec![Some(copies::<T>(backend, &destinations, gradient))])
}

/// The states of the destinations, as [`own_states`], and the aggregates of all sources. Both are one function,
/// because their gradients flow back into the same rows. Two functions would need three more passes over these.
pub(crate) fn own_and_aggregate(
    backend: Backend,
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    rows: &Tensor,
    historical: Option<&HistoricalEmbeddings>,
) -> (Tensor, Tensor) {
    let (own, aggregated) = aggregate_with(backend, block, kind, scaling, rows, true);
    (own.expect("they are wanted"), with_historical(aggregated, historical))
}

/// The aggregates of all sources, and the states of the destinations if they are wanted. The destinations are then sources, too.
fn aggregate_with(
    backend: Backend,
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    rows: &Tensor,
    wants_own: bool,
) -> (Option<Tensor>, Tensor) {
    let size = rows.size();
    assert!(
        size.len() == 2 && size[0] as usize == block.sources(),
        "rows of shape {size:?} for a block of {} sources",
        block.sources()
    );
    let own = || wants_own.then(|| own_states(backend, block, rows));
    match (kind, backend.has_kernels_for(rows), rows.kind()) {
        (Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::ReluSum, ..) => {
            panic!("{kind:?} has an operator of its own")
        }
        (Aggregate::Max, false, _) => (own(), largest_with_operators(block, rows)),
        (Aggregate::Max, true, Kind::BFloat16) => (own(), largest_with_kernel::<bf16>(block, rows)),
        (Aggregate::Max, true, _) => (own(), largest_with_kernel::<f32>(block, rows)),
        (_, false, _) => (own(), sum_with_operators(block, kind, scaling, rows)),
        (_, true, Kind::BFloat16) => {
            sum_with_kernel::<bf16>(backend, block, factors(block, kind, scaling), rows, wants_own)
        }
        (_, true, _) => sum_with_kernel::<f32>(backend, block, factors(block, kind, scaling), rows, wants_own),
    }
}

/// Replaces the aggregates of halo nodes by their historical embeddings.
pub(crate) fn with_historical(aggregated: Tensor, historical: Option<&HistoricalEmbeddings>) -> Tensor {
    match historical {
        None => aggregated,
        Some(historical) => {
            let known = historical.rows.to_kind(aggregated.kind());
            aggregated.index_copy(0, &historical.destinations, &known)
        }
    }
}

impl Block {
    /// Copies to the device what a layer with this aggregation, which takes this many features of an edge, takes of the block, now and not
    /// on first use. The processor does not wait for the copies.
    pub(crate) fn send(&self, kind: Aggregate, scaling: Scaling, features: usize) {
        let edges = if kind == Aggregate::Attention { self.with_own(features) } else { self };
        edges.tensors();
        if features > 0 {
            edges.features(features);
        }
        if self.own.is_some() {
            self.tensors();
        }
        if matches!(kind, Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn | Aggregate::WeightedMean) {
            operator_weights(self, kind, scaling);
        }
        if kind == Aggregate::Gcn {
            self.destination_degrees();
        }
    }
}

fn factors(block: &Block, kind: Aggregate, scaling: Scaling) -> Factors {
    let drawn = || block.drawn().map(|drawn| drawn.max(1) as f32);
    let scales = (scaling == Scaling::HorvitzThompson)
        .then(|| block.global().iter().zip(drawn()).map(|(degree, drawn)| degree / drawn));
    let weighted = !block.csr.weights.is_empty();
    match kind {
        Aggregate::Mean if weighted => Factors {
            results: Some(block.weight_sums().map(|sum| if sum > 0.0 { sum.recip() } else { 1.0 }).collect()),
            edges: true,
            ..Factors::default()
        },
        Aggregate::Mean => Factors { results: Some(drawn().map(f32::recip).collect()), ..Factors::default() },
        Aggregate::Sum => Factors { results: scales.map(Iterator::collect), edges: weighted, ..Factors::default() },
        Aggregate::Gcn => {
            let sources: Vec<f32> = block.source_degrees().iter().map(|degree| (degree + 1.0).sqrt().recip()).collect();
            let mut results = block.of_destinations(&sources);
            if let Some(scales) = scales {
                results.iter_mut().zip(scales).for_each(|(factor, scale)| *factor *= scale);
            }
            Factors { results: Some(results), sources: Some(sources), edges: weighted }
        }
        Aggregate::WeightedMean => Factors {
            results: Some(block.weight_sums().map(|sum| sum.max(1.0).recip()).collect()),
            sources: None,
            edges: weighted,
        },
        Aggregate::Max | Aggregate::Attention | Aggregate::AttentionToOthers | Aggregate::ReluSum => {
            unreachable!("not linear")
        }
    }
}

fn sum_with_kernel<T: Element>(
    backend: Backend,
    block: &Block,
    factors: Factors,
    rows: &Tensor,
    wants_own: bool,
) -> (Option<Tensor>, Tensor) {
    let rows = rows.contiguous();
    let width = rows.size()[1];
    let (csr, own_places) = (Arc::clone(&block.csr), block.own.clone());
    let destinations = block.destinations() as i64;
    let mut aggregated = Tensor::empty([destinations, width], (T::KIND, Device::Cpu));
    let plan = GatherPlan {
        edges: factors.edges.then_some(&csr.weights),
        inputs: factors.sources.as_deref(),
        results: factors.results.as_deref(),
        ..GatherPlan::from_lists(&csr.offsets, &csr.indices)
    };
    sum::<T>(backend, &rows, plan, &mut aggregated);
    let own = wants_own.then(|| match &own_places {
        None => rows.detach().narrow(0, 0, destinations).detach(),
        Some(own) => copies::<T>(backend, own, &rows),
    });
    let results: Vec<&Tensor> = [&aggregated].into_iter().chain(&own).collect();
    shim::with_gradients(&results, &[&rows], move |gradients, _| {
        let [aggregated_gradient, own_gradient @ ..] = gradients else { unreachable!("there are aggregates") };
        let own_gradient =
            own_gradient.first().and_then(Option::as_ref).map(Tensor::contiguous).map(
                |own_gradient| match &own_places {
                    None => own_gradient,
                    Some(own) => sum_copies::<T>(backend, own, &own_gradient, own.sources as i64),
                },
            );
        let aggregated_gradient = match aggregated_gradient {
            Some(gradient) => gradient.contiguous(),
            None => Tensor::zeros([destinations, width], (T::KIND, Device::Cpu)),
        };
        let mut result = Tensor::empty([csr.sources as i64, width], (T::KIND, Device::Cpu));
        let Transposed { offsets, indices, edges } = csr.transposed();
        // In the order of the transposed edges.
        let weights: Option<Vec<f32>> =
            factors.edges.then(|| edges.iter().map(|&edge| csr.weights[edge as usize]).collect());
        let plan = GatherPlan {
            edges: weights.as_deref(),
            inputs: factors.results.as_deref(),
            results: factors.sources.as_deref(),
            added: own_gradient.as_ref().map_or(&[], shim::values),
            ..GatherPlan::from_lists(offsets, indices)
        };
        sum::<T>(backend, &aggregated_gradient, plan, &mut result);
        vec![Some(result)]
    });
    (own, aggregated)
}

fn sum_with_operators(block: &Block, kind: Aggregate, scaling: Scaling, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let weight = operator_weights(block, kind, scaling).map(|weight| weight.to_kind(messages.kind()));
    let sum = 0;
    Tensor::embedding_bag(messages, &edges.indices, &edges.offsets, false, sum, false, weight, true).0
}

/// The factors of a linear aggregation as factors of its edges, f32 of `[edges]` on the block's device. The block keeps them.
fn operator_weights(block: &Block, kind: Aggregate, scaling: Scaling) -> Option<Tensor> {
    block.edge_weights(kind, scaling, || {
        let factors = factors(block, kind, scaling);
        if factors.results.is_none() && factors.sources.is_none() && !factors.edges {
            return None;
        }
        let csr = &block.csr;
        let mut weights = match factors.edges {
            true => csr.weights.clone(),
            false => vec![1.0; block.edges()],
        };
        if let Some(results) = &factors.results {
            for (factor, bounds) in results.iter().zip(csr.offsets.windows(2)) {
                let destination_weights = &mut weights[bounds[0] as usize..bounds[1] as usize];
                destination_weights.iter_mut().for_each(|weight| *weight *= factor);
            }
        }
        if let Some(sources) = &factors.sources {
            let source_factors = csr.indices.iter().map(|&source| sources[source as usize]);
            weights.iter_mut().zip(source_factors).for_each(|(weight, factor)| *weight *= factor);
        }
        send_together(&[&weights], block.device()).pop()
    })
}

fn largest_with_kernel<T: Element>(block: &Block, messages: &Tensor) -> Tensor {
    let messages = messages.contiguous();
    let width = messages.size()[1];
    let mut result = Tensor::empty([block.destinations() as i64, width], (T::KIND, block.device()));
    let values = shim::values_mut(&mut result);
    let winners = max::max::<T>(shim::values(&messages), width as usize, &block.csr, values);
    let csr = Arc::clone(&block.csr);
    shim::with_gradient(result, &[&messages], move |gradient, _| {
        let mut result = Tensor::empty([csr.sources as i64, width], (T::KIND, Device::Cpu));
        let (gradient, row_gradients) = (shim::values(gradient), shim::values_mut(&mut result));
        max::max_backward::<T>(gradient, width as usize, &winners, csr.transposed(), row_gradients);
        vec![Some(result)]
    })
}

fn largest_with_operators(block: &Block, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let width = messages.size()[1];
    let rows = messages.index_select(0, &edges.indices);
    let index = edges.destinations.to_kind(Kind::Int64).unsqueeze(1).expand([-1, width], false);
    Tensor::zeros([block.destinations() as i64, width], (messages.kind(), block.device()))
        .internal_scatter_reduce(0, &index, &rows, "amax", false)
}
