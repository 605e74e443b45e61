//! Jobs that are killed, and whose unfinished files are damaged before they are restarted.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Job, Outcome, store_of};
use crate::{files::files_of, program::Ran, random::Random};

/// How a file is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A byte gets another value.
    Flip,
    /// Some bytes become zeros, as after a power failure.
    Zero(u64),
    /// The end is lost.
    Truncate,
    /// The file is lost.
    Remove,
}

impl Damage {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Flip, Self::Zero(64), Self::Zero(4096), Self::Truncate, Self::Remove];

    /// Damages a file, at a place that `random` selects.
    ///
    /// # Panics
    /// If the file cannot be changed.
    pub fn apply(self, path: &Path, random: &mut Random) {
        if self == Self::Remove {
            return fs::remove_file(path).unwrap();
        }
        let file = File::options().read(true).write(true).open(path).unwrap();
        let length = file.metadata().unwrap().len();
        let at = random.below(length);
        match self {
            Self::Flip => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                byte[0] ^= 1 + random.below(255) as u8;
                file.write_all_at(&byte, at).unwrap();
            }
            // Aligned, as blocks of a disk are.
            Self::Zero(bytes) => {
                let start = at - at % bytes;
                let zeros = vec![0; bytes.min(length - start) as usize];
                file.write_all_at(&zeros, start).unwrap();
            }
            Self::Truncate => file.set_len(at).unwrap(),
            Self::Remove => unreachable!("it was removed"),
        }
    }
}

/// The outcome of a job that was killed, damaged and restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageOutcome {
    /// There was nothing to damage: the job ended first, or had no unfinished files.
    Nothing,
    /// The expected bytes, and nothing else.
    Same,
    /// The restarted job failed and named a file. The command that its error gives led to the expected bytes.
    Refused,
    /// A fault: the restarted job made something else, and reported success.
    Published(String),
    /// A fault: the restarted job failed, and the error names no file, or no command that helps.
    Unhelpful(String),
    /// A fault: the restarted job did not end.
    Hung,
}

impl DamageOutcome {
    /// Whether it must not happen.
    pub fn is_fault(&self) -> bool {
        !matches!(self, Self::Nothing | Self::Same | Self::Refused)
    }
}

impl Job {
    /// Kills the job before its Nth change of the file system, damages one of its unfinished files, and restarts it. It has `limit` to end. Returns the
    /// outcome and the damaged file.
    ///
    /// # Panics
    /// If the first run fails by itself.
    pub fn damage(
        &self,
        scratch: &Path,
        change: u64,
        damage: Damage,
        random: &mut Random,
        limit: Duration,
    ) -> (DamageOutcome, PathBuf) {
        let folder = self.prepare(scratch);
        let killed = self.kill_once(&mut (self.command)(&folder), change).unwrap();
        let files = self.unfinished(&folder);
        let mut outcome = (DamageOutcome::Nothing, PathBuf::new());
        if killed && !files.is_empty() {
            let file = &files[random.below(files.len() as u64) as usize];
            damage.apply(&folder.join(file), random);
            outcome = (self.restart_damaged(&folder, limit), file.clone());
        }
        // The folder of a fault is kept for inspection.
        if !outcome.0.is_fault() {
            fs::remove_dir_all(&folder).unwrap();
        }
        outcome
    }

    /// The files, not empty, that a killed run has left and that are part of no finished store.
    fn unfinished(&self, folder: &Path) -> Vec<PathBuf> {
        let before: BTreeSet<PathBuf> = match &self.before {
            Some(before) => files_of(before).into_keys().collect(),
            None => BTreeSet::new(),
        };
        let manifest = |folder: &Path| fs::read(store_of(folder).join("manifest")).ok();
        // Features are in their final places before the manifest lists them.
        let adds_features = self.before.as_deref().is_some_and(|before| manifest(before) == manifest(folder));
        let is_unfinished = |path: &PathBuf| {
            let is_partial = path.components().any(|part| part.as_os_str().to_string_lossy().ends_with(".partial"));
            let is_scratch = path.starts_with("tmp");
            is_partial || is_scratch || (adds_features && path.ends_with("features"))
        };
        // A file with several links is that of a finished store, too.
        let is_own = |path: &PathBuf| fs::metadata(folder.join(path)).unwrap().nlink() == 1;
        files_of(folder)
            .into_iter()
            .filter(|(path, bytes)| !bytes.is_empty() && !before.contains(path))
            .map(|(path, _)| path)
            .filter(|path| is_unfinished(path) && is_own(path))
            .collect()
    }

    fn restart_damaged(&self, folder: &Path, limit: Duration) -> DamageOutcome {
        let mut again = (self.command)(folder);
        again.args((self.again)(folder));
        let Some(ran) = run_within(&mut again, limit) else {
            return DamageOutcome::Hung;
        };
        if ran.code == Some(0) || self.finished.iter().any(|error| ran.stderr.contains(error)) {
            return match self.compare(folder, true) {
                Outcome::Same => DamageOutcome::Same,
                other => DamageOutcome::Published(other.to_string()),
            };
        }
        let names_file = ran.stderr.contains(&*folder.to_string_lossy());
        let remedy = ran.stderr.split_once("start again: run `").and_then(|(_, rest)| rest.split_once('`'));
        let Some((remedy, _)) = remedy.filter(|_| names_file) else {
            return DamageOutcome::Unhelpful(ran.stderr);
        };
        let removed = Command::new("sh").args(["-c", remedy]).status().unwrap();
        let fresh = run_within(&mut (self.command)(folder), limit);
        match fresh {
            Some(fresh) if removed.success() && fresh.code == Some(0) => match self.compare(folder, true) {
                Outcome::Same => DamageOutcome::Refused,
                other => DamageOutcome::Published(format!("after {remedy}: {other}")),
            },
            _ => DamageOutcome::Unhelpful(ran.stderr),
        }
    }
}

/// Runs a command. None if it did not end within `limit`; then it is killed.
fn run_within(command: &mut Command, limit: Duration) -> Option<Ran> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begin = Instant::now();
    // Jobs print a few lines, which pipes hold.
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > limit {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Some(child.wait_with_output().unwrap().into())
}
