//! Scores as words, on their way from one process to another.
//!
//! ```text
//! nodes, right, undecided                          u64 each
//! sum of losses, whether one is infinite           u128, u32
//! support, predictions and hits of each class      u64 each
//! confusion matrix, row by row                     u64 each
//! each ranking: inside, outside                    a number of values in u64, then as many f32; for each
//! ```
//!
//! Words are 32 bits, the lower ones first. Both processes know the labels and whether scores are ranked, so the words say nothing of these.

use super::{ClassCounts, Scores, auc::Ranking, loss::LossSum};

impl Scores {
    /// The scores as words, for [`Scores::merge_words`] on another process.
    pub fn to_words(&self) -> Vec<u32> {
        let mut words = Vec::new();
        let (units, is_infinite) = self.losses.parts();
        for count in [
            self.nodes,
            self.right,
            self.undecided,
            units as u64,
            (units >> 64) as u64,
        ] {
            push(&mut words, count);
        }
        words.push(is_infinite.into());
        for counts in &self.counts {
            for count in [counts.support, counts.predicted, counts.hits] {
                push(&mut words, count);
            }
        }
        self.confusion.iter().for_each(|&count| push(&mut words, count));
        for side in self.rankings.iter().flat_map(Ranking::sides) {
            push(&mut words, side.len() as u64);
            words.extend(side.iter().map(|score| score.to_bits()));
        }
        words
    }

    /// Adds scores that another process made words of.
    ///
    /// # Panics
    /// If they are of other labels, or not ranked as these are.
    pub fn merge_words(&mut self, words: &[u32]) {
        let mut words = Words(words.iter());
        let mut other = Self {
            nodes: words.next(),
            right: words.next(),
            undecided: words.next(),
            losses: LossSum::of_parts(
                u128::from(words.next()) | u128::from(words.next()) << 64,
                words.next_half() != 0,
            ),
            counts: self.counts.iter().map(|_| words.next_counts()).collect(),
            confusion: self.confusion.iter().map(|_| words.next()).collect(),
            rankings: vec![Ranking::default(); self.rankings.len()],
            spec: self.spec,
        };
        for ranking in &mut other.rankings {
            ranking.extend([words.next_scores(), words.next_scores()]);
        }
        assert!(words.0.as_slice().is_empty(), "words of other scores");
        self.merge(other);
    }
}

fn push(words: &mut Vec<u32>, count: u64) {
    words.extend([count as u32, (count >> 32) as u32]);
}

/// The words that were not read yet.
struct Words<'a>(std::slice::Iter<'a, u32>);

impl Words<'_> {
    fn next_half(&mut self) -> u32 {
        *self.0.next().expect("words of other scores")
    }

    fn next(&mut self) -> u64 {
        let low = u64::from(self.next_half());
        low | u64::from(self.next_half()) << 32
    }

    fn next_counts(&mut self) -> ClassCounts {
        ClassCounts {
            support: self.next(),
            predicted: self.next(),
            hits: self.next(),
        }
    }

    fn next_scores(&mut self) -> Vec<f32> {
        let count = self.next() as usize;
        (0..count).map(|_| f32::from_bits(self.next_half())).collect()
    }
}
