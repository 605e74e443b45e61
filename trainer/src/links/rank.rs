//! Ranks of edges among candidates.

use grappa_formats::{EdgePart, NodeId};
use grappa_io::{progress::Progress, workers};
use grappa_run::scores::LinkScores;
use grappa_sampling::links::{KnownEdges, RankCandidates, Ranked, known_edges_of};
use grappa_storage::Store;
use tch::{Device, Kind, Tensor, no_grad};

use super::{
    LinkEmbeddings,
    blocks::{BlockScores, score_blocks},
    distinct,
};
use crate::{Result, shim};

/// Bytes of memory for a pair that is scored, besides embeddings: itself, its candidate, its place and its score.
const PAIR_BYTES: u64 = 64;
/// Scores of a source with two nodes of the same embedding differ by less than this share of the magnitudes that they add up.
const ROUNDING: f64 = 1e-6;

/// Edges to rank, and what they are ranked among.
#[derive(Clone, Copy)]
pub struct RankedEdges<'a> {
    /// The store.
    pub store: &'a Store,
    /// Edges that are no filtered candidates: the edges of these parts. The graph is one of them.
    pub parts: &'a [EdgePart],
    /// The same edges.
    pub known: &'a KnownEdges,
    /// The candidates.
    pub candidates: &'a RankCandidates,
    /// The edges: source and destination.
    pub edges: &'a [(NodeId, NodeId)],
    /// The number of the first edge, which decides its candidates.
    pub first: u64,
}

impl RankedEdges<'_> {
    fn part(&self, start: usize, end: usize) -> Self {
        Self { edges: &self.edges[start..end.min(self.edges.len())], first: self.first + start as u64, ..*self }
    }

    fn drawn(&self, threads: usize) -> Result<Vec<Ranked>> {
        let part = self.edges.len().div_ceil(threads.max(1)).max(1);
        let parts = (0..self.edges.len()).step_by(part);
        Ok(workers::each(parts, |start| self.part(start, start + part).draw())?.concat())
    }

    fn draw(&self) -> grappa_io::Result<Vec<Ranked>> {
        let numbered = (self.first..).zip(self.edges);
        let drawn = numbered.map(|(number, &edge)| self.candidates.draw(self.store, self.known, number, edge));
        drawn.collect()
    }
}

