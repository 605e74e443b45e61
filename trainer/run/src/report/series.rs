//! The values of a plot, reduced to a bounded number: a run may have more epochs than a screen has pixels.

/// Largest number of points of a line.
const POINTS_MAX: usize = 300;

/// Largest number of bars of a plot.
const BARS_MAX: usize = 100;

/// Largest number of epochs whose values the pointer can show.
const READINGS_MAX: usize = 400;

/// A series of a plot: one value per epoch, NaN if there is none.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub name: &'static str,
    /// CSS class of its color.
    pub color: &'static str,
    pub values: Vec<f64>,
}

/// A point of a line: an epoch, or the middle of several, with the minimum, mean and maximum of their values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub epoch: f64,
    pub least: f64,
    pub mean: f64,
    pub greatest: f64,
}

/// The line through the finite values. If there are too many, a point stands for several.
pub(super) fn line(epochs: &[f64], values: &[f64]) -> Vec<Point> {
    let finite: Vec<(f64, f64)> = epochs
        .iter()
        .copied()
        .zip(values.iter().copied())
        .filter(|(_, value)| value.is_finite())
        .collect();
    let count = finite.len().min(POINTS_MAX);
    let point = |group: &[(f64, f64)]| {
        let size = group.len() as f64;
        Point {
            epoch: (group[0].0 + group[group.len() - 1].0) / 2.0,
            least: group.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min),
            // Divides first, because the sum of finite values can overflow.
            mean: group.iter().map(|(_, value)| value / size).sum(),
            greatest: group.iter().map(|(_, value)| *value).fold(f64::NEG_INFINITY, f64::max),
        }
    };
    // Groups have about the same size. A small one at the end would look like an outlier.
    let start = |group: usize| group * finite.len() / count;
    (0..count)
        .map(|group| point(&finite[start(group)..start(group + 1)]))
        .collect()
}

/// A bar: a range of epochs, and for each series the mean of its finite values (0 if there are none).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub first: f64,
    pub last: f64,
    pub means: Vec<f64>,
}

/// The bars of a plot. Each stands for several epochs if there are too many.
pub(super) fn bars(epochs: &[f64], series: &[Series]) -> Vec<Bar> {
    let size = epochs_of_a_bar(epochs.len());
    let mean = |values: &[f64]| {
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        finite.iter().sum::<f64>() / finite.len().max(1) as f64
    };
    let starts = (0..epochs.len()).step_by(size);
    starts
        .map(|start| {
            let range = start..(start + size).min(epochs.len());
            Bar {
                first: epochs[range.start],
                last: epochs[range.end - 1],
                means: series
                    .iter()
                    .map(|series| mean(&series.values[range.clone()]))
                    .collect(),
            }
        })
        .collect()
}

/// Number of epochs per bar.
pub(super) fn epochs_of_a_bar(epochs: usize) -> usize {
    epochs.div_ceil(BARS_MAX).max(1)
}

/// Indices of the epochs whose values the pointer can show: the last epoch with a value, and others at equal distances.
pub(super) fn readings(series: &[Series]) -> Vec<usize> {
    let epochs = series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    let measured = |&index: &usize| series.iter().any(|series| series.values[index].is_finite());
    let measured: Vec<usize> = (0..epochs).filter(measured).collect();
    let step = measured.len().div_ceil(READINGS_MAX).max(1);
    let mut readings: Vec<usize> = measured.into_iter().rev().step_by(step).collect();
    readings.reverse();
    readings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(count: usize) -> Vec<f64> {
        (1..=count).map(|epoch| epoch as f64).collect()
    }

    #[test]
    fn few_points_are_all_there_but_for_those_that_are_no_numbers() {
        let values = [1.0, f64::NAN, 3.0, f64::INFINITY];
        let point = |epoch, value| Point {
            epoch,
            least: value,
            mean: value,
            greatest: value,
        };
        assert_eq!(line(&epochs(4), &values), [point(1.0, 1.0), point(3.0, 3.0)]);
        assert_eq!(line(&[], &[]), []);
    }

    #[test]
    fn many_points_become_few_and_lose_no_peak() {
        let mut values: Vec<f64> = (0..10_000).map(|i| f64::from(i % 2)).collect();
        values[5432] = f64::MAX;
        values[1234] = -50.0;
        let points = line(&epochs(10_000), &values);
        assert_eq!(points.len(), POINTS_MAX);
        assert!(points.is_sorted_by(|a, b| a.epoch < b.epoch));
        assert!(
            points
                .iter()
                .any(|point| point.greatest == f64::MAX && point.mean.is_finite())
        );
        assert!(points.iter().any(|point| point.least == -50.0));
        let first = points[0];
        assert_eq!((first.epoch, first.least, first.greatest), (17.0, 0.0, 1.0));
        assert!((first.mean - 16.0 / 33.0).abs() < 1e-12, "{}", first.mean);
    }

    #[test]
    fn bars_are_means_of_a_few_epochs_each() {
        let series = |values: Vec<f64>| Series {
            name: "a",
            color: "c1",
            values,
        };
        let few = bars(&epochs(2), &[series(vec![1.0, f64::NAN]), series(vec![2.0, 4.0])]);
        assert_eq!(
            few.iter().map(|bar| bar.means.clone()).collect::<Vec<_>>(),
            [[1.0, 2.0], [0.0, 4.0]]
        );
        let many = bars(&epochs(950), &[series(epochs(950))]);
        assert_eq!(many.len(), 95);
        assert_eq!((many[1].first, many[1].last, many[1].means[0]), (11.0, 20.0, 15.5));
        assert_eq!(bars(&[], &[series(Vec::new())]), []);
    }

    #[test]
    fn the_last_measured_epoch_can_always_be_read() {
        let of = |values: Vec<f64>| {
            readings(&[Series {
                name: "a",
                color: "c1",
                values,
            }])
        };
        assert_eq!(of(vec![1.0, f64::NAN, 3.0, f64::NAN]), [0, 2]);
        let many = of(epochs(10_000));
        assert!(many.len() <= READINGS_MAX && many.last() == Some(&9999));
        assert!(of(Vec::new()).is_empty() && readings(&[]).is_empty());
    }
}
