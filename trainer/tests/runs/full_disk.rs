//! Files that cannot be written for a while, as on a full disk, cost what they would have held, and nothing else.

use std::{
    fs,
    io::{ErrorKind, Write},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use grappa_io::progress::{Progress, Silent};
use grappa_run::{
    config::{Evaluate, FirstHop, TrainConfig},
    folder::RunFolder,
    journal::{EpochRecord, read_records},
    model::{LayerKind, Precision},
};
use grappa_storage::Store;
use grappa_trainer::train::{Watcher, train, trained_model::Trained};
use tch::Device;

use crate::{
    links::{SPLIT, links},
    stores::{DENSE, Shape, Unseen, config, store},
};

/// Makes writing fail in some epochs.
struct Filling {
    run: PathBuf,
    full_in: RangeInclusive<u64>,
    /// How.
    by: By,
    /// The folders and files that are in the way.
    planted: Vec<PathBuf>,
    warnings: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum By {
    /// Folders have the names that files have while they are written.
    Names,
    /// A file takes all of the disk.
    Ballast,
}

impl Filling {
    /// Of the run at `run`, in these epochs.
    fn new(run: &Path, full_in: RangeInclusive<u64>, by: By) -> Self {
        Self { run: run.to_owned(), full_in, by, planted: Vec::new(), warnings: Vec::new() }
    }

    /// It fills nothing.
    fn never(run: &Path) -> Self {
        Self::new(run, 99..=99, By::Names)
    }

    /// The names that files have while they are written.
    fn temporary(&self, step: u64) -> [PathBuf; 4] {
        [
            format!("checkpoints/step-{step:012}.safetensors.tmp"),
            format!("checkpoints/best-{step:012}.safetensors.tmp"),
            "summary.json.tmp".into(),
            "report.html.tmp".into(),
        ]
        .map(|name| self.run.join(name))
    }
}

impl Watcher for Filling {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        for path in self.planted.drain(..) {
            match self.by {
                By::Names => fs::remove_dir(path).unwrap(),
                By::Ballast => fs::remove_file(path).unwrap(),
            }
        }
        if self.full_in.contains(&record.epoch) {
            match self.by {
                By::Names => {
                    self.planted = self.temporary(record.step).into();
                    self.planted.iter().for_each(|name| fs::create_dir(name).unwrap());
                }
                By::Ballast => self.planted = vec![fill(&self.run)],
            }
        }
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
}

/// Makes a file in a run's folder that takes what the disk has left.
pub fn fill(run: &Path) -> PathBuf {
    let path = run.join("ballast");
    let mut file = fs::File::create(&path).unwrap();
    let full = std::iter::repeat(()).find_map(|()| file.write_all(&[0; 4096]).err());
    assert_eq!(full.unwrap().kind(), ErrorKind::StorageFull);
    path
}

/// A disk of a few MiB, until this is dropped.
pub struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    /// Mounts it at a new folder. An error says why mounting is refused.
    pub fn mount(path: &'a Path) -> Result<Self, String> {
        fs::create_dir(path).unwrap();
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path);
        match command.output() {
            Ok(output) if output.status.success() => Ok(Self(path)),
            refused => Err(format!("mounting is refused: {refused:?}")),
        }
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).output();
    }
}

fn steps_of(run: &Path) -> Vec<String> {
    let names = fs::read_dir(run.join("checkpoints")).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut steps: Vec<_> = names.filter(|name| name.starts_with("step-")).collect();
    steps.sort();
    steps
}

/// The steps of the events in a run's only event file, which has nothing but whole records. `journal/events.rs` draws
/// them.
fn steps_of_events(run: &Path) -> Vec<u64> {
    let names = fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path());
    let mut files = names.filter(|path| path.to_str().unwrap().contains("events.out.tfevents."));
    let bytes = fs::read(files.next().unwrap()).unwrap();
    let (mut rest, mut steps) = (&bytes[..], Vec::new());
    while let Some((length, record)) = rest.split_first_chunk() {
        let event;
        (event, rest) = record[4..].split_at(u64::from_le_bytes(*length) as usize);
        rest = &rest[4..];
        // After the time there is the number of the field, then seven bits a byte.
        assert_eq!((event[0], event[9]), (1 << 3 | 1, 2 << 3));
        let bytes = event[10..].iter().scan(false, |is_over, byte| {
            let was_over = std::mem::replace(is_over, byte & 0x80 == 0);
            (!was_over).then_some(u64::from(byte & 0x7f))
        });
        steps.push((0..).step_by(7).zip(bytes).map(|(shift, bits)| bits << shift).sum());
    }
    assert!(rest.is_empty());
    steps
}

