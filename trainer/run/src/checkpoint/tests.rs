use std::process::Command;

use grappa_formats::manifest::{LabelKind, LabelSpec};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::{
    config::Evaluate,
    scores::{ModelScores, Scores},
};

fn state(step: u64) -> RunState {
    RunState {
        config_digest: u64::MAX - 5,
        store_digest: 7,
        inputs: 100,
        outputs: 10,
        epoch: step / 10,
        step,
        generation: 3,
        super_epoch: 2,
        best: Some(Best { epoch: 1, step: 10, val: 0.1 + 0.2, test: None }),
        seconds: 12.34,
        counters: BTreeMap::from([("edges".to_owned(), 1 << 63)]),
        averages: BTreeMap::from([("weight".to_owned(), 1.0 / 3.0)]),
        partial: Some(PartialEpoch { steps: 7, loss: 2.0 / 3.0, ..PartialEpoch::default() }),
        ..RunState::default()
    }
}

fn checkpoint(step: u64) -> Checkpoint {
    Checkpoint {
        state: state(step),
        parameters: vec![
            NamedTensor::from_f32("layers.0.weight", &[2, 3], &[1.0, -0.0, f32::NAN, 4.5, f32::INFINITY, step as f32]),
            NamedTensor::new("layers.0.half", Dtype::BF16, &[3], vec![1, 2, 3, 4, 5, 6]),
            NamedTensor::new("layers.0.flag", Dtype::BOOL, &[1], vec![1]),
        ],
        buffers: vec![NamedTensor::new("norms.0.batches", Dtype::I64, &[], vec![9; 8])],
        optimizer: vec![NamedTensor::from_f32("exp_avg", &[0, 5], &[])],
        historical: vec![NamedTensor::from_f32("parameters.layers.0.weight", &[1], &[0.5])],
        residuals: vec![NamedTensor::from_f32("0", &[2], &[0.25, -0.5])],
        embeddings: vec![NamedTensor::from_f32("user", &[1, 2], &[0.5, 3.0])],
    }
}

fn checkpoints(keep: usize) -> (TempDir, Checkpoints) {
    let folder = tempdir().unwrap();
    let checkpoints = Checkpoints::open(&folder.path().join("checkpoints"), keep).unwrap();
    (folder, checkpoints)
}

