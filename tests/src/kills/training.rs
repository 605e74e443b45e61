//! Training that is killed and resumed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use super::{Job, made};
use crate::program::{CommandWords, line, run};

/// Link prediction in two partitions, in epochs of a part of the edges.
const LINKS: &str = "--task link --layers 2 --hidden 8 --fanouts 4,4 --batch 200 --edges-per-epoch 1000 --partitions 2 \
                     --candidates 20";

/// Rows of a knowledge graph in four partitions, so that buckets of two are trained and rows move between memory and disk.
const TRIPLES: &str = "--layers 0 --task link --decoder complex --embedding 8 --batch 64 --negatives 16 --partitions 4";

/// Training with `program`, which is grappa-train, in two partitions, with checkpoints after epochs and also after steps. It also makes the
/// pre-aggregated features.
pub fn training_jobs(program: &Path, inputs: &Path) -> Vec<Job> {
    let before = made(inputs, "trained", "gen sbm --nodes 2000 --feature-dim 8 --chunks 4");
    let options = "--layers 2 --hidden 8 --fanouts 4,4 --batch 200 --partitions 2";
    vec![
        training("train links", program, &link_store(inputs, "links", 600), LINKS),
        training("train", program, &before, options),
        training(
            "train, checkpoints after steps",
            program,
            &before,
            &format!("{options} --checkpoint-minutes 0.000001"),
        ),
    ]
}

/// Training on a graph that exceeds `--memory`, with `program`, which is grappa-train: with the views of partitions loaded in turn, with
/// exact evaluations in scratch files, and with sampled ones.
pub fn training_jobs_out_of_core(program: &Path, inputs: &Path) -> Vec<Job> {
    let graph = "gen sbm --nodes 40000 --edge-factor 24 --feature-dim 16 --chunks 16";
    let shares = "--train-fraction 0.02 --val-fraction 0.3 --test-fraction 0.3";
    let before = made(inputs, "large", &format!("{graph} {shares}"));
    let links = link_store(inputs, "large-links", 40_000);
    let evaluated = "--batch 50 --layers 2 --fanouts 4,4 --memory 6MiB --first-hop sampled --hidden 32 --evaluate";
    let in_turn = "--batch 50 --layers 3 --fanouts 4,4,4 --memory 4MiB --hidden 8";
    vec![
        training("train links, partitions in turn", program, &links, &format!("{LINKS} --memory 12MiB")),
        training("train, partitions in turn", program, &before, in_turn),
        training("train, exact evaluation", program, &before, &format!("{evaluated} exact")),
        training("train, sampled evaluation", program, &before, &format!("{evaluated} sampled")),
    ]
}

/// Training of rows in buckets with `program`, which is grappa-train, with triples in memory and on disk.
pub fn training_jobs_in_buckets(program: &Path, inputs: &Path) -> Vec<Job> {
    let before = triple_store(inputs);
    vec![
        training("train rows in buckets", program, &before, TRIPLES),
        training("train rows in buckets, triples on disk", program, &before, &format!("{TRIPLES} --memory 800KiB")),
    ]
}

/// A folder with a store of triples, some of them held out.
fn triple_store(inputs: &Path) -> PathBuf {
    let entities = 5000;
    let mut parts: [String; 2] = Default::default();
    for head in 0..entities {
        for (relation, step) in [("next", 1), ("next", 2), ("far", 2500), ("before", entities - 1)] {
            let is_held_out = (head + step) % 20 == 0;
            parts[usize::from(is_held_out)] += &format!("e{head}\t{relation}\te{}\n", (head + step) % entities);
        }
    }
    for (name, part) in ["train", "val"].into_iter().zip(parts) {
        fs::write(inputs.join(format!("{name}.triples")), part).unwrap();
    }
    made(inputs, "triples", "ingest --triples ../train.triples --val-edges ../val.triples --chunks 2")
}

/// A folder with a store of a block model, whose edges are held out in part.
fn link_store(inputs: &Path, name: &str, nodes: u32) -> PathBuf {
    let edges = format!("gen sbm --nodes {nodes} --feature-dim 16 --as npy --quiet --out {name}.npy");
    run(&mut line(inputs, &edges)).success();
    let files = format!("--edges ../{name}.npy --features ../{name}.features.npy --nodes {nodes}");
    made(inputs, name, &format!("ingest {files} --edge-split 98/1/1 --chunks 16"))
}

/// Three epochs of training on the store in `before`.
fn training(name: &str, program: &Path, before: &Path, options: &str) -> Job {
    let (program, options) = (program.to_owned(), options.to_owned());
    Job {
        before: Some(before.to_owned()),
        // Without a configuration there is no run to resume.
        again: |folder| match folder.join("run/config.toml").exists() {
            true => &["--resume"],
            false => &[],
        },
        finished: &[],
        counts,
        ..Job::new(name, move |folder| {
            let mut command = Command::new(&program);
            command.current_dir(folder).words("graph.grappa --out run --epochs 3").words(&options);
            command.words("--checkpoint-every 1 --threads 1 --quiet");
            command
        })
    }
}

/// The part of a file that a resumed run repeats.
fn counts(path: &Path, bytes: Vec<u8>) -> Option<Vec<u8>> {
    let is_temporary = path.components().any(|name| {
        let name = name.as_os_str().to_string_lossy();
        name.ends_with(".tmp") || name.ends_with(".partial")
    });
    match path.extension() {
        // No undisturbed run has these.
        _ if is_temporary => Some(bytes),
        Some(extension) if extension == "safetensors" => Some(without_times(&bytes)),
        // Each run makes new generations of assignments, so a resumed run has other numbers.
        _ if path.starts_with("graph.grappa/assignments") => None,
        _ if ["graph.grappa", "run/checkpoints", "run/rows"].iter().any(|folder| path.starts_with(folder)) => {
            Some(bytes)
        }
        _ if path == Path::new("run/metrics.jsonl") => Some(epochs_of(&bytes)),
        // Reports contain times.
        _ => None,
    }
}

/// The numbers of a run's metrics that do not depend on time.
fn epochs_of(metrics: &[u8]) -> Vec<u8> {
    const KEYS: [&str; 7] = ["epoch", "step", "loss", "evaluated", "val_loss", "test_accuracy", "test_mrr"];
    let lines = metrics.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let epoch = |line| {
        let record: Value = serde_json::from_slice(line).expect("a line of metrics is JSON");
        KEYS.map(|key| record[key].to_string()).join(" ") + "\n"
    };
    lines.map(epoch).collect::<String>().into_bytes()
}

/// A checkpoint without its training time, its assignment number, and the digest that covers both.
fn without_times(checkpoint: &[u8]) -> Vec<u8> {
    let (length, rest) = checkpoint.split_first_chunk().expect("a checkpoint begins with the length of its header");
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).expect("a header is JSON");
    let metadata = header["__metadata__"].as_object_mut().expect("a checkpoint has metadata");
    metadata.remove("grappa.digest").expect("a checkpoint has a digest");
    let state = metadata["grappa.state"].as_str().expect("the state is text");
    let mut state: Value = serde_json::from_str(state).expect("the state is JSON");
    let fields = state.as_object_mut().expect("the state has fields");
    for time in ["seconds", "seconds_by_stage"] {
        fields.remove(time).expect("the state has a time");
    }
    fields.remove("generation");
    metadata["grappa.state"] = state;
    let mut bytes = header.to_string().into_bytes();
    bytes.extend_from_slice(tensors);
    bytes
}
