//! Files of training runs: configurations, checkpoints, safetensors, metrics, class names. And compressed gradients.

use std::{fs, path::Path};

use grappa_formats::manifest::{LabelKind, LabelSpec};
use grappa_run::{
    checkpoint::{Best, Checkpoint, NamedTensor, PartialEpoch, RunState, read_tensors, write_tensors},
    codecs::{Dense, top_k},
    config::{Evaluate, TrainConfig, check},
    folder::class_names_of,
    journal::read_records,
    model::Task,
    scores::{ModelScores, Scores},
};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::shared::{JSON, outcome, small};
use crate::{Input, Target, scratch::Scratch, target::Repair};

/// Words of configuration files.
const TOML: &[&str] = &[
    "=",
    "\n",
    "\"",
    "[",
    "]",
    "{",
    "}",
    "#",
    ".",
    "'''",
    "true",
    "false",
    "inf",
    "-nan",
    "1e400",
    "0x10",
    "1_000",
    "9223372036854775807",
    "-9223372036854775808",
    "\"auto\"",
    "layers = ",
    "fanouts = ",
    "memory = ",
    "1979-05-27",
    "\"18446744073709551615GiB\"",
    "epochs = ",
];

/// Values of the gradients that are decoded, and of them, those that are sent by their indices.
const VALUES: usize = 300;
const LARGEST: usize = 40;

pub fn targets() -> Vec<Target> {
    vec![
        small("gradient", &[], gradient_seeds, run_gradient),
        small("config", TOML, config_seeds, run_config),
        small("safetensors", JSON, tensor_seeds, run_tensors),
        Target {
            repair: Repair::With(repair_checkpoint),
            ..small("checkpoint", JSON, checkpoint_seeds, run_checkpoint)
        },
        Target { repair: Repair::With(repair_metrics), ..small("metrics", JSON, metrics_seeds, run_metrics) },
        small("class-names", &["\n", "\r", "\t", "\u{feff}"], class_name_seeds, run_class_names),
    ]
}

fn config_seeds() -> Vec<Vec<u8>> {
    let default = TrainConfig::default().to_toml();
    let few = "model = \"gat\"\nlayers = 3\nfanouts = [15, -1, 5]\nmemory = \"4GiB\"\nlr = 1e-3\n";
    vec![default.into_bytes(), few.into(), Vec::new()]
}

fn run_config(input: &Input) -> String {
    let path = input.scratch.file("config.toml", input.bytes);
    outcome(TrainConfig::read(&path), |config| {
        let again = input.scratch.file("again.toml", config.to_toml().as_bytes());
        let again = TrainConfig::read(&again).expect("it was just written");
        assert_eq!(again.to_toml(), config.to_toml());
        // All methods work on a configuration that passes the check.
        outcome(check(&config), |()| {
            let _ = (config.fanouts(), config.norm(), config.batch(), config.threads(), config.digest());
            let _ = config.sampler(true);
            config.model_options(8, 3, Task::MultiClass);
            "accepted".to_owned()
        })
    })
}

/// Tensors of a model that tests compare with PyTorch.
fn tensor_seeds() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../trainer/tests/fixtures");
    let files = ["sage-1.safetensors", "gcn-1.safetensors"];
    files.map(|name| fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))).to_vec()
}

fn run_tensors(input: &Input) -> String {
    let path = input.scratch.file("tensors.safetensors", input.bytes);
    outcome(read_tensors(&path), |(tensors, metadata)| {
        for tensor in &tensors {
            assert_eq!(tensor.bytes.len(), tensor.shape.iter().product::<usize>() * tensor.dtype.bitsize() / 8);
        }
        // A tensor without a name can be read, and is not written.
        if tensors.iter().all(|tensor| !tensor.name.is_empty()) {
            let again = input.scratch.path().join("again.safetensors");
            let metadata = metadata.into_iter().collect();
            write_tensors(&again, &tensors, &metadata).expect("memory takes all bytes");
            let (mut same, same_metadata) = read_tensors(&again).expect("it was just written");
            let mut tensors = tensors;
            tensors.sort_by(|a, b| a.name.cmp(&b.name));
            same.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(same, tensors);
            assert_eq!(same_metadata.into_iter().collect::<std::collections::BTreeMap<_, _>>(), metadata);
        }
        "accepted".to_owned()
    })
}

fn checkpoint_seeds() -> Vec<Vec<u8>> {
    let labels = LabelSpec::new(LabelKind::Single, 2);
    let state = RunState {
        config_digest: u64::MAX - 5,
        outputs: 2,
        step: 30,
        best: Some(Best { epoch: 1, step: 10, val: 0.1 + 0.2, test: None }),
        scores: Some(ModelScores {
            evaluated: Evaluate::Exact,
            val_accuracy: Some(0.1 + 0.2),
            val_micro_f1: Some(0.25),
            val_loss: Some(0.5),
            split: "val".to_owned(),
            report: Scores::new(labels, false).report(),
            ..ModelScores::default()
        }),
        seconds: 12.34,
        counters: [("edges".to_owned(), 1 << 63)].into(),
        averages: [("weight".to_owned(), 1.0 / 3.0)].into(),
        partial: Some(PartialEpoch { steps: 7, loss: 2.0 / 3.0, ..PartialEpoch::default() }),
        ..RunState::default()
    };
    let checkpoint = Checkpoint {
        state,
        parameters: vec![NamedTensor::from_f32("layers.0.weight", &[2, 3], &[0.5; 6])],
        buffers: vec![NamedTensor::from_f32("running_mean", &[2], &[1.5, -2.5])],
        optimizer: vec![NamedTensor::from_f32("exp_avg", &[6], &[0.0; 6])],
        historical: vec![NamedTensor::from_f32("parameters.layers.0.weight", &[1], &[0.5])],
        residuals: vec![NamedTensor::from_f32("0", &[6], &[0.25; 6])],
        embeddings: vec![NamedTensor::from_f32("user", &[3, 2], &[0.75; 6])],
    };
    let scratch = Scratch::new();
    let path = scratch.path().join("checkpoint");
    checkpoint.write(&path).expect("memory takes all bytes");
    vec![fs::read(path).expect("it was just written")]
}

