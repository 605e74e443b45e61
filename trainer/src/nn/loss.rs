//! Losses of a minibatch, one per seed.
//!
//! Losses are not reduced to their mean, because each may be multiplied by a factor (coverage) before they are added up.

use grappa_run::model::Task;
use tch::{Kind, Reduction, Tensor};

/// The loss of each seed, f32 of `[seeds]`, from its logits `[seeds, outputs]`.
///
/// - Multi-class: cross-entropy. `labels` are int64 of `[seeds]`. With `smoothing` s, the target of the class is 1 - s, plus s /
///   classes for each class (Szegedy et al.: "Rethinking the Inception Architecture for Computer Vision", 2016).
/// - Multi-label: the mean over labels of the binary cross-entropy. `labels` are 0 or 1 of `[seeds, outputs]`. Its mean over
///   seeds is PyTorch's BCEWithLogitsLoss.
///
/// # Panics
/// If shapes disagree, or if there is smoothing for sets of labels.
pub fn losses(task: Task, logits: &Tensor, labels: &Tensor, smoothing: f64) -> Tensor {
    let logits = logits.to_kind(Kind::Float);
    match task {
        Task::MultiClass => {
            assert_eq!(labels.size(), [logits.size()[0]], "shape of labels");
            let no_label = -100;
            logits.cross_entropy_loss(labels, None::<Tensor>, Reduction::None, no_label, smoothing)
        }
        Task::MultiLabel => {
            assert_eq!(labels.size(), logits.size(), "shape of labels");
            assert!(smoothing == 0.0, "smoothing is for one class per node");
            let labels = labels.to_kind(Kind::Float);
            logits
                .binary_cross_entropy_with_logits(&labels, None::<Tensor>, None::<Tensor>, Reduction::None)
                .mean_dim([1i64].as_slice(), false, Kind::Float)
        }
    }
}
