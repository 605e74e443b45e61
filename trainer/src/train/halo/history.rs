//! When historical embeddings are refreshed, and for which nodes.
//!
//! A refresh is an exact inference of the halo nodes in reach. It is due when partitions change, and then every few epochs, so that
//! it takes at most a part of the work of training ([`refresh_work_max`]). With `--halo auto`, embeddings that would take more even if
//! they are refreshed only when partitions change are not used. The age of historical embeddings costs accuracy: with 4 layers on
//! wordnet, a refresh every 5 epochs reaches 78.4 % where one every epoch reaches 79.7 %, like the whole graph.
//!
//! Decisions depend on counts of nodes and edges, not on measured time, so a run with the same options and seed gives the same
//! result on any machine. If several processes divide the partitions, each refreshes the halo nodes that its own partitions reach. The
//! decisions are about the halo nodes of all, so that they do not depend on the number of processes.

use std::{path::Path, sync::Arc};

use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::{Checkpoint, NamedTensor},
    config::HaloMode,
    model::LayerKind,
};
use grappa_sampling::{NodeSet, policy::refresh_work_max};

use super::reachable_nodes::halo_in_reach;
use crate::Result;
use crate::train::{
    data::splits::SplitScores,
    inference::{
        historical::{HistoricalNodes, HistoricalRows, Keep},
        needed::Needed,
        task::OnRows,
    },
    model_on_graph::ModelOnGraph,
    random_key::key,
    ranks::Processes,
    step::learner::Learner,
    tensors::{load, to_named},
};

/// Prefixes of the names of [`Checkpoint::historical`].
const PARAMETERS: &str = "parameters.";
const BUFFERS: &str = "buffers.";

/// The refreshes of a super-epoch.
pub(crate) struct RefreshPlan {
    /// The halo nodes in reach of one hop, of two, ..., of the partitions that this process serves.
    reached: Vec<NodeSet>,
    /// The number of each partition's own ones, summed.
    partition_nodes: Vec<u64>,
    /// The nodes that their aggregates depend on.
    needed: Needed,
    /// The nodes that these and the scores of an evaluation depend on, if an inference computed both.
    with_scores: Option<Needed>,
    /// Epochs between two refreshes.
    interval: u64,
}

/// The parameters that historical embeddings were made with.
pub(crate) struct HistoricalOrigin {
    /// Finished optimizer steps at that time.
    pub step: u64,
    /// The parameters and buffers of the model, as [`Checkpoint::historical`] names them.
    pub tensors: Vec<NamedTensor>,
}

/// The historical embeddings of the open partitions, and when they are refreshed.
#[derive(Default)]
pub(crate) struct History {
    /// None if the partitions use no historical embeddings.
    plan: Option<RefreshPlan>,
    /// From the last refresh.
    pub rows: Option<Arc<HistoricalRows>>,
    pub origin: Option<HistoricalOrigin>,
}

impl History {
    /// Frees the embeddings.
    pub fn clear(&mut self) {
        (self.rows, self.origin) = (None, None);
    }

    /// Whether the open partitions use historical embeddings.
    pub fn is_planned(&self) -> bool {
        self.plan.is_some()
    }

    /// Bytes of memory that the embeddings take.
    pub fn memory(&self) -> u64 {
        self.rows.as_ref().map_or(0, |rows| rows.memory())
    }

    /// Plans the refreshes of the open partitions.
    pub fn plan(&mut self, on: &mut ModelOnGraph<'_>) -> Result<()> {
        self.plan = match keep(on) {
            Keep::Nothing => None,
            _ => RefreshPlan::partition_nodes(on)?,
        };
        Ok(())
    }

    /// Whether an epoch on the open partitions begins with a refresh; none if they use no historical embeddings.
    pub fn is_due(&self, epoch: u64, repartition_every: u64) -> Option<bool> {
        self.plan.as_ref().map(|plan| plan.is_due(epoch, repartition_every))
    }

    /// Whether an epoch must refresh them before it begins, after `step` optimizer steps. A resumed epoch has the embeddings of its
    /// checkpoint.
    pub fn must_refresh(&self, epoch: u64, is_begun: bool, step: u64, repartition_every: u64) -> bool {
        // The evaluation of the epoch before may have made them.
        let is_of_now = self.origin.as_ref().is_some_and(|from| from.step == step);
        match self.is_due(epoch, repartition_every) {
            Some(is_due) => (is_due && !is_begun && !is_of_now) || self.rows.is_none(),
            None => false,
        }
    }

