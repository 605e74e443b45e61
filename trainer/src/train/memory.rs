//! The memory of training, by consumer: leases for the ledger of the run.
//!
//! Two phases divide the limit: [`STEPS`] of an epoch, where the feed takes all that the graph leaves, and [`INFERENCE`] of an evaluation or
//! a refresh, where states take it. What stays from one phase to the other is small, and is listed as memory beside the limit where the
//! other phase leaves no room for it.

use grappa_io::ledger::{Lease, MemoryShare, leased_bytes, split_at_limit};
use grappa_sampling::{
    Loader, NodeSet,
    feed::RESIDENT_ROWS,
    policy::{FIRST_INPUTS, LISTS},
};

use super::{data::training_data::TrainingData, links::LinkData, options::resolved_config::ResolvedConfig};

/// The phase of training steps.
pub(crate) const STEPS: &str = "training steps";
/// The phase of exact evaluations and of refreshes of historical embeddings.
pub(crate) const INFERENCE: &str = "inference while training";

/// Candidates of evaluations of links: listed by the user, or drawn.
const CANDIDATES: &str = "candidates of links";
/// A batch that all epochs have is kept if it takes at most this share of the memory.
const REPEATED_BATCH: MemoryShare = MemoryShare::one(
    "batch of every epoch",
    8,
    "full-graph training keeps its batch if it takes at most 1/8; otherwise each epoch assembles it again; chosen, not measured",
);
/// The memory of the tensors of steps stays during an inference if it is at most this share of what is free. The inference leaves as much
/// in any case, so that its results do not depend on it.
const STEP_TENSORS: MemoryShare = MemoryShare::one(
    "freed tensors of steps",
    8,
    "freed tensors stay for the next step if they take at most 1/8 of what is free, so that the kernel need not clear their pages again; \
     chosen, not measured",
);
/// Historical embeddings, of what is free.
const HISTORY: MemoryShare = MemoryShare::one(
    "historical embeddings",
    2,
    "at most 1/2 of what is free, because the inference that makes them needs as much for its states; files have the rest; chosen, not \
     measured",
);
/// The least memory of an inference, even if less is free.
const INFERENCE_LEAST: MemoryShare = MemoryShare::one(
    "states and features",
    4,
    "all that is free, and at least 1/4 of the memory: with less, an inference would read its inputs too often; chosen, not measured",
);

/// Bytes of memory that are left for a batch that all epochs share. With historical embeddings epochs share none, because these change. It
/// does not depend on whether there is such a batch now: a run that was resumed must evaluate as one that was not stopped.
pub(crate) fn repeated_batch_memory(config: &ResolvedConfig, uses_history: bool) -> u64 {
    match config.repeats_batch() && !uses_history {
        true => REPEATED_BATCH.bytes(config.memory.0),
        false => 0,
    }
}

/// A process while it trains: who takes memory follows from these.
#[derive(Clone, Copy)]
pub(crate) struct TrainingMemory<'a> {
    pub config: &'a ResolvedConfig,
    pub data: &'a TrainingData,
    pub loader: &'a Loader,
    /// Whether the open partitions use historical embeddings.
    pub uses_history: bool,
}

/// Memory for an inference, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// For states and features while it runs.
    pub inference: u64,
    /// For the historical embeddings, which stay while the next steps train.
    pub kept: u64,
}

/// The division of memory for an inference.
pub(crate) struct InferenceBudget {
    pub room: Room,
    /// Bytes of freed tensors of steps that may stay. None if the inference needs all memory.
    pub step_tensors: Option<u64>,
    pub leases: Vec<Lease>,
}

