//! Checkpoints: the state from which a run resumes.
//!
//! A checkpoint is one safetensors file. Its tensors are parameters, buffers and the optimizer's moments
//! (`parameters.layers.0.lin_l.weight`, `buffers.norms.0.running_mean`, `optimizer.first`). The metadata of its header has
//!
//! ```text
//! grappa.version   "5"
//! grappa.state     the state of the run, as JSON: RunState
//! grappa.digest    XXH3-64 of the state and of every tensor's name, type, shape and bytes; 16 hexadecimal digits
//! ```
//!
//! Historical embeddings of halo nodes may be older than the checkpoint. Then `history.parameters.` and `history.buffers.` are the
//! tensors of the model that they were made with, from which they are made again. Version 1 has no such tensors, and no
//! unfinished epochs in its state. Versions 1 and 2 have no wall time by stage. They can still be read.
//!
//! `embeddings.user` has the learnable embeddings of the nodes of a type, in the order of ids. A whole checkpoint also has the state of
//! their optimizer, `embeddings.user#first`, `#second` and `#updates`, and, within an epoch, `embeddings.user#copies`, which partitions read of
//! nodes that they do not own. Versions before 5 have none.
//!
//! `residuals.0`, `residuals.1` and so on are what each process has not sent yet of its compressed gradients. Versions before 4 have none.
//!
//! A file is written under a temporary name, synced and renamed, and then its folder is synced. So a file with its final name is
//! complete, unless the disk damaged it; the digest detects that. Files are named after the step:
//! `step-000000001200.safetensors`, and `best-...` for the best evaluation so far.

mod file;
mod state;
mod tensor;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable};
use xxhash_rust::xxh3::Xxh3;

use self::file::{map_tensors, write_named};
pub use self::{
    file::{read_tensors, write_tensors},
    state::{Best, CLASS_WEIGHTS, LINK_LISTS, PartialEpoch, RunState},
    tensor::{Dtype, NamedTensor, TensorBytes},
};
use crate::{Error, Result, own_folder::OwnFolder};

/// The version of the format that is written, and the newest that can be read.
const VERSION: u32 = 5;

const VERSION_KEY: &str = "grappa.version";
const STATE_KEY: &str = "grappa.state";
const DIGEST_KEY: &str = "grappa.digest";

/// All that a run needs to resume.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Checkpoint {
    /// The state of the run.
    pub state: RunState,
    /// The model's parameters, under their names in the model.
    pub parameters: Vec<NamedTensor>,
    /// The model's buffers.
    pub buffers: Vec<NamedTensor>,
    /// The moments of the optimizer. A checkpoint of the best evaluation has none.
    pub optimizer: Vec<NamedTensor>,
    /// The parameters and buffers that the historical embeddings of halo nodes were made with, as `parameters.NAME` and
    /// `buffers.NAME`; empty if these are the ones above.
    pub historical: Vec<NamedTensor>,
    /// For each process, under its number, the part of its compressed gradients that it has not sent yet. Empty without error feedback.
    pub residuals: Vec<NamedTensor>,
    /// The learnable embeddings of nodes, by node type.
    pub embeddings: Vec<NamedTensor>,
}

/// The first parts of the names of tensors in a file, in the order of the fields of a checkpoint.
const KINDS_OF_TENSORS: [&str; 6] = ["parameters", "buffers", "optimizer", "history", "residuals", "embeddings"];

impl Checkpoint {
    /// Writes or replaces a checkpoint file. When this returns, the file is on disk.
    ///
    /// # Errors
    /// If the file cannot be written, for example because the disk is full. Also if the state contains a number that is not
    /// finite, which JSON cannot represent.
    ///
    /// # Panics
    /// If two tensors have the same name.
    pub fn write(&self, path: &Path) -> Result<()> {
        let tensors = self.prefixed();
        let state = serde_json::to_string(&self.state).expect("a state is representable");
        if !serde_json::from_str(&state).is_ok_and(|back: RunState| back == self.state) {
            let problem = format!("not written: the run's state contains a number that is not finite: {state}");
            return Err(Error::run_file(path, problem));
        }
        let metadata = BTreeMap::from([
            (VERSION_KEY.to_owned(), VERSION.to_string()),
            (DIGEST_KEY.to_owned(), digest(&state, &tensors)),
            (STATE_KEY.to_owned(), state),
        ]);
        write_named(path, &tensors, &metadata)
    }

