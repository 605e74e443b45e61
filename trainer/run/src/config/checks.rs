//! Checks of options: the range of each, and combinations that contradict each other.

use super::{
    Auto, Bound, ChangedOptions, Compress, FirstHop, Optimizer, Sampling, TrainConfig, TrainOption, links, task,
    triples,
};
use crate::{Error, Result, error::refuse, model::JumpingKnowledge};

/// Checks all that can be checked of a configuration without a store and a machine: ranges, and options against each other.
///
/// # Errors
/// The message names the option, its value, and the values that it may have.
pub fn check(config: &TrainConfig) -> Result<()> {
    config.check_ranges()?;
    if config.layers == 0 {
        return triples::check(config);
    }
    if !(0.0..=config.lr).contains(&config.lr_min) {
        return Err(Error::out_of_range("lr-min", "from 0 to lr", config.lr_min));
    }
    if config.full_graph && (config.fanouts != Auto::Auto || config.batch != Auto::Auto) {
        return refuse(
            "full-graph takes all neighbors of all training nodes: leave out fanouts and batch, or set \
             full-graph to false"
                .into(),
        );
    }
    let hops = config.fanouts().hops();
    if hops != config.layers {
        return refuse(format!(
            "fanouts {} are for {hops} layer(s), and the model has {}: give one for each layer",
            config.fanouts(),
            config.layers
        ));
    }
    if let Some(partitions) = config.partitions.value().filter(|&partitions| config.concurrent() > partitions) {
        return refuse(format!(
            "concurrent is {}, and there are {partitions} partition(s): it must be at most that",
            config.concurrent()
        ));
    }
    config.sampler(false)?;
    check_sweeps(config)?;
    if config.model.attends() && !config.hidden.is_multiple_of(config.heads) {
        return refuse(format!(
            "heads is {}, which does not divide hidden, {}: the heads share the hidden dimension evenly",
            config.heads, config.hidden
        ));
    }
    if config.momentum > 0.0 && config.optimizer != Optimizer::Sgd {
        return refuse(format!(
            "momentum is {}, and the optimizer {} has none: use `--optimizer sgd`, or leave momentum out",
            config.momentum, config.optimizer
        ));
    }
    if let Auto::Value(rate) = config.compress_rate {
        rate.check()?;
        if config.compress != Compress::TopK {
            return refuse(format!(
                "compress-rate is {rate}, and `--compress {}` has no rate: use `--compress top-k`, or leave compress-rate out",
                config.compress
            ));
        }
    }
    task::check_loss(config)?;
    links::check(config)?;
    check_model(config)
}

/// Checks the range of each option. `numbers` are their values.
///
/// # Errors
/// The message names the option, its value, and the values that it may have.
pub fn check_ranges(options: &[TrainOption], numbers: &[Option<f64>]) -> Result<()> {
    for (option, number) in options.iter().zip(numbers) {
        let Some(number) = *number else { continue };
        if let Some(bound) = option.bounds.iter().find(|bound| !bound.contains(number)) {
            return Err(Error::out_of_range(&option.name, bound, number));
        }
    }
    Ok(())
}

/// Checks the options of the model and its parameters against each other.
fn check_model(config: &TrainConfig) -> Result<()> {
    let attention = ChangedOptions::from_config(config).first_of(&["attention-dropout", "last-heads"]);
    if let Some((option, value)) = attention
        && !config.model.attends()
    {
        return refuse(format!(
            "{option} is {value}, and the model {} has no attention: use `--model gat`, gatv2 or transformer, or leave {option} out",
            config.model
        ));
    }
    if config.jumping_knowledge != JumpingKnowledge::None && config.last_heads != Auto::Auto {
        return refuse(format!(
            "last-heads is {}, and jumping-knowledge is {}, with which the last layer is like the others: leave one of them out",
            config.last_heads, config.jumping_knowledge
        ));
    }
    let decay = &config.weight_decay;
    if let Some(value) = decay.values().iter().find(|value| !(**value >= 0.0 && value.is_finite())) {
        return Err(Error::out_of_range("weight-decay", Bound::NotNegative, value));
    }
    if ![1, config.layers].contains(&decay.values().len()) {
        return refuse(format!(
            "weight-decay {decay} is for {} layers, and the model has {}: give one number, or one for each layer",
            decay.values().len(),
            config.layers
        ));
    }
    match (config.first_hop, config.sampled_first_hop_for()) {
        (FirstHop::Preaggregated, Some(option)) => refuse(format!(
            "{option} needs the features of neighbors, and `--first-hop preaggregated` has only their sums: leave one of them \
             out"
        )),
        _ => Ok(()),
    }
}

/// Sweeps draw neighbors of the whole graph.
fn check_sweeps(config: &TrainConfig) -> Result<()> {
    if config.sampling != Sampling::Sweep {
        return Ok(());
    }
    match config.partitions {
        Auto::Value(partitions) if partitions > 1 => refuse(format!(
            "sampling sweep is over the whole graph, and partitions is {partitions}: set partitions to 1, or leave sampling out"
        )),
        _ if config.full_graph => {
            refuse("full-graph samples nothing: leave sampling out, or set full-graph to false".into())
        }
        _ if !config.may_sweep() => refuse(format!(
            "sampling sweep draws neighbors, and {} takes random walks: leave sampling out",
            config.model
        )),
        _ => Ok(()),
    }
}
