//! Aggregation: the rows of a destination's in-neighbours become one row.
//!
//! A layer is a *message* (what a source's row becomes before), an *aggregation*, and an *update* (what a destination's own
//! row and its aggregate become). This module does the middle part for one hop's [`Block`]:
//!
//! - [`Aggregate::Mean`], [`Aggregate::Sum`], [`Aggregate::Gcn`] and [`Aggregate::WeightedMean`] are one operator with
//!   different factors, `results[d] * sum of edges[e] * sources[s] * x[s]`, which is linear in `x`;
//! - [`Aggregate::Max`] takes the largest, value by value;
//! - attention has factors that depend on rows: see [`attention`](super::attention).
//!
//! A destination without edges gets zeros, as in PyTorch Geometric.
//!
//! **Sampled sums.** A layer that adds neighbours up, GCN or GIN, sees too little when only some of them were drawn. With
//! uniform draws, (in-degree / number drawn) times the sampled sum has the full sum as its expectation (Horvitz-Thompson),
//! whether draws are with or without replacement, because each draw has the mean of all neighbours as expectation.
//! [`Scaling::HorvitzThompson`] does that. Means need no scaling; the largest can't be scaled.
//!
//! **Cost.** On the processor, see [`crate::kernels::gather`]: with two threads, at 117 K edges, 128 values and sources that
//! exceed the cache, libtorch's `embedding_bag`, the fastest of its operators forward, is as fast, but 40 times slower
//! backward, where it adds into rows with one thread. On other devices `embedding_bag` it is.

use std::sync::Arc;

use half::bf16;
use tch::{Kind, Tensor};

use super::graph::{Block, Csr};
use crate::{
    kernels::{
        gather::{Plan, gather},
        max,
        transpose::Transposed,
    },
    shim::{self, Element},
};

/// How a layer makes one row of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// The mean.
    Mean,
    /// The largest, value by value.
    Max,
    /// The sum.
    Sum,
    /// The sum, each row times 1 / sqrt((d + 1) (s + 1)) for in-degrees d of the destination and s of the source: GCN's,
    /// without the destination itself, which the update adds.
    Gcn,
    /// The sum, each row times the edge's weight, over the sum of weights, or over 1 if that is less.
    WeightedMean,
    /// A mean with weights that depend on the rows, and in which the destination itself takes part.
    Attention,
}

/// What becomes of the sum of some of a node's neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scaling {
    /// It stays as it is.
    #[default]
    None,
    /// It is multiplied by (in-degree in the whole graph) / (number drawn). Destinations without edges keep their zeros.
    HorvitzThompson,
}

/// Aggregates of some of a block's destinations that are known from elsewhere: of halo nodes, from the last exact
/// inference. No gradient flows through them.
#[derive(Debug)]
pub struct History {
    /// Which destinations; int64 of `[rows]`, each at most once. Those with edges lose what those would have given.
    pub destinations: Tensor,
    /// What their neighbours' messages aggregate to; f32 of `[rows, message width]`.
    pub rows: Tensor,
}

/// The factors of a linear aggregation. None stands for ones.
#[derive(Debug, Clone, Default)]
struct Factors {
    results: Option<Arc<Vec<f32>>>,
    sources: Option<Arc<Vec<f32>>>,
    /// Whether the weights of the block's edges count.
    edges: bool,
}

/// Which code computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// Our own loops, where there are any for the device and type, else libtorch's operators.
    Fastest,
    /// Libtorch's operators.
    #[cfg(test)]
    Operators,
}

impl Backend {
    /// Whether our own loops can take the tensor.
    pub(crate) fn has_kernels_for(self, tensor: &Tensor) -> bool {
        self == Self::Fastest
            && tensor.device() == tch::Device::Cpu
            && matches!(tensor.kind(), Kind::Float | Kind::BFloat16)
    }
}

impl Aggregate {
    /// Whether sampled sums can be scaled.
    pub fn is_sum(self) -> bool {
        matches!(self, Self::Sum | Self::Gcn)
    }
}