fn names(checkpoints: &Checkpoints) -> Vec<String> {
    let entries = fs::read_dir(&checkpoints.folder).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Checkpoint> {
    Checkpoint::of_tensors(path, file::parse(path, bytes)?)
}

fn sorted(mut checkpoint: Checkpoint) -> Checkpoint {
    for tensors in [&mut checkpoint.parameters, &mut checkpoint.buffers, &mut checkpoint.optimizer] {
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
    }
    checkpoint
}

#[test]
fn a_checkpoint_reads_back_to_the_bit() {
    let (_folder, checkpoints) = checkpoints(2);
    let path = checkpoints.save(&checkpoint(120)).unwrap();
    let back = sorted(Checkpoint::read(&path).unwrap());
    // NaN is not equal to itself; its bytes are.
    assert_eq!(back, sorted(checkpoint(120)));
    assert_eq!(back.state, state(120));
    assert!(path.ends_with("step-000000000120.safetensors"));
}

#[test]
fn the_same_checkpoint_makes_the_same_bytes() {
    let folder = tempdir().unwrap();
    let write = |name: &str| {
        let path = folder.path().join(name);
        checkpoint(5).write(&path).unwrap();
        fs::read(path).unwrap()
    };
    assert_eq!(write("a"), write("b"));
}

#[test]
fn a_state_that_would_not_read_back_is_not_written() {
    let (_folder, checkpoints) = checkpoints(1);
    checkpoints.save(&checkpoint(10)).unwrap();
    let mut broken = checkpoint(20);
    broken.state.averages.insert("weight".to_owned(), f64::NAN);
    let error = checkpoints.save(&broken).unwrap_err().to_string();
    assert!(error.contains("not written") && error.contains("a number that is not finite"), "{error}");
    assert_eq!(names(&checkpoints), ["step-000000000010.safetensors"]);
}

#[test]
fn scores_are_of_the_classes_of_the_run() {
    let labels = LabelSpec::new(LabelKind::Single, 10);
    let scores = ModelScores {
        evaluated: Evaluate::Exact,
        val_accuracy: Some(0.1 + 0.2),
        val_micro_f1: Some(0.25),
        val_loss: Some(1.0 / 3.0),
        split: "val".to_owned(),
        report: Scores::new(labels, false).report(),
        ..ModelScores::default()
    };
    let (_folder, checkpoints) = checkpoints(1);
    let mut checkpoint = checkpoint(10);
    checkpoint.state.scores = Some(scores);
    let path = checkpoints.save(&checkpoint).unwrap();
    assert_eq!(Checkpoint::read(&path).unwrap().state, checkpoint.state);
    checkpoint.state.outputs = 11;
    let path = checkpoints.save(&checkpoint).unwrap();
    let error = Checkpoint::read(&path).unwrap_err().to_string();
    assert!(error.contains("its scores are not of 11 classes"), "{error}");
}

#[test]
fn any_cut_and_any_flipped_byte_is_found() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("c.safetensors");
    checkpoint(5).write(&path).unwrap();
    let whole = fs::read(&path).unwrap();
    for end in 0..whole.len() {
        let error = parse(&path, &whole[..end]).unwrap_err();
        assert!(matches!(&error, Error::RunFile { path: named, .. } if *named == path), "{end}: {error}");
    }
    let original = sorted(checkpoint(5));
    for at in 0..whole.len() {
        for mask in [1, 0x20, 0x80] {
            let mut damaged = whole.clone();
            damaged[at] ^= mask;
            // White space of the header, or the version, which may be lower, are not covered: then it is read as it was.
            match parse(&path, &damaged) {
                Ok(read) => assert_eq!(sorted(read), original, "byte {at} ^ {mask}"),
                Err(Error::RunFile { .. } | Error::NewerVersion(_)) => {}
                Err(error) => panic!("byte {at} ^ {mask}: {error}"),
            }
        }
    }
    assert!(parse(&path, &[&whole[..], b"more"].concat()).is_err());
}

#[test]
fn large_tensors_stay_in_their_file_and_small_ones_are_copied() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("c.safetensors");
    let values: Vec<f32> = (0..5 << 20).map(|value| value as f32).collect();
    let embeddings = vec![NamedTensor::from_f32("user", &[values.len()], &values)];
    let large = Checkpoint { embeddings, ..checkpoint(5) };
    large.write(&path).unwrap();
    let read = Checkpoint::read(&path).unwrap();
    assert!(matches!(read.embeddings[0].bytes, TensorBytes::Part(..)));
    assert!(read.parameters.iter().all(|tensor| matches!(tensor.bytes, TensorBytes::Memory(_))));
    // A copy refers to the file, which may have been removed.
    fs::remove_file(&path).unwrap();
    assert_eq!(sorted(read.clone()), sorted(large.clone()));
    let copy = folder.path().join("copy.safetensors");
    read.write(&copy).unwrap();
    assert_eq!(sorted(Checkpoint::read(&copy).unwrap()), sorted(large));
    let mut damaged = fs::read(&copy).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = Checkpoint::read(&path).unwrap_err().to_string();
    assert!(error.contains("damaged: its checksum does not match"), "{error}");
}

#[test]
fn a_file_of_another_kind_is_named_as_such() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("other.safetensors");
    write_tensors(&path, &[NamedTensor::from_f32("weight", &[1], &[1.0])], &BTreeMap::new()).unwrap();
    let error = Checkpoint::read(&path).unwrap_err().to_string();
    assert!(error.contains("not a checkpoint: its metadata has no grappa.version"), "{error}");
}

#[test]
fn the_newest_few_are_kept() {
    let (_folder, checkpoints) = checkpoints(2);
    for step in [10, 20, 30, 100] {
        checkpoints.save(&checkpoint(step)).unwrap();
    }
    assert_eq!(names(&checkpoints), ["step-000000000030.safetensors", "step-000000000100.safetensors"]);
    let (path, latest) = checkpoints.latest().unwrap().found.unwrap();
    assert_eq!((latest.state.step, path.ends_with("step-000000000100.safetensors")), (100, true));
}