impl LinkEmbeddings<'_> {
    /// Ranks edges among their candidates. The set has the ends of all edges and all candidates, and the destinations have those of edges. An
    /// edge whose source has edges to all candidates has no filtered rank.
    ///
    /// # Errors
    /// If files cannot be read, or `progress` asks to stop.
    pub fn rank(&self, edges: &RankedEdges<'_>, progress: &dyn Progress) -> Result<LinkScores> {
        let mut scores = LinkScores::default();
        let pairs = 2 + 2 * u64::from(edges.candidates.count.unwrap_or(0));
        let part = (self.memory / 2 / (pairs * PAIR_BYTES + 2 * self.row_bytes())).max(1) as usize;
        for start in (0..edges.edges.len()).step_by(part) {
            let edges = edges.part(start, start + part);
            let drawn = edges.drawn(self.threads)?;
            self.rank_drawn(&edges, &drawn, &mut scores, progress)?;
            if edges.candidates.count.is_none() {
                self.rank_among_all(&edges, &mut scores, progress)?;
            }
        }
        Ok(scores)
    }

    /// Scores edges, pairs and candidates that were drawn.
    fn rank_drawn(
        &self,
        edges: &RankedEdges<'_>,
        drawn: &[Ranked],
        scores: &mut LinkScores,
        progress: &dyn Progress,
    ) -> Result<()> {
        let mut pairs = Vec::new();
        for (&edge, ranked) in edges.edges.iter().zip(drawn) {
            pairs.push(edge);
            pairs.extend(ranked.pair);
            pairs.extend(ranked.filtered.iter().map(|&node| (edge.0, node)));
            // Most raw candidates are the filtered ones.
            let others = (0..ranked.raw.len()).filter(|&at| !is_filtered(ranked, at));
            pairs.extend(others.map(|at| (edge.0, ranked.raw[at])));
        }
        let half = Self { memory: self.memory / 2, ..*self };
        let mut of_pairs = half.score(&pairs, progress)?.into_iter();
        let mut next = || of_pairs.next().expect("a score for each pair");
        for ranked in drawn {
            let edge = next();
            if ranked.pair.is_some() {
                scores.add_pair(edge, next());
            }
            let filtered: Vec<f32> = ranked.filtered.iter().map(|_| next()).collect();
            let raw: Vec<f32> =
                (0..ranked.raw.len()).map(|at| if is_filtered(ranked, at) { filtered[at] } else { next() }).collect();
            if edges.candidates.count.is_some() {
                match filtered.is_empty() {
                    true => scores.unranked += 1,
                    false => scores.filtered.add_scores(edge, filtered.into_iter()),
                }
                scores.raw.add_scores(edge, raw.into_iter());
            }
        }
        Ok(())
    }

    /// Ranks edges among all destinations but their own; filtered, also without the source and its known destinations.
    fn rank_among_all(&self, edges: &RankedEdges<'_>, scores: &mut LinkScores, progress: &dyn Progress) -> Result<()> {
        let sources = distinct(edges.edges.iter().map(|edge| edge.0));
        let known = known_edges_of(edges.store, edges.parts, &sources, self.memory / 4, progress)?;
        let [from, to] = [
            self.read_any(edges.edges.iter().map(|edge| edge.0))?,
            self.read_any(edges.edges.iter().map(|edge| edge.1))?,
        ];
        let [of_edges, magnitudes] = no_grad(|| {
            let products = self.decoder.queries(&from) * self.decoder.keys(&to);
            let magnitudes = products.abs().sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
            [self.decoder.score(&from, &to), magnitudes]
        })
        .map(|tensor: Tensor| tensor.to_device(Device::Cpu).contiguous());
        let of_edges = shim::values::<f32>(&of_edges).iter().zip(shim::values::<f32>(&magnitudes));
        let mut ranks: Vec<AmongAll> = edges
            .edges
            .iter()
            .zip(of_edges)
            .map(|(&(source, destination), (&score, &magnitude))| {
                let destination = self.destinations.position(destination);
                let mut left_out = self.excluded(source, &known);
                left_out.retain(|&position| position != destination);
                AmongAll {
                    score,
                    tolerance: (f64::from(magnitude) * ROUNDING) as f32,
                    destination,
                    left_out,
                    raw: Places::default(),
                    not_counted: Places::default(),
                }
            })
            .collect();
        score_blocks(self, &from, &mut ranks, progress, AmongAll::add)?;
        for rank in &ranks {
            let Places { above, equal } = rank.raw;
            scores.raw.add(above, equal);
            match rank.left_out.len() as u64 + 1 == self.destinations.len() {
                true => scores.unranked += 1,
                false => scores.filtered.add(above - rank.not_counted.above, equal - rank.not_counted.equal),
            }
        }
        Ok(())
    }
}

/// Whether the raw candidate at a place is the filtered one.
fn is_filtered(ranked: &Ranked, at: usize) -> bool {
    ranked.filtered.get(at) == Some(&ranked.raw[at])
}

/// Numbers of candidates with a higher and with the same score.
#[derive(Debug, Clone, Copy, Default)]
struct Places {
    above: u64,
    equal: u64,
}

/// The rank of an edge among all nodes.
#[derive(Debug)]
struct AmongAll {
    score: f32,
    /// Products of many sources are added in another order than the score of the edge. Scores that differ by at most this are equal.
    tolerance: f32,
    destination: u64,
    /// Positions that only raw ranks count, ascending.
    left_out: Vec<u64>,
    raw: Places,
    not_counted: Places,
}

impl AmongAll {
    fn add(&mut self, BlockScores { positions, scores }: BlockScores<'_>) {
        let [low, high] = [self.score - self.tolerance, self.score + self.tolerance];
        // NaN is above.
        let is_above = |score: f32| score > high || score.is_nan() || high.is_nan();
        let is_equal = |score: f32| score <= high && score >= low;
        let add = |places: &mut Places, score: f32| {
            places.above += u64::from(is_above(score));
            places.equal += u64::from(is_equal(score));
        };
        self.raw.above += u64::from(scores.iter().map(|&score| u32::from(is_above(score))).sum::<u32>());
        self.raw.equal += u64::from(scores.iter().map(|&score| u32::from(is_equal(score))).sum::<u32>());
        let score_at = |position: u64| scores[(position - positions.start) as usize];
        if positions.contains(&self.destination) {
            let score = score_at(self.destination);
            self.raw.above -= u64::from(is_above(score));
            self.raw.equal -= u64::from(is_equal(score));
        }
        let start = self.left_out.partition_point(|&position| position < positions.start);
        let left_out = self.left_out[start..].iter().take_while(|&&position| position < positions.end);
        for &position in left_out {
            add(&mut self.not_counted, score_at(position));
        }
    }
}
