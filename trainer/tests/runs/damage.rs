//! Training and prediction on a store with a flipped byte fail with an error that names file and offset.

use std::{fs, path::Path};

use grappa_formats::container::{FileKind, Header};
use grappa_run::{
    config::{Auto, TrainConfig},
    model::LayerKind,
};
use grappa_storage::Store;
use grappa_trainer::{
    Error,
    predict::{Values, predict_file},
};

use crate::stores::{BUDGET, DENSE, config, store, train_at, trained};

/// Flips the byte in the middle of a file's payload while `body` runs. `body` gets the place as errors name it.
fn with_flip(store: &Path, file: &str, body: impl FnOnce(&str)) {
    let path = store.join(file);
    let sound = fs::read(&path).unwrap();
    let kind = FileKind(sound[8..12].try_into().unwrap());
    let header = Header::decode(&sound, kind, sound.len() as u64).unwrap();
    let at = header.payload_bytes / 2;
    let block = header.block(at / u64::from(header.block_bytes));
    let mut damaged = sound.clone();
    damaged[(header.payload_offset + at) as usize] ^= 1;
    fs::write(&path, damaged).unwrap();
    let place = header.payload_offset + block.start;
    body(&format!("{}: payload block at offset {place}", path.display()));
    fs::write(&path, sound).unwrap();
}

#[track_caller]
fn is_about<T>(result: Result<T, Error>, place: &str) {
    let error = result.err().expect("a damaged file is read").to_string();
    assert!(error.contains(place), "{error}, not {place}");
}

#[test]
fn training_fails_on_a_flipped_byte_with_and_without_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let path = store(folder.path(), DENSE).path().to_owned();
    for file in ["edges", "degrees", "features", "labels"] {
        for (partitions, model) in [(1, LayerKind::Sage), (2, LayerKind::Sage), (2, LayerKind::Gcn)] {
            with_flip(&path, &format!("chunk-1/{file}"), |place| {
                let config = TrainConfig { model, partitions: Auto::Value(partitions), epochs: 1, ..config() };
                let run = folder.path().join(format!("{file}-{partitions}-{model}.run"));
                is_about(train_at(&Store::open(&path).unwrap().into(), &config, &run), place);
            });
        }
    }
}

#[test]
fn predictions_fail_on_a_flipped_byte() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), DENSE);
    let (trained, _) = trained(&store, folder.path(), LayerKind::Gcn);
    let path = store.path();
    for file in ["edges", "degrees", "features"] {
        with_flip(path, &format!("chunk-1/{file}"), |place| {
            let store = Store::open(path).unwrap();
            let out = folder.path().join("classes.npy");
            let predicted = predict_file(&trained, &store, &out, Values::Classes, BUDGET, &grappa_io::progress::Silent);
            is_about(predicted, place);
        });
    }
}
