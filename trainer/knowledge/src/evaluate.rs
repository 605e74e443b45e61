//! Filtered ranks of held-out triples.
//!
//! Each triple is ranked twice: its tail among all entities as tails of its head and its relation, and its head likewise. Entities that make a
//! known triple, of any part of the graph, are left out of filtered ranks. Equal scores share the mean of their places. An entity without a
//! training triple has no learned row: a triple with one is counted, and ranks last.
//!
//! Each partition of rows is read twice: to collect the rows of the held-out triples, and to score candidates. So memory follows from the
//! held-out triples and one partition.

use std::collections::HashMap;

use grappa_formats::{EdgePart, random};
use grappa_io::{
    ledger::MemoryShare,
    progress::{Progress, check_stopped},
};
use grappa_kernels::{for_each, padded};
use grappa_run::scores::{LinkCandidates, LinkReport, LinkScores, Places, ScoreReport};

use crate::{
    Result,
    decoder::Asked,
    matrix::{Matrix, PaddedRows},
    residents::Residents,
    rows::Rows,
    similarity::CandidateBlock,
    step::TripleModel,
    triples::{Triple, Triples},
};

/// Queries that a thread ranks at a time.
const TILE: usize = 96;
/// Candidates of a block of scores.
const BLOCK: usize = 64;
/// Blocks that are prepared before all queries are scored with them.
const BLOCKS: usize = 128;
/// The key of drawn candidates, which are the same in all runs.
const DRAW_KEY: u64 = 0x6361_6e64;

/// Rows and queries of held-out triples.
const QUERIES: MemoryShare = MemoryShare::one(
    "queries of held-out triples",
    8,
    "held-out triples that exceed 1/8 are ranked in groups; chosen, not measured",
);

/// The known answers to the questions of held-out triples, and the entities with training triples.
#[derive(Debug)]
pub struct KnownAnswers {
    /// Whether an entity has a training triple.
    seen: Vec<bool>,
    /// The place of each question in `starts`.
    questions: HashMap<u64, u32>,
    /// For each question, the first of its answers, then the number of answers.
    starts: Vec<usize>,
    /// The entities that answer each question.
    answers: Vec<u32>,
}

/// A question as a number: an entity, a relation, and which end is asked for.
fn question(asked: Asked, triple: Triple, relations: usize) -> u64 {
    let (entity, side) = match asked {
        Asked::Tail => (triple.head, 0),
        Asked::Head => (triple.tail, 1),
    };
    (u64::from(entity) * 2 + side) * relations as u64 + u64::from(triple.relation)
}

fn answer(asked: Asked, triple: Triple) -> u32 {
    match asked {
        Asked::Tail => triple.tail,
        Asked::Head => triple.head,
    }
}

impl KnownAnswers {
    /// Collects the answers to the questions of all held-out triples. Reads the graph once.
    ///
    /// # Errors
    /// If a file is damaged, or `progress` asks to stop.
    pub fn collect(triples: &Triples, progress: &dyn Progress) -> Result<Self> {
        progress.stage("collecting known triples", None);
        let relations = triples.relations().len();
        let mut questions = HashMap::new();
        for part in [EdgePart::Val, EdgePart::Test] {
            triples.for_each(part, progress, |triple| {
                for asked in Asked::BOTH {
                    let next = questions.len() as u32;
                    questions.entry(question(asked, triple, relations)).or_insert(next);
                }
                Ok(())
            })?;
        }
        Self::answer(triples, questions, progress)
    }

    fn answer(triples: &Triples, questions: HashMap<u64, u32>, progress: &dyn Progress) -> Result<Self> {
        let relations = triples.relations().len();
        // Most entities of a large graph are in no question.
        let mut is_asked = vec![false; triples.entity_count()];
        questions.keys().for_each(|question| is_asked[(question / relations as u64 / 2) as usize] = true);
        let mut seen = vec![false; triples.entity_count()];
        let mut found: Vec<(u32, u32)> = Vec::new();
        for part in EdgePart::ALL {
            triples.for_each(part, progress, |triple| {
                if part == EdgePart::Graph {
                    seen[triple.head as usize] = true;
                    seen[triple.tail as usize] = true;
                }
                for (asked, known) in Asked::BOTH.into_iter().zip([triple.head, triple.tail]) {
                    if is_asked[known as usize]
                        && let Some(&number) = questions.get(&question(asked, triple, relations))
                    {
                        found.push((number, answer(asked, triple)));
                    }
                }
                Ok(())
            })?;
        }
        found.sort_unstable();
        found.dedup();
        let starts = (0..=questions.len() as u32).map(|number| found.partition_point(|&(other, _)| other < number));
        let starts = starts.collect();
        Ok(Self { seen, questions, starts, answers: found.into_iter().map(|(_, answer)| answer).collect() })
    }

