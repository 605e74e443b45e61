//! A step: the loss of a batch of triples, its gradients, and the update of rows.

use grappa_formats::random;
use grappa_kernels::for_each;
use grappa_run::{
    config::{DistanceNorm, LossKind, TripleNegatives, TripleOptions},
    model::Decoder,
};

use crate::{
    decoder::{Asked, TripleDecoder},
    dropout::DropoutMasks,
    loss::TripleLoss,
    matrix::Matrix,
    residents::{InitialRows, Residents},
    rows::{GradientOf, RowOptimizer, Rows},
    side::{Positives, Side, SideGradients, SideMemory},
    similarity::Similarity,
    triples::Triple,
};

/// Triples of a part, for threads.
const PART: usize = 64;
/// Range of the initial values of rows for products.
const PRODUCT_RANGE: f32 = 0.1;
/// Distances of random rows are about the sum of the margin and this constant, as in Sun et al.
const RANGE_EXTRA: f32 = 2.0;

/// The model of triples: decoder, loss, negatives and optimizer of its rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TripleModel {
    /// The decoder.
    pub decoder: TripleDecoder,
    /// How queries are compared with rows.
    pub similarity: Similarity,
    /// The loss.
    pub loss: TripleLoss,
    /// Values of the row of an entity.
    pub dim: usize,
    /// Number of relations.
    pub relations: usize,
    /// Whether relations have two rows.
    pub reciprocal: bool,
    /// The negatives.
    pub negatives: TripleNegatives,
    /// Factors of the N3 norm and of the L2 norm.
    pub penalties: [f32; 2],
    /// The probability that a value of a row is dropped in a step.
    pub dropout: f32,
    /// The optimizer.
    pub optimizer: RowOptimizer,
    margin: f32,
}

impl TripleModel {
    /// The model of these options. None if the decoder or the optimizer is none of triples.
    pub fn new(options: &TripleOptions, relations: usize) -> Option<Self> {
        let decoder = TripleDecoder::named(options.decoder)?;
        let margin = options.margin as f32;
        Some(Self {
            decoder,
            similarity: match (options.decoder, options.distance) {
                (Decoder::RotatE | Decoder::TransE, DistanceNorm::L2) => Similarity::Euclidean,
                (Decoder::RotatE, DistanceNorm::L1) => Similarity::Moduli,
                (Decoder::TransE, DistanceNorm::L1) => Similarity::Manhattan,
                _ => Similarity::Dot,
            },
            loss: match options.loss {
                LossKind::Bce => TripleLoss::Logistic { margin, adversarial: options.self_adversarial as f32 },
                _ => TripleLoss::Softmax,
            },
            dim: options.dim,
            relations,
            reciprocal: options.reciprocal,
            negatives: options.negatives,
            penalties: [options.n3 as f32, options.l2 as f32],
            dropout: options.dropout as f32,
            optimizer: RowOptimizer::named(options.optimizer)?,
            margin,
        })
    }

    /// Rows of relations.
    pub fn relation_rows(&self) -> usize {
        self.relations * if self.reciprocal { 2 } else { 1 }
    }

    /// The number of the row of a relation in a query.
    pub fn relation_row(&self, asked: Asked, relation: u32) -> usize {
        relation as usize + if self.reciprocal && asked == Asked::Head { self.relations } else { 0 }
    }

    /// The direction in which the decoder applies the row of a relation: a second row always scores tails.
    pub fn form(&self, asked: Asked) -> Asked {
        if self.reciprocal { Asked::Tail } else { asked }
    }

    /// Values of entities before the first step.
    pub fn initial_rows(&self, seed: u64) -> InitialRows {
        let numbers = self.dim as f32;
        let range = match self.similarity {
            Similarity::Dot => PRODUCT_RANGE,
            Similarity::Euclidean => (self.margin + RANGE_EXTRA) / numbers.sqrt(),
            Similarity::Manhattan => (self.margin + RANGE_EXTRA) / numbers,
            Similarity::Moduli => (self.margin + RANGE_EXTRA) / (numbers / 2.0),
        };
        InitialRows { range, key: random::combine(seed, ENTITY_KEY) }
    }

