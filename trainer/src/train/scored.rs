//! Which nodes an evaluation computes, decided before the first epoch.
//!
//! If several processes train together, each scores a part of the nodes ([`Splits::scored_by`](super::split::Splits::scored_by)), and
//! computes what these depend on. How to evaluate is decided for the nodes of all by rank 0, so it does not depend on the number of
//! processes. If hosts have different slices of the graph, the ranks add up the work of their own nodes instead.

use std::{path::Path, slice, sync::Arc};

use grappa_formats::NodeId;
use grappa_io::{
    machine::free_disk_bytes,
    progress::Progress,
    size::{ByteSize, count},
};
use grappa_run::{config::Evaluate, model::LayerKind, stages::Stage};
use grappa_sampling::{
    NeighborSample, NodeSet,
    policy::{FIRST_INPUTS_SHARE, exact_evaluation_work_max},
};
use roaring::RoaringTreemap;
use serde::{Deserialize, Serialize};

use super::{
    Trainer,
    evaluate::{TEST, VAL},
    inference::{FirstInputs, Inference, Needed, NeededOptions, check_sets},
    key,
};
use crate::{Error, Resource, Result};

/// The seconds of an inference per unit of work, next to those of forward and backward passes: an inference has no backward passes
/// (2026-11-26, the time of an evaluation).
pub(super) const fn inference_time(model: LayerKind) -> f64 {
    match model {
        LayerKind::Gat | LayerKind::Gatv2 => 1.5,
        LayerKind::PinSage => 1.0,
        _ => 0.55,
    }
}

/// Test nodes are scored with the validation nodes if that costs at most this much as the validation nodes alone.
const TOGETHER: f64 = 1.3;
/// The same if features are in files: reading the few that are needed takes as long for both as for one.
const TOGETHER_FROM_FILES: f64 = 2.0;

/// The inputs of the first layer for the validation nodes, and the inputs for the test nodes, stay in a file if they take at most this share of the free disk.
const FIRST_INPUTS_DISK_SHARE: u64 = 8;

/// The nodes to compute for the scores of the validation and of the test nodes.
#[derive(Debug)]
pub(super) enum ScoredNodes {
    /// Minibatches of sampled neighbors.
    Minibatches,
    /// One inference for both.
    Together(Box<Scored>),
    /// The validation nodes, and the test nodes.
    Apart(Box<[Scored; 2]>),
}

/// The nodes that this process computes for some scores, and what stays from one evaluation to the next.
#[derive(Debug)]
pub(super) struct Scored {
    pub(super) needed: Needed,
    /// The work of one inference for the nodes of all processes.
    work: f64,
    pub(super) first_inputs: FirstInputs,
}

/// The inferences of an evaluation.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Inferences {
    /// Whether one scores the validation and the test nodes.
    are_together: bool,
    /// The work of the first one, for the nodes of all processes.
    work: f64,
}

impl Scored {
    /// Scores of one inference, of which nothing stays.
    pub(super) fn once(needed: Needed, scratch: &Path) -> Self {
        Self {
            work: needed.work(),
            needed,
            first_inputs: FirstInputs::new(0, scratch, 0),
        }
    }
}

impl ScoredNodes {
    pub(super) fn method(&self) -> Evaluate {
        match self.first() {
            Some(first) if !first.needed.is_sampled() => Evaluate::Exact,
            _ => Evaluate::Sampled,
        }
    }

    /// Gives up what stays from one evaluation to the next.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Minibatches => {}
            Self::Together(both) => both.first_inputs.clear(),
            Self::Apart(both) => both.iter_mut().for_each(|scored| scored.first_inputs.clear()),
        }
    }

    /// Bytes of memory of what stays, apart from sets of nodes.
    pub(super) fn memory(&self) -> u64 {
        let bytes = |scored: &Scored| scored.first_inputs.bytes();
        self.all().iter().map(bytes).sum::<u64>() + self.left_bytes()
    }

    /// Bytes of these that stay only so that the system need not clear them again.
    pub(super) fn left_bytes(&self) -> u64 {
        self.all().iter().map(|scored| scored.first_inputs.left_bytes()).sum()
    }

    /// Frees what [`ScoredNodes::left_bytes`] counts.
    pub(super) fn free_memory(&mut self) {
        self.all().iter().for_each(|scored| scored.first_inputs.free_memory());
    }

    /// The inferences of an evaluation.
    fn all(&self) -> &[Scored] {
        match self {
            Self::Minibatches => &[],
            Self::Together(both) => slice::from_ref(&**both),
            Self::Apart(both) => &**both,
        }
    }

    /// The nodes that each evaluation scores, and what they depend on.
    fn first(&self) -> Option<&Scored> {
        self.all().first()
    }
}

