//! Training with several processes: what they agree on, and what the ranks other than 0 do.
//!
//! Every rank has the whole store, or a slice of it ([`super::hosts`]), and opens the partitions that it serves ([`Share`]). In each
//! step, it computes the gradient of its partitions, and all ranks apply the same sum. So all have the same parameters. A rank computes
//! the historical embeddings of the halo nodes that its own partitions reach, and scores its part of the validation and test nodes.
//! Only rank 0 adds up the scores and writes files. It tells the others the score of an evaluation, on which the learning rate and
//! early stopping depend.
//!
//! ```text
//! rank 0                                   the others
//! choose a checkpoint, tell                read it
//! pre-aggregate features                   afterwards, one after the other
//! open its partitions                      open theirs
//! decide on refreshes and evaluations      tell what their partitions reach, and take the decisions
//! train its partitions of each step        train theirs
//! collect the metrics of the epoch         send them
//! score its nodes, add up, tell the score  score theirs, send the counts
//! collect the residuals of gradients       send them, if there are any and a checkpoint is due
//! write the files of the epoch
//! ```
//!
//! All ranks must make the same decisions. So no decision depends on what one rank has open. Ranks sum their counts and unite their sets
//! ([`ProcessGroup::sum`], [`ProcessGroup::unite`]), or rank 0 decides ([`Trainer::told_by_first`]). If work that training can do without
//! fails on one rank for lack of memory or disk space, it fails on all ([`Trainer::agree`]). Any other error ends the run on all ranks.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::{machine::memory_limit, progress::Progress};
use grappa_run::{
    checkpoint::{Best, Checkpoint, PartialEpoch, RunState},
    config::{OptionScope, TrainConfig, TrainOption},
    model::NormKind,
};
use grappa_sampling::{NodeSet, partition::Share};
use grappa_storage::{Store, aggregates::folder};
use serde::{Serialize, de::DeserializeOwned};
use tch::{Device, Tensor, no_grad};

use super::{
    Trainer, Watcher, exchange,
    hosts::{self, Ranks},
    numbers::{self, Numbers},
    session,
    trainer::Inputs,
};
use crate::{
    Error, Resource, Result,
    distributed::{Hello, ProcessGroup},
    runtime,
};

/// Under this name a rank leaves the metrics of an unfinished epoch for rank 0 when it stops.
const UNFINISHED: &str = "unfinished";

/// Takes part in the training of rank 0, which calls [`train_first`](super::train_first), as another rank of `group`. `folder` is that of
/// the run, which rank 0 has created.
///
/// # Errors
/// As [`train`](super::train), and if another rank has left or cannot be reached.
pub fn follow(
    store: Arc<Store>,
    config: TrainConfig,
    folder: &Path,
    device: Device,
    group: Arc<ProcessGroup>,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    runtime::catch_out_of_memory(super::OUT_OF_MEMORY, || {
        let checkpoint = agree_on_checkpoint(&group, None)?;
        let found = match &checkpoint {
            Some(name) => {
                let path = folder.join(grappa_run::folder::CHECKPOINTS).join(name);
                let checkpoint = Checkpoint::read(&path)?;
                Some((path, checkpoint))
            }
            None => None,
        };
        let ranks = Ranks::meet(&store, Some(group.clone()))?;
        if group.place().local_rank == 0 {
            // On the host of rank 0, that rank warns.
            let beyond = numbers::limit_warning(config.memory, ranks.processes_of_host(), memory_limit());
            beyond.iter().for_each(|warning| watcher.warn(warning));
        }
        let inputs = Inputs::check(&store, &config, &ranks)?;
        let initial = match found {
            None => session::initial(&config, &inputs, &store.schema()?, watcher)?,
            Some(_) => None,
        };
        let aggregates = first_hop_in_turn(&group, &store, &config, found.as_ref(), watcher)?;
        let numbers = Numbers::of_run(&store, &config, aggregates.is_some(), found.as_ref(), &ranks)?;
        let config = numbers.applied(&config);
        let at = folder.to_owned();
        let mut trainer = Trainer::of_ranks(store, config.clone(), aggregates, device, at, ranks, inputs)?;
        let mut state = RunState::default();
        match found {
            Some((path, checkpoint)) => {
                state = checkpoint.state.clone();
                trainer.restore(&path, &checkpoint)?;
                trainer.restore_historical(&path, &checkpoint, watcher.progress())?;
            }
            None => {
                trainer.measure_features(watcher.progress())?;
                initial.map_or(Ok(()), |initial| initial.load(&trainer))?;
            }
        }
        match epochs(&mut trainer, &config, &mut state, &group, watcher) {
            Err(error) if error.is_stopped() => {
                group.announce(true, "was asked to stop");
                if let Some(partial) = &trainer.partial {
                    group.leave_behind(UNFINISHED, partial);
                }
                trainer.leave_residual();
                Err(Error::Stopped {
                    place: trainer.place(state.epoch),
                    kept: "rank 0 writes the checkpoint".into(),
                })
            }
            result => result,
        }
    })
}

