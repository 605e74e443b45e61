//! The choice between a sampled and a pre-aggregated first hop.
//!
//! The first layer aggregates features, which training does not change. So the mean of SAGE and the sums of GCN and GIN can be
//! computed once, for every node, over its whole neighborhood ([`grappa_engine::derive::preaggregate`]), with the weights of edges if
//! the model takes them. A minibatch then has one hop less, the widest one. And the first layer of a halo node is exact, although its
//! partition does not see its neighbors.

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, aggregate_bytes, preaggregate, wants_features_beside},
};
use grappa_formats::aggregates::AggregateKind;
use grappa_io::{machine::free_disk_bytes, progress::Progress, size::ByteSize};
use grappa_run::{
    checkpoint::RunState,
    config::{FirstHop, TrainConfig},
    model::{EdgeInput, LayerKind},
};
use grappa_sampling::policy::PREAGGREGATION;
use grappa_storage::{Graph, Relation, Store, aggregates::Aggregates};

use crate::train::data::{edge_data, times};
use crate::{Error, Result, runtime::release_memory};

/// In the state of a run: 1 if the first layer takes pre-aggregated features.
const PREAGGREGATED: &str = "preaggregated";

/// Pre-aggregated features that the user did not ask for may take 1/DISK_SHARE of the free disk space.
const DISK_SHARE: u64 = 2;

/// Chooses the first hop. Returns the kind of pre-aggregated features that the first layer takes, or none if it is sampled. Makes
/// the pre-aggregated features if the store does not have them.
///
/// They have the features beside them if both exceed the memory, and there is room on the disk.
///
/// Calls `warn` if the first hop is sampled only for lack of disk space or because of an error.
///
/// # Errors
/// If pre-aggregated features were requested, and the model cannot use them or they cannot be
/// made.
pub fn choose(
    graph: &Graph,
    config: &TrainConfig,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Result<Option<AggregateKind>> {
    let is_wanted = match config.first_hop {
        _ if config.trains_full_graph() => return Ok(None),
        FirstHop::Sampled => return Ok(None),
        FirstHop::Auto if config.sampled_first_hop_for().is_some() || times::are_used(graph, config) => {
            return Ok(None);
        }
        FirstHop::Auto => false,
        FirstHop::Preaggregated => true,
    };
    let relations = (0..graph.relations().len()).map(|number| graph.relation(number));
    let kind = match possible(relations, config.model, edge_data::of_graph(graph, config).input(config)?) {
        Ok(kind) => kind,
        Err(reason) if is_wanted => {
            return Err(Error::NoPreaggregation(format!(
                "the first hop cannot be pre-aggregated: {reason}; use --first-hop sampled or auto"
            )));
        }
        Err(_) => return Ok(None),
    };
    if opened(graph, kind)?.is_some() {
        return Ok(Some(kind));
    }
    if !graph.is_whole() {
        let reason = format!(
            "{}: the slice has no pre-aggregated features, and they need the whole graph: run `grappa-store preaggregate --kind {kind}` \
             on the whole store, and place the slice again",
            graph.path().display()
        );
        if is_wanted {
            return Err(Error::NoPreaggregation(reason));
        }
        warn(&format!("the first hop is sampled, from edges of the slice. {reason}"));
        return Ok(None);
    }
    let (bytes, free) = (bytes_of_all(graph, false)?, free_disk_bytes(graph.path()));
    let is_roomy = |bytes: u64| free.is_some_and(|free| bytes <= free / DISK_SHARE);
    // A type may be the destination of several relations, and its features would be beside each.
    let with_features =
        !graph.has_types() && wants_features_beside(bytes, config.memory.0) && is_roomy(bytes_of_all(graph, true)?);
    if !is_wanted && !is_roomy(bytes) {
        warn(&format!(
            "the first hop is sampled: pre-aggregated features would take {}, more than half of the {} of free disk; free some, or \
             make them with grappa-store preaggregate --dtype f16 or int8",
            ByteSize(bytes),
            ByteSize(free.unwrap_or(0))
        ));
        return Ok(None);
    }
    progress.stage("pre-aggregating features", None);
    let made = match make(graph, kind, with_features, config, progress) {
        // Other processes may have filled the disk meanwhile. Aggregates alone take half as much.
        Err(error) if with_features && error.is_disk_full() => make(graph, kind, false, config, progress),
        made => made,
    };
    match made {
        Ok(()) => Ok(Some(kind)),
        // Another process has made them meanwhile.
        Err(_) if matches!(opened(graph, kind), Ok(Some(_))) => Ok(Some(kind)),
        Err(error) if error.is_stopped() => Err(error),
        // Training would read the same damaged files.
        Err(Error::Engine(error)) if error.is_damage() => Err(error.into()),
        Err(error) if is_wanted => Err(Error::NoPreaggregation(format!(
            "the first hop cannot be pre-aggregated: {error}; free disk space in the store, or use --first-hop sampled or auto"
        ))),
        Err(error) => {
            warn(&format!("the first hop is sampled, because it cannot be pre-aggregated: {error}"));
            Ok(None)
        }
    }
}

/// Notes in the state of a run whether the first layer takes pre-aggregated features.
pub(crate) fn note(state: &mut RunState, is_preaggregated: bool) {
    state.counters.insert(PREAGGREGATED.into(), is_preaggregated.into());
}

/// Whether the first layer of the run with this state takes pre-aggregated features.
pub(crate) fn of_run(state: &RunState) -> FirstHop {
    match state.counters.get(PREAGGREGATED) {
        Some(1) => FirstHop::Preaggregated,
        _ => FirstHop::Sampled,
    }
}

/// The pre-aggregated features of a relation for the first layer of a model that takes `edges`, if there are any.
///
/// # Errors
/// If their files cannot be read.
pub fn known<'a>(relation: impl Into<Relation<'a>>, model: LayerKind, edges: EdgeInput) -> Result<Option<Aggregates>> {
    let relation = relation.into();
    match possible([relation], model, edges) {
        Ok(kind) => Ok(Aggregates::open(relation, kind)?),
        Err(_) => Ok(None),
    }
}

