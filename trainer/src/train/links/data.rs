//! The edges to learn and to score, and what is drawn for them.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use grappa_formats::{ChunkId, EdgePart, NodeId, random};
use grappa_io::{
    ledger::MemoryShare,
    progress::{Progress, Silent},
    size::count,
};
use grappa_run::{
    config::{ChangedOptions, ExcludeTargets, NegativeSampling, RankAmong, TrainConfig},
    scores::LinkCandidates,
};
use grappa_sampling::{
    Loader, NodeSet,
    links::{
        Candidates, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, Negatives, PartEdges, Positives,
        RankCandidates, TimeRange, WithoutNegative, split_by_time,
    },
    policy::EDGE_LIST,
};
use grappa_storage::{Graph, Relation, Store};

use super::lists;
use crate::train::ranks::Processes;
use crate::{Error, Result, links::DrawnPart};

/// A file of pairs that the user lists.
const LISTED_PAIRS: MemoryShare = MemoryShare::one(
    "listed pairs",
    8,
    "each of --negatives-from, --candidates and --among takes at most 1/8, so that all of them leave more than half; chosen, not measured",
);

/// Candidates that stay in memory between evaluations, because they are the same in all of them.
const DRAWN_CANDIDATES: MemoryShare = MemoryShare::one(
    "drawn candidates",
    16,
    "they save the draws and look-ups of each evaluation; candidates that exceed 1/16 are drawn in each; chosen, not measured",
);
/// Bytes of a drawn candidate: as a filtered and as a raw one.
const CANDIDATE_BYTES: u64 = 2 * size_of::<NodeId>() as u64;

/// The edges of a relation as link prediction uses them.
pub struct LinkData {
    /// What is drawn for each minibatch.
    pub task: Arc<LinkTask>,
    /// Number of edges to learn, for validation and for test.
    pub edges: [u64; 3],
    /// The nodes that edges are ranked among.
    pub candidates: RankCandidates,
    /// Whether sources and destinations have the same node type.
    pub joins_one_type: bool,
    /// The chunks of destinations among the chunks of all types.
    chunks: Range<u32>,
    among: RankAmong,
    /// The drawn candidates of the edges that this rank ranks, by part. Empty before the first evaluation, or if memory is too small.
    drawn: [OnceLock<Vec<DrawnPart>>; 3],
    /// Bytes of drawn candidates. 0 if each evaluation draws them.
    drawn_bytes: u64,
    /// Whether evaluations rank all destinations of each source.
    pub ranks_destinations: bool,
    /// A sentence about listed destinations, if there are any.
    listed: Option<String>,
    /// A sentence about hard negatives, if there are any.
    hard: Option<String>,
    /// The times of the edges of each part, if edges are split by time.
    times: Option<[TimeRange; 3]>,
    /// Edges that an epoch draws; none for all.
    edges_per_epoch: Option<u64>,
    seed: u64,
    memory: u64,
}

