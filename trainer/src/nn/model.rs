//! Models: stacks of layers.

use std::slice;

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
    layer_shape::{LayerShape, module_key},
    layers::{Hop, Layer, RelationHop},
    linear::{Dropout, Epilogue, LinearLayer, apply, float, linear},
    norm::Norm,
    parameters::{Builder, Parameters, Start},
    pass::{Pass, RowsOf},
};
use crate::Result;

/// The places of dropouts that do not follow a layer; see [`dropout`]. That of layer N's attention is N after the first.
const INPUT_DROPOUT: u64 = 1 << 33;
const ATTENTION_DROPOUT: u64 = 1 << 34;

/// The input of the first layer: rows of each node type, in the order of types.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// Features of the last blocks' sources, `[sources, inputs]`, as the store has them.
    Features(&'a [Tensor]),
    /// The same after [`Model::normalized_features`].
    NormalizedFeatures(&'a [Tensor]),
    /// Features and their aggregates (pre-aggregated features). The first layer then has no block. The model must not normalize
    /// features, and has no dropout of them.
    Aggregated {
        /// Features of the last blocks' sources, `[nodes, inputs]`.
        own: &'a [Tensor],
        /// For each relation, aggregates of the features of the in-neighbors of its destinations' type, by [`Model::reduction`],
        /// `[nodes, inputs]`.
        neighbors: &'a [Tensor],
        /// In-degrees in the whole graph, f32 of `[nodes]`; only GCN needs them.
        degrees: Option<&'a Tensor>,
    },
    /// [`Model::combined`] of features and their aggregates. The first layer then has no block.
    Combined(&'a Tensor),
}

impl<'a> Input<'a> {
    /// Features of the nodes of a graph without types.
    pub fn features(rows: &'a Tensor) -> Self {
        Self::Features(slice::from_ref(rows))
    }
}

/// Operands of a layer's update.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operands<'a> {
    /// The states of the nodes, for each relation the aggregates of their in-neighbors' messages, and their in-degrees for GCN.
    Apart(&'a Tensor, &'a [Tensor], Option<&'a Tensor>),
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

/// The states of the nodes of each type, at the input of a layer. None for types that have none.
type States = Vec<Option<Tensor>>;

/// A stack of graph convolutions.
///
/// Each layer but the last is `dropout(activation(norm(convolution + residual)))`. The last is the convolution alone, and its result
/// are the logits. The first takes `dropout(normalized features)`.
///
/// In a graph with types, a layer is a convolution for each type, of the relations into it. States, norms, residuals and activations are by
/// type. The outputs are of the nodes of one type, or, if links of a relation are predicted, of both types that it joins: first the rows of
/// the sources' type, then those of the destinations' type.
///
/// Parameters have the names of a PyTorch module with four `ModuleList`s: `layers` with PyTorch Geometric's convolutions, `norms`
/// with BatchNorm1d or LayerNorm, `residuals` with Linear without bias, or Identity where widths agree, and `activations`, where only
/// PReLU has a parameter. Examples are `layers.0.lin_l.weight`, `norms.0.weight` and `residuals.0.weight`. In a graph with types, the
/// modules of a layer are in a ModuleDict with the names of types, and its convolutions in a HeteroConv, an RGCNConv or an HGTConv.
/// `projections` are the Linear of each type before the layers of R-GCN and HGT. PinSAGE and HGT have one more Linear for the logits,
/// `head`. With jumping knowledge every layer is like the first ones, and `head` is the linear layer after them.
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
    /// The normalization of each type's features.
    features: Vec<Normalization>,
    /// The linear layer of each type's features, if there are any.
    projections: Vec<LinearLayer>,
    /// Buffers: the mean and the standard deviation of each target, f32 of `[outputs]`, if outputs are targets.
    targets: Option<[Tensor; 2]>,
    /// For each layer, its part for each type. None for types whose states nobody needs.
    layers: Vec<Vec<Option<TypeLayer>>>,
    /// The type of each relation's sources.
    sources: Vec<usize>,
    /// The types whose nodes get outputs, in their order.
    output_types: Vec<usize>,
    /// The linear layer after the last convolution of PinSAGE and HGT, whose result is no row of logits.
    pub(super) head: Option<LinearLayer>,
    pub(super) jump: Option<Jump>,
    decoder: Option<LinkDecoder>,
    parameters: Parameters,
}

/// A layer's part for a node type.
#[derive(Debug)]
pub(super) struct TypeLayer {
    /// The relations that it aggregates.
    pub(super) relations: Vec<usize>,
    pub(super) convolution: Box<dyn Layer>,
    norm: Option<Norm>,
    pub(super) residual: Residual,
    activation: Option<Activation>,
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
        let graph = options.graph().into_owned();
        let has_types = options.graph.is_some();
        // The name of a module, and in a graph with types that of the part for a type.
        let part_name = |module: &str, node_type: usize| match has_types {
            false => module.to_owned(),
            true => format!("{module}.{}", module_key(&graph.node_types[node_type].name)),
        };
        let last = options.layers - 1;
        let jumps = options.jumping_knowledge != JumpingKnowledge::None;
        // PinSAGE's rows are not negative and have length 1, so they cannot be logits. HGT adds its input to its results, which have the same
        // width.
        let has_head = matches!(options.layer, LayerKind::PinSage | LayerKind::Hgt) && !jumps;
        // The layers that norm, nonlinearity and dropout follow.
        let inner_layers = if jumps { options.layers } else { last };
        let types = 0..graph.node_types.len();
        let features = types.clone().map(|node_type| {
            // Ages and embeddings stay as they are.
            let inputs = graph.node_types[node_type].features() as i64;
            let new = |builder: &mut Builder| Normalization::new(builder, options.features, inputs);
            match has_types {
                false => new(&mut builder),
                true => builder.scope(&part_name("features", node_type), new),
            }
        });
        let features = features.collect();
        let projections = types.clone().filter(|_| options.layer.projects_inputs()).map(|node_type| {
            let widths = [graph.node_types[node_type].inputs, options.hidden].map(|width| width as i64);
            LinearLayer::of_pytorch(&mut builder, &part_name("projections", node_type), widths)
        });
        let projections = projections.collect();
        let mut layers = Vec::new();
        for (index, relations) in options.relations_of_layers().into_iter().enumerate() {
            let is_output = index == last && !has_head && !jumps;
            let widths = types.clone().map(|node_type| match index == 0 && !options.layer.projects_inputs() {
                true => graph.node_types[node_type].inputs as i64,
                false => options.hidden as i64,
            });
            let widths: Vec<i64> = widths.collect();
            let outputs = if is_output { options.outputs } else { options.hidden } as i64;
            let shape = LayerShape { options: &options, graph: &graph, widths: &widths, outputs, index };
            let convolutions =
                builder.scope(&format!("layers.{index}"), |builder| shape.convolutions(builder, &relations));
            let inner = index < inner_layers;
            let mut parts = Vec::new();
            for (node_type, (relations, convolution)) in relations.into_iter().zip(convolutions).enumerate() {
                let Some((relations, convolution)) = relations.zip(convolution) else {
                    parts.push(None);
                    continue;
                };
                let norm = builder.scope(&part_name(&format!("norms.{index}"), node_type), |builder| {
                    Norm::new(builder, if inner { options.norm } else { NormKind::None }, outputs)
                });
                let inputs = widths[node_type];
                let residual = match (inner && options.residual, inputs == outputs) {
                    (false, _) => Residual::None,
                    (true, true) => Residual::Identity,
                    (true, false) => builder.scope(&part_name(&format!("residuals.{index}"), node_type), |builder| {
                        Residual::Projection(builder.parameter("weight", &[outputs, inputs], Start::linear(inputs)))
                    }),
                };
                parts.push(Some(TypeLayer { relations, convolution, norm, residual, activation: None }));
            }
            layers.push(parts);
        }
        for (index, parts) in layers.iter_mut().enumerate().take(inner_layers) {
            for (node_type, part) in parts.iter_mut().enumerate() {
                let Some(part) = part else { continue };
                let scope = part_name(&format!("activations.{index}"), node_type);
                part.activation = Some(builder.scope(&scope, |builder| Activation::new(builder, options.activation)))
                    // Its nonlinearity is within the layer.
                    .filter(|_| options.layer != LayerKind::Hgt);
            }
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
            sources: graph.relations.iter().map(|relation| relation.source).collect(),
            output_types: graph.output_types(),
            options,
            features,
            projections,
            targets,
            layers,
            head,
            jump,
            decoder,
            parameters: builder.finish(),
        })
    }

    /// The part of a layer for a type.
    pub(super) fn type_layer(&self, layer: usize, node_type: usize) -> Option<&TypeLayer> {
        self.layers[layer][node_type].as_ref()
    }

    /// Whether features of a node are divided by their sum.
    pub(super) fn normalizes_rows(&self) -> bool {
        matches!(self.features[0], Normalization::Row)
    }

    /// The inputs of a type as the first layer takes them, from features, ages and embeddings. Only features are normalized.
    pub(super) fn normalized_of(&self, node_type: usize, rows: &Tensor) -> Tensor {
        let others = self.options.graph.as_ref().map_or(0, |graph| {
            let own = &graph.node_types[node_type];
            (own.ages + own.embedding) as i64
        });
        let features = rows.size()[1] - others;
        let normalized = match others {
            0 => self.features[node_type].apply(rows),
            _ if features == 0 || matches!(self.features[node_type], Normalization::None) => rows.shallow_clone(),
            _ => {
                let parts =
                    [self.features[node_type].apply(&rows.narrow(1, 0, features)), rows.narrow(1, features, others)];
                Tensor::cat(&parts, 1)
            }
        };
        normalized.to_kind(self.kind())
    }

    /// The part of a layer for the first type whose nodes get outputs; all of it in a graph without types.
    pub(super) fn layer(&self, index: usize) -> &TypeLayer {
        self.layers[index][self.output_types[0]].as_ref().expect("outputs depend on it")
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

    /// The mean and the standard deviation of each feature of a type, f32 of `[inputs]`, if the model standardizes features.
    pub(crate) fn feature_moments(&self, node_type: usize) -> Option<(&Tensor, &Tensor)> {
        match &self.features[node_type] {
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
        self.features[self.output_types[0]].of_rows(features)
    }

    /// The aggregation of a layer.
    pub fn aggregate(&self, layer: usize) -> Aggregate {
        self.layer(layer).convolution.aggregate()
    }

    /// Whether the first layer aggregates the features of the store, so that the aggregates can be computed before training:
    /// [`Input::Aggregated`].
    pub fn takes_aggregated_input(&self) -> bool {
        let takes_stored = self.options.features == FeatureNorm::None && self.options.input_dropout == 0.0;
        takes_stored
            && self.projections.is_empty()
            && self.options.edges.features() == 0
            && matches!(self.aggregate(0), Aggregate::Mean | Aggregate::Sum | Aggregate::Gcn | Aggregate::Max)
    }

    /// Features of each type as the first layer takes them, from features as the store has them. They are the same in each pass.
    pub fn normalized_features(&self, rows: &[Tensor]) -> Vec<Tensor> {
        rows.iter().enumerate().map(|(node_type, rows)| self.normalized_of(node_type, rows)).collect()
    }

    /// Logits of the seeds, or predicted targets in their unit, f32 of `[seeds, outputs]`. Seeds of two types follow each other.
    ///
    /// `blocks` are the blocks of a minibatch, seeds first: one hop per layer, or one less with [`Input::Aggregated`]. A hop has a block for
    /// each relation. `historical` is empty, or has the historical embeddings for each hop.
    ///
    /// # Panics
    /// If shapes or numbers disagree.
    pub fn forward(
        &self,
        blocks: &[Vec<Block>],
        input: Input<'_>,
        historical: &[Option<HistoricalEmbeddings>],
        pass: Pass,
    ) -> Tensor {
        let count = self.layers.len();
        assert!(historical.is_empty() || historical.len() == blocks.len(), "historical embeddings are per hop");
        let (mut states, first) = match input {
            Input::Features(rows) => (self.input_of_types(&self.normalized_features(rows), &pass), 0),
            Input::NormalizedFeatures(rows) => (self.input_of_types(rows, &pass), 0),
            Input::Aggregated { own, neighbors, degrees } => {
                assert!(
                    self.takes_aggregated_input(),
                    "the first layer takes the features of neighbors, not their aggregates"
                );
                (self.after_aggregation(own, neighbors, degrees, &pass), 1)
            }
            Input::Combined(rows) => {
                let made = self.step_of(0, 0, Operands::Combined(rows), Some((&pass, RowsOf::Inputs)));
                (vec![Some(made)], 1)
            }
        };
        assert_eq!(blocks.len() + first, count, "a hop for each layer, but for a first one whose aggregates are known");
        let mut carried = None;
        for layer in 0..count {
            if layer >= first {
                let hop = count - 1 - layer;
                let historical = historical.get(hop).and_then(Option::as_ref);
                let followed = historical.and_then(|historical| self.follow(layer, historical, &pass));
                let historical = followed.as_ref().or(historical);
                states = self.states_after(layer, &blocks[hop].iter().collect::<Vec<_>>(), &states, historical, &pass);
            }
            if let Some(jump) = &self.jump {
                let own =
                    states[self.output_types[0]].as_ref().expect("jumping knowledge needs the states of all layers");
                // The rows of seeds are the first; all rows, if there is no block.
                let seeds = blocks.first().map_or(own.size()[0], |blocks| blocks[0].destinations() as i64);
                carried = Some(jump.carry(layer, &own.narrow(0, 0, seeds), carried.as_ref()));
            }
        }
        if let Some((jump, carried)) = self.jump.as_ref().zip(carried) {
            return self.outputs(&jump.logits(&carried));
        }
        let mut of_type = |&node_type: &usize| states[node_type].take().expect("the last layer makes the outputs");
        match &self.output_types[..] {
            [only] => self.outputs(&of_type(only)),
            several => self.outputs(&Tensor::cat(&several.iter().map(of_type).collect::<Vec<_>>(), 0)),
        }
    }

    /// The states after the first layer, whose aggregates are known.
    fn after_aggregation(&self, own: &[Tensor], neighbors: &[Tensor], degrees: Option<&Tensor>, pass: &Pass) -> States {
        let kind = self.kind();
        let of_type = |node_type: usize| {
            let part = self.layers[0][node_type].as_ref()?;
            let aggregated: Vec<Tensor> =
                part.relations.iter().map(|&relation| neighbors[relation].to_kind(kind)).collect();
            let own = own[node_type].to_kind(kind);
            let operands = Operands::Apart(&own, &aggregated, degrees);
            Some(self.step_of(0, node_type, operands, Some((pass, RowsOf::Inputs))))
        };
        (0..self.features.len()).map(of_type).collect()
    }

    /// The states at the input of the first layer, with the dropout of a pass, from [`Model::normalized_features`].
    fn input_of_types(&self, normalized: &[Tensor], pass: &Pass) -> States {
        let of_type = |(node_type, rows): (usize, &Tensor)| {
            let place = PassRows { pass, node_type, rows_of: RowsOf::Inputs };
            let dropout = dropout(self.options.input_dropout, Some(place), INPUT_DROPOUT);
            let rows = apply(rows, Epilogue { relu: false, dropout });
            Some(self.projected(node_type, &rows))
        };
        normalized.iter().enumerate().map(of_type).collect()
    }

    /// Features of a type after its linear layer, if there is one, and HGT's ReLU.
    pub(super) fn projected(&self, node_type: usize, rows: &Tensor) -> Tensor {
        let epilogue = if self.options.layer == LayerKind::Hgt { Epilogue::RELU } else { Epilogue::NONE };
        self.projections.get(node_type).map_or_else(|| rows.shallow_clone(), |layer| layer.apply(rows, epilogue))
    }

    /// The states at the input of the first layer of a model without types, with the dropout of a pass, from
    /// [`Model::normalized_features`].
    pub fn input_states(&self, normalized: &Tensor, pass: &Pass) -> Tensor {
        let states = self.input_of_types(slice::from_ref(normalized), pass);
        states.into_iter().next().flatten().expect("it has one type")
    }

    /// A layer of a pass of a model without types and jumping knowledge: the states that it makes of the destinations of a block,
    /// `[destinations, outputs]`. `sources` are the states of the sources, `[sources, inputs]`.
    pub fn convolve(
        &self,
        layer: usize,
        block: &Block,
        sources: &Tensor,
        historical: Option<&HistoricalEmbeddings>,
        pass: &Pass,
    ) -> Tensor {
        let states = vec![Some(sources.shallow_clone())];
        let made = self.states_after(layer, &[block], &states, historical, pass);
        made.into_iter().next().flatten().expect("it has one type")
    }

    /// The states after a layer. `blocks` are of each relation.
    fn states_after(
        &self,
        layer: usize,
        blocks: &[&Block],
        states: &States,
        historical: Option<&HistoricalEmbeddings>,
        pass: &Pass,
    ) -> States {
        let of_type = |node_type: usize| {
            let part = self.layers[layer][node_type].as_ref()?;
            let own = states[node_type].as_ref()?;
            let relations = part.relations.iter().map(|&relation| RelationHop {
                block: blocks[relation],
                sources: states[self.sources[relation]].as_ref().expect("relations of a layer have sources"),
            });
            let place = Some(PassRows { pass, node_type, rows_of: RowsOf::Destinations });
            let (own, aggregated) = part.convolution.neighbors(Hop {
                own,
                relations: relations.collect(),
                scaling: pass.scaling,
                historical,
                dropout: dropout(self.options.attention_dropout, place, ATTENTION_DROPOUT + layer as u64),
                wants_own: !matches!(part.residual, Residual::None),
            });
            let is_gcn = part.convolution.aggregate() == Aggregate::Gcn;
            let degrees = is_gcn.then(|| blocks[part.relations[0]].destination_degrees());
            Some(self.step_of(
                layer,
                node_type,
                Operands::Apart(&own, &aggregated, degrees),
                place.map(PassRows::parts),
            ))
        };
        (0..states.len()).map(of_type).collect()
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

    /// A layer of a model without types after its aggregation: the update, and the residual, norm and nonlinearity that follow it. Without
    /// dropout.
    pub(super) fn step(&self, layer: usize, operands: Operands<'_>) -> Tensor {
        self.step_of(layer, self.output_types[0], operands, None)
    }

    /// As [`Model::step`], for a node type, with the dropout of a pass.
    pub(super) fn step_of(
        &self,
        layer: usize,
        node_type: usize,
        operands: Operands<'_>,
        pass: Option<(&Pass, RowsOf)>,
    ) -> Tensor {
        let part = self.layers[layer][node_type].as_ref().expect("somebody needs the states");
        let convolution = &*part.convolution;
        if layer == self.layers.len() - 1 && self.jump.is_none() {
            let result = operands.update(convolution, Epilogue::NONE);
            return match &self.head {
                None => result,
                Some(head) => head.apply(&result, Epilogue::NONE),
            };
        }
        let place = pass.map(|(pass, rows_of)| PassRows { pass, node_type, rows_of });
        let dropout = dropout(self.options.dropout, place, layer as u64);
        let is_relu = part.activation.as_ref().is_some_and(Activation::is_relu);
        let epilogue = Epilogue { relu: is_relu, dropout };
        match (&part.residual, &part.norm, &part.activation) {
            (Residual::None, None, activation) if is_relu || activation.is_none() => {
                operands.update(convolution, epilogue)
            }
            (residual, norm, activation) => {
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
                match activation {
                    None => apply(&normal, epilogue),
                    Some(activation) => activation.apply(&normal, epilogue),
                }
            }
        }
    }
}

/// Rows of a pass that dropout may change.
#[derive(Debug, Clone, Copy)]
struct PassRows<'a> {
    pass: &'a Pass,
    node_type: usize,
    rows_of: RowsOf,
}

impl<'a> PassRows<'a> {
    fn parts(self) -> (&'a Pass, RowsOf) {
        (self.pass, self.rows_of)
    }
}

/// The dropout of the rows of a pass, if it has one. `place` tells the masks of a pass apart: that after layer N has place N.
fn dropout(probability: f64, rows: Option<PassRows<'_>>, place: u64) -> Option<Dropout> {
    let PassRows { pass, node_type, rows_of } = rows.filter(|_| probability > 0.0)?;
    let names = pass.names.as_ref().map(|names| names.of(node_type, rows_of));
    Some(Dropout { probability, key: random::combine(pass.training?, random::mix(place)), names })
}
