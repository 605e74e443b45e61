//! What a model is trained to make small, seed by seed.
//!
//! Losses are not reduced: a weight for each seed (coverage) can multiply them before they are added up.

use tch::{Kind, Reduction, Tensor};

/// What the outputs of a model mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One class of several: outputs are logits of classes.
    MultiClass,
    /// Any of several labels: outputs are logits of labels, one by one.
    MultiLabel,
}

impl Task {
    /// The loss of each seed, f32 of `[seeds]`, from its logits `[seeds, outputs]`.
    ///
    /// - Multi-class: cross-entropy; `labels` are int64 of `[seeds]`.
    /// - Multi-label: the mean over labels of the binary cross-entropy; `labels` are 0 or 1 of `[seeds, outputs]`. (The mean
    ///   over seeds of it is PyTorch's BCEWithLogitsLoss.)
    ///
    /// # Panics
    /// If shapes disagree.
    pub fn losses(self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let logits = logits.to_kind(Kind::Float);
        match self {
            Self::MultiClass => {
                assert_eq!(labels.size(), [logits.size()[0]], "shape of labels");
                let no_label = -100;
                logits.cross_entropy_loss(labels, None::<Tensor>, Reduction::None, no_label, 0.0)
            }
            Self::MultiLabel => {
                assert_eq!(labels.size(), logits.size(), "shape of labels");
                let labels = labels.to_kind(Kind::Float);
                logits
                    .binary_cross_entropy_with_logits(&labels, None::<Tensor>, None::<Tensor>, Reduction::None)
                    .mean_dim([1i64].as_slice(), false, Kind::Float)
            }
        }
    }
}