#[test]
fn training_goes_on_with_a_warning_without_files_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    goes_on(By::Names, &folder.path().join("runs"), DENSE, config(), ".tmp: Is a directory");
}

#[test]
fn training_goes_on_with_a_warning_on_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let _disk = match SmallDisk::mount(&disk) {
        Ok(disk) => disk,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    goes_on(By::Ballast, &disk.join("nodes"), DENSE, config(), "No space left on device");
    goes_on(By::Ballast, &disk.join("links"), SPLIT, links(), "No space left on device");
}

/// Trains in the new folder `folder`, where writing fails for some epochs with the error `why`, and where it does not.
fn goes_on(by: By, folder: &Path, shape: Shape, config: TrainConfig, why: &str) {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), shape);
    fs::create_dir(folder).unwrap();
    let config = TrainConfig { epochs: 6, checkpoint_every: 1, keep: 6, ..config };
    let mut runs = Vec::new();
    // A file has the rest of its last page also when the disk is full: the event that does not fit is a later one.
    for (name, full_in) in [("full.run", 1..=4), ("free.run", 99..=99)] {
        let path = folder.join(name);
        let run = RunFolder::create(&path, &config).unwrap();
        let mut watcher = Filling::new(&path, full_in, by);
        let summary = train(store.clone(), config.clone(), &run, false, Device::Cpu, &mut watcher).unwrap();
        assert_eq!(summary.epochs, 6);
        runs.push((path, watcher.warnings, summary));
    }
    let [(full, warnings, summary), (free, no_warnings, expected)] = &runs[..] else { unreachable!("two runs") };
    assert_eq!(no_warnings, &Vec::<String>::new());
    for lack in ["no checkpoint: ", "no summary: ", "no report: "] {
        let warning = warnings.iter().find(|warning| warning.starts_with(lack));
        let warning = warning.unwrap_or_else(|| panic!("{lack}{warnings:?}"));
        assert!(warning.contains(why) && warning.contains("training continues"), "{warning}");
    }
    // The checkpoints of these epochs are missing, and no part of them is left.
    let (with, without) = (steps_of(free), steps_of(full));
    assert_eq!(with.len(), 6);
    assert_eq!(without, with[4..]);
    // Lines and events that did not fit are written once there is room.
    let steps: Vec<u64> = read_records(full).unwrap().iter().map(|record| record.step).collect();
    assert_eq!(steps.len(), 6);
    let [version, start, options, end] = [0, 1, 0, 0];
    assert_eq!(steps_of_events(full), [&[version, start, options], &steps[..], &[end]].concat());
    // Training has the same result, and the summary and the report are written at the end.
    assert_eq!((summary.val_accuracy, summary.val_mrr), (expected.val_accuracy, expected.val_mrr));
    assert!(full.join("summary.json").exists() && full.join("report.html").exists());
}

#[test]
fn old_checkpoints_do_not_keep_new_ones_from_a_full_disk() {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), DENSE);
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let _disk = match SmallDisk::mount(&disk) {
        Ok(disk) => disk,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    // The disk holds four of its checkpoints, not eight.
    let config =
        TrainConfig { hidden: 8192, layers: 2, epochs: 8, checkpoint_every: 1, keep: 8, eval_every: 99, ..config() };
    let path = disk.join("run");
    let run = RunFolder::create(&path, &config).unwrap();
    let mut watcher = Filling::never(&path);
    train(store, config, &run, false, Device::Cpu, &mut watcher).unwrap();
    assert_eq!(watcher.warnings, Vec::<String>::new());
    let names = steps_of(&path);
    let records = read_records(&path).unwrap();
    let last = format!("step-{:012}.safetensors", records.last().unwrap().step);
    assert!(names.len() < 8 && names.last() == Some(&last), "{names:?}");
}

#[test]
fn an_exact_evaluation_that_the_disk_cannot_hold_is_refused_before_the_first_epoch() {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), DENSE);
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    let _disk = match SmallDisk::mount(&disk) {
        Ok(disk) => disk,
        Err(why) => grappa_skip::skip!("{why}"),
    };
    let config = |evaluate| TrainConfig {
        // The states of a layer take 12.8 MiB in f32. A maximum is of states, where a mean would be of narrower
        // products.
        hidden: 8192,
        model: LayerKind::SageMax,
        evaluate_states: Precision::F32,
        first_hop: FirstHop::Sampled,
        memory: "8MiB".parse().unwrap(),
        epochs: 1,
        evaluate,
        ..config()
    };
    let train = |evaluate, name: &str| {
        let config = config(evaluate);
        let run = RunFolder::create(&disk.join(name), &config).unwrap();
        let mut watcher = Filling::never(&disk.join(name));
        let trained = train(store.clone(), config, &run, false, Device::Cpu, &mut watcher);
        (trained, read_records(&disk.join(name)).unwrap().len())
    };
    let (refused, epochs) = train(Evaluate::Exact, "exact.run");
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("an exact evaluation needs") && error.contains("--evaluate sampled"), "{error}");
    assert_eq!(epochs, 0);
}