    /// Rows of relations before the first step.
    pub fn initial_relations(&self, seed: u64) -> Rows {
        let range = match self.decoder {
            TripleDecoder::RotatE => std::f32::consts::PI,
            _ => self.initial_rows(seed).range,
        };
        let dim = self.decoder.relation_dim(self.dim);
        let key = random::combine(seed, RELATION_KEY);
        Rows::random(self.relation_rows(), dim, self.optimizer, range, key, |row| row as u64)
    }

    /// The query of a row.
    pub fn query(&self, asked: Asked, entity: &[f32], relation: &[f32], query: &mut [f32]) {
        self.decoder.query(self.form(asked), entity, relation, &mut query[..self.dim]);
    }
}

const ENTITY_KEY: u64 = 0x656e_7469;
const RELATION_KEY: u64 = 0x7265_6c61;
const DROPOUT_KEY: u64 = 0x6472_6f70;

/// Computes steps. Buffers are reused from step to step.
#[derive(Debug)]
pub struct Stepper {
    model: TripleModel,
    /// The rows of heads and of tails.
    ends: [Matrix; 2],
    /// The rows of relations in tail queries and in head queries.
    relations: [Matrix; 2],
    /// Tail queries of heads, and head queries of tails.
    queries: [Matrix; 2],
    candidates: [Matrix; 2],
    memory: SideMemory,
    sides: [SideGradients; 2],
    /// Gradients of heads, then of tails, then of the candidates of each side or of all entities.
    of_entities: Matrix,
    /// Gradients of relations in tail queries, then in head queries.
    of_relations: Matrix,
    gradients: Vec<GradientOf>,
}

/// The numbers of rows that a batch uses.
struct BatchRows {
    /// Heads and tails, as numbers of rows in memory.
    ends: [Vec<u32>; 2],
    /// Rows of relations in tail queries and in head queries.
    relations: [Vec<u32>; 2],
    /// Negatives of tails and of heads, as numbers of rows in memory. None for all of them.
    negatives: Option<[Vec<u32>; 2]>,
    masks: StepMasks,
}

/// The dropout masks of a step, by side. With all entities as candidates, both sides use the first mask of candidates.
struct StepMasks {
    ends: [DropoutMasks; 2],
    relations: [DropoutMasks; 2],
    candidates: [DropoutMasks; 2],
}

impl StepMasks {
    fn new(model: &TripleModel, key: u64) -> Self {
        let key = random::combine(key, DROPOUT_KEY);
        let masks = |probability: f32, first: u64| [0, 1].map(|side| DropoutMasks::new(probability, key, first + side));
        // Without its angle, a relation of RotatE would be another one.
        let of_relations = if model.decoder == TripleDecoder::RotatE { 0.0 } else { model.dropout };
        Self { ends: masks(model.dropout, 0), relations: masks(of_relations, 2), candidates: masks(model.dropout, 4) }
    }
}

impl Stepper {
    /// Steps of a model.
    pub fn new(model: TripleModel) -> Self {
        Self {
            model,
            ends: Default::default(),
            relations: Default::default(),
            queries: Default::default(),
            candidates: Default::default(),
            memory: SideMemory::default(),
            sides: Default::default(),
            of_entities: Matrix::default(),
            of_relations: Matrix::default(),
            gradients: Vec::new(),
        }
    }

    /// Trains a batch. `key` decides its negatives. Returns the sum of the losses of its triples, each the mean over its two queries.
    pub fn step(
        &mut self,
        batch: &[Triple],
        entities: &mut Residents,
        relations: &mut Rows,
        rate: f32,
        key: u64,
    ) -> f64 {
        let rows = self.rows_of(batch, entities, key);
        self.gather(&rows, entities, relations);
        let weight = 0.5 / batch.len() as f32;
        let loss = self.backward(&rows, weight);
        self.add_ends(&rows, entities, relations);
        self.update(&rows, entities, relations, rate);
        loss * batch.len() as f64
    }

