//! The folder that a run is kept in.
//!
//! ```text
//! RUN/config.toml                  what it was started with
//!     metrics.jsonl                a line for each epoch
//!     events.out.tfevents.*        the same for TensorBoard
//!     checkpoints/                 what it goes on from: the newest few, and the best
//!     assignments/                 who owned which chunks in the last super-epoch, where there are partitions
//!     classes.txt                  what classes are called, if somebody said so
//!     report.html                  what a person looks at
//!     summary.json                 what came of it; there when it has ended
//! ```

use std::{
    fs::{self, File, TryLockError},
    io::ErrorKind,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable};

use super::{checkpoint::Checkpoints, class_names, config::TrainConfig, journal::Journal, summary::Summary};
use crate::{Error, Result};

/// The file of the configuration.
pub const CONFIG: &str = "config.toml";
/// The file of what came of the run.
pub const SUMMARY: &str = "summary.json";
/// The file that a person looks at.
pub const REPORT: &str = "report.html";
/// The file of what classes are called.
pub const CLASSES: &str = "classes.txt";
/// The folder of assignments of chunks to partitions: files as in a store's.
pub const ASSIGNMENTS: &str = "assignments";
/// The folder of checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";

/// The folder of a run that this process works on, and no other does.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Locked while this lives; the kernel unlocks it when the process dies, however it does.
    _lock: Option<File>,
}

impl RunFolder {
    /// Makes the folder of a new run, which must not be there, or be empty, and writes the configuration into it. What a run
    /// left that was killed before that is replaced.
    ///
    /// # Errors
    /// If there is something already, or the folder can't be made.
    pub fn create(path: &Path, config: &TrainConfig) -> Result<Self> {
        fs::create_dir_all(path).map_err(EngineError::io("create", path))?;
        let left_over = durable::temporary_name(Path::new(CONFIG));
        for entry in fs::read_dir(path).map_err(EngineError::io("read", path))? {
            // Of a run that was killed before it had begun.
            if entry.map_err(EngineError::io("read", path))?.file_name() == left_over.as_os_str() {
                continue;
            }
            let what = if path.join(CONFIG).exists() {
                "there is a run in it already: go on with it (--resume), or give the new one another folder (--out)"
            } else {
                "it is not empty, and no run: give the run a folder of its own (--out)"
            };
            return Err(Error::run_file(path, what));
        }
        let run = Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        };
        run.write_config(config)?;
        Ok(run)
    }

    /// Opens the folder of an earlier run, to go on with it.
    ///
    /// # Errors
    /// If there is no run, or another process works on it.
    pub fn resume(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).exists() {
            let what = format!("there is no run in it (no {CONFIG}): start one without --resume");
            return Err(Error::run_file(path, what));
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock(path)?,
        })
    }

    /// The first folder for a run on `store` that is not there: of `web.grappa`, `web.run`, then `web.run.2` and so on; in
    /// the working folder.
    pub fn unused(store: &Path) -> PathBuf {
        let name = |number| numbered(store, number);
        (1..).map(name).find(|path| !path.exists()).expect("numbers don't end")
    }

    /// The last folder that [`RunFolder::unused`] named for `store` and that is there: which one to go on with.
    pub fn last(store: &Path) -> Option<PathBuf> {
        let name = |number| numbered(store, number);
        (1..).map(name).take_while(|path| path.exists()).last()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the run was started with, or last resumed with.
    ///
    /// # Errors
    /// If the file can't be read, or is no configuration.
    pub fn config(&self) -> Result<TrainConfig> {
        TrainConfig::read(&self.path.join(CONFIG))
    }

    /// Replaces the configuration: a run that goes on may have another end.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        self.write(CONFIG, config.to_toml().as_bytes())
    }

    /// Keeps what classes are called.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_class_names(&self, names: &[String]) -> Result<()> {
        self.write(CLASSES, class_names::text(names).as_bytes())
    }

    /// The run's checkpoints, of which the newest `keep` are kept.
    ///
    /// # Errors
    /// If their folder can't be made, read or written to.
    pub fn checkpoints(&self, keep: usize) -> Result<Checkpoints> {
        Checkpoints::open(&self.path.join(CHECKPOINTS), keep)
    }

    /// The run's journal, from where `epoch` epochs and `step` steps are finished.
    ///
    /// # Errors
    /// If files can't be read or written to, or hold what is no record.
    pub fn journal(&self, epoch: u64, step: u64) -> Result<Journal> {
        Journal::open(&self.path, epoch, step)
    }

    /// Writes or replaces what came of the run.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        let mut json = serde_json::to_string_pretty(summary).expect("a summary is representable");
        json.push('\n');
        self.write(SUMMARY, json.as_bytes())
    }

    /// Writes or replaces the report, a page of HTML.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn write_report(&self, html: &str) -> Result<()> {
        self.write(REPORT, html.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        durable::write_file(&self.path.join(name), bytes)?;
        Ok(())
    }
}

