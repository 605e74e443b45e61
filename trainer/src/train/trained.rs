//! The model of a run, as it was when it was best, to be applied.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use grappa_engine::aggregate::{AggregateRows, Budget, NodeRows, StoreFeatures};
use grappa_formats::manifest::LabelKind;
use grappa_io::progress::Progress;
use grappa_run::{
    checkpoint::{Checkpoints, RunState},
    class_names,
    config::TrainConfig,
    folder,
    model::Task,
};
use grappa_storage::Store;
use tch::{Device, Tensor};

use super::{
    first_hop,
    historical::Keep,
    inference::Inference,
    state::{self, MULTI_LABEL, PREAGGREGATED},
};
use crate::{Error, Result, nn::Model, runtime::catch_out_of_memory};

/// The model of a run with the parameters of its best evaluation; where nothing was evaluated, with the last ones.
#[derive(Debug)]
pub struct Trained {
    model: Model,
    state: RunState,
    checkpoint: PathBuf,
    class_names: Vec<String>,
    device: Device,
}

/// What is computed of each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// What the last layer makes: a value for each class.
    Logits,
    /// What the last layer works on: the hidden values of the layer before it.
    Embeddings,
}

impl Trained {
    /// Reads the model of the run in `folder`, which may still go on.
    ///
    /// # Errors
    /// If there is no run, or it has no checkpoint yet, or a file can't be read or is damaged.
    pub fn open(folder: &Path, device: Device) -> Result<Self> {
        let config = folder.join(folder::CONFIG);
        if !config.exists() {
            let what = format!(
                "there is no run in it (no {}): give the folder of a run",
                folder::CONFIG
            );
            return Err(Error::run_file(folder, what));
        }
        let config = TrainConfig::read(&config)?;
        let checkpoints = folder.join(folder::CHECKPOINTS);
        let found = match checkpoints.is_dir() {
            true => {
                let checkpoints = Checkpoints::look(&checkpoints);
                match checkpoints.best(u64::MAX)? {
                    Some(best) => Some(best),
                    None => checkpoints.latest()?.found,
                }
            }
            false => None,
        };
        let Some((path, checkpoint)) = found else {
            let what = "the run has no checkpoint yet: train it further (--resume)";
            return Err(Error::run_file(folder, what));
        };
        let state = checkpoint.state;
        let model = Model::new(
            config.model_options(state.inputs as usize, state.outputs as usize),
            config.seed,
            device,
        )?;
        state::load(&path, model.parameters().named(), &checkpoint.parameters)?;
        state::load(&path, model.parameters().buffers(), &checkpoint.buffers)?;
        Ok(Self {
            class_names: folder::class_names_of(folder, state.outputs)?,
            model,
            state,
            checkpoint: path,
            device,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Where the run stood when the parameters were these.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The file that the parameters are from.
    pub fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    /// What classes are called; nothing if nobody said so.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// What a class is called: its name, or, if nobody said so, its number.
    pub fn class_name(&self, class: u64) -> String {
        class_names::name(&self.class_names, class)
    }

    /// What the outputs of the model mean.
    pub fn task(&self) -> Task {
        match self.state.counters.get(MULTI_LABEL) {
            Some(1) => Task::MultiLabel,
            _ => Task::MultiClass,
        }
    }

    /// Checks that the model can be applied to a store: whose labels, if it has any, are what the model tells.
    ///
    /// # Errors
    /// If numbers of features or classes disagree: both are named; if nodes have no features; or if the store is a slice.
    pub fn check_store(&self, store: &Store) -> Result<()> {
        let manifest = store.manifest();
        let no = |what: &str| Err(Error::Options(format!("{}: {what}", store.path().display())));
        let Some(features) = &manifest.features else {
            return no(&format!(
                "nodes have no features, which the run's model was trained on; ingest them with --features, or, if those of the \
                 run's store were computed, compute them alike: `grappa-store add-features {} ...` (`grappa-store info` of the \
                 run's store has the options)",
                store.path().display()
            ));
        };
        if !manifest.is_whole() {
            return no("the store is a slice of its graph, and predictions need all of it");
        }
        let classes = manifest
            .labels
            .map_or(self.state.outputs, |labels| labels.classes.into());
        self.state.check_store(features.dim.into(), classes)?;
        let task = manifest.labels.map_or(self.task(), |labels| match labels.kind {
            LabelKind::Single => Task::MultiClass,
            LabelKind::Multi => Task::MultiLabel,
        });
        if task != self.task() {
            return no("nodes have one class each where the run's had sets of classes, or the other way round");
        }
        Ok(())
    }

    /// Computes the output for all nodes of a store, exactly: from all in-neighbours, out of core. Shows it as f32 of `[nodes,
    /// values]`, range after range in the order of the store. (Where the run's first layer took pre-aggregated features, and
    /// the store has them, it takes them here.)
    ///
    /// # Errors
    /// If the store is not one for this model; if files can't be read, or scratch files in `scratch` not be written; if
    /// memory is too small; or what `on_rows` returns.
    pub fn infer(
        &self,
        store: &Store,
        output: Output,
        budget: Budget,
        scratch: &Path,
        progress: &dyn Progress,
        on_rows: &mut dyn FnMut(Range<u64>, &Tensor) -> Result<()>,
    ) -> Result<()> {
        self.check_store(store)?;
        let layers = match output {
            Output::Logits => self.model.options().layers,
            Output::Embeddings => self.model.options().layers - 1,
        };
        if layers == 0 {
            return Err(Error::Options(
                "a model of one layer has no embeddings, which are what the last layer works on: ask for logits".into(),
            ));
        }
        let features = StoreFeatures::open(store)?;
        let aggregates = match self.state.counters.get(PREAGGREGATED) {
            Some(1) => first_hop::known(store, self.model.options().layer)?,
            _ => None,
        };
        let aggregates = aggregates.map(|aggregates| AggregateRows::new(store, aggregates));
        let inference = Inference {
            store,
            features: &features,
            first_hop: aggregates.as_ref().map(|rows| rows as &dyn NodeRows),
            budget,
            scratch,
            device: self.device,
        };
        catch_out_of_memory("free some of the device's memory, or use --device cpu", || {
            inference.run_layers(&self.model, layers, Keep::Nothing, progress, on_rows)
        })?;
        Ok(())
    }
}
