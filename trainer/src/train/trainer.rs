//! The trainer: it composes the owners of the model, the data, the partitions, historical embeddings and evaluations.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::{ledger::Ledger, progress::Progress};
use grappa_run::{
    checkpoint::{Checkpoint, PartialEpoch, RunState},
    config::{self, Evaluate},
    model::NormKind,
    stages::{Stage, StageClock},
};
use grappa_storage::Graph;
use tch::Device;

use super::{
    data::{moments, training_data::TrainingData, types},
    evaluate::{
        evaluations::{Evaluation, Evaluations},
        link_scores,
    },
    exchange::gradient_exchange,
    halo::history::{HistoricalOrigin, History},
    model_on_graph::ModelOnGraph,
    options::{first_hop, minibatch_estimate, resolved_config::ResolvedConfig},
    partitions::open_partitions::{self, OpenPartitions},
    ranks::Processes,
    step::{
        full_graph::{FullGraphMethod, TrainSetup},
        learner::Learner,
    },
};
use crate::{Error, Result, nn::Model};

/// Optimizer steps at which the historical embeddings were made.
const HISTORY_STEP: &str = "history_step";

/// Trains a model on a graph, epoch by epoch. [`train`](super::train) drives it through a whole run.
pub struct Trainer {
    pub(super) config: Arc<ResolvedConfig>,
    pub(super) processes: Processes,
    pub(super) data: Arc<TrainingData>,
    pub(super) learner: Learner,
    pub(super) partitions: OpenPartitions,
    pub(super) history: History,
    pub(super) evaluations: Evaluations,
    /// Computes the steps instead of minibatches of partitions; opened by the first epoch.
    pub(super) method: Option<Box<dyn FullGraphMethod>>,
    /// The epoch in progress, if there is one.
    pub(super) partial: Option<PartialEpoch>,
    /// Whether a step is begun, and the batch of a third one loaded, before the results of the first are read: on a GPU.
    pub(super) overlaps: bool,
    /// The memory of this process, by phase and consumer.
    pub(super) ledger: Ledger,
    /// Problems that training survives.
    pub(super) warnings: Vec<String>,
    /// The wall time of the run's stages.
    pub(super) clock: StageClock,
}

impl Trainer {
    /// A trainer with a new model. If `aggregates` is given, its first layer takes the store's pre-aggregated features of this
    /// kind; [`first_hop::choose`](super::first_hop::choose) decides that.
    ///
    /// # Errors
    /// If the store has no labels, no features or no nodes to train on, or if options do not fit it. Also if another process cannot be reached.
    pub fn new(
        graph: impl Into<Graph>,
        setup: impl Into<TrainSetup>,
        aggregates: Option<AggregateKind>,
        device: Device,
        folder: PathBuf,
    ) -> Result<Self> {
        let TrainSetup { config, method, group, warnings } = setup.into();
        let graph = graph.into();
        let processes =
            Processes::meet(&graph, types::node_type(&graph, types::target(&graph, &config)?), group, config.memory.0)?;
        let data = TrainingData::open(graph, &config, &processes)?;
        let config = ResolvedConfig::new(&data.graph, config, None, aggregates, device, folder, &processes)?;
        Self::of_processes(config, data, processes, method, warnings)
    }

    /// The trainer of a process that has met the others. `warnings` are about its options.
    pub(super) fn of_processes(
        config: ResolvedConfig,
        data: TrainingData,
        processes: Processes,
        method: Option<Box<dyn FullGraphMethod>>,
        mut warnings: Vec<String>,
    ) -> Result<Self> {
        let model = data.model_options(&config);
        let [examples, val_examples, _] = data.examples();
        match (&method, config.other_method()) {
            (None, Some(name)) => {
                return Err(Error::Options(format!("nothing here trains with --method {name}: use `--method grappa`")));
            }
            (Some(method), _) if processes.group.is_some() => {
                method.check_processes(config.partitions(), processes.count())?;
            }
            _ => {}
        }
        if method.is_none() {
            let share = processes.share();
            warnings.extend(minibatch_estimate::check(&processes.hosts, &config, &model, examples, share)?);
        }
        warnings.extend(config::warnings(&config, config.knows_first_hop()));
        if data.graph.is_timed() && !data.uses_times {
            let timed =
                if data.graph.relations().iter().any(|relation| relation.is_timed()) { "edges" } else { "nodes" };
            warnings.push(format!(
                "the {timed} of the graph have times, and training does not use them: minibatches and scores have edges that are later than \
                 what they predict. For a model of the past, train on a store of the earlier events"
            ));
        }
        if val_examples == 0 {
            warnings.extend(config::warnings_without_validation(&config));
        }
        let learner = Learner::new(model, &config, &data, &processes)?;
        warnings.extend(warnings_of_processes(&processes, &config, learner.model.parameters().count()));
        Ok(Self {
            partitions: OpenPartitions::new(&config, &data, &processes)?,
            // A step reads the embeddings that the step before has written.
            overlaps: config.device != Device::Cpu && config.node_embeddings.is_empty(),
            ledger: Ledger::new(config.requested().memory.0),
            config: Arc::new(config),
            processes,
            data: Arc::new(data),
            learner,
            history: History::default(),
            evaluations: Evaluations::default(),
            method,
            partial: None,
            warnings,
            clock: StageClock::started(Duration::ZERO),
        })
    }

