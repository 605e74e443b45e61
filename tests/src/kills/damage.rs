//! Jobs that are killed, and whose unfinished files are damaged before they are restarted.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use super::{Job, store_of};
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

impl Job {
    /// Kills the job before its Nth change of the file system, damages one of its unfinished files, and restarts it. It
    /// has `limit` to end.
    ///
    /// # Errors
    /// If the job does not end. If it reports success and made something else. Or if its error names no file, or no
    /// command that leads to the expected bytes.
    pub fn damage(
        &self,
        scratch: &Path,
        change: u64,
        damage: Damage,
        random: &mut Random,
        limit: Duration,
    ) -> Result<(), String> {
        // The folder of a fault is kept for inspection.
        let folder = self.prepare(scratch);
        let killed = self.kill_once(&mut (self.command)(&folder), change)?;
        let files = self.unfinished(&folder);
        if killed && !files.is_empty() {
            let file = &files[random.below(files.len() as u64) as usize];
            damage.apply(&folder.join(file), random);
            self.restart_damaged(&folder, limit).map_err(|fault| format!("{}: {fault}", file.display()))?;
        }
        fs::remove_dir_all(&folder).unwrap();
        Ok(())
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
        // A file with several links belongs to a finished store, too.
        let is_own = |path: &PathBuf| fs::metadata(folder.join(path)).unwrap().nlink() == 1;
        files_of(folder)
            .into_iter()
            .filter(|(path, bytes)| !bytes.is_empty() && !before.contains(path))
            .map(|(path, _)| path)
            .filter(|path| is_unfinished(path) && is_own(path))
            .collect()
    }

    fn restart_damaged(&self, folder: &Path, limit: Duration) -> Result<(), String> {
        let mut again = (self.command)(folder);
        let ran = run_within(again.args((self.again)(folder)), limit).ok_or("the restarted job does not end")?;
        if ran.code == Some(0) || self.had_finished(&ran.stderr) {
            return self.compare(folder);
        }
        let unhelpful = format!("the error does not help: {}", ran.stderr);
        let remedy = ran.stderr.split_once("start again: run `").and_then(|(_, rest)| rest.split_once('`'));
        let Some((remedy, _)) = remedy.filter(|_| ran.stderr.contains(&*folder.to_string_lossy())) else {
            return Err(unhelpful);
        };
        let removed = Command::new("sh").args(["-c", remedy]).status().unwrap();
        let fresh = run_within(&mut (self.command)(folder), limit);
        if !removed.success() || fresh.is_none_or(|fresh| fresh.code != Some(0)) {
            return Err(unhelpful);
        }
        self.compare(folder)
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
