//! Which nodes an evaluation computes, decided before the first epoch.
//!
//! If several processes train together, each scores a part of the nodes ([`Splits::scored_by`](crate::train::splits::Splits::scored_by)), and
//! computes what these depend on. How to evaluate is decided for the nodes of all by rank 0, so it does not depend on the number of
//! processes. If hosts have different slices of the graph, the ranks add up the work of their own nodes instead.

use std::{path::Path, slice};

use grappa_io::{
    ledger::MemoryShare,
    machine::free_disk_bytes,
    size::{ByteSize, count},
};
use grappa_run::{config::Evaluate, model::LayerKind};
use grappa_sampling::{
    NeighborSample,
    policy::{FIRST_INPUTS, exact_evaluation_work_max},
};
use roaring::RoaringTreemap;

use crate::train::{
    data::splits::{TEST, VAL},
    inference::{first_inputs::FirstInputs, needed::Needed},
    model_on_graph::ModelOnGraph,
    options::resolved_config::ResolvedConfig,
    random_key::key,
};
use crate::{Error, Resource, Result};

/// The seconds of an inference per unit of work, next to forward and backward passes: an inference has no backward passes
/// (2026-11-26, the time of an evaluation).
pub(crate) const fn inference_time(model: LayerKind) -> f64 {
    match model {
        LayerKind::Gat | LayerKind::Gatv2 | LayerKind::Transformer => 1.5,
        LayerKind::PinSage => 1.0,
        _ => 0.55,
    }
}

/// Test nodes are scored with the validation nodes if that costs at most this much as the validation nodes alone.
const TOGETHER: f64 = 1.3;
/// The same if features are in files: reading the few that are needed takes as long for both as for one.
const TOGETHER_FROM_FILES: f64 = 2.0;

/// The inputs of the first layer for the validation nodes, and the inputs for the test nodes, stay in a file if they take at most this
/// share of the free disk.
const FIRST_INPUTS_DISK_SHARE: u64 = 8;
/// Feature rows that evaluations read once.
const ROWS_IN_MEMORY: MemoryShare = MemoryShare::one(
    "feature rows of evaluations",
    2,
    "larger features are read from files by each inference, which then takes longer than its work says; chosen, not measured",
);

/// The nodes to compute for the scores of the validation and of the test nodes.
#[derive(Debug)]
pub(crate) enum ScoredNodes {
    /// Minibatches of sampled neighbors.
    Minibatches,
    /// One inference for both.
    Together(Box<Scored>),
    /// The validation nodes, and the test nodes.
    Apart(Box<[Scored; 2]>),
}

/// The nodes that this process computes for some scores, and what stays from one evaluation to the next.
#[derive(Debug)]
pub(crate) struct Scored {
    pub(crate) needed: Needed,
    /// The work of one inference for the nodes of all processes.
    pub(crate) work: f64,
    pub(crate) first_inputs: FirstInputs,
}

impl Scored {
    /// The nodes of some splits, which are `known` already or are looked for. `work` is the work of one inference in all processes.
    fn new(
        on: &ModelOnGraph<'_>,
        known: Option<Needed>,
        splits: &[&RoaringTreemap],
        samples: &[Option<NeighborSample>],
        work: f64,
    ) -> Result<Self> {
        let needed = match known {
            Some(needed) => needed,
            None => on.needed(splits, samples, &[], f64::INFINITY)?.expect("there is no limit"),
        };
        let folder = &on.config.folder;
        let bytes_max = FIRST_INPUTS.bytes(on.config.memory.0);
        let disk_max = free_disk_bytes(folder).unwrap_or(0) / FIRST_INPUTS_DISK_SHARE;
        Ok(Self { needed, work, first_inputs: FirstInputs::new(bytes_max, folder, disk_max) })
    }

    /// One inference that leaves nothing for later ones.
    pub(crate) fn once(needed: Needed, scratch: &Path) -> Self {
        Self { work: needed.work(), needed, first_inputs: FirstInputs::new(0, scratch, 0) }
    }
}

