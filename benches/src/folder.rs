//! Folders that runs leave behind.

use std::{fs, path::Path};

use anyhow::{Context, Result};

/// Removes a folder with all that is in it, if it is there.
///
/// # Errors
/// If the system refuses.
pub fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}