#[test]
fn the_best_is_kept_and_so_is_what_was_the_best_at_a_kept_checkpoint() {
    let (_folder, checkpoints) = checkpoints(2);
    let steps = |kind| -> Vec<u64> { checkpoints.list(kind).unwrap().into_iter().map(|(step, _)| step).collect() };
    for (step, is_best) in [(10, true), (20, true), (30, false), (35, true), (40, true), (45, true)] {
        if is_best {
            checkpoints.save_best(&checkpoint(step)).unwrap();
        }
        if step % 10 == 0 {
            checkpoints.save(&checkpoint(step)).unwrap();
        }
    }
    // At 30 the best was from 20, at 40 from 40; 35 was never the best of a kept checkpoint.
    assert_eq!((steps(STEP), steps(BEST)), (vec![30, 40], vec![20, 40, 45]));
    assert_eq!(checkpoints.best(u64::MAX).unwrap().unwrap().1.state.step, 45);
    assert_eq!(checkpoints.best(30).unwrap().unwrap().1.state.step, 20);
    assert!(checkpoints.best(19).unwrap().is_none());

    // A run that was killed before it removed old checkpoints.
    for step in [10, 20] {
        let path = checkpoints.path(STEP, step);
        checkpoint(step).write(&path).unwrap();
    }
    checkpoints.forget_after(30).unwrap();
    assert_eq!((steps(STEP), steps(BEST)), (vec![20, 30], vec![20]));
}

#[test]
fn a_truncated_or_damaged_checkpoint_is_passed_over_and_named() {
    let (_folder, checkpoints) = checkpoints(3);
    let paths: Vec<PathBuf> = [10, 20, 30].map(|step| checkpoints.save(&checkpoint(step)).unwrap()).into();
    let cut = |path: &Path| fs::write(path, &fs::read(path).unwrap()[..100]).unwrap();
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(path, bytes).unwrap();
    };
    cut(&paths[2]);
    let latest = checkpoints.latest().unwrap();
    assert_eq!(latest.found.unwrap().1.state.step, 20);
    let [warning] = &latest.warnings[..] else { panic!("{:?}", latest.warnings) };
    assert!(warning.contains("step-000000000030") && warning.contains("the checkpoint before it"), "{warning}");

    flip(&paths[1]);
    let latest = checkpoints.latest().unwrap();
    assert_eq!((latest.found.unwrap().1.state.step, latest.warnings.len()), (10, 2));
    assert!(latest.warnings[1].contains("checksum"), "{}", latest.warnings[1]);

    cut(&paths[0]);
    let error = checkpoints.latest().unwrap_err().to_string();
    assert!(error.contains("no checkpoint is intact") && error.contains("step-000000000010"), "{error}");
    assert!(!error.contains("using the checkpoint before it"), "{error}");
}

#[test]
fn damaged_checkpoints_do_not_push_out_whole_ones() {
    let (_folder, checkpoints) = checkpoints(1);
    let path = checkpoints.save(&checkpoint(30)).unwrap();
    fs::write(path, "damaged").unwrap();
    fs::write(checkpoints.folder.join("step-000000000020.safetensors"), {
        let other = checkpoints.folder.join("other");
        checkpoint(20).write(&other).unwrap();
        fs::read(other).unwrap()
    })
    .unwrap();
    let step = checkpoints.latest().unwrap().found.unwrap().1.state.step;
    checkpoints.forget_after(step).unwrap();
    checkpoints.save(&checkpoint(25)).unwrap();
    assert_eq!(checkpoints.latest().unwrap().found.unwrap().1.state.step, 25);
}

#[test]
fn a_newer_version_is_an_error_and_nothing_older_is_taken_instead() {
    let (_folder, checkpoints) = checkpoints(2);
    checkpoints.save(&checkpoint(10)).unwrap();
    let path = checkpoints.save(&checkpoint(20)).unwrap();
    let (tensors, metadata) = read_tensors(&path).unwrap();
    let mut metadata: BTreeMap<String, String> = metadata.into_iter().collect();
    metadata.insert(VERSION_KEY.to_owned(), "6".to_owned());
    write_tensors(&path, &tensors, &metadata).unwrap();
    let error = checkpoints.latest().unwrap_err();
    assert!(matches!(error, Error::NewerVersion(_)), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("version 6, and this program reads versions up to 5"), "{error}");
}

