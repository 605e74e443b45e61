//! The shape of a model: kinds of layers, norms and numbers, and sizes. `grappa_trainer::nn` builds models of this
//! shape.

mod graph;
mod time_encoding;

use std::borrow::Cow;

use grappa_formats::manifest::LabelKind;
use grappa_sampling::EdgeValues;
use serde::{Deserialize, Serialize};

pub use self::{
    graph::{ModelGraph, ModelNodeType, ModelRelation, ModelTarget},
    time_encoding::TimeEncoding,
};
use crate::{Error, Result, names::named_enums};

named_enums! {
    /// The kind of a model's layers: GraphSAGE (Hamilton, Ying, Leskovec, 2017), GCN (Kipf, Welling, 2017), GAT
    /// (Veličković et al., 2018), GATv2 (Brody, Alon, Yahav, 2022), GIN (Xu, Hu, Leskovec, Jegelka, 2019), GINE
    /// (Hu et al., 2020), the transformer (Shi et al., 2021), PinSAGE (Ying et al., 2018), whose blocks have edge weights. The last four
    /// have weights for each relation of a graph with types: R-GCN (Schlichtkrull et al., 2018), HGT (Hu et al., 2020).
    "model" LayerKind {
        /// GraphSAGE, mean of the neighbors (PyTorch Geometric's SAGEConv)
        Sage = "sage",
        /// GraphSAGE, maximum of the neighbors
        SageMax = "sage-max",
        /// GCN (GCNConv)
        Gcn = "gcn",
        /// GAT (GATConv)
        Gat = "gat",
        /// GATv2 (GATv2Conv)
        Gatv2 = "gatv2",
        /// GIN (GINConv)
        Gin = "gin",
        /// GIN with features of edges (GINEConv)
        Gine = "gine",
        /// attention by dot products, with features of edges if there are any (TransformerConv)
        Transformer = "transformer",
        /// PinSAGE: neighbors by random walks, weighted by visits
        PinSage = "pinsage",
        /// graphs with types: GraphSAGE for each relation, added up (HeteroConv of SAGEConv)
        Rsage = "rsage",
        /// graphs with types: R-GCN on projected features, with a matrix for each relation (RGCNConv)
        Rgcn = "rgcn",
        /// graphs with types: GAT for each relation, added up (HeteroConv of GATConv)
        Rgat = "rgat",
        /// graphs with types: the heterogeneous graph transformer (HGTConv)
        Hgt = "hgt",
    }

    /// The combination of a node's results over the relations into its type: `aggr` of PyTorch Geometric's HeteroConv.
    "combination of relations" RelationAggregate {
        /// their sum
        Sum = "sum",
        /// their mean
        Mean = "mean",
    }

    /// The normalization after each layer but the last: over the nodes of a minibatch (Ioffe, Szegedy, 2015; PyTorch's
    /// BatchNorm1d, with momentum 0.1), or over the values of a node (Ba, Kiros, Hinton, 2016; PyTorch Geometric's
    /// LayerNorm with `mode="node"`).
    "norm" NormKind {
        /// no normalization
        None = "none",
        /// batch normalization (BatchNorm1d)
        Batch = "batch",
        /// layer normalization (LayerNorm)
        Layer = "layer",
    }

    /// The nonlinearity after each layer but the last. Each is PyTorch's with its default arguments.
    "activation" Activation {
        /// ReLU
        Relu = "relu",
        /// ELU
        Elu = "elu",
        /// GELU
        Gelu = "gelu",
        /// leaky ReLU with slope 0.01
        LeakyRelu = "leaky-relu",
        /// PReLU: leaky ReLU with a learned slope per layer, which starts at 0.25
        Prelu = "prelu",
    }

    /// How the states of all layers make the logits (Xu et al.: "Representation Learning on Graphs with Jumping
    /// Knowledge Networks", 2018). As in PyTorch Geometric's models, every layer then has the hidden dimension, and a
    /// linear layer follows.
    "jumping knowledge" JumpingKnowledge {
        /// the last layer makes them
        None = "none",
        /// a linear layer on the largest state of all layers, value by value
        Max = "max",
        /// a linear layer on the states of all layers, concatenated
        Cat = "cat",
    }

    /// The normalization of features before the first layer: none, PyTorch Geometric's NormalizeFeatures (for features
    /// that are not negative), or scikit-learn's StandardScaler.
    "normalization of features" FeatureNorm {
        /// as they are in the store
        None = "none",
        /// divide the features of a node by the sum of their magnitudes
        Row = "row",
        /// mean 0 and variance 1 for each feature over all nodes of the store; predictions on another store use the
        /// same means and variances
        Standard = "standard",
    }

    /// The type of numbers that a model computes with. Norms and losses are always computed in f32.
    "precision" Precision {
        /// 32-bit float
        F32 = "f32",
        /// bfloat16 for activations and products, 32-bit float for parameters, gradients and sums
        Bf16 = "bf16",
    }

    /// The score of a link from the embeddings of its ends. DistMult: Yang et al., "Embedding Entities and Relations for Learning and
    /// Inference in Knowledge Bases", 2015.
    "decoder" Decoder {
        /// dot product
        Dot = "dot",
        /// cosine of the angle, from -1 to 1
        Cosine = "cosine",
        /// dot product with a learned weight for each value
        DistMult = "distmult",
        /// perceptron with a hidden layer on the product of each value
        Mlp = "mlp",
        /// product of complex numbers, with a row for each relation; for --layers 0
        ComplEx = "complex",
        /// distance after a rotation of complex numbers by the angles of the relation; for --layers 0
        RotatE = "rotate",
        /// distance after a translation by the row of the relation; for --layers 0
        TransE = "transe",
    }
}

