//! The checkpoints of a run.

use std::{collections::BTreeMap, fs, path::PathBuf};

use grappa_io::Error as EngineError;
use grappa_run::{
    Error as RunError,
    checkpoint::{Checkpoint, Checkpoints, Dtype, NamedTensor, RunState},
    folder::{CHECKPOINTS, RunFolder},
};

use crate::{
    Result,
    residents::Residents,
    rows::{RowOptimizer, Rows},
};

/// The name of the rows of relations in a checkpoint.
const RELATIONS: &str = "relations";

/// The checkpoints of a run, and the states that they have: rows of entities stay on disk as long as a state names them.
pub(super) struct SavedStates<'a> {
    folder: &'a RunFolder,
    checkpoints: &'a Checkpoints,
    states: BTreeMap<PathBuf, RunState>,
}

impl<'a> SavedStates<'a> {
    /// The checkpoints in the folder of a run. Damaged ones are left out: nothing can be read from them.
    pub fn read(folder: &'a RunFolder, checkpoints: &'a Checkpoints) -> Result<Self> {
        let mut states = BTreeMap::new();
        let path = folder.path().join(CHECKPOINTS);
        for entry in fs::read_dir(&path).map_err(EngineError::io("read", &path))? {
            let path = entry.map_err(EngineError::io("read", &path))?.path();
            if let Ok(checkpoint) = Checkpoint::read(&path) {
                states.insert(path, checkpoint.state);
            }
        }
        Ok(Self { folder, checkpoints, states })
    }

    /// Writes the rows of entities and a checkpoint that names them: the best model, the state to resume from, or both. Old rows are
    /// removed.
    ///
    /// # Errors
    /// If files cannot be written. Earlier checkpoints are then intact.
    pub fn save(
        &mut self,
        state: &mut RunState,
        [is_best, is_latest]: [bool; 2],
        entities: &mut Residents,
        relations: &Rows,
    ) -> Result<()> {
        self.folder.check()?;
        entities.flush()?;
        entities.generations().note(state)?;
        let checkpoint = checkpoint(state, relations);
        if is_best {
            let model = Checkpoint { optimizer: Vec::new(), ..checkpoint.clone() };
            let path = self.checkpoints.save_best(&model)?;
            self.states.insert(path, state.clone());
        }
        if is_latest {
            self.folder.sync_metrics()?;
            let path = self.checkpoints.save(&checkpoint)?;
            self.states.insert(path, state.clone());
        }
        self.forget(entities)
    }

    /// Removes the rows of entities that no checkpoint names.
    ///
    /// # Errors
    /// If files cannot be removed.
    pub fn forget(&mut self, entities: &mut Residents) -> Result<()> {
        self.states.retain(|path, _| path.exists());
        Ok(entities.generations().keep(self.states.values())?)
    }
}

/// The checkpoint of a state, with the rows of relations.
fn checkpoint(state: &RunState, relations: &Rows) -> Checkpoint {
    let shape = [relations.len(), relations.dim()];
    let moments = relations.moments().iter().zip(["first", "second"]);
    let mut optimizer: Vec<_> =
        moments.map(|(values, name)| NamedTensor::from_f32(format!("{RELATIONS}.{name}"), &shape, values)).collect();
    if !relations.updates().is_empty() {
        let bytes: Vec<u8> = relations.updates().iter().flat_map(|updates| updates.to_le_bytes()).collect();
        optimizer.push(NamedTensor::new(format!("{RELATIONS}.updates"), Dtype::U32, &shape[..1], bytes));
    }
    Checkpoint {
        state: state.clone(),
        parameters: vec![NamedTensor::from_f32(RELATIONS, &shape, relations.values())],
        buffers: Vec::new(),
        optimizer,
        historical: Vec::new(),
        residuals: Vec::new(),
        embeddings: Vec::new(),
    }
}

/// The rows of relations in a checkpoint; without the state of an optimizer, in the checkpoint of the best model.
///
/// # Errors
/// If it has other rows than `expected`.
pub(crate) fn relations_of(
    path: &std::path::Path,
    checkpoint: &Checkpoint,
    [rows, dim]: [usize; 2],
    optimizer: RowOptimizer,
) -> Result<Rows> {
    let other = || {
        let problem = format!("it does not have the rows of {rows} relations with {dim} values: start a new run");
        RunError::run_file(path, problem)
    };
    let find = |tensors: &[NamedTensor], name: &str| {
        let name = format!("{RELATIONS}{name}");
        let found = tensors.iter().find(|tensor| tensor.name == name)?;
        found.to_f32().filter(|_| found.shape == [rows, dim])
    };
    let values = find(&checkpoint.parameters, "").ok_or_else(other)?;
    let mut relations = Rows::zeros(rows, dim, optimizer);
    relations.values_mut().copy_from_slice(&values);
    if !checkpoint.optimizer.is_empty() {
        let (moments, updates) = relations.optimizer_mut();
        for (name, moments) in [".first", ".second"].into_iter().zip(moments) {
            moments.copy_from_slice(&find(&checkpoint.optimizer, name).ok_or_else(other)?);
        }
        if optimizer.counts_updates() {
            let name = format!("{RELATIONS}.updates");
            let found = checkpoint.optimizer.iter().find(|tensor| tensor.name == name).ok_or_else(other)?;
            if found.bytes.len() != size_of_val(&updates[..]) {
                return Err(other().into());
            }
            let counts =
                found.bytes.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
            updates.iter_mut().zip(counts).for_each(|(updates, count)| *updates = count);
        }
    }
    Ok(relations)
}
