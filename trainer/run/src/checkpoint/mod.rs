//! What a killed run goes on from.
//!
//! A checkpoint is one safetensors file: parameters, buffers and the optimizer's moments as tensors
//! (`parameters.layers.0.lin_l.weight`, `buffers.norms.0.running_mean`, `optimizer.first`), and in the header's metadata:
//!
//! ```text
//! grappa.version   "2"
//! grappa.state     the run's state, as JSON: RunState
//! grappa.digest    XXH3-64 of the state and of every tensor's name, type, shape and bytes; 16 hexadecimal digits
//! ```
//!
//! Where halo nodes have a history that is older than the checkpoint, `history.parameters.` and `history.buffers.` are the
//! model's tensors of then, from which it is made again. (Version 1 has no such tensors, and no unfinished epochs in its
//! state; it is read as well.)
//!
//! It is written under a temporary name, synced, renamed, and its folder synced, so a file that has its name is whole unless
//! the disk damaged it, which the digest shows. Files are named after the step: `step-000000001200.safetensors`, and
//! `best-...` where an evaluation was the best so far.

mod file;
mod state;
mod tensor;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use grappa_io::{Error as EngineError, durable, regular};
use xxhash_rust::xxh3::Xxh3;

use self::file::write_named;
pub use self::{
    file::{read_tensors, write_tensors},
    state::{Best, PartialEpoch, RunState},
    tensor::{Dtype, NamedTensor},
};
use crate::{Error, Result};

/// The version of the format that is written, and the newest that is read.
const VERSION: u32 = 2;

const VERSION_KEY: &str = "grappa.version";
const STATE_KEY: &str = "grappa.state";
const DIGEST_KEY: &str = "grappa.digest";

/// Everything a run needs to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    /// Where it stands.
    pub state: RunState,
    /// The model's parameters, under their names in the model.
    pub parameters: Vec<NamedTensor>,
    /// The model's buffers.
    pub buffers: Vec<NamedTensor>,
    /// What the optimizer remembers. A checkpoint of the best evaluation may do without.
    pub optimizer: Vec<NamedTensor>,
    /// The model's parameters and buffers when the history of halo nodes was made, as `parameters.NAME` and `buffers.NAME`;
    /// empty if these are the ones above.
    pub historical: Vec<NamedTensor>,
}

impl Checkpoint {
    /// Writes or replaces a checkpoint file. When this returns, it has survived.
    ///
    /// # Errors
    /// If the disk is full, or the file can't be written for another reason; and if the state has a number that is none,
    /// which JSON can't say.
    ///
    /// # Panics
    /// If two tensors have the same name.
    pub fn write(&self, path: &Path) -> Result<()> {
        let tensors = self.prefixed();
        let state = serde_json::to_string(&self.state).expect("a state is representable");
        if !serde_json::from_str(&state).is_ok_and(|back: RunState| back == self.state) {
            let what = format!("not written: the run's state contains a number that is not finite: {state}");
            return Err(Error::run_file(path, what));
        }
        let metadata = BTreeMap::from([
            (VERSION_KEY.to_owned(), VERSION.to_string()),
            (DIGEST_KEY.to_owned(), digest(&state, &tensors)),
            (STATE_KEY.to_owned(), state),
        ]);
        write_named(path, &tensors, &metadata)
    }

