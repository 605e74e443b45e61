//! The graph that a model is trained on.

use std::{borrow::Cow, sync::Arc};

use grappa_io::{machine::free_memory_bytes, size::ByteSize};
use grappa_run::{
    config::{self, Compress, TrainConfig},
    model::{EdgeInput, ModelGraph, ModelOptions, ModelTarget, Task, TimeEncoding},
};
use grappa_sampling::{EdgeValues, GraphShape, links::EndTimes, view::shape_of};
use grappa_storage::{Graph, MappedChunks, Store};
use roaring::RoaringTreemap;

use super::degrees::Degrees;
use super::{edge_data, labels::NodeLabels, node_ages::NodeAges, node_inputs, slice, splits::Splits, times, types};
use crate::train::{links::LinkData, ranks::Processes};
use crate::{Error, Result};

/// What a model learns.
enum Truth {
    Labels(NodeLabels),
    Links(Box<LinkData>),
}

/// The graph that a model is trained on, with the labels, in-degrees and splits of the nodes that it learns.
pub(crate) struct TrainingData {
    pub graph: Graph,
    pub shape: GraphShape,
    /// Its types and relations, for a model with weights for each relation.
    model_graph: Option<ModelGraph>,
    /// The number of the node type that the model learns, or of the destinations of links.
    pub target: usize,
    /// That type. Of a graph without types, it is the whole store.
    pub store: Arc<Store>,
    /// The adjacency lists of each relation.
    lists: Vec<Arc<MappedChunks>>,
    truth: Truth,
    /// What the model takes of edges.
    pub edges: EdgeInput,
    /// How the ages of edges or nodes are encoded, if the model takes them.
    pub time_encoding: Option<TimeEncoding>,
    /// For each relation, how the ages of its edges are encoded, if the model takes them.
    pub edge_ages: Vec<Option<TimeEncoding>>,
    pub node_ages: Option<NodeAges>,
    /// Whether links or nodes are learned and scored at their times.
    pub uses_times: bool,
    pub degrees: Degrees,
    pub splits: Splits,
    /// The validation and the test nodes that this process scores.
    pub scored_splits: [Arc<RoaringTreemap>; 2],
}

impl TrainingData {
    /// Opens the data, and checks that a model can be trained on them, as far as that takes no time. All ranks must call it.
    pub fn open(graph: Graph, config: &TrainConfig, processes: &Processes) -> Result<Self> {
        types::check(&graph, config)?;
        times::check(&graph, config)?;
        let model_target = types::target(&graph, config)?;
        let target = types::node_type(&graph, model_target);
        let store = graph.node_types()[target].clone();
        let truth = match model_target {
            ModelTarget::Relation(number) => {
                let ends = match times::are_used(&graph, config) {
                    true => EndTimes::open(&graph, number)?,
                    false => EndTimes::default(),
                };
                Truth::Links(Box::new(LinkData::open(&graph, number, ends, config)?))
            }
            ModelTarget::Type(_) => Truth::Labels(NodeLabels::new(&store)?),
        };
        node_inputs::check(&graph, config)?;
        if let Truth::Labels(labels) = &truth {
            config::check_labels(config, labels.spec())?;
        }
        slice::check(&store, config.model, config.halo)?;
        processes.check_partitions(config.partitions, config.concurrent, config.schedule, config.seed)?;
        let splits = match &truth {
            Truth::Labels(_) => Splits::open(&graph, target, processes)?,
            Truth::Links(_) => Splits::default(),
        };
        let lists = graph.relations().iter().map(|relation| Ok(Arc::new(MappedChunks::open(relation)?)));
        let lists = lists.collect::<Result<Vec<_>>>()?;
        let edges = edge_data::of_graph(&graph, config).input(config)?;
        let weight_sums = edge_data::weight_sums(&store, &lists[0], config.model, edges, config.threads())?;
        let time_encoding = match (edges, config.model.is_relational()) {
            (EdgeInput::Features(_), _) | (_, true) => times::encoding(&graph, config)?,
            (EdgeInput::Nothing | EdgeInput::Weights, false) => None,
        };
        let learned = || {
            let inputs = |number: usize, name: &str| {
                [times::node_age_values(&graph, number, config), config.node_embeddings.values(name)]
            };
            types::model_graph(&graph, model_target, inputs, |number| times::edge_age_values(&graph, number, config))
        };
        let model_graph = config.model.is_relational().then(learned).transpose()?;
        let data = Self {
            scored_splits: splits.scored_by(processes.share_within()),
            degrees: Degrees::with_weights(lists[0].clone(), weight_sums),
            edges,
            edge_ages: match &model_graph {
                Some(learned) => learned.edge_ages(time_encoding),
                None => vec![time_encoding],
            },
            node_ages: match &model_graph {
                Some(learned) => NodeAges::open(&graph, learned, time_encoding)?,
                None => None,
            },
            time_encoding,
            uses_times: times::are_used(&graph, config),
            shape: shape_of(&graph),
            model_graph,
            graph,
            target,
            store,
            lists,
            truth,
            splits,
        };
        check_memory(&data.model_options(config), config.compress)?;
        Ok(data)
    }