/// As [`known`], for each relation. None if one lacks them.
///
/// # Errors
/// As [`known`].
pub(crate) fn all_known(graph: &Graph, model: LayerKind, edges: EdgeInput) -> Result<Option<Vec<Aggregates>>> {
    (0..graph.relations().len()).map(|number| known(graph.relation(number), model, edges)).collect()
}

/// The pre-aggregated features of each relation. None if one has none of this kind.
pub(crate) fn opened(graph: &Graph, kind: AggregateKind) -> Result<Option<Vec<Aggregates>>> {
    let relations = (0..graph.relations().len()).map(|number| Ok(Aggregates::open(graph.relation(number), kind)?));
    relations.collect()
}

/// Bytes of the pre-aggregated features of all relations.
fn bytes_of_all(graph: &Graph, with_features: bool) -> Result<u64> {
    let relations = (0..graph.relations().len()).map(|number| aggregate_bytes(graph.relation(number), with_features));
    Ok(relations.sum::<grappa_io::Result<u64>>()?)
}

/// Whether training would read less if the files of `aggregates` had the features too, and they can.
///
/// # Errors
/// If the store has no features.
pub fn lacks_features(store: &Store, aggregates: &Aggregates, memory: u64) -> Result<bool> {
    let manifest = store.manifest();
    let are_alike = manifest.stored_features().map(|spec| spec.dtype) == Some(aggregates.layout().dtype);
    let is_possible = manifest.is_whole() && are_alike && !aggregates.with_features();
    Ok(is_possible && wants_features_beside(aggregate_bytes(store, false)?, memory))
}

/// The kind of pre-aggregated features for the first layer of a model that takes `edges`, or the reason why it cannot take any from these
/// relations.
fn possible<'a>(
    relations: impl IntoIterator<Item = Relation<'a>>,
    model: LayerKind,
    edges: EdgeInput,
) -> std::result::Result<AggregateKind, String> {
    let kind = match (model, edges) {
        (LayerKind::Sage | LayerKind::Rsage, EdgeInput::Nothing) => AggregateKind::Mean,
        (LayerKind::Gcn, EdgeInput::Nothing) => AggregateKind::Gcn,
        (LayerKind::Gin, EdgeInput::Nothing) => AggregateKind::Sum,
        (LayerKind::Sage, EdgeInput::Weights) => AggregateKind::WeightedMean,
        (LayerKind::Gcn, EdgeInput::Weights) => AggregateKind::WeightedGcn,
        (LayerKind::Gin, EdgeInput::Weights) => AggregateKind::WeightedSum,
        (other, _) => {
            return Err(format!("the first layer of {other} does not aggregate features by mean or sum"));
        }
    };
    match relations.into_iter().any(|relation| relation.sources.manifest().stored_features().is_none()) {
        true => Err("the features of the store are computed, not stored".into()),
        false => Ok(kind),
    }
}

fn make(
    graph: &Graph,
    kind: AggregateKind,
    with_features: bool,
    config: &TrainConfig,
    progress: &dyn Progress,
) -> Result<()> {
    let options = AggregateOptions {
        kind,
        dtype: None,
        with_features,
        budget: Budget { memory: PREAGGREGATION.bytes(config.memory.0), threads: config.threads() },
        replace: false,
    };
    for number in 0..graph.relations().len() {
        let relation = graph.relation(number);
        if Aggregates::open(relation, kind)?.is_none() {
            preaggregate(relation, &options, progress)?;
        }
    }
    // Its threads are gone. Their heaps would stay for the whole run.
    release_memory();
    Ok(())
}
