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

use std::sync::Arc;

use grappa_io::progress::Progress;
use grappa_run::{config::HaloMode, model::LayerKind, stages::Stage};
use grappa_sampling::{
    NodeSet,
    feed::BatchSource,
    policy::{SAMPLED_EDGE_WORK, refresh_work_max},
    sample::Minibatch,
};

use super::{
    Trainer,
    historical::{HistoricalNodes, Keep},
    inference::{Needed, OnRows},
    key,
    reach::halo_in_reach,
    split::SplitScores,
};
use crate::Result;

/// The refreshes of a super-epoch.
pub(super) struct RefreshPlan {
    /// The halo nodes in reach of one hop, of two, ..., of the partitions that this process serves.
    reached: Vec<NodeSet>,
    /// The number of each partition's own ones, summed.
    of_partitions: Vec<u64>,
    /// The nodes that their aggregates depend on.
    needed: Needed,
    /// The nodes that these and the scores of an evaluation depend on, if an inference computed both.
    with_scores: Option<Needed>,
    /// Epochs between two refreshes.
    interval: u64,
}

impl RefreshPlan {
    /// Whether an epoch begins with a refresh.
    fn is_due(&self, epoch: u64, repartition_every: u64) -> bool {
        (epoch % repartition_every).is_multiple_of(self.interval)
    }
}

impl Trainer {
    /// The results that a refresh saves.
    fn keep(&self) -> Keep {
        // Only layers between the first and the last have historical embeddings, and only several partitions have halo nodes.
        let has_use = self.config.partitions() > 1 && self.config.layers > 2;
        let corrects = self.aggregates.is_some() && self.model.has_neighbors();
        match self.config.halo {
            // Sampled in-neighbors do more.
            HaloMode::Auto if self.aggregates.is_none() => Keep::Nothing,
            // GIN loses accuracy with historical embeddings, even if they are refreshed each epoch.
            HaloMode::Auto if self.config.model == LayerKind::Gin => Keep::Nothing,
            // A slice has not all in-neighbors of halo nodes, and hosts exchange no embeddings.
            HaloMode::Auto if !self.store.manifest().is_whole() => Keep::Nothing,
            HaloMode::Auto | HaloMode::History if has_use && corrects => Keep::Neighbors {
                seed: key([self.config.seed, self.step]),
            },
            HaloMode::Auto | HaloMode::History if has_use => Keep::Aggregates,
            _ => Keep::Nothing,
        }
    }

    /// Plans the refreshes of the open partitions. None if they use no historical embeddings.
    pub(super) fn plan_refreshes(&mut self, progress: &dyn Progress) -> Result<Option<RefreshPlan>> {
        if self.keep() == Keep::Nothing {
            return Ok(None);
        }
        let threads = self.config.threads();
        let steps = match self.config.model {
            LayerKind::PinSage => self.config.walk_steps as usize,
            _ => 1,
        };
        let hops = [self.config.layers - 2, steps];
        let (reached, of_partitions) = halo_in_reach(&self.chunks, self.loader.served(), hops, threads, progress)?;
        let everywhere = self.united(&reached, progress)?;
        let epoch = refresh_work_max(self.work_of_epoch(progress)?);
        let super_epoch = epoch * self.config.repartition_every as f64;
        let work_max = match self.config.halo {
            HaloMode::Auto => super_epoch,
            _ => f64::INFINITY,
        };
        let needed_of = |reached, work_max| {
            let nodes = HistoricalNodes::new(&self.chunks, reached, Keep::Aggregates, threads, progress)?;
            nodes.needed(&self.chunks, self.aggregates.is_some(), work_max, threads, progress)
        };
        let mut of_all = None;
        let work = self.told_by_first("work of a refresh", || {
            of_all = needed_of(everywhere, work_max)?;
            Ok(of_all.as_ref().map(Needed::work))
        })?;
        let Some(work) = work else { return Ok(None) };
        let needed = match of_all.filter(|_| self.group.is_none()) {
            Some(needed) => needed,
            None => needed_of(reached.clone(), f64::INFINITY)?.expect("there is no limit"),
        };
        let interval = (work / epoch).ceil();
        Ok(Some(RefreshPlan {
            reached,
            of_partitions,
            interval: (interval as u64).clamp(1, self.config.repartition_every),
            needed,
            with_scores: None,
        }))
    }

    /// The work of training an epoch in all processes, in the unit of [`Needed::work`]. Counts the edges of the first step of the open
    /// partitions, unless they were counted before.
    ///
    /// # Errors
    /// If an adjacency list cannot be read, or progress says to stop.
    pub(super) fn work_of_epoch(&mut self, progress: &dyn Progress) -> Result<f64> {
        if let Some(work) = self.epoch_work {
            return Ok(work);
        }
        let all = self.loader.all_batches(0);
        let steps = all.batches();
        let served = all.served();
        let mut minibatch = Minibatch::default();
        if served.batches() > 0 && served.places(0)[0].step == 0 {
            served.sample(0, &mut served.scratch(), &mut minibatch)?;
        }
        // Processes that divide the partitions sample as many together. Their nodes are not as many: those of one process are shared.
        let mut sampled = [(minibatch.seeds + minibatch.edges()) as u64];
        if let Some(group) = &self.group {
            group.sum(&mut sampled, progress)?;
        }
        let work = SAMPLED_EDGE_WORK * sampled[0] as f64 * steps as f64;
        self.epoch_work = Some(work);
        Ok(work)
    }