impl ScoredNodes {
    pub(crate) fn method(&self) -> Evaluate {
        match self.first() {
            Some(first) if !first.needed.is_sampled() => Evaluate::Exact,
            _ => Evaluate::Sampled,
        }
    }

    /// Gives up what stays from one evaluation to the next.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::Minibatches => {}
            Self::Together(both) => both.first_inputs.clear(),
            Self::Apart(both) => both.iter_mut().for_each(|scored| scored.first_inputs.clear()),
        }
    }

    /// Bytes of memory of what stays, apart from sets of nodes.
    pub(crate) fn memory(&self) -> u64 {
        let bytes: u64 = self.all().iter().map(|scored| scored.first_inputs.bytes()).sum();
        bytes + self.left_bytes()
    }

    /// Bytes of these that stay only so that the system need not clear them again.
    pub(crate) fn left_bytes(&self) -> u64 {
        self.all().iter().map(|scored| scored.first_inputs.left_bytes()).sum()
    }

    /// Frees what [`ScoredNodes::left_bytes`] counts.
    pub(crate) fn free_memory(&mut self) {
        self.all().iter().for_each(|scored| scored.first_inputs.free_memory());
    }

    /// The inferences of an evaluation.
    pub(crate) fn all(&self) -> &[Scored] {
        match self {
            Self::Minibatches => &[],
            Self::Together(both) => slice::from_ref(&**both),
            Self::Apart(both) => &**both,
        }
    }

    /// The nodes that each evaluation scores, and what they depend on.
    pub(crate) fn first(&self) -> Option<&Scored> {
        self.all().first()
    }

    /// Decides how to evaluate, and finds the nodes to compute. Rank 0 gives the method.
    pub(crate) fn choose(on: &mut ModelOnGraph<'_>, method: Evaluate) -> Result<Self> {
        // Exact inference computes a node once, and each seed sees it at another time.
        if on.data.uses_times {
            return Ok(Self::Minibatches);
        }
        let work_max = match on.processes.broadcast("method", || Ok(method))? {
            Evaluate::Sampled => return Self::of_samples(on),
            Evaluate::Exact => f64::INFINITY,
            Evaluate::Auto if on.check_sets().is_err() => return Ok(Self::Minibatches),
            Evaluate::Auto => {
                let epoch = on.work_of_epoch()?;
                let seeds = on.partitions.loader.all_batches(0).seeds_of_all().max(1) as f64;
                let [_, val, test] = on.data.splits.of_all();
                let scored = if val == 0 { test } else { val } as f64;
                exact_evaluation_work_max(epoch, seeds, scored)
            }
        };
        match inferences(on, &[], work_max)? {
            Some(exact) => Ok(exact),
            None => Self::of_samples(on),
        }
    }

    /// The nodes to compute from sampled in-neighbors. All evaluations of a run draw the same, so that they can be compared.
    pub(crate) fn of_samples(on: &ModelOnGraph<'_>) -> Result<Self> {
        let inferences = match evaluation_samples(on.config) {
            Some(samples) if on.check_sets().is_ok() => inferences(on, &samples, f64::INFINITY)?,
            _ => None,
        };
        Ok(inferences.unwrap_or(Self::Minibatches))
    }

    /// A sentence about the evaluations. `retained` are the bytes of memory that historical embeddings and an earlier evaluation take.
    pub(crate) fn describe(&self, on: &mut ModelOnGraph<'_>, retained: u64) -> Result<String> {
        let [_, val, test] = on.data.splits.of_all();
        let nodes = match (val, test) {
            (0, 0) => return Ok("there are no validation and test nodes; the model of the last epoch is kept".into()),
            (0, _) => format!("{} test nodes", count(test)),
            _ => format!("{} validation and {} test nodes", count(val), count(test)),
        };
        let (best, note) = match val {
            0 => ("last", "; there are no validation nodes, so the model of the last epoch is kept"),
            _ => ("best", ""),
        };
        let files = match self.scratch_bytes(on, retained)? {
            0 => String::new(),
            bytes => format!(", with {} of scratch files", ByteSize(bytes)),
        };
        let Some(first) = self.first().filter(|first| !first.needed.is_sampled()) else {
            let last = match on.config.evaluate {
                Evaluate::Auto if !on.data.uses_times && on.check_sets().is_ok() => {
                    format!("; the {best} model is scored exactly at the end")
                }
                _ => String::new(),
            };
            return Ok(format!("evaluations sample the neighbors of {nodes}{files}{last}{note}"));
        };
        let work = match on.work_of_epoch()? {
            epoch if epoch > 0.0 => match first.work / epoch {
                times if times >= 10.0 => format!(", about {times:.0} times the work of an epoch"),
                times => format!(", about {:.0} % of the work of an epoch", 100.0 * times),
            },
            _ => String::new(),
        };
        Ok(format!("evaluations are exact: {nodes}{work}{files}{note}"))
    }

    /// Bytes of the scratch files of an evaluation.
    fn scratch_bytes(&self, on: &mut ModelOnGraph<'_>, retained: u64) -> Result<u64> {
        let room = on.make_room(retained, false)?;
        let inference_bytes = self.all().iter().map(|scored| {
            let bytes = on.scratch_bytes(room, &scored.needed, &scored.first_inputs);
            bytes.unwrap_or(0)
        });
        Ok(inference_bytes.sum())
    }

    /// Refuses an evaluation whose scratch files do not fit the disk, of this process or of another one.
    pub(crate) fn check_disk(&self, on: &mut ModelOnGraph<'_>, retained: u64) -> Result<()> {
        let bytes = self.scratch_bytes(on, retained)?;
        let checked = match free_disk_bytes(&on.config.folder) {
            Some(free) if bytes > free => Err(Error::Lack {
                rank: None,
                resource: Resource::Disk,
                message: format!(
                    "an exact evaluation needs {} of scratch files, and {} are free in {}: use --evaluate sampled, a larger \
                     --memory, or a disk with more space for --out",
                    ByteSize(bytes),
                    ByteSize(free),
                    on.config.folder.display()
                ),
            }),
            _ => Ok(()),
        };
        on.processes.agree(checked, on.progress)
    }
}

