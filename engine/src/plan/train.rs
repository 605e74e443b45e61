//! Estimates a training run: minibatches, partitions, and the time, the bytes and the memory of each of its stages.
//!
//! The model is GraphSAGE with means. Minibatches come from a random graph with the assumed degrees: draws hit each
//! class of nodes in proportion to its edges (`minibatch`):
//!
//! ```text
//! pre-aggregation  read features once per tile, aggregate all edges, write the result    disk + processors
//! opening          load adjacency lists and features that stay in memory                 the slower of the two
//! epoch            sample, gather, forward, backward; meanwhile load views in turn,
//!                  and read the rows that are not in memory                              the slower of the two
//! history          at most a quarter of the work of an epoch                             processors
//! evaluation       aggregate into the nodes that the scores depend on                    disk + processors
//! ```
//!
//! Labels, splits and the optimizer's state are not counted. [`TrainRates`] are measurements;
//! [`measure`](super::measure) repeats them.

mod estimate;
mod lists;
mod options;
mod passes;
mod sweeps;
#[cfg(test)]
mod tests;

use grappa_formats::features::FeatureLayout;
use grappa_io::{
    Result,
    ledger::{Lease, Ledger, leased_bytes, split_at_limit},
    read,
};
use grappa_sampling::{
    NodeSet, halo_neighbors_auto,
    policy::{
        LISTS, LOOKAHEAD_MAX, LOOKAHEAD_NODES, READ_BUFFERS, REPARTITION_EVERY, RESERVE, SEEDS_OF_A_STEP, STATE_WORK,
        exact_evaluation_work_max, refresh_work_max,
    },
    view::{EdgeData, HaloSizes, ViewKind},
};

pub use self::{
    estimate::{DiskPlan, MemoryPlan, StagePlan, TrainPlan},
    options::{LinkOptions, Machine, StoredAggregates, TrainGraph, TrainModel, TrainOptions, TrainRates},
};
use super::{
    degrees::degree_classes,
    minibatch::{Minibatch, Reach},
};
use crate::derive::preaggregate::wants_features_beside;

/// Seconds to read an adjacency list from a mapped file that is not cached: 107 s for 2000 minibatches of 2.3 K lists
/// (2026-11-23, mapped lists).
const LIST_SECONDS: f64 = 22e-6;
/// Bytes of a disk page. A missing row transfers the pages that it is on.
const PAGE_BYTES: f64 = 4096.0;
/// With many reads in flight, one read takes as long as the transfer of this number of bytes. So the feed also reads
/// the gap between two missing rows if it is at most as large (2026-11-21, training plan).
const COALESCING_GAP: f64 = 28e3;
/// Seconds to load libtorch and to open a store, from a cold cache (2026-11-22, billion edges).
const START_SECONDS: f64 = 1.0;
/// Bookkeeping of a row in the pool, in bytes.
const SLOT_BYTES: f64 = 10.0;
/// Bytes of a node, a destination and an edge of a minibatch that waits for its rows, with the slots of the rows.
const NODE_BYTES: f64 = 13.0;
const DESTINATION_BYTES: f64 = 22.0;
const EDGE_BYTES: f64 = 4.5;
/// Feature buffers.
const BUFFERS: f64 = 4.0;
/// Resident memory of the program without graph and model: code, libtorch, buffers.
const BASE_BYTES: f64 = 650e6;
/// Bytes of a training node.
const SEED_BYTES: f64 = 8.0;
/// Bytes of an f32.
const VALUE: f64 = 4.0;

/// Estimates a training run.
///
/// # Errors
/// If a number is impossible.
pub fn plan_training(options: &TrainOptions) -> Result<TrainPlan> {
    Planner::new(options)?.plan()
}

