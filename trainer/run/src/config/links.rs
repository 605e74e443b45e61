//! Options of link prediction: their values, and checks of other options that do not go with it.

use std::{fmt, num::NonZeroU32, path::PathBuf, str::FromStr};

use toml::Value;

use super::{
    Auto, ClassWeights, Correction, Evaluate, ExcludeTargets, FirstHop, HaloMode, LossKind, Method, Monitor,
    NegativeSampling, TaskChoice, TrainConfig, effects::refuse,
};
use crate::{
    Error, Result,
    model::{Decoder, Task},
    option_value::{OptionValue, checked_text},
};

/// Negatives that the sources of a minibatch share, by default.
const SHARED_NEGATIVES: u32 = 100;
/// Candidates of an edge, by default.
const CANDIDATES: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");

/// The nodes that the destination of an edge is ranked among.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RankAmong {
    /// This many nodes, drawn for each edge.
    Drawn(NonZeroU32),
    /// All nodes.
    All,
    /// The destinations that a file lists for the source.
    Listed(PathBuf),
}

impl Default for RankAmong {
    fn default() -> Self {
        Self::Drawn(CANDIDATES)
    }
}

impl OptionValue for RankAmong {
    fn read(text: &str) -> std::result::Result<Value, String> {
        checked_text::<Self>(text)
    }
}

impl FromStr for RankAmong {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text {
            "all" => Ok(Self::All),
            _ if is_number => match text.parse() {
                Ok(count) => Ok(Self::Drawn(count)),
                Err(_) => Err(Error::Options(format!(
                    "`{text}` candidates: give 1 to {}, or all",
                    u32::MAX
                ))),
            },
            "" => Err(Error::Options("give a number of candidates, all, or a file".to_owned())),
            path => Ok(Self::Listed(path.into())),
        }
    }
}

impl fmt::Display for RankAmong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drawn(count) => count.fmt(f),
            Self::All => f.write_str("all"),
            Self::Listed(path) => path.display().fmt(f),
        }
    }
}

impl TrainConfig {
    /// The number of values of a node's embedding. `auto` is the hidden dimension.
    pub fn embedding(&self) -> usize {
        self.embedding.value().map_or(self.hidden, usize::from)
    }

    /// The number of negatives of an edge. `auto` is 1, or 100 if the sources of a minibatch share them.
    pub fn negatives(&self) -> u32 {
        let auto = match self.negative_sampling {
            NegativeSampling::Shared | NegativeSampling::InBatch => SHARED_NEGATIVES,
            NegativeSampling::Uniform | NegativeSampling::Degree | NegativeSampling::Pairs => 1,
        };
        self.negatives.value().map_or(auto, u32::from)
    }

    /// The seeds that a minibatch samples for each of its nodes or edges, at most. Edges may share negatives, and these are few.
    pub fn seeds_of_example(&self) -> f64 {
        let negatives = f64::from(self.negatives());
        match (self.task, self.negative_sampling) {
            (TaskChoice::Link, NegativeSampling::Uniform | NegativeSampling::Degree) => 2.0 + negatives,
            (TaskChoice::Link, NegativeSampling::Pairs) => 2.0 + 2.0 * negatives,
            (TaskChoice::Link, NegativeSampling::Shared | NegativeSampling::InBatch) => 2.0,
            _ => 1.0,
        }
    }

    /// The divisor of scores in the softmax loss.
    pub fn temperature(&self) -> f64 {
        self.temperature.value().unwrap_or(1.0)
    }

    /// The edges that messages do not use. `auto` is both directions. A step of `full_graph` asks about all edges, so it would have none left.
    pub fn exclude_targets(&self) -> ExcludeTargets {
        let auto = match self.full_graph {
            true => ExcludeTargets::None,
            false => ExcludeTargets::Both,
        };
        self.exclude_targets.value().unwrap_or(auto)
    }

