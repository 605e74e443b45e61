//! Losses of a minibatch, one per seed.
//!
//! Losses are not reduced to their mean, because each may be multiplied by a factor (coverage) before they are added up.

use grappa_run::{model::Task, scores::TargetLoss};
use tch::{Kind, Reduction, Tensor};

use super::Model;

/// The loss of a seed.
///
/// - Multi-class: cross-entropy. With `smoothing` s, the target of the class is 1 - s, plus s / classes for each class (Szegedy et
///   al.: "Rethinking the Inception Architecture for Computer Vision", 2016). Weights multiply the losses of the seeds of each class.
/// - Multi-label: the mean over the known labels of the binary cross-entropy. Without unknown labels, its mean over seeds is
///   PyTorch's BCEWithLogitsLoss, and weights are its `pos_weight`.
/// - Regression: the mean over the known targets of the loss of errors in units of each target's deviation.
///
/// With a `gamma`, a cross-entropy is multiplied by (1 - p)^gamma for the probability p of the truth (Lin et al.: "Focal Loss for Dense
/// Object Detection", 2017).
#[derive(Debug)]
pub struct Loss {
    task: Task,
    smoothing: f64,
    gamma: Option<f64>,
    /// f32 of `[outputs]`.
    weights: Option<Tensor>,
    target_loss: TargetLoss,
    /// The deviation of each target, f32 of `[outputs]`.
    deviations: Option<Tensor>,
}

impl Loss {
    /// The loss of classes without weights.
    ///
    /// # Panics
    /// If there is smoothing for sets of labels.
    pub fn of_classes(task: Task, smoothing: f64) -> Self {
        assert!(smoothing == 0.0 || task == Task::MultiClass, "smoothing is for one class per node");
        Self { task, smoothing, gamma: None, weights: None, target_loss: TargetLoss::Squared, deviations: None }
    }

    /// The same with the exponent `gamma` of focal loss, and with weights of classes, f32 of `[outputs]`.
    pub fn with_weights(self, gamma: Option<f64>, weights: Option<Tensor>) -> Self {
        Self { gamma, weights, ..self }
    }

    /// The same with a loss of targets, in units of the deviations of the model's targets.
    pub fn with_targets(self, target_loss: TargetLoss, model: &Model) -> Self {
        let deviations = model.target_moments().map(|(_, deviation)| deviation.shallow_clone());
        Self { target_loss, deviations, ..self }
    }

    /// The loss of each seed, f32 of `[seeds]`, from the outputs `[seeds, outputs]`. Labels are int64 of `[seeds]` for one class per
    /// node; 0 or 1 of `[seeds, outputs]` for sets; f32 of that shape, NaN for unknown ones, for sets and targets.
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn losses(&self, outputs: &Tensor, labels: &Tensor) -> Tensor {
        let outputs = outputs.to_kind(Kind::Float);
        if self.task == Task::MultiClass {
            assert_eq!(labels.size(), [outputs.size()[0]], "shape of labels");
            return self.of_class(&outputs, labels);
        }
        assert_eq!(labels.size(), outputs.size(), "shape of labels");
        if labels.kind() != Kind::Float {
            let losses = self.of_each(&outputs, &labels.to_kind(Kind::Float));
            return losses.mean_dim([1i64].as_slice(), false, Kind::Float);
        }
        let known = labels.isnan().logical_not();
        let losses = self.of_each(&outputs, &labels.where_self(&known, &labels.zeros_like())) * &known;
        let [sums, counts] =
            [losses, known].map(|values| values.sum_dim_intlist([1i64].as_slice(), false, Kind::Float));
        sums / counts
    }

    fn of_class(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let no_label = -100;
        let weights = self.weights.as_ref();
        let Some(gamma) = self.gamma else {
            return logits.cross_entropy_loss(labels, weights, Reduction::None, no_label, self.smoothing);
        };
        let losses = focal(&logits.cross_entropy_loss(labels, None::<Tensor>, Reduction::None, no_label, 0.0), gamma);
        match weights {
            Some(weights) => losses * weights.index_select(0, labels),
            None => losses,
        }
    }

    /// The loss of each label or target. All are known.
    fn of_each(&self, outputs: &Tensor, labels: &Tensor) -> Tensor {
        if self.task == Task::Regression {
            let deviations = self.deviations.as_ref().expect("a model of targets has their deviations");
            let (outputs, targets) = (outputs / deviations, labels / deviations);
            return match self.target_loss {
                TargetLoss::Squared => outputs.mse_loss(&targets, Reduction::None),
                TargetLoss::Absolute => outputs.l1_loss(&targets, Reduction::None),
                TargetLoss::Huber(delta) => outputs.huber_loss(&targets, Reduction::None, delta),
            };
        }
        let weights = self.weights.as_ref();
        let Some(gamma) = self.gamma else {
            return outputs.binary_cross_entropy_with_logits(labels, None::<&Tensor>, weights, Reduction::None);
        };
        let none = None::<&Tensor>;
        let losses = focal(&outputs.binary_cross_entropy_with_logits(labels, none, none, Reduction::None), gamma);
        match weights {
            // The weight of those inside, and 1 of those outside.
            Some(weights) => losses * (labels * (weights - 1.0) + 1.0),
            None => losses,
        }
    }
}

/// A cross-entropy times (1 - p)^gamma for its probability p.
fn focal(losses: &Tensor, gamma: f64) -> Tensor {
    // The power of 0 has no finite gradient if gamma is below 1.
    let miss = ((-losses).exp() * -1.0 + 1.0).clamp_min(1e-12);
    losses * miss.pow_tensor_scalar(gamma)
}