    fn rows_of(&self, batch: &[Triple], entities: &Residents, key: u64) -> BatchRows {
        let relations = Asked::BOTH
            .map(|asked| batch.iter().map(|triple| self.model.relation_row(asked, triple.relation) as u32).collect());
        let count = entities.len() as u64;
        let negatives = match self.model.negatives {
            TripleNegatives::All => None,
            TripleNegatives::Shared(negatives) => Some([0, 1].map(|side| {
                let key = random::combine(key, side);
                (0..negatives.into()).map(|draw| random::scale(random::draw_at(key, draw), count) as u32).collect()
            })),
        };
        BatchRows {
            ends: [
                batch.iter().map(|triple| entities.number(triple.head)).collect(),
                batch.iter().map(|triple| entities.number(triple.tail)).collect(),
            ],
            relations,
            negatives,
            masks: StepMasks::new(&self.model, key),
        }
    }

    /// Copies rows, drops values of the copies, and computes queries.
    fn gather(&mut self, rows: &BatchRows, entities: &Residents, relations: &Rows) {
        let model = self.model;
        let copy = |matrix: &mut Matrix, numbers: &[u32], masks: &DropoutMasks| {
            matrix.resize(numbers.len(), model.dim);
            matrix.fill_rows(|row, place| {
                place[..model.dim].copy_from_slice(entities.row(numbers[row]));
                masks.apply(row, &mut place[..model.dim]);
            });
        };
        for (side, asked) in Asked::BOTH.into_iter().enumerate() {
            copy(&mut self.ends[side], &rows.ends[side], &rows.masks.ends[side]);
            let (numbers, masks) = (&rows.relations[side], &rows.masks.relations[side]);
            let of_relations = &mut self.relations[side];
            of_relations.resize(numbers.len(), relations.dim());
            of_relations.fill_rows(|row, place| {
                place[..relations.dim()].copy_from_slice(relations.row(numbers[row] as usize));
                masks.apply(row, &mut place[..relations.dim()]);
            });
            let (known, of_relations, queries) = (&self.ends[side], &self.relations[side], &mut self.queries[side]);
            queries.resize(numbers.len(), model.dim);
            queries.fill_rows(|row, query| {
                let relation = &of_relations.row(row)[..relations.dim()];
                model.query(asked, &known.row(row)[..model.dim], relation, query);
            });
        }
        match &rows.negatives {
            Some(negatives) => {
                let masks = &rows.masks.candidates;
                for ((matrix, negatives), masks) in self.candidates.iter_mut().zip(negatives).zip(masks) {
                    copy(matrix, negatives, masks);
                }
            }
            None => {
                let all: Vec<u32> = (0..entities.len() as u32).collect();
                copy(&mut self.candidates[0], &all, &rows.masks.candidates[0]);
            }
        }
    }