/// Names and values that must be the same on all ranks that train `store`. Their options are compared by [`agree_on_options`].
///
/// # Errors
/// If the store cannot be read.
pub fn hello(store: &Store) -> Result<Hello> {
    let version = format!(
        "{} with libtorch {}",
        env!("CARGO_PKG_VERSION"),
        runtime::libtorch_version()
    );
    let mut same = vec![
        ("program's version".to_owned(), version),
        ("store's digest".to_owned(), hosts::comparable_digest(store)?),
    ];
    if !store.manifest().is_whole() {
        // A rank cannot make them.
        let kinds = AggregateKind::ALL
            .into_iter()
            .filter(|&kind| folder(store, kind).exists());
        let names: Vec<&str> = kinds.map(AggregateKind::name).collect();
        let names = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        // Last: they differ, too, if the other rank has the whole store.
        same.push(("slice's pre-aggregated features".to_owned(), names));
    }
    Ok(Hello { same })
}

/// Makes sure that all ranks train with the same options, except those that each process has for itself ([`OptionScope::Process`]). All
/// ranks must call it.
///
/// # Errors
/// If an option differs; the message names it. Also if a rank has left or cannot be reached.
pub fn agree_on_options(group: &ProcessGroup, config: &TrainConfig) -> Result<()> {
    let options = config.table().into_iter();
    let own: BTreeMap<String, String> = options
        .filter(|(option, _)| TrainOption::named(option).is_none_or(|option| option.scope != OptionScope::Process))
        .map(|(option, value)| (option, value.to_string()))
        .collect();
    let of_each = group.gather_all("options", own.clone())?;
    for (rank, other) in of_each.iter().enumerate() {
        if let Some((option, value)) = own.iter().find(|(option, value)| other.get(*option) != Some(value)) {
            return Err(Error::Distributed(format!(
                "ranks differ in the option --{option}: rank {} has {value}, and rank {rank} has {}: give all ranks the same",
                group.place().rank,
                other.get(option).map_or("none", String::as_str)
            )));
        }
    }
    Ok(())
}

/// The epochs of a rank other than 0, and its part of the evaluation at the end.
fn epochs(
    trainer: &mut Trainer,
    config: &TrainConfig,
    state: &mut RunState,
    group: &ProcessGroup,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let is_over = |state: &RunState| state.is_over(config.epochs, config.early_stopping);
    if !is_over(state) {
        let prepared = trainer.prepare(state.epoch, None, watcher.progress());
        session::tell_warnings(trainer, watcher);
        prepared?;
    }
    while !is_over(state) {
        watcher.begin(state.epoch + 1, config.epochs);
        let (learning_rate, epoch) = (state.learning_rate, state.epoch);
        let rate = |step, steps| learning_rate.at(config, epoch, step, steps);
        let trained = trainer.epoch(epoch, &rate, watcher.progress());
        session::tell_warnings(trainer, watcher);
        trained?;
        let score = match is_evaluated(config, epoch) {
            true => {
                trainer.collect_residuals(false)?;
                survived(trainer.evaluate(true, epoch, &|_| unreachable!("rank 0 asks"), watcher.progress()))?;
                score_of_first(group, || unreachable!("rank 0 knows it"))?
            }
            false => None,
        };
        trainer.end_epoch();
        state.epoch += 1;
        state.step = trainer.steps();
        if let Some(score) = score {
            observe(state, config, score, None);
        }
        trainer.collect_residuals(false)?;
    }
    if trainer.has_final_evaluation(false)? {
        let scored = trainer.scored_exactly(watcher.progress());
        survived(trainer.evaluate_exactly(scored, true, watcher.progress()))?;
    }
    Ok(())
}

/// The end of an evaluation on a rank other than 0. If it lacked memory or disk space, all ranks know ([`Trainer::agree`]), and rank 0
/// decides: it warns and continues, or ends the run with the error.
fn survived<T>(evaluated: Result<T>) -> Result<()> {
    match evaluated {
        Err(error) if error.is_disk_full() || error.is_budget() => Ok(()),
        evaluated => evaluated.map(|_| ()),
    }
}

