//! The values of a plot, reduced to a bounded number: a run may have more epochs than a screen has pixels.

/// Largest number of points of a line.
const POINTS_MAX: usize = 300;

/// Largest number of bars of a plot.
const BARS_MAX: usize = 100;

/// Largest number of places whose values can be read, besides those at which legends rest.
const STOPS_MAX: usize = 400;

#[derive(Debug, Clone, Default)]
pub(super) struct Series {
    pub name: String,
    /// CSS class of its color.
    pub color: String,
    /// Ascending.
    pub samples: Vec<Sample>,
    /// The place whose value the legend has while no other place is chosen.
    pub rest: Option<f64>,
    /// A number about the whole series, which the legend has at rest in place of that value.
    pub whole: Option<f64>,
    /// Places to mark with dots; none: all, unless there are many.
    pub marks: Option<Vec<f64>>,
}

/// A value at a place of the horizontal axis, where the series was to be measured. NaN if it was not, which leaves a gap.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Sample {
    pub x: f64,
    pub value: f64,
}

impl Series {
    /// The values that are numbers.
    pub(super) fn finite(&self) -> impl Iterator<Item = Sample> {
        self.samples.iter().copied().filter(Sample::is_finite)
    }

    /// The value at a place; NaN if there is none.
    pub(super) fn at(&self, x: f64) -> f64 {
        let found = self.samples.binary_search_by(|sample| sample.x.total_cmp(&x));
        found.map_or(f64::NAN, |index| self.samples[index].value)
    }

    /// The last value at a place or before it; NaN if there is none.
    pub(super) fn until(&self, x: f64) -> f64 {
        let end = self.samples.partition_point(|sample| sample.x <= x);
        let last = self.samples[..end].iter().rev().find(|sample| sample.is_finite());
        last.map_or(f64::NAN, |sample| sample.value)
    }

    /// The number that the legend has at rest.
    pub(super) fn resting(&self) -> f64 {
        self.whole.or_else(|| Some(self.at(self.rest?))).unwrap_or(f64::NAN)
    }
}

impl Sample {
    fn is_finite(&self) -> bool {
        self.value.is_finite()
    }
}

/// A point of a line: a place, or the middle of several, with the minimum, mean and maximum of their values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub x: f64,
    pub least: f64,
    pub mean: f64,
    pub greatest: f64,
}

impl Point {
    /// None if no sample has a value.
    fn from_samples(samples: &[Sample]) -> Option<Self> {
        let finite: Vec<Sample> = samples.iter().copied().filter(Sample::is_finite).collect();
        let (first, last) = (finite.first()?, finite.last()?);
        let size = finite.len() as f64;
        Some(Self {
            x: (first.x + last.x) / 2.0,
            least: finite.iter().fold(f64::INFINITY, |least, sample| least.min(sample.value)),
            // Divides first, because the sum of finite values can overflow.
            mean: finite.iter().map(|sample| sample.value / size).sum(),
            greatest: finite.iter().fold(f64::NEG_INFINITY, |greatest, sample| greatest.max(sample.value)),
        })
    }
}

/// The parts of a line. It ends at each gap and begins anew after it. If there are too many samples, a point stands for several.
pub(super) fn line(samples: &[Sample]) -> Vec<Vec<Point>> {
    let count = samples.len().min(POINTS_MAX);
    // Groups have about the same size. A small one at the end would look like an outlier.
    let points: Vec<Option<Point>> = (0..count)
        .map(|group| Point::from_samples(&samples[group * samples.len() / count..(group + 1) * samples.len() / count]))
        .collect();
    points
        .split(Option::is_none)
        .filter(|part| !part.is_empty())
        .map(|part| part.iter().flatten().copied().collect())
        .collect()
}

/// A bar: a range of epochs, and for each series the mean of its finite values (0 if there are none).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bar {
    pub first: f64,
    pub last: f64,
    pub means: Vec<f64>,
}

/// The bars of series with samples at the same places. Each bar stands for several epochs if there are too many.
pub(super) fn bars(series: &[Series]) -> Vec<Bar> {
    let epochs = series.first().map_or(&[][..], |series| &series.samples);
    let size = epochs_of_a_bar(epochs.len());
    (0..epochs.len())
        .step_by(size)
        .map(|start| {
            let range = start..(start + size).min(epochs.len());
            Bar {
                first: epochs[range.start].x,
                last: epochs[range.end - 1].x,
                means: series
                    .iter()
                    .map(|series| Point::from_samples(&series.samples[range.clone()]).map_or(0.0, |point| point.mean))
                    .collect(),
            }
        })
        .collect()
}