#[test]
fn a_run_without_checkpoints_has_no_latest() {
    let (_folder, checkpoints) = checkpoints(2);
    let latest = checkpoints.latest().unwrap();
    assert!(latest.found.is_none() && latest.warnings.is_empty());
}

#[test]
fn incomplete_checkpoints_are_removed_on_resume() {
    let (folder, checkpoints) = checkpoints(2);
    checkpoints.save(&checkpoint(10)).unwrap();
    let half = checkpoints.folder.join("step-000000000020.safetensors.tmp");
    fs::write(&half, "half").unwrap();
    let again = Checkpoints::open(&folder.path().join("checkpoints"), 2).unwrap();
    assert!(!half.exists());
    assert_eq!(again.latest().unwrap().found.unwrap().1.state.step, 10);
}

/// A file system of 64 KiB that is gone when dropped.
struct TinyDisk(TempDir);

impl TinyDisk {
    /// An error says why this process may not mount.
    fn mount() -> std::result::Result<Self, String> {
        let folder = tempdir().unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "grappa-test"]).arg(folder.path()).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            Ok(output) => Err(format!("cannot mount a tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(format!("cannot run mount: {error}")),
        }
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "cannot unmount {}", self.0.path().display());
    }
}

#[test]
fn a_full_disk_costs_the_new_checkpoint_and_none_of_the_old_ones() {
    let disk = match TinyDisk::mount() {
        Ok(disk) => disk,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    let checkpoints = Checkpoints::open(&disk.0.path().join("checkpoints"), 1).unwrap();
    let of_size = |step, values: usize| Checkpoint {
        parameters: vec![NamedTensor::from_f32("weight", &[values], &vec![1.0; values])],
        ..checkpoint(step)
    };
    checkpoints.save(&of_size(10, 5000)).unwrap();
    let error = checkpoints.save(&of_size(20, 20_000)).unwrap_err().to_string();
    assert!(error.contains("step-000000000020.safetensors") && error.contains("No space left"), "{error}");
    // The half that was written is gone, the old one is there, and a smaller one still fits.
    assert_eq!(names(&checkpoints), ["step-000000000010.safetensors"]);
    assert_eq!(checkpoints.latest().unwrap().found.unwrap().1.state.step, 10);
    checkpoints.save(&of_size(30, 5000)).unwrap();
    assert_eq!(names(&checkpoints), ["step-000000000030.safetensors"]);
}

#[test]
fn a_store_with_other_features_or_classes_is_refused_with_both_numbers() {
    let state = state(1);
    state.check_store(100, 10).unwrap();
    let error = state.check_store(128, 10).unwrap_err().to_string();
    assert!(error.contains("128 features") && error.contains("with 100"), "{error}");
    let error = state.check_store(100, 11).unwrap_err().to_string();
    assert!(error.contains("11 classes") && error.contains("with 10"), "{error}");
}

#[test]
#[should_panic(expected = "two tensors are called weight")]
fn two_tensors_of_one_name_are_a_mistake() {
    let folder = tempdir().unwrap();
    let tensor = NamedTensor::from_f32("weight", &[1], &[1.0]);
    drop(write_tensors(&folder.path().join("t"), &[tensor.clone(), tensor], &BTreeMap::new()));
}

#[test]
fn the_best_model_of_a_state_is_refused_if_it_is_missing_damaged_or_of_another_run() {
    let (_folder, checkpoints) = checkpoints(3);
    // Its best evaluation is at step 10.
    let state = state(30);
    let refused = |expected: &str| {
        let error = checkpoints.best_of(&state).unwrap_err();
        assert!(matches!(error, Error::RunFile { .. }), "{error}");
        let error = error.to_string();
        assert!(error.contains("best-000000000010") && error.contains(expected), "{error}");
    };
    refused("the best model, from epoch 1, is missing");
    let path = checkpoints.save_best(&checkpoint(10)).unwrap();
    assert_eq!(checkpoints.best_of(&state).unwrap().unwrap().0, path);
    let mut other = checkpoint(10);
    other.state.config_digest += 1;
    checkpoints.save_best(&other).unwrap();
    refused("another run");
    fs::write(&path, "damaged").unwrap();
    refused("");
    let without = RunState { best: None, ..state };
    assert!(checkpoints.best_of(&without).unwrap().is_none());
}
