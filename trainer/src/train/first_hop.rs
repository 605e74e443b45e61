//! Whether the first layer's aggregates are sampled or known.
//!
//! The first layer aggregates features, which no gradient changes: for the mean of SAGE and the sums of GCN and GIN it can be
//! done once, for every node, over its whole neighbourhood ([`grappa_engine::derive::preaggregate`]). Then a minibatch has a
//! hop less, the widest, and the first layer of a halo node is exact, though its partition does not see its neighbours.

use grappa_engine::{
    aggregate::Budget,
    derive::preaggregate::{AggregateOptions, aggregate_bytes, preaggregate},
};
use grappa_formats::{aggregates::AggregateKind, manifest::FeatureSource};
use grappa_io::{machine::free_disk_bytes, progress::Progress};
use grappa_run::{
    config::{FirstHop, TrainConfig},
    model::LayerKind,
};
use grappa_storage::{Store, aggregates::Aggregates, no_features};

use crate::{Error, Result};

/// Of the free disk, what pre-aggregated features that nobody asked for may take: one part of so many.
const DISK_SHARE: u64 = 2;

/// The pre-aggregated features that the first layer of a model takes, which are made if the store has none; none if its
/// aggregates are sampled.
///
/// `warn` is told why they are not there where that is a pity.
///
/// # Errors
/// If the store has no features; or if aggregates were asked for, and the model or the store has none, or they can't be made.
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
        FirstHop::Sampled => return Ok(None),
        FirstHop::Auto => false,
        FirstHop::Preaggregated => true,
    };
    let kind = match possible(store, config.model) {
        Ok(kind) => kind,
        Err(reason) if is_wanted => {
            return Err(Error::Options(format!(
                "the first hop can't be pre-aggregated: {reason}; use --first-hop sampled or auto"
            )));
        }
        Err(_) => return Ok(None),
    };
    if Aggregates::open(store, kind)?.is_some() {
        return Ok(Some(kind));
    }
    if !is_wanted {
        let (bytes, free) = (aggregate_bytes(store, None)?, free_disk_bytes(store.path()));
        if free.is_none_or(|free| bytes > free / DISK_SHARE) {
            warn(&format!(
                "the first hop is sampled: pre-aggregated features would take {bytes} bytes of disk, of which there are {} \
                 free; free some, or make them with grappa-store preaggregate --dtype f16 or int8",
                free.unwrap_or(0)
            ));
            return Ok(None);
        }
    }
    progress.stage("pre-aggregating features", None);
    match make(store, kind, config, progress) {
        Ok(()) => Ok(Some(kind)),
        // Another process was faster.
        Err(_) if matches!(Aggregates::open(store, kind), Ok(Some(_))) => Ok(Some(kind)),
        Err(error) if error.is_stopped() => Err(error),
        // Training would read the same files.
        Err(Error::Engine(error)) if error.is_damage() => Err(error.into()),
        Err(error) if is_wanted => Err(Error::Options(format!(
            "the first hop can't be pre-aggregated: {error}; make room in the store, or use --first-hop sampled or auto"
        ))),
        Err(error) => {
            warn(&format!(
                "the first hop is sampled, since it can't be pre-aggregated: {error}"
            ));
            Ok(None)
        }
    }
}

/// The aggregates that the first layer of a model takes, if the store has them.
///
/// # Errors
/// If their files can't be read.
pub fn known(store: &Store, model: LayerKind) -> Result<Option<Aggregates>> {
    match possible(store, model) {
        Ok(kind) => Ok(Aggregates::open(store, kind)?),
        Err(_) => Ok(None),
    }
}

/// The kind of aggregates that the first layer of a model takes, or why it takes none from this store.
fn possible(store: &Store, model: LayerKind) -> std::result::Result<AggregateKind, String> {
    let kind = match model {
        LayerKind::Sage => AggregateKind::Mean,
        LayerKind::Gcn => AggregateKind::Gcn,
        LayerKind::Gin => AggregateKind::Sum,
        other => {
            return Err(format!(
                "{other} has no first layer that aggregates features as they are by mean or sum"
            ));
        }
    };
    let manifest = store.manifest();
    let is_stored = |source: &FeatureSource| *source == FeatureSource::Stored;
    if !manifest
        .features
        .as_ref()
        .is_some_and(|features| is_stored(&features.source))
    {
        return Err("the features of the store are computed, not stored".into());
    }
    if !manifest.is_whole() {
        return Err("the store is a slice of its graph".into());
    }
    Ok(kind)
}

fn make(store: &Store, kind: AggregateKind, config: &TrainConfig, progress: &dyn Progress) -> Result<()> {
    let options = AggregateOptions {
        kind,
        dtype: None,
        budget: Budget {
            memory: config.memory.0 / 2,
            threads: config.threads(),
        },
        replace: false,
    };
    preaggregate(store, &options, progress)?;
    Ok(())
}
