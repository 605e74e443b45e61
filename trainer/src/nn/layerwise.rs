//! The layers of a model one by one, over the whole graph: what exact inference calls.
//!
//! The engine aggregates ([`Reduction`]); a layer makes the messages before and the states after. All without dropout and gradients.

use grappa_run::model::EdgeInput;
use tch::{Tensor, no_grad};

use super::{
    aggregate_kind::Aggregate,
    jump::Jump,
    layers::{WeightsFirst, gcn_factors},
    linear::float,
    model::{Model, Operands, Residual},
    reduction::Reduction,
};

impl Model {
    /// The messages of nodes at a layer, f32 of `[nodes, source width of the reduction]`. `rows` are the nodes' states at its input,
    /// `[nodes, width]`; `degrees` are their in-degrees, f32 of `[nodes]`, for GCN. Without dropout and gradients.
    pub fn messages(&self, layer: usize, rows: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        let convolution = &self.layer(layer).convolution;
        no_grad(|| {
            let messages = float(&convolution.messages(0, &self.state(layer, rows).to_kind(self.kind())));
            match convolution.aggregate() {
                Aggregate::Gcn => {
                    let degrees = degrees.expect("GCN's messages need the in-degrees of nodes");
                    messages * gcn_factors(degrees)
                }
                _ => messages,
            }
        })
    }

    /// The destinations' own rows for attention, f32 of `[nodes, own width of the reduction]`, from their states at a layer's input.
    /// None if the layer has no attention.
    pub fn queries(&self, layer: usize, rows: &Tensor) -> Option<Tensor> {
        no_grad(|| self.layer(layer).convolution.queries(0, &self.state(layer, rows).to_kind(self.kind())))
    }

    /// The aggregation of a layer over all in-neighbors. For PinSAGE, whose neighborhoods in training come from random walks, all
    /// in-neighbors have the same weight here.
    pub fn reduction(&self, layer: usize) -> Reduction {
        let reduction = self.layer(layer).convolution.reduction(self.state_width(layer));
        match self.options.edges {
            EdgeInput::Weights => reduction.weighted(),
            EdgeInput::Nothing | EdgeInput::Features(_) => reduction,
        }
    }

    /// Width of the states at a layer's input, without what is carried for jumping knowledge, or of the products that the layer aggregates
    /// instead.
    pub fn state_width(&self, layer: usize) -> usize {
        match layer {
            0 => self.options.inputs,
            _ if self.weights_first(layer).is_some() => self.options.outputs,
            _ => self.options.hidden,
        }
    }

    /// Width of the rows that a layer makes: those at the input of the next one, or the logits.
    pub fn made_width(&self, layer: usize) -> usize {
        match layer + 1 == self.options.layers {
            true => self.options.outputs,
            false => self.width(layer + 1),
        }
    }

    /// Width of the rows at a layer's input: the states, then what is carried for jumping knowledge; or the layer's products.
    pub fn width(&self, layer: usize) -> usize {
        if let Some(weights_first) = self.weights_first(layer) {
            return weights_first.width();
        }
        let carried = self.jump.as_ref().filter(|_| layer > 0).map_or(0, Jump::width);
        self.state_width(layer) + carried
    }

    /// The states in the rows at a layer's input, or the products that it aggregates.
    pub fn state(&self, layer: usize, rows: &Tensor) -> Tensor {
        rows.narrow(1, 0, self.state_width(layer) as i64)
    }

    /// The rows at the input of a layer but the first, from what [`Model::update`] of the layer before makes.
    pub fn input(&self, layer: usize, rows: &Tensor) -> Tensor {
        match self.weights_first(layer) {
            None => rows.shallow_clone(),
            Some(weights_first) => no_grad(|| float(&weights_first.products(&rows.to_kind(self.kind())))),
        }
    }

    /// The last layer, if it multiplies states by its weights before it aggregates them, because the products are narrower. The first layer
    /// never does: its aggregates may be known, and do not depend on parameters.
    fn weights_first(&self, layer: usize) -> Option<&dyn WeightsFirst> {
        let is_last = layer > 0 && layer + 1 == self.options.layers && self.jump.is_none() && self.head.is_none();
        let weights_first = self.layer(layer).convolution.weights_first().filter(|_| is_last);
        weights_first.filter(|products| products.width() < self.options.hidden)
    }

    /// The new states of nodes and what is carried for jumping knowledge, or the logits at the last layer. `own` are their rows at the
    /// layer's input, `[nodes, width]`; `aggregated` are the states of the reduction, or the first values of these; `degrees` are their
    /// in-degrees, f32 of `[nodes]`, for GCN. Without dropout and gradients.
    pub fn update(&self, layer: usize, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Tensor {
        let kind = self.kind();
        let aggregated = aggregated.narrow(1, 0, self.reduction(layer).result_width() as i64);
        self.made(layer, || {
            let aggregated = aggregated.to_kind(kind);
            if let Some(weights_first) = self.weights_first(layer) {
                return float(&weights_first.update(&own.to_kind(kind), &aggregated, degrees));
            }
            let state = self.state(layer, own).to_kind(kind);
            let new = self.step(layer, Operands::Apart(&state, &[aggregated], degrees));
            self.with_carried(layer, &new, own)
        })
    }

    /// Combines the features of nodes with their aggregates, as the first layer does before it uses any parameter: `[nodes, inputs]`.
    /// The result is the same in each pass over these nodes. None if the layer has no such matrix.
    pub fn combined(&self, own: &Tensor, aggregated: &Tensor, degrees: Option<&Tensor>) -> Option<Tensor> {
        match self.layer(0).residual {
            Residual::None => no_grad(|| self.layer(0).convolution.combined(own, aggregated, degrees, self.kind())),
            // It needs the features.
            Residual::Identity | Residual::Projection(_) => None,
        }
    }

    /// As [`Model::update`] of the first layer, from [`Model::combined`].
    pub fn update_combined(&self, combined: &Tensor) -> Tensor {
        self.made(0, || {
            let new = self.step(0, Operands::Combined(combined));
            self.with_carried(0, &new, combined)
        })
    }

    /// The rows that a layer makes, without gradients; outputs at the last layer.
    fn made(&self, layer: usize, rows: impl FnOnce() -> Tensor) -> Tensor {
        no_grad(|| match layer + 1 == self.options.layers {
            true => self.in_unit(rows()),
            false => rows(),
        })
    }

    /// The new states of nodes and what is carried for jumping knowledge. `rows` are those at the layer's input.
    fn with_carried(&self, layer: usize, new: &Tensor, rows: &Tensor) -> Tensor {
        let Some(jump) = &self.jump else {
            return float(new);
        };
        let (from, width) = (self.state_width(layer) as i64, jump.width() as i64);
        let carried = (layer > 0).then(|| rows.narrow(1, from, width));
        let carried = jump.carry(layer, new, carried.as_ref());
        match layer + 1 == self.options.layers {
            true => float(&jump.logits(&carried)),
            false => Tensor::cat(&[float(new), carried], 1),
        }
    }
}
