use std::collections::HashSet;

use grappa_formats::EdgePart;
use grappa_io::progress::Silent;
use grappa_run::{
    config::{TaskChoice, TrainConfig},
    model::Decoder,
    scores::LinkReport,
};
use tempfile::tempdir;

use super::{
    assert_close,
    graph::{ENTITIES, UNSEEN, nodes_of, triples},
    with_threads,
};
use crate::{
    decoder::Asked,
    evaluate::{KnownAnswers, Ranking},
    residents::Residents,
    rows::{Generations, Rows, TableShape},
    step::TripleModel,
    triples::{Triple, Triples},
};

fn model(decoder: Decoder, triples: &Triples) -> TripleModel {
    let config = TrainConfig {
        layers: 0,
        task: TaskChoice::Link,
        decoder,
        embedding: "6".parse().unwrap(),
        reciprocal: false,
        ..TrainConfig::default()
    };
    TripleModel::new(&config.triple_options(ENTITIES, 1), triples.relations().len()).unwrap()
}

fn report(triples: &Triples, model: &TripleModel, relations: &Rows, parts: u32, candidates: Option<u32>) -> LinkReport {
    let folder = tempdir().unwrap();
    let shape = TableShape { rows: ENTITIES, dim: model.dim, parts, key: 0 };
    let generations = Generations::open(folder.path(), shape, None).unwrap();
    let mut entities = Residents::new(generations, model.optimizer, model.initial_rows(5));
    entities.enter([0, parts.min(2) - 1], None).unwrap();
    let known = KnownAnswers::collect(triples, &Silent).unwrap();
    let ranking = Ranking { triples, model, known: &known, candidates, memory: 1 << 20 };
    let scores = ranking.of_part(EdgePart::Test, &mut entities, relations, &Silent).unwrap();
    scores.unwrap().links.unwrap()
}

/// MRR, Hits@1, 3 and 10, by a plain loop.
fn slow_scores(triples: &Triples, model: &TripleModel, relations: &Rows) -> [f64; 4] {
    let parts = nodes_of(triples);
    let all: HashSet<Triple> = parts.concat().into_iter().collect();
    let seen: HashSet<u32> = parts[0].iter().flat_map(|triple| [triple.head, triple.tail]).collect();
    let rows =
        model.initial_rows(5).rows(TableShape { rows: ENTITIES, dim: model.dim, parts: 1, key: 0 }, 0, model.optimizer);
    let mut sums = [0.0; 4];
    let test = &parts[2];
    for &triple in test {
        for asked in Asked::BOTH {
            let (known, answer) = match asked {
                Asked::Tail => (triple.head, triple.tail),
                Asked::Head => (triple.tail, triple.head),
            };
            let relation = relations.row(model.relation_row(asked, triple.relation));
            let mut query = vec![0.0; model.dim];
            model.query(asked, rows.row(known as usize), relation, &mut query);
            let score = |entity: u32| model.similarity.score(&query, rows.row(entity as usize));
            let (mut above, mut equal) = (0u32, 0u32);
            for entity in (0..ENTITIES as u32).filter(|&entity| entity != answer) {
                let other = match asked {
                    Asked::Tail => Triple { tail: entity, ..triple },
                    Asked::Head => Triple { head: entity, ..triple },
                };
                if all.contains(&other) {
                    continue;
                }
                let is_last = !seen.contains(&known) || !seen.contains(&answer);
                above += u32::from(is_last || score(entity) > score(answer));
                equal += u32::from(!is_last && score(entity) == score(answer));
            }
            let rank = 1.0 + f64::from(above) + f64::from(equal) / 2.0;
            sums[0] += 1.0 / rank;
            for (sum, at) in sums[1..].iter_mut().zip([1.0, 3.0, 10.0]) {
                *sum += f64::from(u8::from(rank <= at));
            }
        }
    }
    sums.map(|sum| sum / (2 * test.len()) as f64)
}

#[test]
fn filtered_ranks_equal_a_plain_loop_in_any_number_of_partitions() {
    let (_folder, triples) = triples();
    for decoder in [Decoder::DistMult, Decoder::ComplEx, Decoder::RotatE, Decoder::TransE] {
        let model = model(decoder, &triples);
        let relations = model.initial_relations(6);
        let expected = slow_scores(&triples, &model, &relations);
        let reports = [(1, 1), (2, 2), (3, 2), (5, 1)]
            .map(|(parts, threads)| with_threads(threads, || report(&triples, &model, &relations, parts, None)));
        for found in &reports {
            assert_eq!(*found, reports[0], "{decoder}");
            assert_eq!((found.edges, found.unseen), (2 * triples.count(EdgePart::Test), 2));
            let scores = &found.filtered;
            let scores = [scores.mrr, scores.hits_at_1, scores.hits_at_3, scores.hits_at_10].map(Option::unwrap);
            for (score, expected) in scores.into_iter().zip(expected) {
                assert_close(score, expected, 1e-9, &format!("{decoder}"));
            }
            assert!(found.raw.mrr < found.filtered.mrr, "{found:?}");
        }
    }
}

#[test]
fn equal_scores_share_the_mean_of_their_places() {
    let (_folder, triples) = triples();
    let model = model(Decoder::DistMult, &triples);
    // All scores are 0.
    let relations = Rows::zeros(model.relation_rows(), model.dim, model.optimizer);
    let expected = slow_scores(&triples, &model, &relations);
    let found = report(&triples, &model, &relations, 1, None);
    assert_close(found.filtered.mrr.unwrap(), expected[0], 1e-9, "MRR");
    assert_eq!(found.filtered.hits_at_10, Some(0.0));
}

#[test]
fn triples_with_an_unseen_entity_rank_last_and_are_counted() {
    let (_folder, triples) = triples();
    let model = model(Decoder::ComplEx, &triples);
    let found = report(&triples, &model, &model.initial_relations(6), 1, None);
    assert_eq!(found.unseen, UNSEEN.len() as u64);
    assert_eq!(found.unranked, 0);
    let line = found.to_string();
    assert!(line.contains("2 triples have an entity without training triples, and rank last"), "{line}");
}

#[test]
fn drawn_candidates_do_not_depend_on_partitions() {
    let (_folder, triples) = triples();
    let model = model(Decoder::TransE, &triples);
    let relations = model.initial_relations(6);
    let reports = [1, 4].map(|parts| report(&triples, &model, &relations, parts, Some(10)));
    assert_eq!(reports[0], reports[1]);
    assert_eq!(reports[0].candidates.count, Some(10));
    assert!(reports[0].filtered.mrr > report(&triples, &model, &relations, 1, None).filtered.mrr);
}
