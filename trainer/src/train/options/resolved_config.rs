//! The options of a run, with a value for each `auto`.

use std::{num::NonZeroUsize, ops::Deref, path::PathBuf};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::size::ByteSize;
use grappa_run::{
    checkpoint::RunState,
    config::{self, Auto, Evaluate, Sampling, TrainConfig},
    model::ModelTarget,
};
use grappa_storage::Graph;
use tch::Device;

use super::partition_counts::ChosenNumbers;
use crate::Result;
use crate::train::{
    data::{edge_data, types},
    embeddings::TableMemory,
    links,
    ranks::Processes,
};

/// The options of a run, after everything that is `auto` and does not need open partitions was decided, once.
///
/// Dereferences to the options. Their numbers of partitions and threads are values.
pub(crate) struct ResolvedConfig {
    requested: TrainConfig,
    options: TrainConfig,
    /// Where the learnable embeddings of nodes are.
    pub embeddings: TableMemory,
    /// The kind of pre-aggregated features that the first layer takes; none if its neighbors are sampled.
    pub aggregates: Option<AggregateKind>,
    pub device: Device,
    /// The folder of the run, for scratch files and for the assignments of chunks to partitions.
    pub folder: PathBuf,
    /// Why the numbers of partitions were chosen, if memory decided.
    pub reason: Option<String>,
}

impl ResolvedConfig {
    /// Resolves the `requested` options. A run that continues `from` a checkpoint keeps what was chosen at its start. All ranks must call it.
    pub fn new(
        graph: &Graph,
        requested: TrainConfig,
        from: Option<&RunState>,
        aggregates: Option<AggregateKind>,
        device: Device,
        folder: PathBuf,
        processes: &Processes,
    ) -> Result<Self> {
        config::check(&requested)?;
        let numbers = ChosenNumbers::of_run(graph, &requested, aggregates.is_some(), from, processes)?;
        let edges = edge_data::of_graph(graph, &requested).input(&requested)?;
        let mut options = TrainConfig {
            partitions: Auto::Value(numbers.partitions),
            concurrent: Auto::Value(numbers.concurrent),
            sampling: if numbers.sweeps { Sampling::Sweep } else { Sampling::Batch },
            threads: NonZeroUsize::new(requested.threads()).map_or(Auto::Auto, Auto::Value),
            memory: ByteSize(
                requested
                    .memory
                    .0
                    .saturating_sub(edge_data::weight_sum_bytes(
                        graph.node_types()[0].manifest().nodes,
                        requested.model,
                        edges,
                    ))
                    .max(1),
            ),
            // Methods train in memory, and an exact evaluation is one more pass.
            evaluate: match requested.evaluate {
                Evaluate::Auto if requested.trains_full_graph() => Evaluate::Exact,
                evaluate => evaluate,
            },
            ..requested.clone()
        };
        config::check(&options)?;
        let embeddings = TableMemory::new(&options, requested.memory.0, graph)?;
        if let ModelTarget::Relation(number) = types::target(graph, &options)? {
            options.memory.0 -= links::budgeted_bytes(&options, graph.relation(number), processes.count())?;
        }
        options.memory.0 = options.memory.0.saturating_sub(embeddings.leased_bytes).max(1);
        Ok(Self { requested, options, embeddings, aggregates, device, folder, reason: numbers.reason })
    }

    /// The options as the user gave them.
    pub fn requested(&self) -> &TrainConfig {
        &self.requested
    }

    /// Whether the aggregates of the first layer are known, so that no neighbors are sampled for it.
    pub fn knows_first_hop(&self) -> bool {
        self.aggregates.is_some()
    }
}

impl Deref for ResolvedConfig {
    type Target = TrainConfig;

    fn deref(&self) -> &TrainConfig {
        &self.options
    }
}
