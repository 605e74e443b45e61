//! Exact inference of the model while it is trained: its inputs, its memory, and the nodes that it computes.

use std::sync::Arc;

use grappa_engine::aggregate::{Budget, NodeRows, StoredRows, store_features};
use grappa_formats::{NodeId, manifest::FeatureDtype};
use grappa_io::{ledger::Ledger, progress::Progress};
use grappa_run::{model::Precision, scores::TargetScale};
use grappa_sampling::{NeighborSample, NodeSet};
use grappa_storage::aggregates::Aggregates;
use roaring::RoaringTreemap;

use super::inference::{
    FirstInputs, RelationalInference,
    needed::{Needed, NeededGraph, NeededOptions, check_sets},
    task::{Inference, OnRows},
};
use super::{
    data::training_data::TrainingData,
    memory::{INFERENCE, Room, TrainingMemory},
    options::{first_hop, resolved_config::ResolvedConfig},
    partitions::open_partitions::OpenPartitions,
    ranks::Processes,
    step::learner::Learner,
};
use crate::{
    Result,
    nn::Model,
    runtime::{release_memory, release_memory_above},
};

/// Columns of the feed.
const FEATURES: usize = 0;
const AGGREGATES: usize = 1;

/// The model while it is trained, and everything that an inference of it takes.
pub(crate) struct ModelOnGraph<'a> {
    pub config: &'a Arc<ResolvedConfig>,
    pub processes: &'a Processes,
    pub data: &'a Arc<TrainingData>,
    pub learner: &'a Learner,
    pub partitions: &'a mut OpenPartitions,
    /// Whether the open partitions use historical embeddings.
    pub uses_history: bool,
    /// The leases of the run.
    pub ledger: &'a mut Ledger,
    pub progress: &'a dyn Progress,
}

impl<'a> ModelOnGraph<'a> {
    /// The scale of scores of targets. None if the model predicts classes.
    pub fn target_scale(&self) -> Option<TargetScale> {
        self.learner.model.target_scale(self.config.target_loss())
    }

    /// Fails if the memory of some rank does not hold the sets of nodes of an exact evaluation. All ranks must evaluate in the same way.
    pub fn check_sets(&self) -> Result<()> {
        let (nodes, remedy) =
            (self.data.graph.positions().chunks().nodes(), "raise --memory, or use --evaluate sampled");
        check_sets(nodes, self.config.layers, self.processes.least_memory, remedy)
    }

    /// The nodes that the scores of some splits depend on if layers aggregate `samples` ([`NeededOptions::samples`]), and the states
    /// `also` ([`NeededOptions::also`]); none if they are more work than `work_max`.
    pub fn needed(
        &self,
        splits: &[&RoaringTreemap],
        samples: &[Option<NeighborSample>],
        also: &[Arc<NodeSet>],
        work_max: f64,
    ) -> Result<Option<Needed>> {
        self.check_sets()?;
        let members = splits.iter().flat_map(|split| split.iter()).map(NodeId);
        let options = NeededOptions {
            layers: self.config.layers,
            samples,
            knows_first_hop: self.config.knows_first_hop(),
            also,
            work_max,
            threads: self.config.threads(),
        };
        let scored = NodeSet::from_members(self.data.store.manifest().nodes, members);
        Needed::compute(&self.needed_graph(), vec![scored], &options, self.progress)
    }

    /// All nodes that the outputs of all nodes depend on.
    pub fn needed_by_all(&self) -> Needed {
        Needed::all(&self.needed_graph())
    }

