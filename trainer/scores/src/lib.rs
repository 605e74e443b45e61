//! Scores of predictions: accuracy, loss, F1, ROC-AUC, average precision, confusion matrix; RMSE, MAE and R2 of numbers; ranks of links.
//!
//! [`Scores`] takes logits and labels in batches, on one process or on several. The result does not depend on the batches or their order, because counts and
//! the sum of losses are integers. Definitions follow scikit-learn, and the tests compare with it. The fields say what
//! happens where a score is undefined, for example for a class without nodes.
//!
//! Cost: an exponential and a few operations per logit, counts per class, and a matrix of classes by classes up to [`CONFUSION_CLASSES_MAX`]
//! classes. ROC-AUC and average precision take 4 bytes per labelled node (binary) or per logit (multi-label), which are sorted at the end.

#![forbid(unsafe_code)]

mod auc;
mod by_source;
mod links;
mod loss;
mod targets;
#[cfg(test)]
mod tests;
mod words;

use grappa_formats::manifest::{LabelKind, LabelSpec};
use serde::{Deserialize, Serialize};

pub use self::auc::CURVE_POINTS_MAX;
pub use self::by_source::{RANKED_AT, RANKED_MAX, SourceReport, SourceScores};
pub use self::links::{LinkCandidates, LinkReport, LinkScores, Places, RankReport, Ranks};
pub use self::targets::{TargetLoss, TargetScale, TargetScore};
use self::{auc::Ranking, loss::LossSum, targets::TargetSums};

/// The largest number of classes with a confusion matrix.
pub const CONFUSION_CLASSES_MAX: u32 = 1024;

