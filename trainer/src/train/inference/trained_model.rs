//! The trained model of a run, for predictions and export.

use std::path::{Path, PathBuf};

use grappa_formats::{
    manifest::{EdgeOptions, SelfLoops},
    schema::Schema,
};
use grappa_run::{
    checkpoint::{Checkpoint, Checkpoints, Latest, NamedTensor, RunState},
    class_names,
    config::{Monitor, TrainConfig},
    folder,
    model::{ModelTarget, Task},
    schema::{self, Match},
    scores::TargetScale,
};
use grappa_sampling::NodeSet;
use grappa_storage::{Graph, Relation, Store};
use tch::Device;

pub use super::predicted_graph::PredictedGraph;
use crate::train::{
    data::{edge_data, slice, times, types},
    tensors,
};
use crate::{
    Error, Result,
    nn::{Model, module_key},
};

/// The model of a run with the parameters of its best evaluation, or the last ones if there was no evaluation.
#[derive(Debug)]
pub struct Trained {
    pub(super) model: Model,
    /// The learnable embeddings of nodes, in the order of ids.
    pub(super) embeddings: Vec<NamedTensor>,
    pub(super) state: RunState,
    pub(super) checkpoint: PathBuf,
    pub(super) config: TrainConfig,
    class_names: Vec<String>,
    pub(super) schema: Schema,
    warnings: Vec<String>,
    pub(super) device: Device,
}

/// The output to compute for each node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The output of the last layer: one value per class.
    Logits,
    /// The input of the last layer: the hidden values of the layer before it.
    Embeddings,
}

/// The nodes to compute outputs of.
#[derive(Debug)]
pub enum RequestedNodes {
    /// Nodes of the type of [`PredictedGraph::nodes`].
    Nodes(NodeSet),
    /// Nodes of each type with outputs, in the order of the model: the ends of links.
    Ends(Vec<NodeSet>),
}

/// The results to compute.
#[derive(Debug)]
pub struct InferenceRequest {
    /// The nodes.
    pub nodes: RequestedNodes,
    /// The output for each of them.
    pub output: Output,
}