impl LinkData {
    /// Checks that the relation of this number has edges to learn and to score. `ends` are the times of its ends, if links are at times.
    pub fn open(graph: &Graph, number: usize, ends: EndTimes, config: &TrainConfig) -> Result<Self> {
        let (relation, store) = (graph.relation(number), &graph.relations()[number]);
        let held_out = store.manifest().held_out();
        let path = graph.path().display();
        // A value of --edge-split is for a relation, if there are several.
        let split = match graph.has_types() {
            true => format!("--edge-split {}=80/10/10", graph.manifest().relation_name(number)),
            false => "--edge-split 80/10/10".to_owned(),
        };
        if !store.manifest().is_whole() {
            return Err(Error::WrongStore(format!(
                "{path}: the store is a slice of its graph, and --task link scores edges between all nodes: give each host the whole store"
            )));
        }
        let has_times = store.is_timed() || !ends.is_empty();
        if has_times
            && let (false, Some(changed)) =
                (held_out.is_empty(), ChangedOptions::from_config(config).flag("time-split"))
        {
            return Err(Error::Options(format!(
                "{changed} divides edges by time, and {path} has edges that are held out: leave it out, or ingest the graph again without \
                 --edge-split"
            )));
        }
        let times = match has_times && held_out.is_empty() {
            true => Some(split_by_time(store, &ends, config.time_split.shares(), &Silent)?),
            false => None,
        };
        if held_out.is_empty() && times.is_none() {
            return Err(Error::NoLabels(format!(
                "{path}: no edges are held out, so links cannot be scored; ingest the graph again with {split}"
            )));
        }
        let pairs_memory = LISTED_PAIRS.bytes(config.memory.0);
        let destinations = match &config.among {
            Some(path) => Some(Arc::new(lists::destinations(relation.destinations, path, pairs_memory)?)),
            None => None,
        };
        let mut edges = [0; 3];
        for part in EdgePart::ALL {
            edges[part as usize] = match part == EdgePart::Graph || held_out.contains(&part) || times.is_some() {
                true => count_edges(part_edges(store, part, destinations.as_deref(), (times, &ends)))?,
                false => 0,
            };
        }
        if let Some(among) = &config.among
            && (edges[0] == 0 || edges[1..] == [0, 0])
        {
            return Err(Error::Options(format!(
                "among {}: {} edges to learn, {} for validation and {} for test of {path} end at one of its nodes: list the destinations of \
                 edges",
                among.display(),
                count(edges[0]),
                count(edges[1]),
                count(edges[2])
            )));
        }
        if times.is_some() && (edges[0] == 0 || edges[1..] == [0, 0]) {
            return Err(Error::Options(format!(
                "time-split is {}, which divides the edges of {path} into {} to learn, {} for validation and {} for test: edges at one time \
                 are not divided; give other percentages",
                config.time_split,
                count(edges[0]),
                count(edges[1]),
                count(edges[2])
            )));
        }
        if edges[0] == 0 || edges[1..] == [0, 0] {
            return Err(Error::NoLabels(format!(
                "{path}: the edges are split into {} to learn, {} for validation and {} for test; ingest the graph again with another \
                 split, such as {split}",
                count(edges[0]),
                count(edges[1]),
                count(edges[2])
            )));
        }
        let negatives = config.negatives();
        let hard = match &config.negatives_from {
            Some(path) => Some(Arc::new(lists::hard_negatives(relation, path, pairs_memory)?)),
            None => None,
        };
        let candidates = RankCandidates {
            ends: ends.clone(),
            ..rank_candidates(relation, &config.candidates, destinations.clone(), pairs_memory)?
        };
        let listed = destinations.as_ref().map(|destinations| destinations.len());
        let task = LinkTask {
            store: store.clone(),
            relation: LinkRelation { number, reverse: graph.reverse_of(number) },
            negatives: match config.negative_sampling() {
                NegativeSampling::Shared | NegativeSampling::InBatch => Negatives::Shared(negatives),
                NegativeSampling::Pairs => Negatives::Pairs(negatives.into()),
                _ => Negatives::Destinations(negatives),
            },
            candidates: match (config.negative_sampling(), &hard) {
                (_, Some(hard)) => Candidates::Listed(hard.clone()),
                (NegativeSampling::Degree, None) => Candidates::by_degree(store, destinations.clone())?,
                (NegativeSampling::InBatch, None) => Candidates::InBatch,
                (_, None) => Candidates::Uniform,
            },
            destinations,
            without_negative: WithoutNegative::Marked,
            // Training does not know the edges that are held out.
            known: Some(KnownEdges::default()),
            excluded: match config.exclude_targets() {
                ExcludeTargets::Both => ExcludedEdges::WithReverses,
                ExcludeTargets::Forward => ExcludedEdges::Positives,
                ExcludeTargets::None => ExcludedEdges::None,
            },
            ends,
        };
        let drawn_bytes = drawn_bytes(edges[1] + edges[2], candidates.count);
        let links = Self {
            task: Arc::new(task),
            edges,
            drawn: Default::default(),
            drawn_bytes: if drawn_bytes <= DRAWN_CANDIDATES.bytes(config.memory.0) { drawn_bytes } else { 0 },
            candidates,
            joins_one_type: relation.joins_one_type(),
            chunks: graph.positions().chunks_of(graph.manifest().relations[number].destination as usize),
            among: config.candidates.clone(),
            ranks_destinations: config.ranks_destinations(),
            listed: config.among.as_ref().zip(listed).map(|(path, nodes)| {
                format!(
                    "destinations are among the {} nodes of {}; edges without one are for messages alone",
                    count(nodes),
                    path.display()
                )
            }),
            hard: config.negatives_from.as_ref().zip(hard).map(|(path, hard)| {
                format!(
                    "negatives are from {} pairs of {}; sources without a pair in their partition have uniform ones",
                    count(hard.all().len() as u64),
                    path.display()
                )
            }),
            times,
            edges_per_epoch: (config.edges_per_epoch > 0).then_some(config.edges_per_epoch),
            seed: config.seed,
            memory: EDGE_LIST.bytes(config.memory.0),
        };
        if let RankAmong::Listed(_) = &links.among {
            // An edge without candidates is told now, and not after an epoch.
            for part in held_out {
                links.held_out(part, links.memory, &Silent)?;
            }
        }
        Ok(links)
    }

