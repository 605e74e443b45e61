//! Scores as words, on their way from one process to another.
//!
//! ```text
//! nodes, right, undecided                          u64 each
//! sum of losses, whether one is infinite           u128, u32
//! support, predictions and hits of each class      u64 each
//! confusion matrix, row by row                     u64 each
//! each ranking: inside, outside                    a number of values in u64, then as many f32; for each
//! each target: nodes                               u64
//!     sums of squares, magnitudes and targets      u128, u32 each, as the sum of losses
//!     sum of offsets                               i128
//! ```
//!
//! Scores of links ([`LinkScores`](super::LinkScores)):
//!
//! ```text
//! filtered, raw: edges, hits at each place         u64 each
//!     sum of reciprocal ranks                      u128, u32
//! ranking: edges, pairs                            as above
//! ```
//!
//! Words are 32 bits, the lower ones first. Both processes know the labels and whether scores are ranked, so the words say nothing of these.

use super::{ClassCounts, Scores, auc::Ranking, loss::LossSum, targets::TargetSums};

impl Scores {
    /// The scores as words, for [`Scores::merge_words`] on another process.
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        for count in [self.nodes, self.right, self.undecided] {
            push(&mut words, count);
        }
        push_sum(&mut words, self.losses);
        for counts in &self.counts {
            for count in [counts.support, counts.predicted, counts.hits] {
                push(&mut words, count);
            }
        }
        self.confusion.iter().for_each(|&count| push(&mut words, count));
        self.rankings.iter().for_each(|ranking| push_ranking(&mut words, ranking));
        for target in &self.targets {
            push(&mut words, target.nodes);
            target.sums.into_iter().for_each(|sum| push_sum(&mut words, sum));
            push(&mut words, target.offset as u64);
            push(&mut words, (target.offset >> 64) as u64);
        }
        words
    }

    /// Adds scores that another process made words of.
    ///
    /// # Panics
    /// If they are of other labels, or not ranked as these are.
    pub fn merge_words(&mut self, words: &[u32]) {
        let mut words = Words::new(words);
        let mut other = Self {
            nodes: words.next(),
            right: words.next(),
            undecided: words.next(),
            losses: words.next_sum(),
            counts: self.counts.iter().map(|_| words.next_counts()).collect(),
            confusion: self.confusion.iter().map(|_| words.next()).collect(),
            rankings: vec![Ranking::default(); self.rankings.len()],
            targets: Vec::new(),
            scale: None,
            spec: self.spec,
        };
        for ranking in &mut other.rankings {
            *ranking = words.next_ranking();
        }
        other.targets = self.targets.iter().map(|_| words.next_target()).collect();
        words.finish();
        self.merge(other);
    }
}

/// Appends a count.
pub(super) fn push(words: &mut Vec<u32>, count: u64) {
    words.extend([count as u32, (count >> 32) as u32]);
}

/// Appends a sum of losses.
pub(super) fn push_sum(words: &mut Vec<u32>, sum: LossSum) {
    let (units, is_infinite) = sum.parts();
    push(words, units as u64);
    push(words, (units >> 64) as u64);
    words.push(is_infinite.into());
}

/// Appends both sides of a ranking.
pub(super) fn push_ranking(words: &mut Vec<u32>, ranking: &Ranking) {
    for side in ranking.sides() {
        push(words, side.len() as u64);
        words.extend(side.iter().map(|score| score.to_bits()));
    }
}

/// The words that were not read yet.
pub(super) struct Words<'a>(std::slice::Iter<'a, u32>);

impl<'a> Words<'a> {
    /// All words.
    pub fn new(words: &'a [u32]) -> Self {
        Self(words.iter())
    }

    /// # Panics
    /// If words are left.
    pub fn finish(self) {
        assert!(self.0.as_slice().is_empty(), "words of other scores");
    }

    fn next_half(&mut self) -> u32 {
        *self.0.next().expect("words of other scores")
    }

    /// A count.
    pub fn next(&mut self) -> u64 {
        let low = u64::from(self.next_half());
        low | u64::from(self.next_half()) << 32
    }

    fn next_counts(&mut self) -> ClassCounts {
        ClassCounts { support: self.next(), predicted: self.next(), hits: self.next() }
    }

    /// A sum of losses.
    pub fn next_sum(&mut self) -> LossSum {
        let units = u128::from(self.next()) | u128::from(self.next()) << 64;
        LossSum::of_parts(units, self.next_half() != 0)
    }

    fn next_target(&mut self) -> TargetSums {
        TargetSums {
            nodes: self.next(),
            sums: [self.next_sum(), self.next_sum(), self.next_sum()],
            offset: (u128::from(self.next()) | u128::from(self.next()) << 64).cast_signed(),
        }
    }

    /// Both sides of a ranking.
    pub fn next_ranking(&mut self) -> Ranking {
        let mut ranking = Ranking::default();
        ranking.extend([self.next_scores(), self.next_scores()]);
        ranking
    }

    fn next_scores(&mut self) -> Vec<f32> {
        let count = self.next() as usize;
        (0..count).map(|_| f32::from_bits(self.next_half())).collect()
    }
}
