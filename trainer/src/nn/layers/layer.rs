//! The interface of layers.

use std::fmt;

use tch::{Kind, Tensor};

use crate::nn::{
    aggregate::{aggregate, own_and_aggregate, own_states, with_historical},
    aggregate_kind::{Aggregate, Scaling},
    attention::attend,
    backend::Backend,
    graph::Block,
    historical::HistoricalEmbeddings,
    linear::{Dropout, Epilogue, LinearLayer},
    parameters::{Builder, Start},
    reduction::Reduction,
};

/// The part of a minibatch that one layer uses for the nodes of a type.
#[derive(Debug)]
pub(crate) struct Hop<'a> {
    /// The hidden states of nodes of the type, `[nodes, inputs]`, destinations first.
    pub(crate) own: &'a Tensor,
    /// The relations that the layer aggregates.
    pub(crate) relations: Vec<RelationHop<'a>>,
    pub(crate) scaling: Scaling,
    pub(crate) historical: Option<&'a HistoricalEmbeddings>,
    pub(crate) dropout: Option<Dropout>,
    /// Whether a residual takes the states of destinations.
    pub(crate) wants_own: bool,
}

/// The edges of one relation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RelationHop<'a> {
    pub(crate) block: &'a Block,
    /// The hidden states of its sources, `[sources, inputs]`.
    pub(crate) sources: &'a Tensor,
}

impl<'a> Hop<'a> {
    /// The only relation of a layer for graphs without types. Its sources are the nodes themselves.
    pub(super) fn relation(&self) -> RelationHop<'a> {
        self.relations[0]
    }

    /// The hidden states of the destinations, `[destinations, inputs]`.
    pub(super) fn own_states(&self) -> Tensor {
        self.values_of_destinations(self.own)
    }

    /// The rows of the destinations, from rows of the nodes of their type.
    pub(super) fn values_of_destinations(&self, rows: &Tensor) -> Tensor {
        own_states(Backend::Fastest, self.relations[0].block, rows)
    }

    /// The same, or no row if they are not wanted.
    pub(super) fn wanted_own_states(&self) -> Tensor {
        match self.wants_own {
            true => self.own_states(),
            false => self.own.narrow(0, 0, 0),
        }
    }

    /// The aggregates of each relation, without weights of their sources.
    pub(super) fn aggregates(&self, kind: Aggregate) -> Vec<Tensor> {
        let relations = self.relations.iter();
        relations.map(|relation| aggregate(relation.block, kind, self.scaling, relation.sources, None)).collect()
    }

    /// The outputs of a linear layer for the destinations, `[destinations, outputs]`, f32. Each node costs one product, however many of
    /// the destinations it is.
    pub(super) fn of_destinations(&self, layer: &LinearLayer) -> Tensor {
        let nodes = self.own.narrow(0, 0, self.relations[0].block.destination_nodes() as i64);
        self.values_of_destinations(&layer.in_f32(&nodes))
    }

    /// The given states of destinations, and for each destination and head, the sum of the rows of its sources and its edges in `block`,
    /// weighted by attention. `block` is the block of the hop, with or without the destinations themselves as sources.
    pub(super) fn attended(
        self,
        own: Tensor,
        block: &Block,
        [rows, logits]: [&Tensor; 2],
        rows_of_edges: Option<&Tensor>,
    ) -> (Tensor, Vec<Tensor>) {
        let aggregated = attend(Backend::Fastest, block, rows, rows_of_edges, logits, self.dropout);
        (own, vec![with_historical(aggregated, self.historical)])
    }
}

pub(crate) trait Layer: fmt::Debug + Send {
    fn aggregate(&self) -> Aggregate;

    /// The messages of a relation's sources, from their hidden states `[sources, inputs]`. By default they are these states. A layer with
    /// other messages also implements [`Layer::neighbors`]. Relations are numbered as in [`Hop::relations`].
    fn messages(&self, _relation: usize, sources: &Tensor) -> Tensor {
        sources.shallow_clone()
    }