    /// A sentence about the edges.
    pub fn describe(&self) -> String {
        let [graph, val, test] = self.edges.map(count);
        let examples = format!(
            "links: {graph} edges to learn, {val} for validation and {test} for test, each ranked among {}, filtered and raw; {}",
            self.ranked_among(),
            match (self.task.store.is_timed() || !self.task.ends.is_empty(), self.times) {
                (false, _) => "evaluations are exact",
                (true, Some(_)) => "each at its time, from sampled earlier edges",
                (true, None) => {
                    "each at its time, from sampled earlier edges of the graph; edges that are held out see none of each other: ingest \
                     without --edge-split to split by time instead"
                }
            }
        );
        let ranked = self.ranks_destinations.then(|| {
            let all = LinkCandidates { count: None, ..self.ranked_among() };
            format!("each evaluation compares the sources of these edges with {all}, without known edges, for Recall@K, MAP@K and NDCG@K")
        });
        [Some(examples), ranked, self.listed.clone(), self.hard.clone()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// The number and the kind of the candidates.
    pub fn ranked_among(&self) -> LinkCandidates {
        LinkCandidates {
            count: self.candidates.count,
            kind: match self.among {
                RankAmong::Auto | RankAmong::Drawn(_) | RankAmong::All => "uniform".to_owned(),
                RankAmong::Listed(_) => LinkCandidates::LISTED.to_owned(),
            },
            among: self.task.destinations.as_ref().map(|among| among.len()),
        }
    }

    /// The nodes that destinations are among; none for all.
    pub fn destinations(&self) -> Option<&NodeSet> {
        self.task.destinations.as_deref()
    }

    /// A number that differs if the pairs or the destinations that the user lists do. None without such lists.
    pub fn lists_digest(&self) -> Option<u64> {
        let lists = [&self.task.candidates, &self.candidates.nodes].map(|candidates| match candidates {
            Candidates::Listed(listed) => Some(lists::digest(listed)),
            _ => None,
        });
        let pair_note = match lists {
            [None, None] => None,
            lists => Some(lists.into_iter().map(Option::unwrap_or_default).fold(0, random::combine)),
        };
        match self.destinations() {
            Some(among) => Some(among.iter().map(|node| node.0).fold(pair_note.unwrap_or(0), random::combine)),
            None => pair_note,
        }
    }

    /// Bytes of memory of listed and of drawn candidates, which stay between evaluations.
    pub fn candidate_bytes(&self) -> u64 {
        self.candidates.bytes() + self.drawn_bytes
    }

    /// The candidates of the edges of a part that this rank ranks: what `draw` returned in the first evaluation. None if they do not fit in
    /// memory.
    ///
    /// # Errors
    /// The errors of `draw`.
    pub fn candidates_of(
        &self,
        part: EdgePart,
        draw: impl FnOnce() -> Result<Vec<DrawnPart>>,
    ) -> Result<Option<&[DrawnPart]>> {
        let drawn = &self.drawn[part as usize];
        if self.drawn_bytes > 0 && drawn.get().is_none() {
            let _ = drawn.set(draw()?);
        }
        Ok(drawn.get().map(Vec::as_slice))
    }

    /// The edges of a part that is held out, by destination. They have at most `memory` bytes.
    ///
    /// # Errors
    /// If they need more memory, files cannot be read, candidates are listed and an edge has none, or `progress` asks to stop.
    pub fn held_out(&self, part: EdgePart, memory: u64, progress: &dyn Progress) -> Result<Positives> {
        let store = &self.task.store;
        let edges = Positives::of_part(self.part_edges(part), None, memory, progress)?;
        match (&self.among, &self.candidates.nodes) {
            (RankAmong::Listed(path), Candidates::Listed(listed)) => {
                // Listed destinations have decided the direction.
                let may_reverse = store.manifest().edge_options.undirected && self.destinations().is_none();
                lists::directed(store, part, edges, (listed, path), may_reverse)
            }
            _ => Ok(edges),
        }
    }

    /// The edges of a part, with their times if they have times.
    fn part_edges(&self, part: EdgePart) -> PartEdges<'_> {
        part_edges(&self.task.store, part, self.destinations(), (self.times, &self.task.ends))
    }

    /// Whether each epoch draws its edges.
    pub fn draws_edges(&self) -> bool {
        self.edges_per_epoch.is_some()
    }

    /// Gives the open partitions the edges of an epoch. All ranks must call it.
    ///
    /// # Errors
    /// If they need more memory than they may have, files cannot be read, or progress says to stop.
    pub fn give_positives(
        &self,
        loader: &mut Loader,
        partitions: u32,
        processes: &Processes,
        epoch: u64,
        progress: &dyn Progress,
    ) -> Result<()> {
        let edges = self.part_edges(EdgePart::Graph);
        // Each partition, with the chunks of its own destinations.
        let owned: Vec<(usize, Vec<ChunkId>)> = loader
            .served()
            .map(|part| {
                let owned = part.view.owned();
                let of_type = owned.base().iter().filter(|chunk| self.chunks.contains(&chunk.0));
                let chunks = of_type.map(|chunk| ChunkId(chunk.0 - self.chunks.start)).collect();
                (owned.partition().0 as usize, chunks)
            })
            .collect();
        let mut counts = vec![0; partitions as usize];
        for (partition, chunks) in &owned {
            counts[*partition] = Positives::count(edges, chunks, progress)?;
        }
        processes.sum(&mut counts, progress)?;
        let all = counts.iter().sum();
        let shares: Vec<u64> = match self.edges_per_epoch {
            Some(sampled) if sampled < all => shares(sampled, &counts),
            _ => counts.clone(),
        };
        let (mut positives, mut memory) = (Vec::with_capacity(owned.len()), self.memory);
        for (partition, chunks) in owned {
            let key = [epoch, partition as u64].into_iter().fold(random::hash(self.seed), random::combine);
            let (count, sample) = (counts[partition], Some((shares[partition], key)));
            let of_part = Positives::of_chunks(edges, &chunks, count, sample, memory, progress)?;
            memory = memory.saturating_sub(of_part.bytes());
            positives.push(Arc::new(of_part));
        }
        loader.set_positives(positives, &shares);
        Ok(())
    }
}

/// What edges are ranked among. Draws are the same in all runs, so runs with other seeds can be compared.
fn rank_candidates(
    relation: Relation<'_>,
    among: &RankAmong,
    destinations: Option<Arc<NodeSet>>,
    memory: u64,
) -> Result<RankCandidates> {
    let store = relation.edges;
    let nodes = destinations.as_ref().map_or(store.manifest().nodes, |destinations| destinations.len());
    let (count, nodes) = match among {
        RankAmong::Drawn(count) if u64::from(count.get()) > nodes => {
            return Err(Error::Options(format!(
                "candidates is {count}, and there are {nodes} destinations: use --candidates all, which ranks each edge among all of them"
            )));
        }
        RankAmong::Drawn(count) => (Some(count.get()), Candidates::Uniform),
        // This suits small graphs too: candidates may be drawn several times.
        RankAmong::Auto => (Some(RankAmong::DRAWN.get()), Candidates::Uniform),
        RankAmong::All => (None, Candidates::Uniform),
        RankAmong::Listed(path) => {
            let listed = lists::candidates(store, path, memory)?;
            (Some(listed.of_source_max() as u32), Candidates::Listed(Arc::new(listed)))
        }
    };
    let ends = EndTimes::default();
    Ok(RankCandidates { count, nodes, joins_one_type: relation.joins_one_type(), destinations, ends, seed: 0 })
}

/// Bytes of the candidates of `edges` edges, at most. 0 if edges are ranked among all nodes.
fn drawn_bytes(edges: u64, count: Option<u32>) -> u64 {
    let edge_bytes = size_of::<DrawnPart>() as u64 + CANDIDATE_BYTES * u64::from(count.unwrap_or(0));
    if count.is_some() { edges.saturating_mul(edge_bytes) } else { 0 }
}

/// The edges of a part, with their times if they or their ends have times. `times` has the times of each part of edges that are split by time.
fn part_edges<'a>(
    store: &'a Store,
    part: EdgePart,
    destinations: Option<&'a NodeSet>,
    (times, ends): (Option<[TimeRange; 3]>, &'a EndTimes),
) -> PartEdges<'a> {
    let ends = (!ends.is_empty()).then_some(ends);
    match times {
        Some(times) => {
            PartEdges { store, part: EdgePart::Graph, destinations, times: Some(times[part as usize]), ends }
        }
        None => {
            let timed = PartEdges::timed(store, part);
            PartEdges { destinations, times: timed.times.or(ends.map(|_| TimeRange::ALL)), ends, ..timed }
        }
    }
}

