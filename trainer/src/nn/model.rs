//! Models: stacks of layers.

use grappa_engine::aggregate::NodeRows;
use grappa_formats::random;
use grappa_run::{
    model::{FeatureNorm, JumpingKnowledge, LayerKind, ModelOptions, NormKind, Precision},
    scores::{TargetLoss, TargetScale},
};
use tch::{Device, Kind, Tensor};

use super::{
    activation::Activation,
    aggregate_kind::Aggregate,
    decoder::LinkDecoder,
    features::{ChangedRows, Normalization},
    graph::Block,
    historical::HistoricalEmbeddings,
    jump::Jump,
    layers::{Gat, Gatv2, Gcn, Gin, Gine, Hop, Layer, PinSage, Sage, Transformer},
    linear::{Dropout, Epilogue, LinearLayer, apply, float, linear},
    norm::Norm,
    parameters::{Builder, Parameters, Start},
    pass::{Pass, RowsOf},
};
use crate::Result;

/// The places of dropouts that do not follow a layer; see [`dropout`]. That of layer N's attention is N after the first.
const INPUT_DROPOUT: u64 = 1 << 33;
const ATTENTION_DROPOUT: u64 = 1 << 34;

/// The input of the first layer.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Features of the last block's sources, `[sources, inputs]`, as the store has them.
    Features(&'a Tensor),
    /// The same after [`Model::normalized_features`].
    NormalizedFeatures(&'a Tensor),
    /// Features and their aggregates (pre-aggregated features). The first layer then has no block. The model must not normalize
    /// features, and has no dropout of them.
    Aggregated {
        /// Features of the last block's sources, `[nodes, inputs]`.
        own: &'a Tensor,
        /// Aggregates of their in-neighbors' features by [`Model::reduction`], `[nodes, inputs]`.
        neighbors: &'a Tensor,
        /// In-degrees in the whole graph, f32 of `[nodes]`; only GCN needs them.
        degrees: Option<&'a Tensor>,
    },
    /// [`Model::combined`] of features and their aggregates. The first layer then has no block.
    Combined(&'a Tensor),
}

/// Operands of a layer's update.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operands<'a> {
    /// The states of the nodes, the aggregates of their in-neighbors' messages, and their in-degrees for GCN.
    Apart(&'a Tensor, &'a Tensor, Option<&'a Tensor>),
    /// Their sum, for a layer that combines them.
    Combined(&'a Tensor),
}

impl<'a> Operands<'a> {
    fn update(self, layer: &dyn Layer, epilogue: Epilogue) -> Tensor {
        match self {
            Self::Apart(own, aggregated, degrees) => layer.update(own, aggregated, degrees, epilogue),
            Self::Combined(rows) => layer.update_combined(rows, epilogue),
        }
    }

    fn own(self) -> &'a Tensor {
        match self {
            Self::Apart(own, ..) => own,
            Self::Combined(_) => unreachable!("a residual needs the states themselves"),
        }
    }
}

/// A stack of graph convolutions.
///
/// Each layer but the last is `dropout(activation(norm(convolution + residual)))`. The last is the convolution alone, and its result
/// are the logits. The first takes `dropout(normalized features)`.
///
/// Parameters have the names of a PyTorch module with four `ModuleList`s: `layers` with PyTorch Geometric's convolutions, `norms`
/// with BatchNorm1d or LayerNorm, `residuals` with Linear without bias, or Identity where widths agree, and `activations`, where only
/// PReLU has a parameter. Examples are `layers.0.lin_l.weight`, `norms.0.weight` and `residuals.0.weight`. PinSAGE has one more Linear
/// for the logits, `head`. With jumping knowledge every layer is like the first ones, and `head` is the linear layer after them.
/// Standardized features have the buffers `feature_mean` and `feature_deviation`.
///
/// Targets are learned in units of their deviation, and the outputs of every pass are in the unit of the target: the last layer's values
/// times the buffer `target_deviation`, plus `target_mean`.
///
/// If links are predicted, the outputs are embeddings, and the parameters of the [`LinkDecoder`] follow: `decoder.weight`, or
/// `decoder.hidden` and `decoder.out`, each a Linear.
#[derive(Debug)]
pub struct Model {
    pub(super) options: ModelOptions,
    features: Normalization,
    /// Buffers: the mean and the standard deviation of each target, f32 of `[outputs]`, if outputs are targets.
    targets: Option<[Tensor; 2]>,
    pub(super) layers: Vec<Box<dyn Layer>>,
    norms: Vec<Option<Norm>>,
    pub(super) residuals: Vec<Residual>,
    activations: Vec<Activation>,
    /// The linear layer after PinSAGE's last convolution, whose result cannot be logits.
    pub(super) head: Option<LinearLayer>,
    pub(super) jump: Option<Jump>,
    decoder: Option<LinkDecoder>,
    parameters: Parameters,
}

#[derive(Debug)]
pub(super) enum Residual {
    None,
    Identity,
    Projection(Tensor),
}

impl Model {
    /// Makes a model whose initial parameters are a function of the seed.
    ///
    /// # Errors
    /// If such a model cannot exist; see [`ModelOptions::check`].
    pub fn new(options: ModelOptions, seed: u64, device: Device) -> Result<Self> {
        options.check()?;
        let mut builder = Builder::new(seed, device);
        let last = options.layers - 1;
        // PinSAGE's rows are not negative and have length 1, so they cannot be logits.
        let jumps = options.jumping_knowledge != JumpingKnowledge::None;
        let has_head = options.layer == LayerKind::PinSage && !jumps;
        // The layers that norm, nonlinearity and dropout follow.
        let inner_layers = if jumps { options.layers } else { last };
        let mut layers = Vec::new();
        let mut norms = Vec::new();
        let mut residuals = Vec::new();
        let mut activations = Vec::new();
        let features = Normalization::new(&mut builder, options.features, options.inputs as i64);
        for index in 0..options.layers {
            let is_output = index == last && !has_head && !jumps;
            let inputs = if index == 0 { options.inputs } else { options.hidden } as i64;
            let outputs = if is_output { options.outputs } else { options.hidden } as i64;
            layers.push(
                builder.scope(&format!("layers.{index}"), |builder| layer(&options, builder, inputs, outputs, index)),
            );
            let inner = index < inner_layers;
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
        for index in 0..inner_layers {
            let scope = format!("activations.{index}");
            activations.push(builder.scope(&scope, |builder| Activation::new(builder, options.activation)));
        }
        let head = has_head.then(|| {
            let sizes = [options.hidden as i64, options.outputs as i64];
            LinearLayer::of_pytorch(&mut builder, "head", sizes)
        });
        let jump = Jump::new(&mut builder, &options);
        let targets = options.standardizes_targets.then(|| {
            let shape = [options.outputs as i64];
            [builder.buffer("target_mean", &shape, 0.0), builder.buffer("target_deviation", &shape, 1.0)]
        });
        let decoder = options
            .decoder
            .map(|decoder| builder.scope("decoder", |builder| LinkDecoder::new(builder, decoder, options.outputs)));
        Ok(Self {
            options,
            features,
            targets,
            layers,
            norms,
            residuals,
            activations,
            head,
            jump,
            decoder,
            parameters: builder.finish(),
        })
    }

    /// The shape of the model.
    pub fn options(&self) -> &ModelOptions {
        &self.options
    }

    /// Its parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The decoder of links between nodes whose outputs are embeddings.
    pub fn decoder(&self) -> Option<&LinkDecoder> {
        self.decoder.as_ref()
    }

    /// The mean and the standard deviation of each feature, f32 of `[inputs]`, if the model standardizes features.
    pub(crate) fn feature_moments(&self) -> Option<(&Tensor, &Tensor)> {
        match &self.features {
            Normalization::Standard { mean, deviation } => Some((mean, deviation)),
            Normalization::None | Normalization::Row => None,
        }
    }

    /// The mean and the standard deviation of each target, f32 of `[outputs]`, if outputs are targets.
    pub(crate) fn target_moments(&self) -> Option<(&Tensor, &Tensor)> {
        self.targets.as_ref().map(|[mean, deviation]| (mean, deviation))
    }

    /// The scale of scores of targets with a loss. None if outputs are no targets.
    pub fn target_scale(&self, loss: TargetLoss) -> Option<TargetScale> {
        let [means, deviations] = self.targets.as_ref()?.each_ref().map(|buffer| {
            let values = buffer.to_device(Device::Cpu).to_kind(Kind::Float);
            Vec::<f32>::try_from(values).expect("a buffer has one dimension")
        });
        Some(TargetScale { means, deviations, loss })
    }

    /// The values of the last layer as the outputs of the model: targets in their unit.
    pub(super) fn in_unit(&self, outputs: Tensor) -> Tensor {
        match &self.targets {
            Some([mean, deviation]) => outputs * deviation + mean,
            None => outputs,
        }
    }

    /// Features as the first layer takes them; none if it takes them as the store has them. [`Model::forward`] normalizes by itself.
    pub(crate) fn normalized<'a>(&self, features: &'a dyn NodeRows) -> Option<ChangedRows<'a>> {
        self.features.of_rows(features)
    }

    /// The aggregation of a layer.
    pub fn aggregate(&self, layer: usize) -> Aggregate {
        self.layers[layer].aggregate()
    }

    /// Whether the first layer aggregates the features of the store, so that the aggregates can be computed before training:
    /// [`Input::Aggregated`].
    pub fn takes_aggregated_input(&self) -> bool {
        let takes_stored = self.options.features == FeatureNorm::None && self.options.input_dropout == 0.0;
        takes_stored
            && self.options.edges.features() == 0
            && matches!(self.aggregate(0), Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn | Aggregate::Max)
    }

    /// Features as the first layer takes them, from features as the store has them. They are the same in each pass.
    pub fn normalized_features(&self, rows: &Tensor) -> Tensor {
        self.features.apply(rows).to_kind(self.kind())
    }

    /// Logits of the seeds, or predicted targets in their unit, f32 of `[seeds, outputs]`.
    ///
    /// `blocks` are the blocks of a minibatch, seeds first: one per layer, or one less with [`Input::Aggregated`]. `historical` is empty,
    /// or has the historical embeddings for each block.
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
        assert!(historical.is_empty() || historical.len() == blocks.len(), "historical embeddings are per block");
        let kind = self.kind();
        let (mut hidden, first) = match input {
            Input::Features(rows) => (self.input_states(&self.normalized_features(rows), &pass), 0),
            Input::NormalizedFeatures(rows) => (self.input_states(rows, &pass), 0),
            Input::Aggregated { own, neighbors, degrees } => {
                assert!(
                    self.takes_aggregated_input(),
                    "the first layer takes the features of neighbors, not their aggregates"
                );
                let operands = Operands::Apart(&own.to_kind(kind), &neighbors.to_kind(kind), degrees);
                (self.step_of(0, operands, Some((&pass, RowsOf::Inputs))), 1)
            }
            Input::Combined(rows) => (self.step_of(0, Operands::Combined(rows), Some((&pass, RowsOf::Inputs))), 1),
        };
        assert_eq!(
            blocks.len() + first,
            count,
            "a block for each layer, but for a first one whose aggregates are known"
        );
        // The rows of seeds are the first; all rows, if there is no block.
        let seeds = blocks.first().map_or(hidden.size()[0], |block| block.destinations() as i64);
        let mut carried = None;
        for layer in 0..count {
            if layer >= first {
                let hop = count - 1 - layer;
                let historical = historical.get(hop).and_then(Option::as_ref);
                let followed = historical.and_then(|historical| self.follow(layer, historical, &pass));
                let historical = followed.as_ref().or(historical);
                hidden = self.convolve(layer, &blocks[hop], &hidden, historical, &pass);
            }
            if let Some(jump) = &self.jump {
                carried = Some(jump.carry(layer, &hidden.narrow(0, 0, seeds), carried.as_ref()));
            }
        }
        self.outputs(&self.jump.as_ref().zip(carried).map_or(hidden, |(jump, carried)| jump.logits(&carried)))
    }

    /// The states at the input of the first layer, with the dropout of a pass, from [`Model::normalized_features`].
    pub fn input_states(&self, normalized: &Tensor, pass: &Pass) -> Tensor {
        let dropout = dropout(self.options.input_dropout, Some((pass, RowsOf::Inputs)), INPUT_DROPOUT);
        apply(normalized, Epilogue { relu: false, dropout })
    }

    /// A layer of a pass without jumping knowledge: the states that it makes of the destinations of a block, `[destinations, outputs]`.
    /// `sources` are the states of the sources, `[sources, inputs]`.
    pub fn convolve(
        &self,
        layer: usize,
        block: &Block,
        sources: &Tensor,
        historical: Option<&HistoricalEmbeddings>,
        pass: &Pass,
    ) -> Tensor {
        let destination_dropout = Some((pass, RowsOf::Destinations));
        let (own, aggregated) = self.layers[layer].neighbors(Hop {
            block,
            sources,
            scaling: pass.scaling,
            historical,
            dropout: dropout(self.options.attention_dropout, destination_dropout, ATTENTION_DROPOUT + layer as u64),
            wants_own: !matches!(self.residuals[layer], Residual::None),
        });
        let degrees = (self.aggregate(layer) == Aggregate::Gcn).then(|| block.destination_degrees());
        self.step_of(layer, Operands::Apart(&own, &aggregated, degrees), destination_dropout)
    }

    /// Logits, or predicted targets in their unit, f32, from what the last layer makes.
    pub fn outputs(&self, states: &Tensor) -> Tensor {
        self.in_unit(float(states))
    }

    pub(super) fn kind(&self) -> Kind {
        match self.options.precision {
            Precision::F32 => Kind::Float,
            Precision::Bf16 => Kind::BFloat16,
        }
    }

    /// A layer after its aggregation: the update, and the residual, norm and nonlinearity that follow it. Without dropout.
    pub(super) fn step(&self, layer: usize, operands: Operands<'_>) -> Tensor {
        self.step_of(layer, operands, None)
    }

    /// As [`Model::step`], with the dropout of a pass.
    fn step_of(&self, layer: usize, operands: Operands<'_>, pass: Option<(&Pass, RowsOf)>) -> Tensor {
        let convolution = &*self.layers[layer];
        if layer == self.layers.len() - 1 && self.jump.is_none() {
            let result = operands.update(convolution, Epilogue::NONE);
            return match &self.head {
                None => result,
                Some(head) => head.apply(&result, Epilogue::NONE),
            };
        }
        let activation = &self.activations[layer];
        let epilogue = Epilogue { relu: true, dropout: dropout(self.options.dropout, pass, layer as u64) };
        match (&self.residuals[layer], &self.norms[layer], activation.is_relu()) {
            (Residual::None, None, true) => operands.update(convolution, epilogue),
            (residual, norm, _) => {
                let mut sum = operands.update(convolution, Epilogue::NONE);
                match residual {
                    Residual::None => {}
                    Residual::Identity => sum += operands.own(),
                    Residual::Projection(weight) => sum += linear(&[(operands.own(), weight)], None, Epilogue::NONE),
                }
                let normal = match norm {
                    None => sum,
                    Some(norm) => norm.apply(&sum, pass.is_some_and(|(pass, _)| pass.training.is_some())),
                };
                activation.apply(&normal, epilogue)
            }
        }
    }
}

