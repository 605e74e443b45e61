//! What ranks agree on before they train.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use grappa_formats::aggregates::AggregateKind;
use grappa_io::size::ByteSize;
use grappa_run::{
    checkpoint::{Checkpoint, RunState},
    config::{OptionScope, TrainConfig, TrainOption},
    folder::CHECKPOINTS,
};
use grappa_storage::{
    Graph,
    aggregates::{Aggregates, folder},
};

use super::Watcher;
use crate::train::ranks::comparable_digest;
use crate::{
    Error, Result,
    distributed::{Hello, ProcessGroup},
    runtime,
    train::{data::edge_data, options::first_hop},
};

/// Names and values that must be the same on all ranks that train a graph. Their options are compared by [`agree_on_options`].
///
/// # Errors
/// If the store cannot be read.
pub fn hello(graph: &Graph) -> Result<Hello> {
    let version = format!("{} with libtorch {}", env!("CARGO_PKG_VERSION"), runtime::libtorch_version());
    let mut same =
        vec![("program's version".to_owned(), version), ("store's digest".to_owned(), comparable_digest(graph)?)];
    if !graph.is_whole() {
        // A rank cannot make them.
        let kinds = AggregateKind::ALL.into_iter().filter(|&kind| folder(&graph.relations()[0], kind).exists());
        let names: Vec<&str> = kinds.map(AggregateKind::name).collect();
        let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        // Last: they differ, too, if the other rank has the whole store.
        same.push(("slice's pre-aggregated features".to_owned(), names));
    }
    Ok(Hello { same })
}

/// Sends the score of an evaluation from rank 0 to the others. They get its bits, because JSON has no NaN.
pub fn score_of_first(group: &ProcessGroup, score: impl FnOnce() -> Option<f64>) -> Result<Option<f64>> {
    let bits = group.share("score", || Ok(score().map(f64::to_bits)))?;
    Ok(bits.map(f64::from_bits))
}

/// Makes sure that all ranks train with the same options, except options that each process has for itself ([`OptionScope::Process`]). All
/// ranks must call it.
///
/// # Errors
/// If an option differs; the message names it. Also if a rank has left or cannot be reached.
pub fn agree_on_options(group: &ProcessGroup, config: &TrainConfig) -> Result<()> {
    let options = config.table().into_iter();
    let own: BTreeMap<String, String> = options
        .filter(|(option, _)| TrainOption::named(option).is_none_or(|option| option.scope != OptionScope::Process))
        .map(|(option, value)| (option, value.to_string()))
        .collect();
    let rank_options = group.gather_all("options", own.clone())?;
    for (rank, other) in rank_options.iter().enumerate() {
        if let Some((option, value)) = own.iter().find(|(option, value)| other.get(*option) != Some(value)) {
            return Err(Error::Distributed(format!(
                "ranks differ in the option --{option}: rank {} has {value}, and rank {rank} has {}: give all ranks the same",
                group.place().rank,
                other.get(option).map_or("none", String::as_str)
            )));
        }
    }
    Ok(())
}

/// The checkpoint that all ranks continue from. Rank 0 has `found` it, and the others read it from the run's `folder`.
pub fn agree_on_checkpoint(
    group: Option<&ProcessGroup>,
    folder: &Path,
    found: Option<(PathBuf, Checkpoint)>,
) -> Result<Option<(PathBuf, Checkpoint)>> {
    let Some(group) = group else { return Ok(found) };
    let name = group.share("checkpoint", || {
        let name = found.as_ref().and_then(|(path, _)| path.file_name());
        Ok(name.map(|name| name.to_string_lossy().into_owned()))
    })?;
    if group.is_first() {
        return Ok(found);
    }
    let path = name.map(|name| folder.join(CHECKPOINTS).join(name));
    path.map(|path| Ok((path.clone(), Checkpoint::read(&path)?))).transpose()
}

/// The kind of pre-aggregated features that the first layer takes. A resumed run keeps the choice of its checkpoint. If several ranks lack
/// pre-aggregated features, the first rank of each host makes them.
pub fn agree_on_first_hop(
    group: Option<&ProcessGroup>,
    graph: &Graph,
    config: &TrainConfig,
    from: Option<&RunState>,
    watcher: &mut dyn Watcher,
) -> Result<Option<AggregateKind>> {
    let Some(group) = group else {
        return chosen_first_hop(graph, config, from, watcher);
    };
    let chosen = group.in_turn("first hop", || chosen_first_hop(graph, config, from, watcher))?;
    let first_has_choice = group.share("choice", || Ok(chosen.is_some()))?;
    if chosen.is_some() != first_has_choice {
        let names = ["sampled", "pre-aggregated"];
        return Err(Error::Distributed(format!(
            "the first hop is {} on rank {} and {} on rank 0: choose the same with --first-hop sampled or preaggregated",
            names[usize::from(chosen.is_some())],
            group.place().rank,
            names[usize::from(first_has_choice)]
        )));
    }
    Ok(chosen)
}

/// [`agree_on_first_hop`] of this rank alone.
fn chosen_first_hop(
    graph: &Graph,
    config: &TrainConfig,
    from: Option<&RunState>,
    watcher: &mut dyn Watcher,
) -> Result<Option<AggregateKind>> {
    let mut config = config.clone();
    if let Some(state) = from {
        config.first_hop = first_hop::of_run(state);
    }
    let mut warnings = Vec::new();
    let before =
        first_hop::all_known(graph, config.model, edge_data::of_graph(graph, &config).input(&config)?)?.is_some();
    let chosen =
        first_hop::choose(graph, &config, watcher.progress(), &mut |message| warnings.push(message.to_owned()));
    warnings.iter().for_each(|warning| watcher.warn(warning));
    if let Ok(Some(kind)) = chosen
        && let Some(aggregates) = first_hop::opened(graph, kind)?
    {
        if !before {
            watcher.tell(&format!(
                "pre-aggregated features ({kind}, {}) are in the store now; other runs use them too",
                ByteSize(aggregates.iter().map(Aggregates::bytes).sum())
            ));
        } else if let ([aggregates], false) = (&aggregates[..], graph.has_types())
            && first_hop::lacks_features(&graph.node_types()[0], aggregates, config.memory.0)?
        {
            watcher.tell(&format!(
                "features and pre-aggregated features exceed --memory and are in different files: epochs read half as much after \
                 `grappa-store preaggregate {} --kind {kind} --with-features --replace`",
                graph.path().display()
            ));
        }
    }
    chosen
}
