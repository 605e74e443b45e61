//! Models: stacks of layers.

use grappa_formats::random;
use grappa_run::model::{LayerKind, ModelOptions, NormKind, Precision};
use tch::{Device, Kind, Tensor, no_grad};

use super::{
    aggregate::{Aggregate, HistoricalEmbeddings, Scaling},
    graph::Block,
    layers::{Gat, Gatv2, Gcn, Gin, Layer, PinSage, Sage},
    linear::{Dropout, Epilogue, apply, float, linear},
    norm::Norm,
    parameters::{Builder, Parameters, Start},
    reduction::Reduction,
};
use crate::Result;

/// What the first layer works on.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Rows of the last block's sources, `[sources, inputs]`.
    Features(&'a Tensor),
    /// The first layer's aggregates are known: there is no block for it.
    Aggregated {
        /// Rows of the nodes themselves, `[nodes, inputs]`: of the last block's sources.
        own: &'a Tensor,
        /// Aggregates of their in-neighbours' rows, as [`Model::reduction`] makes them; `[nodes, inputs]`.
        neighbours: &'a Tensor,
        /// In-degrees in the whole graph, f32 of `[nodes]`; only GCN needs them.
        degrees: Option<&'a Tensor>,
    },
}

/// How one pass through a model goes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pass {
    /// In training, the seed of the step: dropout is a function of it. Else None, and nothing is dropped.
    pub training: Option<u64>,
    /// What becomes of sampled sums.
    pub scaling: Scaling,
}

/// A stack of graph convolutions.
///
/// Each layer but the last is `dropout(relu(norm(convolution + residual)))`; the last is the convolution alone, whose
/// result are the logits.
///
/// Parameters are called `layers.0.lin_l.weight`, `norms.0.weight`, `residuals.0.weight`: as in a PyTorch module that has
/// PyTorch Geometric's convolutions in a `ModuleList` named `layers`, BatchNorm1d or LayerNorm in one named `norms`,
/// and Linear without bias in one named `residuals`, which has Identity where widths agree. PinSAGE's logits come from one
/// more Linear, `head`.
#[derive(Debug)]
pub struct Model {
    options: ModelOptions,
    layers: Vec<Box<dyn Layer>>,
    norms: Vec<Option<Norm>>,
    residuals: Vec<Residual>,
    /// Weight and bias of what makes logits of the last layer's result, where that can't be logits.
    head: Option<(Tensor, Tensor)>,
    parameters: Parameters,
}

#[derive(Debug)]
enum Residual {
    None,
    Identity,
    Projection(Tensor),
}

impl Model {
    /// Makes a model with parameters that depend on the seed alone.
    ///
    /// # Errors
    /// If sizes are 0, the dropout is not in [0, 1), or heads can't share the hidden values.
    pub fn new(options: ModelOptions, seed: u64, device: Device) -> Result<Self> {
        options.check()?;
        let mut builder = Builder::new(seed, device);
        let size = |count: usize| count as i64;
        let last = options.layers - 1;
        // Its results are not negative and have length 1.
        let has_head = options.layer == LayerKind::PinSage;
        let mut layers = Vec::new();
        let mut norms = Vec::new();
        let mut residuals = Vec::new();
        for index in 0..options.layers {
            let inputs = size(if index == 0 { options.inputs } else { options.hidden });
            let outputs = size(if index == last && !has_head {
                options.outputs
            } else {
                options.hidden
            });
            layers.push(builder.scope(&format!("layers.{index}"), |builder| {
                layer(&options, builder, inputs, outputs, index == last)
            }));
            let inner = index < last;
            norms.push(builder.scope(&format!("norms.{index}"), |builder| {
                Norm::new(builder, if inner { options.norm } else { NormKind::None }, outputs)
            }));
            residuals.push(match (inner && options.residual, inputs == outputs) {
                (false, _) => Residual::None,
                (true, true) => Residual::Identity,
                (true, false) => builder.scope(&format!("residuals.{index}"), |builder| {
                    Residual::Projection(builder.parameter("weight", &[outputs, inputs], Start::linear(inputs)))
                }),
            });
        }
        let head = has_head.then(|| {
            let (inputs, outputs) = (size(options.hidden), size(options.outputs));
            let start = Start::linear(inputs);
            builder.scope("head", |builder| {
                (
                    builder.parameter("weight", &[outputs, inputs], start),
                    builder.parameter("bias", &[outputs], start),
                )
            })
        });
        Ok(Self {
            options,
            layers,
            norms,
            residuals,
            head,
            parameters: builder.finish(),
        })
    }