/// What the classes of the run in `folder` are called; nothing if nobody said so.
///
/// # Errors
/// If the file can't be read, or has more or fewer names than there are classes.
pub fn class_names_of(folder: &Path, classes: u64) -> Result<Vec<String>> {
    let path = folder.join(CLASSES);
    match path.exists() {
        true => class_names::read(&path, classes),
        false => Ok(Vec::new()),
    }
}

fn numbered(store: &Path, number: u64) -> PathBuf {
    let name = store
        .file_stem()
        .map_or_else(|| "grappa".into(), |name| name.to_string_lossy());
    match number {
        1 => format!("{name}.run").into(),
        _ => format!("{name}.run.{number}").into(),
    }
}

/// Locks a folder for this process. None where the file system knows no locks.
fn lock(path: &Path) -> Result<Option<File>> {
    let folder = File::open(path).map_err(EngineError::io("open", path))?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => {
            let what = "another process works on this run: wait for it, or give a new run another folder (--out)";
            Err(Error::run_file(path, what))
        }
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(None),
        Err(TryLockError::Error(error)) => Err(EngineError::io("lock", path)(error).into()),
    }
}

#[cfg(test)]
mod tests {
    use tempfile::tempdir;

    use super::*;

    fn error(result: Result<RunFolder>) -> String {
        result.expect_err("it fails").to_string()
    }

    #[test]
    fn a_new_run_needs_a_folder_of_its_own() {
        let folder = tempdir().unwrap();
        let path = folder.path().join("a/run");
        let config = TrainConfig::default();
        let run = RunFolder::create(&path, &config).unwrap();
        assert_eq!(run.config().unwrap(), config);
        drop(run);
        let text = error(RunFolder::create(&path, &config));
        assert!(
            text.contains("there is a run in it already") && text.contains("--resume"),
            "{text}"
        );
        let text = error(RunFolder::create(&folder.path().join("a"), &config));
        assert!(text.contains("not empty, and no run"), "{text}");
        // An empty one will do.
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        drop(RunFolder::create(&empty, &config).unwrap());
        // So will one that a run was killed in before it had its configuration.
        fs::rename(empty.join(CONFIG), empty.join("config.toml.tmp")).unwrap();
        let run = RunFolder::create(&empty, &config).unwrap();
        assert_eq!(run.config().unwrap(), config);
    }

    #[test]
    fn what_is_no_run_is_not_resumed() {
        let folder = tempdir().unwrap();
        let text = error(RunFolder::resume(&folder.path().join("nowhere")));
        assert!(
            text.contains("there is no run in it") && text.contains("without --resume"),
            "{text}"
        );
    }

    #[test]
    fn two_processes_do_not_work_on_one_run() {
        let folder = tempdir().unwrap();
        let run = RunFolder::create(folder.path(), &TrainConfig::default()).unwrap();
        let text = error(RunFolder::resume(folder.path()));
        assert!(text.contains("another process works on this run"), "{text}");
        drop(run);
        RunFolder::resume(folder.path()).unwrap();
    }

    #[test]
    fn a_run_goes_on_with_what_it_left() {
        let folder = tempdir().unwrap();
        let config = TrainConfig {
            epochs: 77,
            ..TrainConfig::default()
        };
        drop(RunFolder::create(folder.path(), &config).unwrap());
        let run = RunFolder::resume(folder.path()).unwrap();
        let longer = TrainConfig {
            epochs: 99,
            ..run.config().unwrap()
        };
        run.write_config(&longer).unwrap();
        assert_eq!(run.config().unwrap().epochs, 99);
        run.write_summary(&Summary::new(&[], None, &longer, 0.0)).unwrap();
        run.write_report("<html>").unwrap();
        run.checkpoints(2).unwrap();
        run.journal(0, 0).unwrap();
        let summary: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(folder.path().join(SUMMARY)).unwrap()).unwrap();
        assert_eq!(summary["config"]["epochs"], 99);
    }

    #[test]
    fn runs_without_a_name_are_numbered_after_their_store() {
        let store = Path::new("somewhere/that-is-not-there.grappa");
        assert_eq!(RunFolder::unused(store), Path::new("that-is-not-there.run"));
        assert_eq!(RunFolder::last(store), None);
        assert_eq!(numbered(store, 3), Path::new("that-is-not-there.run.3"));
    }
}
