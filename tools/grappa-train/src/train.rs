//! `grappa-train STORE`: from a store to a trained model.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{anyhow, bail};
use grappa_console::{Bars, ByteSize, Console, Summary, count, log, one_line, print_line, printable, signals};
use grappa_engine::{Graph, Progress, Store, io::machine::process_age};
use grappa_methods::setup;
use grappa_run::{
    config::{Auto, Evaluate, Monitor, Preset, TrainConfig},
    folder::{CONFIG, RunFolder, config_of},
    journal::EpochRecord,
    model::Task,
    percent, summary,
};
use grappa_trainer::{
    distributed::{Place, ProcessGroup, join},
    runtime,
    train::{TrainSetup, Watcher, agree_on_options, finished, follow, hello, train},
};
use serde::Serialize;

use crate::{
    args::{self, Resume},
    finished::Finished,
    workers::{self, Role},
};

/// Terminal output during a run.
pub struct Screen {
    /// Whether to print a line per epoch.
    tells: bool,
    task: Task,
    monitor: Monitor,
    bars: EpochBars,
    /// When the run began, if it did not begin with the program.
    begun: Option<Instant>,
}

/// Bars with the stages of an epoch.
struct EpochBars {
    bars: Bars,
    /// Prefix of the stage names: the number of the epoch.
    prefix: String,
    /// The processes that train together; none if there is only this one.
    group: Option<Arc<ProcessGroup>>,
}

impl Progress for EpochBars {
    fn stage(&self, name: &str, bytes: Option<u64>) {
        self.bars.stage(&format!("{}{name}", self.prefix), bytes);
    }

    fn steps(&self, name: &str, steps: u64) {
        self.bars.steps(&format!("{}{name}", self.prefix), steps);
    }

    fn advance(&self, bytes: u64, edges: u64) {
        self.bars.advance(bytes, edges);
    }

    fn is_stopped(&self) -> bool {
        self.bars.is_stopped() || self.group.as_ref().is_some_and(|group| group.is_broken())
    }
}

#[derive(Serialize)]
struct Trained {
    #[serde(flatten)]
    summary: summary::Summary,
    #[serde(skip)]
    folder: String,
}

pub fn run(path: &Path, options: &args::TrainArgs, console: &Console) -> anyhow::Result<()> {
    match options.workers.role()? {
        Role::Alone => alone(path, options, console),
        Role::Launcher(workers) => workers::launch(workers, options.workers.timeout()),
        Role::Rank(place) => {
            let is_first = place.rank == 0;
            log::name_process(&format!("rank {}", place.rank), !is_first);
            let console = if is_first { console.clone() } else { console.silenced() };
            as_rank(place, path, options, &console)
        }
    }
}

/// Trains with this process only.
fn alone(path: &Path, options: &args::TrainArgs, console: &Console) -> anyhow::Result<()> {
    let graph = open_graph(path, options)?;
    let begun = begun(path, options)?;
    let before = begun.as_ref().map(RunFolder::config).transpose()?;
    let config = configured(options, before.as_ref())?;
    if let Some(finished) = finished_run(&graph, begun.as_ref(), &config) {
        return console.finish(&finished);
    }
    let folder = open_folder(begun, path, &config, options.force)?;
    runtime::prepare(config.threads(), config.memory.0);
    let mut screen = Screen::new(console, None);
    signals::stops_by_itself("finishing the step and writing a checkpoint");
    let at = folder.path().to_owned();
    let trained = train_in(graph, config, folder, options.resume, &mut screen);
    drop(screen);
    let summary = trained.map_err(|error| {
        let command = resume_command(path, &at, None);
        with_remedy(error, None, &format!("; continue with `{command}`"))
    })?;
    finish(console, summary, &at)
}

