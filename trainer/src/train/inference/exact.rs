//! The outputs of a trained model, by exact inference.

use std::{path::Path, sync::Arc};

use grappa_engine::aggregate::{Budget, NodeRows, StoredRows, store_features};
use grappa_formats::{ChunkId, NodeId, manifest::FeatureDtype};
use grappa_io::progress::Progress;
use grappa_run::{config::FirstHop, schema::Match};
use grappa_sampling::{NodeSet, view::shape_of};
use grappa_storage::{Graph, MappedChunks, Store};

use super::{
    columns::reordered,
    needed::{Needed, NeededGraph, NeededOptions, check_sets},
    relational::RelationalInference,
    task::{Inference, OnRows},
    trained_model::{InferenceRequest, Output, PredictedGraph, RequestedNodes, Trained},
};
use crate::train::{data::edge_data, embeddings::NodeTables, options::first_hop};
use crate::{Error, Result, runtime::catch_out_of_memory};

impl Trained {
    /// Fails if memory does not hold the sets of nodes of an exact inference.
    pub(crate) fn check_memory(&self, store: &Store, budget: Budget) -> Result<()> {
        match self.predicts_at_times() {
            true => Ok(()),
            false => check_sets(store.manifest().nodes, self.model.options().layers, budget.memory, "raise --memory"),
        }
    }

    /// Computes the output for some nodes of a store: by exact inference from all in-neighbors, or, if nodes are predicted at a time, from
    /// sampled in-neighbors at this time. Only nodes that the output depends on are computed. Passes it to `on_rows` as f32 of `[nodes, values]`, with the range of positions among the wanted nodes. If the run's first
    /// layer took pre-aggregated features and the store has them, inference takes them too.
    ///
    /// # Errors
    /// If the model does not fit the store, the store is a slice without a wanted node, files cannot be read, scratch files in `scratch`
    /// cannot be written, or memory is too small. Also the errors of `on_rows`.
    pub fn infer(
        &self,
        on: PredictedGraph<'_>,
        request: InferenceRequest,
        budget: Budget,
        scratch: &Path,
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        let store = on.nodes;
        self.check_graph(on)?;
        if let Some(graph) = on.times {
            return self.infer_at_times(graph, on, request, (budget, scratch), progress, on_rows);
        }
        let layers = match request.output {
            Output::Logits => self.model.options().layers,
            Output::Embeddings => self.model.options().layers - 1,
        };
        if layers == 0 {
            return Err(Error::Options(
                "a model with one layer has no embeddings, which are the input of the last layer: choose logits".into(),
            ));
        }
        let nodes = match request.nodes {
            RequestedNodes::Nodes(nodes) => on.set_of_each(self.model.options(), nodes),
            RequestedNodes::Ends(nodes) => nodes,
        };
        if let Some(graph) = on.graph {
            for (node_type, nodes) in self.model.options().graph().output_types().into_iter().zip(&nodes) {
                check_present(&graph.node_types()[node_type], nodes)?;
            }
            return self.infer_by_relation(graph, nodes, layers, (budget, scratch), progress, on_rows);
        }
        check_present(store, &nodes[0])?;
        let chunks = Arc::new(MappedChunks::open(store)?);
        let features = store_features(store)?;
        let order = match Match::of_features(&self.schema, &store.schema()?) {
            Match::Reordered(order) => Some(order),
            _ => None,
        };
        let aggregates = match first_hop::of_run(&self.state) {
            FirstHop::Preaggregated => {
                let options = self.model.options();
                first_hop::known(store, options.layer, options.edges)?
            }
            _ => None,
        };
        let aggregates = aggregates.map(|aggregates| StoredRows::of_aggregates(store, aggregates));
        // An aggregate of features has their columns.
        let aggregates = aggregates.as_ref().map(|rows| rows as &dyn NodeRows);
        let order = order.as_deref();
        let ordered = order.map(|order| reordered(&*features, order));
        let ordered_aggregates = order.zip(aggregates).map(|(order, rows)| reordered(rows, order));
        let (options, threads) = (self.model.options(), budget.threads);
        let weight_sums = edge_data::weight_sums(store, &chunks, options.layer, options.edges, threads)?;
        let budget = Budget { memory: edge_data::memory_beside(budget.memory, weight_sums.as_ref()), ..budget };
        let inference = Inference {
            store,
            chunks: &chunks,
            weight_sums: weight_sums.as_ref(),
            features: ordered.as_ref().map_or(&*features as &dyn NodeRows, |rows| rows),
            first_hop: ordered_aggregates.as_ref().map(|rows| rows as &dyn NodeRows).or(aggregates),
            first_inputs: None,
            budget,
            kept_memory: 0,
            scratch,
            rounded_states: FeatureDtype::F32,
            device: self.device,
        };
        catch_out_of_memory("free some of the device's memory, or use --device cpu", || {
            let options = NeededOptions {
                layers,
                samples: &[],
                knows_first_hop: aggregates.is_some(),
                also: &[],
                work_max: f64::INFINITY,
                threads: budget.threads,
            };
            let graph = NeededGraph::untyped(&chunks, store.manifest().nodes, self.model.options().layers);
            let needed = Needed::compute(&graph, nodes, &options, progress)?;
            let needed = needed.expect("there is no limit");
            inference.run_needed(&self.model, &needed, progress, &mut |positions, rows| match request.output {
                Output::Logits => on_rows(positions, rows),
                Output::Embeddings => on_rows(positions, &rows.narrow(1, 0, self.model.options().hidden as i64)),
            })
        })?;
        Ok(())
    }

