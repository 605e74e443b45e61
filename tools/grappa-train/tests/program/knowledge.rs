//! Knowledge graphs: training with `--layers 0`, resuming, predictions, and errors.

use std::collections::BTreeSet;

use grappa_tests::program::run;
use serde_json::Value;

use crate::fixture::{TrainFolder, assert_failed};

const ENTITIES: u32 = 120;
/// The steps from a head to its tails, by relation.
const RELATIONS: [(&str, [u32; 3]); 2] = [("next", [1, 2, 3]), ("before", [119, 118, 117])];
const OPTIONS: &str = "facts.grappa --layers 0 --task link --threads 1";
/// A decoder and the size of its rows.
const COMPLEX: &str = "--decoder complex --embedding 16 --lr 0.05 --batch 64";

fn triples() -> Vec<String> {
    let of_head = |head: u32| {
        let of_relation = move |(relation, steps): (&str, [u32; 3])| {
            steps.map(|step| format!("e{head}\t{relation}\te{}\n", (head + step) % ENTITIES))
        };
        RELATIONS.into_iter().flat_map(of_relation)
    };
    (0..ENTITIES).flat_map(of_head).collect()
}

/// The place of a triple decides its part: of ten, one is for validation and one for test.
fn part(place: usize) -> usize {
    match place % 10 {
        4 => 1,
        9 => 2,
        _ => 0,
    }
}

/// A folder with the store `facts.grappa`. Two test triples have an entity without training triples.
fn facts() -> TrainFolder {
    let folder = TrainFolder::empty();
    let mut parts: [String; 3] = Default::default();
    for (place, triple) in triples().iter().enumerate() {
        parts[part(place)] += triple;
    }
    parts[2] += "stranger\tnext\te4\ne5\tnext\tstranger\n";
    for (name, part) in ["train", "val", "test"].into_iter().zip(parts) {
        folder.write(&format!("{name}.tsv"), part);
    }
    folder.success(
        "ingest --triples train.tsv --val-edges val.tsv --test-edges test.tsv --chunks 2 --quiet --out facts.grappa",
    );
    folder
}

/// The test MRR of the summary of a run.
fn test_mrr(summary: &Value) -> f64 {
    summary["test_mrr"].as_f64().unwrap_or_else(|| panic!("{summary}"))
}

#[test]
fn each_decoder_learns_the_rules_of_triples_and_unseen_entities_are_counted() {
    let folder = facts();
    for (decoder, options) in [
        ("distmult", ""),
        ("complex", "--input-dropout 0.1"),
        ("rotate", "--distance l1"),
        ("transe", "--distance l2 --loss bce --margin 4 --negatives 32 --self-adversarial 1"),
    ] {
        let options =
            format!("{OPTIONS} --decoder {decoder} --embedding 16 --lr 0.05 --batch 64 --epochs 30 {options}");
        let ran = run(&mut folder.program(&format!("{options} --eval-every 30 --out {decoder}"))).success();
        let summary = folder.summary(decoder);
        // A random order has 0.045.
        assert!(test_mrr(&summary) > 0.15, "{decoder}: {}", ran.stdout);
        let links = &summary["links"];
        assert_eq!(links["unseen"], 2, "{links}");
        // Each triple is ranked twice.
        assert_eq!(links["edges"], 2 * (triples().len() / 10 + 2), "{links}");
        let losses: Vec<f64> = folder.metrics(decoder).iter().map(|record| record["loss"].as_f64().unwrap()).collect();
        assert!(losses.len() == 30 && losses[29] < losses[0], "{decoder}: {losses:?}");
    }
}

#[test]
fn a_resumed_run_in_buckets_has_the_scores_of_a_whole_one() {
    let folder = facts();
    let options = format!("{OPTIONS} {COMPLEX} --partitions 4 --quiet");
    let train = |rest: &str| run(&mut folder.program(&format!("{options} {rest}"))).success();
    train("--epochs 4 --out whole");
    train("--epochs 2 --out parts");
    train("--epochs 4 --out parts --resume");
    let [whole, parts] = ["whole", "parts"].map(|run| folder.metrics(run));
    assert_eq!((whole.len(), parts.len()), (4, 4));
    for (whole, parts) in whole.iter().zip(&parts) {
        for key in ["loss", "val_mrr", "step"] {
            assert_eq!(whole[key], parts[key], "{key}");
        }
    }
    assert_eq!(folder.summary("whole")["partitions"], 4);
    // Another dimension or another store would be another table of rows.
    let resumed = |line: &str| run(&mut folder.program(&format!("{line} --quiet --out parts --resume")));
    resumed(&format!("{OPTIONS} --epochs 5 --embedding 8")).failure(&["has embedding", "16"]);
    let train_triples = folder.read("train.tsv");
    folder.write("fewer.tsv", train_triples.lines().skip(1).map(|line| format!("{line}\n")).collect::<String>());
    folder.success("ingest --triples fewer.tsv --val-edges val.tsv --test-edges test.tsv --quiet --out other.grappa");
    resumed(&format!("{} --epochs 5", OPTIONS.replace("facts", "other")))
        .failure(&["the store is not the one that the rows of the run were trained on"]);
}