    /// Collects the known tails of heads and relations. Reads the graph once.
    ///
    /// # Errors
    /// As [`KnownAnswers::collect`].
    pub fn of_tails(triples: &Triples, asked: impl Iterator<Item = Triple>, progress: &dyn Progress) -> Result<Self> {
        let relations = triples.relations().len();
        let mut questions = HashMap::new();
        for triple in asked {
            let next = questions.len() as u32;
            questions.entry(question(Asked::Tail, triple, relations)).or_insert(next);
        }
        Self::answer(triples, questions, progress)
    }

    /// The known tails of a head and a relation that were asked for, ascending.
    ///
    /// # Panics
    /// If [`KnownAnswers::of_tails`] was not asked for them.
    pub fn tails(&self, triple: Triple, relations: usize) -> &[u32] {
        self.answers(question(Asked::Tail, triple, relations))
    }

    fn answers(&self, question: u64) -> &[u32] {
        let number = self.questions[&question] as usize;
        &self.answers[self.starts[number]..self.starts[number + 1]]
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        // Entries of a hash table, at its usual load.
        (self.seen.len() + 24 * self.questions.len() + 8 * self.starts.len() + 4 * self.answers.len()) as u64
    }
}

/// Ranks the triples of a part.
#[derive(Debug, Clone, Copy)]
pub struct Ranking<'a> {
    /// The graph.
    pub triples: &'a Triples,
    /// The model.
    pub model: &'a TripleModel,
    /// Known triples.
    pub known: &'a KnownAnswers,
    /// Candidates of each triple; none for all entities.
    pub candidates: Option<u32>,
    /// The memory limit in bytes.
    pub memory: u64,
}

/// Queries of some held-out triples, and their ranks so far.
struct Queries {
    queries: Matrix,
    /// Scores of the right entities.
    scores: Vec<f32>,
    /// For each query, the right entity.
    answers: Vec<u32>,
    /// For each query, the entities that are known to answer it, or the drawn candidates, sorted by partition and row.
    listed: Vec<Vec<Listed>>,
    /// Whether all entities are known to the training triples.
    are_seen: Vec<bool>,
    places: Vec<QueryPlaces>,
}

/// A known answer or a drawn candidate of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Listed {
    part: u32,
    row: u32,
    is_known: bool,
}

/// Candidates of a query by their scores.
#[derive(Debug, Clone, Copy, Default)]
struct QueryPlaces {
    /// All entities, or the drawn candidates.
    all: Places,
    /// The candidates among them that make a known triple.
    known: Places,
}

