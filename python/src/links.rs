//! Link prediction: the positives and negatives of batches.

use std::sync::Arc;

use grappa_engine::{
    EdgePart, Loader, Minibatch, NodeId, Progress, Result, Store,
    formats::random,
    sample::{
        LoaderOptions, NodeSet,
        feed::PartitionBatches,
        links::{
            Candidates, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, ListedPairs, Negatives, PartEdges,
            Positives, TimeRange, WithoutNegative,
        },
        policy::EDGE_LIST,
    },
    store::Graph,
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyDict};

use crate::{
    array::Array,
    background,
    error::exception,
    nodes::{Numbers, collected, joined, nodes_of, numbers_of, reserved},
};

/// The purpose of the memory, in errors.
const PAIRS: &str = "the pairs of a batch; give a smaller batch_size, or fewer negatives with neg_sampling";
/// The purpose of the memory of a whole part, in errors.
const PARTS: &str = "the edges of a part; sample them with a loader of links";
/// What helps if a node has edges to all others.
const WITHOUT_NEGATIVE: &str = "give exclude_edges=False, or edge_label_index without the edges of this node";

/// What batches of links have, as the package gives it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct LinkOptions {
    /// The number of the relation that links are edges of.
    relation: usize,
    /// A part of the store's edges. None if edges are given.
    part: Option<String>,
    /// Sources and destinations.
    edges: Option<(Numbers, Numbers)>,
    /// The time of each of these edges, if they have times.
    times: Option<Numbers>,
    /// Whether edges of a part are at their stored times.
    at_stored_times: bool,
    /// The number of edges that each epoch draws; None for all.
    edges_per_epoch: Option<u64>,
    /// `"none"`, `"binary"`, `"triplet"` or `"shared"`.
    negatives: String,
    /// Negatives per positive, or per batch if they are shared.
    amount: f64,
    /// `"uniform"`, `"degree"` or `"in-batch"`. None if pairs are given.
    candidates: Option<String>,
    /// Sources and destinations that negatives are drawn from.
    listed: Option<(Numbers, Numbers)>,
    /// Nodes that destinations are among; None for all.
    among: Option<Numbers>,
    /// Whether true edges are no negatives.
    exclude_edges: bool,
    /// Which positives messages do not use: `"both"`, `"forward"` or `"none"`.
    exclude_targets: String,
}

/// The links of a loader.
pub struct Links {
    task: Arc<LinkTask>,
    /// The node type of destinations.
    destination_type: usize,
    part: EdgePart,
    /// The times that edges of the part are within, if they are at their stored times.
    times: Option<TimeRange>,
    /// The edges of each epoch, if they are the same in all.
    positives: Option<Arc<Positives>>,
    edges_per_epoch: Option<u64>,
    /// Number of edges of an epoch.
    pub edges: u64,
    memory: u64,
    seed: u64,
}