impl Trained {
    /// Reads the model of the run in `folder`, which may still be in progress.
    ///
    /// # Errors
    /// If the folder contains no run, the run has no checkpoint yet, a file cannot be read or is damaged, or the model was trained with
    /// other options or on another store than the run.
    pub fn open(folder: &Path, device: Device) -> Result<Self> {
        let config = folder.join(folder::CONFIG);
        if !config.exists() {
            let problem = format!("it contains no run (no {}): give the folder of a run", folder::CONFIG);
            return Err(Error::run_file(folder, problem));
        }
        let config = folder::config_of(folder)?;
        let mut warnings = Vec::new();
        let Some((path, checkpoint)) = find(folder, config.digest(), &mut warnings)? else {
            let problem = "the run has no checkpoint yet: resume it with --resume";
            return Err(Error::run_file(folder, problem));
        };
        let state = checkpoint.state;
        let model = Model::new(state.model_options(&config), config.seed, device)?;
        tensors::load(&path, model.parameters().named(), &checkpoint.parameters)?;
        tensors::load(&path, model.parameters().buffers(), &checkpoint.buffers)?;
        let is_state =
            |tensor: &NamedTensor| !model.options().graph().node_types.iter().any(|known| known.name == tensor.name);
        let mut embeddings = checkpoint.embeddings;
        embeddings.retain(|tensor| !is_state(tensor));
        let schema = folder::schema_of(folder, &state)?;
        let given = folder::class_names_of(folder, state.outputs, state.has_class_names())?;
        Ok(Self {
            class_names: if given.is_empty() { schema.classes.clone() } else { given },
            schema,
            model,
            embeddings,
            state,
            checkpoint: path,
            config,
            warnings,
            device,
        })
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The learnable embeddings of nodes, under the names that they have in PyTorch.
    pub(crate) fn exported_embeddings(&self) -> Vec<NamedTensor> {
        let named = |tensor: &NamedTensor| NamedTensor {
            name: format!("embeddings.{}.weight", module_key(&tensor.name)),
            ..tensor.clone()
        };
        self.embeddings.iter().map(named).collect()
    }

    /// The device of the model.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// The state of the run when the parameters were saved.
    pub fn state(&self) -> &RunState {
        &self.state
    }

    /// The file that the parameters are from.
    pub fn checkpoint(&self) -> &Path {
        &self.checkpoint
    }

    /// Messages for the user about a model that is not the best one of the run.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The number that decided which evaluation was the best.
    pub fn monitor(&self) -> Monitor {
        self.config.monitor
    }

    /// The scale of scores of targets. None if the model predicts classes.
    pub fn target_scale(&self) -> Option<TargetScale> {
        self.model.target_scale(self.config.target_loss())
    }

    /// The names of features and classes in the store that the model was trained on. Empty if it had none.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Whether each node is predicted at its own time.
    pub fn predicts_at_times(&self) -> bool {
        self.state.time_unit.is_some() && self.task() != Task::Links
    }

    /// The names of the classes: the user's, or else the store's. Empty if there are none.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// The name of a class, or its number if it has none.
    pub fn class_name(&self, class: u64) -> String {
        class_names::name(&self.class_names, class)
    }

    /// The task of the model: one class per node, or a set of labels.
    pub fn task(&self) -> Task {
        self.state.task()
    }

    /// The nodes of a graph that the model predicts.
    ///
    /// # Errors
    /// If the graph has other types, features or relations than the model has weights for.
    pub fn nodes_of<'a>(&self, graph: &'a Graph) -> Result<PredictedGraph<'a>> {
        let path = graph.path().display();
        let times = self.times_of(graph)?;
        // By default, links are predicted after the last event.
        let at = match (times, self.task()) {
            (Some(graph), Task::Links) => Some(self.time_after(graph)?),
            _ => None,
        };
        let Some(learned) = &self.state.graph else {
            return match graph.has_types() {
                false => Ok(PredictedGraph { times, at, ..PredictedGraph::from(&graph.node_types()[0]) }),
                true => Err(Error::WrongStore(format!(
                    "{path}: the graph has types, and the model was trained on a graph without: use a graph without types"
                ))),
            };
        };
        let inputs = |_, name: &str| {
            let known = learned.node_types.iter().find(|node_type| node_type.name == name);
            known.map_or([0, 0], |node_type| [node_type.ages, node_type.embedding])
        };
        let edge_ages = |number: usize| learned.relations.get(number).map_or(0, |relation| relation.ages);
        let found = types::model_graph(graph, learned.target, inputs, edge_ages)?;
        if let Some(difference) = types::difference(learned, &found) {
            return Err(Error::WrongStore(format!(
                "{path}: the graph differs from the one that the model was trained on: {difference}"
            )));
        }
        if !self.embeddings.is_empty() && graph.digest()? != self.state.store_digest {
            let names: Vec<&str> = self.embeddings.iter().map(|table| table.name.as_str()).collect();
            return Err(Error::WrongStore(format!(
                "{path}: the run has embeddings of the nodes of type {} of its own graph, and this graph is another one: use the graph that \
                 it was trained on",
                names.join(", ")
            )));
        }
        let nodes: &Store = &graph.node_types()[types::node_type(graph, learned.target)];
        let links = match learned.target {
            ModelTarget::Type(_) => Relation::from(nodes),
            ModelTarget::Relation(number) => graph.relation(number),
        };
        Ok(PredictedGraph { nodes, links, graph: Some(graph), times, at })
    }

    /// The links of a graph that the model predicts at a time, in the unit of the graph. `on` is from [`Trained::nodes_of`].
    ///
    /// # Errors
    /// If the run did not learn links at their times, or the graph has no times of their unit.
    pub fn links_at<'a>(&self, graph: &'a Graph, on: PredictedGraph<'a>, time: i64) -> Result<PredictedGraph<'a>> {
        if self.task() != Task::Links || self.state.time_unit.is_none() {
            return Err(Error::Options(format!(
                "at {time}: the run did not learn links at their times: leave out --at"
            )));
        }
        self.check_units(graph)?;
        Ok(PredictedGraph { times: Some(graph), at: Some(time), ..on })
    }

    /// The first time at which all events of a graph are seen.
    fn time_after(&self, graph: &Graph) -> Result<i64> {
        let span = times::span(graph)?;
        let last = span.map_or(i64::MIN, |[_, last]| last);
        Ok(if times::sees_equal(&self.config) { last } else { last.saturating_add(1) })
    }

    /// Checks that times of a graph are in the unit of those of links that the run learned.
    fn check_units(&self, graph: &Graph) -> Result<()> {
        let Some(unit) = self.state.time_unit.as_deref() else { return Ok(()) };
        let path = graph.path().display();
        match times::unit_of(graph)?.map(|unit| unit.name()) {
            Some(found) if found == unit => Ok(()),
            Some(found) => Err(Error::WrongStore(format!(
                "{path}: its times are in {found}, and the run's store has {unit}: ingest the graph with --time-unit {unit}"
            ))),
            None => Err(Error::WrongStore(format!(
                "{path}: the run learned links at their times, and the graph has no times: ingest it with --time"
            ))),
        }
    }

    /// Checks that the model can be applied to a graph. If the nodes have labels, they must be of the same kind.
    ///
    /// # Errors
    /// If numbers of features differ (the message has both), if nodes have no features, if edges lack weights or features that the model
    /// takes, or if the store is a slice that lacks what the model needs.
    ///
    /// # Panics
    /// If the run learned nodes at their times, and the graph is not from [`Trained::nodes_of`].
    pub fn check_graph<'a>(&self, on: impl Into<PredictedGraph<'a>>) -> Result<()> {
        let on = on.into();
        let store = on.nodes;
        assert!(!self.predicts_at_times() || on.times.is_some(), "nodes at their times are from nodes_of");
        // The features of all types were compared when the graph was opened for the model.
        if on.graph.is_none() {
            self.check_features(store)?;
        }
        // Links need no labels.
        let labels = store.manifest().labels.filter(|_| self.task() != Task::Links);
        let task = labels.map_or(self.task(), |labels| Task::for_labels(labels.kind));
        if task != self.task() {
            return Err(Error::WrongStore(format!(
                "{}: its nodes have {}, and the nodes of the run's store {}; use a store with the same kind of \
                 labels, or without labels",
                store.path().display(),
                labels_of(task),
                labels_of(self.task())
            )));
        }
        Ok(())
    }

    fn check_features(&self, store: &Store) -> Result<()> {
        let manifest = store.manifest();
        let path = store.path().display();
        let Some(features) = &manifest.features else {
            return Err(Error::WrongStore(format!(
                "{path}: nodes have no features, which the model needs; ingest them with --features, or, if the features of the run's store \
                 were computed, compute them with the same options: `grappa-store add-features {path} ...` (`grappa-store info` of the \
                 run's store has the options)"
            )));
        };
        let options = self.model.options();
        slice::check_model(store, options.layer)?;
        edge_data::check_store(store, options.stored_edges(), options.layer)?;
        let matched = Match::of_features(&self.schema, &store.schema()?);
        if matched.is_other() {
            return Err(Error::WrongStore(format!(
                "{path}: its features differ from the run's: {}; {}",
                matched.difference(),
                schema::remedy(&self.schema)
            )));
        }
        Ok(self.state.check_features(features.dim.into())?)
    }

    /// Whether the labels of a store number classes as the model does, as far as is known. If not, there are no scores.
    ///
    /// # Errors
    /// If the schema of the store cannot be read.
    pub fn has_classes_of(&self, store: &Store) -> Result<bool> {
        let is_same = match self.match_of_classes(&store.schema()?) {
            Match::Unnamed | Match::OneUnnamed | Match::Same => true,
            Match::Reordered(_) | Match::Other { .. } | Match::Encoded(_) => false,
        };
        let classes = store.manifest().labels.map(|labels| u64::from(labels.classes));
        Ok(is_same && classes == Some(self.state.outputs))
    }

    /// The names of the classes of a store's labels.
    ///
    /// # Errors
    /// If the schema of the store cannot be read.
    pub fn names_of_labels(&self, store: &Store) -> Result<Vec<String>> {
        Ok(match self.has_classes_of(store)? {
            true => self.class_names.clone(),
            false => store.schema()?.classes,
        })
    }

    /// The classes of a store, compared with the classes of the run's store, or with the names that the user gave if it had none.
    fn match_of_classes(&self, store: &Schema) -> Match {
        let own = match self.schema.classes.is_empty() {
            true => &self.class_names,
            false => &self.schema.classes,
        };
        Match::from_names(own, &store.classes)
    }

    /// What may make predictions for this store worse than those for the run's own, although the model can be applied.
    ///
    /// # Errors
    /// If the schema of the store cannot be read.
    pub fn warnings_about(&self, store: &Store) -> Result<Vec<String>> {
        let (manifest, path) = (store.manifest(), store.path().display());
        let edges = self
            .state
            .edges()
            .filter(|&edges| edges != manifest.edge_options)
            .map(|edges| {
                let [this, other] = [manifest.edge_options, edges].map(options_of_ingest);
                format!(
                    "{path} was ingested {this}, and the run's store {other}: predictions are as good only if the graphs are alike; \
                     ingest both with the same options"
                )
            });
        let targets = match self.task() {
            Task::Regression => "targets",
            Task::MultiClass | Task::MultiLabel | Task::Links => "classes",
        };
        let classes = manifest
            .labels
            // Labels of another task are an error, and not a matter of their number.
            .filter(|labels| Task::for_labels(labels.kind) == self.task() && u64::from(labels.classes) != self.state.outputs)
            .map(|labels| {
                format!(
                    "{path} has {} {targets}, and the run's model was trained with {}: predictions are the model's {targets}, and labels of the \
                     store may number them in another way, so there is no score",
                    labels.classes, self.state.outputs
                )
            });
        let theirs = store.schema()?;
        let columns = match Match::of_features(&self.schema, &theirs) {
            Match::OneUnnamed => Some(format!(
                "{}, so nobody can tell whether the columns are in the order of the run's; ingest tables with names of columns",
                match theirs.features.is_empty() {
                    true => format!("features of {path} have no names"),
                    false => "features of the run's store have no names".to_owned(),
                }
            )),
            Match::Reordered(_) => Some(format!(
                "features of {path} have another order than the run's; they are put in the order of the run, by their names"
            )),
            Match::Unnamed | Match::Same | Match::Other { .. } | Match::Encoded(_) => None,
        };
        let matched = self.match_of_classes(&theirs);
        let names = match matched {
            Match::Reordered(_) | Match::Other { .. } if classes.is_none() => Some(format!(
                "{targets} of {path} differ from the run's: {}; predictions are the run's {targets}, and there is no score; {}",
                matched.difference(),
                schema::remedy_for_classes()
            )),
            _ => None,
        };
        Ok([edges, classes, columns, names].into_iter().flatten().collect())
    }

    /// The graph whose nodes are predicted at their own times, if the run learned nodes at theirs, or whose links are predicted at a time, if
    /// the model takes ages.
    ///
    /// # Errors
    /// If nodes or edges of the graph lack times, or have times of another unit.
    fn times_of<'a>(&self, graph: &'a Graph) -> Result<Option<&'a Graph>> {
        let Some(unit) = self.state.time_unit.as_deref() else { return Ok(None) };
        let path = graph.path().display();
        let is_of_links = self.task() == Task::Links;
        // Without ages, all edges have the same part in a prediction of links.
        if is_of_links && self.state.time_encoding.is_none() {
            return Ok(None);
        }
        if is_of_links {
            self.check_units(graph)?;
        }
        let learned = self.model.options().graph();
        let target = types::node_type(graph, learned.target);
        let needed = (0..graph.node_types().len()).filter(|&number| {
            number == target && !is_of_links
                || learned.node_types.get(number).is_some_and(|node_type| node_type.ages > 0)
        });
        for number in needed {
            let nodes = match graph.has_types() {
                true => format!("nodes of type {}", graph.manifest().node_types[number].name),
                false => "nodes".to_owned(),
            };
            match graph.node_times(number)?.map(|times| times.axis().unit.name()) {
                Some(found) if found == unit => {}
                Some(found) => {
                    return Err(Error::WrongStore(format!(
                        "{path}: the times of {nodes} are in {found}, and the run's store has {unit}: ingest the graph with --time-unit {unit}"
                    )));
                }
                None => {
                    return Err(Error::WrongStore(format!(
                        "{path}: the run learned nodes at their times, and {nodes} have none: ingest the graph with --node-time"
                    )));
                }
            }
        }
        let timed = learned.relations.iter().enumerate().filter(|(number, relation)| {
            // Other relations are an error of their own.
            relation.ages > 0 && *number < graph.relations().len()
        });
        for (number, _) in timed {
            let name = graph.manifest().relation_name(number);
            match graph.relations()[number].time_axis()?.map(|axis| axis.unit.name()) {
                Some(found) if found == unit => {}
                Some(found) => {
                    return Err(Error::WrongStore(format!(
                        "{path}: the times of edges of {name} are in {found}, and the run's store has {unit}: ingest the graph with --time-unit                          {unit}"
                    )));
                }
                None => {
                    return Err(Error::WrongStore(format!(
                        "{path}: the model takes the ages of edges of {name}, and these have no times: ingest the graph with --time {}=COLUMN",
                        learned.relations[number].name
                    )));
                }
            }
        }
        Ok(Some(graph))
    }
}

