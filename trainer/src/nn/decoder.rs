//! Decoders: the score of a link from the outputs of its two ends, the embeddings.
//!
//! ```text
//! dot        s · d
//! cosine     s · d / (|s| |d|), as PyTorch's `cosine_similarity`
//! distmult   sum over i of weight[i] s[i] d[i]; weights start at 1          (Yang et al., 2015)
//! mlp        out(relu(hidden(s * d))), with as many hidden values as an embedding has
//! ```
//!
//! All but the perceptron are products of a query and a key, so the scores of many sources and many destinations are one matrix product.

use grappa_kernels::sum::{products, weighted_products};
use grappa_run::model::Decoder;
use tch::{Device, Kind, Tensor};

use super::{
    linear::{Epilogue, LinearLayer, float},
    parameters::{Builder, Start},
};
use crate::shim;

/// Pairs that the perceptron scores at once, at most, times the values of each: 64 MiB.
const PERCEPTRON_VALUES: i64 = 1 << 24;
/// The smallest length of an embedding that cosine divides by, as in PyTorch.
const LENGTH_MIN: f64 = 1e-8;

/// The decoder of a model, with its parameters.
#[derive(Debug)]
pub struct LinkDecoder(Form);

#[derive(Debug)]
enum Form {
    Dot,
    Cosine,
    /// The diagonal, f32 of `[values]`.
    DistMult(Tensor),
    Perceptron {
        hidden: LinearLayer,
        out: LinearLayer,
    },
}

impl LinkDecoder {
    /// A decoder of embeddings of `width` values.
    pub(crate) fn new(builder: &mut Builder, decoder: Decoder, width: usize) -> Self {
        let width = width as i64;
        Self(match decoder {
            Decoder::Dot => Form::Dot,
            Decoder::Cosine => Form::Cosine,
            Decoder::DistMult => Form::DistMult(builder.parameter("weight", &[width], Start::Constant(1.0))),
            Decoder::Mlp => Form::Perceptron {
                hidden: LinearLayer::of_pytorch(builder, "hidden", [width, width]),
                out: LinearLayer::of_pytorch(builder, "out", [width, 1]),
            },
            Decoder::ComplEx | Decoder::RotatE | Decoder::TransE => {
                unreachable!("a checked configuration of a model with layers has no decoder of triples")
            }
        })
    }

    /// The scores of pairs, f32 of `[pairs]`: of each source with the destination in the same row. Both are `[pairs, values]`.
    ///
    /// # Panics
    /// If shapes differ.
    pub fn score(&self, sources: &Tensor, destinations: &Tensor) -> Tensor {
        assert_eq!(sources.size(), destinations.size(), "a destination for each source");
        let products = self.queries(sources) * self.keys(destinations);
        match &self.0 {
            Form::Perceptron { hidden, out } => perceptron(&products, hidden, out),
            Form::Dot | Form::Cosine | Form::DistMult(_) => {
                products.sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
            }
        }
    }

    /// The scores of each source with each candidate, f32 of `[sources, candidates]`, from `[sources, values]` and
    /// `[candidates, values]`.
    ///
    /// # Panics
    /// If the numbers of values differ.
    pub fn score_all(&self, sources: &Tensor, candidates: &Tensor) -> Tensor {
        let (queries, keys) = (self.queries(sources), self.keys(candidates));
        let Form::Perceptron { hidden, out } = &self.0 else {
            return queries.mm(&keys.tr());
        };
        let [count, width] = [keys.size()[0], keys.size()[1]];
        let step = (PERCEPTRON_VALUES / (count * width).max(1)).max(1);
        let scores: Vec<Tensor> = queries
            .split(step, 0)
            .iter()
            .map(|queries| {
                let products = (queries.unsqueeze(1) * &keys).view([-1, width]);
                perceptron(&products, hidden, out).view([-1, count])
            })
            .collect();
        Tensor::cat(&scores, 0)
    }

    /// Whether a score is the product of a query and a key.
    pub fn is_product(&self) -> bool {
        !matches!(self.0, Form::Perceptron { .. })
    }

    /// Scores single pairs of rows in the processor's memory. None if a score is no product.
    pub(crate) fn pair_score(&self) -> Option<PairScore> {
        match &self.0 {
            Form::Dot => Some(PairScore::Dot),
            Form::Cosine => Some(PairScore::Cosine),
            Form::DistMult(weight) => {
                let weight = weight.detach().to_device(Device::Cpu).contiguous();
                Some(PairScore::DistMult(shim::values(&weight).to_vec()))
            }
            Form::Perceptron { .. } => None,
        }
    }

    /// Embeddings as sources, f32 of `[sources, values]`. Their products with [`LinkDecoder::keys`] are the scores, if
    /// [`LinkDecoder::is_product`].
    pub fn queries(&self, sources: &Tensor) -> Tensor {
        let sources = float(sources);
        match &self.0 {
            Form::Cosine => of_length_one(&sources),
            Form::DistMult(weight) => sources * weight,
            Form::Dot | Form::Perceptron { .. } => sources,
        }
    }

    /// Embeddings as destinations, f32 of `[destinations, values]`.
    pub fn keys(&self, destinations: &Tensor) -> Tensor {
        let destinations = float(destinations);
        match &self.0 {
            Form::Cosine => of_length_one(&destinations),
            Form::Dot | Form::DistMult(_) | Form::Perceptron { .. } => destinations,
        }
    }
}

/// The score of a pair of rows. Results differ from [`LinkDecoder::score`] by rounding alone, and are the same for equal rows.
#[derive(Debug)]
pub(crate) enum PairScore {
    Dot,
    Cosine,
    /// The diagonal.
    DistMult(Vec<f32>),
}

impl PairScore {
    /// The score of a source and a destination.
    #[inline]
    pub fn score(&self, source: &[f32], destination: &[f32]) -> f32 {
        match self {
            Self::Dot => products(source, destination),
            Self::Cosine => {
                let length = |row| products(row, row).sqrt().max(LENGTH_MIN as f32);
                products(source, destination) / (length(source) * length(destination))
            }
            Self::DistMult(weights) => weighted_products(source, weights, destination),
        }
    }
}

/// The outputs of the perceptron, f32 of `[rows]`.
fn perceptron(products: &Tensor, hidden: &LinearLayer, out: &LinearLayer) -> Tensor {
    let states = hidden.apply(products, Epilogue::RELU);
    out.apply(&states, Epilogue::NONE).squeeze_dim(1)
}

fn of_length_one(rows: &Tensor) -> Tensor {
    rows / rows.norm_scalaropt_dim(2.0, [1i64].as_slice(), true).clamp_min(LENGTH_MIN)
}