/// Whether the model is evaluated after an epoch.
pub(super) fn is_evaluated(config: &TrainConfig, epoch: u64) -> bool {
    epoch + 1 == config.epochs || (epoch + 1).is_multiple_of(config.eval_every)
}

/// Tells the other ranks the score of an evaluation, which rank 0 knows. They get its bits, because JSON has no NaN.
pub(super) fn score_of_first(group: &ProcessGroup, score: impl FnOnce() -> Option<f64>) -> Result<Option<f64>> {
    let bits = group.share("score", || Ok(score().map(f64::to_bits)))?;
    Ok(bits.map(f64::from_bits))
}

/// Takes the score of an evaluation of the last finished epoch. Returns whether it is the best one.
pub(super) fn observe(state: &mut RunState, config: &TrainConfig, score: f64, test: Option<f64>) -> bool {
    let is_best = state.early_stopping.observe(score);
    state.learning_rate.observe(config, score);
    if is_best {
        state.best = Some(Best {
            epoch: state.epoch,
            step: state.step,
            val: score,
            test,
        });
    }
    is_best
}

/// Tells the other ranks from which checkpoint to continue: rank 0 gives its path. Returns the name of the file.
pub(super) fn agree_on_checkpoint(group: &ProcessGroup, path: Option<&Path>) -> Result<Option<String>> {
    group.share("checkpoint", || {
        let name = path.and_then(Path::file_name);
        Ok(name.map(|name| name.to_string_lossy().into_owned()))
    })
}

/// [`session::first_hop`], on one rank after the other: if the store lacks pre-aggregated features, the first rank of each host makes them.
pub(super) fn first_hop_in_turn(
    group: &ProcessGroup,
    store: &Store,
    config: &TrainConfig,
    from: Option<&(std::path::PathBuf, Checkpoint)>,
    watcher: &mut dyn Watcher,
) -> Result<Option<AggregateKind>> {
    let chosen = group.in_turn("first hop", || session::first_hop(store, config, from, watcher))?;
    let of_first = group.share("choice", || Ok(chosen.is_some()))?;
    if chosen.is_some() != of_first {
        let told = |is_some| if is_some { "pre-aggregated" } else { "sampled" };
        return Err(Error::Distributed(format!(
            "the first hop is {} on rank {} and {} on rank 0: choose the same with --first-hop sampled or preaggregated",
            told(chosen.is_some()),
            group.place().rank,
            told(of_first)
        )));
    }
    Ok(chosen)
}

impl Trainer {
    /// Makes this trainer, which has the share of its rank, one of the processes of a group.
    pub(super) fn join(&mut self, group: Arc<ProcessGroup>) {
        let (ranks, concurrent) = (group.place().ranks, self.config.concurrent());
        if concurrent < ranks {
            self.warnings.push(format!(
                "{} of {ranks} processes have no part in a step, which has {concurrent} partition(s): use at least --concurrent \
                 {ranks}, and as many --partitions",
                ranks - concurrent
            ));
        }
        if self.config.norm() == NormKind::Batch {
            self.warnings.push(format!(
                "batch norms take the statistics of the partitions of one process, so results depend on the number of processes, \
                 {ranks}: --norm layer does not"
            ));
        }
        self.warn_about_compression(ranks);
        self.exchange = exchange::of_group(&self.config, group.clone(), self.model.parameters().count());
        self.group = Some(group);
    }

    /// The part of this process in work that the ranks of its host divide.
    pub(super) fn share_within_host(&self) -> Share {
        self.hosts.share_within(self.rank().0)
    }

    /// Whether this is rank 0, or the only process.
    pub(super) fn is_first(&self) -> bool {
        self.group.as_ref().is_none_or(|group| group.is_first())
    }

    /// The number of this process, and the number of processes.
    pub(super) fn rank(&self) -> (u32, u32) {
        let place = self.group.as_ref().map(|group| group.place());
        place.map_or((0, 1), |place| (place.rank, place.ranks))
    }