impl Links {
    /// Reads or checks the edges.
    pub fn open(
        options: LinkOptions,
        graph: &Graph,
        loading: &mut LoaderOptions,
        progress: &dyn Progress,
    ) -> PyResult<Self> {
        let part = match &options.part {
            None => EdgePart::Graph,
            Some(name) => name.parse().map_err(PyValueError::new_err)?,
        };
        let memory = EDGE_LIST.bytes(loading.memory);
        let ends = RelationStores::new(graph, options.relation);
        let store = &ends.relation;
        let list = options.edges.as_ref().map(|pairs| ends.pairs(pairs)).transpose()?;
        let destinations = match &options.among {
            Some(among) => {
                let nodes = nodes_of(&ends.destination, &among.0)?;
                Some(Arc::new(NodeSet::from_members(store.manifest().nodes, nodes)))
            }
            None => None,
        };
        if destinations.as_ref().is_some_and(|among| among.is_empty()) {
            return Err(PyValueError::new_err("among has no nodes; give at least one, or leave it out"));
        }
        let known =
            options.exclude_edges.then(|| known(store, part, list.as_deref())).transpose().map_err(exception)?;
        let task = LinkTask {
            store: store.clone(),
            relation: LinkRelation { number: options.relation, reverse: graph.reverse_of(options.relation) },
            negatives: negatives(&options)?,
            candidates: match (&options.listed, options.candidates.as_deref()) {
                (Some(pairs), _) => Candidates::Listed(Arc::new(ListedPairs::new(ends.pairs(pairs)?))),
                (None, Some("degree")) => Candidates::by_degree(store, destinations.clone()).map_err(exception)?,
                (None, Some("in-batch")) => Candidates::InBatch,
                (None, None | Some("uniform")) => Candidates::Uniform,
                (None, Some(other)) => {
                    let expected = "\"uniform\", \"degree\" or \"in-batch\", or pairs";
                    return Err(unknown("candidates", other, expected));
                }
            },
            destinations,
            without_negative: WithoutNegative::Refused(WITHOUT_NEGATIVE),
            known,
            excluded: match &options.exclude_targets[..] {
                "both" => ExcludedEdges::WithReverses,
                "forward" => ExcludedEdges::Positives,
                "none" => ExcludedEdges::None,
                other => return Err(unknown("exclude_targets", other, "\"both\", \"forward\" or \"none\"")),
            },
            ends: EndTimes::open(graph, options.relation).map_err(exception)?,
        };
        let mut links = Self {
            task: Arc::new(task),
            destination_type: graph.manifest().relations[options.relation].destination as usize,
            part,
            times: options.at_stored_times.then_some(TimeRange::ALL),
            positives: None,
            edges_per_epoch: options.edges_per_epoch,
            edges: 0,
            memory,
            seed: loading.minibatches.seed,
        };
        let positives = match list {
            Some(list) => Arc::new(match options.times {
                Some(Numbers(times)) => Positives::at_times(list, times),
                None => Positives::list(list),
            }),
            None => links.read(0, progress).map_err(exception)?,
        };
        // An array without edges has no batches. A part without them is a mistake.
        if let (Some(part), true) = (&options.part, positives.is_empty()) {
            return Err(PyValueError::new_err(match options.among.is_some() {
                true => {
                    format!("no edge of the store for {part:?} ends at a node of among; give others, or leave it out")
                }
                false => format!(
                    "the store has no edges for {part:?}; give edge_label_index, or ingest with another edge_split"
                ),
            }));
        }
        links.edges = positives.len();
        links.positives = links.edges_per_epoch.is_none().then_some(positives);
        loading.minibatches.links = Some(links.task.clone());
        Ok(links)
    }

    /// Gives the loader the positives of an epoch.
    ///
    /// # Errors
    /// If edges cannot be read, or need more memory than they may have.
    pub fn open_epoch(&self, loader: &mut Loader, epoch: u64, progress: &dyn Progress) -> Result<()> {
        let positives = self.positives.clone().map_or_else(|| self.read(epoch, progress), Ok)?;
        let count = positives.len();
        loader.set_positives(vec![positives], &[count]);
        Ok(())
    }

    /// Gives the loader the positives at these positions, which are valid, in this order.
    ///
    /// # Panics
    /// If each epoch draws its edges.
    pub fn open_order(&self, loader: &mut Loader, positions: &[i64]) {
        let positives = self.positives.as_ref().expect("all epochs have the same edges");
        let ordered = positives.at(positions.iter().map(|&at| at as u64));
        loader.set_positives(vec![Arc::new(ordered)], &[positions.len() as u64]);
    }

    fn read(&self, epoch: u64, progress: &dyn Progress) -> Result<Arc<Positives>> {
        let key = random::combine(self.seed, epoch);
        let sample = self.edges_per_epoch.map(|edges| (edges, key));
        let edges = PartEdges {
            store: &self.task.store,
            part: self.part,
            destinations: self.task.destinations.as_deref(),
            times: self.times,
            ends: None,
        };
        Positives::of_part(edges, sample, self.memory, progress).map(Arc::new)
    }