/// The dropout of the rows of a pass, if it has one. `place` tells the masks of a pass apart: that after layer N has place N.
fn dropout(probability: f64, pass: Option<(&Pass, RowsOf)>, place: u64) -> Option<Dropout> {
    let (pass, rows_of) = pass.filter(|_| probability > 0.0)?;
    let names = pass.names.as_ref().map(|names| match rows_of {
        RowsOf::Inputs => &names.inputs,
        RowsOf::Destinations => &names.destinations,
    });
    Some(Dropout { probability, key: random::combine(pass.training?, random::mix(place)), names: names.cloned() })
}

fn layer(options: &ModelOptions, builder: &mut Builder, inputs: i64, outputs: i64, index: usize) -> Box<dyn Layer> {
    let heads = options.heads_of(index) as i64;
    let last = index + 1 == options.layers && options.jumping_knowledge == JumpingKnowledge::None;
    let (widths, features) = ([inputs, options.hidden as i64, outputs], options.edges.features());
    let has_norm = options.norm != NormKind::None;
    match options.layer {
        LayerKind::Sage => Box::new(Sage::new(builder, Aggregate::Mean, inputs, outputs)),
        LayerKind::SageMax => Box::new(Sage::new(builder, Aggregate::Max, inputs, outputs)),
        LayerKind::Gcn => Box::new(Gcn::new(builder, inputs, outputs)),
        LayerKind::Gat => Box::new(Gat::new(builder, inputs, outputs, heads, last)),
        LayerKind::Gatv2 => Box::new(Gatv2::new(builder, [inputs, outputs], heads, last, features)),
        LayerKind::Gin => Box::new(Gin::new(builder, widths, has_norm)),
        LayerKind::Gine => Box::new(Gine::new(builder, widths, has_norm, features)),
        LayerKind::Transformer => Box::new(Transformer::new(builder, [inputs, outputs], heads, last, features)),
        LayerKind::PinSage => Box::new(PinSage::new(builder, inputs, outputs)),
    }
}