impl Trainer {
    /// Opens the partitions of an epoch, and decides how to evaluate the model. `before` is how the run was evaluated before it was
    /// resumed, which only rank 0 knows: `auto` keeps to that. Returns a sentence about the evaluations.
    ///
    /// # Errors
    /// If an exact evaluation needs more disk than is free. Also if files cannot be read, or progress says to stop.
    pub fn prepare(&mut self, epoch: u64, before: Option<Evaluate>, progress: &dyn Progress) -> Result<String> {
        self.clock.enter(Stage::Load);
        self.open_partitions(epoch / self.config.repartition_every, progress)?;
        self.warn_of_short_epochs(epoch);
        self.clock.enter(Stage::Evaluate);
        let is_auto = self.config.evaluate == Evaluate::Auto;
        let method = before.filter(|_| is_auto).unwrap_or(self.config.evaluate);
        let mut scored = self.scored_nodes(method, progress)?;
        let mut checked = self.check_disk(&scored, progress);
        if let Err(error) = &checked
            && error.is_disk_full()
            && scored.method() == Evaluate::Exact
            && is_auto
        {
            scored = self.sampled_nodes(progress)?;
            checked = self.check_disk(&scored, progress);
        }
        match checked {
            // Minibatches need no disk.
            Err(error) if error.is_disk_full() && scored.method() == Evaluate::Sampled => {
                scored = ScoredNodes::Minibatches;
            }
            checked => checked?,
        }
        let told = self.describe(&scored, progress)?;
        self.scored_nodes = Some(scored);
        Ok(told)
    }

    /// Warns if an epoch has fewer steps than the user asked for.
    fn warn_of_short_epochs(&mut self, epoch: u64) {
        let (wanted, steps) = (self.config.steps_per_epoch, self.loader.all_batches(epoch).steps());
        if steps < wanted {
            self.warnings.push(format!(
                "--steps-per-epoch {wanted} has no effect: {steps} step(s) use all training nodes, and an epoch ends then; for \
                 shorter epochs give a smaller number"
            ));
        }
    }

    /// Decides how to evaluate, and finds the nodes to compute. The method is that of rank 0.
    pub(super) fn scored_nodes(&mut self, method: Evaluate, progress: &dyn Progress) -> Result<ScoredNodes> {
        let work_max = match self.told_by_first("method", || Ok(method))? {
            Evaluate::Sampled => return self.sampled_nodes(progress),
            Evaluate::Exact => f64::INFINITY,
            Evaluate::Auto if self.check_sets().is_err() => return Ok(ScoredNodes::Minibatches),
            Evaluate::Auto => {
                let epoch = self.work_of_epoch(progress)?;
                let seeds = self.loader.all_batches(0).seeds_of_all().max(1) as f64;
                let [_, val, test] = self.splits.of_all();
                let scored = if val == 0 { test } else { val } as f64;
                exact_evaluation_work_max(epoch, seeds, scored)
            }
        };
        match self.inferences(&[], work_max, progress)? {
            Some(exact) => Ok(exact),
            None => self.sampled_nodes(progress),
        }
    }

    /// The nodes to compute from sampled in-neighbors. All evaluations of a run draw the same, so that they can be compared.
    fn sampled_nodes(&self, progress: &dyn Progress) -> Result<ScoredNodes> {
        let samples = self.evaluation_samples();
        let inferences = match samples {
            Some(samples) if self.check_sets().is_ok() => self.inferences(&samples, f64::INFINITY, progress)?,
            _ => None,
        };
        Ok(inferences.unwrap_or(ScoredNodes::Minibatches))
    }

    /// The in-neighbors that each layer of a sampled evaluation aggregates. None for random walks, which go further than a layer.
    fn evaluation_samples(&self) -> Option<Vec<Option<NeighborSample>>> {
        if self.config.model == LayerKind::PinSage {
            return None;
        }
        let fanouts = self.config.evaluation_fanouts();
        // The first hop is that of the last layer.
        let sample = |hop| {
            fanouts.at(hop).map(|per_node| NeighborSample {
                per_node,
                replace: self.config.replace,
                seed: key([self.config.seed, hop as u64]),
            })
        };
        Some((0..self.config.layers).rev().map(sample).collect())
    }