/// Aggregates the messages of a block's sources, `[sources, width]`, to `[destinations, width]`.
///
/// # Panics
/// If `kind` is [`Aggregate::Attention`]; if shapes disagree; if the block lacks what the kind needs (degrees of sources, or
/// weights).
pub fn aggregate(
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    messages: &Tensor,
    history: Option<&History>,
) -> Tensor {
    aggregate_with(Backend::Fastest, block, kind, scaling, messages, history)
}

pub(crate) fn aggregate_with(
    backend: Backend,
    block: &Block,
    kind: Aggregate,
    scaling: Scaling,
    messages: &Tensor,
    history: Option<&History>,
) -> Tensor {
    let size = messages.size();
    assert!(
        size.len() == 2 && size[0] as usize == block.sources(),
        "messages of shape {size:?} for a block of {} sources",
        block.sources()
    );
    let result = match kind {
        Aggregate::Attention => panic!("attention has an operator of its own"),
        Aggregate::Max => largest(backend, block, messages),
        linear => sum(backend, block, &factors(block, linear, scaling), messages),
    };
    match history {
        None => result,
        Some(history) => result.index_copy(0, &history.destinations, &history.rows.detach().to_kind(result.kind())),
    }
}

fn factors(block: &Block, kind: Aggregate, scaling: Scaling) -> Factors {
    let drawn = || block.drawn().map(|drawn| drawn.max(1) as f32);
    let scale = |scaling| match scaling {
        Scaling::None => None,
        Scaling::HorvitzThompson => Some(block.global().iter().zip(drawn()).map(|(degree, drawn)| degree / drawn)),
    };
    match kind {
        Aggregate::Mean => Factors {
            results: Some(Arc::new(drawn().map(f32::recip).collect())),
            ..Factors::default()
        },
        Aggregate::Sum => Factors {
            results: scale(scaling).map(|scales| Arc::new(scales.collect())),
            ..Factors::default()
        },
        Aggregate::Gcn => {
            let sources: Vec<f32> = block
                .source_degrees()
                .iter()
                .map(|degree| (degree + 1.0).sqrt().recip())
                .collect();
            let mut results = sources[..block.destinations()].to_vec();
            if let Some(scales) = scale(scaling) {
                results
                    .iter_mut()
                    .zip(scales)
                    .for_each(|(factor, scale)| *factor *= scale);
            }
            Factors {
                results: Some(Arc::new(results)),
                sources: Some(Arc::new(sources)),
                edges: false,
            }
        }
        Aggregate::WeightedMean => {
            let csr = block.csr();
            assert!(
                csr.weights.len() == csr.indices.len(),
                "a weighted mean needs weights of edges"
            );
            let total = |bounds: &[u32]| csr.weights[bounds[0] as usize..bounds[1] as usize].iter().sum::<f32>();
            Factors {
                results: Some(Arc::new(
                    csr.offsets
                        .windows(2)
                        .map(|bounds| total(bounds).max(1.0).recip())
                        .collect(),
                )),
                sources: None,
                edges: true,
            }
        }
        Aggregate::Max | Aggregate::Attention => unreachable!("not linear"),
    }
}

fn sum(backend: Backend, block: &Block, factors: &Factors, messages: &Tensor) -> Tensor {
    if !backend.has_kernels_for(messages) {
        return sum_with_operators(block, factors, messages);
    }
    match messages.kind() {
        Kind::BFloat16 => sum_with_kernel::<bf16>(block, factors, messages),
        _ => sum_with_kernel::<f32>(block, factors, messages),
    }
}