    /// A value that rank 0 computes and tells the others.
    pub(super) fn told_by_first<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        value: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        match &self.group {
            None => value(),
            Some(group) => group.share(name, value),
        }
    }

    /// The end of work that every rank does a part of, and that training can do without: if one rank lacks memory or disk space for its
    /// part, all get the error of the first such rank. All ranks must call it, unless they end with another error.
    pub(super) fn agree<T>(&self, done: Result<T>, progress: &dyn Progress) -> Result<T> {
        let Some(group) = &self.group else { return done };
        let lack = match &done {
            Ok(_) => None,
            Err(error) if error.is_disk_full() => Some((Resource::Disk, error.to_string())),
            Err(error) if error.is_budget() => Some((Resource::Memory, error.to_string())),
            Err(_) => return done,
        };
        let mut lacks = [u64::from(lack.is_some())];
        group.sum(&mut lacks, progress)?;
        if lacks == [0] {
            return done;
        }
        let of_each = group.gather_all("lack", lack)?;
        let first = (0..).zip(of_each).find_map(|(rank, lack)| Some((rank, lack?)));
        let (rank, (resource, what)) = first.expect("a rank lacks something");
        match done {
            Err(error) if rank == group.place().rank => Err(error),
            _ => Err(Error::Lack {
                rank: Some(rank),
                resource,
                what,
            }),
        }
    }

    /// The nodes that are in a set on any rank, for each set.
    pub(super) fn united(&self, sets: &[NodeSet], progress: &dyn Progress) -> Result<Vec<NodeSet>> {
        let Some(group) = &self.group else {
            return Ok(sets.to_vec());
        };
        let unite = |set: &NodeSet| {
            let mut words = set.to_words();
            group.unite(&mut words, progress)?;
            Ok(NodeSet::of_words(set.universe(), &words))
        };
        sets.iter().map(unite).collect()
    }

    /// Whether all ranks evaluate the best model at the end of the run, which rank 0 decides. If so, all get the parameters of rank 0.
    pub(super) fn has_final_evaluation(&self, is_due: bool) -> Result<bool> {
        let is_due = self.told_by_first("final evaluation", || Ok(is_due))?;
        if is_due && let Some(group) = &self.group {
            let parameters = self.model.parameters();
            for tensors in [parameters.named(), parameters.buffers()] {
                change_flat(tensors, |flat| {
                    if !group.is_first() {
                        // Its sum over all ranks is then that of rank 0.
                        let _ = flat.zero_();
                    }
                    group.all_reduce(flat)
                })?;
            }
        }
        Ok(is_due)
    }

    /// Where training is, for people. `epochs` are finished.
    pub(super) fn place(&self, epochs: u64) -> String {
        match self.steps_of_epoch() {
            None | Some(0) => format!("before epoch {}", epochs + 1),
            Some(steps) => format!("after step {steps} of epoch {}", epochs + 1),
        }
    }

    /// Ends the steps of an epoch: on rank 0, its metrics become those of all processes.
    pub(super) fn total(&self, mut partial: PartialEpoch) -> Result<PartialEpoch> {
        if let Some(group) = &self.group
            && let Some(all) = group.gather("metrics", partial)?
        {
            all[1..].iter().for_each(|other| partial.add(other));
        }
        self.average_buffers()?;
        partial.is_trained = true;
        Ok(partial)
    }

    /// Makes the running statistics of batch norms, which each rank has of its own partitions, the mean over all ranks.
    fn average_buffers(&self) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        change_flat(self.model.parameters().buffers(), |flat| {
            group.all_reduce(flat)?;
            *flat /= f64::from(group.place().ranks);
            Ok(())
        })
    }

    /// On rank 0, makes the metrics of an unfinished epoch those of all processes, which stop too. False if one of them is missing, or
    /// stopped elsewhere.
    pub(super) fn collect_unfinished(&mut self) -> bool {
        let (Some(group), Some(partial)) = (&self.group, &mut self.partial) else {
            return true;
        };
        if partial.is_trained || partial.steps == 0 {
            return true;
        }
        if group.failure().is_some() {
            return false;
        }
        let others: Vec<Option<PartialEpoch>> = group.left_behind(UNFINISHED);
        for other in &others {
            match other {
                Some(other) if other.steps == partial.steps => partial.add(other),
                _ => return false,
            }
        }
        true
    }
}

/// Changes the values of tensors, which `change` gets one after another in the processor's memory.
fn change_flat(tensors: &[(String, Tensor)], change: impl FnOnce(&mut Tensor) -> Result<()>) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    no_grad(|| {
        let flat: Vec<Tensor> = tensors.iter().map(|(_, tensor)| tensor.reshape([-1])).collect();
        let mut flat = Tensor::cat(&flat, 0).to_device(Device::Cpu).contiguous();
        change(&mut flat)?;
        let mut start = 0;
        for (_, tensor) in tensors {
            let count = tensor.numel() as i64;
            let part = flat.narrow(0, start, count).view(&*tensor.size());
            tensor.shallow_clone().copy_(&part);
            start += count;
        }
        Ok(())
    })
}
