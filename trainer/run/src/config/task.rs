//! Whether the labels of a store serve the task, the loss and the monitored number of a run.

use grappa_formats::manifest::{LabelKind, LabelSpec};

use super::{ClassWeights, LossKind, Monitor, TaskChoice, TrainConfig, links};
use crate::{Result, error::refuse, model::Task, scores::ScoreReport};

/// Checks the options about labels against the labels of the store.
///
/// # Errors
/// The message names the option, what the labels are, and what would fit.
pub fn check_labels(config: &TrainConfig, labels: LabelSpec) -> Result<()> {
    let task = Task::for_labels(labels.kind);
    links::check_absent(config, task)?;
    let are = match labels.kind {
        LabelKind::Single => "one class per node",
        LabelKind::Multi | LabelKind::Partial => "sets of classes",
        LabelKind::Targets => "numbers",
    };
    let is_regression = task == Task::Regression;
    match config.task {
        TaskChoice::Regression if !is_regression => {
            return refuse(format!(
                "task is regression, and the labels of the store are {are}: ingest numbers with grappa-ingest --label-type float, or \
                 leave out --task"
            ));
        }
        TaskChoice::Classes if is_regression => {
            return refuse(
                "task is classes, and the labels of the store are numbers: ingest classes without --label-type float, or leave out \
                 --task"
                    .into(),
            );
        }
        TaskChoice::Auto | TaskChoice::Classes | TaskChoice::Regression | TaskChoice::Link => {}
    }
    let is_for_numbers = matches!(config.loss, LossKind::Mse | LossKind::Mae | LossKind::Huber);
    if config.loss != LossKind::Auto && is_for_numbers != is_regression {
        let fitting = match task {
            Task::MultiClass | Task::MultiLabel => "cross-entropy or focal",
            Task::Regression | Task::Links => "mse, mae or huber",
        };
        return refuse(format!(
            "loss is {}, and the labels of the store are {are}: use {fitting}, or leave it out",
            config.loss
        ));
    }
    if config.label_smoothing > 0.0 && task != Task::MultiClass {
        return refuse(format!(
            "label-smoothing is {}, and the nodes of the store have {}: leave it out",
            config.label_smoothing,
            match task {
                Task::Regression => "numbers",
                _ => "sets of labels",
            }
        ));
    }
    if config.class_weights != ClassWeights::None && is_regression {
        return refuse(format!(
            "class-weights is {}, and the labels of the store are numbers: leave it out",
            config.class_weights
        ));
    }
    let (is_there, has) = match config.monitor {
        Monitor::Score | Monitor::Loss => (true, ""),
        Monitor::Accuracy | Monitor::MacroF1 | Monitor::MicroF1 => (!is_regression, "classes have"),
        Monitor::Auc | Monitor::AveragePrecision => (
            task == Task::MultiLabel || (task == Task::MultiClass && labels.classes == 2),
            "two classes and sets of classes have",
        ),
        Monitor::Rmse | Monitor::Mae | Monitor::R2 => (is_regression, "numbers have"),
        Monitor::Mrr | Monitor::HitsAt10 | Monitor::RecallAt20 | Monitor::MapAt20 | Monitor::NdcgAt20 => {
            (false, "--task link has")
        }
    };
    if is_there {
        return Ok(());
    }
    let labels = match task {
        Task::MultiClass => format!("one of {} classes per node", labels.classes),
        _ => are.to_owned(),
    };
    let fitting = match task {
        Task::Regression => "rmse, mae or r2",
        _ => "accuracy, macro-f1 or loss",
    };
    refuse(format!(
        "monitor is {}, which only {has}, and the labels of the store are {labels}: use {fitting}",
        config.monitor
    ))
}

/// Checks the options about the loss against each other.
pub(super) fn check_loss(config: &TrainConfig) -> Result<()> {
    match config.loss == LossKind::Focal && config.label_smoothing > 0.0 {
        true => refuse(format!(
            "label-smoothing is {}, and loss is focal, which has none: leave one of them out",
            config.label_smoothing
        )),
        false => Ok(()),
    }
}

impl Monitor {
    /// Whether lower numbers are better.
    pub fn is_error(self, task: Task) -> bool {
        match self {
            Self::Loss | Self::Rmse | Self::Mae => true,
            Self::Score => task == Task::Regression,
            _ => false,
        }
    }

    /// The number in the scores of the validation nodes, negative if lower is better. None without nodes, and NaN if it is undefined.
    pub fn value_in(self, val: &ScoreReport) -> Option<f64> {
        // A model without predictions is never the best.
        if val.is_undecided() {
            return Some(f64::NAN);
        }
        let links = val.links.as_ref();
        let by_source = val.by_source();
        let number = match self {
            Self::Score if !val.per_target.is_empty() => negated(val.rmse),
            Self::Score if links.is_some() => links.and_then(|links| links.filtered.mrr),
            Self::Score if val.confusion.is_some() => val.accuracy,
            Self::Score => val.micro_f1.or(val.accuracy),
            Self::Loss => negated(val.loss),
            Self::Accuracy => val.accuracy,
            Self::MacroF1 => val.macro_f1,
            Self::MicroF1 => val.micro_f1,
            Self::Auc => val.roc_auc.or_else(|| links.and_then(|links| links.auc)),
            Self::AveragePrecision => val.average_precision.or_else(|| links.and_then(|links| links.average_precision)),
            Self::Rmse => negated(val.rmse),
            Self::Mae => negated(val.mae),
            Self::R2 => val.r2,
            Self::Mrr => links.and_then(|links| links.filtered.mrr),
            Self::HitsAt10 => links.and_then(|links| links.filtered.hits_at_10),
            Self::RecallAt20 => by_source.and_then(|scores| scores.recall_at_20),
            Self::MapAt20 => by_source.and_then(|scores| scores.map_at_20),
            Self::NdcgAt20 => by_source.and_then(|scores| scores.ndcg_at_20),
        };
        (val.nodes > 0).then(|| number.unwrap_or(f64::NAN))
    }

    /// Its name, for people.
    pub fn shown_name(self, task: Task) -> &'static str {
        match self {
            Self::Score => task.score_name(),
            Self::Loss => "loss",
            Self::Accuracy => "accuracy",
            Self::MacroF1 => "macro F1",
            Self::MicroF1 => "micro F1",
            Self::Auc => "ROC-AUC",
            Self::AveragePrecision => "average precision",
            Self::Rmse => "RMSE",
            Self::Mae => "MAE",
            Self::R2 => "R2",
            Self::Mrr => "MRR",
            Self::HitsAt10 => "Hits@10",
            Self::RecallAt20 => "Recall@20",
            Self::MapAt20 => "MAP@20",
            Self::NdcgAt20 => "NDCG@20",
        }
    }

    /// A value, for people. An error has no sign.
    pub fn shown(self, task: Task, number: f64) -> String {
        match self {
            Self::Loss => format!("{number:.4}"),
            Self::Rmse | Self::Mae => crate::model::significant(number),
            Self::R2 | Self::Mrr | Self::MapAt20 | Self::NdcgAt20 => format!("{number:.4}"),
            Self::Score => task.shown_score(number),
            Self::Accuracy
            | Self::MacroF1
            | Self::MicroF1
            | Self::Auc
            | Self::AveragePrecision
            | Self::HitsAt10
            | Self::RecallAt20 => format!("{:.2} %", number * 100.0),
        }
    }
}

fn negated(error: Option<f64>) -> Option<f64> {
    error.map(|error| -error)
}
