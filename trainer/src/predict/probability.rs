//! Classes and their probabilities, from logits; or targets.

use grappa_run::{model::Task, scores::largest};

/// The class of the largest logit with its probability, or for multi-label tasks the labels with logits above 0. In regression, all
/// targets with their values. None if a value is NaN.
pub(super) fn predicted(task: Task, logits: &[f32]) -> Vec<(u64, f32)> {
    let Some(best) = largest(logits) else {
        return Vec::new();
    };
    match task {
        Task::MultiClass => vec![(best as u64, probability(logits, best))],
        Task::MultiLabel => (0..)
            .zip(logits)
            .filter(|(_, logit)| **logit > 0.0)
            .map(|(class, logit)| (class, sigmoid(*logit)))
            .collect(),
        Task::Regression | Task::Links => (0..).zip(logits.iter().copied()).collect(),
    }
}

/// The probability of the class with the largest logit.
pub(super) fn probability(logits: &[f32], best: usize) -> f32 {
    let sum: f32 = logits.iter().map(|logit| (logit - logits[best]).exp()).sum();
    sum.recip()
}

/// The probability of each class.
///
/// # Panics
/// If there are no classes.
pub(super) fn probabilities(task: Task, logits: &[f32]) -> Vec<f32> {
    match (task, largest(logits)) {
        (_, None) => vec![f32::NAN; logits.len()],
        (Task::MultiClass, Some(best)) => {
            let scale = probability(logits, best);
            logits.iter().map(|logit| (logit - logits[best]).exp() * scale).collect()
        }
        (Task::Regression | Task::Links, Some(_)) => unreachable!("targets and links have no classes"),
        (Task::MultiLabel, Some(_)) => logits.iter().map(|logit| sigmoid(*logit)).collect(),
    }
}

fn sigmoid(logit: f32) -> f32 {
    (1.0 + (-logit).exp()).recip()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_the_largest_logit_or_of_those_above_zero() {
        let logits = [1.0, 3.0, 3.0, -2.0];
        let [(class, probability)] = predicted(Task::MultiClass, &logits)[..] else { panic!("one class") };
        let expected = 3f32.exp() / logits.iter().map(|logit: &f32| logit.exp()).sum::<f32>();
        assert_eq!(class, 1, "the first of the largest");
        assert!((probability - expected).abs() < 1e-6, "{probability} {expected}");
        let classes = predicted(Task::MultiLabel, &[0.0, 2.0, -1.0, 1e9]);
        assert_eq!(classes.iter().map(|(class, _)| *class).collect::<Vec<_>>(), [1, 3]);
        assert!((classes[0].1 - 0.880_797).abs() < 1e-6);
        assert_eq!(classes[1].1, 1.0);
        for task in [Task::MultiClass, Task::MultiLabel] {
            assert_eq!(predicted(task, &[1.0, f32::NAN]), []);
        }
        // Large logits do not overflow.
        assert_eq!(predicted(Task::MultiClass, &[1e30, -1e30]), [(0, 1.0)]);
    }

    #[test]
    fn probabilities_of_all_classes_agree_with_the_prediction() {
        let logits = [1.0, 3.0, 2.0];
        let all = probabilities(Task::MultiClass, &logits);
        assert!((all.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{all:?}");
        assert_eq!(predicted(Task::MultiClass, &logits), [(1, all[1])]);
        assert!(all[2] > all[0]);
        let sets = probabilities(Task::MultiLabel, &[0.0, 2.0]);
        assert_eq!(sets[0], 0.5);
        assert_eq!(predicted(Task::MultiLabel, &[0.0, 2.0]), [(1, sets[1])]);
        for task in [Task::MultiClass, Task::MultiLabel] {
            assert!(probabilities(task, &[1.0, f32::NAN]).iter().all(|value| value.is_nan()));
        }
    }
}
