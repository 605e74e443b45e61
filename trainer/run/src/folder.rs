//! The folder of a run.
//!
//! ```text
//! RUN/config.toml                  its options
//!     metrics.jsonl                metrics, one line per epoch
//!     events.out.tfevents.*        the same for TensorBoard
//!     checkpoints/                 the newest few checkpoints, and the best
//!     assignments/                 the chunks of each partition in the last super-epoch; only with several partitions
//!     rows/                        the learned rows of entities; only with --layers 0
//!     classes.txt                  names of classes; only if the user gave them
//!     schema                       the names of features and classes in the store, in the store's format; only if it has names
//!     report.html                  the report
//!     summary.json                 the result
//!     replaced/                    the run that was here before; only until this one has finished
//! ```
//!
//! The last line of `config.toml` and of `classes.txt` is a checksum of the lines before it. It is verified whenever the run
//! is read. To edit one of these files, remove that line. `summary.json` and each line of `metrics.jsonl` end with a checksum, too, and
//! are not to be edited.

mod names;
mod replaced;
#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use grappa_formats::schema::Schema;
use grappa_io::{Error as EngineError, durable, regular};

pub use self::names::{ASSIGNMENTS, CHECKPOINTS, CLASSES, CONFIG, REPORT, ROWS, RUNNING, SCHEMA, SUMMARY, log_of_rank};
use self::names::{REPLACED, is_log, refuse_links};
use super::{
    checkpoint::{Checkpoints, RunState},
    checksum_line::with_checksum,
    class_names,
    config::TrainConfig,
    journal::{EVENTS, Journal, METRICS},
    own_folder::OwnFolder,
    summary::Summary,
    summary_file,
};
use crate::{Error, Result};

/// Whether a report is complete and its run is finished.
pub fn is_finished(report: &[u8]) -> bool {
    report.ends_with(b"</html>\n") && !report.windows(RUNNING.len()).any(|part| part == RUNNING.as_bytes())
}

/// The folder of a run, locked for this process.
#[derive(Debug)]
pub struct RunFolder {
    own: OwnFolder,
    /// Whether the folder existed before the run.
    existed: bool,
}

impl RunFolder {
    /// Creates the folder of a new run and writes the configuration into it. The folder may exist if it is empty, or has only
    /// what a run leaves that ended before it began: a temporary file, or logs of ranks.
    ///
    /// # Errors
    /// If the folder has other files or links in their place, or cannot be created.
    pub fn create(path: &Path, config: &TrainConfig) -> Result<Self> {
        let existed = path.exists();
        fs::create_dir_all(path).map_err(EngineError::io("create", path))?;
        refuse_links(path)?;
        let left_over = durable::temporary_name(Path::new(CONFIG));
        for entry in fs::read_dir(path).map_err(EngineError::io("read", path))? {
            let name = entry.map_err(EngineError::io("read", path))?.file_name();
            // Left by a run that was killed or failed before it began.
            if name == left_over.as_os_str() || name == REPLACED || (is_log(&name) && !path.join(CONFIG).exists()) {
                continue;
            }
            let problem = if path.join(CONFIG).exists() {
                "it already contains a run: continue it with --resume, replace it with --force, or choose another folder with --out"
            } else {
                "it is not empty and contains no run: choose another folder with --out"
            };
            return Err(Error::Exists { path: path.to_owned(), problem });
        }
        let run = Self { own: OwnFolder::lock(path)?, existed };
        run.write_config(config)?;
        Ok(run)
    }

    /// As [`RunFolder::create`], but sets a run aside that the folder contains. [`RunFolder::remove_replaced`] removes it, and
    /// [`RunFolder::remove_if_not_begun`] puts it back.
    ///
    /// # Errors
    /// If the folder contains files that are not a run's, another process works on the run, or files cannot be moved.
    pub fn replace(path: &Path, config: &TrainConfig) -> Result<Self> {
        if path.join(CONFIG).exists() {
            replaced::set_aside(path)?;
        }
        Self::create(path, config)
    }

