//! The layers of a model for graphs with types, by type and relation, over the whole graph: what exact inference calls.
//!
//! For each type, the engine aggregates the messages of each relation into it ([`Reduction`]); a layer makes the messages before and the
//! states after. All without dropout and gradients.

use tch::{Tensor, no_grad};

use super::{
    linear::float,
    model::{Model, Operands, TypeLayer},
    reduction::Reduction,
};

/// A layer's part for a node type.
#[derive(Clone, Copy)]
pub struct TypeStep<'a> {
    model: &'a Model,
    layer: usize,
    node_type: usize,
    part: &'a TypeLayer,
}

impl Model {
    /// Each layer's part for a type. None if nobody needs the states of its nodes after the layer.
    pub fn type_step(&self, layer: usize, node_type: usize) -> Option<TypeStep<'_>> {
        let part = self.type_layer(layer, node_type)?;
        Some(TypeStep { model: self, layer, node_type, part })
    }

    /// The states of nodes of a type at the input of the first layer, f32 of `[nodes, width]`, from their features as the store has them.
    pub fn first_states(&self, node_type: usize, features: &Tensor) -> Tensor {
        no_grad(|| float(&self.projected(node_type, &self.normalized_of(node_type, features))))
    }

    /// Whether [`Model::first_states`] are the features themselves.
    pub fn takes_features(&self) -> bool {
        !self.options().layer.projects_inputs() && self.feature_moments(0).is_none() && !self.normalizes_rows()
    }

    /// Width of the states of a type at the input of a layer.
    pub fn type_width(&self, layer: usize, node_type: usize) -> usize {
        match layer {
            0 if !self.options().layer.projects_inputs() => self.options().graph().node_types[node_type].inputs,
            _ => self.options().hidden,
        }
    }

    /// Width of the states that a layer makes, or of the outputs.
    pub fn width_after(&self, layer: usize) -> usize {
        if layer + 1 == self.options().layers { self.options().outputs } else { self.options().hidden }
    }
}

impl TypeStep<'_> {
    /// The relations into the type, as numbers of the graph.
    pub fn relations(&self) -> &[usize] {
        &self.part.relations
    }

    /// The messages of the sources of a relation, f32 of `[nodes, source width of the reduction]`, from their states at the layer's input.
    /// None if they are the states. `relation` is its place in [`TypeStep::relations`].
    pub fn messages(&self, relation: usize, states: &Tensor) -> Tensor {
        no_grad(|| float(&self.part.convolution.messages(relation, &states.to_kind(self.model.kind()))))
    }

    /// Whether messages are the states themselves.
    pub fn sends_states(&self) -> bool {
        self.part.convolution.aggregate() == super::Aggregate::Mean
    }

    /// The destinations' own rows for the attention of a relation, f32 of `[nodes, own width of the reduction]`. None without attention.
    pub fn queries(&self, relation: usize, states: &Tensor) -> Option<Tensor> {
        no_grad(|| self.part.convolution.queries(relation, &states.to_kind(self.model.kind())))
    }

    /// The aggregation of a relation over all in-neighbors, for sources with states of `width` values.
    pub fn reduction(&self, width: usize) -> Reduction {
        self.part.convolution.reduction(width)
    }

    /// The number of values at the start of a finished state of the reduction that [`TypeStep::update`] takes.
    pub fn kept_width(&self, width: usize) -> usize {
        self.part.convolution.joined_width(width)
    }

    /// The new states of nodes, or their outputs, f32 of `[nodes, width]`, from their states at the layer's input and the first values of the
    /// reduction's states of each relation.
    pub fn update(&self, own: &Tensor, reduced: &[Tensor]) -> Tensor {
        let kind = self.model.kind();
        no_grad(|| {
            let joined = self.part.convolution.joined(reduced);
            let joined: Vec<Tensor> = joined.iter().map(|rows| rows.to_kind(kind)).collect();
            let operands = Operands::Apart(&own.to_kind(kind), &joined, None);
            let made = self.model.step_of(self.layer, self.node_type, operands, None);
            match self.layer + 1 == self.model.options().layers {
                true => self.model.outputs(&made),
                false => float(&made),
            }
        })
    }
}
