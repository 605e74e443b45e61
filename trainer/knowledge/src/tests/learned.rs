use std::fs;

use grappa_engine::export::table::{TableFormat, TableOut};
use grappa_formats::NodeId;
use grappa_io::{durable::Destination, progress::Silent};
use grappa_run::{
    config::{TaskChoice, TrainConfig},
    folder::RunFolder,
    model::Decoder,
};
use tempfile::{TempDir, tempdir};

use super::{
    graph::{ENTITIES, graph, nodes_of},
    runs::Told,
};
use crate::{BestTails, LearnedRows, train, triples::Triples};

/// A run in partitions, its graph, and their folders.
fn learned() -> ([TempDir; 2], LearnedRows) {
    let (folder, graph) = graph();
    let config = TrainConfig {
        layers: 0,
        task: TaskChoice::Link,
        decoder: Decoder::ComplEx,
        embedding: "8".parse().unwrap(),
        partitions: "3".parse().unwrap(),
        lr: 0.05,
        epochs: 10,
        ..TrainConfig::default()
    };
    let run = tempdir().unwrap();
    let locked = RunFolder::create(run.path(), &config).unwrap();
    train(graph.clone(), config, &locked, false, &mut Told::until(u64::MAX)).unwrap();
    let rows = LearnedRows::open(run.path(), graph).unwrap();
    ([folder, run], rows)
}

fn tails(rows: &LearnedRows, request: BestTails<'_>) -> Result<Vec<[String; 3]>, String> {
    let mut text = Vec::new();
    let out = TableOut::Stream(&mut text, TableFormat::Csv);
    rows.write_best_tails(request, out, &Silent).map_err(|error| error.to_string())?;
    let text = String::from_utf8(text).unwrap();
    let words = |line: &str| line.split(',').map(str::to_owned).collect::<Vec<_>>().try_into().unwrap();
    Ok(text.lines().skip(1).map(words).collect())
}

#[test]
fn rows_are_exported_in_the_order_of_ids_for_any_memory() {
    let ([folder, _run], rows) = learned();
    let export = |name: &str, memory: u64| {
        let path = folder.path().join(name);
        let written = rows.export(Destination { path: &path, replaces: false }.into(), memory, &Silent).unwrap();
        assert_eq!(written.0, ENTITIES);
        fs::read(path).unwrap()
    };
    assert_eq!(export("all.csv", 1 << 20), export("some.csv", 200));
    let text = String::from_utf8(export("again.csv", 1 << 20)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("id,embedding_0,") && lines[0].ends_with("embedding_7"), "{}", lines[0]);
    assert!(lines[1].starts_with("0,") && lines[60].starts_with("59,"), "{text}");
}

#[test]
fn the_best_tails_are_those_of_training_unless_they_are_left_out() {
    let (_folders, rows) = learned();
    let (_folder, graph) = graph();
    let triples = Triples::open(graph).unwrap();
    let [train, val, test] = nodes_of(&triples);
    let train: Vec<_> = train.into_iter().filter(|triple| triple.relation == 1).collect();
    let heads: Vec<NodeId> = train.iter().take(20).map(|triple| NodeId(triple.head.into())).collect();
    let request = BestTails { heads: &heads, relation: "r1", count: 3, excludes_known: false };
    let external = |node: u32| triples.entities().external_id(NodeId(node.into())).unwrap().to_string();
    let known = |[head, tail, _]: &[String; 3], parts: &[&[crate::triples::Triple]]| {
        let mut all = parts.iter().flat_map(|part| part.iter()).filter(|triple| triple.relation == 1);
        all.any(|triple| external(triple.head) == *head && external(triple.tail) == *tail)
    };
    let found = tails(&rows, request).unwrap();
    assert_eq!(found.len(), 3 * heads.len());
    let scores: Vec<f32> = found.iter().map(|row| row[2].parse().unwrap()).collect();
    assert!(scores.chunks(3).all(|scores| scores.is_sorted_by(|one, next| one >= next)));
    let right = found.chunks(3).filter(|rows| known(&rows[0], &[&train])).count();
    assert!(right > heads.len() / 2, "{right} of {} heads have a tail of training first", heads.len());
    let others = tails(&rows, BestTails { excludes_known: true, ..request }).unwrap();
    assert_eq!(others.len(), 3 * heads.len());
    assert!(others.iter().all(|row| row[0] != row[1] && !known(row, &[&train, &val, &test])));
    let error = tails(&rows, BestTails { relation: "r9", ..request }).unwrap_err();
    assert!(error.contains("no such relation; it has 3: r0, r1, r2"), "{error}");
}