    /// The pairs of minibatch `index`.
    pub fn arrays(&self, batches: &PartitionBatches, index: u64, types: &[Minibatch]) -> Result<LinkArrays> {
        let mut indices = Vec::new();
        batches.seed_indices(index, &mut indices);
        let positives = batches.positives(batches.places(index)[0]);
        let pairs = &types[self.destination_type].links;
        let count = indices.len();
        let source = &types[pairs.source_type];
        let times = (!source.part_times.is_empty()).then(|| {
            let sources = pairs.positives.iter().chain(match self.task.negatives {
                Negatives::Pairs(_) => &pairs.negatives[..],
                _ => &[],
            });
            let time = |pair: &[u32; 2]| {
                source.part_times[source.parts.get(pair[0] as usize).map_or(0, |&part| part as usize)]
            };
            collected(sources.map(time), pairs.positives.len() + pairs.negatives.len(), PAIRS)
        });
        Ok(LinkArrays {
            numbers: collected(indices.into_iter().map(|index| positives.number(index) as i64), count, PAIRS)?,
            positives: Pairs::from_pairs(&pairs.positives)?,
            negatives: Pairs::from_pairs(&pairs.negatives)?,
            is_negative: joined(&[&pairs.is_negative], PAIRS)?,
            times: times.transpose()?,
            kind: self.task.negatives,
        })
    }
}

/// The pairs of a batch, as indices of its nodes.
pub struct LinkArrays {
    /// The number of each positive.
    pub numbers: Vec<i64>,
    positives: Pairs,
    negatives: Pairs,
    is_negative: Vec<bool>,
    /// The time of each pair, or of each positive with triplets, if edges have times.
    times: Option<Vec<i64>>,
    kind: Negatives,
}

struct Pairs {
    sources: Vec<i64>,
    targets: Vec<i64>,
}

impl LinkArrays {
    /// Adds the arrays to a batch of the package: `edge_label_index` and `edge_label`, or `src_index`, `dst_pos_index`,
    /// `dst_neg_index` and `neg_mask`.
    pub fn put(self, dict: &Bound<'_, PyDict>) -> PyResult<()> {
        let positives = self.positives.sources.len();
        if let Some(times) = self.times {
            dict.set_item("edge_label_time", Array::vector(times))?;
        }
        match self.kind {
            Negatives::None | Negatives::Pairs(_) => {
                let pairs = positives + self.negatives.sources.len();
                let mut labels = reserved(pairs, PAIRS).map_err(exception)?;
                labels.resize(positives, 1.0);
                labels.resize(pairs, 0.0);
                let sources = [&self.positives.sources[..], &self.negatives.sources];
                let targets = [&self.positives.targets[..], &self.negatives.targets];
                let index = joined(&[sources, targets].concat(), PAIRS).map_err(exception)?;
                dict.set_item("edge_label_index", Array::new(index, &[2, pairs]))?;
                dict.set_item("edge_label", Array::vector(labels))
            }
            Negatives::Destinations(_) | Negatives::Shared(_) => {
                let negatives = self.negatives.targets.len();
                let shape = match self.kind {
                    Negatives::Destinations(each @ 2..) => vec![positives, each as usize],
                    _ => vec![negatives],
                };
                dict.set_item("src_index", Array::vector(self.positives.sources))?;
                dict.set_item("dst_pos_index", Array::vector(self.positives.targets))?;
                dict.set_item("dst_neg_index", Array::new(self.negatives.targets, &shape))?;
                if matches!(self.kind, Negatives::Shared(_)) {
                    let places = self.is_negative.len();
                    let mask = collected(self.is_negative.into_iter().map(u8::from), places, PAIRS);
                    let mask = mask.map_err(exception)?;
                    dict.set_item("neg_mask", Array::new(mask, &[positives, negatives]))?;
                }
                Ok(())
            }
        }
    }
}

impl Pairs {
    fn from_pairs(pairs: &[[u32; 2]]) -> Result<Self> {
        let ends = |end: usize| collected(pairs.iter().map(|pair| i64::from(pair[end])), pairs.len(), PAIRS);
        Ok(Self { sources: ends(0)?, targets: ends(1)? })
    }
}

