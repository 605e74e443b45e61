//! The start of a run, on all ranks: a trainer with new parameters, or with the state of a checkpoint.

use std::path::{Path, PathBuf};

use grappa_formats::schema::Schema;
use grappa_io::machine::memory_limit;
use grappa_run::{
    checkpoint::{CLASS_WEIGHTS, Checkpoint, Checkpoints, LINK_LISTS, RunState},
    class_names,
    config::check_without_triples,
    folder::{RunFolder, class_names_of},
    model::ModelOptions,
    resume::check_best,
    stages::{Stage, StageClock},
};
use grappa_storage::Graph;
use tch::Device;

use super::agreement::{agree_on_checkpoint, agree_on_first_hop};
use super::initial_parameters::Initial;
use super::{resume, watcher::Watcher};
use crate::{
    Error, Result,
    train::{
        data::{edge_data, times, training_data::TrainingData, types},
        links::LinkData,
        options::{advice, resolved_config::ResolvedConfig},
        ranks::Processes,
        step::full_graph::TrainSetup,
        trainer::Trainer,
    },
};

/// How to use less memory.
pub(super) const OUT_OF_MEMORY: &str = "try a smaller --batch, --concurrent or --hidden, smaller --fanouts, or --precision bf16; checkpoints, if there are any, are intact";

/// Handles of rank 0 for writing the folder of the run.
#[derive(Clone, Copy)]
pub(super) struct RunWriter<'a> {
    pub folder: &'a RunFolder,
    pub checkpoints: &'a Checkpoints,
}

/// A run to start.
pub(super) struct NewRun {
    pub graph: Graph,
    pub setup: TrainSetup,
    pub device: Device,
    /// The folder of the run.
    pub folder: PathBuf,
    pub clock: StageClock,
}

/// A run that was started on this rank.
pub(super) struct StartedRun {
    pub trainer: Trainer,
    pub state: RunState,
    /// The checkpoint that it continues from.
    pub resumed: Option<PathBuf>,
    /// Names of the classes: the user's, or else the store's.
    pub classes: Vec<String>,
}

impl NewRun {
    /// Starts the run. All ranks call this. Rank 0 has `found` the checkpoint to continue from, and has a `writer`.
    pub fn start(
        mut self,
        found: Option<(PathBuf, Checkpoint)>,
        writer: Option<RunWriter<'_>>,
        watcher: &mut dyn Watcher,
    ) -> Result<StartedRun> {
        let found = agree_on_checkpoint(self.setup.group.as_deref(), &self.folder, found)?;
        let (graph, TrainSetup { config, method, group, warnings }) = (self.graph, self.setup);
        check_without_triples(&config)?;
        let from = found.as_ref().map(|(_, checkpoint)| &checkpoint.state);
        let processes =
            Processes::meet(&graph, types::node_type(&graph, types::target(&graph, &config)?), group, config.memory.0)?;
        let digest = processes.digest(&graph)?;
        if let (Some(state), Some(writer)) = (from, writer) {
            resume::check_store(writer.folder.path(), state, &graph, digest)?;
        }
        // Before features are pre-aggregated, which may take hours.
        let data = TrainingData::open(graph, &config, &processes)?;
        let mut schema = data.store.schema()?;
        if data.links().is_some() {
            // Outputs are embeddings, and no classes.
            schema.classes.clear();
        }
        let mut classes = Vec::new();
        if let Some(writer) = writer {
            writer.folder.write_schema(&schema)?;
            let had_names = from.is_some_and(RunState::has_class_names);
            if data.links().is_none() {
                classes = given_classes(
                    writer.folder,
                    config.class_names.as_deref(),
                    data.labels().spec().classes.into(),
                    had_names,
                )?;
            }
        }
        let initial = match &config.init_from {
            Some(run) if from.is_none() => {
                Some(initial(run, &data.model_options(&config), (&schema, digest), watcher)?)
            }
            _ => None,
        };
        let is_first = processes.is_first();
        if is_first {
            processes.describe().iter().for_each(|hosts| watcher.tell(hosts));
        }
        self.clock.enter(Stage::Preaggregate);
        let aggregates = agree_on_first_hop(processes.group.as_deref(), &data.graph, &config, from, watcher)?;
        self.clock.enter(Stage::Open);
        let config = ResolvedConfig::new(&data.graph, config, from, aggregates, self.device, self.folder, &processes)?;
        if is_first {
            config.reason.iter().for_each(|reason| watcher.tell(reason));
        }
        warn_of_limits(&config, &data, &processes, from.is_some(), watcher)?;
        let mut state =
            RunState { config_digest: config.requested().digest(), store_digest: digest, ..RunState::default() };
        let mut trainer = Trainer::of_processes(config, data, processes, method, warnings)?;
        trainer.clock = self.clock;
        if is_first {
            let [used, warned] =
                edge_data::of_graph(&trainer.data.graph, &trainer.config).describe_use(&trainer.config);
            used.iter().for_each(|message| watcher.tell(message));
            warned.iter().for_each(|message| watcher.warn(message));
            let [used, unused] = times::describe_edge_ages(&trainer.data.graph, &trainer.config);
            used.iter().for_each(|message| watcher.tell(message));
            unused.iter().for_each(|message| watcher.warn(message));
        }
        tell_warnings(&mut trainer, watcher);
        let task = trainer.data.task();
        let link_lists = agree_on_lists(&trainer)?;
        watcher.task(task, trainer.config.monitor);
        let resumed = match found {
            Some((path, checkpoint)) => {
                if let Some(writer) = writer {
                    check_resumed(writer, &path, &checkpoint, state.config_digest, watcher)?;
                }
                if checkpoint.state.digest(CLASS_WEIGHTS) != trainer.learner.class_weights {
                    return Err(Error::Options(format!(
                        "class-weights {} has other weights than at the start of the run: restore the file, or start a new run without \
                         --resume",
                        trainer.config.class_weights
                    )));
                }
                if checkpoint.state.digest(LINK_LISTS) != link_lists {
                    return Err(Error::Options(
                        "the file of --negatives-from, --candidates or --among has other lines than at the start of the run: restore the \
                         file, or start a new run without --resume"
                            .into(),
                    ));
                }
                trainer.restore(&path, &checkpoint, watcher.progress())?;
                state = checkpoint.state;
                Some(path)
            }
            None => {
                state.inputs = trainer.model().options().inputs as u64;
                state.graph = trainer.model().options().graph.clone();
                state.time_encoding = trainer.data.time_encoding;
                let unit = times::unit(&trainer.data.graph, &trainer.config)?;
                state.time_unit = unit.map(|unit| unit.name().to_owned());
                state.outputs = trainer.model().options().outputs as u64;
                state.generation = trainer.generation();
                state.note_task(task);
                trainer.measure(watcher.progress())?;
                state.note_digest(CLASS_WEIGHTS, trainer.learner.class_weights);
                state.note_digest(LINK_LISTS, link_lists);
                initial.map_or(Ok(()), |initial| initial.load(&mut trainer.learner))?;
                None
            }
        };
        state.note_edges(trainer.data.store.manifest().edge_options);
        state.note_edge_input(trainer.data.edges);
        state.note_class_names(!classes.is_empty());
        state.note_schema(&schema);
        if classes.is_empty() {
            classes = schema.classes;
        }
        Ok(StartedRun { trainer, state, resumed, classes })
    }
}

