//! Checks of options: the range of each, and combinations that contradict each other.

use super::{Auto, Compress, Optimizer, TrainConfig};
use crate::{Error, Result};

/// Each layer is a hop of sampling, and a pass over the graph in each evaluation.
const LAYERS_MAX: u64 = 256;
/// Bounds the cost of PinSAGE's walks, which every node of a minibatch makes.
const WALKS_MAX: u64 = 10_000;
const WALK_STEPS_MAX: u64 = 1000;
const THREADS_MAX: u64 = 4096;

impl TrainConfig {
    /// Checks all that can be checked without a store and a machine: ranges, and options against each other.
    ///
    /// # Errors
    /// The message names the option, its value, and the values that it may have.
    pub fn check(&self) -> Result<()> {
        let no = |what: String| Err(Error::Options(what));
        let at_least_one = [
            ("layers", self.layers as u64),
            ("hidden", self.hidden as u64),
            ("heads", self.heads as u64),
            ("walks", u64::from(self.walks)),
            ("walk-steps", u64::from(self.walk_steps)),
            ("lr-step", self.lr_step),
            ("epochs", self.epochs),
            ("partitions", u64::from(self.partitions())),
            ("concurrent", u64::from(self.concurrent())),
            ("repartition-every", self.repartition_every),
            ("eval-every", self.eval_every),
            ("keep", self.keep as u64),
            ("memory", self.memory.0),
        ];
        if let Some((option, _)) = at_least_one.iter().find(|(_, value)| *value == 0) {
            return no(format!("{option} is 0; it must be at least 1"));
        }
        let at_most = [
            ("layers", self.layers as u64, LAYERS_MAX),
            ("walks", u64::from(self.walks), WALKS_MAX),
            ("walk-steps", u64::from(self.walk_steps), WALK_STEPS_MAX),
            (
                "threads",
                self.threads.value().map_or(1, |threads| threads.get() as u64),
                THREADS_MAX,
            ),
        ];
        if let Some((option, value, most)) = at_most.iter().find(|(_, value, most)| value > most) {
            return no(format!("{option} is {value}; it must be at most {most}"));
        }
        // Written so that NaN is in no range.
        let ranges = [
            below_one("dropout", self.dropout),
            below_one("input-dropout", self.input_dropout),
            below_one("attention-dropout", self.attention_dropout),
            below_one("label-smoothing", self.label_smoothing),
            (
                "walk-termination",
                self.walk_termination,
                (0.0..=1.0).contains(&self.walk_termination),
                "from 0 to 1",
            ),
            below_one("momentum", self.momentum),
            (
                "shrinkage",
                self.shrinkage,
                (0.0..=1.0).contains(&self.shrinkage),
                "from 0 to 1",
            ),
            ("lr", self.lr, self.lr > 0.0 && self.lr.is_finite(), "above 0"),
            (
                "lr-factor",
                self.lr_factor,
                self.lr_factor > 0.0 && self.lr_factor < 1.0,
                "above 0 and below 1",
            ),
            (
                "lr-min",
                self.lr_min,
                (0.0..=self.lr).contains(&self.lr_min),
                "from 0 to lr",
            ),
            not_negative("warmup", self.warmup),
            not_negative("clip", self.clip),
            not_negative("checkpoint-minutes", self.checkpoint_minutes),
        ];
        if let Some((option, value, _, range)) = ranges.iter().find(|(_, _, fits, _)| !fits) {
            return no(format!("{option} is {value}; it must be {range}"));
        }
        if self.full_graph && (self.fanouts != Auto::Auto || self.batch != Auto::Auto) {
            return no(
                "full-graph takes all neighbors of all training nodes: leave out fanouts and batch, or set \
                 full-graph to false"
                    .into(),
            );
        }
        let hops = self.fanouts().hops();
        if hops != self.layers {
            return no(format!(
                "fanouts {} are for {hops} layer(s), and the model has {}: give one for each layer",
                self.fanouts(),
                self.layers
            ));
        }
        if let Some(partitions) = self
            .partitions
            .value()
            .filter(|&partitions| self.concurrent() > partitions)
        {
            return no(format!(
                "concurrent is {}, and there are {partitions} partition(s): it must be at most that",
                self.concurrent()
            ));
        }
        self.sampler(false)?;
        if self.model.attends() && !self.hidden.is_multiple_of(self.heads) {
            return no(format!(
                "heads is {}, which does not divide hidden, {}: the heads share the hidden dimension evenly",
                self.heads, self.hidden
            ));
        }
        if self.momentum > 0.0 && self.optimizer != Optimizer::Sgd {
            return no(format!(
                "momentum is {}, and the optimizer {} has none: use `--optimizer sgd`, or leave momentum out",
                self.momentum, self.optimizer
            ));
        }
        if let Auto::Value(rate) = self.compress_rate {
            rate.check()?;
            if self.compress != Compress::TopK {
                return no(format!(
                    "compress-rate is {rate}, and `--compress {}` has no rate: use `--compress top-k`, or leave compress-rate out",
                    self.compress
                ));
            }
        }
        self.check_model_options()
    }
}

/// An entry of the table of ranges.
fn below_one(option: &'static str, value: f64) -> (&'static str, f64, bool, &'static str) {
    (option, value, (0.0..1.0).contains(&value), "from 0 to below 1")
}

/// An entry of the table of ranges.
fn not_negative(option: &'static str, value: f64) -> (&'static str, f64, bool, &'static str) {
    (option, value, value >= 0.0 && value.is_finite(), "0 or more")
}
