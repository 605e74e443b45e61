//! A step of full-graph training in partitions.

use grappa_run::model::Task;
use grappa_trainer::{
    Result,
    nn::Pass,
    train::{FullGraphInputs, FullGraphStep, FullGraphSums},
};
use tch::{Kind, Tensor, no_grad};

use super::{
    config::Method,
    exchange::{BoundaryExchange, BoundaryRows, TransferBytes},
    features::NodeFeatures,
    graph::PartitionedGraph,
};

/// What full-graph training keeps from step to step.
pub(crate) struct FullStep {
    pub(crate) graph: PartitionedGraph,
    pub(crate) exchange: Option<Box<dyn BoundaryExchange>>,
    /// Features as the first layer takes them, before dropout, `[nodes, inputs]`.
    pub(crate) features: Tensor,
    /// As [`Loss::losses`] takes them.
    pub(crate) labels: Tensor,
    /// f32 of `[seeds]`.
    pub(crate) factors: Tensor,
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
    /// A step on a graph without an exchange. `features` has all of its nodes.
    pub(crate) fn new(inputs: &FullGraphInputs<'_>, graph: PartitionedGraph, features: &NodeFeatures) -> Result<Self> {
        let rows = features.rows_of(&graph.nodes).to_device(inputs.device);
        Ok(Self {
            features: no_grad(|| inputs.model.normalized_features(std::slice::from_ref(&rows)).remove(0)),
            labels: inputs.labels(&graph.seed_nodes)?.to_device(inputs.device),
            factors: Tensor::from_slice(&graph.factors).to_device(inputs.device),
            exchange: None,
            graph,
        })
    }

    /// Adds the gradient of the loss over the training nodes to the gradients of the parameters.
    ///
    /// # Errors
    /// If another process has left or cannot be reached.
    pub(crate) fn add_gradient(
        &mut self,
        &FullGraphStep { epoch, model, loss, task, .. }: &FullGraphStep<'_>,
        pass: &Pass,
    ) -> Result<FullGraphSums> {
        let graph = &self.graph;
        let epoch_block = graph.paths.as_ref().map(|paths| paths.block(epoch, self.features.device()));
        let block = match &epoch_block {
            Some(block) => block,
            None => &graph.blocks[epoch as usize % graph.blocks.len()],
        };
        let mut bytes = TransferBytes::default();
        if let Some(exchange) = &mut self.exchange {
            exchange.begin(epoch, &graph.boundary);
        }
        let mut passes: Vec<LayerPass> = Vec::new();
        let mut states = self.features.shallow_clone();
        for layer in 0..model.options().layers {
            // Features have no gradient.
            let leaf = |rows: Tensor| rows.detach().set_requires_grad(layer > 0);
            let own = leaf(states);
            let arrived = match &mut self.exchange {
                Some(exchange) => {
                    let sent = own.detach().index_select(0, &graph.sent_rows);
                    let rows = BoundaryRows { layer, rows: sent, boundary: &graph.boundary, bytes: &mut bytes };
                    leaf(no_grad(|| exchange.states(rows))?)
                }
                None => leaf(own.narrow(0, 0, 0)),
            };
            let mut sources = Tensor::cat(&[&own, &arrived], 0);
            if layer == 0 {
                // Dropout of received features: they are sent without dropout.
                sources = model.input_states(&sources, pass);
            }
            let made = model.convolve(layer, block, &sources, None, pass);
            states = made.shallow_clone();
            passes.push(LayerPass { own, arrived, made });
        }
        let outputs = model.outputs(&states.index_select(0, &graph.seeds));
        let losses = loss.losses(&outputs, &self.labels);
        let weighted = losses * &self.factors;
        let right = match task {
            Task::MultiClass => {
                (outputs.argmax(1, false).eq_tensor(&self.labels) * &self.factors).sum(Kind::Double).double_value(&[])
            }
            Task::MultiLabel | Task::Regression | Task::Links => 0.0,
        };
        weighted.sum(Kind::Float).backward();
        for layer in (1..passes.len()).rev() {
            let LayerPass { own, arrived, .. } = &passes[layer];
            let mut gradient = own.grad();
            if let Some(exchange) = &mut self.exchange {
                let rows = BoundaryRows { layer, rows: arrived.grad(), boundary: &graph.boundary, bytes: &mut bytes };
                let back = no_grad(|| exchange.gradients(rows))?;
                gradient = no_grad(|| gradient.index_add(0, &graph.sent_rows, &back));
            }
            // The gradient of this sum by the layer before is the gradient of the loss.
            (&passes[layer - 1].made * gradient).sum(Kind::Float).backward();
        }
        let error = self.exchange.as_ref().and_then(|exchange| exchange.error());
        Ok(FullGraphSums {
            edges: block.edges() as u64,
            loss: weighted.sum(Kind::Double).double_value(&[]),
            right,
            feature_bytes: bytes.features,
            activation_bytes: bytes.activations,
            message_errors: error.map(|error| [error.errors, error.squares]),
            ..FullGraphSums::default()
        })
    }

    /// Numbers of copies that are sent, of edges between partitions, and of all edges.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let block = self.graph.blocks.first();
        [self.graph.boundary.copies() as u64, self.graph.cut_edges, block.map_or(0, |block| block.edges() as u64)]
    }

    /// A line about the partitions, for people. `counts` are of all processes.
    pub(crate) fn describe(&self, method: Method, partitions: usize, counts: [u64; 3]) -> String {
        let nodes = self.graph.nodes.len();
        let [copies, cut_edges, edges] = counts;
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
                "{method}: {partitions} partitions send {copies} copies of boundary nodes; {:.1} % of the edges are between partitions",
                100.0 * cut_edges as f64 / edges.max(1) as f64
            ),
        }
    }
}
