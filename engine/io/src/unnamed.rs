//! Scratch files without a name. Other processes cannot see them, and a killed process leaves none behind.

use std::{fs::File, path::Path};

use crate::{Error, Result};

/// A new unnamed file on the file system of `folder`, open for reading and writing. The kernel removes it when it is
/// closed, however the process ends. On a file system without `O_TMPFILE`, it has a random name for a moment.
///
/// # Errors
/// If the folder cannot be written to.
pub fn unnamed_file(folder: &Path) -> Result<File> {
    tempfile::tempfile_in(folder).map_err(Error::io("create a scratch file in", folder))
}
