//! The loader of minibatches for training.

use std::num::{NonZeroU32, NonZeroUsize};

use grappa_formats::aggregates::AggregateKind;
use grappa_run::{
    config::{HaloMode, Sampling, TrainConfig},
    model::{EdgeInput, Precision},
};
use grappa_sampling::{
    EdgeValues, LoaderOptions, ScratchOptions,
    feed::{MinibatchOptions, OutputDtype, RowOptions},
    sample::{Join, Sampler},
    view::{Halo, ViewKind},
};

use grappa_storage::Graph;

use crate::Result;
use crate::train::data::{edge_data, times};

/// Options for minibatches as the configuration wants them, all of a step in one batch, with what the model takes of `edges`.
pub(crate) fn loader_options(
    graph: &Graph,
    config: &TrainConfig,
    aggregates: Option<AggregateKind>,
    edges: EdgeInput,
) -> Result<LoaderOptions> {
    let sampler = sampler(graph, config, aggregates.is_some(), edges)?;
    let is_timed = sampler.needs_times();
    Ok(LoaderOptions {
        concurrent: Some(config.concurrent() as usize),
        halo: match config.halo {
            HaloMode::Auto | HaloMode::Stop | HaloMode::History => Halo::Stop,
            HaloMode::Neighbors => Halo::Neighbors,
            HaloMode::None => Halo::None,
        },
        halo_neighbors: config.halo_neighbors.value().map(NonZeroU32::get),
        view: match config.sampling {
            Sampling::Auto | Sampling::Batch => ViewKind::Auto,
            Sampling::Sweep => ViewKind::Sweep,
        },
        scratch: ScratchOptions { folder: config.tmp.clone().or_else(|| config.out.clone()), bytes_max: None },
        memory: config.memory.0,
        threads: config.threads(),
        rows: RowOptions {
            features: has_features(graph),
            aggregates,
            output: match config.precision {
                Precision::F32 => OutputDtype::F32,
                Precision::Bf16 => OutputDtype::Bf16,
            },
            register: None,
        },
        lookahead: config.lookahead.value().map(NonZeroUsize::get),
        read_engine: config.read_engine.into(),
        edge_features: matches!(edges, EdgeInput::Features(_)) && edge_data::of_graph(graph, config).features > 0,
        ..LoaderOptions::new(MinibatchOptions {
            batch: config.batch(),
            // The embedding of a node depends on the partition that reads it.
            join_steps: Some(match config.node_embeddings.is_empty() && !is_timed {
                true => Join::SharedInput,
                false => Join::Apart,
            }),
            disjoint: is_timed,
            steps_max: (config.steps_per_epoch > 0).then_some(config.steps_per_epoch),
            seed: config.seed,
            shuffle: !config.repeats_batch(),
            ..MinibatchOptions::new(sampler)
        })
    })
}

/// Whether nodes of some type have features. Other types may have embeddings or ages alone.
pub(crate) fn has_features(graph: &Graph) -> bool {
    graph.node_types().iter().any(|store| store.manifest().features.is_some())
}

/// The sampler of training, with what the model takes of the `edges` of the store, and at the times of links if the run uses them.
pub(crate) fn sampler(graph: &Graph, config: &TrainConfig, knows_first_hop: bool, edges: EdgeInput) -> Result<Sampler> {
    let values = match edges.values() {
        EdgeValues::Features if edge_data::of_graph(graph, config).features == 0 => EdgeValues::Nothing,
        values => values,
    };
    times::with_times(edge_data::with_values(config.sampler(knows_first_hop)?, values), graph, config)
}
