//! Checks of options: the range of each, and combinations that contradict each other.

use super::{Auto, Compress, Optimizer, TrainConfig, TrainOption, effects::refuse};
use crate::Result;

impl TrainConfig {
    /// Checks all that can be checked without a store and a machine: ranges, and options against each other.
    ///
    /// # Errors
    /// The message names the option, its value, and the values that it may have.
    pub fn check(&self) -> Result<()> {
        for (option, number) in TrainOption::all().iter().zip(self.numbers()) {
            let Some(number) = number else { continue };
            if let Some(bound) = option.bounds.iter().find(|bound| !bound.contains(number)) {
                return refuse(format!("{} is {number}; it must be {bound}", option.name));
            }
        }
        if !(0.0..=self.lr).contains(&self.lr_min) {
            return refuse(format!("lr-min is {}; it must be from 0 to lr", self.lr_min));
        }
        if self.full_graph && (self.fanouts != Auto::Auto || self.batch != Auto::Auto) {
            return refuse(
                "full-graph takes all neighbors of all training nodes: leave out fanouts and batch, or set \
                 full-graph to false"
                    .into(),
            );
        }
        let hops = self.fanouts().hops();
        if hops != self.layers {
            return refuse(format!(
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
            return refuse(format!(
                "concurrent is {}, and there are {partitions} partition(s): it must be at most that",
                self.concurrent()
            ));
        }
        self.sampler(false)?;
        if self.model.attends() && !self.hidden.is_multiple_of(self.heads) {
            return refuse(format!(
                "heads is {}, which does not divide hidden, {}: the heads share the hidden dimension evenly",
                self.heads, self.hidden
            ));
        }
        if self.momentum > 0.0 && self.optimizer != Optimizer::Sgd {
            return refuse(format!(
                "momentum is {}, and the optimizer {} has none: use `--optimizer sgd`, or leave momentum out",
                self.momentum, self.optimizer
            ));
        }
        if let Auto::Value(rate) = self.compress_rate {
            rate.check()?;
            if self.compress != Compress::TopK {
                return refuse(format!(
                    "compress-rate is {rate}, and `--compress {}` has no rate: use `--compress top-k`, or leave compress-rate out",
                    self.compress
                ));
            }
        }
        self.check_loss()?;
        self.check_method()?;
        self.check_links()?;
        self.check_model_options()
    }
}