impl Ranking<'_> {
    /// The scores of the triples of a part. None if there are none.
    ///
    /// # Errors
    /// If rows cannot be read, or `progress` asks to stop.
    pub fn of_part(
        &self,
        part: EdgePart,
        entities: &mut Residents,
        relations: &Rows,
        progress: &dyn Progress,
    ) -> Result<Option<ScoreReport>> {
        if self.triples.count(part) == 0 {
            return Ok(None);
        }
        let mut held_out = Vec::new();
        self.triples.for_each(part, progress, |triple| {
            held_out.push(triple);
            Ok(())
        })?;
        let shape = entities.shape();
        progress.steps("ranking triples", u64::from(shape.parts) * held_out.len() as u64);
        let row_bytes = 4 * 6 * padded(self.model.dim) as u64;
        let group = (QUERIES.bytes(self.memory) / row_bytes).max(TILE as u64) as usize;
        let (mut scores, mut unseen) = (LinkScores::default(), 0);
        for (number, triples) in held_out.chunks(group).enumerate() {
            let mut queries = self.queries(triples, (number * group) as u64, entities, relations)?;
            let mut buffer = Vec::new();
            for part in 0..shape.parts {
                check_stopped(progress)?;
                let values = entities.values(part, &mut buffer)?;
                match self.candidates {
                    None => self.score_all(&mut queries, part, shape.parts, values, progress),
                    Some(_) => self.score_listed(&mut queries, part, values),
                }
                progress.advance(triples.len() as u64, 0);
            }
            unseen += queries.are_seen.iter().filter(|seen| !**seen).count() as u64 / 2;
            self.add(&queries, &mut scores);
        }
        let count = self.candidates;
        let kind = LinkCandidates { count, kind: "uniform".to_owned(), among: None };
        let links = LinkReport { unseen, ..scores.report(kind) };
        Ok(Some(ScoreReport { nodes: links.edges, links: Some(links), ..ScoreReport::default() }))
    }

    /// The queries of some triples: for tails, then for heads.
    fn queries(&self, triples: &[Triple], first: u64, entities: &mut Residents, relations: &Rows) -> Result<Queries> {
        let (model, parts) = (self.model, entities.shape().parts);
        let dim = model.dim;
        // Heads, then tails.
        let ends: Vec<u32> =
            triples.iter().map(|triple| triple.head).chain(triples.iter().map(|triple| triple.tail)).collect();
        let mut rows = Matrix::zeros(ends.len(), dim);
        let mut buffer = Vec::new();
        for part in 0..parts {
            let values = entities.values(part, &mut buffer)?;
            rows.fill_rows(|row, place| {
                if ends[row] % parts == part {
                    place[..dim].copy_from_slice(&values[(ends[row] / parts) as usize * dim..][..dim]);
                }
            });
        }
        let count = triples.len();
        let asked = |query: usize| if query < count { Asked::Tail } else { Asked::Head };
        let mut queries = Matrix::zeros(ends.len(), dim);
        queries.fill_rows(|query, place| {
            let relation = relations.row(model.relation_row(asked(query), triples[query % count].relation));
            model.query(asked(query), &rows.row(query)[..dim], relation, place);
        });
        let other_end = |query: usize| (query + count) % (2 * count);
        let mut scores = vec![0.0; ends.len()];
        for_each(scores.chunks_mut(TILE).enumerate().collect(), |(tile, scores): (usize, &mut [f32])| {
            for (query, score) in (tile * TILE..).zip(scores) {
                *score = model.similarity.score(&queries.row(query)[..dim], &rows.row(other_end(query))[..dim]);
            }
        });
        let answers: Vec<u32> = (0..ends.len()).map(|query| ends[other_end(query)]).collect();
        let are_seen = (0..ends.len())
            .map(|query| [query, other_end(query)].iter().all(|&end| self.known.seen[ends[end] as usize]))
            .collect();
        let listed = (0..ends.len()).map(|query| {
            let triple = triples[query % count];
            let known = self.known.answers(question(asked(query), triple, self.triples.relations().len()));
            let listed_of = |entity: u32, is_known| Listed { part: entity % parts, row: entity / parts, is_known };
            let others = |entity: &u32| *entity != answers[query];
            let mut listed: Vec<Listed> = match self.candidates {
                None => known.iter().copied().filter(others).map(|entity| listed_of(entity, true)).collect(),
                Some(draws) => {
                    let key =
                        random::combine(DRAW_KEY, 2 * (first + (query % count) as u64) + u64::from(query >= count));
                    let drawn = (0..draws.into()).map(|draw| {
                        random::scale(random::draw_at(key, draw), self.triples.entity_count() as u64) as u32
                    });
                    drawn.filter(others).map(|entity| listed_of(entity, known.binary_search(&entity).is_ok())).collect()
                }
            };
            listed.sort_unstable();
            listed
        });
        let listed = listed.collect();
        let places = vec![QueryPlaces::default(); ends.len()];
        Ok(Queries { queries, scores, answers, listed, are_seen, places })
    }

    /// Compares all queries with all rows of a partition.
    fn score_all(&self, queries: &mut Queries, part: u32, parts: u32, values: &[f32], progress: &dyn Progress) {
        let model = self.model;
        let dim = model.dim;
        let mut rows = Matrix::default();
        let mut blocks = vec![CandidateBlock::default(); BLOCKS];
        for (group, values) in values.chunks(BLOCKS * BLOCK * dim).enumerate() {
            if progress.is_stopped() {
                return;
            }
            let (first, count) = (group * BLOCKS * BLOCK, values.len() / dim);
            rows.resize(count, dim);
            rows.fill_rows(|row, place| place[..dim].copy_from_slice(&values[row * dim..][..dim]));
            let rows = PaddedRows { data: &rows.data, stride: rows.stride, dim };
            let range = |block: usize| block * BLOCK..((block + 1) * BLOCK).min(count);
            for_each(blocks.iter_mut().enumerate().take(count.div_ceil(BLOCK)).collect(), |(number, block)| {
                let range = range(number);
                block.prepare(model.similarity, rows.range(range.start, range.end), padded(range.len()));
            });
            let Queries { queries: matrix, scores, answers, listed, places, .. } = &mut *queries;
            let tiles = places.chunks_mut(TILE).enumerate().collect();
            for_each(tiles, |(tile, places): (usize, &mut [QueryPlaces])| {
                let start = tile * TILE;
                let of_queries = PaddedRows { data: &matrix.data, stride: matrix.stride, dim };
                let of_queries = of_queries.range(start, start + places.len());
                let mut buffer = vec![0.0; TILE * BLOCK];
                for (number, block) in blocks.iter().enumerate().take(count.div_ceil(BLOCK)) {
                    let range = range(number);
                    let columns = padded(range.len());
                    let found = &mut buffer[..places.len() * columns];
                    model.similarity.scores(of_queries, block, found);
                    let here = (first + range.start) as u32..(first + range.end) as u32;
                    for ((query, places), found) in (start..).zip(places.iter_mut()).zip(found.chunks(columns)) {
                        let right = scores[query];
                        add_scores(&mut places.all, right, &found[..range.len()]);
                        let answer = answers[query];
                        if answer % parts == part && here.contains(&(answer / parts)) {
                            // The right entity does not compete with itself.
                            let own = found[(answer / parts - here.start) as usize];
                            let mut itself = Places::default();
                            itself.add_scores(right, std::iter::once(own));
                            places.all.above -= itself.above;
                            places.all.equal -= itself.equal;
                        }
                        let place = |row: u32| Listed { part, row, is_known: false };
                        let of_query = &listed[query];
                        let from = of_query.partition_point(|listed| *listed < place(here.start));
                        let known = of_query[from..].iter().take_while(|listed| **listed < place(here.end));
                        places.known.add_scores(right, known.map(|listed| found[(listed.row - here.start) as usize]));
                    }
                }
            });
        }
    }

    /// Compares each query with its drawn candidates in a partition.
    fn score_listed(&self, queries: &mut Queries, part: u32, values: &[f32]) {
        let (model, dim) = (self.model, self.model.dim);
        let Queries { queries: matrix, scores, listed, places, .. } = queries;
        for_each(places.chunks_mut(TILE).enumerate().collect(), |(tile, places): (usize, &mut [QueryPlaces])| {
            for (query, places) in (tile * TILE..).zip(places) {
                for candidate in listed[query].iter().filter(|candidate| candidate.part == part) {
                    let row = &values[candidate.row as usize * dim..][..dim];
                    let score = std::iter::once(model.similarity.score(&matrix.row(query)[..dim], row));
                    places.all.add_scores(scores[query], score.clone());
                    if candidate.is_known {
                        places.known.add_scores(scores[query], score);
                    }
                }
            }
        });
    }

    /// Adds the ranks of queries.
    fn add(&self, queries: &Queries, scores: &mut LinkScores) {
        let all = self.triples.entity_count() as u64 - 1;
        for (query, QueryPlaces { all: places, known }) in queries.places.iter().enumerate() {
            if queries.are_seen[query] {
                scores.filtered.add(places.above - known.above, places.equal - known.equal);
                scores.raw.add(places.above, places.equal);
            } else {
                let listed = &queries.listed[query];
                let known = listed.iter().filter(|listed| listed.is_known).count() as u64;
                let candidates = if self.candidates.is_some() { listed.len() as u64 } else { all };
                scores.filtered.add(candidates - known, 0);
                scores.raw.add(candidates, 0);
            }
        }
    }
}

/// Adds the candidates with these scores. Counts in lanes, where [`Places::add_scores`] has branches.
fn add_scores(places: &mut Places, right: f32, scores: &[f32]) {
    if right.is_nan() {
        places.above += scores.len() as u64;
        return;
    }
    let (mut equal, mut below) = (0u32, 0u32);
    for &score in scores {
        equal += u32::from(score == right);
        below += u32::from(score < right);
    }
    places.equal += u64::from(equal);
    // A score that is NaN is above.
    places.above += scores.len() as u64 - u64::from(equal) - u64::from(below);
}