fn sum_with_kernel<T: Element>(block: &Block, factors: &Factors, messages: &Tensor) -> Tensor {
    let messages = messages.contiguous();
    let width = messages.size()[1];
    let new = |rows: usize| Tensor::empty([rows as i64, width], (T::KIND, block.device()));
    let csr = block.csr();
    let mut result = new(block.destinations());
    gather::<T>(
        shim::values(&messages.detach()),
        width as usize,
        Plan {
            offsets: &csr.offsets,
            indices: &csr.indices,
            edges: factors.edges.then_some(&csr.weights),
            inputs: factors.sources.as_deref().map(Vec::as_slice),
            results: factors.results.as_deref().map(Vec::as_slice),
        },
        shim::values_mut(&mut result),
    );
    shim::with_gradient(result, &[&messages], || {
        let (csr, transposed, factors) = (Arc::clone(csr), Arc::clone(block.transposed()), factors.clone());
        Box::new(move |gradient, _| {
            let gradient = gradient.contiguous();
            let mut result = Tensor::empty(
                [transposed.offsets.len() as i64 - 1, width],
                (T::KIND, gradient.device()),
            );
            let weights = factors.edges.then(|| weights_of(&csr, &transposed));
            gather::<T>(
                shim::values(&gradient),
                width as usize,
                Plan {
                    offsets: &transposed.offsets,
                    indices: &transposed.indices,
                    edges: weights.as_deref(),
                    inputs: factors.results.as_deref().map(Vec::as_slice),
                    results: factors.sources.as_deref().map(Vec::as_slice),
                },
                shim::values_mut(&mut result),
            );
            vec![Some(result)]
        })
    })
}

/// The weights of edges in the order of the transposed CSR.
fn weights_of(csr: &Csr, transposed: &Transposed) -> Vec<f32> {
    transposed
        .edges
        .iter()
        .map(|&edge| csr.weights[edge as usize])
        .collect()
}

fn sum_with_operators(block: &Block, factors: &Factors, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let float = |values: &[f32]| Tensor::from_slice(values).to_device(block.device());
    let mut weight: Option<Tensor> = factors.edges.then(|| float(&block.csr().weights));
    let mut multiply = |factors: &Option<Arc<Vec<f32>>>, of: &Tensor| {
        if let Some(factors) = factors {
            let factors = float(factors).index_select(0, of);
            weight = Some(
                weight
                    .take()
                    .map_or_else(|| factors.shallow_clone(), |weight| weight * &factors),
            );
        }
    };
    multiply(&factors.results, &edges.destinations);
    multiply(&factors.sources, &edges.indices);
    let weight = weight.map(|weight| weight.to_kind(messages.kind()));
    let sum = 0;
    Tensor::embedding_bag(
        messages,
        &edges.indices,
        &edges.offsets,
        false,
        sum,
        false,
        weight,
        true,
    )
    .0
}

fn largest(backend: Backend, block: &Block, messages: &Tensor) -> Tensor {
    if !backend.has_kernels_for(messages) {
        return largest_with_operators(block, messages);
    }
    match messages.kind() {
        Kind::BFloat16 => largest_with_kernel::<bf16>(block, messages),
        _ => largest_with_kernel::<f32>(block, messages),
    }
}

fn largest_with_kernel<T: Element>(block: &Block, messages: &Tensor) -> Tensor {
    let messages = messages.contiguous();
    let width = messages.size()[1];
    let csr = block.csr();
    let mut result = Tensor::empty([block.destinations() as i64, width], (T::KIND, block.device()));
    let winners = max::max::<T>(
        shim::values(&messages.detach()),
        width as usize,
        &csr.offsets,
        &csr.indices,
        shim::values_mut(&mut result),
    );
    shim::with_gradient(result, &[&messages], || {
        let transposed = Arc::clone(block.transposed());
        Box::new(move |gradient, _| {
            let gradient = gradient.contiguous();
            let mut result = Tensor::empty(
                [transposed.offsets.len() as i64 - 1, width],
                (T::KIND, gradient.device()),
            );
            max::max_backward::<T>(
                shim::values(&gradient),
                width as usize,
                &winners,
                &transposed,
                shim::values_mut(&mut result),
            );
            vec![Some(result)]
        })
    })
}

fn largest_with_operators(block: &Block, messages: &Tensor) -> Tensor {
    let edges = block.tensors();
    let width = messages.size()[1];
    let rows = messages.index_select(0, &edges.indices);
    let index = edges.destinations.unsqueeze(1).expand([-1, width], false);
    Tensor::zeros([block.destinations() as i64, width], (messages.kind(), block.device()))
        .internal_scatter_reduce(0, &index, &rows, "amax", false)
}