    /// The inferences of an evaluation whose layers aggregate `samples` ([`NeededOptions::samples`]), as far as this process has a part
    /// in them. None if they are more work than `work_max`.
    fn inferences(
        &self,
        samples: &[Option<NeighborSample>],
        work_max: f64,
        progress: &dyn Progress,
    ) -> Result<Option<ScoredNodes>> {
        let mut chosen = None;
        let mut choose = || -> Result<_> {
            let Some((inferences, first)) = self.choose_inferences(samples, work_max, progress)? else {
                return Ok(None);
            };
            chosen = Some(first);
            Ok(Some(inferences))
        };
        let decided = match self.hosts.count() {
            1 => self.told_by_first("inferences", choose)?,
            _ => choose()?,
        };
        let Some(Inferences { are_together, work }) = decided else {
            return Ok(None);
        };
        let bytes_max = self.config.memory.0 / FIRST_INPUTS_SHARE;
        let disk_max = free_disk_bytes(&self.folder).unwrap_or(0) / FIRST_INPUTS_DISK_SHARE;
        // Several ranks of one host decided about the nodes of all. In other cases, the decision was about those of this process.
        let mut known = chosen.filter(|_| self.group.is_none() || self.hosts.count() > 1);
        let mut scored = |splits: &[&RoaringTreemap]| -> Result<Scored> {
            let needed = match known.take() {
                Some(needed) => needed,
                None => {
                    let needed = self.needed(splits, samples, &[], f64::INFINITY, progress)?;
                    needed.expect("there is no limit")
                }
            };
            Ok(Scored {
                needed,
                work,
                first_inputs: FirstInputs::new(bytes_max, &self.folder, disk_max),
            })
        };
        let [val, test] = &self.scored_splits;
        Ok(Some(match are_together {
            true => ScoredNodes::Together(Box::new(scored(&[val, test])?)),
            false => ScoredNodes::Apart(Box::new([scored(&[val])?, scored(&[test])?])),
        }))
    }

    /// Decides how to score the nodes of all processes. Also returns what the first inference computes ([`Trainer::work_of`]). None if that
    /// is more work than `work_max`.
    fn choose_inferences(
        &self,
        samples: &[Option<NeighborSample>],
        work_max: f64,
        progress: &dyn Progress,
    ) -> Result<Option<(Inferences, Needed)>> {
        let of = |splits: &[usize], work_max| self.work_of(splits, samples, work_max, progress);
        let chosen = |are_together, (work, first)| Some((Inferences { are_together, work }, first));
        let [_, val, test] = self.splits.of_all();
        if val == 0 || test == 0 {
            return Ok(of(&[VAL, TEST], work_max)?.and_then(|both| chosen(true, both)));
        }
        let from_files = self.loader.feature_bytes() > self.config.memory.0 / 2;
        // No more test nodes than validation nodes are at most about as much work again. To find the nodes that scores depend on takes a
        // good part of the time of an evaluation, so it is not done once more to know this exactly. Ranks with different slices may
        // differ in `from_files`.
        if from_files
            && test <= val
            && self.hosts.count() == 1
            && let Some(both) = of(&[VAL, TEST], work_max)?
        {
            return Ok(chosen(true, both));
        }
        let Some(of_val) = of(&[VAL], work_max)? else {
            return Ok(None);
        };
        let together = if from_files { TOGETHER_FROM_FILES } else { TOGETHER };
        match of(&[VAL, TEST], work_max.min(together * of_val.0))? {
            Some(both) => Ok(chosen(true, both)),
            None => Ok(chosen(false, of_val)),
        }
    }

    /// The work of scoring some splits, in all processes, and what an inference computes for that. None if it is more than `work_max`.
    ///
    /// On one host, the inference is for the nodes of all processes. On several hosts, no process has the edges of all: each counts the work
    /// for its own nodes, and all of them must call this.
    fn work_of(
        &self,
        splits: &[usize],
        samples: &[Option<NeighborSample>],
        work_max: f64,
        progress: &dyn Progress,
    ) -> Result<Option<(f64, Needed)>> {
        let nodes = match self.hosts.count() {
            1 => [self.splits.val(), self.splits.test()],
            _ => self.scored_splits.each_ref(),
        };
        let nodes: Vec<&RoaringTreemap> = splits.iter().map(|&split| &**nodes[split]).collect();
        let needed = self.needed(&nodes, samples, &[], work_max, progress)?;
        let Some(group) = self.group.as_ref().filter(|_| self.hosts.count() > 1) else {
            return Ok(needed.map(|needed| (needed.work(), needed)));
        };
        let mut of_all = [
            u64::from(needed.is_none()),
            needed.as_ref().map_or(0, |needed| needed.work() as u64),
        ];
        group.sum(&mut of_all, progress)?;
        let [exceeded, work] = of_all;
        // Limits follow from memory and features, which may differ: all keep to the lowest.
        let mut refused = [u64::from(exceeded > 0 || work as f64 > work_max)];
        group.sum(&mut refused, progress)?;
        Ok(needed.filter(|_| refused == [0]).map(|needed| (work as f64, needed)))
    }

    /// Fails if the memory of some rank does not hold the sets of nodes of an exact evaluation. All ranks must evaluate in the same way.
    fn check_sets(&self) -> Result<()> {
        let (nodes, remedy) = (self.store.manifest().nodes, "raise --memory, or use --evaluate sampled");
        check_sets(nodes, self.config.layers, self.least_memory, remedy)
    }