/// Trains with this process only in a folder.
pub fn train_in(
    graph: Graph,
    config: TrainConfig,
    folder: RunFolder,
    resume: Option<Resume>,
    screen: &mut Screen,
) -> grappa_trainer::Result<summary::Summary> {
    let trained = match config.layers {
        0 => {
            // Its kernels run on the threads that are registered.
            grappa_knowledge::train(graph, config, &folder, resume.is_some(), screen).map_err(error_of_knowledge)
        }
        _ => runtime::device(config.device)
            .and_then(|device| train(graph, setup(config)?, &folder, resume.is_some(), device, screen)),
    };
    settle(folder, &trained, resume);
    trained
}

/// An error of the training of rows, as one of the trainer.
fn error_of_knowledge(error: grappa_knowledge::Error) -> grappa_trainer::Error {
    use grappa_knowledge::Error as Of;
    match error {
        Of::Stopped { place, kept } => grappa_trainer::Error::Stopped { place, kept },
        Of::Options(message) => grappa_trainer::Error::Options(message),
        Of::Diverged(message) => grappa_trainer::Error::Diverged(message),
        Of::WrongStore(message) => grappa_trainer::Error::WrongStore(message),
        Of::Run(error) => error.into(),
        Of::Engine(error) => error.into(),
    }
}

/// Trains together with other processes.
fn as_rank(place: Place, path: &Path, options: &args::TrainArgs, console: &Console) -> anyhow::Result<()> {
    let graph = open_graph(path, options)?;
    let local = place.clone();
    if let Some(run) = left_finished(&graph, path, options) {
        return if local.rank == 0 { console.finish(&run) } else { Ok(()) };
    }
    let (same, waits) = (hello(&graph)?, options.workers.waits());
    let joined = workers::while_launcher_lives(|| join(place, same, waits, signals::stop_requested))?;
    let group = Arc::new(joined?);
    let opened = open_together(&group, &graph, path, options).inspect_err(|error| {
        group.announce(false, &format!("ended with an error: {}", one_line(error)));
        group.leave();
    })?;
    let (at, folder, mut config) = match opened {
        Opened::Run(at, folder, config) => (at, folder, *config),
        Opened::Finished(finished) => {
            workers::end(&group, Ok(()))?;
            return finished.map_or(Ok(()), |finished| console.finish(&*finished));
        }
    };
    if config.layers == 0 {
        group.leave();
        bail!(
            "--layers 0 trains with one process, and this is one of {}: leave out --workers and the launcher",
            local.ranks
        );
    }
    log::line(&format!("rank {} of {}, training in {}", local.rank, local.ranks, at.display()));
    let threads = (config.threads() / local.local_ranks as usize).max(1);
    if config.threads == Auto::Auto {
        config.threads = threads.to_string().parse().map_err(|_| anyhow!("no threads"))?;
    }
    runtime::prepare(config.threads(), config.memory.0);
    let mut screen = Screen::new(console, Some(group.clone()));
    signals::stops_by_itself("finishing the step");
    let trained = runtime::local_device(config.device, local.local_rank).and_then(|device| match &folder {
        Some(folder) => {
            let resume = options.resume.is_some();
            let setup = TrainSetup { group: Some(group.clone()), ..setup(config)? };
            train(graph, setup, folder, resume, device, &mut screen).map(Some)
        }
        None => follow(graph, setup(config)?, &at, device, group.clone(), &mut screen).map(|()| None),
    });
    let summary = workers::end(&group, trained);
    drop(screen);
    folder.into_iter().for_each(|folder| settle(folder, &summary, options.resume));
    let summary = summary.map_err(|error| {
        // One rank tells for all.
        let remedy = match (local.rank, options.workers.launched()) {
            (0, Some(workers)) => format!("; continue with `{}`", resume_command(path, &at, Some(workers))),
            (0, None) => {
                let options = shell_line(&["--out".to_owned(), word(&at), "--resume".to_owned()]);
                format!("; to continue, start the same job again with `{options}`")
            }
            _ => String::new(),
        };
        with_remedy(error, group.stopped_by(), &remedy)
    });
    summary?.map_or(Ok(()), |summary| finish(console, summary, &at))
}

