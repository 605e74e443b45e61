//! The best destinations of sources, exactly.

use grappa_formats::NodeId;
use grappa_io::progress::Progress;

use super::{
    LinkEmbeddings,
    blocks::{BlockScores, score_blocks},
    memory::BEST,
};
use crate::Result;

/// Scores that are compared at once with the worst of the best.
const LANES: usize = 32;

/// The best destinations of a source so far.
#[derive(Debug)]
pub(super) struct Best {
    k: usize,
    /// Scores and positions: the best ones, and newer ones that are better than the worst of the best.
    found: Vec<(f32, u64)>,
    /// Scores up to this one are not among the best.
    worst: f32,
    /// Positions that are no destinations, ascending.
    excluded: Vec<u64>,
}

impl Best {
    fn add(&mut self, BlockScores { positions, scores }: BlockScores<'_>) {
        for (scores, first) in scores.chunks(LANES).zip(positions.step_by(LANES)) {
            if !scores.iter().fold(false, |is_any, &score| is_any | (score > self.worst)) {
                continue;
            }
            for (&score, position) in scores.iter().zip(first..) {
                if score > self.worst && self.excluded.binary_search(&position).is_err() {
                    self.found.push((score, position));
                    if self.found.len() == 2 * self.k {
                        self.select();
                    }
                }
            }
        }
    }

    /// Keeps the best. Of equal scores, smaller positions are better, and come first.
    fn select(&mut self) {
        self.found.select_nth_unstable_by(self.k - 1, |a, b| better(*a, *b));
        self.found.truncate(self.k);
        self.worst = self.found[self.k - 1].0;
    }

    /// The best, and the best one first.
    fn sorted(mut self) -> Vec<(f32, u64)> {
        self.found.sort_unstable_by(|a, b| better(*a, *b));
        self.found.truncate(self.k);
        self.found
    }
}

/// The order of scores and positions, the best one first.
fn better((a, first): (f32, u64), (b, second): (f32, u64)) -> std::cmp::Ordering {
    b.total_cmp(&a).then(first.cmp(&second))
}

impl LinkEmbeddings<'_> {
    /// The `k` best destinations of each source, with their scores, the best one first; of equal scores, the node with the smaller number.
    /// A node is no destination of itself, if both ends have one type. The `known` edges are left out: source and destination, ascending.
    /// Fewer than `k` if there are no more, or if scores are NaN.
    ///
    /// # Errors
    /// If embeddings cannot be read, or `progress` asks to stop.
    ///
    /// # Panics
    /// If `k` is 0, or a source is not in the set.
    pub fn top_k(
        &self,
        sources: &[NodeId],
        k: usize,
        known: &[(NodeId, NodeId)],
        progress: &dyn Progress,
    ) -> Result<Vec<Vec<(NodeId, f32)>>> {
        assert!(k > 0, "at least one destination");
        let k = k.min(self.destinations.len().max(1) as usize);
        // A source has its embedding twice, and up to 2 k scores and positions.
        let part = (BEST.bytes(self.memory) / (2 * self.row_bytes() + 32 * k as u64)).max(1);
        let mut all = Vec::with_capacity(sources.len());
        for sources in sources.chunks(part as usize) {
            let rows = self.read_any(self.sources, sources.iter().copied())?;
            let excluded = sources.iter().map(|&source| self.excluded(source, known));
            let none = |excluded| Best { k, found: Vec::new(), worst: f32::NEG_INFINITY, excluded };
            let mut best: Vec<Best> = excluded.map(none).collect();
            score_blocks(self, &rows, &mut best, progress, Best::add)?;
            all.extend(best.into_iter().map(|best| {
                let sorted = best.sorted().into_iter();
                sorted.map(|(score, position)| (self.destinations.at(position), score)).collect()
            }));
        }
        Ok(all)
    }
}
