//! Ranks of edges among candidates.

use std::{borrow::Cow, collections::HashMap, ops::Range, sync::Arc};

use grappa_formats::{EdgePart, NodeId};
use grappa_io::{Error as EngineError, progress::Progress, workers};
use grappa_run::scores::{LinkScores, Places};
use grappa_sampling::links::{Candidates, KnownEdges, RankCandidates, Ranked, known_edges_of};
use grappa_storage::Store;
use tch::{Device, Kind, Tensor, no_grad};

use super::{
    LinkEmbeddings,
    blocks::{BlockScores, score_blocks},
    distinct,
    memory::{KNOWN, RANKED, SCORED},
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
    /// The candidates.
    pub candidates: &'a RankCandidates,
    /// The edges: source and destination.
    pub edges: &'a [(NodeId, NodeId)],
    /// The time of each edge; none if edges have no times.
    pub times: &'a [i64],
    /// The number of the first edge, which decides its candidates.
    pub first: u64,
    /// The candidates of the edges, if an earlier evaluation has drawn them: what [`RankedEdges::draw_all`] returns.
    pub drawn: Option<&'a [DrawnPart]>,
}

impl RankedEdges<'_> {
    /// The edges at a range of indices, as far as there are any.
    pub fn part(&self, start: usize, end: usize) -> Self {
        let part = start..end.min(self.edges.len());
        let drawn = self.drawn.map(|drawn| &drawn[part.clone()]);
        let times = if self.times.is_empty() { &[] } else { &self.times[part.clone()] };
        Self { edges: &self.edges[part], times, first: self.first + start as u64, drawn, ..*self }
    }

    /// Opens the edges that are no filtered candidates.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn open_known(&self) -> Result<KnownEdges> {
        Ok(KnownEdges::new(self.store, self.parts, Vec::new())?)
    }

    /// The candidates of the edges: those of an earlier evaluation, or new draws.
    ///
    /// # Errors
    /// As [`RankedEdges::draw_all`].
    pub(crate) fn candidates(&self, known: Option<&KnownEdges>, threads: usize) -> Result<Cow<'_, [DrawnPart]>> {
        match self.drawn {
            Some(drawn) => Ok(Cow::Borrowed(drawn)),
            None => {
                let known = known.expect("opened, because candidates must be drawn");
                Ok(Cow::Owned(self.draw_all(known, threads)?))
            }
        }
    }

    /// Draws all candidates of the edges.
    ///
    /// # Errors
    /// If files cannot be read, or a source has no candidates.
    pub fn draw_all(&self, known: &KnownEdges, threads: usize) -> Result<Vec<DrawnPart>> {
        let part = self.edges.len().div_ceil(threads.max(1)).max(1);
        let parts = (0..self.edges.len()).step_by(part);
        let draw = |start| {
            let part = self.part(start, start + part);
            let numbered = (part.first..).zip(part.edges).enumerate();
            let drawn = numbered.map(|(at, (number, &edge))| {
                let time = part.times.get(at).copied();
                Ok(DrawnPart { edge, ranked: self.candidates.draw(self.store, known, number, edge, time)? })
            });
            drawn.collect::<grappa_io::Result<Vec<_>>>()
        };
        Ok(workers::each(parts, draw)?.into_iter().flatten().collect())
    }

    /// Some candidates of the first edge.
    fn draw_slots(&self, known: &KnownEdges, slots: Range<u64>, threads: usize) -> Result<Vec<DrawnPart>> {
        let (edge, numbered) = (self.edges[0], (self.first, self.times.first().copied()));
        let part = (slots.end - slots.start).div_ceil(threads.max(1) as u64).max(1);
        let parts = slots.clone().step_by(part as usize);
        Ok(workers::each(parts, |start| {
            let part = start..slots.end.min(start + part);
            Ok(DrawnPart { edge, ranked: self.candidates.draw_part(self.store, known, numbered, edge, part)? })
        })?)
    }
}