    /// Whether the inference after `epoch` may also refresh them: the next epoch trains the same partitions, and begins with a refresh.
    pub fn is_refreshed_with(&self, epoch: u64, on: &ModelOnGraph<'_>) -> bool {
        let (next, every) = (epoch + 1, on.config.repartition_every);
        next < on.config.epochs
            && on.partitions.super_epoch == Some(next / every)
            && self.is_due(next, every).unwrap_or(false)
    }

    /// The end of a refresh on all ranks. If it failed on one of them, no rank has historical embeddings: all train alike, and all refresh
    /// before the next epoch or none does.
    pub fn refreshed<T>(&mut self, done: Result<T>, processes: &Processes, progress: &dyn Progress) -> Result<T> {
        let agreed = processes.agree(done, progress);
        if agreed.is_err() {
            self.clear();
        }
        agreed
    }

    /// Computes the historical embeddings of the open partitions that this process serves from the current parameters, and with them the
    /// scores of its nodes of the splits of `scores`, if there are any. `retained` are the bytes that evaluations left for the next ones.
    pub fn refresh(
        &mut self,
        on: &mut ModelOnGraph<'_>,
        retained: u64,
        scores: Option<&mut SplitScores<'_>>,
    ) -> Result<()> {
        // Frees the old rows before it writes the new ones.
        self.clear();
        let Some(plan) = &mut self.plan else { return Ok(()) };
        let (chunks, threads) = (on.data.chunks(), on.config.threads());
        let nodes = HistoricalNodes::new(chunks, plan.reached.clone(), keep(on), threads, on.progress)?;
        let needed = plan.needed_for(&nodes, scores.is_some(), on)?;
        let room = on.make_room(retained, true)?;
        let mut take = scores.map(|scores| scores.receiver(needed.results(), on.data.labels()));
        let rows = on.with_inference(room, |inference, model| {
            let on_logits = take.as_mut().map(|take| take as &mut OnRows<'_>);
            inference.historical(model, &nodes, &needed, on_logits, on.progress)
        })?;
        on.partitions.halo_bytes += rows.bytes_of_partitions(&nodes, &plan.partition_nodes);
        self.rows = Some(Arc::new(rows));
        self.origin = Some(HistoricalOrigin::now(on.learner));
        Ok(())
    }
}

impl RefreshPlan {
    /// Plans the refreshes of the open partitions. None if they would be too much work.
    fn partition_nodes(on: &mut ModelOnGraph<'_>) -> Result<Option<Self>> {
        let (config, progress) = (on.config, on.progress);
        let steps = match config.model {
            LayerKind::PinSage => config.walk_steps as usize,
            _ => 1,
        };
        let hops = [config.layers - 2, steps];
        let (chunks, served) = (on.data.chunks(), on.partitions.loader.served());
        let (reached, partition_nodes) = halo_in_reach(chunks, served, hops, config.threads(), progress)?;
        let everywhere = on.processes.united(&reached, progress)?;
        let epoch = refresh_work_max(on.work_of_epoch()?);
        let work_max = match config.halo {
            HaloMode::Auto => epoch * config.repartition_every as f64,
            _ => f64::INFINITY,
        };
        let mut total = None;
        let work = on.processes.broadcast("work of a refresh", || {
            total = needed_for_halo(on, everywhere, work_max)?;
            Ok(total.as_ref().map(Needed::work))
        })?;
        let Some(work) = work else { return Ok(None) };
        let needed = match total.filter(|_| on.processes.group.is_none()) {
            Some(needed) => needed,
            None => needed_for_halo(on, reached.clone(), f64::INFINITY)?.expect("there is no limit"),
        };
        let interval = (work / epoch).ceil();
        Ok(Some(Self {
            reached,
            partition_nodes,
            interval: (interval as u64).clamp(1, config.repartition_every),
            needed,
            with_scores: None,
        }))
    }

    /// Whether an epoch begins with a refresh.
    fn is_due(&self, epoch: u64, repartition_every: u64) -> bool {
        (epoch % repartition_every).is_multiple_of(self.interval)
    }

