//! Options that have no effect or cost accuracy, and options of the model that contradict each other.

use std::fmt::Display;

use super::{Auto, Correction, FirstHop, HaloMode, LrSchedule, Monitor, TrainConfig};
use crate::{
    Error, Result,
    model::{Activation, FeatureNorm, JumpingKnowledge, LayerKind},
};

impl TrainConfig {
    /// Warnings about options that have no effect because of other options, and about what costs accuracy.
    ///
    /// They are not errors, because a comparison of several configurations may well contain such a combination. `knows_first_hop` is
    /// true if the first hop is pre-aggregated.
    pub fn warnings(&self, knows_first_hop: bool) -> Vec<String> {
        let mut warnings = self.without_effect();
        if self.partitions() == 1 {
            if self.correction != Correction::None {
                warnings.push(format!(
                    "--correction {} has no effect with --partitions 1: one partition sees every edge, so the coverage of every \
                     seed is 100 %",
                    self.correction
                ));
            }
            return warnings;
        }
        if self.layers == 1 {
            warnings.extend(self.halo_of_one_layer(knows_first_hop));
            return warnings;
        }
        match self.halo {
            HaloMode::Neighbors if knows_first_hop && self.layers == 2 => warnings.push(
                "--halo neighbors has no effect with 2 layers and a pre-aggregated first hop, which is exact for halo nodes".into(),
            ),
            HaloMode::History if !knows_first_hop => warnings.push(format!(
                "--halo history needs a pre-aggregated first hop, and the first hop is sampled: {}; leave out --halo, or use --halo \
                 neighbors",
                match self.layers {
                    2 => "it is the same as --halo stop",
                    _ => "embeddings do not follow the parameters between refreshes",
                },
            )),
            HaloMode::Stop | HaloMode::None if !knows_first_hop => {
                warnings.push(format!(
                    "with --halo {} and a sampled first hop, nodes of other partitions have no neighbors: accuracy can be several \
                     points lower; leave out --halo, or use --halo neighbors",
                    self.halo
                ));
            }
            _ => {}
        }
        warnings
    }

    /// A warning about the treatment of halo nodes of a single layer, which takes their features and nothing that they would aggregate.
    fn halo_of_one_layer(&self, knows_first_hop: bool) -> Option<String> {
        let default = Self::default();
        // The walks of PinSAGE go further than a layer.
        if self.model == LayerKind::PinSage || (self.halo == HaloMode::None && !knows_first_hop) {
            return None;
        }
        let given = match self.halo_neighbors {
            _ if self.halo != default.halo => format!("halo {}", self.halo),
            Auto::Value(neighbors) => format!("halo-neighbors {neighbors}"),
            Auto::Auto => return None,
        };
        let why = match knows_first_hop {
            true => "1 layer and a pre-aggregated first hop, which has the features of all in-neighbors",
            false => "--layers 1, which takes the features of halo nodes and nothing else of them",
        };
        Some(format!("--{given} has no effect with {why}"))
    }

    /// Warnings about options that have no effect on a store without validation nodes.
    pub fn warnings_without_validation(&self) -> Vec<String> {
        let given = [
            (self.early_stopping > 0).then(|| format!("--early-stopping {}", self.early_stopping)),
            (self.lr_schedule == LrSchedule::Plateau).then(|| format!("--lr-schedule {}", self.lr_schedule)),
            (self.monitor == Monitor::Loss).then(|| format!("--monitor {}", self.monitor)),
        ];
        let warning = |option| {
            format!(
                "{option} has no effect: the store has no validation nodes; leave it out, or create the store with some, such as by \
                 grappa-ingest --val or --split"
            )
        };
        given.into_iter().flatten().map(warning).collect()
    }

    /// The option that the first hop must be sampled for, as the user gives it. Pre-aggregated features are those of the store:
    /// neither a dropout of single features nor a normalization of rows can be applied to their sums.
    pub fn sampled_first_hop_for(&self) -> Option<String> {
        if self.input_dropout > 0.0 {
            return Some(format!("--input-dropout {}", self.input_dropout));
        }
        match self.normalize_features {
            FeatureNorm::None => None,
            norm => Some(format!("--normalize-features {norm}")),
        }
    }