    /// Computes the loss, and the gradients of queries and candidates.
    fn backward(&mut self, rows: &BatchRows, weight: f32) -> f64 {
        let (model, batch) = (self.model, rows.ends[0].len());
        let candidates = match &rows.negatives {
            Some(negatives) => negatives.iter().map(Vec::len).sum(),
            None => self.candidates[0].rows(),
        };
        self.of_entities.reset(2 * batch + candidates, model.dim);
        let stride = self.of_entities.stride;
        let mut of_candidates = &mut self.of_entities.data[2 * batch * stride..];
        let mut loss = 0.0;
        for side in 0..2 {
            let asked_for = 1 - side;
            let clashes;
            let (candidates, positives) = match &rows.negatives {
                Some(negatives) => {
                    clashes = find_clashes(&rows.ends[asked_for], &negatives[side]);
                    (&self.candidates[side], Positives::Apart(&self.ends[asked_for], &clashes))
                }
                None => (&self.candidates[0], Positives::Among(&rows.ends[asked_for])),
            };
            let one = Side {
                similarity: model.similarity,
                loss: model.loss,
                weight,
                dim: model.dim,
                queries: &self.queries[side],
                candidates,
                positives,
            };
            let of_side = match &rows.negatives {
                Some(_) => of_candidates.split_off_mut(..candidates.rows() * stride).expect("gradients of candidates"),
                None => &mut *of_candidates,
            };
            loss += one.backward(&mut self.memory, &mut self.sides[side], of_side);
            // The gradients of all entities are complete after the second side.
            if rows.negatives.is_some() || side == 1 {
                let masks = &rows.masks.candidates[if rows.negatives.is_some() { side } else { 0 }];
                masks.apply_to_rows(of_side, stride, model.dim);
            }
        }
        loss
    }

    /// Adds the gradients of heads, tails and relations: as queries, as positives, and of norms.
    fn add_ends(&mut self, rows: &BatchRows, entities: &Residents, relations: &Rows) {
        let (model, batch) = (self.model, rows.ends[0].len());
        let dim = model.dim;
        let relation_dim = relations.dim();
        self.of_relations.reset(2 * batch, relation_dim);
        let (stride, relation_stride) = (self.of_entities.stride, self.of_relations.stride);
        let of_ends = &mut self.of_entities.data[..2 * batch * stride];
        let (of_heads, of_tails) = of_ends.split_at_mut(batch * stride);
        let (of_tail_relations, of_head_relations) = self.of_relations.data.split_at_mut(batch * relation_stride);
        let [of_tail_queries, of_head_queries] = &mut self.sides;
        let chunks = of_heads
            .chunks_mut(PART * stride)
            .zip(of_tails.chunks_mut(PART * stride))
            .zip(of_tail_relations.chunks_mut(PART * relation_stride))
            .zip(of_head_relations.chunks_mut(PART * relation_stride))
            .zip(of_tail_queries.queries.data.chunks_mut(PART * stride))
            .zip(of_head_queries.queries.data.chunks_mut(PART * stride));
        let positives = [&of_tail_queries.positives, &of_head_queries.positives];
        let (ends, of_relations, queries) = (&self.ends, &self.relations, &self.queries);
        let penalty = Penalty { factors: model.penalties.map(|factor| factor / batch as f32), decoder: model.decoder };
        let are_apart = rows.negatives.is_some();
        for_each(chunks.enumerate().collect(), |(part, (((((heads, tails), tail_r), head_r), tail_q), head_q))| {
            let mut gradients_of_ends = [heads, tails];
            let gradients_of_relations = [tail_r, head_r];
            let gradients_of_queries = [tail_q, head_q];
            for row in 0..gradients_of_ends[0].len() / stride {
                let number = part * PART + row;
                let place = row * stride..row * stride + dim;
                for (side, asked) in Asked::BOTH.into_iter().enumerate() {
                    let known = &ends[side].row(number)[..dim];
                    let query = &queries[side].row(number)[..dim];
                    let of_query = &mut gradients_of_queries[side][place.clone()];
                    if are_apart {
                        let positive = &ends[1 - side].row(number)[..dim];
                        let of_positive = &mut gradients_of_ends[1 - side][place.clone()];
                        let (score, gradient) = positives[side][number];
                        model.similarity.backward([query, positive], score, gradient, [of_query, of_positive]);
                    }
                    let relation = &of_relations[side].row(number)[..relation_dim];
                    let of_relation = &mut gradients_of_relations[side][row * relation_stride..][..relation_dim];
                    let of_query = &gradients_of_queries[side][place.clone()];
                    let of_entity = &mut gradients_of_ends[side][place.clone()];
                    model.decoder.query_backward(
                        model.form(asked),
                        [known, relation],
                        [query, of_query],
                        [of_entity, &mut *of_relation],
                    );
                    rows.masks.relations[side].apply(number, of_relation);
                    // A triple has two queries, and so two relations.
                    penalty.add_to_relation(relations.row(rows.relations[side][number] as usize), of_relation);
                }
                for (side, gradients) in gradients_of_ends.iter_mut().enumerate() {
                    let of_entity = &mut gradients[place.clone()];
                    rows.masks.ends[side].apply(number, of_entity);
                    penalty.add_to_entity(entities.row(rows.ends[side][number]), of_entity);
                }
            }
        });
    }