    /// The nodes that the scores of some splits depend on if layers aggregate `samples` ([`NeededOptions::samples`]), and the states
    /// `also` ([`NeededOptions::also`]); none if they are more work than `work_max`.
    pub(super) fn needed(
        &self,
        splits: &[&RoaringTreemap],
        samples: &[Option<NeighborSample>],
        also: &[Arc<NodeSet>],
        work_max: f64,
        progress: &dyn Progress,
    ) -> Result<Option<Needed>> {
        self.check_sets()?;
        let members = splits.iter().flat_map(|split| split.iter()).map(NodeId);
        let options = NeededOptions {
            layers: self.config.layers,
            samples,
            knows_first_hop: self.aggregates.is_some(),
            also,
            work_max,
            threads: self.config.threads(),
        };
        let scored = NodeSet::of(self.store.manifest().nodes, members);
        Needed::of(&self.chunks, scored, &options, progress)
    }

    fn describe(&mut self, scored: &ScoredNodes, progress: &dyn Progress) -> Result<String> {
        let [_, val, test] = self.splits.of_all();
        let nodes = match (val, test) {
            (0, 0) => return Ok("there are no validation and test nodes; the model of the last epoch is kept".into()),
            (0, _) => format!("{} test nodes", count(test)),
            _ => format!("{} validation and {} test nodes", count(val), count(test)),
        };
        let (best, kept) = match val {
            0 => (
                "last",
                "; there are no validation nodes, so the model of the last epoch is kept",
            ),
            _ => ("best", ""),
        };
        let files = match self.scratch_bytes(scored) {
            0 => String::new(),
            bytes => format!(", with {} of scratch files", ByteSize(bytes)),
        };
        let Some(first) = scored.first().filter(|first| !first.needed.is_sampled()) else {
            let last = match self.config.evaluate {
                Evaluate::Auto if self.check_sets().is_ok() => {
                    format!("; the {best} model is scored exactly at the end")
                }
                _ => String::new(),
            };
            return Ok(format!(
                "evaluations sample the neighbors of {nodes}{files}{last}{kept}"
            ));
        };
        let work = match self.work_of_epoch(progress)? {
            epoch if epoch > 0.0 => match first.work / epoch {
                times if times >= 10.0 => format!(", about {times:.0} times the work of an epoch"),
                times => format!(", about {:.0} % of the work of an epoch", 100.0 * times),
            },
            _ => String::new(),
        };
        Ok(format!("evaluations are exact: {nodes}{work}{files}{kept}"))
    }

    /// Learns how fast this machine is: the forward and backward passes of an epoch took `seconds`.
    pub(super) fn took(&mut self, seconds: f64) {
        self.seconds_per_work = self.epoch_work.filter(|&work| work > 0.0).map(|work| seconds / work);
    }

    /// About how many seconds the next evaluation takes. None before the first epoch, and if minibatches are evaluated.
    pub(super) fn seconds_of_evaluation(&self) -> Option<f64> {
        self.seconds_of(self.scored_nodes.as_ref()?.first()?)
    }

    /// About how many seconds an inference takes. None before the first epoch.
    pub(super) fn seconds_of(&self, scored: &Scored) -> Option<f64> {
        self.seconds_per_work
            .map(|seconds| inference_time(self.config.model) * seconds * scored.work)
    }

    /// Bytes of the scratch files of an evaluation.
    fn scratch_bytes(&mut self, scored: &ScoredNodes) -> u64 {
        let room = self.make_room(false);
        let of = |scored: &Scored| {
            self.with_inference(room, |inference, model| {
                let inference = Inference {
                    first_inputs: Some(&scored.first_inputs),
                    ..inference
                };
                Ok(inference.scratch_bytes(model, &scored.needed))
            })
            .unwrap_or(0)
        };
        scored.all().iter().map(of).sum()
    }

    /// Refuses an evaluation whose scratch files do not fit the disk, of this process or of another one.
    fn check_disk(&mut self, scored: &ScoredNodes, progress: &dyn Progress) -> Result<()> {
        let bytes = self.scratch_bytes(scored);
        let checked = match free_disk_bytes(&self.folder) {
            Some(free) if bytes > free => Err(Error::Lack {
                rank: None,
                resource: Resource::Disk,
                what: format!(
                    "an exact evaluation needs {} of scratch files, and {} are free in {}: use --evaluate sampled, a larger \
                     --memory, or a disk with more space for --out",
                    ByteSize(bytes),
                    ByteSize(free),
                    self.folder.display()
                ),
            }),
            _ => Ok(()),
        };
        self.agree(checked, progress)
    }
}
