//! The area under the receiver operating characteristic, exactly; and the curve of precision by recall.

/// The most points of a curve of precision by recall.
pub const CURVE_POINTS_MAX: usize = 200;

/// The scores of nodes that are in a class, and of those that are not.
#[derive(Debug, Clone, Default)]
pub(super) struct Ranking {
    pub(super) inside: Vec<f32>,
    pub(super) outside: Vec<f32>,
}

impl Ranking {
    pub(super) fn add(&mut self, score: f32, is_in: bool) {
        let side = if is_in { &mut self.inside } else { &mut self.outside };
        side.push(score);
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.inside.extend(other.inside);
        self.outside.extend(other.outside);
    }

    /// The probability that a node in the class has a higher score than one that is not, ties counting half. None if all
    /// are inside or all outside, or a score is NaN.
    pub(super) fn area(&mut self) -> Option<f64> {
        let [nodes, others] = [self.inside.len(), self.outside.len()];
        // In halves of a pair. Up to 2^64 pairs, so twice as many halves need more than 64 bits.
        let mut won_halves: u128 = 0;
        let mut before = 0;
        self.each_threshold(|inside, [above, not_below]| {
            won_halves += (inside - before) as u128 * (2 * others - above - not_below) as u128;
            before = inside;
        })?;
        (others > 0).then(|| won_halves as f64 / (2 * nodes as u128 * others as u128) as f64)
    }

    /// The mean precision at the rank of each node in the class. None if no node is inside, or a score is NaN.
    pub(super) fn average_precision(&mut self) -> Option<f64> {
        let nodes = self.inside.len() as f64;
        let (mut sum, mut before) = (0.0, 0);
        self.each_threshold(|inside, [_, outside]| {
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
        let found = self.each_threshold(|inside, [_, outside]| {
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

    /// Calls `each` for each score of a node that is inside, from the highest on: with the number of nodes inside whose score is at least
    /// this, and the numbers of nodes outside whose score is higher, and at least this. None if no node is inside, or a score is NaN.
    fn each_threshold(&mut self, mut each: impl FnMut(usize, [usize; 2])) -> Option<()> {
        let Self { inside, outside } = self;
        if inside.is_empty() || inside.iter().chain(outside.iter()).any(|score| score.is_nan()) {
            return None;
        }
        // Zeros of both signs are equal to the comparisons below, and next to each other in this order.
        inside.sort_unstable_by(f32::total_cmp);
        outside.sort_unstable_by(f32::total_cmp);
        let (mut found, mut above, mut not_below) = (0, 0, 0);
        while found < inside.len() {
            let score = inside[inside.len() - 1 - found];
            while found < inside.len() && inside[inside.len() - 1 - found] >= score {
                found += 1;
            }
            while above < outside.len() && outside[outside.len() - 1 - above] > score {
                above += 1;
            }
            while not_below < outside.len() && outside[outside.len() - 1 - not_below] >= score {
                not_below += 1;
            }
            each(found, [above, not_below]);
        }
        Some(())
    }
}