    /// The edges along which the outputs of the model depend on its inputs.
    fn needed_graph(&self) -> NeededGraph<'a> {
        let (data, options) = (self.data, self.learner.model.options());
        match options.layer.is_relational() {
            true => NeededGraph::of_model(data.lists(), &data.shape, options),
            false => NeededGraph::untyped(data.chunks(), data.store.manifest().nodes, options.layers),
        }
    }

    /// Passes the outputs of the wanted nodes to `on_rows`, by an inference with this memory. `first_inputs`, if any, has space for the inputs of the
    /// first layer, if more inferences of the same nodes follow.
    pub fn infer(
        &self,
        room: Room,
        needed: &Needed,
        first_inputs: Option<&FirstInputs>,
        on_rows: &mut OnRows<'_>,
    ) -> Result<()> {
        if self.learner.model.options().layer.is_relational() {
            return self.relational(room)?.run(&self.learner.model, needed, self.progress, on_rows);
        }
        self.with_inference(room, |inference, model| {
            let inference = Inference { first_inputs, ..inference };
            inference.run_needed(model, needed, self.progress, on_rows)
        })
    }

    /// Bytes of the scratch files of [`ModelOnGraph::infer`].
    pub fn scratch_bytes(&self, room: Room, needed: &Needed, first_inputs: &FirstInputs) -> Result<u64> {
        if self.learner.model.options().layer.is_relational() {
            return Ok(self.relational(room)?.scratch_bytes(&self.learner.model, needed));
        }
        self.with_inference(room, |inference, model| {
            let inference = Inference { first_inputs: Some(first_inputs), ..inference };
            Ok(inference.scratch_bytes(model, needed))
        })
    }

    /// An inference of a model for graphs with types.
    fn relational(&self, room: Room) -> Result<RelationalInference<'a>> {
        let aggregates = self.config.aggregates.map(|kind| first_hop::opened(&self.data.graph, kind)).transpose()?;
        Ok(RelationalInference {
            graph: &self.data.graph,
            lists: self.data.lists(),
            embeddings: self.learner.embeddings.as_ref(),
            first_hop: aggregates.flatten(),
            budget: Budget::new(room.inference, self.config.threads()),
            scratch: &self.config.folder,
            rounded_states: match self.config.evaluate_states {
                Precision::F32 => FeatureDtype::F32,
                Precision::Bf16 => FeatureDtype::Bf16,
            },
            device: self.config.device,
        })
    }

    /// The work of training an epoch on the open partitions, in the unit of [`Needed::work`].
    pub fn work_of_epoch(&mut self) -> Result<f64> {
        self.partitions.work_of_epoch(self.data.shape.types(), self.processes, self.progress)
    }

    /// Frees memory for inference, with `keeps` for one that saves historical embeddings. A feed that does not hold all features has
    /// taken all memory that the views leave, so it is closed; the next epoch opens another, and historical embeddings have to be in
    /// files. Views in turn are freed too: a pass over rows in files reads all of them once for each part of its results that fits the
    /// memory.
    ///
    /// `retained` are the bytes of historical embeddings, and of what evaluations left for the next ones.
    pub fn make_room(&mut self, retained: u64, keeps: bool) -> Result<Room> {
        let loader = &mut self.partitions.loader;
        loader.close_feed_on_disk();
        let views = loader.free_views_in_turn();
        let (config, data, uses_history) = (self.config, self.data, self.uses_history);
        let memory = TrainingMemory { config, data, loader, uses_history };
        let budget = memory.divide_for_inference(views, retained, keeps);
        match budget.step_tensors {
            Some(bytes) => release_memory_above(bytes),
            None => release_memory(),
        }
        self.ledger.enter(INFERENCE, budget.leases)?;
        Ok(budget.room)
    }

    /// Calls `infer` with an inference over the store, and the model.
    pub fn with_inference<T>(&self, room: Room, infer: impl FnOnce(Inference<'_>, &Model) -> Result<T>) -> Result<T> {
        let features = self.features()?;
        let first_hop = self.first_hop_rows()?;
        let inference = Inference {
            store: &self.data.store,
            chunks: self.data.chunks(),
            features: &*features,
            weight_sums: self.data.degrees.weight_sums(),
            first_hop: first_hop.as_deref(),
            first_inputs: None,
            budget: Budget::new(room.inference, self.config.threads()),
            kept_memory: room.kept,
            scratch: &self.config.folder,
            rounded_states: match self.config.evaluate_states {
                // Training must not depend on memory.
                _ if self.uses_history => FeatureDtype::F32,
                Precision::F32 => FeatureDtype::F32,
                Precision::Bf16 => FeatureDtype::Bf16,
            },
            device: self.config.device,
        };
        infer(inference, &self.learner.model)
    }

    /// The features of all nodes, from the feed if it holds them, and else from files.
    fn features(&self) -> Result<Box<dyn NodeRows + '_>> {
        match self.partitions.loader.feed().and_then(|feed| feed.resident_rows(FEATURES)) {
            Some(rows) => Ok(Box::new(rows)),
            None => Ok(store_features(&self.data.store)?),
        }
    }

    /// The pre-aggregated features of all nodes, if the model takes them.
    fn first_hop_rows(&self) -> Result<Option<Box<dyn NodeRows + '_>>> {
        let Some(kind) = self.config.aggregates else {
            return Ok(None);
        };
        if let Some(rows) = self.partitions.loader.feed().and_then(|feed| feed.resident_rows(AGGREGATES)) {
            return Ok(Some(Box::new(rows)));
        }
        let aggregates = Aggregates::open(&self.data.store, kind)?;
        Ok(aggregates.map(|aggregates| Box::new(StoredRows::of_aggregates(&self.data.store, aggregates)) as _))
    }
}
