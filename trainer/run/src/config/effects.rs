//! Warnings about options that have no effect or cost accuracy.

use super::{ChangedOptions, Correction, HaloMode, LossKind, LrSchedule, TrainConfig};
use crate::model::{JumpingKnowledge, LayerKind};

/// Warnings about options that have no effect because of other options, and about what costs accuracy.
///
/// They are not errors, because a comparison of several configurations may well contain such a combination. `knows_first_hop` is
/// true if the first hop is pre-aggregated.
pub fn warnings(config: &TrainConfig, knows_first_hop: bool) -> Vec<String> {
    let mut warnings = without_effect(config);
    if config.partitions() == 1 {
        if config.correction != Correction::None {
            warnings.push(format!(
                "--correction {} has no effect with --partitions 1: one partition sees every edge, so the coverage of every \
                 seed is 100 %",
                config.correction
            ));
        }
        return warnings;
    }
    if config.layers == 1 {
        warnings.extend(halo_of_one_layer(config, knows_first_hop));
        return warnings;
    }
    match config.halo {
        HaloMode::Neighbors if knows_first_hop && config.layers == 2 => warnings.push(
            "--halo neighbors has no effect with 2 layers and a pre-aggregated first hop, which is exact for halo nodes".into(),
        ),
        HaloMode::History if !knows_first_hop => warnings.push(format!(
            "--halo history needs a pre-aggregated first hop, and the first hop is sampled: {}; leave out --halo, or use --halo \
             neighbors",
            match config.layers {
                2 => "it is the same as --halo stop",
                _ => "embeddings do not follow the parameters between refreshes",
            },
        )),
        HaloMode::Stop | HaloMode::None if !knows_first_hop => {
            warnings.push(format!(
                "with --halo {} and a sampled first hop, nodes of other partitions have no neighbors: accuracy can be several \
                 points lower; leave out --halo, or use --halo neighbors",
                config.halo
            ));
        }
        _ => {}
    }
    warnings
}

/// A warning about the treatment of halo nodes of a single layer, which takes their features and nothing that they would aggregate.
fn halo_of_one_layer(config: &TrainConfig, knows_first_hop: bool) -> Option<String> {
    // The walks of PinSAGE go further than a layer.
    if config.model == LayerKind::PinSage || (config.halo == HaloMode::None && !knows_first_hop) {
        return None;
    }
    let changed = ChangedOptions::from_config(config);
    let changed = changed.flag("halo").or_else(|| changed.flag("halo-neighbors"))?;
    let why = match knows_first_hop {
        true => "1 layer and a pre-aggregated first hop, which has the features of all in-neighbors",
        false => "--layers 1, which takes the features of halo nodes and nothing else of them",
    };
    Some(format!("--{changed} has no effect with {why}"))
}

/// Warnings about options that have no effect on a store without validation nodes.
pub fn warnings_without_validation(config: &TrainConfig) -> Vec<String> {
    let changed = ChangedOptions::from_config(config);
    let schedule = (config.lr_schedule == LrSchedule::Plateau).then_some("lr-schedule");
    let options = ["early-stopping"].into_iter().chain(schedule).chain(["monitor"]);
    options
        .filter_map(|option| changed.flag(option))
        .map(|option| {
            format!(
                "--{option} has no effect: the store has no validation nodes; leave it out, or create the store with some, such as by \
                 grappa-ingest --val or --split"
            )
        })
        .collect()
}

/// Warnings about options that have no effect because of other options. One with its default value may not have been given.
fn without_effect(config: &TrainConfig) -> Vec<String> {
    let mut idle = IdleOptions { changed: ChangedOptions::from_config(config), warnings: Vec::new() };
    if config.layers == 1 && config.jumping_knowledge == JumpingKnowledge::None {
        let why = "--layers 1, which has no hidden layer";
        idle.note(&["activation"], "--layers 1: no layer follows the first");
        idle.note(&["residual"], why);
        if config.dropout > 0.0 {
            idle.note(&["dropout"], why);
        }
        idle.note(&["norm"], why);
    }
    let model = format!("--model {}", config.model);
    if config.model == LayerKind::PinSage {
        idle.note(&["replace"], "--model pinsage, whose neighbors are chosen by random walks");
    } else {
        let why = format!("{model}, whose neighbors are not chosen by random walks");
        idle.note(&["walks", "walk-steps", "walk-termination"], &why);
    }
    if config.full_graph {
        idle.note(&["replace"], "--full-graph, which takes all neighbors");
    }
    if !config.model.attends() {
        idle.note(&["heads"], &format!("{model}, which has no attention"));
    }
    if config.model == LayerKind::Hgt {
        idle.note(&["activation"], "--model hgt, whose layers have a nonlinearity of their own");
        idle.note(&["last-heads"], "--model hgt, whose last layer has as many heads as the others");
    }
    if !matches!(config.model, LayerKind::Rsage | LayerKind::Rgat) {
        idle.note(
            &["relation-aggregate"],
            &format!("{model}: only rsage and rgat combine relations in a way to choose"),
        );
    }
    if config.model != LayerKind::Rgcn {
        idle.note(&["bases"], &format!("{model}: only rgcn has bases"));
    }
    for (option, owner) in [("focal-gamma", LossKind::Focal), ("huber-delta", LossKind::Huber)] {
        if config.loss != owner {
            idle.note(&[option], &format!("--loss {}", config.loss));
        }
    }
    let idle_of_schedule: &[&str] = match config.lr_schedule {
        LrSchedule::Constant => &["lr-min", "lr-step", "lr-factor", "lr-patience"],
        LrSchedule::Step => &["lr-patience"],
        LrSchedule::Plateau => &["lr-step"],
        _ => &["lr-step", "lr-factor", "lr-patience"],
    };
    idle.note(idle_of_schedule, &format!("--lr-schedule {}", config.lr_schedule));
    if config.correction == Correction::None {
        idle.note(&["shrinkage"], "--correction none");
    }
    if !matches!(config.halo, HaloMode::Auto | HaloMode::Neighbors) {
        idle.note(&["halo-neighbors"], &format!("--halo {}", config.halo));
    }
    if config.partitions() == 1 {
        let why = "--partitions 1: there are no other partitions";
        idle.note(&["schedule", "halo"], why);
        if config.halo == HaloMode::Auto {
            idle.note(&["halo-neighbors"], why);
        }
    }
    if config.warmup > 0.0 && config.warmup >= config.epochs as f64 {
        idle.warnings.push(format!(
            "--warmup {} is in epochs: the learning rate grows until the end of the run, to {:.3} of --lr",
            config.warmup,
            config.epochs as f64 / config.warmup
        ));
    }
    idle.warnings
}

struct IdleOptions {
    changed: ChangedOptions,
    warnings: Vec<String>,
}

impl IdleOptions {
    /// Warns about each of the options that was given.
    fn note(&mut self, options: &[&str], why: &str) {
        let changed = options.iter().filter_map(|option| self.changed.flag(option));
        let warnings = changed.map(|changed| format!("--{changed} has no effect with {why}"));
        self.warnings.extend(warnings);
    }
}