    /// Removes the run that this one replaces, if it replaces one.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn remove_replaced(&self) -> Result<()> {
        self.check()?;
        Ok(durable::remove_folder(&self.path().join(REPLACED))?)
    }

    /// Opens the folder of an earlier run, to resume it.
    ///
    /// # Errors
    /// If it contains no run, one of its files is a symbolic link, or another process is working on it.
    pub fn resume(path: &Path) -> Result<Self> {
        if !path.join(CONFIG).exists() {
            return Err(Error::NoRun { path: path.to_owned(), file: CONFIG });
        }
        refuse_links(path)?;
        Ok(Self { own: OwnFolder::lock(path)?, existed: true })
    }

    /// Removes what a new run has written, except logs of ranks, if it ended with an error before its first checkpoint and epoch. So the next
    /// try can have the same folder. A run that it was to replace is put back.
    pub fn remove_if_not_begun(self) {
        if self.check().is_err() {
            return;
        }
        let path = self.path();
        // Only what is certainly empty is removed: a network file system may fail for a moment.
        let has_checkpoints = fs::read_dir(path.join(CHECKPOINTS)).map(|mut entries| entries.next().is_some());
        let has_metrics = fs::metadata(path.join(METRICS)).map(|metadata| metadata.len() > 0);
        if [has_checkpoints, has_metrics]
            .into_iter()
            .any(|found| found.unwrap_or_else(|error| error.kind() != io::ErrorKind::NotFound))
        {
            return;
        }
        // The error of the run matters more than one of these.
        for folder in [CHECKPOINTS, ASSIGNMENTS, ROWS] {
            let _ = fs::remove_dir_all(path.join(folder));
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        // The configuration last: it says that this is the folder of a run.
        let events = names.filter(|name| name.starts_with(EVENTS));
        for file in events.chain([METRICS, CLASSES, SCHEMA, CONFIG].map(str::to_owned)) {
            let _ = fs::remove_file(path.join(file));
        }
        if let Err(error) = replaced::put_back(path) {
            tracing::warn!("{error}");
        }
        if !self.existed {
            let _ = fs::remove_dir(path);
        }
    }

    /// The default folder of a new run on `store`: `web.run`, `web.run.2`, and so on for the store `web.grappa`, in the working folder. Its
    /// number is above the numbers of all folders that exist, so the newest run has the highest one.
    pub fn unused(store: &Path) -> PathBuf {
        let first = first_name(store);
        let last = numbers_in(Path::new("."), &first).max().unwrap_or(0);
        nth_name(&first, last.saturating_add(1)).into()
    }

    /// The newest folder of those that [`RunFolder::unused`] names for `store`: the run to resume by default.
    pub fn last(store: &Path) -> Option<PathBuf> {
        let first = first_name(store);
        Some(nth_name(&first, numbers_in(Path::new("."), &first).max()?).into())
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        self.own.path()
    }

    /// Makes sure that this is still the folder of the run.
    ///
    /// # Errors
    /// If somebody removed, renamed or emptied it while the run trained. Nothing may be written there then: another run may have its name.
    pub fn check(&self) -> Result<()> {
        self.own.check()?;
        match fs::symlink_metadata(self.path().join(CONFIG)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let problem = format!(
                    "the folder of the run was emptied while the run trained (it has no {CONFIG}); train it again"
                );
                Err(Error::run_file(self.path(), problem))
            }
            // A network file system may fail for a moment.
            _ => Ok(()),
        }
    }

    /// The configuration that the run was started with, or last resumed with.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a configuration.
    pub fn config(&self) -> Result<TrainConfig> {
        config_of(self.path())
    }

    /// Replaces the configuration. A resumed run may have another number of epochs, for example. The file leaves out the run's folder
    /// and the file of class names, because paths are wrong as soon as files move.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_config(&self, config: &TrainConfig) -> Result<()> {
        let inside = TrainConfig { class_names: None, out: None, ..config.clone() };
        self.write(CONFIG, with_checksum(&inside.to_toml()).as_bytes())
    }

    /// Writes the names of the classes.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_class_names(&self, names: &[String]) -> Result<()> {
        self.write(CLASSES, with_checksum(&class_names::text(names)).as_bytes())
    }

    /// Writes the names of features and classes in the store, if there are any, unless an earlier process did.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_schema(&self, schema: &Schema) -> Result<()> {
        if schema.is_empty() {
            return Ok(());
        }
        let (file, _) = schema.encode();
        match regular::read_if_there(&self.path().join(SCHEMA))? {
            Some(before) if before == file => Ok(()),
            _ => self.write(SCHEMA, &file),
        }
    }

    /// The run's checkpoints. The newest `keep` are kept.
    ///
    /// # Errors
    /// If their folder cannot be created, read or written to.
    pub fn checkpoints(&self, keep: usize) -> Result<Checkpoints> {
        Checkpoints::of_run(&self.own, CHECKPOINTS, keep)
    }

    /// The run's journal, continued after `epoch` epochs and `step` steps.
    ///
    /// # Errors
    /// If files cannot be read or written to, or a line is not a record.
    pub fn journal(&self, epoch: u64, step: u64) -> Result<Journal> {
        Journal::open(self.path(), epoch, step)
    }

    /// Syncs the records of epochs, so that a checkpoint that is written after this does not outlive the records of its epochs.
    ///
    /// # Errors
    /// If the file cannot be synced.
    pub fn sync_metrics(&self) -> Result<()> {
        let path = self.path().join(METRICS);
        let file = File::open(&path).map_err(EngineError::io("open", &path))?;
        durable::sync_file(&file, &path)?;
        Ok(())
    }

    /// Writes or replaces the result.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_summary(&self, summary: &Summary) -> Result<()> {
        self.write(SUMMARY, summary_file::text(summary).as_bytes())
    }

    /// Writes or replaces the report, an HTML page.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_report(&self, html: &str) -> Result<()> {
        self.write(REPORT, html.as_bytes())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.own.check()?;
        durable::write_file(&self.path().join(name), bytes)?;
        Ok(())
    }
}