    /// The values that layers take of each edge of a relation, as rows of features.
    pub fn edge_features(&self, relation: usize) -> usize {
        match &self.model_graph {
            Some(learned) => learned.relations[relation].ages,
            None => self.edges.features(),
        }
    }

    /// What minibatches need of the edges of the store. Ages are no values of the store.
    pub fn stored_edge_values(&self) -> EdgeValues {
        let ages = self.time_encoding.map_or(0, |encoding| encoding.values);
        match self.edges.values() {
            EdgeValues::Features if self.edges.features() == ages => EdgeValues::Nothing,
            values => values,
        }
    }

    /// The adjacency lists of a graph without types.
    pub fn chunks(&self) -> &Arc<MappedChunks> {
        &self.lists[0]
    }

    /// The adjacency lists of each relation.
    pub fn lists(&self) -> &[Arc<MappedChunks>] {
        &self.lists
    }

    /// The positions of nodes of the type that the model learns.
    pub fn positions<'a>(&self, nodes: &'a RoaringTreemap) -> Cow<'a, RoaringTreemap> {
        match self.graph.positions().range(self.target).start {
            0 => Cow::Borrowed(nodes),
            start => Cow::Owned(nodes.iter().map(|node| start + node).collect()),
        }
    }

    /// The shape of the model to train.
    pub fn model_options(&self, config: &TrainConfig) -> ModelOptions {
        let inputs = self.store.manifest().features.as_ref().map_or(0, |features| features.dim as usize);
        let outputs = match &self.truth {
            Truth::Labels(labels) => labels.spec().classes as usize,
            Truth::Links(_) => config.embedding(),
        };
        ModelOptions {
            edges: self.edges,
            time_encoding: self.time_encoding,
            graph: self.model_graph.clone(),
            ..config.model_options(inputs, outputs, self.task())
        }
    }

    /// The task.
    pub fn task(&self) -> Task {
        match &self.truth {
            Truth::Labels(labels) => labels.task(),
            Truth::Links(_) => Task::Links,
        }
    }

    /// The labels of a task of nodes.
    ///
    /// # Panics
    /// If the task is link prediction.
    pub fn labels(&self) -> &NodeLabels {
        match &self.truth {
            Truth::Labels(labels) => labels,
            Truth::Links(_) => panic!("link prediction has no labels"),
        }
    }

    /// The edges of link prediction. None for tasks of nodes.
    pub fn links(&self) -> Option<&LinkData> {
        match &self.truth {
            Truth::Labels(_) => None,
            Truth::Links(links) => Some(links),
        }
    }

    /// Number of nodes or edges for training, validation and test, on all hosts.
    pub fn examples(&self) -> [u64; 3] {
        match &self.truth {
            Truth::Labels(_) => self.splits.of_all(),
            Truth::Links(links) => links.edges,
        }
    }

    /// The name of the graph: the name of its folder, without `.grappa`.
    pub fn name(&self) -> String {
        let stem = self.graph.path().file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}

/// Refuses a model that this machine has no memory to train.
fn check_memory(model: &ModelOptions, compress: Compress) -> Result<()> {
    // Its value, its gradient, and two moments of the optimizer; for compressed gradients also a residual, and its successor.
    let bytes_per_value = match compress {
        Compress::Int8 | Compress::TopK => 6,
        Compress::None | Compress::Bf16 | Compress::Lossless => 4,
    };
    let parameter_bytes = bytes_per_value * size_of::<f32>() as u64;
    let needed = model.parameters_min().saturating_mul(parameter_bytes);
    match free_memory_bytes() {
        Some(free) if needed > free => Err(Error::TooLarge(format!(
            "the model's parameters, their gradients and the optimizer's moments need at least {}, and {} are free: use a \
             smaller --hidden, or fewer --layers",
            ByteSize(needed),
            ByteSize(free)
        ))),
        _ => Ok(()),
    }
}
