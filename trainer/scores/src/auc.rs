//! The area under the receiver operating characteristic, exactly; and the curve of precision by recall.

/// The most points of a curve of precision by recall.
pub const CURVE_POINTS_MAX: usize = 200;

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

    /// The mean precision at the rank of each node in the class. None if no node is inside, or a score is NaN.
    pub(super) fn average_precision(&mut self) -> Option<f64> {
        let nodes = self.inside.len() as f64;
        let (mut sum, mut before) = (0.0, 0);
        self.each_threshold(|inside, outside| {
            sum += (inside - before) as f64 * inside as f64 / (inside + outside) as f64;
            before = inside;
        })?;
        Some(sum / nodes)
    }

    /// Recall and precision at up to [`CURVE_POINTS_MAX`] thresholds, the highest first. Empty without average precision.
    pub(super) fn precision_recall(&mut self) -> Vec<[f64; 2]> {
        let nodes = self.inside.len();
        let mut points = Vec::new();
        let mut next = 0.0;
        let found = self.each_threshold(|inside, outside| {
            let recall = inside as f64 / nodes as f64;
            if recall >= next || inside == nodes {
                points.push([recall, inside as f64 / (inside + outside) as f64]);
                next = recall + 1.0 / (CURVE_POINTS_MAX - 1) as f64;
            }
            // Recall stays 1 at lower thresholds.
            if inside == nodes {
                next = f64::INFINITY;
            }
        });
        // Of points with recall 1, the first one.
        let end = points.iter().position(|[recall, _]| *recall == 1.0);
        points.truncate(end.map_or(points.len(), |end| end + 1));
        found.map_or_else(Vec::new, |()| points)
    }

    /// Calls `each` with the numbers of nodes inside and outside whose score is at least a threshold, for each score of a node that is
    /// inside, from the highest on. None if no node is inside, or a score is NaN.
    fn each_threshold(&mut self, mut each: impl FnMut(usize, usize)) -> Option<()> {
        let Self { inside, outside } = self;
        if inside.is_empty() || inside.iter().chain(outside.iter()).any(|score| score.is_nan()) {
            return None;
        }
        inside.sort_unstable_by(f32::total_cmp);
        outside.sort_unstable_by(f32::total_cmp);
        let (mut found, mut above) = (0, 0);
        while found < inside.len() {
            let score = inside[inside.len() - 1 - found];
            while found < inside.len() && inside[inside.len() - 1 - found] >= score {
                found += 1;
            }
            while above < outside.len() && outside[outside.len() - 1 - above] >= score {
                above += 1;
            }
            each(found, above);
        }
        Some(())
    }
}