pub(super) fn epochs_of_a_bar(epochs: usize) -> usize {
    epochs.div_ceil(BARS_MAX).max(1)
}

/// The places whose values can be read: the last one with a value, others at equal distances, and those at which legends rest.
pub(super) fn stops(series: &[Series]) -> Vec<f64> {
    let mut places: Vec<f64> = series.iter().flat_map(Series::finite).map(|sample| sample.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (last, step) = (places.len(), places.len().div_ceil(STOPS_MAX).max(1));
    let rests: Vec<f64> = series.iter().filter_map(|series| series.rest).collect();
    let kept = places.into_iter().zip(1..);
    kept.filter(|(place, number)| (last - number).is_multiple_of(step) || rests.contains(place))
        .map(|(place, _)| place)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A series with values at 1, 2, 3 and so on.
    fn series(values: impl IntoIterator<Item = f64>) -> Series {
        let samples = (1..).zip(values);
        Series {
            name: "a".to_owned(),
            color: "c1".to_owned(),
            samples: samples.map(|(x, value)| Sample { x: x.into(), value }).collect(),
            ..Series::default()
        }
    }

    fn numbers(count: u32) -> impl Iterator<Item = f64> {
        (1..=count).map(f64::from)
    }

    #[test]
    fn a_line_ends_where_a_value_is_missing_and_begins_anew_after_it() {
        let point = |x, value| Point { x, least: value, mean: value, greatest: value };
        let values = [1.0, 2.0, f64::NAN, 4.0, f64::INFINITY, f64::NAN, 7.0];
        assert_eq!(
            line(&series(values).samples),
            [vec![point(1.0, 1.0), point(2.0, 2.0)], vec![point(4.0, 4.0)], vec![point(7.0, 7.0)]]
        );
        assert!(line(&[]).is_empty());
    }

    #[test]
    fn many_points_become_few_and_lose_no_peak() {
        let mut many = series((0..10_000).map(|i| f64::from(i % 2)));
        many.samples[5432].value = f64::MAX;
        many.samples[1234].value = -50.0;
        let parts = line(&many.samples);
        let [points] = &parts[..] else { panic!("{} parts", parts.len()) };
        assert_eq!(points.len(), POINTS_MAX);
        assert!(points.is_sorted_by(|a, b| a.x < b.x));
        assert!(points.iter().any(|point| point.greatest == f64::MAX && point.mean.is_finite()));
        assert!(points.iter().any(|point| point.least == -50.0));
        let first = points[0];
        assert_eq!((first.x, first.least, first.greatest), (17.0, 0.0, 1.0));
        assert!((first.mean - 16.0 / 33.0).abs() < 1e-12, "{}", first.mean);
    }

    #[test]
    fn bars_are_means_of_a_few_epochs_each() {
        let few = bars(&[series([1.0, f64::NAN]), series([2.0, 4.0])]);
        assert_eq!(few.iter().map(|bar| bar.means.clone()).collect::<Vec<_>>(), [[1.0, 2.0], [0.0, 4.0]]);
        let many = bars(&[series(numbers(950))]);
        assert_eq!(many.len(), 95);
        assert_eq!((many[1].first, many[1].last, many[1].means[0]), (11.0, 20.0, 15.5));
        assert_eq!(bars(&[series([])]), []);
    }

    #[test]
    fn the_last_measured_place_and_the_resting_one_can_always_be_read() {
        assert_eq!(stops(&[series([1.0, f64::NAN, 3.0, f64::NAN])]), [1.0, 3.0]);
        let mut many = series(numbers(10_000));
        for rest in [None, Some(1234.0), Some(1235.0)] {
            many.rest = rest;
            let stops = stops(std::slice::from_ref(&many));
            assert!(stops.len() <= STOPS_MAX + 1 && stops.last() == Some(&10_000.0));
            assert!(rest.is_none_or(|rest| stops.contains(&rest)));
        }
        assert!(stops(&[series([])]).is_empty() && stops(&[]).is_empty());
    }

    #[test]
    fn a_value_is_that_of_a_place_or_the_last_one_before() {
        let series = series([1.0, f64::NAN, 3.0]);
        assert!(series.at(2.0).is_nan() && series.at(2.5).is_nan() && series.until(0.5).is_nan());
        assert_eq!([series.at(3.0), series.until(2.5), series.until(9.0)], [3.0, 1.0, 3.0]);
    }
}
