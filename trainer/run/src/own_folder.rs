//! Tells whether a folder is still the one that this process began to write.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_io::{
    Error as EngineError,
    durable::{FolderLock, Patience},
};

use crate::{Error, Result};

/// The path of a run's folder, and the lock that tells whether the path still leads to it. Somebody may remove or rename the folder while
/// the run trains, and start another run under its name.
#[derive(Debug, Clone)]
pub(crate) struct OwnFolder {
    path: PathBuf,
    lock: Arc<FolderLock>,
}

impl OwnFolder {
    /// Locks a folder for this process.
    pub(crate) fn lock(path: &Path) -> Result<Self> {
        // The user may have put a link to another disk in its place.
        let folder = path.canonicalize().map_err(EngineError::io("open", path))?;
        let lock = FolderLock::acquire(&folder, Patience::None)?
            .ok_or_else(|| Error::run_file(path, "the folder was removed or renamed at this moment: start again"))?;
        Ok(Self { path: path.to_owned(), lock: Arc::new(lock) })
    }

    /// The path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that the path still leads to the folder of this run. To be called before each change of its files.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lock.is_at(&self.path)? {
            return Ok(());
        }
        let problem = "the folder of the run was removed or renamed while the run trained, and nothing more is written there; continue a renamed \
                    run with --resume and its new name as --out, or train a removed one again";
        Err(Error::run_file(&self.path, problem))
    }
}