    /// Changes the rows of entities and relations.
    fn update(&mut self, rows: &BatchRows, entities: &mut Residents, relations: &mut Rows, rate: f32) {
        self.gradients.clear();
        let ends = rows.ends.iter().flatten().copied();
        match &rows.negatives {
            Some(negatives) => add_gradients(&mut self.gradients, ends.chain(negatives.iter().flatten().copied())),
            None => add_gradients(&mut self.gradients, ends.chain(0..entities.len() as u32)),
        }
        entities.update(rate, &self.gradients, &self.of_entities);
        self.gradients.clear();
        add_gradients(&mut self.gradients, rows.relations.iter().flatten().copied());
        relations.update(self.model.optimizer, rate, &self.gradients, 0, &self.of_relations);
    }
}

/// Lists gradients, sorted by their rows.
fn add_gradients(gradients: &mut Vec<GradientOf>, rows: impl Iterator<Item = u32>) {
    gradients.extend((0..).zip(rows).map(|(gradient, row)| GradientOf { row, gradient }));
    gradients.sort_unstable();
}

/// Queries and negatives that are the same entity as the positive, sorted.
fn find_clashes(positives: &[u32], negatives: &[u32]) -> Vec<(u32, u32)> {
    let mut sorted: Vec<(u32, u32)> = negatives.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let clashes_of = |(query, &positive): (u32, &u32)| {
        let start = sorted.partition_point(|&(entity, _)| entity < positive);
        let same = sorted[start..].iter().take_while(move |(entity, _)| *entity == positive);
        same.map(move |&(_, negative)| (query, negative))
    };
    (0..).zip(positives).flat_map(clashes_of).collect()
}

/// The gradients of norms of rows.
struct Penalty {
    /// Factor of the N3 norm, then of the L2 norm.
    factors: [f32; 2],
    decoder: TripleDecoder,
}

impl Penalty {
    fn add_to_entity(&self, row: &[f32], gradient: &mut [f32]) {
        self.add(row, gradient, self.decoder.is_complex());
    }

    fn add_to_relation(&self, row: &[f32], gradient: &mut [f32]) {
        // Angles have no norm.
        if self.decoder != TripleDecoder::RotatE {
            let halved = Self { factors: self.factors.map(|factor| factor / 2.0), ..*self };
            halved.add(row, gradient, self.decoder.is_complex());
        }
    }

    fn add(&self, row: &[f32], gradient: &mut [f32], is_complex: bool) {
        let [n3, l2] = self.factors;
        if l2 > 0.0 {
            gradient.iter_mut().zip(row).for_each(|(gradient, value)| *gradient += 2.0 * l2 * value);
        }
        if n3 == 0.0 {
            return;
        }
        if !is_complex {
            gradient.iter_mut().zip(row).for_each(|(gradient, value)| *gradient += 3.0 * n3 * value.abs() * value);
            return;
        }
        let half = row.len() / 2;
        let (real, imaginary) = row.split_at(half);
        let (of_real, of_imaginary) = gradient.split_at_mut(half);
        for k in 0..half {
            let factor = 3.0 * n3 * (real[k] * real[k] + imaginary[k] * imaginary[k]).sqrt();
            of_real[k] += factor * real[k];
            of_imaginary[k] += factor * imaginary[k];
        }
    }
}