impl RelationAggregate {
    /// The factor of each of some relations in their sum.
    pub fn factor(self, relations: usize) -> f64 {
        match self {
            Self::Sum => 1.0,
            Self::Mean => 1.0 / relations as f64,
        }
    }

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl LayerKind {
    /// Whether layers of this kind have attention heads.
    pub fn attends(self) -> bool {
        matches!(self, Self::Gat | Self::Gatv2 | Self::Transformer | Self::Rgat | Self::Hgt)
    }

    /// Whether layers of this kind have weights for each relation of a graph with types.
    pub fn is_relational(self) -> bool {
        matches!(self, Self::Rsage | Self::Rgcn | Self::Rgat | Self::Hgt)
    }

    /// Whether the layers take the features of each type after a linear layer, which gives all types the hidden dimension.
    pub fn projects_inputs(self) -> bool {
        matches!(self, Self::Rgcn | Self::Hgt)
    }

    /// Whether layers of this kind take the ages of edges: as features of edges, or for each relation.
    pub fn takes_edge_ages(self) -> bool {
        self.edge_values() == EdgeValues::Features || matches!(self, Self::Rsage | Self::Rgat)
    }

    /// The values of edges that layers of this kind can take.
    pub fn edge_values(self) -> EdgeValues {
        match self {
            Self::Sage | Self::Gcn | Self::Gin => EdgeValues::Weight,
            Self::Gatv2 | Self::Gine | Self::Transformer => EdgeValues::Features,
            Self::SageMax | Self::Gat | Self::PinSage | Self::Rsage | Self::Rgcn | Self::Rgat | Self::Hgt => {
                EdgeValues::Nothing
            }
        }
    }
}

/// What a model takes of edges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeInput {
    /// Nothing but their ends.
    #[default]
    Nothing,
    /// Their weights.
    Weights,
    /// Their features: this many.
    Features(usize),
}

impl EdgeInput {
    /// The values that each edge brings.
    pub fn values(self) -> EdgeValues {
        match self {
            Self::Nothing => EdgeValues::Nothing,
            Self::Weights => EdgeValues::Weight,
            Self::Features(_) => EdgeValues::Features,
        }
    }

    /// Features of an edge that the model takes.
    pub fn features(self) -> usize {
        match self {
            Self::Features(features) => features,
            Self::Nothing | Self::Weights => 0,
        }
    }

    /// Whether the model takes nothing of edges but their ends.
    pub fn is_nothing(&self) -> bool {
        *self == Self::Nothing
    }
}