/// The in-neighbors that each layer of a sampled evaluation aggregates. None for random walks, which go further than a layer.
fn evaluation_samples(config: &ResolvedConfig) -> Option<Vec<Option<NeighborSample>>> {
    if config.model == LayerKind::PinSage {
        return None;
    }
    let fanouts = config.evaluation_fanouts();
    // The last layer samples the first hop.
    let samples = (0..config.layers).rev().map(|hop| {
        fanouts.at(hop).map(|per_node| NeighborSample {
            per_node,
            replace: config.replace,
            seed: key([config.seed, hop as u64]),
        })
    });
    Some(samples.collect())
}

/// The inferences of an evaluation whose layers aggregate `samples` ([`NeededOptions::samples`](crate::train::inference::NeededOptions::samples)),
/// as far as this process has a part in them. None if they are more work than `work_max`.
fn inferences(on: &ModelOnGraph<'_>, samples: &[Option<NeighborSample>], work_max: f64) -> Result<Option<ScoredNodes>> {
    let mut chosen = None;
    let decided = if on.processes.hosts.count() == 1 {
        on.processes.broadcast("inferences", || {
            chosen = choose_inferences(on, samples, work_max)?;
            Ok(chosen.as_ref().map(|&(are_together, work, _)| (are_together, work)))
        })?
    } else {
        chosen = choose_inferences(on, samples, work_max)?;
        chosen.as_ref().map(|&(are_together, work, _)| (are_together, work))
    };
    let Some((are_together, work)) = decided else {
        return Ok(None);
    };
    // Several ranks of one host decided about the nodes of all. In other cases, the decision was about the nodes of this process.
    let known = chosen.filter(|_| on.processes.group.is_none() || on.processes.hosts.count() > 1);
    let known = known.map(|(.., first)| first);
    let [val, test] = &on.data.scored_splits;
    Ok(Some(match are_together {
        true => ScoredNodes::Together(Box::new(Scored::new(on, known, &[val, test], samples, work)?)),
        false => {
            let of_val = Scored::new(on, known, &[val], samples, work)?;
            ScoredNodes::Apart(Box::new([of_val, Scored::new(on, None, &[test], samples, work)?]))
        }
    }))
}