    /// What it looks like.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// How a layer makes one row of many.
    pub fn aggregate(&self, layer: usize) -> Aggregate {
        self.layers[layer].aggregate()
    }

    /// Whether the first layer's aggregation is of the features themselves and needs no gradient, so that it can be known
    /// beforehand: [`Input::Aggregated`].
    pub fn takes_aggregated_input(&self) -> bool {
        matches!(
            self.aggregate(0),
            Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn | Aggregate::Max
        )
    }

    /// Logits of the seeds, f32 of `[seeds, outputs]`.
    ///
    /// `blocks` are those of a minibatch, seeds first: as many as layers, or one less with [`Input::Aggregated`].
    /// `history` is empty, or has for each block what is known of some of its destinations.
    ///
    /// # Panics
    /// If shapes or numbers disagree.
    pub fn forward(
        &self,
        blocks: &[Block],
        input: Input<'_>,
        historical: &[Option<HistoricalEmbeddings>],
        pass: Pass,
    ) -> Tensor {
        let count = self.layers.len();
        assert!(
            historical.is_empty() || historical.len() == blocks.len(),
            "history is for blocks"
        );
        let historical = |hop: usize| historical.get(hop).and_then(Option::as_ref);
        let kind = self.kind();
        let (mut hidden, first) = match input {
            Input::Features(rows) => {
                assert_eq!(blocks.len(), count, "a block for each layer");
                (rows.to_kind(kind), 0)
            }
            Input::Aggregated {
                own,
                neighbours,
                degrees,
            } => {
                assert_eq!(blocks.len() + 1, count, "a block for each layer but the first");
                assert!(
                    self.takes_aggregated_input(),
                    "the first layer's aggregation needs gradients"
                );
                (
                    self.step(0, &own.to_kind(kind), &neighbours.to_kind(kind), degrees, pass.training),
                    1,
                )
            }
        };
        for layer in first..count {
            let hop = count - 1 - layer;
            let block = &blocks[hop];
            let followed = historical(hop).and_then(|historical| self.follow(layer, historical, pass.training));
            let historical = followed.as_ref().or(historical(hop));
            let (own, aggregated) = self.layers[layer].neighbours(block, &hidden, pass.scaling, historical);
            let degrees = (self.aggregate(layer) == Aggregate::Gcn).then(|| block.destination_degrees());
            hidden = self.step(layer, &own, &aggregated, degrees.as_ref(), pass.training);
        }
        float(&hidden)
    }

    /// What nodes send at a layer, f32 of `[nodes, width of the reduction's rows]`, from their rows at its input `[nodes,
    /// width]` and, for GCN, their in-degrees, f32 of `[nodes]`. Without dropout and gradients.
    pub fn messages(&self, layer: usize, rows: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        let convolution = &self.layers[layer];
        no_grad(|| {
            let messages = float(&convolution.messages(&rows.to_kind(self.kind())));
            match convolution.aggregate() {
                Aggregate::Gcn => {
                    let degrees = degrees.expect("GCN's messages need the in-degrees of nodes");
                    messages * (degrees + 1.0).rsqrt().unsqueeze(1)
                }
                _ => messages,
            }
        })
    }

    /// What attention must know of destinations, f32 of `[nodes, own width of the reduction]`, from their rows at a layer's
    /// input; None if the layer is not of attention.
    pub fn queries(&self, layer: usize, rows: &Tensor) -> Option<Tensor> {
        no_grad(|| self.layers[layer].queries(&rows.to_kind(self.kind())))
    }

