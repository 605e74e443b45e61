//! Decoders: how a relation turns the row of one end of a triple into a query, which rows of the other end are compared with.
//!
//! ```text
//! distmult  tail query h * r          head query t * r            score: dot product
//! complex   tail query h * r          head query t * conj(r)      score: dot product of real parts and of imaginary parts
//! rotate    tail query h * e^(i r)    head query t * e^(-i r)     score: negative distance
//! transe    tail query h + r          head query t - r            score: negative distance
//! ```
//!
//! Yang et al. 2015 (DistMult), Trouillon et al. 2016 (ComplEx), Sun et al. 2019 (RotatE), Bordes et al. 2013 (TransE). A row of complex
//! numbers has the real parts first, then the imaginary parts. With reciprocal relations (Lacroix et al. 2018), each relation has a second
//! row, and a head query is a tail query with that row.

use grappa_run::model::Decoder;

/// Rows of complex numbers have this many values for each number.
const PARTS: usize = 2;

/// A decoder of triples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TripleDecoder {
    /// Product with a real row.
    DistMult,
    /// Product with a complex row.
    ComplEx,
    /// Rotation of complex numbers by angles.
    RotatE,
    /// Translation.
    TransE,
}

/// The end of a triple that a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// The tail; the query is of the head.
    Tail,
    /// The head; the query is of the tail.
    Head,
}

impl Asked {
    /// Both ends, tails first.
    pub const BOTH: [Self; 2] = [Self::Tail, Self::Head];
}

impl TripleDecoder {
    /// The decoder of this name. None if it is none of triples.
    pub fn named(decoder: Decoder) -> Option<Self> {
        match decoder {
            Decoder::DistMult => Some(Self::DistMult),
            Decoder::ComplEx => Some(Self::ComplEx),
            Decoder::RotatE => Some(Self::RotatE),
            Decoder::TransE => Some(Self::TransE),
            Decoder::Dot | Decoder::Cosine | Decoder::Mlp => None,
        }
    }

    /// Whether rows are of complex numbers, so that they have an even number of values.
    pub fn is_complex(self) -> bool {
        matches!(self, Self::ComplEx | Self::RotatE)
    }

    /// Whether scores are negative distances.
    pub fn is_distance(self) -> bool {
        matches!(self, Self::RotatE | Self::TransE)
    }

    /// Values of a relation's row, for entities with rows of `dim` values.
    pub fn relation_dim(self, dim: usize) -> usize {
        match self {
            Self::RotatE => dim / PARTS,
            _ => dim,
        }
    }

    /// Computes a query from the rows of an entity and of a relation. With reciprocal relations, `asked` is always the tail.
    pub fn query(self, asked: Asked, entity: &[f32], relation: &[f32], query: &mut [f32]) {
        match self {
            Self::DistMult => {
                query.iter_mut().zip(entity.iter().zip(relation)).for_each(|(query, (e, r))| *query = e * r);
            }
            Self::ComplEx => {
                let [(er, ei), (rr, ri)] = [entity, relation].map(|row| row.split_at(row.len() / PARTS));
                let (qr, qi) = query.split_at_mut(er.len());
                let sign = sign(asked);
                for k in 0..er.len() {
                    let imaginary = sign * ri[k];
                    qr[k] = er[k] * rr[k] - ei[k] * imaginary;
                    qi[k] = er[k] * imaginary + ei[k] * rr[k];
                }
            }
            Self::RotatE => {
                let (er, ei) = entity.split_at(relation.len());
                let (qr, qi) = query.split_at_mut(relation.len());
                for k in 0..relation.len() {
                    let (sin, cos) = (sign(asked) * relation[k]).sin_cos();
                    qr[k] = er[k] * cos - ei[k] * sin;
                    qi[k] = er[k] * sin + ei[k] * cos;
                }
            }
            Self::TransE => {
                let sign = sign(asked);
                query.iter_mut().zip(entity.iter().zip(relation)).for_each(|(query, (e, r))| *query = e + sign * r);
            }
        }
    }

    /// Adds the gradients of the rows of an entity and of a relation, from the query that they made and its `gradient`.
    pub fn query_backward(
        self,
        asked: Asked,
        [entity, relation]: [&[f32]; 2],
        [query, gradient]: [&[f32]; 2],
        [of_entity, of_relation]: [&mut [f32]; 2],
    ) {
        match self {
            Self::DistMult => {
                for k in 0..entity.len() {
                    of_entity[k] += gradient[k] * relation[k];
                    of_relation[k] += gradient[k] * entity[k];
                }
            }
            Self::ComplEx => {
                let half = entity.len() / PARTS;
                let [(er, ei), (rr, ri), (gr, gi)] = [entity, relation, gradient].map(|row| row.split_at(half));
                let [(der, dei), (drr, dri)] = [of_entity, of_relation].map(|row| row.split_at_mut(half));
                let sign = sign(asked);
                for k in 0..half {
                    let imaginary = sign * ri[k];
                    der[k] += gr[k] * rr[k] + gi[k] * imaginary;
                    dei[k] += gi[k] * rr[k] - gr[k] * imaginary;
                    drr[k] += gr[k] * er[k] + gi[k] * ei[k];
                    dri[k] += sign * (gi[k] * er[k] - gr[k] * ei[k]);
                }
            }
            Self::RotatE => {
                let half = relation.len();
                let [(qr, qi), (gr, gi)] = [query, gradient].map(|row| row.split_at(half));
                let (der, dei) = of_entity.split_at_mut(half);
                let sign = sign(asked);
                for k in 0..half {
                    let (sin, cos) = (sign * relation[k]).sin_cos();
                    der[k] += gr[k] * cos + gi[k] * sin;
                    dei[k] += gi[k] * cos - gr[k] * sin;
                    of_relation[k] += sign * (gi[k] * qr[k] - gr[k] * qi[k]);
                }
            }
            Self::TransE => {
                let sign = sign(asked);
                for k in 0..entity.len() {
                    of_entity[k] += gradient[k];
                    of_relation[k] += sign * gradient[k];
                }
            }
        }
    }
}

/// Relations are inverted for head queries.
fn sign(asked: Asked) -> f32 {
    match asked {
        Asked::Tail => 1.0,
        Asked::Head => -1.0,
    }
}
