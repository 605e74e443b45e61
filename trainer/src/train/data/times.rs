//! Edges with times: whether a run uses them, and what contradicts that.
//!
//! Links are learned and scored at their times. Tasks of nodes do not use times.

use grappa_run::{
    checkpoint::RunState,
    config::{Auto, ChangedOptions, Evaluate, FirstHop, NegativeSampling, RankAmong, TaskChoice, TrainConfig},
    model::{LayerKind, ModelTarget, TimeEncoding},
};
use grappa_sampling::sample::{Sampler, TimeHops, TimeOptions};
use grappa_storage::{Graph, Store};

use super::types;
use crate::{Error, Result};

/// Whether a run draws at the times of links: the edges that it learns have times.
pub(crate) fn are_used(graph: &Graph, config: &TrainConfig) -> bool {
    let is_timed = |target| matches!(target, ModelTarget::Relation(number) if graph.relations()[number].is_timed());
    config.task == TaskChoice::Link && types::target(graph, config).is_ok_and(is_timed)
}

/// Refuses options that would show edges that are later than what is predicted, or that have no meaning: at a time, or without times.
pub(crate) fn check(graph: &Graph, config: &TrainConfig) -> Result<()> {
    if !are_used(graph, config) {
        return check_absent(graph, config);
    }
    let sampling = config.negative_sampling();
    let lacking = [
        (
            config.partitions.value().is_some_and(|partitions| partitions > 1),
            format!("partitions is {}", config.partitions()),
            "partitions of edges with times are not sampled: use --partitions 1",
        ),
        (
            config.model == LayerKind::Gcn,
            "model is gcn".to_owned(),
            "it divides by the in-degrees of the whole graph, which tell of later edges: use --model sage, gatv2 or transformer",
        ),
        (
            config.model == LayerKind::PinSage,
            "model is pinsage".to_owned(),
            "random walks do not know times: use --model sage, gatv2 or transformer",
        ),
        (config.trains_full_graph(), "a method of full graphs".to_owned(), "it sees later edges: use --method grappa"),
        (config.full_graph, "full-graph".to_owned(), "each link sees other edges: leave out --full-graph"),
        (
            config.first_hop == FirstHop::Preaggregated,
            "first-hop is preaggregated".to_owned(),
            "its sums have later edges: use --first-hop sampled",
        ),
        (
            matches!(sampling, NegativeSampling::Shared | NegativeSampling::InBatch),
            format!("negative-sampling is {sampling}"),
            "links at different times cannot share negatives: use --negative-sampling uniform or degree",
        ),
        (
            config.candidates == RankAmong::All,
            "candidates is all".to_owned(),
            "each link would need the embeddings of all nodes at its time: use --candidates 100",
        ),
        (
            matches!(config.candidates, RankAmong::Listed(_)),
            "candidates is a file".to_owned(),
            "candidates of links with times are drawn: use --candidates 100",
        ),
        (
            config.ranks_destinations(),
            "destinations are ranked".to_owned(),
            "each link would need the embeddings of all nodes at its time: leave out --rank-destinations, and use --monitor mrr",
        ),
        (
            config.evaluate == Evaluate::Exact,
            "evaluate is exact".to_owned(),
            "links are scored at their times, by sampled neighbors: use --evaluate auto",
        ),
    ];
    match lacking.into_iter().find(|(is_wanted, ..)| *is_wanted) {
        Some((_, option, why)) => {
            Err(Error::Options(format!("{option}, and the edges of {} have times: {why}", graph.path().display())))
        }
        None => Ok(()),
    }
}

/// Refuses options of times for links that have none.
fn check_absent(graph: &Graph, config: &TrainConfig) -> Result<()> {
    let changed = ChangedOptions::from_config(config);
    let options = ["time-split", "time-strategy", "time-equal", "time-encoding"];
    match options.iter().find_map(|option| changed.flag(option)) {
        Some(changed) => Err(Error::Options(format!(
            "{changed} is for links with times, and the edges of {} that are learned have none: ingest the edges with --time, or leave it out",
            graph.path().display()
        ))),
        None => Ok(()),
    }
}

/// The number of partitions that is wanted: with times, there is one.
pub(crate) fn partitions(graph: &Graph, config: &TrainConfig) -> Auto<u32> {
    match config.partitions {
        Auto::Auto if are_used(graph, config) => Auto::Value(1),
        partitions => partitions,
    }
}

/// A sampler that draws at the time of each link, if the run uses times.
///
/// # Errors
/// If it takes random walks, or draws the last edges with replacement.
pub(crate) fn with_times(sampler: Sampler, graph: &Graph, config: &TrainConfig) -> Result<Sampler> {
    if !are_used(graph, config) {
        return Ok(sampler);
    }
    let options = TimeOptions {
        equal: config.time_equal,
        hops: TimeHops::Seed,
        window: None,
        strategy: config.time_strategy.into(),
    };
    // The age of edges is an input, and a link is told from other events of its ends by its time.
    Ok(sampler.with_times(options)?.with_edge_times())
}

/// How the ages of edges are encoded for a model that takes features of edges.
///
/// # Errors
/// If the times of the store cannot be read.
pub(crate) fn encoding(graph: &Graph, config: &TrainConfig) -> Result<Option<TimeEncoding>> {
    let values = age_values(graph, config);
    match values {
        0 => Ok(None),
        values => Ok(Some(TimeEncoding::of_span(values, span(&graph.relations()[0])?))),
    }
}

/// The values that encode the age of an edge; 0 if the model takes none.
pub(crate) fn age_values(graph: &Graph, config: &TrainConfig) -> usize {
    let takes_features = config.model.edge_values() == grappa_sampling::EdgeValues::Features;
    match are_used(graph, config) && takes_features && !graph.has_types() {
        true => config.time_encoding,
        false => 0,
    }
}

/// In the state of a run: the values that encode the age of an edge.
const AGE_VALUES: &str = "age_values";

/// Notes in the state of a run that the model takes the ages of edges.
pub(crate) fn note(state: &mut RunState, encoding: Option<TimeEncoding>) {
    if let Some(TimeEncoding { values, .. }) = encoding {
        state.counters.insert(AGE_VALUES.into(), values as u64);
    }
}

/// Whether the model of a run takes the ages of edges.
pub(crate) fn has_ages(state: &RunState) -> bool {
    state.counters.contains_key(AGE_VALUES)
}

/// From the first to the last time of a store, in its unit.
fn span(store: &Store) -> Result<f64> {
    let Some(axis) = store.time_axis()?.filter(|axis| axis.positions() > 0) else { return Ok(0.0) };
    Ok(axis.time(axis.positions() - 1) as f64 - axis.time(0) as f64)
}