    /// Checks the options of `--task link` against each other, and against options of other tasks.
    pub(super) fn check_links(&self) -> Result<()> {
        if self.task != TaskChoice::Link {
            return Ok(());
        }
        let of_nodes = [
            (self.method != Method::Grappa, format!("method {}", self.method)),
            (
                self.class_weights != ClassWeights::None,
                format!("class-weights {}", self.class_weights),
            ),
            (
                self.label_smoothing > 0.0,
                format!("label-smoothing {}", self.label_smoothing),
            ),
            (
                self.focal_gamma != Auto::Auto,
                format!("focal-gamma {}", self.focal_gamma),
            ),
            (
                self.huber_delta != Auto::Auto,
                format!("huber-delta {}", self.huber_delta),
            ),
            (self.class_names.is_some(), "class-names".to_owned()),
            (
                self.correction != Correction::None,
                format!("correction {}", self.correction),
            ),
            (
                self.evaluate == Evaluate::Sampled,
                format!("evaluate {}", self.evaluate),
            ),
        ];
        if let Some((_, given)) = of_nodes.iter().find(|(is_given, _)| *is_given) {
            return refuse(format!("{given} does not go with --task link: leave it out"));
        }
        if !self.loss.is_of_links() && self.loss != LossKind::Auto {
            return refuse(format!(
                "loss {} is no loss of links: use bce, bpr or softmax",
                self.loss
            ));
        }
        if !matches!(
            self.monitor,
            Monitor::Score | Monitor::Mrr | Monitor::HitsAt10 | Monitor::Auc | Monitor::AveragePrecision
        ) {
            return refuse(format!(
                "monitor {} is no score of links: use mrr, hits@10, auc or average-precision",
                self.monitor
            ));
        }
        let loss = self.loss;
        if self.negative_sampling == NegativeSampling::Pairs && matches!(loss, LossKind::Bpr | LossKind::Softmax) {
            return refuse(format!(
                "negative-sampling is pairs, which draws sources too, and loss {loss} compares an edge with negatives of its \
                 source: use --negative-sampling uniform, or --loss bce"
            ));
        }
        if let Some(path) = &self.negatives_from
            && self.negative_sampling != NegativeSampling::Uniform
        {
            return refuse(format!(
                "negatives-from is {}, which has destinations for each source, and negative-sampling is {}: leave one of them out",
                path.display(),
                self.negative_sampling
            ));
        }
        if self.temperature != Auto::Auto && loss != LossKind::Softmax {
            return refuse(format!(
                "temperature is {}, and only --loss softmax has one: leave it out",
                self.temperature
            ));
        }
        if matches!(self.halo, HaloMode::History | HaloMode::None) {
            return refuse(format!(
                "halo is {}, and the source of an edge may be a halo node, whose neighbors --task link needs: use --halo neighbors or stop",
                self.halo
            ));
        }
        let excluded = self.exclude_targets();
        if self.first_hop == FirstHop::Preaggregated && excluded != ExcludeTargets::None {
            return refuse(format!(
                "first-hop is preaggregated, and its sums contain the edges that exclude-targets {excluded} leaves out: use --first-hop \
                 sampled, or --exclude-targets none"
            ));
        }
        if self.full_graph && excluded != ExcludeTargets::None {
            return refuse(format!(
                "exclude-targets is {excluded}, and a step with --full-graph asks about all edges, so messages would have none: leave one of \
                 them out"
            ));
        }
        Ok(())
    }

    /// Refuses options of links for a task of nodes.
    pub(super) fn check_no_links(&self, task: Task) -> Result<()> {
        let default = Self::default();
        let given = [
            (self.loss.is_of_links(), format!("loss {}", self.loss)),
            (self.decoder != Decoder::default(), format!("decoder {}", self.decoder)),
            (self.embedding != Auto::Auto, format!("embedding {}", self.embedding)),
            (self.negatives != Auto::Auto, format!("negatives {}", self.negatives)),
            (
                self.negative_sampling != default.negative_sampling,
                format!("negative-sampling {}", self.negative_sampling),
            ),
            (self.negatives_from.is_some(), "negatives-from".to_owned()),
            (
                self.candidates != default.candidates,
                format!("candidates {}", self.candidates),
            ),
            (
                self.temperature != Auto::Auto,
                format!("temperature {}", self.temperature),
            ),
            (
                self.exclude_targets != Auto::Auto,
                format!("exclude-targets {}", self.exclude_targets),
            ),
            (
                self.edges_per_epoch > 0,
                format!("edges-per-epoch {}", self.edges_per_epoch),
            ),
            (
                matches!(self.monitor, Monitor::Mrr | Monitor::HitsAt10),
                format!("monitor {}", self.monitor),
            ),
        ];
        match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, given)) => refuse(format!(
                "{given} is for links, and the task of the labels is {}: add --task link, or leave it out",
                match task {
                    Task::Regression => "regression",
                    Task::MultiClass | Task::MultiLabel | Task::Links => "classes",
                }
            )),
            None => Ok(()),
        }
    }
}

impl LossKind {
    /// Whether it is a loss of links.
    pub fn is_of_links(self) -> bool {
        matches!(self, Self::Bce | Self::Bpr | Self::Softmax)
    }
}
