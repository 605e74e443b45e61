//! A step of full-graph training in partitions.

use grappa_run::{config::Method, model::Task};
use tch::{Kind, Tensor, no_grad};

use super::{
    exchange::{BoundaryExchange, TransferBytes},
    graph::PartitionedGraph,
};
use crate::nn::{Loss, Model, Pass};

/// What full-graph training keeps from step to step.
pub(crate) struct FullStep {
    pub(crate) graph: PartitionedGraph,
    pub(crate) exchange: Option<Box<dyn BoundaryExchange>>,
    /// Features as the first layer takes them, `[nodes, inputs]`.
    pub(crate) features: Tensor,
    /// As [`Loss::of`] takes them.
    pub(crate) labels: Tensor,
    /// f32 of `[seeds]`.
    pub(crate) factors: Tensor,
}

/// The results of a step, summed over the seeds.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StepSums {
    /// Number of edges that it used.
    pub(crate) edges: u64,
    pub(crate) loss: f64,
    pub(crate) right: f64,
    pub(crate) bytes: TransferBytes,
    /// [`BoundaryExchange::error`].
    pub(crate) error: Option<f64>,
}

/// A layer of a forward pass, apart from the layers before it.
struct LayerPass {
    /// The states at its input, and the rows that arrived. Gradients end here.
    own: Tensor,
    arrived: Tensor,
    /// Its result.
    made: Tensor,
}

impl FullStep {
    /// Adds the gradient of the loss over all training nodes to the gradients of the parameters.
    pub(crate) fn add_gradient(
        &mut self,
        (model, loss, task): (&Model, &Loss, Task),
        epoch: u64,
        pass: &Pass,
    ) -> StepSums {
        let graph = &self.graph;
        let of_epoch = graph
            .paths
            .as_ref()
            .map(|paths| paths.block(epoch, self.features.device()));
        let block = match &of_epoch {
            Some(block) => block,
            None => &graph.blocks[epoch as usize % graph.blocks.len()],
        };
        let mut bytes = TransferBytes::default();
        if let Some(exchange) = &mut self.exchange {
            exchange.begin(epoch, &graph.boundary);
        }
        let mut passes: Vec<LayerPass> = Vec::new();
        let mut states = model.input_states(&self.features, pass);
        for layer in 0..model.options().layers {
            // Features have no gradient.
            let leaf = |rows: Tensor| rows.detach().set_requires_grad(layer > 0);
            let own = leaf(states);
            let arrived = match &mut self.exchange {
                Some(exchange) => {
                    let sent = own.detach().index_select(0, &graph.sent_rows);
                    leaf(no_grad(|| exchange.states(layer, sent, &graph.boundary, &mut bytes)))
                }
                None => leaf(own.narrow(0, 0, 0)),
            };
            let sources = Tensor::cat(&[&own, &arrived], 0);
            let made = model.convolve(layer, block, &sources, None, pass);
            states = made.shallow_clone();
            passes.push(LayerPass { own, arrived, made });
        }
        let outputs = model.outputs(&states.index_select(0, &graph.seeds));
        let losses = loss.of(&outputs, &self.labels);
        let weighted = losses * &self.factors;
        let right = match task {
            Task::MultiClass => (outputs.argmax(1, false).eq_tensor(&self.labels) * &self.factors)
                .sum(Kind::Double)
                .double_value(&[]),
            Task::MultiLabel | Task::Regression | Task::Links => 0.0,
        };
        weighted.sum(Kind::Float).backward();
        for layer in (1..passes.len()).rev() {
            let LayerPass { own, arrived, .. } = &passes[layer];
            let gradient = no_grad(|| {
                let mut gradient = own.grad();
                if let Some(exchange) = &mut self.exchange {
                    let back = exchange.gradients(layer, arrived.grad(), &graph.boundary, &mut bytes);
                    gradient = gradient.index_add(0, &graph.sent_rows, &back);
                }
                gradient
            });
            // The gradient of this sum by the layer before is the gradient of the loss.
            (&passes[layer - 1].made * gradient).sum(Kind::Float).backward();
        }
        StepSums {
            edges: block.edges() as u64,
            loss: weighted.sum(Kind::Double).double_value(&[]),
            right,
            bytes,
            error: self.exchange.as_ref().and_then(|exchange| exchange.error()),
        }
    }

    /// A line about the partitions, for people.
    pub(crate) fn describe(&self, method: Method, partitions: u32) -> String {
        let nodes = self.graph.nodes.len();
        let edges = self.graph.blocks.first().map_or(0, |block| block.edges() as u64).max(1);
        match method {
            Method::Gern => format!("{method}: each epoch has a path through the {nodes} nodes"),
            Method::Llcg => {
                format!(
                    "{method}: {partitions} partitions train apart, and a step on all {edges} edges corrects their mean"
                )
            }
            Method::CoFree => {
                format!("{method}: {partitions} partitions have {nodes} states of nodes, and each edge once")
            }
            Method::Isolated => {
                format!("{method}: {partitions} partitions have {edges} edges; edges between them are missing")
            }
            _ => format!(
                "{method}: {partitions} partitions send {} copies of boundary nodes; {:.1} % of the edges are between partitions",
                self.graph.boundary.copies(),
                100.0 * self.graph.cut_edges() as f64 / edges as f64
            ),
        }
    }
}