/// The configuration of the run in `folder`.
///
/// # Errors
/// If the file cannot be read, is damaged, or is not a configuration.
pub fn config_of(folder: &Path) -> Result<TrainConfig> {
    TrainConfig::read_checked(&folder.join(CONFIG))
}

/// The names of the `classes` classes of the run in `folder`; empty if the user gave none. `are_there` says whether the run has names.
///
/// # Errors
/// If the file is missing, cannot be read, is damaged, or has another number of names.
pub fn class_names_of(folder: &Path, classes: u64, are_there: bool) -> Result<Vec<String>> {
    let path = folder.join(CLASSES);
    match path.exists() {
        true => class_names::read(&path, classes),
        false if are_there => Err(Error::run_file(
            &path,
            "missing, and the run has names of classes: restore it from a copy, or give the names again with --resume --class-names FILE",
        )),
        false => Ok(Vec::new()),
    }
}

/// The names of features and classes in the store of the run in `folder`, whose state is `state`. Empty if the store has none.
///
/// # Errors
/// If the file is missing, cannot be read, is damaged, or belongs to another run.
pub fn schema_of(folder: &Path, state: &RunState) -> Result<Schema> {
    let Some(digest) = state.schema_digest() else { return Ok(Schema::default()) };
    let path = folder.join(SCHEMA);
    let remedy = "restore it from a copy, or resume the run on its store, which writes it again";
    let Some(file) = regular::read_if_there(&path)? else {
        let problem = format!("missing, and the run has names of features or classes: {remedy}");
        return Err(Error::run_file(&path, problem));
    };
    let [inputs, outputs] = [state.inputs, state.outputs].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let schema = Schema::decode(&file, inputs, outputs);
    let schema = schema.map_err(|error| Error::run_file(&path, format!("{error}: {remedy}")))?;
    match schema.encode().1 == digest {
        true => Ok(schema),
        false => Err(Error::run_file(&path, format!("it belongs to another run: {remedy}"))),
    }
}

/// The numbers of the folders in `folder` that have such a name.
fn numbers_in(folder: &Path, first: &str) -> impl Iterator<Item = u64> {
    // A folder that cannot be listed has no runs that could be opened either.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(move |name| {
        let number = match name.strip_prefix(first)? {
            "" => 1,
            other => other.strip_prefix('.')?.parse().ok()?,
        };
        // `parse` also takes `+2` and `02`, which no run is called.
        (name == nth_name(first, number)).then_some(number)
    })
}

fn nth_name(first: &str, number: u64) -> String {
    match number {
        1 => first.to_owned(),
        _ => format!("{first}.{number}"),
    }
}

fn first_name(store: &Path) -> String {
    let name = store.file_stem().map_or_else(|| "grappa".into(), |name| name.to_string_lossy());
    format!("{name}.run")
}