impl LinkEmbeddings<'_> {
    /// Ranks edges among their candidates. The embeddings have the ends of all edges and all candidates, and the destinations have those of edges. An
    /// edge whose source has edges to all candidates has no filtered rank. If memory is too small for the candidates of an edge, they are
    /// drawn and scored in blocks.
    ///
    /// # Errors
    /// If files cannot be read, memory is too small for the known edges of a source, or `progress` asks to stop.
    pub fn rank(&self, edges: &RankedEdges<'_>, progress: &dyn Progress) -> Result<LinkScores> {
        let mut scores = LinkScores::default();
        let share = RANKED.bytes(self.memory);
        let pairs = 2 + 2 * u64::from(edges.candidates.count.unwrap_or(0));
        let edge_bytes = pairs * PAIR_BYTES + 2 * self.row_bytes();
        if edge_bytes > share && edges.candidates.count.is_some() {
            let slots = (share / (2 * PAIR_BYTES)).max(1);
            let known = edges.open_known()?;
            for start in 0..edges.edges.len() {
                let edge = edges.part(start, start + 1);
                self.rank_in_blocks(&edge, &known, slots, progress)?.add_to(&mut scores);
            }
            return Ok(scores);
        }
        // Only draws need the known edges, whose files must all be opened.
        let known = edges.drawn.is_none().then(|| edges.open_known()).transpose()?;
        let mut part = (share / edge_bytes).max(1) as usize;
        let mut start = 0;
        while start < edges.edges.len() {
            let edges = edges.part(start, start + part);
            let known_of_sources = match self.known_edges(&edges, progress) {
                // Fewer sources have fewer known edges.
                Err(EngineError::Budget { .. }) if edges.edges.len() > 1 => {
                    part = edges.edges.len() / 2;
                    continue;
                }
                known => known?,
            };
            let is_counted = edges.candidates.count.is_some();
            let drawn = edges.candidates(known.as_ref(), self.threads)?;
            for mut scored in self.score_drawn(&drawn, progress)? {
                scored.is_ranked = is_counted;
                scored.add_to(&mut scores);
            }
            if !is_counted {
                self.rank_among_all(&edges, &known_of_sources, &mut scores, progress)?;
            }
            start += edges.edges.len();
        }
        Ok(scores)
    }

    /// Ranks one edge, whose candidates are drawn `slots` at a time.
    fn rank_in_blocks(
        &self,
        edge: &RankedEdges<'_>,
        known: &KnownEdges,
        slots: u64,
        progress: &dyn Progress,
    ) -> Result<ScoredEdge> {
        let source = edge.edges[0].0;
        let is_listed = matches!(edge.candidates.nodes, Candidates::Listed(_));
        let count = edge.candidates.count_of(source);
        let mut all: Option<ScoredEdge> = None;
        // The first slot alone tells whether any can be filtered.
        let (mut start, mut end) = (0, 1.min(count));
        loop {
            for scored in self.score_drawn(&edge.draw_slots(known, start..end, self.threads)?, progress)? {
                match &mut all {
                    Some(all) => all.merge(&scored),
                    None => all = Some(scored),
                }
            }
            let has_filtered = is_listed || all.as_ref().is_some_and(|all| all.filtered_count > 0);
            if end == count || !has_filtered {
                break;
            }
            (start, end) = (end, count.min(end + slots));
        }
        let all = all.expect("a first part");
        match is_listed && all.filtered_count == 0 {
            true => Err(edge.candidates.not_listed(edge.store, source).into()),
            false => Ok(all),
        }
    }

    /// Scores edges, pairs and candidates that were drawn.
    fn score_drawn(&self, drawn: &[DrawnPart], progress: &dyn Progress) -> Result<Vec<ScoredEdge>> {
        let mut pairs = Vec::new();
        drawn.iter().for_each(|drawn| drawn.put_pairs(&mut pairs));
        let scoring = Self { memory: SCORED.bytes(self.memory), ..*self };
        let mut scores = scoring.score(&pairs, progress)?.into_iter();
        Ok(drawn.iter().map(|drawn| drawn.scored(&mut scores)).collect())
    }

    /// The known edges of the sources of edges, if these are ranked among all destinations.
    fn known_edges(
        &self,
        edges: &RankedEdges<'_>,
        progress: &dyn Progress,
    ) -> grappa_io::Result<Vec<(NodeId, NodeId)>> {
        if edges.candidates.count.is_some() {
            return Ok(Vec::new());
        }
        let sources = distinct(edges.edges.iter().map(|edge| edge.0));
        known_edges_of(edges.store, edges.parts, &sources, KNOWN.bytes(self.memory), progress)
    }

    /// Ranks edges among all destinations but their own; filtered, also without the source and its known destinations.
    fn rank_among_all(
        &self,
        edges: &RankedEdges<'_>,
        known: &[(NodeId, NodeId)],
        scores: &mut LinkScores,
        progress: &dyn Progress,
    ) -> Result<()> {
        let [from, to] = [
            self.read_any(self.sources, edges.edges.iter().map(|edge| edge.0))?,
            self.read_any(self.targets, edges.edges.iter().map(|edge| edge.1))?,
        ];
        let [edge_scores, magnitudes] = no_grad(|| {
            let products = self.decoder.queries(&from) * self.decoder.keys(&to);
            let magnitudes = products.abs().sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
            [self.decoder.score(&from, &to), magnitudes]
        })
        .map(|tensor: Tensor| tensor.to_device(Device::Cpu).contiguous());
        let edge_scores = shim::values::<f32>(&edge_scores).iter().zip(shim::values::<f32>(&magnitudes));
        let mut excluded: HashMap<NodeId, Arc<[u64]>> = HashMap::new();
        let mut ranks: Vec<AmongAll> = edges
            .edges
            .iter()
            .zip(edge_scores)
            .map(|(&(source, destination), (&score, &magnitude))| {
                let destination = self.destinations.position(destination);
                let left_out = excluded.entry(source).or_insert_with(|| Arc::from(self.excluded(source, known)));
                AmongAll {
                    score,
                    tolerance: (f64::from(magnitude) * ROUNDING) as f32,
                    destination,
                    left_out: left_out.clone(),
                    raw: Places::default(),
                    not_counted: Places::default(),
                }
            })
            .collect();
        score_blocks(self, &from, &mut ranks, progress, AmongAll::add)?;
        for rank in &ranks {
            let Places { above, equal } = rank.raw;
            scores.raw.add(above, equal);
            let others = rank.left_out.len() - usize::from(rank.left_out.binary_search(&rank.destination).is_ok());
            match others as u64 + 1 == self.destinations.len() {
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

/// Candidates of an edge that were drawn: all, or a part of them.
#[derive(Debug, Clone)]
pub struct DrawnPart {
    edge: (NodeId, NodeId),
    ranked: Ranked,
}

impl DrawnPart {
    /// Appends the pairs to score: the edge, the pair without an edge, the candidates.
    pub(crate) fn put_pairs(&self, pairs: &mut Vec<(NodeId, NodeId)>) {
        let Self { edge, ranked } = self;
        pairs.push(*edge);
        pairs.extend(ranked.pair);
        pairs.extend(ranked.filtered.iter().map(|&node| (edge.0, node)));
        // Most raw candidates are the filtered ones.
        let others = (0..ranked.raw.len()).filter(|&at| !is_filtered(ranked, at));
        pairs.extend(others.map(|at| (edge.0, ranked.raw[at])));
    }

    /// Takes the scores of its pairs.
    fn scored(&self, scores: &mut impl Iterator<Item = f32>) -> ScoredEdge {
        let Self { ranked, .. } = self;
        let mut next = || scores.next().expect("a score for each pair");
        let edge = next();
        let pair = ranked.pair.map(|_| next());
        let filtered: Vec<f32> = ranked.filtered.iter().map(|_| next()).collect();
        let raw = (0..ranked.raw.len()).map(|at| if is_filtered(ranked, at) { filtered[at] } else { next() });
        let mut scored = ScoredEdge {
            edge,
            pair,
            is_ranked: true,
            filtered_count: filtered.len() as u64,
            filtered: Places::default(),
            raw: Places::default(),
        };
        scored.raw.add_scores(edge, raw);
        scored.filtered.add_scores(edge, filtered.into_iter());
        scored
    }

    /// Adds the scores of edges and their pairs, in the order of [`DrawnPart::put_pairs`].
    pub(crate) fn add_scores(drawn: &[Self], mut scores: impl Iterator<Item = f32>, all: &mut LinkScores) {
        drawn.iter().for_each(|drawn| drawn.scored(&mut scores).add_to(all));
    }
}

/// The scores of an edge, and of its candidates or of a part of them.
struct ScoredEdge {
    edge: f32,
    pair: Option<f32>,
    /// Whether candidates were drawn to rank it.
    is_ranked: bool,
    filtered_count: u64,
    filtered: Places,
    raw: Places,
}

impl ScoredEdge {
    /// Adds the scores of more candidates of the same edge.
    fn merge(&mut self, other: &Self) {
        self.filtered_count += other.filtered_count;
        self.filtered.merge(other.filtered);
        self.raw.merge(other.raw);
    }

    fn add_to(&self, scores: &mut LinkScores) {
        if let Some(pair) = self.pair {
            scores.add_pair(self.edge, pair);
        }
        if self.is_ranked {
            match self.filtered_count {
                0 => scores.unranked += 1,
                _ => scores.filtered.add(self.filtered.above, self.filtered.equal),
            }
            scores.raw.add(self.raw.above, self.raw.equal);
        }
    }
}

/// The rank of an edge among all nodes.
#[derive(Debug)]
struct AmongAll {
    score: f32,
    /// Products of many sources are added in another order than the score of the edge. Scores that differ by at most this are equal.
    tolerance: f32,
    destination: u64,
    /// Positions that only raw ranks count, ascending, and the destination if it is a known one. Edges of a source share them.
    left_out: Arc<[u64]>,
    raw: Places,
    not_counted: Places,
}

impl AmongAll {
    fn add(&mut self, BlockScores { positions, scores }: BlockScores<'_>) {
        let [low, high] = [self.score - self.tolerance, self.score + self.tolerance];
        let places_of = |score: f32| Places {
            // NaN is above.
            above: u64::from(!is_at_most(score, high)),
            equal: u64::from(is_at_most(score, high) & (score >= low)),
        };
        self.raw.merge(places_in(scores, [low, high]));
        let score_at = |position: u64| scores[(position - positions.start) as usize];
        if positions.contains(&self.destination) {
            let own = places_of(score_at(self.destination));
            self.raw.above -= own.above;
            self.raw.equal -= own.equal;
        }
        let start = self.left_out.partition_point(|&position| position < positions.start);
        let left_out = self.left_out[start..].iter().take_while(|&&position| position < positions.end);
        for &position in left_out.filter(|&&position| position != self.destination) {
            self.not_counted.merge(places_of(score_at(position)));
        }
    }
}

/// False for NaN on either side.
fn is_at_most(score: f32, high: f32) -> bool {
    score <= high
}

/// The numbers of scores above `high`, or NaN, and of scores from `low` to `high`. A block has fewer than 2^32 scores, so that counts are as
/// wide as scores and the loop is vectors.
fn places_in(scores: &[f32], [low, high]: [f32; 2]) -> Places {
    let (mut at_most, mut equal) = (0_u32, 0_u32);
    for &score in scores {
        at_most += u32::from(is_at_most(score, high));
        equal += u32::from(is_at_most(score, high) & (score >= low));
    }
    Places { above: scores.len() as u64 - u64::from(at_most), equal: u64::from(equal) }
}
