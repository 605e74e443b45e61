use super::{assert_close, values};
use crate::{
    decoder::{Asked, TripleDecoder},
    similarity::Similarity,
};

const DECODERS: [TripleDecoder; 4] =
    [TripleDecoder::DistMult, TripleDecoder::ComplEx, TripleDecoder::RotatE, TripleDecoder::TransE];

fn query(decoder: TripleDecoder, asked: Asked, entity: &[f32], relation: &[f32]) -> Vec<f32> {
    let mut query = vec![0.0; entity.len()];
    decoder.query(asked, entity, relation, &mut query);
    query
}

fn score(decoder: TripleDecoder, similarity: Similarity, asked: Asked, [h, r, t]: [&[f32]; 3]) -> f32 {
    match asked {
        Asked::Tail => similarity.score(&query(decoder, asked, h, r), t),
        Asked::Head => similarity.score(&query(decoder, asked, t, r), h),
    }
}

#[test]
fn scores_are_those_of_the_papers() {
    // Two complex numbers: h = (1 + 3i, 2 - 1i), r = (2 + 1i, -1 + 2i), t = (1 - 1i, 3 + 2i).
    let [h, r, t] = [[1.0, 2.0, 3.0, -1.0], [2.0, -1.0, 1.0, 2.0], [1.0, 3.0, -1.0, 2.0]];
    let dot = |decoder| score(decoder, Similarity::Dot, Asked::Tail, [&h, &r, &t]);
    // 1*2*1 + 2*-1*3 + 3*1*-1 + -1*2*2
    assert_eq!(dot(TripleDecoder::DistMult), 2.0 - 6.0 - 3.0 - 4.0);
    // Re(h r conj(t)): (1+3i)(2+i) = -1 + 7i, times 1 + i: -8. (2-i)(-1+2i) = 5i, times 3 - 2i: 10.
    assert_eq!(dot(TripleDecoder::ComplEx), -8.0 + 10.0);
    // h + r - t = (2, -2, 5, -1).
    let translated = |similarity| score(TripleDecoder::TransE, similarity, Asked::Tail, [&h, &r, &t]);
    assert_eq!(translated(Similarity::Manhattan), -10.0);
    assert_close(translated(Similarity::Euclidean).into(), -(34.0f64.sqrt()), 1e-6, "transe, l2");
    // Rotated by a quarter turn and by a half: (-3 + 1i, -2 + 1i). Less t: (-4 + 2i, -5 - 1i).
    let angles = [std::f32::consts::FRAC_PI_2, std::f32::consts::PI];
    let rotated = |similarity| f64::from(score(TripleDecoder::RotatE, similarity, Asked::Tail, [&h, &angles, &t]));
    assert_close(rotated(Similarity::Moduli), -(20.0f64.sqrt() + 26.0f64.sqrt()), 1e-6, "rotate, l1");
    assert_close(rotated(Similarity::Euclidean), -(46.0f64.sqrt()), 1e-6, "rotate, l2");
}

#[test]
fn a_head_query_and_a_tail_query_score_a_triple_alike() {
    for decoder in DECODERS {
        let (h, t) = (values(40, 1), values(40, 2));
        let r = values(decoder.relation_dim(40), 3);
        let similarities = match decoder {
            TripleDecoder::DistMult | TripleDecoder::ComplEx => vec![Similarity::Dot],
            TripleDecoder::RotatE => vec![Similarity::Euclidean, Similarity::Moduli],
            TripleDecoder::TransE => vec![Similarity::Euclidean, Similarity::Manhattan],
        };
        for similarity in similarities {
            let [tail, head] = Asked::BOTH.map(|asked| f64::from(score(decoder, similarity, asked, [&h, &r, &t])));
            assert_close(head, tail, 1e-5, &format!("{decoder:?} {similarity:?}"));
        }
    }
}

#[test]
fn gradients_of_queries_are_finite_differences() {
    const STEP: f32 = 1e-2;
    for decoder in DECODERS {
        for asked in Asked::BOTH {
            let (e, g) = (values(8, 4), values(8, 5));
            let r = values(decoder.relation_dim(8), 6);
            let value = |e: &[f32], r: &[f32]| -> f64 {
                let query = query(decoder, asked, e, r);
                query.iter().zip(&g).map(|(query, g)| f64::from(*query) * f64::from(*g)).sum()
            };
            let (mut of_entity, mut of_relation) = (vec![0.0; e.len()], vec![0.0; r.len()]);
            let q = query(decoder, asked, &e, &r);
            decoder.query_backward(asked, [&e, &r], [&q, &g], [&mut of_entity, &mut of_relation]);
            let moved = |row: &[f32], k: usize, step: f32| {
                let mut row = row.to_vec();
                row[k] += step;
                row
            };
            for (k, gradient) in of_entity.into_iter().enumerate() {
                let difference = value(&moved(&e, k, STEP), &r) - value(&moved(&e, k, -STEP), &r);
                let expected = difference / f64::from(2.0 * STEP);
                assert_close(gradient.into(), expected, 1e-3, &format!("{decoder:?} {asked:?} entity {k}"));
            }
            for (k, gradient) in of_relation.into_iter().enumerate() {
                let difference = value(&e, &moved(&r, k, STEP)) - value(&e, &moved(&r, k, -STEP));
                let expected = difference / f64::from(2.0 * STEP);
                assert_close(gradient.into(), expected, 1e-3, &format!("{decoder:?} {asked:?} relation {k}"));
            }
        }
    }
}
