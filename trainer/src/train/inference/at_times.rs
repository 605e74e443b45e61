//! The outputs of a trained model for nodes at their own times, or for the ends of links at one time.
//!
//! Each node sees other edges and nodes than the next one, so there are no states that several nodes share. Every node has a tree of sampled
//! in-neighbors of its own, with the fanouts of evaluations. A node draws the same in-neighbors whichever other nodes are predicted.

use std::{path::Path, sync::Arc};

use grappa_engine::aggregate::Budget;
use grappa_io::progress::{Progress, check_stopped};
use grappa_run::{config::TrainConfig, model::EdgeInput, schema::Match};
use grappa_sampling::{
    Loader, LoaderOptions, NodeSet,
    feed::{Batch, MinibatchOptions, RowOptions},
    partition::Share,
    sample::{Join, Sampler},
    view::shape_of,
};
use grappa_storage::Graph;
use roaring::RoaringTreemap;
use tch::{Tensor, no_grad};

use super::{
    task::OnRows,
    trained_model::{InferenceRequest, Output, PredictedGraph, RequestedNodes, Trained},
};
use crate::train::{
    data::{edge_data, node_ages::NodeAges, times, types},
    embeddings::NodeTables,
    feature_tensors::FeatureTensors,
    options::loader_options::has_features,
};
use crate::{
    Error, Result,
    nn::{Block, Input, Pass, Scaling},
    runtime::catch_out_of_memory,
};

/// Seeds whose positions and times are in memory at a time: 16 MiB.
const SEEDS: usize = 1 << 20;

impl Trained {
    /// As [`Trained::infer`], of nodes at their own times, or of the ends of links at the time of `on`.
    pub(super) fn infer_at_times(
        &self,
        graph: &Graph,
        on: PredictedGraph<'_>,
        request: InferenceRequest,
        (budget, scratch): (Budget, &Path),
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        if request.output == Output::Embeddings {
            return Err(Error::Options(
                "the model predicts nodes at their times, and the embedding of a node differs from time to time: leave out --embeddings"
                    .into(),
            ));
        }
        let options = self.model.options();
        let learned = options.graph();
        let target = types::node_type(graph, learned.target);
        let nodes = match request.nodes {
            RequestedNodes::Nodes(nodes) => on.set_of_each(options, nodes),
            RequestedNodes::Ends(nodes) => nodes,
        };
        let inputs = Inputs {
            ages: NodeAges::open(graph, &learned, options.time_encoding)?,
            embeddings: NodeTables::of_checkpoint(
                &self.checkpoint,
                &learned,
                graph,
                &self.embeddings,
                (budget.memory, scratch),
            )?,
            order: match Match::of_features(&self.schema, &graph.node_types()[target].schema()?) {
                Match::Reordered(order) if self.state.graph.is_none() => {
                    let order: Vec<i64> = order.iter().map(|&column| column as i64).collect();
                    Some(Tensor::from_slice(&order).to_device(self.device))
                }
                _ => None,
            },
        };
        let sampler = Arc::new(self.sampler_at_times()?);
        let mut loader =
            Loader::of_graph(graph, loader_options(graph, &self.config, options.stored_edges(), &sampler, budget));
        let mut batch = self.config.evaluation_batch(false);
        progress.steps("predicting", nodes.iter().map(NodeSet::len).sum());
        let mut end = 0;
        catch_out_of_memory("free some of the device's memory, or use --device cpu", || {
            for (node_type, nodes) in learned.output_types().into_iter().zip(&nodes) {
                let first = graph.positions().range(node_type).start;
                let mut members = nodes.iter();
                loop {
                    let seeds: RoaringTreemap = members.by_ref().take(SEEDS).map(|node| first + node.0).collect();
                    if seeds.is_empty() {
                        break;
                    }
                    let batches = loop {
                        let batches =
                            loader.whole_graph_batches(&seeds, on.at, sampler.clone(), batch, Share::ALL, progress);
                        match batches.map_err(Error::from) {
                            Err(error) if error.is_budget() && batch > 1 => batch /= 2,
                            batches => break batches?,
                        }
                    };
                    for minibatches in loader.deliver(&batches) {
                        check_stopped(progress)?;
                        let minibatches = Arc::new(minibatches?);
                        let outputs = no_grad(|| self.outputs(graph, &inputs, &minibatches));
                        let count = minibatches.minibatches()[node_type].seeds as u64;
                        on_rows(end..end + count, &outputs)?;
                        end += count;
                        let edges = minibatches.minibatches().iter().map(|part| part.edges() as u64).sum();
                        progress.advance(count, edges);
                    }
                }
            }
            Ok(())
        })
    }

    /// The sampler of evaluations, with what the model takes of edges.
    fn sampler_at_times(&self) -> Result<Sampler> {
        let options = self.model.options();
        let sampler = self.config.evaluation_sampler(false)?;
        let sampler = edge_data::with_values(sampler, options.stored_edges().values());
        times::at_times(sampler, &self.config, options.edge_ages().iter().any(Option::is_some))
    }

    /// The outputs of the seeds of a batch, `[seeds, outputs]`.
    fn outputs(&self, graph: &Graph, inputs: &Inputs, batch: &Arc<Batch>) -> Tensor {
        let shape = shape_of(graph);
        let FeatureTensors { own: mut rows, .. } =
            FeatureTensors::from_batch(batch, shape.relations.len(), self.device);
        if let Some(order) = &inputs.order {
            rows[0] = rows[0].index_select(1, order);
        }
        if let Some(ages) = &inputs.ages {
            ages.append_to(&mut rows, batch.minibatches(), self.device);
        }
        if let Some(tables) = &inputs.embeddings {
            tables.gather(graph, batch.minibatches(), None, self.device).append_to(&mut rows);
        }
        let ages = self.model.options().edge_ages();
        let blocks = Block::of_minibatches(&shape, batch.minibatches(), None, &ages, self.device);
        let pass = Pass { training: None, names: None, scaling: Scaling::HorvitzThompson };
        self.model.forward(&blocks, Input::Features(&rows), &[], pass)
    }
}

/// The inputs of the model besides stored features.
struct Inputs {
    ages: Option<NodeAges>,
    embeddings: Option<NodeTables>,
    /// For each feature of the model, its column among the features of the graph; none if the order is the same.
    order: Option<Tensor>,
}

fn loader_options(
    graph: &Graph,
    config: &TrainConfig,
    edges: EdgeInput,
    sampler: &Arc<Sampler>,
    budget: Budget,
) -> LoaderOptions {
    let minibatches = MinibatchOptions {
        disjoint: true,
        join_steps: Some(Join::Apart),
        shuffle: false,
        seed: config.seed,
        ..MinibatchOptions::new(Sampler::clone(sampler))
    };
    LoaderOptions {
        memory: budget.memory,
        threads: budget.threads,
        rows: RowOptions { features: has_features(graph), ..RowOptions::default() },
        edge_features: matches!(edges, EdgeInput::Features(_)),
        read_engine: config.read_engine.into(),
        ..LoaderOptions::new(minibatches)
    }
}
