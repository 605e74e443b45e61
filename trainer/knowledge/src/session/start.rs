//! The start of a run: rows with random values, or with the state of a checkpoint.

use std::{
    path::Path,
    time::{Instant, SystemTime},
};

use grappa_formats::random;
use grappa_io::ledger::Ledger;
use grappa_run::{
    checkpoint::{Checkpoint, Checkpoints, Latest, RunState},
    config::{Auto, TrainConfig},
    folder::{ROWS, RunFolder},
    model::Task,
    resume::{self, check_best},
    stages::StageClock,
    summary::Summary,
    watcher::Watcher,
};
use grappa_storage::Graph;

use super::{
    files::{SavedStates, relations_of},
    memory::Sizes,
    run::Run,
};
use crate::{
    Error, Result,
    buckets::{Buckets, Visits},
    evaluate::KnownAnswers,
    residents::Residents,
    rows::{Generations, TableShape},
    step::{Stepper, TripleModel},
    triples::Triples,
};

/// The temporary file of training triples, in the folder of rows.
const TRIPLES: &str = "triples.tmp";

/// Trains rows of the entities and relations of a graph in `folder`. With `resume`, continues the run in the folder from its last checkpoint.
///
/// # Errors
/// If options do not fit the graph or the earlier run, files cannot be read or written, or the loss is not finite. Checkpoints stay, and the
/// run can be resumed. If progress says to stop, the step in progress is finished and a checkpoint is written; the error is then
/// [`Error::Stopped`]. A resumed run computes the same as one without the stop.
pub fn train(
    graph: Graph,
    config: TrainConfig,
    folder: &RunFolder,
    resume: bool,
    watcher: &mut dyn Watcher,
) -> Result<Summary> {
    let clock = StageClock::started(watcher.started());
    let process = (watcher.command(), SystemTime::now() - watcher.started());
    let checkpoints = folder.checkpoints(config.keep)?;
    let latest = match resume {
        true => checkpoints.latest()?,
        false => Latest::default(),
    };
    latest.warnings.iter().for_each(|warning| watcher.warn(warning));
    let found = latest.found;
    let digest = graph.digest()?;
    if let Some((path, checkpoint)) = &found {
        check_resumed(&checkpoints, path, checkpoint, [digest, config.digest()], watcher)?;
    }
    if graph.is_timed() {
        watcher
            .warn("the triples have times, and training does not use them: rows are learned from triples of any time");
    }
    let triples = Triples::open(graph)?;
    watcher.task(Task::Links, config.monitor);
    let known = KnownAnswers::collect(&triples, watcher.progress())?;
    let state = found.as_ref().map(|(_, checkpoint)| &checkpoint.state);
    let planned = Planned::new(&triples, &config, known.bytes(), state)?;
    let (model, parts) = (planned.sizes.model, planned.parts);
    if config.partitions == Auto::Auto && parts > 1 {
        watcher.tell(&format!("{parts} partitions: the rows of all entities exceed --memory"));
    }
    let rows_folder = folder.path().join(ROWS);
    let visits = Visits::new(parts);
    let shape = TableShape {
        rows: triples.entity_count() as u64,
        dim: model.dim,
        parts,
        key: random::combine(digest, config.digest()),
    };
    let generations = Generations::open(&rows_folder, shape, state)?;
    let mut entities = Residents::new(generations, model.optimizer, model.initial_rows(config.seed));
    let mut saved = SavedStates::read(folder, &checkpoints)?;
    saved.forget(&mut entities)?;
    let on_disk = (!planned.sizes.keeps_triples()).then(|| rows_folder.join(TRIPLES));
    let buckets = Buckets::read(&triples, &visits, on_disk.as_deref(), watcher.progress())?;
    let mut ledger = Ledger::new(config.memory.0);
    planned.sizes.enter(&mut ledger, parts, buckets.count_max())?;
    let relations = match &found {
        Some((path, checkpoint)) => {
            let shape = [model.relation_rows(), model.decoder.relation_dim(model.dim)];
            relations_of(path, checkpoint, shape, model.optimizer)?
        }
        None => model.initial_relations(config.seed),
    };
    let state = match &found {
        Some((path, checkpoint)) => {
            resume::tell(&checkpoint.state, [config.epochs, config.early_stopping], path, watcher);
            checkpoint.state.clone()
        }
        None => {
            if resume {
                watcher.tell("there is no checkpoint to continue from: training starts with epoch 1");
            }
            new_state(&config, digest, &model, parts)
        }
    };
    let journal = folder.journal(state.epoch, state.step)?;
    if found.is_some()
        && let Some(last) = journal.records().last()
        && let Some(rise) = resume::rise_of_rate(&state, &config.rate_options(), last.learning_rate)
    {
        watcher.warn(&rise);
    }
    let run = Run {
        before: resume::seconds_before(&state, journal.records()),
        recorded: resume::recorded(&state, journal.records()),
        batch: planned.sizes.batch,
        stepper: Stepper::new(model),
        candidates: planned.candidates,
        written_at: Instant::now(),
        shown: None,
        moved_bytes: 0,
        model,
        triples,
        known,
        visits,
        buckets,
        entities,
        relations,
        config,
        folder,
        saved,
        state,
        journal,
        clock,
        ledger,
        process,
    };
    run.train(watcher)
}

