//! Numbers of scikit-learn, which `scikit_learn.py` prints, and slow twins.

use super::*;

/// Knuth's linear congruential generator, its upper 24 bits; as in `scikit_learn.py`.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 40
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// Of 33 values, so that many are equal.
    fn logit(&mut self) -> f32 {
        (self.next() % 33) as f32 / 8.0 - 2.0
    }
}

fn single_spec(classes: u32) -> LabelSpec {
    LabelSpec::new(LabelKind::Single, classes)
}

fn multi_spec(classes: u32) -> LabelSpec {
    LabelSpec::new(LabelKind::Multi, classes)
}

/// Logits and classes. Some labels are missing.
fn single(seed: u64, nodes: usize, classes: usize, used: u64) -> (Vec<f32>, Vec<i64>) {
    let mut numbers = Numbers(seed);
    let (mut logits, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let label = numbers.below(used + 1) as i64 - 1;
        let mut row: Vec<f32> = (0..classes).map(|_| numbers.logit()).collect();
        if let Ok(label) = usize::try_from(label) {
            row[label] += 1.0;
        }
        logits.extend(row);
        labels.push(label);
    }
    (logits, labels)
}

/// Logits and sets of labels. No node is in class 4, and about every fifth node is unlabelled.
fn sets(seed: u64, nodes: usize, classes: u32) -> (Vec<f32>, Vec<u8>) {
    let mut numbers = Numbers(seed);
    let (mut logits, mut labels) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let is_labelled = numbers.below(5) > 0;
        let is_in: Vec<bool> = (0..classes).map(|class| numbers.below(3) == 0 && class != 4).collect();
        logits.extend(is_in.iter().map(|&is_in| numbers.logit() - 0.5 + f32::from(u8::from(is_in))));
        let set: Vec<u32> = (0..classes).filter(|&class| is_in[class as usize]).collect();
        multi_spec(classes).encode_multi(is_labelled.then_some(&set), &mut labels);
    }
    (logits, labels)
}

fn report(spec: LabelSpec, logits: &[f32], labels: Labels<'_>) -> ScoreReport {
    let mut scores = Scores::new(spec, true);
    scores.add(logits, labels);
    scores.report()
}

fn assert_close(actual: Option<f64>, expected: f64) {
    let actual = actual.expect("it is defined");
    assert!((actual - expected).abs() < 1e-14, "{actual} instead of {expected}");
}

/// Exponentials are computed in f32.
fn assert_loss(actual: Option<f64>, expected: f64) {
    let actual = actual.expect("it is defined");
    assert!((actual - expected).abs() < 1e-6, "{actual} instead of {expected}");
}

/// `expected` has numbers with blanks between.
fn assert_all_close(actual: impl Iterator<Item = f64>, expected: &str) {
    let (actual, expected): (Vec<f64>, Vec<&str>) = (actual.collect(), expected.split(' ').collect());
    assert_eq!(actual.len(), expected.len());
    for (actual, expected) in actual.into_iter().zip(expected) {
        assert_close(Some(actual), expected.parse().unwrap());
    }
}

#[test]
fn several_classes_score_as_in_scikit_learn() {
    let (logits, labels) = single(1, 400, 6, 4);
    let report = report(single_spec(6), &logits, Labels::Classes(&labels));
    assert_eq!((report.nodes, report.undecided, report.roc_auc), (314, 0, None));
    assert_close(report.accuracy, 0.42038216560509556);
    assert_loss(report.loss, 1.584784217604736);
    assert_close(report.macro_f1, 0.30987190008056525);
    assert_close(report.micro_f1, 0.42038216560509556);
    let classes = || report.per_class.iter();
    assert_all_close(
        classes().map(|class| class.precision),
        "0.4411764705882353 0.46875 0.6153846153846154 0.5797101449275363 0.0 0.0",
    );
    assert_all_close(
        classes().map(|class| class.recall),
        "0.410958904109589 0.38461538461538464 0.4 0.4819277108433735 0.0 0.0",
    );
    assert_all_close(
        classes().map(|class| class.f1),
        "0.425531914893617 0.4225352112676056 0.48484848484848486 0.5263157894736842 0.0 0.0",
    );
    let confusion =
        [[30, 11, 8, 12, 7, 5], [15, 30, 7, 10, 7, 9], [7, 14, 32, 7, 9, 11], [16, 9, 5, 40, 7, 6], [0; 6], [0; 6]];
    assert_eq!(report.confusion.expect("few classes"), confusion);
}