/// Removes the run that a finished one replaces. Makes room for the next try if a new run ended with an error before it began.
fn settle<T>(folder: RunFolder, trained: &grappa_trainer::Result<T>, resume: Option<Resume>) {
    if trained.is_ok()
        && let Err(error) = folder.remove_replaced()
    {
        tracing::warn!("{error}");
    }
    if trained.as_ref().is_err_and(|error| !error.is_stopped()) && resume != Some(Resume::Always) {
        folder.remove_if_not_begun();
    }
}

fn open_graph(path: &Path, options: &args::TrainArgs) -> anyhow::Result<Graph> {
    let graph = Graph::open(path)?;
    if let Some(preset) = options.sources.preset()?
        && let ([store], false) = (graph.node_types(), graph.has_types())
    {
        check_preset(preset, store)?;
    }
    Ok(graph)
}

/// Adds to the error of a run that was stopped how to continue it, and which other rank was asked to stop.
fn with_remedy(error: grappa_trainer::Error, stopped_by: Option<u32>, remedy: &str) -> anyhow::Error {
    if !error.is_stopped() {
        return error.into();
    }
    let cause = stopped_by.map_or_else(String::new, |rank| format!("rank {rank} was asked to stop: "));
    anyhow!("{cause}{error}{remedy}")
}

/// The command that continues the run in `folder`, with this number of processes.
fn resume_command(store: &Path, folder: &Path, workers: Option<u32>) -> String {
    let mut words = vec!["grappa-train".to_owned(), word(store), "--out".to_owned(), word(folder)];
    if let Some(workers) = workers {
        words.extend(["--workers".to_owned(), workers.to_string()]);
    }
    words.push("--resume".to_owned());
    shell_line(&words)
}

fn word(text: impl AsRef<OsStr>) -> String {
    text.as_ref().to_string_lossy().into_owned()
}