/// A relation, and the types that it joins.
pub struct RelationStores {
    relation: Arc<Store>,
    source: Arc<Store>,
    destination: Arc<Store>,
}

impl RelationStores {
    /// A store as a relation between its nodes.
    pub fn untyped(store: &Arc<Store>) -> Self {
        Self { relation: store.clone(), source: store.clone(), destination: store.clone() }
    }

    /// # Panics
    /// If there is no such relation.
    pub fn new(graph: &Graph, number: usize) -> Self {
        let entry = &graph.manifest().relations[number];
        let node_type = |number: u32| graph.node_types()[number as usize].clone();
        Self {
            relation: graph.relations()[number].clone(),
            source: node_type(entry.source),
            destination: node_type(entry.destination),
        }
    }

    /// The numbers of sources and destinations of the edges of a part, in the order in which loaders of links number them: shape (2, edges).
    ///
    /// # Errors
    /// If there is no such part, or the edges need more memory than there is.
    pub fn edges_of_part(&self, py: Python<'_>, part: &str) -> PyResult<Array> {
        let part: EdgePart = part.parse().map_err(PyValueError::new_err)?;
        background::run(py, None, |progress| {
            let edges = Positives::of_part(PartEdges::all(&self.relation, part), None, u64::MAX, &*progress)
                .map_err(exception)?;
            let count = edges.edges().len();
            let sources = collected(edges.edges().iter().map(|edge| edge.0), count, PARTS).map_err(exception)?;
            let targets = collected(edges.edges().iter().map(|edge| edge.1), count, PARTS).map_err(exception)?;
            let sources = numbers_of(&self.source, &sources).map_err(exception)?;
            let targets = numbers_of(&self.destination, &targets).map_err(exception)?;
            Ok(Array::new(joined(&[&sources, &targets], PARTS).map_err(exception)?, &[2, count]))
        })
    }

    /// Pairs of nodes from the numbers of sources and destinations.
    fn pairs(&self, (sources, targets): &(Numbers, Numbers)) -> PyResult<Vec<(NodeId, NodeId)>> {
        let (sources, targets) = (nodes_of(&self.source, &sources.0)?, nodes_of(&self.destination, &targets.0)?);
        let count = sources.len();
        collected(sources.into_iter().zip(targets), count, "pairs of nodes").map_err(exception)
    }
}

/// The true edges beside the graph's: training may not know the edges that are held out, and evaluations know all.
fn known(store: &Store, part: EdgePart, list: Option<&[(NodeId, NodeId)]>) -> Result<KnownEdges> {
    let parts = if part == EdgePart::Graph { Vec::new() } else { store.manifest().held_out() };
    KnownEdges::new(store, &parts, list.unwrap_or_default().to_vec())
}

fn negatives(options: &LinkOptions) -> PyResult<Negatives> {
    let amount = options.amount;
    let whole = || match amount.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&amount) {
        true => Ok(amount as u32),
        false => Err(PyValueError::new_err(format!(
            "neg_sampling={:?} has the amount {amount}; give a whole number, at least 1",
            options.negatives
        ))),
    };
    Ok(match &options.negatives[..] {
        "none" => Negatives::None,
        "binary" if amount.is_finite() && amount > 0.0 => Negatives::Pairs(amount),
        "binary" => {
            let message = format!("neg_sampling=\"binary\" has the amount {amount}; give a number above 0");
            return Err(PyValueError::new_err(message));
        }
        "triplet" => Negatives::Destinations(whole()?),
        "shared" => Negatives::Shared(whole()?),
        other => {
            return Err(unknown("neg_sampling", other, "\"binary\", \"triplet\", \"shared\" or None"));
        }
    })
}

fn unknown(name: &str, value: &str, expected: &str) -> PyErr {
    PyValueError::new_err(format!("{name}={value:?}; give {expected}"))
}
