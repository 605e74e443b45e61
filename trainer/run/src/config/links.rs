//! Checks of the options of link prediction, and of other options that do not go with it.

use super::{
    Auto, ChangedOptions, Evaluate, ExcludeTargets, FirstHop, HaloMode, LossKind, Monitor, NegativeSampling,
    TaskChoice, TrainConfig,
};
use crate::{Result, error::refuse, model::Task};

/// Checks the options of `--task link` against each other, and against options of other tasks.
pub(super) fn check(config: &TrainConfig) -> Result<()> {
    if config.task != TaskChoice::Link {
        return Ok(());
    }
    let node_options = ["class-weights", "label-smoothing", "focal-gamma", "huber-delta", "class-names", "correction"];
    let changed = ChangedOptions::from_config(config);
    let sampled = (config.evaluate == Evaluate::Sampled).then(|| format!("evaluate {}", config.evaluate));
    if let Some(changed) = node_options.iter().find_map(|option| changed.flag(option)).or(sampled) {
        return refuse(format!("{changed} does not go with --task link: leave it out"));
    }
    if !config.loss.is_of_links() && config.loss != LossKind::Auto {
        return refuse(format!("loss {} is no loss of links: use bce, bpr or softmax", config.loss));
    }
    if !matches!(
        config.monitor,
        Monitor::Score
            | Monitor::Mrr
            | Monitor::HitsAt10
            | Monitor::RecallAt20
            | Monitor::MapAt20
            | Monitor::NdcgAt20
            | Monitor::Auc
            | Monitor::AveragePrecision
    ) {
        return refuse(format!(
            "monitor {} is no score of links: use mrr, hits@10, recall@20, map@20, ndcg@20, auc or average-precision",
            config.monitor
        ));
    }
    let loss = config.loss;
    if config.negative_sampling() == NegativeSampling::Pairs && matches!(loss, LossKind::Bpr | LossKind::Softmax) {
        return refuse(format!(
            "negative-sampling is pairs, which draws sources too, and loss {loss} compares an edge with negatives of its \
             source: use --negative-sampling uniform, or --loss bce"
        ));
    }
    if let Some(path) = &config.negatives_from
        && config.negative_sampling() != NegativeSampling::Uniform
    {
        return refuse(format!(
            "negatives-from is {}, which has destinations for each source, and negative-sampling is {}: leave one of them out",
            path.display(),
            config.negative_sampling
        ));
    }
    if config.temperature != Auto::Auto && loss != LossKind::Softmax {
        return refuse(format!("temperature is {}, and only --loss softmax has one: leave it out", config.temperature));
    }
    if matches!(config.halo, HaloMode::History | HaloMode::None) {
        return refuse(format!(
            "halo is {}, and the source of an edge may be a halo node, whose neighbors --task link needs: use --halo neighbors or stop",
            config.halo
        ));
    }
    let excluded = config.exclude_targets();
    if config.first_hop == FirstHop::Preaggregated && excluded != ExcludeTargets::None {
        return refuse(format!(
            "first-hop is preaggregated, and its sums contain the edges that exclude-targets {excluded} leaves out: use --first-hop \
             sampled, or --exclude-targets none"
        ));
    }
    if config.full_graph && excluded != ExcludeTargets::None {
        return refuse(format!(
            "exclude-targets is {excluded}, and a step with --full-graph asks about all edges, so messages would have none: leave one of \
             them out"
        ));
    }
    Ok(())
}

/// Refuses options of links for a task of nodes.
pub(super) fn check_absent(config: &TrainConfig, task: Task) -> Result<()> {
    let link_options = [
        "decoder",
        "embedding",
        "negatives",
        "negative-sampling",
        "negatives-from",
        "candidates",
        "among",
        "rank-destinations",
        "temperature",
        "exclude-targets",
        "edges-per-epoch",
        "time-split",
    ];
    let changed = ChangedOptions::from_config(config);
    let loss = config.loss.is_of_links().then(|| format!("loss {}", config.loss));
    let is_of_links =
        matches!(config.monitor, Monitor::Mrr | Monitor::HitsAt10) || config.monitor.is_of_all_destinations();
    let monitor = is_of_links.then(|| format!("monitor {}", config.monitor));
    let options = link_options.iter().filter_map(|option| changed.flag(option));
    match loss.into_iter().chain(options).chain(monitor).next() {
        Some(changed) => refuse(format!(
            "{changed} is for links, and the task of the labels is {}: add --task link, or leave it out",
            match task {
                Task::Regression => "regression",
                Task::MultiClass | Task::MultiLabel | Task::Links => "classes",
            }
        )),
        None => Ok(()),
    }
}

impl Monitor {
    /// Whether it follows from the ranking of all destinations of each source.
    fn is_of_all_destinations(self) -> bool {
        matches!(self, Self::RecallAt20 | Self::MapAt20 | Self::NdcgAt20)
    }
}

impl TrainConfig {
    /// Whether evaluations rank all destinations of each source.
    pub fn ranks_destinations(&self) -> bool {
        self.rank_destinations || self.monitor.is_of_all_destinations()
    }
}

impl LossKind {
    /// Whether it is a loss of links.
    pub fn is_of_links(self) -> bool {
        matches!(self, Self::Bce | Self::Bpr | Self::Softmax)
    }
}