/// A command line that a shell splits into these words.
fn shell_line(words: &[String]) -> String {
    // No word has a zero byte, because the system passes them as C strings.
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

fn finish(console: &Console, summary: summary::Summary, folder: &Path) -> anyhow::Result<()> {
    console.finish(&Trained { summary, folder: folder.display().to_string() })
}

impl Screen {
    fn new(console: &Console, group: Option<Arc<ProcessGroup>>) -> Self {
        Self {
            tells: console.tells(),
            task: Task::MultiClass,
            monitor: Monitor::Score,
            bars: EpochBars { bars: console.passing_bars(), prefix: String::new(), group },
            begun: None,
        }
    }

    /// A screen without a line per epoch, for one of several runs, which begins now.
    pub fn silent(console: &Console) -> Self {
        Self { tells: false, begun: Some(Instant::now()), ..Self::new(console, None) }
    }
}

/// Refuses a preset for another graph. A store without features or labels is refused later.
fn check_preset(preset: &Preset, store: &Store) -> grappa_run::Result<()> {
    let manifest = store.manifest();
    match (&manifest.features, manifest.labels) {
        (Some(features), Some(labels)) => preset.check_store(features.dim.into(), labels.classes.into()),
        _ => Ok(()),
    }
}

/// The run of several processes.
enum Opened {
    /// Its folder and, on rank 0, its lock; and the configuration of this rank, which has its own memory and device.
    Run(PathBuf, Option<RunFolder>, Box<TrainConfig>),
    /// It has nothing left to do, says rank 0.
    Finished(Option<Box<Finished>>),
}

/// Opens the run of all ranks, unless it is finished: then nothing in its folder changes.
fn open_together(
    group: &ProcessGroup,
    graph: &Graph,
    path: &Path,
    options: &args::TrainArgs,
) -> anyhow::Result<Opened> {
    let mut found = None;
    // The run decides an option that a rank does not give, so each needs to know what it continues.
    let before = group.share("run to resume", || {
        found = begun(path, options).map_err(workers::for_all)?;
        Ok(found.as_ref().map(RunFolder::config).transpose()?)
    })?;
    let config = configured(options, before.as_ref())?;
    agree_on_options(group, &config)?;
    let mut finished = None;
    if group.share("finished run", || {
        finished = finished_run(graph, found.as_ref(), &config);
        Ok(finished.is_some())
    })? {
        return Ok(Opened::Finished(finished.map(Box::new)));
    }
    let (at, folder) = workers::share_folder(group, config.digest(), config.out.as_deref(), || {
        open_folder(found, path, &config, options.force)
    })?;
    Ok(Opened::Run(at, folder, Box::new(config)))
}

/// The run to continue, if it has nothing left to do.
fn finished_run(graph: &Graph, begun: Option<&RunFolder>, config: &TrainConfig) -> Option<Finished> {
    let folder = begun?.path();
    finished(graph, folder, config).map(|run| Finished::new(run, folder))
}

/// The run to continue with `--resume auto`, if it has nothing left to do, by a look at its folder. A rank that a scheduler starts again
/// after the others have ended would wait for them in vain.
fn left_finished(graph: &Graph, path: &Path, options: &args::TrainArgs) -> Option<Finished> {
    options.resume.filter(|&resume| resume == Resume::Auto)?;
    let requested = options.sources.unchecked().ok()?.out;
    let folder = requested.or_else(|| RunFolder::last(path))?;
    // An error shows when all ranks open the run.
    let before = config_of(&folder).ok()?;
    let config = configured(options, Some(&before)).ok()?;
    finished(graph, &folder, &config).map(|run| Finished::new(run, &folder))
}

/// The run to continue, if there is one.
fn begun(store: &Path, options: &args::TrainArgs) -> anyhow::Result<Option<RunFolder>> {
    let Some(resume) = options.resume else { return Ok(None) };
    match options.sources.unchecked()?.out.or_else(|| RunFolder::last(store)) {
        Some(path) if resume == Resume::Always || path.join(CONFIG).exists() => Ok(Some(RunFolder::resume(&path)?)),
        _ if resume == Resume::Auto => Ok(None),
        _ => bail!(
            "there is no run on {} to resume in this folder: name the folder of the run with --out",
            store.display()
        ),
    }
}

/// The configuration of a run that continues with the configuration of `before`, or of a new one.
fn configured(options: &args::TrainArgs, before: Option<&TrainConfig>) -> grappa_run::Result<TrainConfig> {
    before.map_or_else(|| options.sources.configuration(), |before| options.sources.resumed(before))
}

/// The folder of the run, which has its configuration then. With `force`, a run in the folder of a new one is set aside.
fn open_folder(begun: Option<RunFolder>, store: &Path, config: &TrainConfig, force: bool) -> anyhow::Result<RunFolder> {
    let Some(folder) = begun else {
        let path = config.out.clone().unwrap_or_else(|| RunFolder::unused(store));
        return Ok(if force { RunFolder::replace(&path, config)? } else { RunFolder::create(&path, config)? });
    };
    folder.write_config(config)?;
    Ok(folder)
}

impl Watcher for Screen {
    fn progress(&self) -> &dyn Progress {
        &self.bars
    }

    fn started(&self) -> Duration {
        self.begun.map_or_else(|| process_age().unwrap_or_default(), |begun| begun.elapsed())
    }

    fn command(&self) -> String {
        let requested = std::env::args_os().skip(1).map(word);
        let words: Vec<String> = std::iter::once("grappa-train".to_owned()).chain(requested).collect();
        shell_line(&words)
    }

    fn task(&mut self, task: Task, monitor: Monitor) {
        (self.task, self.monitor) = (task, monitor);
    }

    fn tell(&mut self, message: &str) {
        if self.tells {
            let _ = print_line(message);
        }
    }

    fn begin(&mut self, epoch: u64, epochs: u64) {
        self.bars.prefix = format!("epoch {epoch}/{epochs}: ");
        log::line(&format!("epoch {epoch} of {epochs} begins"));
    }

    fn epoch(&mut self, record: &EpochRecord, epochs: u64) {
        let line = line(record, epochs, self.task, self.monitor);
        log::line(&line);
        if self.tells {
            // Training continues after the reader of stdout closed it.
            let _ = print_line(&line);
        }
    }

    fn warn(&mut self, message: &str) {
        tracing::warn!("{message}");
    }
}

fn line(record: &EpochRecord, epochs: u64, task: Task, monitor: Monitor) -> String {
    let width = epochs.to_string().len();
    let mut line = format!("epoch {:width$}/{epochs}  loss {:.4}", record.epoch, record.loss);
    if let Some(loss) = record.val_loss {
        line += &format!("  val loss {loss:.4}");
    }
    // The score of the task follows anyway, and the validation loss stands there.
    let name = monitor.shown_name(task);
    if name != task.score_name() {
        for (split, score) in ["val", "test"].into_iter().zip(record.monitored(monitor, task)) {
            if let Some(score) = score.filter(|_| (split, monitor) != ("val", Monitor::Loss)) {
                line += &format!("  {split} {name} {}", monitor.shown(task, score));
            }
        }
    }
    let [val, test] = record.scores(task);
    let (train, name) = match task {
        Task::MultiClass => (record.train_accuracy, String::new()),
        // Training counts no decisions about single labels.
        _ => (None, format!(" {}", task.score_name())),
    };
    for (split, score) in [("train", train), ("val", val), ("test", test)] {
        if let Some(score) = score {
            line += &format!("  {split}{name} {}", task.shown_score(score));
        }
    }
    if record.evaluated == Some(Evaluate::Sampled) {
        line += " (sampled)";
    }
    line += &format!("  {:.2} s  {} edges/s", record.seconds, count(record.sampled_edges_per_second as u64));
    // What a run in memory, in one partition and one process does not have is no news.
    for (direction, bytes) in [("read", record.bytes_read), ("sent", record.bytes_sent)] {
        if bytes > 0 {
            line += &format!("  {direction} {}", ByteSize(bytes));
        }
    }
    if let Some(coverage) = record.coverage_mean.filter(|&coverage| coverage < 1.0) {
        line += &format!("  coverage {}", percent(coverage));
    }
    line
}

impl Summary for Trained {
    fn text(&self) -> String {
        let summary = &self.summary;
        let how = match summary.evaluated {
            Some(Evaluate::Sampled) => " (sampled neighbors)",
            _ => "",
        };
        let (task, monitor, best) = (summary.task, summary.config.monitor, summary.monitored());
        let text = |score: Option<f64>| {
            score.map_or_else(
                || format!("{} -", best.name),
                |score| format!("{} {}", best.name, monitor.shown(task, score)),
            )
        };
        let (folder, epochs, seconds) = (printable(&self.folder), summary.epochs, summary.seconds_total);
        // Nobody compares losses of different models: the score of the task comes along.
        let score = summary.score().test.filter(|_| monitor == Monitor::Loss);
        let score =
            score.map_or_else(String::new, |score| format!(", {} {}", task.score_name(), task.shown_score(score)));
        if summary.lacks_validation() {
            let kept = match best.test {
                Some(_) => format!("test {}{score}{how}; there are no validation nodes", text(best.test)),
                None => "there are no validation and test nodes".to_owned(),
            };
            return format!("{folder}: {kept}, so the model is from the last epoch ({epochs}), in {seconds:.1} s");
        }
        // Where both are accuracies, one is named.
        let val = match text(best.val) {
            val if task == Task::MultiClass => val.trim_start_matches("accuracy ").to_owned(),
            val => val,
        };
        let epoch = summary.best_epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
        let early = if summary.early_stopping_epoch.is_some() { ", ended by early stopping" } else { "" };
        let scored = match (best.test, summary.best_epoch) {
            (None, Some(_)) => format!("best validation {val}{how}, no test score"),
            (test, _) => format!("test {}{score} at the best validation {val}{how}", text(test)),
        };
        format!("{folder}: {scored} (epoch {epoch} of {epochs}{early}), in {seconds:.1} s")
    }
}