    /// Reads a checkpoint file and verifies its digest.
    ///
    /// # Errors
    /// [`Error::RunFile`] if it is truncated, damaged or not a checkpoint. [`Error::NewerVersion`] if its version is newer. Also if
    /// it cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        Self::of_tensors(path, map_tensors(path)?)
    }

    fn of_tensors(path: &Path, (tensors, metadata): (Vec<NamedTensor>, HashMap<String, String>)) -> Result<Self> {
        let version: u32 = entry(&metadata, VERSION_KEY, path)?
            .parse()
            .map_err(|_| Error::run_file(path, format!("{VERSION_KEY} is not a number")))?;
        if version > VERSION {
            return Err(Error::NewerVersion(format!(
                "{} is a checkpoint of version {version}, and this program reads versions up to {VERSION}: use the newer program \
                 that wrote it",
                path.display()
            )));
        }
        let state_text = entry(&metadata, STATE_KEY, path)?;
        let named: Vec<_> = tensors.iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        if digest(state_text, &named) != *entry(&metadata, DIGEST_KEY, path)? {
            return Err(Error::run_file(path, "damaged: its checksum does not match its contents"));
        }
        let state: RunState =
            serde_json::from_str(state_text).map_err(|error| Error::run_file(path, format!("its state: {error}")))?;
        if let Some(scores) = &state.scores
            && !scores.report.has_classes(state.outputs)
        {
            return Err(Error::run_file(path, format!("its scores are not of {} classes", state.outputs)));
        }
        let mut lists = KINDS_OF_TENSORS.map(|_| Vec::new());
        for mut tensor in tensors {
            let (kind, name) = tensor.name.split_once('.').unwrap_or_default();
            let Some(list) = KINDS_OF_TENSORS.iter().position(|known| *known == kind) else {
                return Err(Error::run_file(path, format!("unexpected tensor {}", tensor.name)));
            };
            tensor.name = name.to_owned();
            lists[list].push(tensor);
        }
        let [parameters, buffers, optimizer, historical, residuals, embeddings] = lists;
        Ok(Self { state, parameters, buffers, optimizer, historical, residuals, embeddings })
    }

    /// All tensors with the names that they have in the file.
    fn prefixed(&self) -> Vec<(String, &NamedTensor)> {
        let Self { parameters, buffers, optimizer, historical, residuals, embeddings, .. } = self;
        let lists = [parameters, buffers, optimizer, historical, residuals, embeddings];
        KINDS_OF_TENSORS
            .into_iter()
            .zip(lists)
            .flat_map(|(kind, tensors)| tensors.iter().map(move |tensor| (format!("{kind}.{}", tensor.name), tensor)))
            .collect()
    }
}

fn entry<'a>(metadata: &'a HashMap<String, String>, key: &str, path: &Path) -> Result<&'a String> {
    let entry = metadata.get(key);
    entry.ok_or_else(|| Error::run_file(path, format!("not a checkpoint: its metadata has no {key}")))
}

/// The digest of a checkpoint. It does not depend on the order of the tensors.
fn digest(state: &str, tensors: &[(String, &NamedTensor)]) -> String {
    let mut hash = Xxh3::new();
    add_part(&mut hash, state.as_bytes());
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by_key(|(name, _)| name);
    for (name, tensor) in tensors {
        add_part(&mut hash, name.as_bytes());
        add_part(&mut hash, tensor.dtype.to_string().as_bytes());
        add_part(&mut hash, format!("{:?}", tensor.shape).as_bytes());
        add_part(&mut hash, &tensor.bytes);
    }
    format!("{:016x}", hash.digest())
}

