//! The manifest of a member of a graph.

use std::path::Path;

use grappa_formats::{FormatError, manifest::Manifest};
use grappa_io::{Error, Result, regular};

use crate::files;

/// Reads the manifest of a member of a graph.
///
/// # Errors
/// If it can't be read, or is damaged.
pub fn read_manifest_of_member(folder: &Path) -> Result<Manifest> {
    let file = folder.join(files::MANIFEST);
    let bytes = regular::read(&file).map_err(files::missing)?;
    Manifest::decode(&bytes).map_err(Error::format(&file))
}

/// As [`read_manifest_of_member`], of the member with this digest. If a run that gave it features was killed at its end, the graph lists a
/// manifest that is still in the folder of that run.
///
/// # Errors
/// As [`read_manifest_of_member`].
pub fn read_listed_member(folder: &Path, digest: u64) -> Result<Manifest> {
    let manifest = read_manifest_of_member(folder)?;
    if manifest.digest() == digest {
        return Ok(manifest);
    }
    let next = regular::read_if_there(&folder.join(files::FEATURES_PARTIAL).join(files::MANIFEST))?;
    let next = next.and_then(|bytes| Manifest::decode(&bytes).ok()).filter(|next| next.digest() == digest);
    Ok(next.unwrap_or(manifest))
}

/// Reads the manifest of a member, which has this digest and fits the graph.
pub(crate) fn read_member(folder: &Path, digest: u64, fits: impl Fn(&Manifest) -> bool) -> Result<Manifest> {
    let manifest = read_listed_member(folder, digest)?;
    let found = manifest.digest();
    if found != digest || !fits(&manifest) {
        let problem = format!(
            "this is not the member that the graph lists: expected the digest {digest:016x}, found {found:016x}; was it copied from \
             another graph?"
        );
        return Err(Error::format(folder.join(files::MANIFEST))(FormatError::invalid(56, problem)));
    }
    Ok(manifest)
}