/// Decides how to score the nodes of all processes. Returns whether one inference scores the validation and the test nodes, the work of the
/// first inference in all processes, and what it computes ([`work_of`]). None if that is more work than `work_max`.
fn choose_inferences(
    on: &ModelOnGraph<'_>,
    samples: &[Option<NeighborSample>],
    work_max: f64,
) -> Result<Option<(bool, f64, Needed)>> {
    let [_, val, test] = on.data.splits.of_all();
    if val == 0 || test == 0 {
        return Ok(work_of(on, &[VAL, TEST], samples, work_max)?.map(|(work, needed)| (true, work, needed)));
    }
    let from_files = on.partitions.loader.feature_bytes() > ROWS_IN_MEMORY.bytes(on.config.memory.0);
    // If there are at most as many test nodes as validation nodes, scoring both takes about twice the work of scoring the validation nodes
    // at most. To find the nodes that scores depend on takes a good part of the time of an evaluation, so it is not done once more to know
    // this exactly. Ranks with different slices may differ in `from_files`.
    if from_files
        && test <= val
        && on.processes.hosts.count() == 1
        && let Some((work, needed)) = work_of(on, &[VAL, TEST], samples, work_max)?
    {
        return Ok(Some((true, work, needed)));
    }
    let Some((of_val, needed)) = work_of(on, &[VAL], samples, work_max)? else {
        return Ok(None);
    };
    let together = if from_files { TOGETHER_FROM_FILES } else { TOGETHER };
    let both = work_of(on, &[VAL, TEST], samples, work_max.min(together * of_val))?;
    Ok(Some(match both {
        Some((work, needed)) => (true, work, needed),
        None => (false, of_val, needed),
    }))
}

/// The work of scoring some splits, in all processes, and what an inference computes for that. None if it is more than `work_max`.
///
/// On one host, the inference is for the nodes of all processes. On several hosts, no process has the edges of all: each counts the work
/// for its own nodes, and all of them must call this.
fn work_of(
    on: &ModelOnGraph<'_>,
    splits: &[usize],
    samples: &[Option<NeighborSample>],
    work_max: f64,
) -> Result<Option<(f64, Needed)>> {
    let nodes = match on.processes.hosts.count() {
        1 => [on.data.splits.val(), on.data.splits.test()],
        _ => on.data.scored_splits.each_ref(),
    };
    let nodes: Vec<&RoaringTreemap> = splits.iter().map(|&split| &**nodes[split]).collect();
    let needed = on.needed(&nodes, samples, &[], work_max)?;
    let Some(group) = on.processes.with_slices() else {
        return Ok(needed.map(|needed| (needed.work(), needed)));
    };
    let mut sums = [u64::from(needed.is_none()), needed.as_ref().map_or(0, |needed| needed.work() as u64)];
    group.sum(&mut sums, on.progress)?;
    let [exceeded, work] = sums;
    // Limits follow from memory and features, which may differ: all keep to the lowest.
    let mut refused = [u64::from(exceeded > 0 || work as f64 > work_max)];
    group.sum(&mut refused, on.progress)?;
    Ok(needed.filter(|_| refused == [0]).map(|needed| (work as f64, needed)))
}