/// Adds a part and its length to a digest.
fn add_part(hash: &mut Xxh3, bytes: &[u8]) {
    hash.update(&(bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// The checkpoints of a run: the newest few, and the best.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    /// The folder of the run that adds checkpoints. None for readers.
    run: Option<OwnFolder>,
    /// Number of newest checkpoints to keep.
    keep: usize,
}

// Kinds of checkpoints: the first words of their names.
const STEP: &str = "step";
const BEST: &str = "best";

/// The newest intact checkpoint.
#[derive(Debug, Default)]
pub struct Latest {
    /// Its path and contents. None if the run has no checkpoint yet.
    pub found: Option<(PathBuf, Checkpoint)>,
    /// Messages for the user about newer checkpoints that are damaged.
    pub warnings: Vec<String>,
}

impl Checkpoints {
    /// Opens the checkpoints in `folder`, to add more. Creates the folder if needed, and removes temporary files of a killed run.
    ///
    /// # Errors
    /// If the folder cannot be created, read or written to.
    ///
    /// # Panics
    /// If `keep` is 0.
    pub fn open(folder: &Path, keep: usize) -> Result<Self> {
        Self::open_of(None, folder, keep)
    }

    /// As [`Checkpoints::open`] of the folder `name` of a run. Nothing is changed there once the run's folder was replaced.
    pub(crate) fn of_run(run: &OwnFolder, name: &str, keep: usize) -> Result<Self> {
        run.check()?;
        Self::open_of(Some(run.clone()), &run.path().join(name), keep)
    }

    fn open_of(run: Option<OwnFolder>, folder: &Path, keep: usize) -> Result<Self> {
        assert!(keep > 0, "at least one checkpoint is kept");
        fs::create_dir_all(folder).map_err(EngineError::io("create", folder))?;
        for entry in fs::read_dir(folder).map_err(EngineError::io("read", folder))? {
            let path = entry.map_err(EngineError::io("read", folder))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                remove(&path)?;
            }
        }
        Ok(Self { folder: folder.to_owned(), run, keep })
    }

    /// The checkpoints in `folder`, for reading only. Changes nothing.
    pub fn look(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), run: None, keep: usize::MAX }
    }

    /// Adds the checkpoint of a step, then removes old ones. On a full disk it removes all but the newest one first: an old checkpoint must
    /// not cost a new one.
    ///
    /// # Errors
    /// If files cannot be written or removed, for example because the disk is full. The newest checkpoint is then unchanged, and training
    /// can continue.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.write(STEP, checkpoint)
    }

    /// Adds the checkpoint of the best evaluation so far.
    ///
    /// # Errors
    /// As [`Checkpoints::save`].
    pub fn save_best(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.write(BEST, checkpoint)
    }

    /// The newest intact checkpoint. Skips those that are truncated or damaged, with a warning.
    ///
    /// # Errors
    /// If there are checkpoints and none is intact, if one cannot be read, or if a newer program wrote it.
    pub fn latest(&self) -> Result<Latest> {
        let mut damaged = Vec::new();
        for (_, path) in self.list(STEP)?.into_iter().rev() {
            match Checkpoint::read(&path) {
                Ok(checkpoint) => {
                    let damaged = damaged.into_iter();
                    return Ok(Latest {
                        found: Some((path, checkpoint)),
                        warnings: damaged.map(|error| format!("{error}; using the checkpoint before it")).collect(),
                    });
                }
                Err(error @ Error::RunFile { .. }) => damaged.push(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        if damaged.is_empty() {
            return Ok(Latest::default());
        }
        let problem = format!("no checkpoint is intact: {}; start a new run", damaged.join("; "));
        Err(Error::run_file(&self.folder, problem))
    }

    /// The checkpoint of the best evaluation up to `step`. None if there was no evaluation.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub fn best(&self, step: u64) -> Result<Option<(PathBuf, Checkpoint)>> {
        let all = self.list(BEST)?;
        let Some((_, path)) = all.into_iter().rev().find(|(at, _)| *at <= step) else { return Ok(None) };
        let checkpoint = Checkpoint::read(&path)?;
        Ok(Some((path, checkpoint)))
    }

    /// The best model that the state of a run refers to. None if there was no evaluation.
    ///
    /// # Errors
    /// [`Error::RunFile`] if it is missing, damaged, or of another run. Also if it cannot be read.
    pub fn best_of(&self, state: &RunState) -> Result<Option<(PathBuf, Checkpoint)>> {
        let Some(best) = state.best else { return Ok(None) };
        let path = self.path(BEST, best.step);
        if !path.exists() {
            let problem = format!("the best model, from epoch {}, is missing", best.epoch);
            return Err(Error::run_file(&path, problem));
        }
        let checkpoint = Checkpoint::read(&path)?;
        checkpoint.state.check_same_run(&path, state)?;
        Ok(Some((path, checkpoint)))
    }

    /// Removes the checkpoints after `step`, from which a run resumes, and old ones that a killed run did not come to remove. It will
    /// compute the steps after `step` again, with other results if its options changed.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn forget_after(&self, step: u64) -> Result<()> {
        self.check_run()?;
        for kind in [STEP, BEST] {
            for (_, path) in self.list(kind)?.into_iter().filter(|(at, _)| *at > step) {
                remove(&path)?;
            }
        }
        self.prune(self.keep)?;
        durable::sync_folder(&self.folder)?;
        Ok(())
    }

    fn write(&self, kind: &str, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.check_run()?;
        let path = self.path(kind, checkpoint.state.step);
        match checkpoint.write(&path) {
            Err(error) if error.is_disk_full() && self.prune(1)? > 0 => {
                tracing::warn!(
                    "the disk is full: checkpoints before the last one were removed to make room for a new one, with --keep {}",
                    self.keep
                );
                checkpoint.write(&path)?;
            }
            written => written?,
        }
        self.prune(self.keep)?;
        Ok(path)
    }

    /// Refuses to change files of a folder that another run may have by now.
    fn check_run(&self) -> Result<()> {
        self.run.as_ref().map_or(Ok(()), OwnFolder::check)
    }

    fn path(&self, kind: &str, step: u64) -> PathBuf {
        self.folder.join(format!("{kind}-{step:012}.safetensors"))
    }

    /// Removes old checkpoints, and returns their number. It keeps the newest `keep`, the newest of the best, and for each of the newest the
    /// one that was the best when it was made: a run that resumes from there needs it.
    fn prune(&self, keep: usize) -> Result<usize> {
        let mut old = self.list(STEP)?;
        let kept = old.split_off(old.len().saturating_sub(keep));
        let best = self.list(BEST)?;
        let last = best.last().map(|(at, _)| *at);
        let at_the_time = |step: u64| best.iter().map(|(at, _)| *at).filter(|&at| at <= step).max();
        let needed: Vec<u64> = kept.iter().filter_map(|(step, _)| at_the_time(*step)).chain(last).collect();
        old.extend(best.iter().filter(|(at, _)| !needed.contains(at)).cloned());
        old.iter().try_for_each(|(_, path)| remove(path))?;
        Ok(old.len())
    }

    /// Steps and paths of the checkpoints of a kind, oldest first.
    fn list(&self, kind: &str) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(EngineError::io("read", &self.folder))? {
            let path = entry.map_err(EngineError::io("read", &self.folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let step = name
                .strip_prefix(kind)
                .and_then(|name| name.strip_prefix('-')?.strip_suffix(".safetensors")?.parse().ok());
            if let Some(step) = step {
                found.push((step, path));
            }
        }
        found.sort();
        Ok(found)
    }
}

fn remove(path: &Path) -> Result<()> {
    Ok(durable::remove_file(path)?)
}