    /// Reads a checkpoint file, and checks every byte.
    ///
    /// # Errors
    /// [`Error::RunFile`] if it is truncated, damaged or no checkpoint; [`Error::Options`] if it is of a newer version;
    /// else if it can't be read.
    pub fn read(path: &Path) -> Result<Self> {
        Self::parse(path, &regular::read(path)?)
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self> {
        let damaged = |what: String| Error::run_file(path, what);
        let (tensors, metadata) = file::parse(path, bytes)?;
        let entry = |key: &str| {
            metadata
                .get(key)
                .ok_or_else(|| damaged(format!("no checkpoint: it has no {key}")))
        };
        let version: u32 = entry(VERSION_KEY)?
            .parse()
            .map_err(|_| damaged(format!("{VERSION_KEY} is no number")))?;
        if version > VERSION {
            return Err(Error::Options(format!(
                "{} is a checkpoint of version {version}, and this program reads up to {VERSION}: go on with the newer \
                 program that wrote it",
                path.display()
            )));
        }
        let state_text = entry(STATE_KEY)?;
        let named: Vec<_> = tensors.iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        if digest(state_text, &named) != *entry(DIGEST_KEY)? {
            return Err(damaged("damaged: its checksum is not that of its contents".to_owned()));
        }
        let state = serde_json::from_str(state_text).map_err(|error| damaged(format!("its state: {error}")))?;
        let mut checkpoint = Self {
            state,
            parameters: Vec::new(),
            buffers: Vec::new(),
            optimizer: Vec::new(),
            historical: Vec::new(),
        };
        for mut tensor in tensors {
            let (kind, name) = tensor.name.split_once('.').unwrap_or_default();
            let list = match kind {
                "parameters" => &mut checkpoint.parameters,
                "buffers" => &mut checkpoint.buffers,
                "optimizer" => &mut checkpoint.optimizer,
                "history" => &mut checkpoint.historical,
                _ => return Err(damaged(format!("tensor {} is none of a checkpoint", tensor.name))),
            };
            tensor.name = name.to_owned();
            list.push(tensor);
        }
        Ok(checkpoint)
    }

    /// All tensors, under the names that they have in the file.
    fn prefixed(&self) -> Vec<(String, &NamedTensor)> {
        let kinds = [
            ("parameters", &self.parameters),
            ("buffers", &self.buffers),
            ("optimizer", &self.optimizer),
            ("history", &self.historical),
        ];
        kinds
            .into_iter()
            .flat_map(|(kind, tensors)| {
                tensors
                    .iter()
                    .map(move |tensor| (format!("{kind}.{}", tensor.name), tensor))
            })
            .collect()
    }
}

/// Of everything in a checkpoint, whatever the order of its tensors.
fn digest(state: &str, tensors: &[(String, &NamedTensor)]) -> String {
    let mut hash = Xxh3::new();
    let mut part = |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(state.as_bytes());
    let mut tensors: Vec<_> = tensors.iter().collect();
    tensors.sort_by_key(|(name, _)| name);
    for (name, tensor) in tensors {
        part(name.as_bytes());
        part(tensor.dtype.to_string().as_bytes());
        part(format!("{:?}", tensor.shape).as_bytes());
        part(&tensor.bytes);
    }
    format!("{:016x}", hash.digest())
}

/// The checkpoints of a run: the newest few, and the best.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    /// How many of the newest are kept.
    keep: usize,
}

/// Why a checkpoint was made. It is the first word of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Step,
    Best,
}

/// The newest checkpoint that is whole.
#[derive(Debug, Default)]
pub struct Latest {
    /// Where it is, and what is in it. None if the run has none yet.
    pub found: Option<(PathBuf, Checkpoint)>,
    /// What was passed over, and why; for the user to see.
    pub warnings: Vec<String>,
}

impl Checkpoints {
    /// Those in `folder`, which is made if it is not there. What a killed run left half written there is removed.
    ///
    /// # Errors
    /// If the folder can't be made, read or written to.
    ///
    /// # Panics
    /// If `keep` is 0.
    pub fn open(folder: &Path, keep: usize) -> Result<Self> {
        assert!(keep > 0, "at least one checkpoint is kept");
        fs::create_dir_all(folder).map_err(EngineError::io("create", folder))?;
        for entry in fs::read_dir(folder).map_err(EngineError::io("read", folder))? {
            let path = entry.map_err(EngineError::io("read", folder))?.path();
            if path.extension().is_some_and(|extension| extension == "tmp") {
                remove(&path)?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            keep,
        })
    }

