//! Training on a slice: a store that has some chunks of its graph.
//!
//! Partitions consist of chunks that are present. Sources in absent chunks are halo nodes: they have features, which are computed, and
//! nothing else is known of them. They are never expanded, whatever the halo mode, neither in training nor in evaluations. So the
//! scores of nodes whose neighbourhoods leave the slice are lower bounds of those on the whole graph.

use grappa_io::text;
use grappa_run::{
    config::{HaloMode, TrainConfig},
    model::LayerKind,
};
use grappa_storage::Store;

use crate::{Error, Result};

/// Refuses what needs more of the graph than a slice has.
///
/// # Errors
/// The message names the option, or the chunks to add.
pub(super) fn check(store: &Store, config: &TrainConfig) -> Result<()> {
    if store.manifest().is_whole() {
        return Ok(());
    }
    let no = |what: String| Err(Error::Options(format!("{}: {what}", store.path().display())));
    let missing: Vec<u32> = store.missing_features().iter().map(|chunk| chunk.0).collect();
    if !missing.is_empty() {
        return no(format!(
            "the store is a slice of its graph, and it has edges from nodes of other chunks, whose features are not stored here: \
             add the chunks {}, or use a graph with computed features (`grappa-gen --features procedural`)",
            text::ranges(&missing)
        ));
    }
    if config.model == LayerKind::Gcn {
        return no(
            "the store is a slice of its graph, and gcn divides by the in-degrees of neighbors, which are unknown for nodes of \
             other chunks: use another --model, such as sage"
                .into(),
        );
    }
    if matches!(config.halo, HaloMode::History | HaloMode::Aggregates) {
        return no(format!(
            "the store is a slice of its graph, and --halo {} aggregates over the in-neighbors of halo nodes, which are unknown for \
             nodes of other chunks: leave out --halo, or use --halo neighbors or stop",
            config.halo
        ));
    }
    Ok(())
}