impl TrainingMemory<'_> {
    /// The leases of steps, once the feed is open. `history` and `evaluations` are the bytes of historical embeddings, and of what
    /// evaluations left for the next ones.
    pub fn step_leases(&self, history: u64, evaluations: u64) -> Vec<Lease> {
        let mut leases = self.leases_of_all_phases().to_vec();
        leases.push(Lease::new(
            CANDIDATES,
            self.data.links().map_or(0, LinkData::candidate_bytes),
            "listed pairs and drawn candidates stay from one evaluation to the next",
        ));
        leases.extend(self.loader.leases());
        let kept = [HISTORY.lease_of(history), FIRST_INPUTS.lease_of(evaluations), self.sets(), self.repeated_batch()];
        leases.extend(kept.map(Lease::beside_limit));
        leases
    }

    /// Divides the memory for an inference, after the feed was closed if it reads rows on demand. With `keeps`, the inference saves
    /// historical embeddings. `views` are the bytes of adjacency lists. `kept` are the bytes of historical embeddings, first inputs and
    /// candidates of links, which stay in memory during the inference.
    pub fn divide_for_inference(&self, views: u64, kept: u64, keeps: bool) -> InferenceBudget {
        let (memory, feed) = (self.config.memory.0, self.loader.feed());
        let features = match feed {
            Some(feed) => feed.resident_bytes(),
            None => self.loader.feature_bytes() * (1 + u64::from(self.config.knows_first_hop())),
        };
        let graph = [
            Lease::new(LISTS.name, views, "lists that stay for the next steps; lists in turn are freed and read again"),
            self.sets(),
            Lease::new(
                "kept results",
                kept,
                "historical embeddings, first inputs and candidates of links that stay from one inference to the next",
            ),
            self.repeated_batch(),
        ];
        let mut free = memory.saturating_sub(leased_bytes(&graph));
        // The first refresh is before the feed opens.
        let reads_files = feed.is_none() && features > free;
        let features = if reads_files { 0 } else { features };
        free = free.saturating_sub(features);
        let history = if keeps && !reads_files { HISTORY.bytes(free) } else { 0 };
        let step_tensors = if reads_files { 0 } else { STEP_TENSORS.bytes(free) };
        let (inference, least) = (free - history - step_tensors, INFERENCE_LEAST.bytes(memory));
        let room = Room { inference: inference.max(least), kept: history };
        let mut leases = self.leases_of_all_phases().to_vec();
        leases.extend(graph);
        leases.extend([
            Lease::new(RESIDENT_ROWS, features, "feature rows of the feed, which inferences use, too"),
            HISTORY.lease_of(history),
            STEP_TENSORS.lease_of(step_tensors),
            INFERENCE_LEAST.lease_of(room.inference),
        ]);
        let buffers = feed.map_or(&[][..], |feed| feed.leases()).iter().filter(|lease| lease.name != RESIDENT_ROWS);
        leases.push(
            Lease::new(
                "buffers of the feed",
                buffers.map(|lease| lease.bytes).sum(),
                "a feed whose rows are all resident stays open, with its minibatches and buffers",
            )
            .beside_limit(),
        );
        InferenceBudget {
            room,
            step_tensors: (!reads_files && inference >= least).then_some(step_tensors),
            leases: split_at_limit(self.config.requested().memory.0, leases),
        }
    }

    /// Memory that the run takes before the graph.
    fn leases_of_all_phases(&self) -> [Lease; 3] {
        let weight_sums = self.data.degrees.weight_sums().map_or(0, |sums| size_of_val(&**sums) as u64);
        let before_graph = self.config.requested().memory.0.saturating_sub(self.config.memory.0);
        let embeddings = self.config.embeddings.leased_bytes;
        [
            Lease::new(
                "embeddings of nodes",
                embeddings,
                "the embeddings of all nodes, with the state of their optimizer and the copies of other partitions; above 1/2, their pages: they \
                 are on the disk",
            ),
            Lease::new(
                "sums of edge weights",
                weight_sums,
                "GCN divides by the sum of the weights of each node's in-edges",
            ),
            Lease::new(
                "negatives of a step",
                before_graph.saturating_sub(weight_sums + embeddings),
                "tensors of negatives beyond 32 MiB, which count as memory of the model; refused above 1/2 of the memory",
            ),
        ]
    }

    /// The sets of nodes of the evaluations, and of an exact inference at the end.
    fn sets(&self) -> Lease {
        let bytes =
            NodeSet::bytes_of(self.data.graph.positions().chunks().nodes()) * 2 * (self.config.layers as u64 + 1);
        Lease::new(
            "sets of nodes",
            bytes,
            "a bit per node, for each layer of the evaluations and of the exact inference at the end",
        )
    }

    fn repeated_batch(&self) -> Lease {
        REPEATED_BATCH.lease_of(repeated_batch_memory(self.config, self.uses_history))
    }
}
