//! Edges and nodes with times: whether a run uses them, and what contradicts that.
//!
//! Links of edges with times are learned and scored at the times of the edges, nodes with times at their own.

use grappa_formats::time_axis::{TimeAxis, TimeUnit};
use grappa_run::{
    config::{
        Auto, ChangedOptions, EdgeData, Evaluate, FirstHop, HaloMode, NegativeSampling, RankAmong, Sampling, SeedTime,
        TaskChoice, TimeEqual, TrainConfig,
    },
    model::{LayerKind, ModelTarget, TimeEncoding},
};
use grappa_sampling::{
    links::EndTimes,
    sample::{Sampler, TimeOptions},
};
use grappa_storage::Graph;

use super::types;
use crate::{Error, Result};

/// Whether a run draws at times: the edges or nodes that it learns have times.
pub(crate) fn are_used(graph: &Graph, config: &TrainConfig) -> bool {
    let is_timed = |target| match target {
        ModelTarget::Relation(number) => types::links_have_times(graph, number),
        ModelTarget::Type(number) => graph.node_types()[number].has_node_times(),
    };
    config.seed_time == SeedTime::Own && types::target(graph, config).is_ok_and(is_timed)
}

/// Whether the adjacency lists of partitions are in the order of time.
pub(crate) fn keeps_order(graph: &Graph, config: &TrainConfig) -> bool {
    are_used(graph, config) || graph.relations().iter().any(|relation| relation.is_timed())
}

/// Whether edges at the very time of a seed are seen.
pub(crate) fn sees_equal(config: &TrainConfig) -> bool {
    match config.time_equal {
        TimeEqual::Auto => config.task != TaskChoice::Link,
        TimeEqual::Seen => true,
        TimeEqual::Hidden => false,
    }
}

/// Refuses a time encoding that the model has no use for.
fn check_encoding(graph: &Graph, config: &TrainConfig) -> Result<()> {
    let Some(changed) = ChangedOptions::from_config(config).flag("time-encoding") else { return Ok(()) };
    if config.time_encoding == 0 || config.edge_data == EdgeData::Ignore || encoding(graph, config)?.is_some() {
        return Ok(());
    }
    Err(Error::Options(format!(
        "{changed} encodes ages, and model {} takes no ages of the edges of {}; these do: {}; or leave out --time-encoding",
        config.model,
        graph.path().display(),
        edge_age_takers(graph)
    )))
}

/// Refuses options that would show edges that are later than what is predicted, or that have no meaning: at a time, or without times.
pub(crate) fn check(graph: &Graph, config: &TrainConfig) -> Result<()> {
    if !are_used(graph, config) {
        return check_absent(graph, config);
    }
    let sampling = config.negative_sampling();
    let lacking = [
        (
            config.task == TaskChoice::Link && config.partitions.value().is_some_and(|partitions| partitions > 1),
            format!("partitions is {}", config.partitions()),
            "links are not learned at times in partitions: use --partitions 1",
        ),
        (
            !matches!(config.halo, HaloMode::Auto | HaloMode::Stop),
            format!("halo is {}", config.halo),
            "what it adds to partitions knows no times: use --halo stop",
        ),
        (
            !graph.is_whole(),
            "the store is a slice of its graph".to_owned(),
            "slices are not sampled at times: use the whole store",
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
        (config.full_graph, "full-graph".to_owned(), "each seed sees other edges: leave out --full-graph"),
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
            "each seed is scored at its time, by sampled neighbors: use --evaluate auto",
        ),
    ];
    match lacking.into_iter().find(|(is_wanted, ..)| *is_wanted) {
        Some((_, option, why)) => {
            let noun = learned_noun(config);
            Err(Error::Options(format!("{option}, and the {noun} of {} have times: {why}", graph.path().display())))
        }
        None => check_encoding(graph, config),
    }
}

/// Refuses options of times for edges or nodes that have none.
fn check_absent(graph: &Graph, config: &TrainConfig) -> Result<()> {
    let changed = ChangedOptions::from_config(config);
    let options = ["time-split", "time-strategy", "time-equal", "time-hops", "time-window", "time-encoding"];
    let Some(changed) = options.iter().find_map(|option| changed.flag(option)) else { return Ok(()) };
    Err(Error::Options(match config.seed_time {
        SeedTime::None => format!("{changed} is for runs with times, and seed-time is none: leave one of them out"),
        SeedTime::Own => format!(
            "{changed} is for {noun} with times, and the {noun} of {} that are learned have none: ingest the {noun} with --time, or leave it \
             out",
            graph.path().display(),
            noun = learned_noun(config)
        ),
    }))
}

/// What a run learns.
fn learned_noun(config: &TrainConfig) -> &'static str {
    if config.task == TaskChoice::Link { "edges" } else { "nodes" }
}

/// The number of partitions that is wanted: links at times, and swept minibatches, are of the whole graph.
pub(crate) fn partitions(graph: &Graph, config: &TrainConfig) -> Auto<u32> {
    match config.partitions {
        Auto::Auto if config.sampling == Sampling::Sweep => Auto::Value(1),
        Auto::Auto if config.task == TaskChoice::Link && are_used(graph, config) => Auto::Value(1),
        partitions => partitions,
    }
}

/// A sampler that draws at the time of each seed, if the run uses times.
///
/// # Errors
/// If it takes random walks, or draws the last edges with replacement.
pub(crate) fn with_times(sampler: Sampler, graph: &Graph, config: &TrainConfig) -> Result<Sampler> {
    match are_used(graph, config) {
        true => at_times(sampler, config, takes_edge_ages(graph, config)),
        false => Ok(sampler),
    }
}