#[test]
fn a_run_whose_result_cannot_be_written_ends_with_an_error_and_can_be_resumed() {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), DENSE);
    let config = TrainConfig { epochs: 2, ..config() };
    let path = stores.path().join("run");
    let mut watcher = Filling::new(&path, 1..=2, By::Names);
    let run = RunFolder::create(&path, &config).unwrap();
    let train = |run: &RunFolder, resume, watcher: &mut Filling| {
        train(store.clone(), config.clone(), run, resume, Device::Cpu, watcher)
    };
    let error = train(&run, false, &mut watcher).unwrap_err().to_string();
    for part in [
        "run: training is finished, but ",
        "the last checkpoint could not be written: ",
        ".safetensors.tmp: ",
        "are unchanged",
        "rerun with --resume",
    ] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
    watcher.planted.drain(..).for_each(|name| fs::remove_dir(name).unwrap());
    assert_eq!(steps_of(&path), Vec::<String>::new());
    watcher.full_in = 99..=99;
    let summary = train(&run, true, &mut watcher).unwrap();
    assert_eq!((summary.epochs, steps_of(&path).len()), (2, 1));
    let trained = Trained::open(&path, Device::Cpu).unwrap();
    assert_eq!(Some(trained.state().epoch), summary.best_epoch);
    assert!(trained.warnings().is_empty());
}

#[test]
fn a_run_whose_folder_is_removed_ends_with_an_error_that_says_so() {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), DENSE);
    let config = TrainConfig { epochs: 3, checkpoint_every: 1, ..config() };
    let path = stores.path().join("run");
    let run = RunFolder::create(&path, &config).unwrap();
    let mut watcher = Removing { run: path, epochs: 0, warnings: Vec::new() };
    let error = train(store, config, &run, false, Device::Cpu, &mut watcher).unwrap_err().to_string();
    assert!(
        error.contains("the folder of the run was removed") && error.contains("train a removed one again"),
        "{error}"
    );
    // Training ended at once: there was nothing to go on for.
    assert_eq!((watcher.epochs, watcher.warnings), (1, Vec::new()));
}

#[test]
fn a_run_leaves_the_run_alone_that_has_its_folder_by_now() {
    let stores = tempfile::tempdir().unwrap();
    let store = store(stores.path(), DENSE);
    let config = TrainConfig { epochs: 3, checkpoint_every: 1, keep: 1, ..config() };
    let path = stores.path().join("run");
    let first = RunFolder::create(&path, &config).unwrap();
    let mut replacing =
        Replacing { run: path.clone(), store: store.clone(), config: config.clone(), written: Vec::new() };
    let error = train(store, config, &first, false, Device::Cpu, &mut replacing).unwrap_err();
    assert!(error.to_string().contains("removed or renamed"), "{error}");
    drop(first);
    assert_eq!(files_below(&path), replacing.written, "the second run's files are as it left them");
}

/// Paths and contents of all files below a folder.
fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(files_below(&path)),
            false => files.push((path.clone(), fs::read(path).unwrap())),
        }
    }
    files.sort();
    files
}

/// Removes the folder of the run after the first epoch, and trains another run there.
struct Replacing {
    run: PathBuf,
    store: Arc<Store>,
    config: TrainConfig,
    /// The files of the other run.
    written: Vec<(PathBuf, Vec<u8>)>,
}

impl Watcher for Replacing {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        if record.epoch == 1 {
            fs::remove_dir_all(&self.run).unwrap();
            let run = RunFolder::create(&self.run, &self.config).unwrap();
            let (store, config) = (self.store.clone(), self.config.clone());
            train(store, config, &run, false, Device::Cpu, &mut Unseen).unwrap();
            self.written = files_below(&self.run);
        }
    }

    fn warn(&mut self, message: &str) {
        panic!("{message}");
    }
}

/// Removes the folder of the run after the first epoch.
struct Removing {
    run: PathBuf,
    epochs: u64,
    warnings: Vec<String>,
}

impl Watcher for Removing {
    fn progress(&self) -> &dyn Progress {
        &Silent
    }

    fn epoch(&mut self, record: &EpochRecord, _epochs: u64) {
        if record.epoch == 1 {
            fs::remove_dir_all(&self.run).unwrap();
        }
        self.epochs = record.epoch;
    }

    fn warn(&mut self, message: &str) {
        self.warnings.push(message.to_owned());
    }
}
