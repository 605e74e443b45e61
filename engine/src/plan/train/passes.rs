//! Passes over the graph: pre-aggregation and layer-wise inference.

use std::ops::Add;

use grappa_sampling::policy::{EMBEDDINGS, FIRST_INPUTS, PREAGGREGATION, STATE_WORK};

use super::{COALESCING_GAP, Layer, LinkOptions, Minibatch, PAGE_BYTES, Planner, StagePlan, VALUE};
use crate::aggregate::{Budget, Mean};

/// Bytes of a value of a state in a scratch file: bf16.
const STATE_VALUE: f64 = 2.0;
/// Bytes of the size of a list in a tile.
const SIZE_BYTES: f64 = 16.0;
/// The share of the memory that a tile may take. Blocks of rows, sets of nodes and lists of halo nodes take the rest.
const TILE_SHARE: f64 = 0.75;

/// Passes read what is between two rows if that is at most so much.
const SCAN_GAP: f64 = (16 << 10) as f64;
/// Seconds of a short read on a slow disk, with many reads in flight (the table in the feed's `coalescing.rs`).
const READ_SECONDS_MAX: f64 = 12.7e-6;
/// Bytes that one thread reads through the system's cache in a second (2026-11-22, billion edges).
const CACHE_BANDWIDTH: f64 = 1.3e9;
/// How many times a first sampled evaluation reads the lists of its nodes (2026-11-22, billion edges).
const FOUND_SHARE: f64 = 1.5;
/// Nanoseconds to compute a value of the features of a node (2026-11-22, billion edges).
const COMPUTED_VALUE_NS: f64 = 1.2;

/// Nanoseconds to draw a candidate, to look up whether it has an edge, and to put its score in its place (2026-11-28, links).
const DRAW_NS: f64 = 800.0;
/// Nanoseconds to compare the score of an edge with the score of one of all nodes (2026-11-28, links).
const VISIT_NS: f64 = 4.0;

/// Bytes of pages, and the number of those pages that are read alone.
#[derive(Debug, Default, Clone, Copy)]
struct Pages {
    bytes: f64,
    alone: f64,
}

impl Add for Pages {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, alone: self.alone + other.alone }
    }
}

/// Bytes that an inference reads, writes, and holds in scratch files.
#[derive(Debug, Default)]
struct Transfer {
    read: f64,
    written: f64,
    scratch: f64,
}

impl Transfer {
    fn add(&mut self, other: Self) {
        self.read += other.read;
        self.written += other.written;
        self.scratch += other.scratch;
    }
}

pub(super) struct InferencePlan {
    /// In aggregated edges.
    pub work: f64,
    pub stage: StagePlan,
    /// Bytes of scratch files.
    pub scratch: f64,
    /// Bytes of rows and states, if all are in memory.
    pub memory: f64,
}

