//! Options that have no effect or cost accuracy, and options of the model that contradict each other.

use super::{Auto, Correction, ExcludeTargets, FirstHop, HaloMode, LrSchedule, Monitor, TaskChoice, TrainConfig};
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
            (self.monitor != Monitor::Score).then(|| format!("--monitor {}", self.monitor)),
        ];
        let given = given.into_iter().flatten();
        given
            .map(|option| {
                format!(
                    "{option} has no effect: the store has no validation nodes; leave it out, or create the store with some, such as by \
                     grappa-ingest --val or --split"
                )
            })
            .collect()
    }

    /// The option that the first hop must be sampled for, as the user gives it. Pre-aggregated features belong to the store:
    /// neither a dropout of single features nor a normalization of rows can be applied to their sums, and no edge
    /// can be left out of them.
    pub fn sampled_first_hop_for(&self) -> Option<String> {
        if self.task == TaskChoice::Link && self.exclude_targets() != ExcludeTargets::None {
            return Some(format!("--exclude-targets {}", self.exclude_targets()));
        }
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
            return refuse(format!(
                "{option} is {value}, and the model {} has no attention: use `--model gat`, gatv2 or transformer, or leave {option} out",
                self.model
            ));
        }
        if self.jumping_knowledge != JumpingKnowledge::None && self.last_heads != Auto::Auto {
            return refuse(format!(
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
            return refuse(format!("weight-decay is {value}; it must be 0 or more"));
        }
        if ![1, self.layers].contains(&decay.values().len()) {
            return refuse(format!(
                "weight-decay {decay} is for {} layers, and the model has {}: give one number, or one for each layer",
                decay.values().len(),
                self.layers
            ));
        }
        match (self.first_hop, self.sampled_first_hop_for()) {
            (FirstHop::Preaggregated, Some(option)) => refuse(format!(
                "{option} needs the features of neighbors, and `--first-hop preaggregated` has only their sums: leave one of them \
                 out"
            )),
            _ => Ok(()),
        }
    }

    /// Warnings about options that have no effect because of other options. One with its default value may not have been given.
    fn without_effect(&self) -> Vec<String> {
        let (default, mut idle) = (Self::default(), IdleOptions::default());
        if self.layers == 1 && self.jumping_knowledge == JumpingKnowledge::None {
            let why = "--layers 1, which has no hidden layer";
            let is_other = self.activation != Activation::Relu;
            let no_other = "--layers 1: no layer follows the first";
            idle.note(is_other, format!("activation {}", self.activation), no_other);
            idle.note(self.residual, "residual".to_owned(), why);
            let is_other = self.dropout > 0.0 && self.dropout != default.dropout;
            idle.note(is_other, format!("dropout {}", self.dropout), why);
            idle.note(self.norm != Auto::Auto, format!("norm {}", self.norm), why);
        }
        let model = format!("--model {}", self.model);
        if self.model == LayerKind::PinSage {
            let why = "--model pinsage, whose neighbors are chosen by random walks";
            idle.note(self.replace, "replace".to_owned(), why);
        } else {
            let why = format!("{model}, whose neighbors are not chosen by random walks");
            idle.note(self.walks != default.walks, format!("walks {}", self.walks), &why);
            let is_other = self.walk_steps != default.walk_steps;
            idle.note(is_other, format!("walk-steps {}", self.walk_steps), &why);
            let is_other = self.walk_termination != default.walk_termination;
            idle.note(is_other, format!("walk-termination {}", self.walk_termination), &why);
        }
        let is_idle = self.replace && self.full_graph;
        idle.note(is_idle, "replace".to_owned(), "--full-graph, which takes all neighbors");
        let is_idle = self.heads != default.heads && !self.model.attends();
        idle.note(
            is_idle,
            format!("heads {}", self.heads),
            &format!("{model}, which has no attention"),
        );
        for given in self.idle_loss_options() {
            idle.note(true, given, &format!("--loss {}", self.loss));
        }
        for given in self.idle_method_options() {
            idle.note(true, given, &format!("--method {}", self.method));
        }
        let (schedule, why) = (self.lr_schedule, format!("--lr-schedule {}", self.lr_schedule));
        let is_idle = self.lr_min != default.lr_min && schedule == LrSchedule::Constant;
        idle.note(is_idle, format!("lr-min {}", self.lr_min), &why);
        let is_idle = self.lr_step != default.lr_step && schedule != LrSchedule::Step;
        idle.note(is_idle, format!("lr-step {}", self.lr_step), &why);
        let has_factor = matches!(schedule, LrSchedule::Step | LrSchedule::Plateau);
        let is_idle = self.lr_factor != default.lr_factor && !has_factor;
        idle.note(is_idle, format!("lr-factor {}", self.lr_factor), &why);
        let is_idle = self.lr_patience != default.lr_patience && schedule != LrSchedule::Plateau;
        idle.note(is_idle, format!("lr-patience {}", self.lr_patience), &why);
        let is_idle = self.shrinkage != default.shrinkage && self.correction == Correction::None;
        idle.note(is_idle, format!("shrinkage {}", self.shrinkage), "--correction none");
        let halo_neighbors = format!("halo-neighbors {}", self.halo_neighbors);
        let has_neighbors = self.halo_neighbors != Auto::Auto;
        let is_idle = has_neighbors && !matches!(self.halo, HaloMode::Auto | HaloMode::Neighbors);
        idle.note(is_idle, halo_neighbors.clone(), &format!("--halo {}", self.halo));
        if self.partitions() == 1 {
            let why = "--partitions 1: there are no other partitions";
            let is_other = self.schedule != default.schedule;
            idle.note(is_other, format!("schedule {}", self.schedule), why);
            let is_other = self.halo != default.halo;
            idle.note(is_other, format!("halo {}", self.halo), why);
            idle.note(has_neighbors && !is_other, halo_neighbors, why);
        }
        if self.warmup > 0.0 && self.warmup >= self.epochs as f64 {
            idle.0.push(format!(
                "--warmup {} is in epochs: the learning rate grows until the end of the run, to {:.3} of --lr",
                self.warmup,
                self.epochs as f64 / self.warmup
            ));
        }
        idle.0
    }
}

/// Warnings about options without effect.
#[derive(Default)]
struct IdleOptions(Vec<String>);

impl IdleOptions {
    fn note(&mut self, is_idle: bool, given: String, why: &str) {
        if is_idle {
            self.0.push(format!("--{given} has no effect with {why}"));
        }
    }
}

/// An error about options.
pub(super) fn refuse(what: String) -> Result<()> {
    Err(Error::Options(what))
}
