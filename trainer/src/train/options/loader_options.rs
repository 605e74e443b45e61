//! The loader of minibatches for training.

use std::num::{NonZeroU32, NonZeroUsize};

use grappa_formats::aggregates::AggregateKind;
use grappa_run::{
    config::{HaloMode, TrainConfig},
    model::{EdgeInput, Precision},
};
use grappa_sampling::{
    LoaderOptions,
    feed::{MinibatchOptions, OutputDtype, RowOptions},
    sample::Join,
    view::Halo,
};

use crate::Result;
use crate::train::data::edge_data;

/// Options for minibatches as the configuration wants them, all of a step in one batch, with what the model takes of `edges`.
pub(crate) fn loader_options(
    config: &TrainConfig,
    aggregates: Option<AggregateKind>,
    edges: EdgeInput,
) -> Result<LoaderOptions> {
    let sampler = edge_data::with_values(config.sampler(aggregates.is_some())?, edges.values());
    Ok(LoaderOptions {
        concurrent: Some(config.concurrent() as usize),
        halo: match config.halo {
            HaloMode::Auto | HaloMode::Stop | HaloMode::History => Halo::Stop,
            HaloMode::Neighbors => Halo::Neighbors,
            HaloMode::None => Halo::None,
        },
        halo_neighbors: config.halo_neighbors.value().map(NonZeroU32::get),
        memory: config.memory.0,
        threads: config.threads(),
        rows: RowOptions {
            features: true,
            aggregates,
            output: match config.precision {
                Precision::F32 => OutputDtype::F32,
                Precision::Bf16 => OutputDtype::Bf16,
            },
            register: None,
        },
        lookahead: config.lookahead.value().map(NonZeroUsize::get),
        read_engine: config.read_engine.into(),
        edge_features: matches!(edges, EdgeInput::Features(_)),
        ..LoaderOptions::new(MinibatchOptions {
            batch: config.batch(),
            // The embedding of a node depends on the partition that reads it.
            join_steps: Some(match config.node_embeddings.is_empty() {
                true => Join::SharedInput,
                false => Join::Apart,
            }),
            steps_max: (config.steps_per_epoch > 0).then_some(config.steps_per_epoch),
            seed: config.seed,
            shuffle: !config.repeats_batch(),
            ..MinibatchOptions::new(sampler)
        })
    })
}