/// The shape of a run.
struct Planned {
    sizes: Sizes,
    parts: u32,
    /// Candidates of a held-out triple; none for all entities.
    candidates: Option<u32>,
}

impl Planned {
    fn new(triples: &Triples, config: &TrainConfig, known: u64, state: Option<&RunState>) -> Result<Self> {
        let (entities, relations) = (triples.entity_count() as u64, triples.relations().len());
        let unplanned = |parts: u32| {
            let options = config.triple_options(entities, parts);
            let model = TripleModel::new(&options, relations)
                .ok_or_else(|| Error::Options(format!("decoder {} is none of triples", options.decoder)))?;
            let sizes = Sizes {
                model,
                entities,
                triples: triples.count(grappa_formats::EdgePart::Graph),
                batch: options.batch,
                known,
                memory: config.memory.0,
            };
            Ok::<_, Error>((sizes, options.candidates))
        };
        let (sizes, candidates) = unplanned(1)?;
        let [parts, _] = match (state, config.partitions) {
            (Some(state), _) => state.partitions([1, 1]),
            (None, Auto::Value(parts)) => [parts, 2],
            (None, Auto::Auto) => [sizes.partitions()?, 2],
        };
        if u64::from(parts) > entities {
            return Err(Error::Options(format!(
                "partitions is {parts}, and the graph has {entities} entities: give at most {entities}"
            )));
        }
        let (sizes, _) = unplanned(parts)?;
        Ok(Self { sizes, parts, candidates })
    }
}

fn new_state(config: &TrainConfig, digest: u64, model: &TripleModel, parts: u32) -> RunState {
    let mut state = RunState {
        config_digest: config.digest(),
        store_digest: digest,
        outputs: model.dim as u64,
        ..RunState::default()
    };
    state.note_task(Task::Links);
    state.note_partitions([parts, parts.min(2)]);
    state
}

/// Checks that a checkpoint is of this graph and of these options, and removes later ones.
fn check_resumed(
    checkpoints: &Checkpoints,
    path: &Path,
    checkpoint: &Checkpoint,
    [store_digest, config_digest]: [u64; 2],
    watcher: &mut dyn Watcher,
) -> Result<()> {
    if checkpoint.state.store_digest != store_digest {
        return Err(Error::WrongStore(
            "the store is not the one that the rows of the run were trained on; use that store, or start a new run"
                .into(),
        ));
    }
    if checkpoint.state.config_digest != config_digest {
        let problem = "the checkpoint was made with other options than the run has; start a new run";
        return Err(grappa_run::Error::run_file(path, problem).into());
    }
    checkpoints.forget_after(checkpoint.state.step)?;
    Ok(check_best(checkpoints, checkpoint, watcher)?)
}
