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
//! edges without a filtered rank                    u64
//! ranking: edges, pairs                            as above
//! sources                                          u64
//! at each K: sums of recall, precision and NDCG    u128, u32 each
//! ```
//!
//! Words are 32 bits, the lower ones first. Both processes know the labels and whether scores are ranked, so the words say nothing of these.

use super::{ClassCounts, Scores, auc::Ranking, loss::LossSum, targets::TargetSums};

impl Scores {
    /// The scores as words, for [`Scores::merge_words`] on another process.
    pub fn as_words(&mut self) -> Vec<u32> {
        let mut words = Words::default();
        self.pass(&mut words);
        words.written
    }

    /// Adds scores that another process made words of.
    ///
    /// # Panics
    /// If they are of other labels, or not ranked as these are.
    pub fn merge_words(&mut self, words: &[u32]) {
        let mut other = Self {
            nodes: 0,
            right: 0,
            undecided: 0,
            losses: LossSum::default(),
            counts: vec![ClassCounts::default(); self.counts.len()],
            confusion: vec![0; self.confusion.len()],
            rankings: vec![Ranking::default(); self.rankings.len()],
            targets: vec![TargetSums::default(); self.targets.len()],
            scale: None,
            spec: self.spec,
        };
        Words::read(words, |words| other.pass(words));
        self.merge(other);
    }

    fn pass(&mut self, words: &mut Words<'_>) {
        for count in [&mut self.nodes, &mut self.right, &mut self.undecided] {
            words.count(count);
        }
        words.sum(&mut self.losses);
        for counts in &mut self.counts {
            for count in [&mut counts.support, &mut counts.predicted, &mut counts.hits] {
                words.count(count);
            }
        }
        self.confusion.iter_mut().for_each(|count| words.count(count));
        self.rankings.iter_mut().for_each(|ranking| words.ranking(ranking));
        for target in &mut self.targets {
            words.count(&mut target.nodes);
            target.sums.iter_mut().for_each(|sum| words.sum(sum));
            let mut offset = target.offset.cast_unsigned();
            words.wide(&mut offset);
            target.offset = offset.cast_signed();
            target.range.iter_mut().for_each(|bound| words.value(bound));
        }
    }
}

/// Words on their way to another process, or from it. Each function writes a value, or replaces it by the value that it reads.
#[derive(Default)]
pub(super) struct Words<'a> {
    pub written: Vec<u32>,
    /// None if words are written.
    unread: Option<&'a [u32]>,
}

impl<'a> Words<'a> {
    /// Lets `pass` read all words.
    ///
    /// # Panics
    /// If words are left, or there are too few.
    pub fn read(words: &'a [u32], pass: impl FnOnce(&mut Self)) {
        let mut words = Self { written: Vec::new(), unread: Some(words) };
        pass(&mut words);
        assert!(words.unread.is_some_and(<[u32]>::is_empty), "words of other scores");
    }

    fn word(&mut self, word: &mut u32) {
        let Some(unread) = &mut self.unread else { return self.written.push(*word) };
        *word = *unread.split_off_first().expect("words of other scores");
    }

    /// A count.
    pub fn count(&mut self, count: &mut u64) {
        let [mut low, mut high] = [*count as u32, (*count >> 32) as u32];
        self.word(&mut low);
        self.word(&mut high);
        *count = u64::from(low) | u64::from(high) << 32;
    }

    fn value(&mut self, value: &mut f32) {
        let mut bits = value.to_bits();
        self.word(&mut bits);
        *value = f32::from_bits(bits);
    }

    fn wide(&mut self, value: &mut u128) {
        let [mut low, mut high] = [*value as u64, (*value >> 64) as u64];
        self.count(&mut low);
        self.count(&mut high);
        *value = u128::from(low) | u128::from(high) << 64;
    }

    /// A sum of losses.
    pub fn sum(&mut self, sum: &mut LossSum) {
        let mut is_infinite = sum.is_infinite.into();
        self.wide(&mut sum.units);
        self.word(&mut is_infinite);
        sum.is_infinite = is_infinite != 0;
    }

    /// Both sides of a ranking.
    pub fn ranking(&mut self, ranking: &mut Ranking) {
        for side in [&mut ranking.inside, &mut ranking.outside] {
            let mut count = side.len() as u64;
            self.count(&mut count);
            assert!(self.unread.is_none_or(|unread| count <= unread.len() as u64), "words of other scores");
            side.resize(count as usize, 0.0);
            for score in side {
                self.value(score);
            }
        }
    }
}
