//! Rankings of all destinations of sources: Recall@K, MAP@K and NDCG@K, as recommenders are compared.
//!
//! Definitions are those of PyTorch Geometric's `LinkPredRecall`, `LinkPredMAP` and `LinkPredNDCG`. For a source with n held-out destinations,
//! and its first K destinations by score:
//!
//! ```text
//! recall       held-out destinations among the K / n
//! precision    mean over min(K, n) of: for each held-out destination among the K, the share of held-out ones up to its place
//! NDCG         sum of 1 / log2(place + 1) of the held-out ones among the K / the same sum of the places 1 to min(K, n)
//! ```
//!
//! Each score is the mean over the sources that have a held-out destination. MAP@K is the mean of the precisions.

use serde::{Deserialize, Serialize};

use super::{loss::LossSum, words::Words};

/// The K of the scores.
pub const RANKED_AT: [u64; 4] = [10, 20, 50, 100];
/// The best destinations of a source that the scores need.
pub const RANKED_MAX: u64 = RANKED_AT[RANKED_AT.len() - 1];

/// Sums over sources.
#[derive(Debug, Clone, Default)]
pub struct SourceScores {
    sources: u64,
    at: [ScoresAt; RANKED_AT.len()],
}

/// Sums of the scores at a K.
#[derive(Debug, Clone, Copy, Default)]
struct ScoresAt {
    recall: LossSum,
    precision: LossSum,
    gain: LossSum,
}

impl SourceScores {
    /// Adds a source with this number of held-out destinations. `are_held_out` says whether each of its best destinations is one: the first
    /// [`RANKED_MAX`] of them, or all. Nothing happens if the source has no held-out destination.
    pub fn add(&mut self, are_held_out: &[bool], held_out: u64) {
        if held_out == 0 {
            return;
        }
        self.sources += 1;
        for (scores, at) in self.at.iter_mut().zip(RANKED_AT) {
            let (mut found, mut precision, mut gain) = (0, 0.0, 0.0);
            for (place, _) in (1..=at).zip(are_held_out).filter(|(_, is_held_out)| **is_held_out) {
                found += 1;
                precision += f64::from(found) / place as f64;
                gain += discount(place);
            }
            let most = held_out.min(at);
            scores.recall.add(f64::from(found) / held_out as f64);
            scores.precision.add(precision / most as f64);
            scores.gain.add(gain / (1..=most).map(discount).sum::<f64>());
        }
    }

    /// Adds the scores of other sources.
    pub fn merge(&mut self, other: &Self) {
        self.sources += other.sources;
        for (scores, other) in self.at.iter_mut().zip(other.at) {
            scores.recall.merge(other.recall);
            scores.precision.merge(other.precision);
            scores.gain.merge(other.gain);
        }
    }

    pub(super) fn pass(&mut self, words: &mut Words<'_>) {
        words.count(&mut self.sources);
        for scores in &mut self.at {
            for sum in [&mut scores.recall, &mut scores.precision, &mut scores.gain] {
                words.sum(sum);
            }
        }
    }

    /// None without sources.
    pub(super) fn report(&self) -> Option<SourceReport> {
        let sources = self.sources;
        if sources == 0 {
            return None;
        }
        let [recall_at_10, recall_at_20, recall_at_50, recall_at_100] = self.at.map(|at| at.recall.mean(sources));
        let [map_at_10, map_at_20, map_at_50, map_at_100] = self.at.map(|at| at.precision.mean(sources));
        let [ndcg_at_10, ndcg_at_20, ndcg_at_50, ndcg_at_100] = self.at.map(|at| at.gain.mean(sources));
        Some(SourceReport {
            sources,
            recall_at_10,
            recall_at_20,
            recall_at_50,
            recall_at_100,
            map_at_10,
            map_at_20,
            map_at_50,
            map_at_100,
            ndcg_at_10,
            ndcg_at_20,
            ndcg_at_50,
            ndcg_at_100,
        })
    }
}

/// The gain of a held-out destination at a place, counted from 1.
fn discount(place: u64) -> f64 {
    ((place + 1) as f64).log2().recip()
}

/// Scores of the rankings of sources. A mean is None if it is undefined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// Number of sources with a held-out destination.
    pub sources: u64,
    /// Mean share of the held-out destinations of a source that are among its best 10.
    pub recall_at_10: Option<f64>,
    /// Mean share that is among the best 20.
    pub recall_at_20: Option<f64>,
    /// Mean share that is among the best 50.
    pub recall_at_50: Option<f64>,
    /// Mean share that is among the best 100.
    pub recall_at_100: Option<f64>,
    /// Mean average precision of the best 10.
    pub map_at_10: Option<f64>,
    /// Mean average precision of the best 20.
    pub map_at_20: Option<f64>,
    /// Mean average precision of the best 50.
    pub map_at_50: Option<f64>,
    /// Mean average precision of the best 100.
    pub map_at_100: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 10.
    pub ndcg_at_10: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 20.
    pub ndcg_at_20: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 50.
    pub ndcg_at_50: Option<f64>,
    /// Mean normalized discounted cumulative gain of the best 100.
    pub ndcg_at_100: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(sources: &[(&[usize], u64)]) -> SourceScores {
        let mut scores = SourceScores::default();
        for &(places, held_out) in sources {
            let are_held_out: Vec<bool> = (1..=RANKED_MAX as usize).map(|place| places.contains(&place)).collect();
            scores.add(&are_held_out, held_out);
        }
        scores
    }

    fn assert_near(found: Option<f64>, expected: f64) {
        let found = found.unwrap();
        assert!((found - expected).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn scores_are_means_over_sources_of_the_places_of_their_held_out_destinations() {
        let report = scores(&[(&[1, 3, 12], 4), (&[], 2), (&[15, 60, 61], 30)]).report().unwrap();
        assert_eq!(report.sources, 3);
        assert_near(report.recall_at_10, (0.5 + 0.0 + 0.0) / 3.0);
        assert_near(report.recall_at_20, (0.75 + 1.0 / 30.0) / 3.0);
        assert_near(report.recall_at_100, (0.75 + 0.1) / 3.0);
        // (1/1 + 2/3) / 4.
        assert_near(report.map_at_10, (5.0 / 3.0 / 4.0) / 3.0);
        // 30 are held out, and 20 count.
        assert_near(report.map_at_20, ((5.0 / 3.0 + 0.25) / 4.0 + 1.0 / 15.0 / 20.0) / 3.0);
        let ideal = |count: u32| (1..=count).map(|place| f64::from(place + 1).log2().recip()).sum::<f64>();
        assert_near(report.ndcg_at_10, ((1.0 + 0.5) / ideal(4)) / 3.0);
        let second = (1.0 + 0.5 + 13f64.log2().recip()) / ideal(4) + 16f64.log2().recip() / ideal(20);
        assert_near(report.ndcg_at_20, second / 3.0);
    }

    #[test]
    fn a_source_without_a_held_out_destination_does_not_count() {
        let mut sums = scores(&[(&[], 0)]);
        assert_eq!(sums.report(), None);
        // Few destinations may all be found.
        sums.add(&[true, true], 2);
        let report = sums.report().unwrap();
        assert_eq!((report.recall_at_10, report.map_at_50, report.ndcg_at_100), (Some(1.0), Some(1.0), Some(1.0)));
    }
}