/// Labels of a batch.
#[derive(Debug, Clone, Copy)]
pub enum Labels<'a> {
    /// One class per node. -1 is a node without label, which is skipped.
    Classes(&'a [i64]),
    /// One set of classes per node, as in a store's labels: [`LabelSpec::row_bytes`] bytes per node, bit c for class c. Bit
    /// `classes` is set for labelled nodes; others are skipped.
    Sets(&'a [u8]),
    /// A value for each class or target of each node, NaN for one that is missing: `[nodes, classes]`. Nodes without any are skipped.
    Values(&'a [f32]),
}

/// Accumulates scores.
#[derive(Debug, Clone)]
pub struct Scores {
    spec: LabelSpec,
    /// Labelled nodes.
    nodes: u64,
    /// Labelled nodes whose prediction is right: the class, or the whole set.
    right: u64,
    /// Labelled nodes without prediction, because a logit is NaN.
    undecided: u64,
    losses: LossSum,
    counts: Vec<ClassCounts>,
    /// Row: the class. Column: the prediction. Empty if there is no confusion matrix.
    confusion: Vec<u64>,
    /// Binary: one, of class 1. Multi-label: one per class. Empty if ROC-AUC is not computed.
    rankings: Vec<Ranking>,
    /// Of targets: one for each, and their scale.
    targets: Vec<TargetSums>,
    scale: Option<TargetScale>,
}

/// A node with one class, and what its logits say. To compute this takes most of the time of scoring, and needs no [`Scores`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Judged {
    /// None without a label.
    label: Option<usize>,
    loss: f64,
    /// None if a logit is NaN.
    predicted: Option<usize>,
    /// The logit of class 1 minus the logit of class 0: grows with the probability of class 1 of two.
    margin: f32,
}

impl Judged {
    /// Whether the node has a label, and no prediction because a logit is NaN.
    pub fn is_undecided(&self) -> bool {
        self.label.is_some() && self.predicted.is_none()
    }

    /// Judges the logits of a node of class `label`; -1 if it has no label.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn from_logits(logits: &[f32], label: i64) -> Self {
        if label == -1 {
            return Self::default();
        }
        let label = usize::try_from(label).expect("a label is a class or -1");
        assert!(label < logits.len(), "class {label} of {}", logits.len());
        Self {
            label: Some(label),
            loss: loss::of_class(logits, label),
            predicted: largest(logits),
            margin: match logits {
                [zero, one] => one - zero,
                _ => 0.0,
            },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct ClassCounts {
    /// Nodes in it.
    support: u64,
    /// Nodes predicted to be in it.
    predicted: u64,
    /// Nodes in it that were predicted to be in it.
    hits: u64,
}

impl Scores {
    /// Empty scores of targets.
    ///
    /// # Panics
    /// If labels are no targets, or `scale` has others.
    pub fn of_targets(spec: LabelSpec, scale: TargetScale) -> Self {
        assert_eq!(spec.kind, LabelKind::Targets, "labels are targets");
        let targets = spec.classes as usize;
        assert_eq!([scale.means.len(), scale.deviations.len()], [targets; 2], "a scale of each");
        Self {
            targets: vec![TargetSums::default(); targets],
            counts: Vec::new(),
            scale: Some(scale),
            ..Self::new(spec, false)
        }
    }

    /// Empty scores. `ranked` adds ROC-AUC and average precision, which take memory, for two classes and for multi-label tasks.
    pub fn new(spec: LabelSpec, ranked: bool) -> Self {
        let classes = spec.classes as usize;
        let is_square = spec.kind == LabelKind::Single && spec.classes <= CONFUSION_CLASSES_MAX;
        let rankings = match spec.kind {
            _ if !ranked => 0,
            LabelKind::Single if classes == 2 => 1,
            LabelKind::Single | LabelKind::Targets => 0,
            LabelKind::Multi | LabelKind::Partial => classes,
        };
        Self {
            spec,
            nodes: 0,
            right: 0,
            undecided: 0,
            losses: LossSum::default(),
            counts: vec![ClassCounts::default(); classes],
            confusion: vec![0; if is_square { classes * classes } else { 0 }],
            rankings: vec![Ranking::default(); rankings],
            targets: Vec::new(),
            scale: None,
        }
    }

    /// Adds nodes. `logits` is `[nodes, classes]`, row by row.
    ///
    /// Of targets, `logits` are predictions in their unit. The predicted class has the largest logit, the first one if several are
    /// equal. A predicted set has the classes with
    /// logits above 0. A node with a NaN logit has no prediction and counts as wrong.
    ///
    /// # Panics
    /// If lengths disagree, a class is out of range, or labels are of another kind than the scores.
    pub fn add(&mut self, logits: &[f32], labels: Labels<'_>) {
        let classes = self.spec.classes as usize;
        assert!(logits.len().is_multiple_of(classes), "logits are rows of {classes}");
        let nodes = logits.len() / classes;
        match (self.spec.kind, labels) {
            (LabelKind::Single, Labels::Classes(labels)) => {
                assert_eq!(labels.len(), nodes, "a label for each node");
                for (row, &label) in logits.chunks_exact(classes).zip(labels) {
                    self.add_judged(Judged::from_logits(row, label));
                }
            }
            (LabelKind::Multi, Labels::Sets(sets)) => {
                let width = self.spec.row_bytes() as usize;
                assert_eq!(sets.len(), nodes * width, "a set for each node");
                for (row, set) in logits.chunks_exact(classes).zip(sets.chunks_exact(width)) {
                    if bit(set, classes) {
                        self.add_set(row, |class| Some(bit(set, class)));
                    }
                }
            }
            (LabelKind::Partial | LabelKind::Targets, Labels::Values(values)) => {
                assert_eq!(values.len(), logits.len(), "values for each node");
                let rows = logits.chunks_exact(classes).zip(values.chunks_exact(classes));
                for (row, values) in rows.filter(|(_, values)| !values.iter().all(|value| value.is_nan())) {
                    match self.spec.kind {
                        LabelKind::Targets => self.add_targets(row, values),
                        _ => self.add_set(row, |class| {
                            let value = values[class];
                            (!value.is_nan()).then_some(value == 1.0)
                        }),
                    }
                }
            }
            (kind, _) => panic!("labels are not of kind {kind:?}"),
        }
    }

    /// Adds a node with one class. Nothing happens if it has no label.
    ///
    /// # Panics
    /// If its class is out of range.
    pub fn add_judged(&mut self, node: Judged) {
        let Some(label) = node.label else { return };
        assert!(label < self.counts.len(), "class {label} of {}", self.counts.len());
        self.nodes += 1;
        self.counts[label].support += 1;
        match node.predicted {
            None => self.undecided += 1,
            Some(predicted) => {
                self.losses.add(node.loss);
                self.right += u64::from(predicted == label);
                self.counts[predicted].predicted += 1;
                self.counts[label].hits += u64::from(predicted == label);
                if !self.confusion.is_empty() {
                    self.confusion[label * self.counts.len() + predicted] += 1;
                }
            }
        }
        if let Some(ranking) = self.rankings.first_mut() {
            ranking.add(node.margin, label == 1);
        }
    }

    fn add_targets(&mut self, predicted: &[f32], targets: &[f32]) {
        let scale = self.scale.as_ref().expect("scores of targets have their scale");
        self.nodes += 1;
        if is_undecided(predicted) {
            self.undecided += 1;
            return;
        }
        let (mut loss, mut known) = (0.0, 0);
        for (index, (&predicted, &target)) in predicted.iter().zip(targets).enumerate() {
            if target.is_nan() {
                continue;
            }
            let deviation = f64::from(scale.deviations[index]);
            let error = (f64::from(predicted) - f64::from(target)) / deviation;
            self.targets[index].add(target, error, (f64::from(target) - f64::from(scale.means[index])) / deviation);
            loss += scale.loss.evaluate(error);
            known += 1;
        }
        self.losses.add(loss / f64::from(known));
    }

    /// Adds a node with a set of classes: for each, whether it is in it, or none if that is unknown.
    fn add_set(&mut self, logits: &[f32], is_in: impl Fn(usize) -> Option<bool>) {
        self.nodes += 1;
        let is_undecided = is_undecided(logits);
        match is_undecided {
            true => self.undecided += 1,
            false => self.losses.add(loss::of_set(logits, &is_in)),
        }
        let mut is_right = !is_undecided;
        for (class, (&logit, counts)) in logits.iter().zip(&mut self.counts).enumerate() {
            let (Some(is_in), is_predicted) = (is_in(class), logit > 0.0) else {
                continue;
            };
            counts.support += u64::from(is_in);
            counts.predicted += u64::from(is_predicted);
            counts.hits += u64::from(is_in && is_predicted);
            is_right &= is_in == is_predicted;
        }
        self.right += u64::from(is_right);
        for (class, (ranking, &logit)) in self.rankings.iter_mut().zip(logits).enumerate() {
            if let Some(is_in) = is_in(class) {
                ranking.add(logit, is_in);
            }
        }
    }

    /// Adds the counts of another accumulator.
    ///
    /// # Panics
    /// If it is for other labels.
    pub fn merge(&mut self, other: Self) {
        assert_eq!(self.spec, other.spec, "scores of the same labels");
        assert_eq!(self.rankings.len(), other.rankings.len(), "scores of the same kind");
        self.nodes += other.nodes;
        self.right += other.right;
        self.undecided += other.undecided;
        self.losses.merge(other.losses);
        for (mine, its) in self.counts.iter_mut().zip(&other.counts) {
            mine.merge(its);
        }
        for (mine, its) in self.confusion.iter_mut().zip(other.confusion) {
            *mine += its;
        }
        for (mine, its) in self.rankings.iter_mut().zip(other.rankings) {
            mine.merge(its);
        }
        for (mine, its) in self.targets.iter_mut().zip(other.targets) {
            mine.merge(its);
        }
    }

    /// Number of labelled nodes.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Fraction of the labelled nodes whose prediction is right: the class, or the whole set as far as it is known. None without nodes,
    /// and for targets.
    pub fn accuracy(&self) -> Option<f64> {
        ratio(self.right, self.nodes).filter(|_| self.scale.is_none())
    }

    /// The scores.
    pub fn report(mut self) -> ScoreReport {
        let per_class: Vec<ClassScore> = self.counts.iter().map(ClassScore::from_counts).collect();
        // As scikit-learn: a class counts that has nodes or predictions; a label always does.
        let counted =
            per_class.iter().filter(|score| self.spec.kind != LabelKind::Single || score.support + score.predicted > 0);
        let counted: Vec<f64> = counted.map(|score| score.f1).collect();
        let mut micro = ClassCounts::default();
        self.counts.iter().for_each(|counts| micro.merge(counts));
        let areas: Vec<Option<f64>> = self.rankings.iter_mut().map(Ranking::area).collect();
        let precisions: Vec<Option<f64>> = self.rankings.iter_mut().map(Ranking::average_precision).collect();
        let precision_recall = match (self.spec.kind, &mut self.rankings[..]) {
            (LabelKind::Single, [ranking]) => ranking.precision_recall(),
            _ => Vec::new(),
        };
        let deviations = self.scale.iter().flat_map(|scale| &scale.deviations);
        let per_target: Vec<TargetScore> =
            self.targets.iter().zip(deviations).map(|(sums, &deviation)| sums.score(deviation)).collect();
        ScoreReport {
            nodes: self.nodes,
            undecided: self.undecided,
            first_undecided: None,
            accuracy: self.accuracy(),
            loss: self.losses.mean(self.nodes - self.undecided),
            macro_f1: targets::mean(&counted),
            micro_f1: (self.nodes > 0 && !self.counts.is_empty()).then(|| micro.f1()),
            roc_auc: targets::mean(&areas.into_iter().flatten().collect::<Vec<_>>()),
            average_precision: targets::mean(&precisions.into_iter().flatten().collect::<Vec<_>>()),
            precision_recall,
            rmse: targets::mean_of(&per_target, |score| score.rmse),
            mae: targets::mean_of(&per_target, |score| score.mae),
            r2: targets::mean_of(&per_target, |score| score.r2),
            links: None,
            per_target,
            confusion: (!self.confusion.is_empty()).then(|| {
                let rows = self.confusion.chunks_exact(self.counts.len());
                rows.map(<[u64]>::to_vec).collect()
            }),
            per_class,
        }
    }
}

/// Scores of predictions.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ScoreReport {
    /// Labelled nodes.
    pub nodes: u64,
    /// Labelled nodes without prediction, because a logit is NaN.
    pub undecided: u64,
    /// The first of these, if the caller of [`Scores`] noted it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_undecided: Option<u64>,
    /// Fraction of the labelled nodes whose prediction is right: the class, or the whole set. None without nodes.
    pub accuracy: Option<f64>,
    /// Mean loss of the nodes that have a prediction, without weights and label smoothing: the cross-entropy of the class; for sets, the
    /// mean binary cross-entropy of the classes. None without such nodes, or if a loss is infinite.
    pub loss: Option<f64>,
    /// Mean F1 of the classes. In multi-class tasks, a class without nodes and predictions does not count; in multi-label tasks
    /// its F1 is 0. None if no class counts.
    pub macro_f1: Option<f64>,
    /// F1 of all decisions together. In multi-class tasks it equals the accuracy if every node has a prediction. None without
    /// nodes.
    pub micro_f1: Option<f64>,
    /// Area under the receiver operating characteristic: the probability that a node in the class is ranked above one outside,
    /// where ties count half. For two classes, the area of class 1. For sets, the mean over the classes that have nodes inside and
    /// outside. None if it is undefined, was not requested, or a logit is NaN.
    pub roc_auc: Option<f64>,
    /// Area under the curve of precision by recall, as a step function: the mean precision at the rank of each node in the class. For two
    /// classes, the area of class 1. For sets, the mean over the classes that have nodes inside. None as [`ScoreReport::roc_auc`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub average_precision: Option<f64>,
    /// Recall and precision of class 1 of two at up to [`CURVE_POINTS_MAX`] thresholds, from the highest one on. Empty for other tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub precision_recall: Vec<[f64; 2]>,
    /// Root of the mean squared error of targets, in their unit; for several, the mean of their scores. None for classes, without nodes,
    /// or if an error is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rmse: Option<f64>,
    /// Mean absolute error, as [`ScoreReport::rmse`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mae: Option<f64>,
    /// Coefficient of determination; see [`TargetScore::r2`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r2: Option<f64>,
    /// Scores of links. None if nodes are scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<LinkReport>,
    /// Scores of each target. Empty for classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub per_target: Vec<TargetScore>,
    /// Scores of each class. Empty for targets.
    pub per_class: Vec<ClassScore>,
    /// Number of nodes by class (row) and prediction (column). None for sets, and for more than [`CONFUSION_CLASSES_MAX`]
    /// classes.
    pub confusion: Option<Vec<Vec<u64>>>,
}

impl ScoreReport {
    /// Whether no node has a prediction, because all logits are NaN.
    pub fn is_undecided(&self) -> bool {
        self.nodes > 0 && self.undecided == self.nodes
    }

    /// Scores of the rankings of all destinations of each source. None if they are not ranked.
    pub fn by_source(&self) -> Option<&SourceReport> {
        self.links.as_ref()?.by_source.as_ref()
    }

    /// Whether there are scores for each of `classes` classes or targets, and the confusion matrix is one of these classes.
    pub fn has_classes(&self, classes: u64) -> bool {
        let rows = self.confusion.iter().flatten().map(Vec::len);
        if self.links.is_some() {
            return self.per_class.is_empty() && self.confusion.is_none();
        }
        if !self.per_target.is_empty() {
            return self.per_target.len() as u64 == classes && self.per_class.is_empty() && self.confusion.is_none();
        }
        let lengths = self.confusion.iter().map(Vec::len).chain(rows);
        lengths.chain([self.per_class.len()]).all(|length| length as u64 == classes)
    }
}

/// Scores of a class.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClassScore {
    /// Nodes in the class.
    pub support: u64,
    /// Nodes predicted to be in it.
    pub predicted: u64,
    /// Fraction of the nodes predicted to be in it that are in it; 0 if there are none.
    pub precision: f64,
    /// Fraction of the nodes in it that are predicted to be in it; 0 if there are none.
    pub recall: f64,
    /// Harmonic mean of precision and recall; 0 without nodes and predictions.
    pub f1: f64,
}

impl ClassScore {
    fn from_counts(counts: &ClassCounts) -> Self {
        Self {
            support: counts.support,
            predicted: counts.predicted,
            precision: ratio(counts.hits, counts.predicted).unwrap_or(0.0),
            recall: ratio(counts.hits, counts.support).unwrap_or(0.0),
            f1: counts.f1(),
        }
    }
}

impl ClassCounts {
    fn merge(&mut self, other: &Self) {
        self.support += other.support;
        self.predicted += other.predicted;
        self.hits += other.hits;
    }

    fn f1(&self) -> f64 {
        ratio(2 * self.hits, self.support + self.predicted).unwrap_or(0.0)
    }
}

/// The index of the largest value, the first one if several are equal. None if a value is NaN.
pub fn largest(values: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if *value > values[best] {
            best = index;
        }
    }
    Some(best)
}

/// Whether there is no prediction, because a logit is NaN.
pub fn is_undecided(logits: &[f32]) -> bool {
    logits.iter().any(|logit| logit.is_nan())
}

fn bit(set: &[u8], bit: usize) -> bool {
    set[bit / 8] >> (bit % 8) & 1 == 1
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
