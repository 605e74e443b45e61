//! The model of predictions, as a summary tells it.

use grappa_console::printable;
use grappa_run::{
    config::{Evaluate, Monitor},
    model::Task,
};
use grappa_trainer::train::trained_model::Trained;
use serde::Serialize;

#[derive(Serialize)]
pub struct PredictingModel {
    pub run: String,
    /// Epochs that were finished when the parameters were these.
    pub epoch: u64,
    /// The monitored score on the validation nodes then; null if there were none, or the run monitors their loss.
    pub val: Option<f64>,
    /// The loss on the validation nodes then; null unless the run monitors it.
    pub val_loss: Option<f64>,
    /// Whether these are scores of sampled neighbors. The summary of a finished run may have exact ones.
    pub is_sampled: bool,
    /// The option that says which score it is.
    pub monitor: Monitor,
    #[serde(skip)]
    pub task: Task,
}

impl PredictingModel {
    pub fn new(trained: &Trained, run: String) -> Self {
        let (monitor, task) = (trained.monitor(), trained.task());
        let best = trained.state().best.map(|best| if monitor.is_error(task) { -best.val } else { best.val });
        let (val, val_loss) = match monitor {
            Monitor::Loss => (None, best),
            _ => (best, None),
        };
        Self {
            run,
            epoch: trained.state().epoch,
            val,
            val_loss,
            is_sampled: trained.state().scores.as_ref().is_some_and(|scores| scores.evaluated == Evaluate::Sampled),
            monitor,
            task,
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!("by the model of {} after epoch {}", printable(&self.run), self.epoch);
        let how = if self.is_sampled { ", sampled neighbors" } else { "" };
        if let Some(val) = self.val {
            let name = match (self.monitor, self.task) {
                (Monitor::Score, Task::MultiClass) => String::new(),
                (monitor, task) => format!("{} ", monitor.shown_name(task)),
            };
            text += &format!(" (validation {name}{}{how})", self.monitor.shown(self.task, val));
        }
        if let Some(loss) = self.val_loss {
            text += &format!(" (validation loss {loss:.4}{how})");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_validation_score_is_told_by_its_name() {
        let model = PredictingModel {
            run: "web.run".into(),
            epoch: 12,
            val: None,
            val_loss: Some(0.495_76),
            is_sampled: false,
            monitor: Monitor::Loss,
            task: Task::MultiClass,
        };
        assert_eq!(model.text(), "by the model of web.run after epoch 12 (validation loss 0.4958)");
        let model = PredictingModel {
            val: Some(0.763_21),
            val_loss: None,
            is_sampled: true,
            monitor: Monitor::Score,
            task: Task::MultiLabel,
            ..model
        };
        assert_eq!(
            model.text(),
            "by the model of web.run after epoch 12 (validation micro F1 76.32 %, sampled neighbors)"
        );
    }
}
