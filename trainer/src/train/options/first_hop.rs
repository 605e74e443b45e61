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
use grappa_storage::{Store, aggregates::Aggregates, no_features};

use crate::train::data::edge_data;
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
/// If the store has no features. Also if pre-aggregated features were requested, and the model cannot use them or they cannot be
/// made.
pub fn choose(
    store: &Store,
    config: &TrainConfig,
    progress: &dyn Progress,
    warn: &mut dyn FnMut(&str),
) -> Result<Option<AggregateKind>> {
    if store.manifest().features.is_none() {
        return Err(no_features(store.path()).into());
    }
    let is_wanted = match config.first_hop {
        _ if config.trains_full_graph() => return Ok(None),
        FirstHop::Sampled => return Ok(None),
        FirstHop::Auto if config.sampled_first_hop_for().is_some() => return Ok(None),
        FirstHop::Auto => false,
        FirstHop::Preaggregated => true,
    };
    let kind = match possible(store, config.model, edge_data::stored(store).input(config)?) {
        Ok(kind) => kind,
        Err(reason) if is_wanted => {
            return Err(Error::NoPreaggregation(format!(
                "the first hop cannot be pre-aggregated: {reason}; use --first-hop sampled or auto"
            )));
        }
        Err(_) => return Ok(None),
    };
    if Aggregates::open(store, kind)?.is_some() {
        return Ok(Some(kind));
    }
    if !store.manifest().is_whole() {
        let reason = format!(
            "{}: the slice has no pre-aggregated features, and they need the whole graph: run `grappa-store preaggregate --kind {kind}` \
             on the whole store, and place the slice again",
            store.path().display()
        );
        if is_wanted {
            return Err(Error::NoPreaggregation(reason));
        }
        warn(&format!("the first hop is sampled, from edges of the slice. {reason}"));
        return Ok(None);
    }
    let (bytes, free) = (aggregate_bytes(store, false)?, free_disk_bytes(store.path()));
    let is_roomy = |bytes: u64| free.is_some_and(|free| bytes <= free / DISK_SHARE);
    let with_features = wants_features_beside(bytes, config.memory.0) && is_roomy(aggregate_bytes(store, true)?);
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
    let made = match make(store, kind, with_features, config, progress) {
        // Other processes may have filled the disk meanwhile. Aggregates alone take half as much.
        Err(error) if with_features && error.is_disk_full() => make(store, kind, false, config, progress),
        made => made,
    };
    match made {
        Ok(()) => Ok(Some(kind)),
        // Another process has made them meanwhile.
        Err(_) if matches!(Aggregates::open(store, kind), Ok(Some(_))) => Ok(Some(kind)),
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

/// The pre-aggregated features for the first layer of a model that takes `edges`, if the store has them.
///
/// # Errors
/// If their files cannot be read.
pub fn known(store: &Store, model: LayerKind, edges: EdgeInput) -> Result<Option<Aggregates>> {
    match possible(store, model, edges) {
        Ok(kind) => Ok(Aggregates::open(store, kind)?),
        Err(_) => Ok(None),
    }
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

/// The kind of pre-aggregated features for the first layer of a model that takes `edges`, or the reason why it cannot take any from this
/// store.
fn possible(store: &Store, model: LayerKind, edges: EdgeInput) -> std::result::Result<AggregateKind, String> {
    let kind = match (model, edges) {
        (LayerKind::Sage, EdgeInput::Nothing) => AggregateKind::Mean,
        (LayerKind::Gcn, EdgeInput::Nothing) => AggregateKind::Gcn,
        (LayerKind::Gin, EdgeInput::Nothing) => AggregateKind::Sum,
        (LayerKind::Sage, EdgeInput::Weights) => AggregateKind::WeightedMean,
        (LayerKind::Gcn, EdgeInput::Weights) => AggregateKind::WeightedGcn,
        (LayerKind::Gin, EdgeInput::Weights) => AggregateKind::WeightedSum,
        (other, _) => {
            return Err(format!("the first layer of {other} does not aggregate features by mean or sum"));
        }
    };
    if store.manifest().stored_features().is_none() {
        return Err("the features of the store are computed, not stored".into());
    }
    Ok(kind)
}

fn make(
    store: &Store,
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
    preaggregate(store, &options, progress)?;
    // Its threads are gone. Their heaps would stay for the whole run.
    release_memory();
    Ok(())
}