/// A byte that selects the encoding, and an encoding.
fn gradient_seeds() -> Vec<Vec<u8>> {
    let values: Vec<f32> = (0..VALUES as u32).map(|i| f64::from(i * i).sin().powi(5) as f32).collect();
    let dense = [Dense::Bf16, Dense::Int8, Dense::Lossless].map(|codec| {
        let mut bytes = vec![codec as u8];
        codec.encode(&values, &mut bytes);
        bytes
    });
    let mut largest = vec![3];
    top_k::encode(&values, LARGEST, &mut largest);
    dense.into_iter().chain([largest]).collect()
}

fn run_gradient(input: &Input) -> String {
    let (choice, bytes) = input.choice();
    let mut values = vec![0.0; VALUES];
    let decoded = match choice % 4 {
        0 => Dense::Bf16.decode(bytes, &mut values),
        1 => Dense::Int8.decode(bytes, &mut values),
        2 => Dense::Lossless.decode(bytes, &mut values),
        _ => top_k::decode(bytes, LARGEST, &mut values),
    };
    outcome(decoded, |()| {
        let sent = values.iter().filter(|value| value.to_bits() != 0).count();
        assert!(choice % 4 != 3 || sent <= LARGEST, "{sent} values of {LARGEST}");
        format!("accepted, {sent} values")
    })
}

/// Repairs the digest: XXH3-64 of the state and of the name, type, shape and bytes of every tensor, each preceded by
/// its length.
fn repair_checkpoint(file: &mut [u8]) {
    const KEY: &[u8] = b"\"grappa.digest\":\"";
    let scratch = Scratch::new();
    let path = scratch.file("mutant", file);
    let Ok((mut tensors, metadata)) = read_tensors(&path) else {
        return;
    };
    let (Some(state), Some(at)) =
        (metadata.get("grappa.state"), file.windows(KEY.len()).position(|bytes| bytes == KEY))
    else {
        return;
    };
    let mut hash = Xxh3::new();
    hash_part(&mut hash, state.as_bytes());
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    for tensor in &tensors {
        hash_part(&mut hash, tensor.name.as_bytes());
        hash_part(&mut hash, tensor.dtype.to_string().as_bytes());
        hash_part(&mut hash, format!("{:?}", tensor.shape).as_bytes());
        hash_part(&mut hash, &tensor.bytes);
    }
    let digest = format!("{:016x}", hash.digest());
    if let Some(bytes) = file.get_mut(at + KEY.len()..at + KEY.len() + 16) {
        bytes.copy_from_slice(digest.as_bytes());
    }
}

fn hash_part(hash: &mut Xxh3, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

fn run_checkpoint(input: &Input) -> String {
    let path = input.scratch.file("step.safetensors", input.bytes);
    outcome(Checkpoint::read(&path), |checkpoint| {
        let _ = checkpoint.state.check_store(8, 3);
        let again = input.scratch.path().join("again.safetensors");
        // A number that JSON can't say is refused when it is written.
        outcome(checkpoint.write(&again), |()| {
            let same = Checkpoint::read(&again).expect("it was just written");
            assert_eq!(same.state, checkpoint.state);
            "accepted".to_owned()
        })
    })
}

fn metrics_seeds() -> Vec<Vec<u8>> {
    let lines = [
        r#"{"epoch":1,"step":28,"loss":1.5,"val_accuracy":null,"seconds":1.25,"seconds_by_stage":{"sample":0.1},"bytes_read":9}"#,
        r#"{"epoch":2,"step":56,"loss":null,"val_accuracy":0.75,"sampled_edges":3000000,"peak_rss_bytes":850000000}"#,
    ];
    // The checksum comes last: 16 digits.
    let mut file =
        lines.map(|line| format!("{},\"checksum\":\"{:016x}\"}}\n", &line[..line.len() - 1], 0)).concat().into_bytes();
    repair_metrics(&mut file);
    vec![file]
}

/// Gives each line the checksum of its contents.
fn repair_metrics(file: &mut [u8]) {
    const END: &[u8] = b",\"checksum\":\"0123456789abcdef\"}\n";
    for line in file.split_inclusive_mut(|&byte| byte == b'\n') {
        if let Some(keys) = line.len().checked_sub(END.len()) {
            let (keys, end) = line.split_at_mut(keys);
            end.copy_from_slice(format!(",\"checksum\":\"{:016x}\"}}\n", xxh3_64(keys)).as_bytes());
        }
    }
}

fn run_metrics(input: &Input) -> String {
    input.scratch.file("metrics.jsonl", input.bytes);
    outcome(read_records(input.scratch.path()), |records| format!("accepted, records: {}", records.len().min(3)))
}

fn class_name_seeds() -> Vec<Vec<u8>> {
    vec![b"theory\nneural networks\n\xc3\xa9t\xc3\xa9\n".to_vec()]
}

fn run_class_names(input: &Input) -> String {
    input.scratch.file("classes.txt", input.bytes);
    outcome(class_names_of(input.scratch.path(), 3, true), |names| {
        assert_eq!(names.len(), 3);
        "accepted".to_owned()
    })
}