/// The kind of prediction of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class per node: outputs are logits of classes.
    MultiClass,
    /// A set of labels per node: outputs are independent logits, one per label.
    MultiLabel,
    /// Numbers per node: outputs are predictions of targets, in their unit.
    Regression,
    /// Edges: outputs are embeddings of nodes, from which a decoder scores pairs.
    Links,
}

impl Task {
    /// The score that decides which model is the best, for people.
    pub fn score_name(self) -> &'static str {
        match self {
            Self::MultiClass => "accuracy",
            Self::MultiLabel => "micro F1",
            Self::Regression => "RMSE",
            Self::Links => "MRR",
        }
    }

    /// A value of this score, for people: a percentage, or a number in the unit of the target.
    pub fn shown_score(self, score: f64) -> String {
        match self {
            Self::MultiClass | Self::MultiLabel => format!("{:.2} %", score * 100.0),
            Self::Regression => significant(score),
            Self::Links => format!("{score:.4}"),
        }
    }

    /// The task of labels.
    pub fn for_labels(labels: LabelKind) -> Self {
        match labels {
            LabelKind::Single => Self::MultiClass,
            LabelKind::Multi | LabelKind::Partial => Self::MultiLabel,
            LabelKind::Targets => Self::Regression,
        }
    }
}

/// A number with five digits.
pub fn significant(value: f64) -> String {
    let digits = match value.abs() {
        magnitude if magnitude > 0.0 && magnitude.is_finite() => 4 - magnitude.log10().floor() as i64,
        _ => 4,
    };
    match digits {
        0..=8 => format!("{value:.*}", digits as usize),
        _ => format!("{value:.4e}"),
    }
}

impl Decoder {
    /// The decoders of embeddings that a model with layers makes. The others score triples.
    pub fn of_embeddings() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|decoder| !matches!(decoder, Self::ComplEx | Self::RotatE | Self::TransE))
    }
}

/// The shape of a model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelOptions {
    /// The kind of layers.
    pub layer: LayerKind,
    /// Number of layers.
    pub layers: usize,
    /// Width of the input: features per node.
    pub inputs: usize,
    /// Hidden dimension, of all heads together.
    pub hidden: usize,
    /// Width of the output: number of classes or labels.
    pub outputs: usize,
    /// Attention heads of GAT, GATv2 and the transformer, which share the hidden dimension. Other layers have none.
    pub heads: usize,
    /// Attention heads of the last layer, which are averaged. None: as many as `heads`.
    pub last_heads: Option<usize>,
    /// Probability that dropout sets a value between layers to 0, in training.
    pub dropout: f64,
    /// Probability that dropout sets a feature to 0, in training.
    pub input_dropout: f64,
    /// Probability that dropout sets an attention weight to 0, in training.
    pub attention_dropout: f64,
    /// The nonlinearity between layers.
    pub activation: Activation,
    /// The normalization of features.
    pub features: FeatureNorm,
    /// The normalization between layers. If any, the perceptrons of GIN have layer norms.
    pub norm: NormKind,
    /// Whether each layer but the last adds its input to its output, projected where widths differ.
    pub residual: bool,
    /// How the states of all layers make the logits.
    pub jumping_knowledge: JumpingKnowledge,
    /// The type of numbers to compute with.
    pub precision: Precision,
    /// Whether outputs are standardized targets that the model gives back in their unit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standardizes_targets: bool,
    /// What layers take of edges.
    #[serde(default, skip_serializing_if = "EdgeInput::is_nothing")]
    pub edges: EdgeInput,
    /// The decoder of links, if outputs are embeddings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<Decoder>,
    /// The node types and relations of the graph, if it has types. `inputs` are then the features of the type with outputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graph: Option<ModelGraph>,
    /// How R-SAGE and R-GAT combine the results of relations.
    #[serde(default, skip_serializing_if = "RelationAggregate::is_default")]
    pub relation_aggregate: RelationAggregate,
    /// Base matrices of R-GCN, whose weighted sums are the matrices of relations. None: a matrix for each relation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bases: Option<usize>,
    /// How the ages of edges or nodes are encoded. None if they are no inputs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_encoding: Option<TimeEncoding>,
}

impl ModelOptions {
    /// Attention heads of a layer.
    pub fn heads_of(&self, layer: usize) -> usize {
        match self.last_heads {
            Some(heads) if layer + 1 == self.layers => heads,
            _ => self.heads,
        }
    }