/// The number of some edges. Reads them, unless they are a whole part.
fn count_edges(edges: PartEdges<'_>) -> Result<u64> {
    match (edges.destinations, edges.times) {
        (None, None | Some(TimeRange::ALL)) => Ok(edges.store.part_edges(edges.part)?),
        _ => Ok(Positives::count(edges, &edges.store.present_chunks().collect::<Vec<_>>(), &Silent)?),
    }
}

/// Divides `sampled` edges among partitions in proportion to their numbers of edges.
fn shares(sampled: u64, counts: &[u64]) -> Vec<u64> {
    let all: u128 = counts.iter().map(|&count| u128::from(count)).sum();
    let mut end = 0;
    let mut taken = 0;
    let shares = counts.iter().map(|&count| {
        end += u128::from(count);
        let until = (u128::from(sampled) * end / all) as u64;
        until - std::mem::replace(&mut taken, until)
    });
    shares.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_draw_edges_in_proportion_to_what_they_have() {
        assert_eq!(shares(10, &[30, 0, 60, 10]), [3, 0, 6, 1]);
        let shares = shares(7, &[5, 5, 5]);
        assert_eq!(shares.iter().sum::<u64>(), 7);
        assert!(shares.iter().all(|share| (2..=3).contains(share)), "{shares:?}");
    }
}