/// The digest of the pairs that the user lists for links, after all ranks have read the same pairs.
fn agree_on_lists(trainer: &Trainer) -> Result<Option<u64>> {
    let digest = trainer.data.links().and_then(LinkData::lists_digest);
    match trainer.processes.broadcast("listed pairs", || Ok(digest))? == digest {
        true => Ok(digest),
        false => Err(Error::Options(
            "the file of --negatives-from, --candidates or --among has other lines here than at rank 0: copy it to all hosts"
                .into(),
        )),
    }
}

/// Warns about memory limits of this machine, and, at the start of a new run, about data that suggest other options.
fn warn_of_limits(
    config: &ResolvedConfig,
    data: &TrainingData,
    processes: &Processes,
    resumes: bool,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    let local_rank = processes.group.as_ref().map_or(0, |group| group.place().local_rank);
    if local_rank == 0 {
        let beyond = advice::limit_warning(config.memory, processes.processes_of_host(), memory_limit());
        beyond.iter().for_each(|warning| watcher.warn(warning));
    }
    if resumes {
        return Ok(());
    }
    if processes.group.is_none() {
        let advice = advice::memory_advice(&data.graph, config.aggregates, config.memory)?;
        advice.iter().for_each(|advice| watcher.tell(advice));
    }
    if processes.is_first() {
        let warnings = advice::of_data(&data.graph, data.target, config.normalize_features)?;
        warnings.iter().for_each(|warning| watcher.warn(warning));
    }
    Ok(())
}

/// Checks the files of a run that continues from a checkpoint, and removes later ones.
fn check_resumed(
    writer: RunWriter<'_>,
    path: &Path,
    checkpoint: &Checkpoint,
    config_digest: u64,
    watcher: &mut dyn Watcher,
) -> Result<()> {
    if checkpoint.state.config_digest != config_digest {
        let problem = "the checkpoint was made with other options than the run has; start a new run";
        return Err(Error::run_file(path, problem));
    }
    writer.checkpoints.forget_after(checkpoint.state.step)?;
    Ok(check_best(writer.checkpoints, checkpoint, watcher)?)
}

/// The parameters of another run, which a new run starts with.
fn initial(run: &Path, model: &ModelOptions, store: (&Schema, u64), watcher: &mut dyn Watcher) -> Result<Initial> {
    let mut warnings = Vec::new();
    let initial = Initial::read(run, model, store, &mut warnings)?;
    warnings.iter().for_each(|warning| watcher.warn(warning));
    Ok(initial)
}

/// The names of the classes: from the user's `file`, or else from the run's folder.
fn given_classes(
    folder: &RunFolder,
    file: Option<&Path>,
    classes: u64,
    are_there: bool,
) -> grappa_run::Result<Vec<String>> {
    let Some(path) = file else {
        return class_names_of(folder.path(), classes, are_there);
    };
    let names = class_names::read(path, classes)?;
    folder.write_class_names(&names)?;
    Ok(names)
}

/// Passes the warnings of a trainer on.
pub(super) fn tell_warnings(trainer: &mut Trainer, watcher: &mut dyn Watcher) {
    trainer.take_warnings().iter().for_each(|warning| watcher.warn(warning));
}