    /// How the messages of all in-neighbours become the aggregate of a node at a layer. (PinSAGE's neighbourhoods are those of
    /// random walks; over all in-neighbours, they count alike.)
    pub fn reduction(&self, layer: usize) -> Reduction {
        self.layers[layer].reduction(self.width(layer))
    }

    /// Values in a node's row at a layer's input.
    pub fn width(&self, layer: usize) -> usize {
        if layer == 0 {
            self.options.inputs
        } else {
            self.options.hidden
        }
    }

    /// New states of nodes, or logits if it is the last layer, without dropout and gradients: from their own rows `[nodes,
    /// width]`, the states of the reduction of their neighbours' messages, or what states begin with, and, for GCN, their
    /// in-degrees, f32 of `[nodes]`.
    pub fn update(&self, layer: usize, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        let kind = self.kind();
        let aggregated = aggregated.narrow(1, 0, self.reduction(layer).result_width() as i64);
        no_grad(|| float(&self.step(layer, &own.to_kind(kind), &aggregated.to_kind(kind), degrees, None)))
    }

    /// With which numbers it computes.
    pub(super) fn kind(&self) -> Kind {
        kind(self.options.precision)
    }

    /// A layer from own rows and aggregates on, with all that follows the convolution.
    pub(super) fn step(
        &self,
        layer: usize,
        own: &Tensor,
        aggregated: &Tensor,
        degrees: Option<&Tensor>,
        training: Option<u64>,
    ) -> Tensor {
        let convolution = &self.layers[layer];
        if layer == self.layers.len() - 1 {
            let result = convolution.update(own, aggregated, degrees, Epilogue::NONE);
            return match &self.head {
                None => result,
                Some((weight, bias)) => linear(&[(&result, weight)], Some(bias), Epilogue::NONE),
            };
        }
        let dropped = training.filter(|_| self.options.dropout > 0.0);
        let epilogue = Epilogue {
            relu: true,
            dropout: dropped.map(|seed| Dropout {
                probability: self.options.dropout,
                key: random::combine(seed, random::mix(layer as u64)),
            }),
        };
        match (&self.residuals[layer], &self.norms[layer]) {
            (Residual::None, None) => convolution.update(own, aggregated, degrees, epilogue),
            (residual, norm) => {
                let mut sum = convolution.update(own, aggregated, degrees, Epilogue::NONE);
                match residual {
                    Residual::None => {}
                    Residual::Identity => sum += own,
                    Residual::Projection(weight) => sum += linear(&[(own, weight)], None, Epilogue::NONE),
                }
                let normal = match norm {
                    None => sum,
                    Some(norm) => norm.apply(&sum, training.is_some()),
                };
                apply(&normal, epilogue)
            }
        }
    }
}

fn layer(options: &ModelOptions, builder: &mut Builder, inputs: i64, outputs: i64, last: bool) -> Box<dyn Layer> {
    let heads = options.heads as i64;
    match options.layer {
        LayerKind::Sage => Box::new(Sage::new(builder, Aggregate::Mean, inputs, outputs)),
        LayerKind::SageMax => Box::new(Sage::new(builder, Aggregate::Max, inputs, outputs)),
        LayerKind::Gcn => Box::new(Gcn::new(builder, inputs, outputs)),
        LayerKind::Gat => Box::new(Gat::new(builder, inputs, outputs, heads, last)),
        LayerKind::Gatv2 => Box::new(Gatv2::new(builder, inputs, outputs, heads, last)),
        LayerKind::Gin => Box::new(Gin::new(builder, inputs, outputs)),
        LayerKind::PinSage => Box::new(PinSage::new(builder, inputs, outputs)),
    }
}

/// The type of a model's activations.
fn kind(precision: Precision) -> Kind {
    match precision {
        Precision::F32 => Kind::Float,
        Precision::Bf16 => Kind::BFloat16,
    }
}