    /// The model, as far as it was trained.
    pub fn model(&self) -> &Model {
        &self.learner.model
    }

    /// Optimizer steps that are finished.
    pub fn steps(&self) -> u64 {
        self.learner.step
    }

    /// The generation of the assignment of chunks to partitions.
    pub fn generation(&self) -> u64 {
        self.partitions.generation
    }

    /// Returns the problems since the last call that training survived, and forgets them.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Gives the model the means and deviations of the store's features, if it standardizes them, and of its targets.
    ///
    /// # Errors
    /// If features or labels cannot be read, a feature is not finite, or no training node has a target.
    pub fn measure(&mut self, progress: &dyn Progress) -> Result<()> {
        moments::measure_features(&self.learner.model, &self.data.graph, &self.processes, progress)?;
        if self.data.links().is_some() {
            return Ok(());
        }
        moments::measure_targets(&self.learner.model, &self.data, &self.processes)
    }

    /// The model and the inputs of its inferences, besides historical embeddings and evaluations.
    pub(super) fn on_graph<'a>(
        &'a mut self,
        progress: &'a dyn Progress,
    ) -> (ModelOnGraph<'a>, &'a mut History, &'a mut Evaluations) {
        let on = ModelOnGraph {
            config: &self.config,
            processes: &self.processes,
            data: &self.data,
            learner: &self.learner,
            partitions: &mut self.partitions,
            uses_history: self.history.is_planned(),
            ledger: &mut self.ledger,
            progress,
        };
        (on, &mut self.history, &mut self.evaluations)
    }

    /// Opens the partitions of an epoch, and reads the edges that it learns if the task is link prediction, unless that is done.
    pub(super) fn open_partitions(&mut self, epoch: u64, progress: &dyn Progress) -> Result<()> {
        self.open_views(epoch / self.config.repartition_every, progress)?;
        let data = self.data.clone();
        match data.links() {
            Some(links) => {
                self.partitions.open_links(links, epoch, self.config.partitions(), &self.processes, progress)
            }
            None => Ok(()),
        }
    }

    /// Assigns chunks to the partitions of a super-epoch and opens the views of the partitions that this process serves, unless they are
    /// open.
    fn open_views(&mut self, super_epoch: u64, progress: &dyn Progress) -> Result<()> {
        if self.partitions.are_open_for(super_epoch, self.config.partitions()) {
            return Ok(());
        }
        let (config, data, processes) = (&self.config, &self.data, &self.processes);
        let assignment = open_partitions::assign(config, &data.graph, processes, super_epoch, &mut self.warnings)?;
        // The rows of other halo nodes, which the new views need the memory of.
        self.history.clear();
        self.partitions.open(&assignment, data, processes, progress)?;
        let stage = self.clock.enter(Stage::History);
        let (mut on, history, _) = self.on_graph(progress);
        history.plan(&mut on)?;
        if open_partitions::expands_halo(&self.config, &self.data.graph, self.history.is_planned()) {
            let lacks = self.partitions.expand_halo_nodes(assignment.generation(), &self.processes, progress)?;
            // Once: later super-epochs lack the same memory.
            let is_first = self.partitions.super_epoch.is_none();
            self.warnings.extend(lacks.filter(|_| is_first));
        }
        self.partitions.opened(super_epoch, &assignment, &self.data.graph);
        self.clock.enter(stage);
        Ok(())
    }

    /// Opens the partitions of an epoch, and decides how to evaluate the model. `before` is how the run was evaluated before it was
    /// resumed, which only rank 0 knows: `auto` keeps to that. Returns a sentence about the evaluations.
    ///
    /// # Errors
    /// If an exact evaluation needs more disk than is free. Also if files cannot be read, or progress says to stop.
    pub fn prepare(&mut self, epoch: u64, before: Option<Evaluate>, progress: &dyn Progress) -> Result<String> {
        self.clock.enter(Stage::Load);
        let full_graph = match self.method {
            Some(_) => self.open_full_graph(progress)?,
            None => {
                self.open_partitions(epoch, progress)?;
                self.check_steps(epoch);
                None
            }
        };
        if let Some(links) = self.data.links() {
            return Ok(links.describe());
        }
        self.clock.enter(Stage::Evaluate);
        let (mut on, history, evaluations) = self.on_graph(progress);
        let told = evaluations.prepare(&mut on, history, before)?;
        Ok(full_graph.into_iter().chain([told]).collect::<Vec<_>>().join("\n"))
    }

    /// Warns if an epoch has fewer steps than wanted.
    fn check_steps(&mut self, epoch: u64) {
        let steps = self.partitions.loader.all_batches(epoch).steps();
        let wanted = self.config.steps_per_epoch;
        if steps < wanted {
            self.warnings.push(format!(
                "--steps-per-epoch {wanted} has no effect: {steps} step(s) use all training nodes, and an epoch ends then; for \
                 shorter epochs give a smaller number"
            ));
        }
    }

    /// Refreshes the historical embeddings of the open partitions.
    pub(super) fn refresh(&mut self, progress: &dyn Progress) -> Result<()> {
        let retained = self.evaluations.memory();
        let (mut on, history, _) = self.on_graph(progress);
        history.refresh(&mut on, retained, None)
    }

    /// Refreshes the historical embeddings if `epoch` begins with that.
    pub(super) fn refresh_when_due(&mut self, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let is_begun = self.partial.is_some_and(|partial| partial.steps > 0);
        let every = self.config.repartition_every;
        if !self.history.must_refresh(epoch, is_begun, self.learner.step, every) {
            return Ok(());
        }
        let stage = self.clock.enter(Stage::History);
        let refreshed = self.refresh(progress);
        match self.history.refreshed(refreshed, &self.processes, progress) {
            Err(error) if error.is_disk_full() => self.warnings.push(format!(
                "no historical embeddings: {error}; training continues without them until the next epoch"
            )),
            refreshed => refreshed?,
        }
        self.clock.enter(stage);
        Ok(())
    }

    /// Evaluates the model after `epoch`, as [`Trainer::prepare`] planned. `improves` says whether a validation score is better than
    /// all before; the test nodes are scored if it is, or if there is no validation score.
    ///
    /// None on ranks other than 0. They all have to take part; only rank 0 asks whether a score `improves`.
    ///
    /// # Errors
    /// If files cannot be read or written, or memory is too small.
    pub fn evaluate(
        &mut self,
        epoch: u64,
        improves: &dyn Fn(f64) -> bool,
        progress: &dyn Progress,
    ) -> Result<Option<Evaluation>> {
        let (mut on, history, evaluations) = self.on_graph(progress);
        if on.data.links().is_some() {
            return link_scores::evaluate(&mut on, improves);
        }
        let evaluated = evaluations.evaluate(&mut on, history, epoch, improves)?;
        if let Some(method) = &mut self.method {
            let loss = evaluated.as_ref().and_then(|evaluation| evaluation.val.loss);
            // A rate may depend on it. Rank 0 knows it.
            let bits = self.processes.broadcast("validation loss", || Ok(loss.map(f64::to_bits)))?;
            bits.into_iter().for_each(|bits| method.observe(f64::from_bits(bits)));
        }
        Ok(evaluated)
    }

    /// On rank 0, collects the residuals of all ranks if a checkpoint is due, which only rank 0 knows. All ranks call it, between two
    /// steps.
    pub(super) fn collect_residuals(&mut self, is_due: bool) -> Result<()> {
        self.learner.gradients.collect(&self.processes, self.learner.step, is_due)
    }

    /// Whether all ranks evaluate the best model at the end of the run, which rank 0 decides. If so, all get the parameters of rank 0.
    pub(super) fn has_final_evaluation(&mut self, is_due: bool, progress: &dyn Progress) -> Result<bool> {
        let is_due = self.processes.broadcast("final evaluation", || Ok(is_due))?;
        if is_due && let Some(group) = &self.processes.group {
            self.learner.share_parameters(group)?;
            if let Some(tables) = &mut self.learner.embeddings {
                tables.exchange(&self.data.graph, |_| group.is_first(), group, progress)?;
            }
        }
        Ok(is_due)
    }

    /// A checkpoint of the current state. With `whole` it has all that a resumed run needs, otherwise the model only.
    ///
    /// # Errors
    /// If the disk has no room for a snapshot of embeddings that memory does not hold.
    pub fn checkpoint(&self, state: &RunState, whole: bool) -> Result<Checkpoint> {
        let mut state = state.clone();
        state.note_partitions([self.config.partitions(), self.config.concurrent()]);
        state.note_task(self.data.task());
        first_hop::note(&mut state, self.config.knows_first_hop());
        state.partial = self.partial;
        // Steps that follow use embeddings of earlier parameters, unless they are refreshed first.
        let (step, is_refreshed) = (self.learner.step, self.is_refreshed_next(state.epoch));
        let origin = self.history.origin.as_ref();
        let origin = origin.filter(|from| whole && from.step != step && !is_refreshed);
        match origin {
            Some(from) => state.counters.insert(HISTORY_STEP.into(), from.step),
            None => state.counters.remove(HISTORY_STEP),
        };
        Ok(Checkpoint {
            historical: match origin {
                Some(from) => from.tensors.clone(),
                None if whole => self.kept_messages(),
                None => Vec::new(),
            },
            residuals: match whole {
                true => self.learner.gradients.residuals(&self.processes, step),
                false => Vec::new(),
            },
            ..self.learner.checkpoint(state, whole)?
        })
    }

    /// Whether the epoch after a checkpoint begins with a refresh of the historical embeddings.
    fn is_refreshed_next(&self, finished_epochs: u64) -> bool {
        let next = match self.partial {
            Some(partial) if !partial.is_trained => return false,
            Some(_) => finished_epochs + 1,
            None => finished_epochs,
        };
        let every = self.config.repartition_every;
        self.partitions.super_epoch != Some(next / every) || self.history.is_due(next, every).unwrap_or(true)
    }

    /// Restores the state of a checkpoint, which was read from `path`, and its historical embeddings.
    ///
    /// # Errors
    /// If the checkpoint belongs to another model, or files cannot be read.
    pub fn restore(&mut self, path: &Path, checkpoint: &Checkpoint, progress: &dyn Progress) -> Result<()> {
        self.learner.restore(path, checkpoint, &self.processes)?;
        self.partitions.generation = checkpoint.state.generation;
        // The metrics of a process count once.
        self.partial = checkpoint.state.partial.map(|partial| match self.processes.is_first() {
            true => partial,
            false => partial.without_sums(),
        });
        match checkpoint.state.counters.get(HISTORY_STEP) {
            Some(&step) => self.restore_historical(step, path, checkpoint, progress),
            None => self.restore_messages(checkpoint, progress),
        }
    }

    /// Makes the historical embeddings again as they were after `step` optimizer steps.
    fn restore_historical(
        &mut self,
        step: u64,
        path: &Path,
        checkpoint: &Checkpoint,
        progress: &dyn Progress,
    ) -> Result<()> {
        let stage = self.clock.enter(Stage::Load);
        self.open_partitions(checkpoint.state.epoch, progress)?;
        self.clock.enter(Stage::History);
        let now = std::mem::replace(&mut self.learner.step, step);
        HistoricalOrigin::load(&self.learner, path, checkpoint)?;
        self.refresh(progress)?;
        self.clock.enter(stage);
        self.learner.step = now;
        self.learner.load_parameters(path, checkpoint)
    }
}

/// Warnings about options that do little for this number of processes, or whose results depend on it.
fn warnings_of_processes(processes: &Processes, config: &ResolvedConfig, parameters: usize) -> Vec<String> {
    let (ranks, concurrent) = (processes.count(), config.concurrent());
    let mut warnings = Vec::new();
    if concurrent < ranks && !config.trains_full_graph() {
        warnings.push(format!(
            "{} of {ranks} processes have no part in a step, which has {concurrent} partition(s): use at least --concurrent \
             {ranks}, and as many --partitions",
            ranks - concurrent
        ));
    }
    if processes.group.is_some() && config.norm() == NormKind::Batch {
        warnings.push(format!(
            "batch norms take the statistics of the partitions of one process, so results depend on the number of processes, \
             {ranks}: --norm layer does not"
        ));
    }
    warnings.extend(gradient_exchange::warnings(config.compression(), ranks, parameters));
    warnings
}
