//! Training on a slice: a store that has some chunks of its graph. [`super::processes`] is about several of them.
//!
//! Partitions consist of chunks that are present. Sources in absent chunks are halo nodes: they have features, and nothing is known of
//! their in-neighbors. They are never expanded, whatever the halo mode, neither in training nor in evaluations. So the scores of nodes
//! whose neighborhoods leave the slice are lower bounds of those on the whole graph.
//!
//! Features of absent chunks are computed, or stored in the slice (`halo` in the manifest). A slice that lacks them must be without edges
//! from these chunks. Pre-aggregated features aggregate over the whole graph. A slice has the aggregates of all nodes whose stored features
//! it has, so its first layer is exact, and with two layers so is everything. GCN needs the in-degrees of sources. A slice has the
//! in-degrees of absent chunks beside their features; without edges from absent chunks, in-degrees are those inside the slice.

use grappa_io::text;
use grappa_run::{config::HaloMode, model::LayerKind};
use grappa_storage::Store;

use crate::{Error, Result};

/// Refuses options that need more of the graph than a slice has.
pub(crate) fn check(store: &Store, model: LayerKind, halo: HaloMode) -> Result<()> {
    check_model(store, model)?;
    if !store.manifest().is_whole() && halo == HaloMode::History {
        return Err(lack(
            store,
            "--halo history aggregates over all in-neighbors of halo nodes, and those in other chunks are unknown: leave out --halo, or \
             use --halo neighbors or stop",
        ));
    }
    Ok(())
}

/// Refuses a model that needs more of the graph than a slice has.
pub(crate) fn check_model(store: &Store, model: LayerKind) -> Result<()> {
    if store.manifest().is_whole() {
        return Ok(());
    }
    let missing: Vec<u32> = store.missing_features().iter().map(|chunk| chunk.0).collect();
    if !missing.is_empty() {
        return Err(lack(
            store,
            &format!(
                "it has edges from nodes of other chunks, whose features are not stored here: when you make the slice, take these features \
                 along (`grappa-store place --halo-features`), leave these edges out (`--edges inside`), or add the chunks {}; or use a \
                 graph with computed features (`grappa-gen --features procedural`)",
                text::ranges(&missing)
            ),
        ));
    }
    let unknown: Vec<u32> = store.missing_degrees().iter().map(|chunk| chunk.0).collect();
    if model == LayerKind::Gcn && !unknown.is_empty() {
        let take_along = match store.manifest().stored_features() {
            Some(_) => "take them along (`grappa-store place --halo-features`), ",
            // Such slices have no files of other chunks.
            None => "",
        };
        return Err(lack(
            store,
            &format!(
                "gcn divides by the in-degrees of sources, but it has edges from nodes of other chunks, whose in-degrees are not stored \
                 here: when you make the slice, {take_along}leave these edges out (`--edges inside`), or add the chunks {}; or use another \
                 --model, such as sage",
                text::ranges(&unknown)
            ),
        ));
    }
    Ok(())
}

fn lack(store: &Store, reason: &str) -> Error {
    let path = store.path().display();
    Error::WrongStore(format!("{path}: the store is a slice of its graph, and {reason}"))
}