    /// The node types and relations that the model learns from.
    pub fn graph(&self) -> Cow<'_, ModelGraph> {
        self.graph.as_ref().map_or_else(|| Cow::Owned(ModelGraph::untyped(self.inputs)), Cow::Borrowed)
    }

    /// For each relation, how the ages of its edges are encoded, if layers take them.
    pub fn edge_ages(&self) -> Vec<Option<TimeEncoding>> {
        match &self.graph {
            Some(graph) => graph.edge_ages(self.time_encoding),
            None => vec![self.time_encoding],
        }
    }

    /// What layers take of the edges of a store. Ages are computed.
    pub fn stored_edges(&self) -> EdgeInput {
        match (self.edges, self.time_encoding) {
            (EdgeInput::Features(features), Some(ages)) if features == ages.values => EdgeInput::Nothing,
            (EdgeInput::Features(features), Some(ages)) => EdgeInput::Features(features - ages.values),
            (edges, _) => edges,
        }
    }

    /// The relations that each layer aggregates for each node type, the first layer first. None for types whose states nobody needs after
    /// the layer. A type that no relation leads to has no state after a layer either, as in PyTorch Geometric's HeteroConv and HGTConv.
    pub fn relations_of_layers(&self) -> Vec<Vec<Option<Vec<usize>>>> {
        let graph = self.graph();
        let types = graph.node_types.len();
        let into_type = |node_type: usize, has_state: &[bool]| -> Vec<usize> {
            let relations = graph.relations.iter().enumerate();
            let into_type =
                relations.filter(|(_, relation)| relation.destination == node_type && has_state[relation.source]);
            into_type.map(|(number, _)| number).collect()
        };
        // The types that have states at the input of each layer, and after the last.
        let mut have_state = vec![vec![true; types]];
        for layer in 0..self.layers {
            let before = &have_state[layer];
            let after = (0..types).map(|node_type| before[node_type] && !into_type(node_type, before).is_empty());
            let after = after.collect();
            have_state.push(after);
        }
        let mut is_needed = vec![false; types];
        graph.output_types().into_iter().for_each(|node_type| is_needed[node_type] = true);
        let mut layers = Vec::new();
        for have_state in have_state.windows(2).rev() {
            let relations = (0..types).map(|node_type| {
                let is_made = is_needed[node_type] && have_state[1][node_type];
                is_made.then(|| into_type(node_type, &have_state[0]))
            });
            let relations: Vec<Option<Vec<usize>>> = relations.collect();
            let used = relations.iter().flatten().flatten();
            used.for_each(|&number| is_needed[graph.relations[number].source] = true);
            layers.push(relations);
        }
        layers.reverse();
        layers
    }

    /// A lower bound of the number of parameters: one matrix per layer.
    pub fn parameters_min(&self) -> u64 {
        let widths = std::iter::once(self.inputs)
            .chain(std::iter::repeat_n(self.hidden, self.layers.saturating_sub(1)))
            .chain([self.outputs])
            .map(|width| width as u64);
        let matrices = widths.clone().zip(widths.skip(1));
        matrices.fold(0, |sum, (inputs, outputs)| inputs.saturating_mul(outputs).saturating_add(sum))
    }

    /// Checks that a model of this shape can exist.
    ///
    /// # Errors
    /// [`Error::Model`] if a size is 0, a dropout is not in [0, 1), the heads do not divide the hidden dimension, or layers cannot take
    /// what edges have.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("layers", self.layers),
            ("features per node", self.graph().node_types.iter().map(|node_type| node_type.inputs).min().unwrap_or(0)),
            ("hidden dimensions", self.hidden),
            ("outputs", self.outputs),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Error::Model(format!("0 {name}; at least 1 is needed")));
        }
        let dropouts = [
            ("dropout", self.dropout),
            ("input dropout", self.input_dropout),
            ("attention dropout", self.attention_dropout),
        ];
        if let Some((name, value)) = dropouts.iter().find(|(_, value)| !(0.0..1.0).contains(value)) {
            return Err(Error::Model(format!("{name} {value} is not in [0, 1)")));
        }
        if !self.edges.is_nothing() && self.edges.values() != self.layer.edge_values() {
            return Err(Error::Model(format!("{} layers cannot take {:?} of edges", self.layer, self.edges.values())));
        }
        if self.layer == LayerKind::Gine && self.edges.features() == 0 {
            return Err(Error::Model("gine layers need features of edges".into()));
        }
        if self.graph.is_some() && !self.layer.is_relational() {
            return Err(Error::Model(format!("{} layers have no weights for relations", self.layer)));
        }
        let graph = self.graph();
        let made = self.relations_of_layers().pop().unwrap_or_default();
        if let Some(&node_type) = graph.output_types().iter().find(|&&node_type| made[node_type].is_none()) {
            let name = &graph.node_types[node_type].name;
            return Err(Error::Model(format!(
                "no relation leads to {name}, so its nodes get no outputs: ingest the graph again with --reverse"
            )));
        }
        if self.layer == LayerKind::Rgcn && self.layers > 1 {
            let mut types = 0..graph.node_types.len();
            let is_reached = |end: &usize| graph.relations.iter().any(|relation| relation.destination == *end);
            if let Some(node_type) = types.find(|end| !is_reached(end)) {
                return Err(Error::Model(format!(
                    "no relation leads to {}, and layers of R-GCN make new states of all types: ingest with --reverse, or use rsage",
                    graph.node_types[node_type].name
                )));
            }
        }
        if self.layer.attends() && self.last_heads == Some(0) {
            return Err(Error::Model("0 heads of the last layer; at least 1 is needed".into()));
        }
        if self.layer.attends() && (self.heads == 0 || !self.hidden.is_multiple_of(self.heads)) {
            return Err(Error::Model(format!(
                "{} heads do not divide the hidden dimension, {}",
                self.heads, self.hidden
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt, str::FromStr};

    use super::*;

    #[test]
    fn models_that_cannot_be_are_refused() {
        let options = |layer| ModelOptions {
            layer,
            layers: 2,
            inputs: 5,
            hidden: 8,
            outputs: 3,
            heads: 2,
            dropout: 0.5,
            norm: NormKind::Batch,
            residual: true,
            ..ModelOptions::default()
        };
        let refused = |options: ModelOptions| options.check().expect_err("no such model").to_string();
        let sage = || options(LayerKind::Sage);
        sage().check().expect("a model");
        assert!(refused(ModelOptions { hidden: 0, ..sage() }).contains("0 hidden dimensions"));
        assert!(refused(ModelOptions { layers: 0, ..sage() }).contains("0 layers"));
        assert!(refused(ModelOptions { dropout: 1.0, ..sage() }).contains("dropout 1"));
        let input = ModelOptions { input_dropout: 1.5, ..sage() };
        assert!(refused(input).contains("input dropout 1.5"));
        let last = ModelOptions { last_heads: Some(0), ..options(LayerKind::Gatv2) };
        assert!(refused(last).contains("0 heads of the last layer"));
        let edges = ModelOptions { edges: EdgeInput::Weights, ..options(LayerKind::Gat) };
        assert!(refused(edges).contains("gat layers cannot take Weight of edges"));
        let heads = ModelOptions { heads: 3, ..options(LayerKind::Gat) };
        assert!(refused(heads).contains("3 heads do not divide the hidden dimension, 8"));
    }

    #[test]
    fn names_of_kinds_are_read_as_they_are_written() {
        fn read_back<T>(all: &[T])
        where
            T: fmt::Display + fmt::Debug + PartialEq + FromStr<Err = Error> + Serialize,
        {
            for kind in all {
                assert_eq!(kind.to_string().parse::<T>().ok().as_ref(), Some(kind));
                // In configurations, too.
                assert_eq!(serde_json::to_string(kind).expect("JSON"), format!("\"{kind}\""));
            }
        }
        read_back(LayerKind::ALL);
        read_back(NormKind::ALL);
        read_back(Activation::ALL);
        read_back(JumpingKnowledge::ALL);
        read_back(FeatureNorm::ALL);
        assert!("sages".parse::<LayerKind>().is_err());
        assert!("Batch".parse::<NormKind>().is_err());
    }
}