/// A sampler that draws at the time of each seed.
///
/// # Errors
/// As [`with_times`].
pub(crate) fn at_times(sampler: Sampler, config: &TrainConfig, takes_edge_ages: bool) -> Result<Sampler> {
    let options = TimeOptions {
        equal: sees_equal(config),
        hops: config.time_hops.into(),
        window: config.time_window.value().map(|window| i64::try_from(window).unwrap_or(i64::MAX)),
        strategy: config.time_strategy.into(),
    };
    let sampler = sampler.with_times(options)?;
    // The age of edges is an input, and a link is told from other events of its ends by its time.
    Ok(match config.task == TaskChoice::Link || takes_edge_ages {
        true => sampler.with_edge_times(),
        false => sampler,
    })
}

/// The unit of the times at which nodes or links are learned; none if the run does not use times.
///
/// # Errors
/// If the times of the graph cannot be read.
pub(crate) fn unit(graph: &Graph, config: &TrainConfig) -> Result<Option<TimeUnit>> {
    if !are_used(graph, config) {
        return Ok(None);
    }
    Ok(match types::target(graph, config)? {
        ModelTarget::Relation(number) => match graph.relations()[number].time_axis()? {
            Some(axis) => Some(axis.unit),
            None => EndTimes::open(graph, number)?.axes().next().map(|axis| axis.unit),
        },
        ModelTarget::Type(number) => graph.node_times(number)?.map(|times| times.axis().unit),
    })
}

/// The unit of the times of a graph, which all of them have; none without times.
///
/// # Errors
/// If the times cannot be read.
pub(crate) fn unit_of(graph: &Graph) -> Result<Option<TimeUnit>> {
    Ok(each_axis(graph, |axis| axis.unit)?.pop())
}

/// The first time of a graph and the last one; none without times.
///
/// # Errors
/// If the times cannot be read.
pub(crate) fn span(graph: &Graph) -> Result<Option<[i64; 2]>> {
    let ends = each_axis(graph, |axis| match axis.positions() {
        0 => None,
        count => Some([axis.time(0), axis.time(count - 1)]),
    })?;
    Ok(ends.into_iter().flatten().reduce(|all, axis| [all[0].min(axis[0]), all[1].max(axis[1])]))
}

/// The values of a function of each axis of a graph: of edges, then of nodes.
fn each_axis<T>(graph: &Graph, value: impl Fn(&TimeAxis) -> T) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for relation in graph.relations() {
        values.extend(relation.time_axis()?.map(|axis| value(axis)));
    }
    for node_type in 0..graph.node_types().len() {
        values.extend(graph.node_times(node_type)?.map(|times| value(times.axis())));
    }
    Ok(values)
}

/// How ages are encoded, if the model takes those of edges or of nodes.
///
/// # Errors
/// If the times of the graph cannot be read.
pub(crate) fn encoding(graph: &Graph, config: &TrainConfig) -> Result<Option<TimeEncoding>> {
    let mut types = 0..graph.node_types().len();
    let takes_ages = takes_edge_ages(graph, config) || types.any(|number| node_age_values(graph, number, config) > 0);
    if !takes_ages {
        return Ok(None);
    }
    let unit = unit_of(graph)?.expect("ages are of edges or nodes with times");
    let span = span(graph)?.map_or(0.0, |[first, last]| last as f64 - first as f64);
    Ok(Some(TimeEncoding::of_span(config.time_encoding, span, unit)))
}

/// The values that encode the age of an edge of a relation; 0 if the model takes none. Models with weights for each relation take the ages of
/// nodes as inputs of these, so edges have an age if they have a time of their own.
pub(crate) fn edge_age_values(graph: &Graph, relation: usize, config: &TrainConfig) -> usize {
    let has_age = graph.relations()[relation].is_timed() || !config.model.is_relational();
    match has_age && config.model.takes_edge_ages() && are_used(graph, config) {
        true => config.time_encoding,
        false => 0,
    }
}

/// A sentence about the ages of the edges of relations, if a model with weights for each relation takes them, and one if edges have times that
/// the model does not take.
pub(crate) fn describe_edge_ages(graph: &Graph, config: &TrainConfig) -> [Option<String>; 2] {
    let is_timed = |&number: &usize| graph.relations()[number].is_timed();
    let timed: Vec<usize> = (0..graph.relations().len()).filter(is_timed).collect();
    if timed.is_empty() || !config.model.is_relational() || !are_used(graph, config) || config.time_encoding == 0 {
        return [None, None];
    }
    let names: Vec<String> = timed.iter().map(|&number| graph.manifest().relation_name(number)).collect();
    let ages = format!("encoded ages of the edges of {}", names.join(", "));
    match config.model.takes_edge_ages() {
        true => [Some(format!("{ages} are used: the layers of {} take them", config.model)), None],
        false => [
            None,
            Some(format!(
                "{ages} are not used: the model {} takes none; these do: {}",
                config.model,
                edge_age_takers(graph)
            )),
        ],
    }
}

/// The models of a graph that take ages of edges.
fn edge_age_takers(graph: &Graph) -> String {
    let kinds =
        LayerKind::ALL.iter().filter(|kind| kind.takes_edge_ages() && kind.is_relational() == graph.has_types());
    kinds.map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Whether the model takes the ages of the edges of a relation.
fn takes_edge_ages(graph: &Graph, config: &TrainConfig) -> bool {
    (0..graph.relations().len()).any(|relation| edge_age_values(graph, relation, config) > 0)
}

/// The values that encode the age of a node of a type; 0 if the model takes none.
pub(crate) fn node_age_values(graph: &Graph, node_type: usize, config: &TrainConfig) -> usize {
    let has_times = graph.node_types()[node_type].has_node_times();
    match has_times && config.model.is_relational() && are_used(graph, config) {
        true => config.time_encoding,
        false => 0,
    }
}