    /// Those in `folder`, to be read by who does not work on the run: nothing is made or removed.
    pub fn look(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            keep: usize::MAX,
        }
    }

    /// Adds the checkpoint of a step, and removes those that are too old then. If it fails, none is removed: training can
    /// go on with what there was.
    ///
    /// # Errors
    /// If the disk is full, or files can't be written or removed for another reason.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.write(Kind::Step, checkpoint)
    }

    /// Adds the checkpoint of the best evaluation so far.
    ///
    /// # Errors
    /// As [`Checkpoints::save`].
    pub fn save_best(&self, checkpoint: &Checkpoint) -> Result<PathBuf> {
        self.write(Kind::Best, checkpoint)
    }

    /// The newest checkpoint that is whole. One that is truncated or damaged is passed over, with a warning.
    ///
    /// # Errors
    /// If there are some and none is whole, or one can't be read, or was written by a newer program.
    pub fn latest(&self) -> Result<Latest> {
        let mut warnings = Vec::new();
        for (_, path) in self.list(Kind::Step)?.into_iter().rev() {
            match Checkpoint::read(&path) {
                Ok(checkpoint) => {
                    return Ok(Latest {
                        found: Some((path, checkpoint)),
                        warnings,
                    });
                }
                Err(error @ Error::RunFile { .. }) => {
                    warnings.push(format!("{error}; going back to the checkpoint before it"));
                }
                Err(error) => return Err(error),
            }
        }
        if warnings.is_empty() {
            return Ok(Latest { found: None, warnings });
        }
        let what = format!("no checkpoint is intact: {}; start a new run", warnings.join(", "));
        Err(Error::run_file(&self.folder, what))
    }

    /// The checkpoint of the best evaluation, of those up to `step`. None if there was no evaluation.
    ///
    /// # Errors
    /// If it can't be read, or is damaged.
    pub fn best(&self, step: u64) -> Result<Option<(PathBuf, Checkpoint)>> {
        let all = self.list(Kind::Best)?;
        let Some((_, path)) = all.into_iter().rev().find(|(at, _)| *at <= step) else {
            return Ok(None);
        };
        let checkpoint = Checkpoint::read(&path)?;
        Ok(Some((path, checkpoint)))
    }

    /// Removes the checkpoints of later steps than `step`, from which a run goes on: what it will compute is not what is in
    /// them.
    ///
    /// # Errors
    /// If they can't be removed.
    pub fn forget_after(&self, step: u64) -> Result<()> {
        for kind in [Kind::Step, Kind::Best] {
            for (_, path) in self.list(kind)?.into_iter().filter(|(at, _)| *at > step) {
                remove(&path)?;
            }
        }
        durable::sync_folder(&self.folder)?;
        Ok(())
    }

    fn write(&self, kind: Kind, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let name = format!("{}-{:012}.safetensors", kind.name(), checkpoint.state.step);
        let path = self.folder.join(name);
        checkpoint.write(&path)?;
        self.prune()?;
        Ok(path)
    }

    /// Removes what is too old: all but the newest few, and of the best all but the newest, and those that were the best
    /// when one of the newest few was made: a run that goes on from there needs it.
    fn prune(&self) -> Result<()> {
        let mut steps = self.list(Kind::Step)?;
        let kept = steps.split_off(steps.len().saturating_sub(self.keep));
        for (_, path) in steps {
            remove(&path)?;
        }
        let best = self.list(Kind::Best)?;
        let last = best.last().map(|(at, _)| *at);
        let at_the_time = |step: u64| best.iter().map(|(at, _)| *at).filter(|&at| at <= step).max();
        let needed: Vec<u64> = kept
            .iter()
            .filter_map(|(step, _)| at_the_time(*step))
            .chain(last)
            .collect();
        for (_, path) in best.iter().filter(|(at, _)| !needed.contains(at)) {
            remove(path)?;
        }
        Ok(())
    }

    /// Steps and files, oldest first.
    fn list(&self, kind: Kind) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(EngineError::io("read", &self.folder))? {
            let path = entry.map_err(EngineError::io("read", &self.folder))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let step = name
                .strip_prefix(kind.name())
                .and_then(|name| name.strip_prefix('-')?.strip_suffix(".safetensors")?.parse().ok());
            if let Some(step) = step {
                found.push((step, path));
            }
        }
        found.sort();
        Ok(found)
    }
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Best => "best",
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    durable::remove_file(path)?;
    Ok(())
}