    /// Checks the options of the model and its parameters against each other.
    pub(super) fn check_model_options(&self) -> Result<()> {
        let no = |what: String| Err(Error::Options(what));
        let attention = [
            (
                "attention-dropout",
                self.attention_dropout.to_string(),
                self.attention_dropout > 0.0,
            ),
            ("last-heads", self.last_heads.to_string(), self.last_heads != Auto::Auto),
        ];
        if let Some((option, value, _)) = attention.iter().find(|(_, _, is_given)| *is_given)
            && !self.model.attends()
        {
            return no(format!(
                "{option} is {value}, and the model {} has no attention: use `--model gat` or gatv2, or leave {option} out",
                self.model
            ));
        }
        if self.jumping_knowledge != JumpingKnowledge::None && self.last_heads != Auto::Auto {
            return no(format!(
                "last-heads is {}, and jumping-knowledge is {}, with which the last layer is like the others: leave one of them out",
                self.last_heads, self.jumping_knowledge
            ));
        }
        let decay = &self.weight_decay;
        if let Some(value) = decay
            .values()
            .iter()
            .find(|value| !(**value >= 0.0 && value.is_finite()))
        {
            return no(format!("weight-decay is {value}; it must be 0 or more"));
        }
        if ![1, self.layers].contains(&decay.values().len()) {
            return no(format!(
                "weight-decay {decay} is for {} layers, and the model has {}: give one number, or one for each layer",
                decay.values().len(),
                self.layers
            ));
        }
        match (self.first_hop, self.sampled_first_hop_for()) {
            (FirstHop::Preaggregated, Some(option)) => no(format!(
                "{option} needs the features of neighbors, and `--first-hop preaggregated` has only their sums: leave one of them \
                 out"
            )),
            _ => Ok(()),
        }
    }

    /// Warnings about options that have no effect because of other options. One with its default value may not have been given.
    pub(super) fn without_effect(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let is_last_alone = self.jumping_knowledge == JumpingKnowledge::None;
        if self.activation != Activation::Relu && self.layers == 1 && is_last_alone {
            warnings.push(format!(
                "--activation {} has no effect with --layers 1: no layer follows the first",
                self.activation
            ));
        }
        if self.warmup > 0.0 && self.warmup >= self.epochs as f64 {
            warnings.push(format!(
                "--warmup {} is in epochs: the learning rate grows until the end of the run, to {:.3} of --lr",
                self.warmup,
                self.epochs as f64 / self.warmup
            ));
        }
        let default = Self::default();
        let mut warn_of = |given: String, why: String| warnings.push(format!("--{given} has no effect with {why}"));
        if self.residual && self.layers == 1 && is_last_alone {
            warn_of("residual".into(), "--layers 1, which has no hidden layer".into());
        }
        if self.replace && self.model == LayerKind::PinSage {
            warn_of(
                "replace".into(),
                "--model pinsage, whose neighbors are chosen by random walks".into(),
            );
        }
        if self.replace && self.full_graph {
            warn_of("replace".into(), "--full-graph, which takes all neighbors".into());
        }
        let mut warn = |option: &str, value: &dyn Display, why: String| warn_of(format!("{option} {value}"), why);
        if self.heads != default.heads && !self.model.attends() {
            let why = format!("--model {}, which has no attention", self.model);
            warn("heads", &self.heads, why);
        }
        if self.model != LayerKind::PinSage {
            let why = || format!("--model {}, whose neighbors are not chosen by random walks", self.model);
            if self.walks != default.walks {
                warn("walks", &self.walks, why());
            }
            if self.walk_steps != default.walk_steps {
                warn("walk-steps", &self.walk_steps, why());
            }
            if self.walk_termination != default.walk_termination {
                warn("walk-termination", &self.walk_termination, why());
            }
        }
        if self.layers == 1 && is_last_alone {
            let why = || "--layers 1, which has no hidden layer".to_owned();
            if self.dropout > 0.0 && self.dropout != default.dropout {
                warn("dropout", &self.dropout, why());
            }
            if let Auto::Value(norm) = self.norm {
                warn("norm", &norm, why());
            }
        }
        let schedule = || format!("--lr-schedule {}", self.lr_schedule);
        if self.lr_min != default.lr_min && self.lr_schedule == LrSchedule::Constant {
            warn("lr-min", &self.lr_min, schedule());
        }
        if self.lr_step != default.lr_step && self.lr_schedule != LrSchedule::Step {
            warn("lr-step", &self.lr_step, schedule());
        }
        if self.lr_factor != default.lr_factor && !matches!(self.lr_schedule, LrSchedule::Step | LrSchedule::Plateau) {
            warn("lr-factor", &self.lr_factor, schedule());
        }
        if self.lr_patience != default.lr_patience && self.lr_schedule != LrSchedule::Plateau {
            warn("lr-patience", &self.lr_patience, schedule());
        }
        if self.shrinkage != default.shrinkage && self.correction == Correction::None {
            warn("shrinkage", &self.shrinkage, "--correction none".into());
        }
        if let Auto::Value(neighbors) = self.halo_neighbors
            && !matches!(self.halo, HaloMode::Auto | HaloMode::Neighbors)
        {
            warn("halo-neighbors", &neighbors, format!("--halo {}", self.halo));
        }
        if self.partitions() == 1 {
            let why = || "--partitions 1: there are no other partitions".to_owned();
            if self.schedule != default.schedule {
                warn("schedule", &self.schedule, why());
            }
            if self.halo != default.halo {
                warn("halo", &self.halo, why());
            } else if let Auto::Value(neighbors) = self.halo_neighbors {
                warn("halo-neighbors", &neighbors, why());
            }
        }
        warnings
    }
}