    /// As [`Trained::infer`], of the first `layers` layers of a model with weights for each relation.
    fn infer_by_relation(
        &self,
        graph: &Graph,
        nodes: Vec<NodeSet>,
        layers: usize,
        (budget, scratch): (Budget, &Path),
        progress: &dyn Progress,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        let options = self.model.options();
        let lists = graph.relations().iter().map(|relation| Ok(Arc::new(MappedChunks::open(relation)?)));
        let lists = lists.collect::<Result<Vec<_>>>()?;
        let first_hop = match first_hop::of_run(&self.state) {
            FirstHop::Preaggregated => first_hop::all_known(graph, options.layer, options.edges)?,
            _ => None,
        };
        let needed_options = NeededOptions {
            layers,
            samples: &[],
            knows_first_hop: first_hop.is_some(),
            also: &[],
            work_max: f64::INFINITY,
            threads: budget.threads,
        };
        let embeddings = NodeTables::of_checkpoint(
            &self.checkpoint,
            &options.graph(),
            graph,
            &self.embeddings,
            (budget.memory, scratch),
        )?;
        let edges = NeededGraph::of_model(&lists, &shape_of(graph), options);
        let needed = Needed::compute(&edges, nodes, &needed_options, progress)?.expect("there is no limit");
        let inference = RelationalInference {
            graph,
            lists: &lists,
            embeddings: embeddings.as_ref(),
            first_hop,
            budget,
            scratch,
            rounded_states: FeatureDtype::F32,
            device: self.device,
        };
        catch_out_of_memory("free some of the device's memory, or use --device cpu", || {
            inference.run(&self.model, &needed, progress, on_rows)
        })
    }
}

/// Refuses nodes of chunks that a slice lacks.
fn check_present(store: &Store, request: &NodeSet) -> Result<()> {
    let chunks = store.chunks();
    for chunk in (0..chunks.chunks()).map(ChunkId).filter(|&chunk| !store.is_present(chunk)) {
        let range = chunks.range(chunk);
        let Some(last) = range.clone().last().map(NodeId) else {
            continue;
        };
        let is_wanted = request.contains(last) || request.position(NodeId(range.start)) < request.position(last);
        if is_wanted {
            store.span(chunk)?;
        }
    }
    Ok(())
}