#[test]
fn predict_writes_the_best_tails_of_heads_and_the_rows_of_entities() {
    let folder = facts();
    run(&mut folder.program(&format!("{OPTIONS} {COMPLEX} --epochs 60 --eval-every 60 --quiet --out run"))).success();
    folder.write("heads.txt", "e7\ne40\n");
    let predict = |options: &str| {
        let line = format!("predict run facts.grappa --quiet --force {options}");
        run(&mut folder.program(&line)).success()
    };
    let tails = |options: &str| -> Vec<(String, String, f64)> {
        predict(&format!("--top-k 5 --for heads.txt --relation next --out tails.csv {options}"));
        let text = folder.read("tails.csv");
        let row = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[0].to_owned(), fields[1].to_owned(), fields[2].parse().unwrap())
        };
        assert_eq!(text.lines().next(), Some("source,target,score"));
        text.lines().skip(1).map(row).collect()
    };
    let found = tails("");
    assert_eq!(found.iter().map(|row| &*row.0).collect::<Vec<_>>(), [["e7"; 5], ["e40"; 5]].concat());
    for rows in found.chunks(5) {
        assert!(rows.is_sorted_by(|one, next| one.2 >= next.2), "{rows:?}");
        let head: u32 = rows[0].0[1..].parse().unwrap();
        let right = [1, 2, 3].map(|step| format!("e{}", head + step));
        let found = rows.iter().filter(|row| right.contains(&row.1)).count();
        assert!(found >= 2, "{rows:?}");
    }
    let known: BTreeSet<String> = triples().into_iter().collect();
    for (head, tail, _) in tails("--exclude-known") {
        assert!(!known.contains(&format!("{head}\tnext\t{tail}\n")), "{head} {tail} is known");
    }
    let rows = |options: &str| {
        predict(&format!("--embeddings {options} --out rows.csv"));
        folder.read("rows.csv")
    };
    let text = rows("");
    assert_eq!(text.lines().count(), ENTITIES as usize + 2, "a header, all entities, and a stranger");
    assert!(text.lines().any(|line| line.starts_with("stranger,")));
    assert_eq!(rows("--memory 64MiB"), text);
}

#[test]
fn options_of_predict_that_rows_of_entities_lack_are_refused() {
    let folder = facts();
    run(&mut folder.program(&format!("{OPTIONS} {COMPLEX} --epochs 1 --quiet --out run"))).success();
    folder.write("ids.txt", "e1\n");
    for (options, words) in grappa_skip::cases![
        "--embeddings --ids ids.txt --out rows.csv", "--ids is for runs with layers|leave it out";
        "--embeddings --split test --out rows.csv", "--split is for runs with layers|leave it out";
        "--embeddings --type entity --out rows.csv", "--type is for runs with layers|leave it out";
        "--out rows.csv", "write them with --embeddings|--top-k K --for FILE --relation NAME";
        "--nodes e1", "predicts no classes|--embeddings --out rows.parquet";
        "--top-k 2 --for ids.txt --out tails.csv", "name it with --relation NAME";
        "--top-k 2 --for ids.txt --relation nxt --out tails.csv", "--relation nxt: the graph has no such relation|next";
        "--top-k 2 --for ids.txt --relation next --among ids.txt --out tails.csv", "--among is for runs with layers";
    ] {
        let parts: Vec<&str> = words.split('|').collect();
        run(&mut folder.program(&format!("predict run facts.grappa --quiet {options}"))).failure(&parts);
    }
    assert!(!folder.path("rows.csv").exists() && !folder.path("tails.csv").exists());
    folder.write("unknown.txt", "nobody\n");
    let top = "predict run facts.grappa --quiet --top-k 2 --for unknown.txt --relation next --out tails.csv";
    run(&mut folder.program(top)).failure(&["unknown.txt", "nobody"]);
}

#[test]
fn options_of_training_that_rows_of_entities_lack_are_refused() {
    let folder = facts();
    folder.generate("graph.grappa", "sbm --nodes 200 --feature-dim 4 --chunks 4");
    for (options, words) in grappa_skip::cases![
        "facts.grappa --layers 0", "add --task link";
        "facts.grappa --layers 0 --task link", "use --decoder distmult, complex, rotate or transe";
        "facts.grappa --layers 0 --task link --decoder complex --embedding 7", "give an even number";
        "facts.grappa --layers 0 --task link --decoder complex --heads 2", "heads 2 has no meaning with --layers 0";
        "facts.grappa --layers 0 --task link --decoder complex --margin 3", "add --loss bce";
        "facts.grappa --layers 0 --task link --decoder complex --distance l1", "is of --decoder rotate and transe";
        "facts.grappa --layers 0 --task link --decoder complex --partitions 500", "give at most 121";
        "facts.grappa --layers 1 --task link --decoder complex", "decoder complex is for knowledge graphs";
        "graph.grappa --layers 0 --task link --decoder complex", "graph.grappa";
    ] {
        let line = format!("{options} --epochs 1 --quiet --out refused");
        run(&mut folder.program(&line)).failure(&words.split('|').collect::<Vec<_>>());
    }
    let workers = format!("{OPTIONS} {COMPLEX} --epochs 1 --quiet --workers 2 --out refused");
    assert_failed(&run(&mut folder.program(&workers)), &["--layers 0 trains with one process", "leave out --workers"]);
}