    /// The nodes that the embeddings of `nodes` depend on, and, `with_scores`, the scores of an evaluation.
    fn needed_for(&mut self, nodes: &HistoricalNodes, with_scores: bool, on: &ModelOnGraph<'_>) -> Result<Needed> {
        // With more than three layers there are rows at drawn neighbors.
        let mut sets = nodes.sets().iter().rev().zip(&self.reached);
        let are_planned = sets.all(|(set, planned)| set.len() == planned.len());
        let planned = if with_scores { self.with_scores.as_ref() } else { Some(&self.needed) };
        if let Some(planned) = planned.filter(|_| are_planned) {
            return Ok(planned.clone());
        }
        let needed = if with_scores {
            let [val, test] = &on.data.scored_splits;
            on.needed(&[val, test], &[], nodes.sets(), f64::INFINITY)?
        } else {
            let (chunks, threads) = (on.data.chunks(), on.config.threads());
            nodes.needed(chunks, on.config.knows_first_hop(), f64::INFINITY, threads, on.progress)?
        };
        let needed = needed.expect("there is no limit");
        if with_scores {
            self.with_scores = are_planned.then(|| needed.clone());
        }
        Ok(needed)
    }
}

/// The nodes that the aggregates of halo nodes depend on. None if they are more work than `work_max`.
fn needed_for_halo(on: &ModelOnGraph<'_>, reached: Vec<NodeSet>, work_max: f64) -> Result<Option<Needed>> {
    let (chunks, threads) = (on.data.chunks(), on.config.threads());
    let nodes = HistoricalNodes::new(chunks, reached, Keep::Aggregates, threads, on.progress)?;
    nodes.needed(chunks, on.config.knows_first_hop(), work_max, threads, on.progress)
}

/// The results that a refresh saves.
fn keep(on: &ModelOnGraph<'_>) -> Keep {
    let config = on.config;
    // Only layers between the first and the last have historical embeddings, and only several partitions have halo nodes.
    let has_use = config.partitions() > 1 && config.layers > 2;
    let corrects = config.aggregates.is_some() && on.learner.model.has_neighbors();
    match config.halo {
        // Halo nodes have other in-neighbors in each relation, and these get sampled ones.
        _ if config.model.is_relational() => Keep::Nothing,
        // Sampled in-neighbors do more than embeddings that do not follow the parameters.
        HaloMode::Auto if !corrects => Keep::Nothing,
        // GIN loses accuracy with historical embeddings, even if they are refreshed each epoch.
        HaloMode::Auto if config.model == LayerKind::Gin => Keep::Nothing,
        // A slice has not all in-neighbors of halo nodes, and hosts exchange no embeddings.
        HaloMode::Auto if !on.data.store.manifest().is_whole() => Keep::Nothing,
        // The last layer would need them too, for the sources of links.
        HaloMode::Auto if on.data.links().is_some() => Keep::Nothing,
        // They are made of all edges, also of later ones.
        HaloMode::Auto if on.data.uses_times => Keep::Nothing,
        HaloMode::Auto | HaloMode::History if has_use && corrects => {
            Keep::Neighbors { seed: key([config.seed, on.learner.step]) }
        }
        HaloMode::Auto | HaloMode::History if has_use => Keep::Aggregates,
        _ => Keep::Nothing,
    }
}

impl HistoricalOrigin {
    /// The current parameters.
    fn now(learner: &Learner) -> Self {
        let parameters = learner.model.parameters();
        let named = [(PARAMETERS, parameters.named()), (BUFFERS, parameters.buffers())];
        let tensors = named.into_iter().flat_map(|(prefix, tensors)| {
            let tensors = tensors.iter();
            tensors.map(move |(name, tensor)| to_named(&format!("{prefix}{name}"), tensor))
        });
        Self { step: learner.step, tensors: tensors.collect() }
    }

    /// Gives a model the parameters that the embeddings of a checkpoint were made with. It was read from `path`.
    pub fn load(learner: &Learner, path: &Path, checkpoint: &Checkpoint) -> Result<()> {
        let parameters = learner.model.parameters();
        for (prefix, tensors) in [(PARAMETERS, parameters.named()), (BUFFERS, parameters.buffers())] {
            let saved = checkpoint.historical.iter().filter_map(|tensor| {
                let name = tensor.name.strip_prefix(prefix)?.to_owned();
                Some(NamedTensor { name, ..tensor.clone() })
            });
            load(path, tensors, &saved.collect::<Vec<_>>())?;
        }
        Ok(())
    }
}
