//! The area under the receiver operating characteristic, exactly.

/// The scores of nodes that are in a class, and of those that are not.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranking {
    inside: Vec<f32>,
    outside: Vec<f32>,
}

impl Ranking {
    /// Adds a node.
    pub(super) fn add(&mut self, score: f32, is_in: bool) {
        if is_in {
            self.inside.push(score);
        } else {
            self.outside.push(score);
        }
    }

    /// Adds the nodes of another.
    pub(super) fn merge(&mut self, other: Self) {
        self.extend([other.inside, other.outside]);
    }

    /// The scores of nodes that are in the class, and of those that are not.
    pub(super) fn sides(&self) -> [&[f32]; 2] {
        [&self.inside, &self.outside]
    }

    /// Adds nodes that are in the class, and nodes that are not.
    pub(super) fn extend(&mut self, [inside, outside]: [Vec<f32>; 2]) {
        self.inside.extend(inside);
        self.outside.extend(outside);
    }

    /// The probability that a node in the class has a higher score than one that is not, ties counting half. None if all
    /// are inside or all outside, or a score is NaN.
    pub(super) fn area(&mut self) -> Option<f64> {
        let Self { inside, outside } = self;
        let mut scores = inside.iter().chain(outside.iter());
        if inside.is_empty() || outside.is_empty() || scores.any(|score| score.is_nan()) {
            return None;
        }
        // Zeros of both signs are equal to the comparisons below, and next to each other in this order.
        inside.sort_unstable_by(f32::total_cmp);
        outside.sort_unstable_by(f32::total_cmp);
        // In halves of a pair. Up to 2^64 pairs, so twice as many halves need more than 64 bits.
        let mut won_halves: u128 = 0;
        let (mut below, mut not_above) = (0, 0);
        for score in inside.iter() {
            while below < outside.len() && outside[below] < *score {
                below += 1;
            }
            while not_above < outside.len() && outside[not_above] <= *score {
                not_above += 1;
            }
            won_halves += (below + not_above) as u128;
        }
        let pairs = inside.len() as u128 * outside.len() as u128;
        Some(won_halves as f64 / (2 * pairs) as f64)
    }
}