    /// The destinations' part of a relation's attention logits, from their hidden states `[destinations, inputs]`.
    fn queries(&self, _relation: usize, _own: &Tensor) -> Option<Tensor> {
        None
    }

    /// Returns the hidden states of the destinations, `[destinations, inputs]`, and for each relation the aggregates of their neighbors'
    /// messages, `[destinations, width]`. A layer whose update does not take the states may return none, unless they are wanted.
    fn neighbors(&self, hop: Hop<'_>) -> (Tensor, Vec<Tensor>) {
        let RelationHop { block, sources } = hop.relation();
        let (scaling, historical) = (hop.scaling, hop.historical);
        let (own, aggregated) =
            own_and_aggregate(Backend::Fastest, block, self.aggregate(), scaling, sources, historical);
        (own, vec![aggregated])
    }

    /// The aggregation over all in-neighbors, out of core, for states of `width` values at the layer's input.
    fn reduction(&self, width: usize) -> Reduction;

    /// The number of values at the start of a finished state of the reduction that [`Layer::joined`] takes. By default, the values of the result.
    fn joined_width(&self, width: usize) -> usize {
        self.reduction(width).result_width()
    }

    /// What [`Layer::update`] takes, from the states of each relation. By default they are that.
    fn joined(&self, states: &[Tensor]) -> Vec<Tensor> {
        states.iter().map(Tensor::shallow_clone).collect()
    }

    /// The new states of nodes, from their own states `[nodes, inputs]` and for each relation the aggregates of their neighbors' messages.
    /// `degrees` are their in-degrees in the whole graph, f32 of `[nodes]`, for GCN.
    fn update(&self, own: &Tensor, aggregated: &[Tensor], degrees: Option<&Tensor>, epilogue: Epilogue) -> Tensor;

    /// The sum of what [`Layer::update`] takes, `[nodes, inputs]` of this type, if it adds up states and aggregates before it multiplies
    /// them by weights. The sum of the first layer is the same in each pass over the same nodes.
    fn combined(&self, _own: &Tensor, _aggregated: &Tensor, _degrees: Option<&Tensor>, _kind: Kind) -> Option<Tensor> {
        None
    }

    /// The result of [`Layer::update`] from [`Layer::combined`].
    fn update_combined(&self, _combined: &Tensor, _epilogue: Epilogue) -> Tensor {
        unreachable!("it made the rows")
    }

    /// The layer with its weights before the aggregation instead of after it, if that computes the same.
    fn weights_first(&self) -> Option<&dyn WeightsFirst> {
        None
    }
}

/// A layer that can multiply hidden states by its weights before it aggregates them, because both are linear. Exact inference does so if
/// the products are narrower than the states. Then it keeps and aggregates fewer values.
pub(crate) trait WeightsFirst {
    /// Number of products of a node.
    fn width(&self) -> usize;

    /// The products of nodes, `[nodes, width]`, from their hidden states `[nodes, inputs]`. The first `outputs` are what is aggregated.
    fn products(&self, states: &Tensor) -> Tensor;

    /// The result of [`Layer::update`], without an epilogue, from the nodes' products, `[nodes, width]`, and the aggregates
    /// `[nodes, outputs]` of their neighbors' states.
    fn update(&self, products: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Tensor;
}

/// A linear layer of the features of edges, without bias, if the layer takes any.
pub(super) fn layer_of_edges(builder: &mut Builder, [features, width]: [i64; 2], start: Start) -> Option<LinearLayer> {
    (features > 0).then(|| LinearLayer::new(builder, "lin_edge", [features, width], start, None))
}

/// The outputs of a linear layer for the features of a block's edges, `[edges, outputs]`.
pub(super) fn rows_of_edges(block: &Block, layer: &LinearLayer) -> Tensor {
    layer.apply(block.features(layer.inputs() as usize), Epilogue::NONE)
}