impl Planner<'_> {
    /// Layer-wise inference for the scored nodes from all in-neighbors.
    pub(super) fn inference(&self, is_resident: bool) -> InferencePlan {
        let options = self.options;
        let hops = self.model.fanouts.len() - usize::from(self.model.preaggregated);
        let scored = match options.links {
            Some(_) => self.graph.nodes,
            None => options.scored,
        };
        let sets = self.reach.sample(scored as f64, &vec![None; hops], 1.0);
        let (mut states, mut scratch, mut memory) = (0.0, 0.0f64, 0.0f64);
        for layer in self.layers(&sets) {
            states += layer.destinations;
            memory = memory.max(VALUE * (layer.sources * layer.inputs + layer.destinations * layer.outputs));
            // States of a layer and of the one before.
            let before = if layer.is_first { 0.0 } else { layer.sources * layer.inputs };
            scratch = scratch.max(STATE_VALUE * (layer.destinations * layer.outputs + before));
        }
        let rates = &self.machine.rates;
        let processor = self.inference_seconds(&sets);
        let lists = self.graph.adjacency_bytes as f64 * (sets.edges() / self.graph.edges as f64).min(hops as f64);
        // The sets of nodes follow from the lists, and then the edges of tiles do.
        let mut transfer = Transfer { read: 2.0 * lists, ..Transfer::default() };
        if !is_resident {
            transfer.add(self.transfer_of_features(&sets));
        }
        let seconds_of_adding =
            |layer: &Layer| layer.edges * layer.inputs * VALUE * rates.infer_byte_ns * 1e-9 / self.threads;
        let first = self.layers(&sets).next().expect("a model has a layer");
        let feature_seconds = (transfer.read - 2.0 * lists) / self.machine.disk_bandwidth;
        // Rows are read while those before are added.
        let mut overlapped = match self.model.preaggregated {
            true => 0.0,
            false => feature_seconds.min(seconds_of_adding(&first)),
        };
        if scratch <= self.machine.memory as f64 / 2.0 {
            scratch = 0.0;
        } else {
            for (index, layer) in self.layers(&sets).enumerate().skip(1) {
                let row = STATE_VALUE * layer.inputs;
                let (states, tiles) = (layer.sources * row, self.tiles(&layer, row));
                let (mut reads, mut adding) = (tiles, seconds_of_adding(&layer));
                if index == 1 && self.model.preaggregated {
                    // The first tile takes the states as they are made.
                    let products = 4.0 * first.destinations * first.inputs * first.outputs / rates.product_flops;
                    let made = feature_seconds + states / self.machine.disk_bandwidth;
                    overlapped += made.min(products / self.threads + adding / tiles);
                    (reads, adding) = (tiles - 1.0, adding * (1.0 - 1.0 / tiles));
                }
                overlapped += adding.min(reads * states / self.machine.disk_bandwidth);
                transfer.add(Transfer { read: reads * states, written: states, scratch: 0.0 });
            }
        }
        let mut stage = self.pass(transfer.read, transfer.written, processor / self.threads);
        stage.seconds -= overlapped;
        if let Some(links) = options.links {
            let (ranking, table) = self.ranking(links);
            stage = stage.and(ranking);
            scratch += table;
        }
        InferencePlan { work: sets.edges() + STATE_WORK * states, stage, scratch: scratch + transfer.scratch, memory }
    }

    /// Ranking edges among their candidates, and the bytes of the embeddings of all nodes if these are in a scratch file.
    fn ranking(&self, links: LinkOptions) -> (StagePlan, f64) {
        let options = self.options;
        let (nodes, edges, width) = (self.graph.nodes as f64, options.scored as f64, f64::from(self.model.classes));
        let table = VALUE * nodes * width;
        let in_file = match table <= EMBEDDINGS.bytes(self.machine.memory) as f64 {
            true => 0.0,
            false => table,
        };
        let rates = &self.machine.rates;
        let seconds = match links.candidates {
            // An edge, a random pair, and candidates of both kinds, which are mostly the same.
            Some(count) => {
                let pairs = edges * (2.0 + f64::from(count));
                pairs * (DRAW_NS + 2.0 * VALUE * width * rates.gather_byte_ns) * 1e-9
            }
            None => edges * nodes * (2.0 * width / rates.product_flops + VISIT_NS * 1e-9),
        };
        // Rows that are in a file are written once, and read once for each part of the sources.
        (self.pass(in_file, in_file, seconds / self.threads), in_file)
    }

    /// The first inference and a later one with the fanouts of evaluations, which are twice the fanouts of training.
    pub(super) fn sampled_inferences(&self, is_resident: bool) -> (StagePlan, StagePlan) {
        let options = self.options;
        let fanouts: Vec<Option<u32>> =
            self.model.fanouts.iter().map(|fanout| fanout.map(|fanout| 2 * fanout)).collect();
        let hops = fanouts.len() - usize::from(self.model.preaggregated);
        let sets = self.reach.sample(options.scored as f64, &fanouts[..hops], 1.0);
        let lists = (0..hops).fold(Pages::default(), |sum, hop| {
            let reached = self.reach.sample(options.scored as f64, &fanouts[..hop], 1.0);
            sum + self.pages_of_lists(&reached)
        });
        let processor = self.inference_seconds(&sets) + self.computed_seconds(&sets);
        // `read` goes through the system's cache, and `direct` does not.
        let stage = |read: Pages, direct: f64, written: f64| {
            let mut stage = self.pass(read.bytes + direct, written, processor / self.threads);
            let seconds_per_byte = self.machine.disk_bandwidth.recip();
            let alone = (COALESCING_GAP * seconds_per_byte).min(READ_SECONDS_MAX - PAGE_BYTES * seconds_per_byte);
            let copied = (read.bytes - PAGE_BYTES * read.alone) * (CACHE_BANDWIDTH.recip() - seconds_per_byte);
            let waiting = read.alone * alone.max(0.0) + copied.max(0.0);
            stage.disk_seconds += waiting;
            stage.seconds += waiting;
            stage
        };
        // The nodes to compute follow from the lists. When these are read once more, the system's cache still has about
        // half of them.
        let found = Pages { bytes: FOUND_SHARE * lists.bytes, alone: FOUND_SHARE * lists.alone };
        if is_resident || self.graph.stored == 0 {
            return (stage(found, 0.0, 0.0), stage(lists, 0.0, 0.0));
        }
        let first = self.layers(&sets).next().expect("a model has a layer");
        let features = self.rows_per_node() * self.feature_bytes * self.touched(first.sources, SCAN_GAP);
        // Inputs of the first layer: the states of its nodes, and what they aggregate.
        let inputs = 2.0 * VALUE * first.destinations * first.inputs;
        if inputs <= FIRST_INPUTS.bytes(self.machine.memory) as f64 {
            return (stage(found, features, 0.0), stage(lists, 0.0, 0.0));
        }
        let later = Pages { bytes: lists.bytes + inputs, ..lists };
        (stage(found, features, inputs), stage(later, 0.0, 0.0))
    }

    /// Pages of the adjacency lists of the nodes that a sample reaches.
    fn pages_of_lists(&self, reached: &Minibatch) -> Pages {
        let all = self.graph.adjacency_bytes as f64 / PAGE_BYTES;
        let in_lists =
            self.graph.adjacency_bytes as f64 / self.graph.edges as f64 * reached.in_edges(&self.reach) / PAGE_BYTES;
        // A page with the place of the list, and at least one of the list.
        let touches = 2.0 * reached.present() + in_lists;
        let touched = all * -(-touches / all).exp_m1();
        Pages {
            bytes: touched * PAGE_BYTES,
            // Successive pages are read together.
            alone: touched * (1.0 - touched / all),
        }
    }

    /// Processor seconds of the layers of an inference.
    fn inference_seconds(&self, sets: &Minibatch) -> f64 {
        let rates = &self.machine.rates;
        let (mut flops, mut aggregated) = (0.0, 0.0);
        for layer in self.layers(sets) {
            flops += 4.0 * layer.destinations * layer.inputs * layer.outputs;
            aggregated += layer.edges * layer.inputs * VALUE;
        }
        (sets.edges() * rates.load_edge_ns + aggregated * rates.infer_byte_ns) * 1e-9 + flops / rates.product_flops
    }

    /// Processor seconds to compute the features of the first layer, if they are not stored.
    fn computed_seconds(&self, sets: &Minibatch) -> f64 {
        match self.graph.stored > 0 {
            true => 0.0,
            false => sets.nodes * f64::from(self.graph.features.0) * COMPUTED_VALUE_NS * 1e-9,
        }
    }

    /// Bytes that the first layer of an inference reads. In the feature files, rows of other nodes are read with the
    /// rows of a set.
    fn transfer_of_features(&self, sets: &Minibatch) -> Transfer {
        let whole = self.feature_bytes * self.touched(sets.nodes, SCAN_GAP);
        let first = self.layers(sets).next().expect("a model has a layer");
        if self.model.preaggregated {
            return Transfer { read: self.rows_per_node() * whole, ..Transfer::default() };
        }
        let passes = self.tiles(&first, self.row_bytes);
        let copy = self.row_bytes * first.sources;
        match whole + copy * (1.0 + passes) < whole * passes && self.graph.stored > 0 {
            true => Transfer { read: whole + copy * passes, written: copy, scratch: copy },
            false => Transfer { read: whole * passes, ..Transfer::default() },
        }
    }

    /// The number of tiles that the destinations of a layer are cut into. Each has their states, their own rows of
    /// `row_bytes`, and their edges.
    fn tiles(&self, layer: &Layer, row_bytes: f64) -> f64 {
        let bytes = layer.destinations * (VALUE * layer.inputs + row_bytes + SIZE_BYTES) + VALUE * layer.edges;
        (bytes / (TILE_SHARE * self.machine.memory as f64)).ceil()
    }

    /// Aggregates the features of all in-neighbors of all nodes.
    pub(super) fn preaggregation(&self) -> StagePlan {
        if !self.makes_aggregates() {
            return StagePlan::default();
        }
        let (nodes, edges, width) = (self.graph.nodes as f64, self.graph.edges, self.graph.features.0 as usize);
        let budget = Budget::new(PREAGGREGATION.bytes(self.machine.memory), self.machine.threads);
        let with_in_edges = self.reach.sample(nodes, &[Some(1)], 1.0).edges();
        let sources = (self.graph.nodes, self.row_bytes as u32);
        let passes = match budget.streams(self.graph.nodes, width) {
            true => budget.passes(sources, (with_in_edges as u64, edges), &Mean { width }) as f64,
            false => 1.0,
        };
        let per_edge = self.machine.rates.load_edge_ns
            + f64::from(self.graph.features.0) * VALUE * self.machine.rates.infer_byte_ns;
        let lists = self.graph.adjacency_bytes as f64;
        let direct = (lists + passes * self.feature_bytes, 0.0);
        // About as many nodes have out-edges as in-edges. A pass over the lists finds them.
        let copy = self.feature_bytes * with_in_edges / nodes;
        let copied = (2.0 * lists + self.feature_bytes + passes * copy, copy);
        let (read, copy) = match copied.0 + copied.1 < direct.0 {
            true => copied,
            false => direct,
        };
        // Features that are beside aggregates are copied.
        let beside = self.aggregate_bytes() - self.feature_bytes;
        let written = self.aggregate_bytes() + copy;
        self.pass(read + beside, written, edges as f64 * per_edge * 1e-9 / self.threads)
    }

    /// A pass over the graph. Edges are listed before rows are read, and results are written after them.
    fn pass(&self, bytes_read: f64, bytes_written: f64, processor_seconds: f64) -> StagePlan {
        let stage = self.stage(bytes_read, bytes_written, processor_seconds);
        StagePlan { seconds: stage.disk_seconds + stage.processor_seconds, ..stage }
    }
}
