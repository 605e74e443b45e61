//! The bits of each group of rows.
//!
//! The variance of a group at b bits is its score / (2^b - 1)^2, which is convex in b, and so is it in bytes. So for a fixed time, it is best
//! to take the step with the largest drop of variance per byte again and again, until a channel is full. Variance is convex in time, and a
//! search over the time finds the best compromise.

/// The bits that a value may have.
pub(super) const BITS: [u8; 3] = [2, 4, 8];
/// The weight of the variance, against the time of the slowest channel.
const VARIANCE_WEIGHT: f64 = 0.5;
/// Halvings of the interval of times.
const SEARCH_STEPS: u32 = 40;

/// Rows that get the same bits.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Its variance at 1 bit.
    pub(super) score: f64,
    /// Its bytes with each of [`BITS`].
    pub(super) bytes: [u64; 3],
}

impl Group {
    fn variance(&self, choice: usize) -> f64 {
        let levels = f64::from((1u32 << BITS[choice]) - 1);
        self.score / (levels * levels)
    }
}

/// The steps from the fewest bits upwards in a channel, best first.
struct Channel<'a> {
    groups: &'a [Group],
    /// The group, and its choice after the step.
    steps: Vec<(usize, usize)>,
}

impl<'a> Channel<'a> {
    fn new(groups: &'a [Group]) -> Self {
        let gain = |&(group, choice): &(usize, usize)| {
            let group = &groups[group];
            let bytes = group.bytes[choice] - group.bytes[choice - 1];
            (group.variance(choice - 1) - group.variance(choice)) / bytes as f64
        };
        let mut steps: Vec<(usize, usize)> =
            (0..groups.len()).flat_map(|group| (1..BITS.len()).map(move |choice| (group, choice))).collect();
        // A group's first step gains more per byte than its second, so they stay in order.
        steps.sort_by(|a, b| gain(b).total_cmp(&gain(a)).then(a.1.cmp(&b.1)));
        Self { groups, steps }
    }

    /// The choices of the groups if the channel sends at most `limit` bytes.
    fn choices(&self, limit: u64) -> Vec<usize> {
        let mut choices = vec![0; self.groups.len()];
        let mut bytes: u64 = self.groups.iter().map(|group| group.bytes[0]).sum();
        for &(group, choice) in &self.steps {
            let more = self.groups[group].bytes[choice] - self.groups[group].bytes[choice - 1];
            if choices[group] + 1 == choice && bytes + more <= limit {
                bytes += more;
                choices[group] = choice;
            }
        }
        choices
    }

    fn bytes(&self, choices: &[usize]) -> u64 {
        self.groups.iter().zip(choices).map(|(group, &choice)| group.bytes[choice]).sum()
    }

    fn variance(&self, choices: &[usize]) -> f64 {
        self.groups.iter().zip(choices).map(|(group, &choice)| group.variance(choice)).sum()
    }
}

/// The bits of each group of each channel.
pub(super) fn widths(channels: &[Vec<Group>]) -> Vec<Vec<u8>> {
    let channels: Vec<Channel<'_>> = channels.iter().map(|groups| Channel::new(groups)).collect();
    let limit_of = |choice| channels.iter().map(|channel| channel.bytes(&vec![choice; channel.groups.len()])).max();
    let (Some(mut low), Some(mut high)) = (limit_of(0), limit_of(BITS.len() - 1)) else {
        return Vec::new();
    };
    let (largest_time, largest_variance) = (high as f64, variance(&channels, 0));
    let cost = |limit: u64| {
        let (mut time, mut variance) = (0, 0.0);
        for channel in &channels {
            let choices = channel.choices(limit);
            time = time.max(channel.bytes(&choices));
            variance += channel.variance(&choices);
        }
        let relative = if largest_variance > 0.0 { variance / largest_variance } else { 0.0 };
        VARIANCE_WEIGHT * relative + (1.0 - VARIANCE_WEIGHT) * time as f64 / largest_time
    };
    let mut best = (f64::INFINITY, low);
    for _ in 0..SEARCH_STEPS {
        let [left, right] = [low + (high - low) / 3, high - (high - low) / 3];
        for limit in [low, left, right, high] {
            let cost = cost(limit);
            if cost < best.0 {
                best = (cost, limit);
            }
        }
        match cost(left) <= cost(right) {
            true => high = right,
            false => low = left,
        }
        if high - low < 3 {
            break;
        }
    }
    let bits = |channel: &Channel<'_>| channel.choices(best.1).into_iter().map(|choice| BITS[choice]).collect();
    channels.iter().map(bits).collect()
}

fn variance(channels: &[Channel<'_>], choice: usize) -> f64 {
    channels.iter().map(|channel| channel.variance(&vec![choice; channel.groups.len()])).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(score: f64, rows: u64) -> Group {
        Group { score, bytes: BITS.map(|bits| rows * (8 * u64::from(bits) + 4)) }
    }

    /// The least cost of all choices.
    fn exhaustive(channels: &[Vec<Group>]) -> f64 {
        let count: usize = channels.iter().map(Vec::len).sum();
        (0..3usize.pow(count as u32))
            .map(|mut code| {
                let choices: Vec<Vec<u8>> = channels
                    .iter()
                    .map(|groups| {
                        let digit = |_| {
                            let bits = BITS[code % 3];
                            code /= 3;
                            bits
                        };
                        groups.iter().map(digit).collect()
                    })
                    .collect();
                cost_of(channels, &choices)
            })
            .fold(f64::INFINITY, f64::min)
    }

    fn cost_of(channels: &[Vec<Group>], bits: &[Vec<u8>]) -> f64 {
        let place = |bits: u8| BITS.iter().position(|&other| other == bits).unwrap();
        let sums = |choice_of: &dyn Fn(usize, usize) -> usize| {
            let (mut time, mut variance) = (0u64, 0.0);
            for (at, groups) in channels.iter().enumerate() {
                let choices = (0..groups.len()).map(|index| choice_of(at, index));
                let chosen: Vec<(&Group, usize)> = groups.iter().zip(choices).collect();
                time = time.max(chosen.iter().map(|(group, choice)| group.bytes[*choice]).sum());
                variance += chosen.iter().map(|(group, choice)| group.variance(*choice)).sum::<f64>();
            }
            (time as f64, variance)
        };
        let (time, variance) = sums(&|at, index| place(bits[at][index]));
        let ((_, most_variance), (most_time, _)) = (sums(&|_, _| 0), sums(&|_, _| 2));
        0.5 * variance / most_variance + 0.5 * time / most_time
    }

    #[test]
    fn the_choice_is_nearly_the_best_of_all() {
        for seed in 0..20u32 {
            let draw = |at: u32| f64::from((seed * 7919 + at * 104_729) % 1000 + 1);
            let channels: Vec<Vec<Group>> = (0..2)
                .map(|channel| {
                    (0..4).map(|index| group(draw(channel * 4 + index).powi(2), 3 + u64::from(index))).collect()
                })
                .collect();
            let found = cost_of(&channels, &widths(&channels));
            let best = exhaustive(&channels);
            assert!(found <= best * 1.02, "{found}, and the best is {best}");
        }
    }

    #[test]
    fn rows_without_variance_get_the_fewest_bits() {
        let channels = [vec![group(0.0, 5), group(0.0, 5)]];
        assert_eq!(widths(&channels), [vec![2, 2]]);
        assert!(widths(&[]).is_empty());
    }
}
