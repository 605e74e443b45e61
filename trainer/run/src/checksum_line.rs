//! Checksums of text files that people read: a last line that looks like a comment.
//!
//! ```text
//! # checksum: 0123456789abcdef     XXH3-64 of the lines before it; 16 hexadecimal digits
//! ```
//!
//! A file without such a line was edited by a user, and is read without a check.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use crate::{Error, Result};

/// The start of the last line.
const MARK: &str = "# checksum: ";

/// The lines of `text`, and a last one with their checksum.
pub(crate) fn with_checksum(text: &str) -> String {
    format!("{text}{MARK}{:016x}\n", xxh3_64(text.as_bytes()))
}

/// The text of the file `path` before the checksum; all of it if there is none.
///
/// # Errors
/// If the checksum does not match the text.
pub(crate) fn checked<'a>(path: &Path, text: &'a str) -> Result<&'a str> {
    // Wherever it is: damage may have joined it to the line before.
    let Some((before, checksum)) = text.rsplit_once(MARK) else { return Ok(text) };
    if checksum != format!("{:016x}\n", xxh3_64(before.as_bytes())) {
        let problem = format!(
            "damaged: its checksum does not match its contents; restore it from a copy or, if it was edited on purpose, \
             remove its last line (`{MARK}...`)"
        );
        return Err(Error::run_file(path, problem));
    }
    Ok(before)
}