#[test]
fn two_classes_score_as_in_scikit_learn() {
    let (logits, labels) = single(2, 300, 2, 2);
    let report = report(single_spec(2), &logits, Labels::Classes(&labels));
    assert_eq!(report.nodes, 201);
    assert_close(report.accuracy, 0.7213930348258707);
    assert_close(report.macro_f1, 0.7162734422262553);
    assert_close(report.roc_auc, 0.8062299357945426);
}

#[test]
fn sets_score_as_in_scikit_learn() {
    let (logits, labels) = sets(3, 200, 9);
    let report = report(multi_spec(9), &logits, Labels::Sets(&labels));
    assert_eq!((report.nodes, report.confusion), (159, None));
    assert_close(report.accuracy, 0.018867924528301886);
    assert_loss(report.loss, 0.6222271927646683);
    assert_close(report.macro_f1, 0.47424716217799046);
    assert_close(report.micro_f1, 0.5086705202312138);
    assert_close(report.roc_auc, 0.7241143516205026);
    let classes = || report.per_class.iter();
    assert_all_close(
        classes().map(|class| class.precision),
        "0.6 0.44776119402985076 0.525 0.37037037037037035 0.0 0.5087719298245614 0.35526315789473684 0.5230769230769231 0.4225352112676056",
    );
    assert_all_close(
        classes().map(|class| class.recall),
        "0.6268656716417911 0.6818181818181818 0.7636363636363637 0.6382978723404256 0.0 0.5576923076923077 0.6 0.5964912280701754 0.5769230769230769",
    );
}