    /// Refreshes the historical embeddings if `epoch` begins with that. A resumed epoch has those of its checkpoint.
    pub(super) fn refresh_when_due(&mut self, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let is_begun = self.partial.is_some_and(|partial| partial.steps > 0);
        // The evaluation of the epoch before may have made them.
        let is_of_now = self
            .historical_origin
            .as_ref()
            .is_some_and(|from| from.step == self.step);
        let is_due = |plan: &RefreshPlan| !is_begun && !is_of_now && plan.is_due(epoch, self.config.repartition_every);
        match &self.refresh_plan {
            Some(plan) if is_due(plan) || self.historical.is_none() => {}
            _ => return Ok(()),
        }
        let stage = self.clock.enter(Stage::History);
        let refreshed = self.refresh(None, progress);
        match self.refreshed(refreshed, progress) {
            Err(error) if error.is_disk_full() => self.warnings.push(format!(
                "no historical embeddings: {error}; training continues without them until the next epoch"
            )),
            refreshed => refreshed?,
        }
        self.clock.enter(stage);
        Ok(())
    }

    /// The end of a refresh on all ranks. If it failed on one of them, no rank has historical embeddings: all train alike, and all refresh
    /// before the next epoch or none does.
    pub(super) fn refreshed<T>(&mut self, done: Result<T>, progress: &dyn Progress) -> Result<T> {
        let agreed = self.agree(done, progress);
        if agreed.is_err() {
            (self.historical, self.historical_origin) = (None, None);
        }
        agreed
    }

    /// Whether the epoch after a checkpoint begins with a refresh.
    pub(super) fn is_refreshed_next(&self, finished_epochs: u64) -> bool {
        let next = match self.partial {
            Some(partial) if !partial.is_trained => return false,
            Some(_) => finished_epochs + 1,
            None => finished_epochs,
        };
        let every = self.config.repartition_every;
        let is_due = |plan: &RefreshPlan| plan.is_due(next, every);
        self.super_epoch != Some(next / every) || self.refresh_plan.as_ref().is_none_or(is_due)
    }

    /// Whether the epoch after `epoch` begins with a refresh for the open partitions.
    pub(super) fn is_refreshed_with(&self, epoch: u64) -> bool {
        let (next, every) = (epoch + 1, self.config.repartition_every);
        let is_due = |plan: &RefreshPlan| plan.is_due(next, every);
        next < self.config.epochs
            && self.super_epoch == Some(next / every)
            && self.refresh_plan.as_ref().is_some_and(is_due)
    }

    /// Computes the historical embeddings of the open partitions that this process serves from the current parameters, and with them the
    /// scores of its nodes of the splits of `scores`, if there are any.
    pub(super) fn refresh(&mut self, scores: Option<&mut SplitScores<'_>>, progress: &dyn Progress) -> Result<()> {
        // Frees the old rows before it writes the new ones.
        (self.historical, self.historical_origin) = (None, None);
        let Some(mut plan) = self.refresh_plan.take() else {
            return Ok(());
        };
        let refreshed = self.refresh_as(&mut plan, scores, progress);
        self.refresh_plan = Some(plan);
        refreshed
    }

    fn refresh_as(
        &mut self,
        plan: &mut RefreshPlan,
        scores: Option<&mut SplitScores<'_>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let (keep, threads) = (self.keep(), self.config.threads());
        let nodes = HistoricalNodes::new(&self.chunks, plan.reached.clone(), keep, threads, progress)?;
        // With more than three layers there are rows at drawn neighbors.
        let are_planned = |(set, planned): (&Arc<NodeSet>, &NodeSet)| set.len() == planned.len();
        let are_planned = nodes.sets().iter().rev().zip(&plan.reached).all(are_planned);
        let knows_first_hop = self.aggregates.is_some();
        let needed = match (&scores, &plan.with_scores) {
            (None, _) if are_planned => plan.needed.clone(),
            (Some(_), Some(with_scores)) if are_planned => with_scores.clone(),
            (None, _) => {
                let needed = nodes.needed(&self.chunks, knows_first_hop, f64::INFINITY, threads, progress)?;
                needed.expect("there is no limit")
            }
            (Some(_), _) => {
                let [val, test] = &self.scored_splits;
                let needed = self.needed(&[val, test], &[], nodes.sets(), f64::INFINITY, progress)?;
                let needed = needed.expect("there is no limit");
                plan.with_scores = are_planned.then(|| needed.clone());
                needed
            }
        };
        let room = self.make_room(true);
        let mut take = scores.map(|scores| self.taking(&needed, scores));
        let historical = self.with_inference(room, |inference, model| {
            let on_logits = take.as_mut().map(|take| take as &mut OnRows<'_>);
            inference.historical(model, &nodes, &needed, on_logits, progress)
        })?;
        drop(take);
        self.halo_bytes += historical.bytes_of_partitions(&nodes, &plan.of_partitions);
        self.historical = Some(Arc::new(historical));
        self.historical_is_of_now();
        Ok(())
    }
}