/// The labels of a task, for messages.
fn labels_of(task: Task) -> &'static str {
    match task {
        Task::MultiClass => "one class each",
        Task::MultiLabel => "sets of labels",
        Task::Regression => "numbers",
        Task::Links => "edges to predict",
    }
}

/// Edge options as the options of ingest that chose them.
fn options_of_ingest(edges: EdgeOptions) -> String {
    let self_loops = match edges.self_loops {
        SelfLoops::Keep => None,
        SelfLoops::Drop => Some("--self-loops drop"),
        SelfLoops::Add => Some("--self-loops add"),
    };
    let flags = [edges.undirected.then_some("--undirected"), edges.dedup.then_some("--dedup"), self_loops];
    let given: Vec<&str> = flags.into_iter().flatten().collect();
    match given[..] {
        [] => "without --undirected, --dedup and --self-loops".to_owned(),
        _ => format!("with {}", given.join(" ")),
    }
}

/// The best checkpoint of the run in `folder`, or the last one if there was no evaluation. None if there is no checkpoint.
pub(crate) fn find(
    folder: &Path,
    config_digest: u64,
    warnings: &mut Vec<String>,
) -> Result<Option<(PathBuf, Checkpoint)>> {
    let path = folder.join(folder::CHECKPOINTS);
    if !path.is_dir() {
        return Ok(None);
    }
    let checkpoints = Checkpoints::look(&path);
    let best = checkpoints.best(u64::MAX)?;
    let latest = match checkpoints.latest() {
        // The best model can do without it. A run in progress may have replaced it at this moment.
        Err(_) if best.is_some() => Latest::default(),
        latest => latest?,
    };
    let last_state = latest.found.as_ref().map(|(_, checkpoint)| checkpoint.state.clone());
    let has_step = best.as_ref().map(|(_, checkpoint)| checkpoint.state.step);
    let missing = last_state.as_ref().and_then(|state| state.best);
    let missing = missing.filter(|request| has_step.is_none_or(|step| step < request.step));
    if best.is_none() {
        warnings.extend(latest.warnings);
    }
    let Some((path, checkpoint)) = best.or(latest.found) else {
        return Ok(None);
    };
    let state = &checkpoint.state;
    if state.config_digest != config_digest {
        let problem = format!(
            "it was trained with other options than those in {}: restore the one of the two files that was changed from a copy of this \
             run",
            folder.join(folder::CONFIG).display()
        );
        return Err(Error::run_file(&path, problem));
    }
    if let Some(last_state) = &last_state {
        state.check_same_run(&path, last_state)?;
    }
    if let Some(missing) = missing {
        warnings.push(format!(
            "{}: the best model of the run, from epoch {}, is missing here; using the model after epoch {} instead",
            folder.join(folder::CHECKPOINTS).display(),
            missing.epoch,
            state.epoch
        ));
    }
    Ok(Some((path, checkpoint)))
}