/// Every pair is looked at.
fn area_by_pairs(scores: &[(f32, bool)]) -> Option<f64> {
    let (mut won, mut pairs) = (0.0, 0.0);
    for (inside, _) in scores.iter().filter(|(_, is_in)| *is_in) {
        for (outside, _) in scores.iter().filter(|(_, is_in)| !is_in) {
            pairs += 1.0;
            won += match inside.partial_cmp(outside)? {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    (pairs > 0.0).then(|| won / pairs)
}

#[test]
fn the_area_is_that_of_looking_at_every_pair() {
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1.0];
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let nodes = numbers.below(40);
        let scores: Vec<(f32, bool)> = (0..nodes)
            .map(|_| {
                let score = match numbers.below(3) {
                    0 => special[numbers.below(6) as usize],
                    _ => numbers.logit(),
                };
                (score, numbers.below(2) == 0)
            })
            .collect();
        let mut ranking = Ranking::default();
        scores.iter().for_each(|&(score, is_in)| ranking.add(score, is_in));
        assert_eq!(ranking.area(), area_by_pairs(&scores), "{scores:?}");
    }
}

#[test]
fn batches_in_any_order_and_merged_parts_give_the_same_as_all_at_once() {
    let (logits, labels) = single(7, 301, 2, 2);
    let whole = report(single_spec(2), &logits, Labels::Classes(&labels));
    let (set_logits, set_labels) = sets(7, 301, 9);
    let whole_sets = report(multi_spec(9), &set_logits, Labels::Sets(&set_labels));
    for batch in [1, 7, 300, 1000] {
        let mut parts = [Scores::new(single_spec(2), true), Scores::new(single_spec(2), true)];
        let batches: Vec<_> = logits.chunks(2 * batch).zip(labels.chunks(batch)).collect();
        for (index, (logits, labels)) in batches.into_iter().enumerate().rev() {
            parts[index % 2].add(logits, Labels::Classes(labels));
        }
        let [mut even, mut odd] = parts;
        let mut by_words = even.clone();
        by_words.merge_words(&odd.as_words());
        even.merge(odd);
        assert_eq!(even.report(), whole);
        assert_eq!(by_words.report(), whole, "as words");

        let mut scores = Scores::new(multi_spec(9), true);
        let mut by_words = scores.clone();
        for (logits, sets) in set_logits.chunks(9 * batch).zip(set_labels.chunks(2 * batch)) {
            let mut part = Scores::new(multi_spec(9), true);
            part.add(logits, Labels::Sets(sets));
            by_words.merge_words(&part.as_words());
            scores.merge(part);
        }
        assert_eq!(scores.report(), whole_sets);
        assert_eq!(by_words.report(), whole_sets, "as words");
    }
}

#[test]
fn undefined_scores_are_none() {
    let nothing = report(single_spec(2), &[], Labels::Classes(&[]));
    assert_eq!((nothing.nodes, nothing.accuracy, nothing.macro_f1), (0, None, None));
    assert_eq!((nothing.micro_f1, nothing.roc_auc), (None, None));
    let unlabelled = report(single_spec(2), &[1.0, 2.0], Labels::Classes(&[-1]));
    assert_eq!((unlabelled.nodes, unlabelled.accuracy), (0, None));
    let one_class_only = report(single_spec(2), &[1.0, 2.0, 3.0, 2.0], Labels::Classes(&[1, 1]));
    assert_eq!((one_class_only.accuracy, one_class_only.roc_auc), (Some(0.5), None));
}

#[test]
fn a_class_with_neither_nodes_nor_predictions_does_not_lower_the_mean() {
    let report = report(single_spec(3), &[9.0, 1.0, 1.0, 0.0, 5.0, 0.0], Labels::Classes(&[0, 1]));
    assert_eq!((report.macro_f1, report.per_class[2].f1), (Some(1.0), 0.0));
}

#[test]
fn a_node_with_a_logit_that_is_no_number_is_wrong_and_counted() {
    let logits = [f32::NAN, 1.0, 0.0, 1.0];
    let single = report(single_spec(2), &logits, Labels::Classes(&[1, 1]));
    assert_eq!((single.nodes, single.undecided, single.accuracy), (2, 1, Some(0.5)));
    assert_eq!((single.per_class[1].support, single.per_class[1].predicted), (2, 1));
    assert_eq!(single.roc_auc, None);

    let mut labels = Vec::new();
    multi_spec(2).encode_multi(Some(&[1]), &mut labels);
    multi_spec(2).encode_multi(Some(&[1]), &mut labels);
    let multi = report(multi_spec(2), &logits, Labels::Sets(&labels));
    assert_eq!((multi.nodes, multi.undecided, multi.accuracy), (2, 1, Some(0.5)));
    // Of class 0 there are none inside, of class 1 none outside.
    assert_eq!(multi.roc_auc, None);
}

#[test]
fn a_loss_that_is_not_finite_is_none_and_a_large_one_is_exact() {
    let loss_of = |logits: &[f32]| report(single_spec(2), logits, Labels::Classes(&[0])).loss;
    assert_eq!(loss_of(&[-1e4, 1e4]), Some(2e4));
    assert_eq!(loss_of(&[80.0, -80.0]), Some(0.0));
    assert_eq!((loss_of(&[f32::MIN, f32::MAX]), loss_of(&[f32::NAN, 0.0])), (None, None));
    assert_eq!(loss_of(&[f32::NEG_INFINITY, 0.0]), None);
    let mut set = Vec::new();
    multi_spec(2).encode_multi(Some(&[0]), &mut set);
    let loss_of = |logits: &[f32]| report(multi_spec(2), logits, Labels::Sets(&set)).loss;
    assert_eq!(loss_of(&[-1e4, 1e4]), Some(1e4));
    assert_eq!((loss_of(&[1e4, -1e4]), loss_of(&[f32::NAN, 0.0])), (Some(0.0), None));
}

#[test]
fn the_first_of_equal_logits_is_the_prediction_and_zero_is_outside() {
    let report_single = report(single_spec(3), &[2.0, 2.0, 1.0], Labels::Classes(&[0]));
    assert_eq!(report_single.accuracy, Some(1.0));
    let mut labels = Vec::new();
    multi_spec(1).encode_multi(Some(&[]), &mut labels);
    assert_eq!(report(multi_spec(1), &[0.0], Labels::Sets(&labels)).accuracy, Some(1.0));
}

#[test]
fn many_classes_have_no_confusion_matrix_and_need_no_square_of_memory() {
    let classes = 1 << 20;
    let mut logits = vec![0.0; classes as usize];
    logits[77_777] = 1.0;
    let report = report(single_spec(classes), &logits, Labels::Classes(&[77_777]));
    assert_eq!((report.accuracy, report.confusion), (Some(1.0), None));
}

#[test]
#[should_panic(expected = "class 3 of 3")]
fn a_class_beyond_the_last_is_a_mistake() {
    report(single_spec(3), &[0.0; 3], Labels::Classes(&[3]));
}

#[test]
fn average_precision_is_the_mean_precision_at_the_nodes_of_the_class() {
    let (logits, labels) = single(5, 200, 2, 2);
    let found = report(single_spec(2), &logits, Labels::Classes(&labels));
    let nodes: Vec<(f32, bool)> = logits
        .chunks(2)
        .zip(&labels)
        .filter(|(_, label)| **label >= 0)
        .map(|(row, &label)| (row[1] - row[0], label == 1))
        .collect();
    // Precision among the nodes whose score is at least as high.
    let at = |score: f32, is_counted: &dyn Fn(&(f32, bool)) -> bool| {
        let above = nodes.iter().filter(|(other, _)| *other >= score);
        above.filter(|node| is_counted(node)).count() as f64
    };
    let inside: Vec<f32> = nodes.iter().filter(|(_, is_in)| *is_in).map(|(score, _)| *score).collect();
    let precisions = inside.iter().map(|&score| at(score, &|node| node.1) / at(score, &|_| true));
    assert_close(found.average_precision, precisions.sum::<f64>() / inside.len() as f64);
    let curve = &found.precision_recall;
    assert!(curve.is_sorted_by(|one, other| one[0] < other[0]) && curve.len() <= CURVE_POINTS_MAX);
    let [recall, precision] = *curve.last().unwrap();
    let lowest = inside.iter().copied().fold(f32::INFINITY, f32::min);
    assert_eq!((recall, precision), (1.0, inside.len() as f64 / at(lowest, &|_| true)));
}

#[test]
fn unknown_classes_do_not_count_and_known_ones_count_as_in_sets() {
    let spec = LabelSpec::new(LabelKind::Partial, 2);
    let nan = f32::NAN;
    let logits = [1.0, -2.0, 3.0, 0.5, -1.0, 2.0];
    let partial = report(spec, &logits, Labels::Values(&[1.0, nan, nan, nan, 1.0, 1.0]));
    assert_eq!((partial.nodes, partial.accuracy), (2, Some(0.5)));
    assert_eq!((partial.per_class[0].support, partial.per_class[1].predicted), (2, 1));
    let softplus = |x: f64| x.exp().ln_1p();
    let expected = (softplus(-1.0) + (softplus(1.0) + softplus(-2.0)) / 2.0) / 2.0;
    assert!((partial.loss.unwrap() - expected).abs() < 1e-9, "{partial:?}");

    let mut sets = Vec::new();
    for classes in [&[0][..], &[], &[0, 1]] {
        multi_spec(2).encode_multi(Some(classes), &mut sets);
    }
    let known = report(spec, &logits, Labels::Values(&[1.0, 0.0, 0.0, 0.0, 1.0, 1.0]));
    assert_eq!(known, report(multi_spec(2), &logits, Labels::Sets(&sets)));
}

#[test]
fn errors_of_targets_are_in_their_unit_and_missing_ones_do_not_count() {
    let spec = LabelSpec::new(LabelKind::Targets, 2);
    let scale = |loss| TargetScale { means: vec![100.0, 0.5], deviations: vec![50.0, 0.25], loss };
    let mut numbers = Numbers(11);
    let nodes = 300;
    let (mut predicted, mut targets) = (Vec::new(), Vec::new());
    for _ in 0..nodes {
        let [a, b] = [numbers.logit(), numbers.logit()];
        targets.extend(match numbers.below(4) {
            0 => [f32::NAN, b],
            1 => [f32::NAN; 2],
            _ => [100.0 + 40.0 * a, b],
        });
        predicted.extend([100.0 + 40.0 * numbers.logit(), b + 0.1 * numbers.logit()]);
    }
    let report_for = |loss| {
        let mut parts = [0, 1].map(|_| Scores::of_targets(spec, scale(loss)));
        for (index, (predicted, targets)) in predicted.chunks(2).zip(targets.chunks(2)).enumerate() {
            parts[index % 2].add(predicted, Labels::Values(targets));
        }
        let [mut even, mut odd] = parts;
        let mut by_words = even.clone();
        by_words.merge_words(&odd.as_words());
        even.merge(odd);
        let report = even.report();
        assert_eq!(by_words.report(), report, "as words");
        let mut whole = Scores::of_targets(spec, scale(loss));
        whole.add(&predicted, Labels::Values(&targets));
        assert_eq!(whole.report(), report, "all at once");
        report
    };
    let report = report_for(TargetLoss::Squared);
    let mut means = [0.0; 3];
    for target in [0, 1] {
        let pairs: Vec<(f64, f64)> = (0..nodes)
            .map(|node| 2 * node + target)
            .filter(|&at| !targets[at].is_nan())
            .map(|at| (predicted[at].into(), targets[at].into()))
            .collect();
        let count = pairs.len() as f64;
        let squares: f64 = pairs.iter().map(|(predicted, target)| (predicted - target).powi(2)).sum();
        let magnitudes: f64 = pairs.iter().map(|(predicted, target)| (predicted - target).abs()).sum();
        let mean = pairs.iter().map(|(_, target)| target).sum::<f64>() / count;
        let variance: f64 = pairs.iter().map(|(_, target)| (target - mean).powi(2)).sum();
        let expected = [(squares / count).sqrt(), magnitudes / count, 1.0 - squares / variance];
        let score = &report.per_target[target];
        for (found, expected) in [score.rmse, score.mae, score.r2].into_iter().zip(expected) {
            assert!((found.unwrap() - expected).abs() < 1e-6 * expected.abs(), "{score:?}");
        }
        (0..3).for_each(|at| means[at] += expected[at] / 2.0);
    }
    for (found, expected) in [report.rmse, report.mae, report.r2].into_iter().zip(means) {
        assert!((found.unwrap() - expected).abs() < 1e-6 * expected.abs(), "{report:?}");
    }
    assert_eq!((report.accuracy, report.micro_f1, report.roc_auc), (None, None, None));
    let huber = report_for(TargetLoss::Huber(0.5)).loss.unwrap();
    assert!(huber < 0.5 * report.loss.unwrap() && huber > 0.0, "{huber}");
    assert!(report.has_classes(2) && !report.has_classes(3));
}

#[test]
fn equal_targets_have_no_coefficient_of_determination() {
    let spec = LabelSpec::new(LabelKind::Targets, 1);
    for (mean, target) in [(0.1, 0.3), (5.0, 5.0), (1000.7, 3.33)] {
        let scale = TargetScale { means: vec![mean], deviations: vec![0.7], loss: TargetLoss::Squared };
        let mut parts = [0, 1].map(|_| Scores::of_targets(spec, scale.clone()));
        for part in &mut parts {
            part.add(&[0.2; 7], Labels::Values(&[target; 7]));
        }
        let [mut scores, mut other] = parts;
        scores.merge_words(&other.as_words());
        let report = scores.report();
        assert_eq!((report.r2, report.per_target[0].r2), (None, None), "{mean}, {target}");
        assert!(report.rmse.is_some());
    }
}
