//! Output folders of runs.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Removes a folder and its contents, if it exists.
///
/// # Errors
/// If the folder can't be removed.
pub fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}