/// The largest number from 1 to `most` that fits. Smaller numbers fit too.
fn largest(most: f64, fits: impl Fn(f64) -> bool) -> f64 {
    if fits(most) {
        return most;
    }
    let (mut low, mut high) = (1.0, most);
    while high - low > 0.5 {
        let middle = f64::midpoint(low, high);
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// The data of halo nodes, the in-neighbors that a partition does not own.
#[derive(Debug, Clone, Copy, PartialEq)]
enum HaloData {
    /// Their features.
    Nothing,
    /// Historical embeddings.
    Embeddings,
    /// Sampled in-neighbors, which take `bytes` of memory.
    Lists { bytes: f64 },
}

impl HaloData {
    /// Bytes of memory that lists take.
    fn list_bytes(self) -> f64 {
        match self {
            Self::Lists { bytes } => bytes,
            Self::Nothing | Self::Embeddings => 0.0,
        }
    }
}

struct Planner<'a> {
    options: &'a TrainOptions,
    graph: &'a TrainGraph,
    model: &'a TrainModel,
    machine: &'a Machine,
    reach: Reach,
    row_bytes: f64,
    feature_bytes: f64,
    threads: f64,
}

impl<'a> Planner<'a> {
    fn new(options: &'a TrainOptions) -> Result<Self> {
        options.check()?;
        let TrainOptions { graph, model, machine, .. } = options;
        let (dim, dtype) = graph.features;
        let row_bytes = f64::from(FeatureLayout::new(dtype, dim).stride);
        Ok(Self {
            reach: Reach::new(degree_classes(graph.nodes, graph.edges, graph.degrees), graph.present),
            row_bytes,
            feature_bytes: graph.stored as f64 * row_bytes,
            threads: machine.threads as f64,
            options,
            graph,
            model,
            machine,
        })
    }

    fn plan(&self) -> Result<TrainPlan> {
        let options = self.options;
        let numbers = self.partitions()?;
        let lists = self.place(&numbers);
        let sweeps = lists == ViewKind::Sweep;
        let (partitions, concurrent) = match sweeps {
            true => (1, 1),
            false => (u64::from(numbers.partitions), u64::from(numbers.concurrent)),
        };
        let in_turn = lists == ViewKind::InTurn;
        let batch = options.batch.unwrap_or((SEEDS_OF_A_STEP as u64).div_ceil(concurrent));
        // Each group of partitions has its own steps, of even size.
        let seeds_of_partition = options.train.div_ceil(partitions);
        let steps = partitions.div_ceil(concurrent) * seeds_of_partition.div_ceil(batch);
        let seeds = options.train as f64 / (steps * concurrent) as f64;
        let halo = self.halo(partitions, seeds, steps * concurrent);
        let minibatch = self.minibatch(seeds, partitions, halo);
        let step_batch = minibatch.sharing(&self.reach, concurrent as f64);
        let adjacency = self.adjacency_in_memory(partitions, concurrent, lists) + halo.list_bytes();
        let room = (self.machine.memory as f64 - adjacency).max(0.0);
        let rows = self.rows_per_node() * self.feature_bytes;
        let rows_max = (room - leased_bytes(&self.feed_leases(&minibatch)) as f64).max(0.0);
        let is_resident = rows <= rows_max;
        let features = rows.min(rows_max);

        let mut opening = self.stage(0.0, 0.0, START_SECONDS);
        if lists == ViewKind::Memory {
            let edges = self.graph.edges as f64 * self.machine.rates.load_edge_ns * 1e-9;
            opening = opening.and(self.stage(self.graph.adjacency_bytes as f64, 0.0, edges / self.threads));
        }
        if is_resident {
            opening = opening.and(self.stage(rows, 0.0, 0.0));
        }
        let step_seconds = self.step_seconds(&step_batch, concurrent as f64);
        let mut read = 0.0;
        let mut processor = steps as f64 * step_seconds;
        if let Some(links) = options.links {
            let (listed, seconds) = self.edge_list(links);
            match links.draws_edges {
                true => (read, processor) = (read + listed, processor + seconds),
                false => opening = opening.and(self.stage(listed, 0.0, seconds)),
            }
        }
        if in_turn {
            let copies = self.copies(partitions);
            read += copies * self.graph.adjacency_bytes as f64;
            processor += copies * self.graph.edges as f64 * self.machine.rates.load_edge_ns * 1e-9 / self.threads;
        }
        if !is_resident {
            read += self.missing_bytes(&minibatch, steps * concurrent, rows_max);
        }
        if lists == ViewKind::Mapped {
            let expanded = minibatch.expanded * (steps * concurrent) as f64;
            read += expanded * PAGE_BYTES;
            processor += expanded * LIST_SECONDS;
        }
        let sweep = match sweeps {
            true => self.sweeps(&minibatch, steps as f64),
            false => StagePlan::default(),
        };
        let epoch = self.stage(read + sweep.bytes_read, sweep.bytes_written, processor + sweep.processor_seconds);
        let layers = self.model.fanouts.len();
        let history = match halo {
            HaloData::Embeddings => self.stage(0.0, 0.0, refresh_work_max(steps as f64 * step_seconds)),
            HaloData::Nothing | HaloData::Lists { .. } => StagePlan::default(),
        };

        let exact = self.inference(is_resident);
        let (first_sampled, sampled) = self.sampled_inferences(is_resident);
        let epoch_work = minibatch.work() * (steps * concurrent) as f64;
        let is_exact = options.links.is_some()
            || exact.work <= exact_evaluation_work_max(epoch_work, options.train as f64, options.scored as f64);
        let preaggregation = self.preaggregation();
        let step_bytes = self.step_bytes(&step_batch) * concurrent as f64;
        let nodes =
            self.example_bytes() * options.train as f64 + (layers as u64 * NodeSet::bytes_of(self.graph.nodes)) as f64;
        let evaluation =
            exact.memory.min(self.machine.memory as f64 - adjacency - if is_resident { features } else { 0.0 });
        let evaluation = (evaluation - if is_resident { 0.0 } else { features }).max(0.0);
        let beside = adjacency + features + nodes + BASE_BYTES;
        Ok(TrainPlan {
            partitions,
            concurrent,
            lists,
            expands_halo: partitions == 1 || matches!(halo, HaloData::Lists { .. }),
            steps,
            step_nodes: step_batch.nodes * concurrent as f64,
            step_edges: minibatch.edges() * concurrent as f64,
            preaggregation,
            opening,
            epoch,
            history,
            evaluation: if is_exact { exact.stage } else { sampled },
            evaluates_exactly: is_exact,
            first_sampled_evaluation: first_sampled,
            sampled_evaluation: sampled,
            exact_evaluation: exact.stage,
            disk: DiskPlan {
                aggregates: match self.makes_aggregates() {
                    true => self.aggregate_bytes(),
                    false => 0.0,
                },
                scratch: exact.scratch.max(sweep.bytes_written),
            },
            ledger: self.ledger(&minibatch, adjacency, halo, features)?,
            memory: MemoryPlan {
                adjacency,
                features,
                step: step_bytes,
                evaluation,
                nodes,
                training: beside + step_bytes,
                total: beside + step_bytes.max(evaluation),
            },
        })
    }

    /// The choice of `--halo auto`, for an epoch of `minibatches`.
    fn halo(&self, partitions: u64, seeds: f64, minibatches: u64) -> HaloData {
        let layers = self.model.fanouts.len();
        if partitions == 1 || !self.options.expands_halo {
            return HaloData::Nothing;
        }
        if self.model.preaggregated && layers > 2 && self.options.links.is_none() {
            let epoch = self.minibatch(seeds, partitions, HaloData::Nothing).work() * minibatches as f64;
            if self.refresh_work() <= refresh_work_max(REPARTITION_EVERY as f64 * epoch) {
                return HaloData::Embeddings;
            }
        }
        self.halo_lists(partitions)
    }

    /// The work of a refresh: inference for the in-neighbors that a training node has within reach of all layers but
    /// the last.
    fn refresh_work(&self) -> f64 {
        let hops = self.model.fanouts.len() - 1;
        let reached = self.reach.sample(self.train_nodes(), &vec![None; hops], 1.0);
        let inferred = &reached.hops[1..];
        inferred.iter().map(|hop| hop.edges + STATE_WORK * hop.sources).sum()
    }

    /// The sampled in-neighbors of halo nodes; nothing if no hop expands these, or if the memory is too small.
    fn halo_lists(&self, partitions: u64) -> HaloData {
        // The last hop reaches nodes that are not expanded.
        let hops = self.sampled_fanouts().len().saturating_sub(1);
        if hops == 0 {
            return HaloData::Nothing;
        }
        let reached = self.reach.sample(self.train_nodes(), &vec![None; hops], 1.0);
        let (nodes, listed) = (self.graph.nodes, reached.nodes.ceil() as u64);
        let (per_draw, sizes) = self.halo_draws();
        let per_node = halo_neighbors_auto(per_draw, &[sizes], self.lists_budget().share());
        let most = sizes.drawing_bytes_max(listed, per_node);
        // A set of nodes for each partition finds them.
        let sets = partitions.saturating_mul(NodeSet::bytes_of(nodes));
        if most.max(sets) > self.lists_budget().share() {
            return HaloData::Nothing;
        }
        let sources = reached.drawn(&self.reach, per_node).ceil() as u64;
        HaloData::Lists { bytes: sizes.bytes(listed, sources) as f64 }
    }

    /// The most in-neighbors that a halo node draws at once, none for all, and the sizes of lists of halo nodes.
    fn halo_draws(&self) -> (Option<u32>, HaloSizes) {
        let later = self.sampled_fanouts().iter().skip(usize::from(self.options.links.is_none()));
        let per_draw = later.copied().try_fold(0, |most, fanout| Some(fanout?.max(most)));
        let TrainGraph { nodes, edges, .. } = *self.graph;
        (per_draw, HaloSizes { nodes, sources: nodes, edges, edge_data: EdgeData::default() })
    }

    /// Whether training begins with pre-aggregation.
    fn makes_aggregates(&self) -> bool {
        self.model.preaggregated && self.graph.aggregates.is_none()
    }

    /// Whether files have the features of a node beside its aggregates.
    fn has_features_beside(&self) -> bool {
        self.model.preaggregated
            && match self.graph.aggregates {
                Some(stored) => stored.with_features,
                None => wants_features_beside(self.feature_bytes as u64, self.machine.memory),
            }
    }

    /// Bytes of the pre-aggregated features.
    fn aggregate_bytes(&self) -> f64 {
        match self.has_features_beside() {
            true => 2.0 * self.feature_bytes,
            false => self.feature_bytes,
        }
    }

    /// The sampled hops of a minibatch.
    fn minibatch(&self, seeds: f64, partitions: u64, halo: HaloData) -> Minibatch {
        let owned = match halo {
            HaloData::Lists { .. } => 1.0,
            HaloData::Nothing | HaloData::Embeddings => (self.copies(partitions) / partitions as f64).min(1.0),
        };
        match self.options.links {
            Some(links) => {
                let drawn = seeds * f64::from(links.negatives);
                self.reach.sample_ends(seeds, drawn, self.sampled_fanouts(), owned)
            }
            None => self.reach.sample(seeds, self.sampled_fanouts(), owned),
        }
    }

    /// Nodes that minibatches begin with, in an epoch.
    fn train_nodes(&self) -> f64 {
        match self.options.links {
            Some(_) => self.graph.nodes as f64,
            None => self.options.train as f64,
        }
    }

    /// Bytes of a training node, or of an edge that is listed; a drawn one has its number.
    fn example_bytes(&self) -> f64 {
        match self.options.links {
            None => SEED_BYTES,
            Some(links) if links.draws_edges => 3.0 * SEED_BYTES,
            Some(_) => 2.0 * SEED_BYTES,
        }
    }

    /// Bytes that are read, and seconds of one thread, to list the training edges: all lists are counted and then read, or only the lists
    /// with drawn edges are read.
    fn edge_list(&self, links: LinkOptions) -> (f64, f64) {
        let options = self.options;
        let passes = match links.draws_edges {
            true => self.reach.share_of_lists(options.train as f64),
            false => 2.0,
        };
        let seconds = self.graph.edges as f64 * self.machine.rates.load_edge_ns * 1e-9;
        (passes * self.graph.adjacency_bytes as f64, passes * seconds)
    }

    /// The fanouts of the hops that are sampled.
    fn sampled_fanouts(&self) -> &[Option<u32>] {
        let fanouts = &self.model.fanouts;
        &fanouts[..fanouts.len() - usize::from(self.model.preaggregated)]
    }

    /// Seconds of the processors and the device for a step of this many minibatches.
    fn step_seconds(&self, minibatch: &Minibatch, minibatches: f64) -> f64 {
        let rates = &self.machine.rates;
        let (dim, _) = self.graph.features;
        let gathered = self.rows_per_node() * minibatch.nodes * f64::from(dim) * VALUE;
        let input = (minibatch.edges() * rates.sample_edge_ns + gathered * rates.gather_byte_ns) * 1e-9 / self.threads;
        let mut flops = 0.0;
        let mut aggregated = 0.0;
        for layer in self.layers(minibatch) {
            // A product for own rows and one for aggregates. The gradient of the input is not needed at the first
            // layer.
            let passes = if layer.is_first { 2.0 } else { 3.0 };
            flops += passes * 4.0 * layer.destinations * layer.inputs * layer.outputs;
            aggregated += (passes - 1.0) * layer.edges * layer.inputs * VALUE;
        }
        let step = rates.step_seconds;
        match self.machine.device_rate {
            // Samplers work while the device computes.
            Some(rate) => minibatches * input.max(flops / rate) + step,
            None => {
                let model = flops / rates.product_flops + aggregated * rates.aggregate_byte_ns * 1e-9;
                minibatches * (input + model / self.threads) + step
            }
        }
    }

    /// Bytes that the layers keep for the backward pass: inputs, aggregates and outputs, and their gradients.
    fn step_bytes(&self, minibatch: &Minibatch) -> f64 {
        let values: f64 = self
            .layers(minibatch)
            .map(|layer| layer.sources * layer.inputs + 2.0 * layer.destinations * (layer.inputs + layer.outputs))
            .sum();
        VALUE * values
    }

    /// The layers of the model, from the first to the last, with the sizes of a minibatch.
    fn layers<'b>(&'b self, minibatch: &'b Minibatch) -> impl Iterator<Item = Layer> + 'b {
        let count = self.model.fanouts.len();
        (0..count).map(move |index| {
            // The hop of a layer, from the seeds outwards. The first layer has none if it is pre-aggregated.
            let hop = count - 1 - index;
            let (destinations, edges, sources) = match minibatch.hops.get(hop) {
                Some(hop) => (hop.destinations, hop.edges, hop.sources),
                None => (minibatch.nodes, 0.0, minibatch.nodes),
            };
            Layer {
                is_first: index == 0,
                destinations,
                edges,
                sources,
                inputs: f64::from(if index == 0 { self.graph.features.0 } else { self.model.hidden }),
                outputs: f64::from(if index + 1 == count { self.model.classes } else { self.model.hidden }),
            }
        })
    }

    /// The memory of a feed besides feature rows and minibatches.
    fn feed_leases(&self, minibatch: &Minibatch) -> [Lease; 3] {
        let memory = self.machine.memory;
        let buffer = VALUE * f64::from(self.graph.features.0) * self.rows_per_node() * minibatch.nodes;
        [
            READ_BUFFERS.lease_of(read::Options::default().memory_bytes().min(READ_BUFFERS.bytes(memory))),
            RESERVE.lease(memory),
            Lease::new(
                "feature buffers",
                (BUFFERS * buffer) as u64,
                "about four; each thread may hold one of these buffers",
            ),
        ]
    }

    /// The estimated memory of training steps by consumer. `features` are the bytes of all feature rows; some rows may be read on demand.
    fn ledger(&self, minibatch: &Minibatch, adjacency: f64, halo: HaloData, features: f64) -> Result<Ledger> {
        let mut leases = vec![
            LISTS.lease_of((adjacency - halo.list_bytes()) as u64),
            Lease::new(
                "in-neighbors of halo nodes",
                halo.list_bytes() as u64,
                "sampled for each super-epoch; refused above 1/4",
            ),
        ];
        leases.extend(self.feed_leases(minibatch));
        leases.push(Lease::new(
            "feature rows",
            features as u64,
            "all rows if they fit, or a pool that takes what is left with waiting minibatches",
        ));
        let mut ledger = Ledger::new(self.machine.memory);
        ledger.enter("training steps", split_at_limit(self.machine.memory, leases))?;
        Ok(ledger)
    }

    /// Bytes of the feature files that an epoch of some minibatches reads if rows and waiting minibatches have `free` bytes.
    ///
    /// Minibatches wait for their rows while a window is read, and the pool has the rows of two windows: memory is
    /// divided between the two as by the feed (`balanced_lookahead` in its budget). A window ends when its rows fill
    /// half of the pool. What is left of the pool has the rows that are used most.
    fn missing_bytes(&self, minibatch: &Minibatch, minibatches: u64, free: f64) -> f64 {
        let slot = self.row_bytes * self.rows_per_node() + SLOT_BYTES;
        let distinct = |window: f64| minibatch.missing(&self.reach, window, 0.0);
        let destinations: f64 = minibatch.hops.iter().map(|hop| hop.destinations).sum();
        let waiting = NODE_BYTES * minibatch.nodes + DESTINATION_BYTES * destinations + EDGE_BYTES * minibatch.edges();
        let most =
            (LOOKAHEAD_MAX as f64).max(LOOKAHEAD_NODES as f64 / minibatch.nodes).min(minibatches as f64).max(1.0);
        let balanced = largest(most, |window| 2.0 * window * waiting + distinct(2.0 * window) * slot <= free);
        let slots = (free - 2.0 * balanced * waiting).max(0.0) / slot;
        let window = largest(balanced, |window| distinct(window) <= slots / 2.0);
        let pooled = (slots - distinct(window)).max(0.0);
        let missing = minibatch.missing(&self.reach, window, pooled);
        let bytes = self.rows_per_node() * self.feature_bytes * self.touched(missing, COALESCING_GAP);
        bytes * minibatches as f64 / window
    }

    /// The share of a feature file that is read for the rows of some nodes at random places: their pages, and all that
    /// is between two of them which are at most `gap` bytes apart.
    fn touched(&self, rows: f64, gap: f64) -> f64 {
        let row_bytes = match self.has_features_beside() {
            true => 2.0 * self.row_bytes,
            false => self.row_bytes,
        };
        let spacing = row_bytes * self.graph.nodes as f64 / rows.max(1.0);
        // Distances between successive rows are exponential.
        let gaps = (gap / spacing).max(0.0);
        let far = (-gaps).exp();
        (1.0 - far * (1.0 + gaps) + far * PAGE_BYTES.max(row_bytes) / spacing).min(1.0)
    }

    /// Feature rows of a node: its own, and its aggregate.
    fn rows_per_node(&self) -> f64 {
        if self.model.preaggregated { 2.0 } else { 1.0 }
    }

    fn stage(&self, bytes_read: f64, bytes_written: f64, processor_seconds: f64) -> StagePlan {
        let disk_seconds = (bytes_read + bytes_written) / self.machine.disk_bandwidth;
        StagePlan {
            seconds: disk_seconds.max(processor_seconds),
            disk_seconds,
            processor_seconds,
            bytes_read,
            bytes_written,
        }
    }
}

/// A layer of the model with the sizes of a minibatch.
struct Layer {
    is_first: bool,
    destinations: f64,
    edges: f64,
    sources: f64,
    inputs: f64,
    outputs: f64,
}
