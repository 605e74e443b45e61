//! A store that is checked: its files, and the problems found so far.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use grappa_formats::{
    FormatError,
    features::FeaturesMeta,
    manifest::{FeatureDtype, FileEntry, Manifest},
};
use grappa_io::{Error, Position, Result, container::ContainerFile, progress::Progress};
use grappa_storage::files;
use serde::Serialize;

/// The most problems that are reported for one file. A failing disk would give a million.
const PROBLEMS_MAX: usize = 100;
/// Mapped bytes that are read before their pages are released.
pub(super) const RELEASE_BYTES: u64 = 16 << 20;
/// Feature bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Number of checked files.
    pub files: u64,
    /// Their length in bytes.
    pub bytes: u64,
    /// The problems, sorted by file and offset.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Whether there are no problems.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A problem of a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The file, relative to the store.
    pub file: String,
    /// The offset in bytes, as exact as it is known.
    pub offset: u64,
    /// Description of the problem.
    #[serde(rename = "what")]
    pub description: String,
}

/// A store that is checked, and the problems so far.
pub(super) struct StoreCheck<'a> {
    pub(super) root: &'a Path,
    pub(super) progress: &'a dyn Progress,
    pub(super) found: Mutex<VerifyReport>,
}

impl<'a> StoreCheck<'a> {
    pub(super) fn new(root: &'a Path, progress: &'a dyn Progress) -> Self {
        Self { root, progress, found: Mutex::default() }
    }

    /// Files in the store's folder, and one level below it, for which `is_known` is false; relative to the store.
    pub(super) fn list(&self, is_known: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (name, path) in names(self.root)? {
            if !path.is_dir() {
                found.push(name);
                continue;
            }
            for (inner, _) in names(&path)? {
                found.push(format!("{name}/{inner}"));
            }
        }
        found.retain(|path| !is_known(path));
        found.sort();
        Ok(found)
    }

    /// Checks header, length and checksums of a file that the manifest lists. Returns the file if they are right.
    pub(super) fn file(&self, entry: &FileEntry) -> Option<ContainerFile> {
        self.checksums(&entry.path, files::open(self.root, entry))
    }

    pub(super) fn checksums(&self, path: &str, opened: Result<ContainerFile>) -> Option<ContainerFile> {
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                self.failed(path, error);
                return None;
            }
        };
        self.looked_at(file.bytes());
        let mut count = 0;
        if let Err(error) = file.verify(
            |bytes| self.progress.advance(bytes, 0),
            |error| {
                count += 1;
                if count <= PROBLEMS_MAX {
                    self.failed(path, error);
                }
            },
        ) {
            count += 1;
            self.failed(path, error);
        }
        if count > PROBLEMS_MAX {
            let problem = format!("{} more blocks of this file are damaged", count - PROBLEMS_MAX);
            self.problem(path, file.bytes(), problem);
        }
        (count == 0).then_some(file)
    }

    /// Whether a feature row could have been written by a writer.
    pub(super) fn feature_rows(&self, meta: &FeaturesMeta, file: &ContainerFile) -> Result<()> {
        let layout = meta.layout;
        if layout.dtype != FeatureDtype::Int8 && !meta.is_padded() {
            return Ok(()); // any bits are values
        }
        let stride = layout.stride as usize;
        let mut buffer = vec![0; (READ_BYTES / stride).max(1) * stride];
        let mut at = 0;
        while at < file.header().payload_bytes {
            let bytes = (file.header().payload_bytes - at).min(buffer.len() as u64) as usize;
            file.read_at(&mut buffer[..bytes], at)?;
            layout
                .check_rows(&buffer[..bytes], file.header().payload_offset + at, meta.with_features)
                .map_err(Error::format(file.path()))?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Checks the content of a file that the manifest may list, if its checksums are right.
    pub(super) fn content(&self, manifest: &Manifest, path: &str, check: impl FnOnce(&ContainerFile) -> Result<()>) {
        if let Some(file) = self.listed(manifest, path)
            && let Err(error) = check(&file)
        {
            self.failed(path, error);
        }
    }

    /// A file that the manifest may list, if its checksums are right.
    pub(super) fn listed(&self, manifest: &Manifest, path: &str) -> Option<ContainerFile> {
        self.file(entry_of(manifest, path)?)
    }

    pub(super) fn looked_at(&self, bytes: u64) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.files += 1;
        found.bytes += bytes;
    }

    pub(super) fn failed(&self, path: &str, error: Error) {
        let (offset, problem) = match error {
            Error::Format { source, .. } => {
                let offset = source.offset();
                match source {
                    FormatError::Invalid { problem, .. } => (offset, problem),
                    other => (offset, other.to_string()),
                }
            }
            Error::Input { problem, position, .. } => match position {
                Position::Offset(offset) => (offset, problem),
                _ => (0, problem),
            },
            Error::Io { action, source, .. } => (0, format!("cannot {action} it: {source}")),
            other => (0, other.to_string()),
        };
        self.problem(path, offset, problem);
    }

    pub(super) fn problem(&self, path: &str, offset: u64, description: String) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.problems.push(Problem { file: path.to_owned(), offset, description });
    }
}

/// The names and paths of what is in a folder.
pub(super) fn names(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    entries
        .map(|entry| {
            let entry = entry.map_err(Error::io("list", folder))?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
        })
        .collect()
}

pub(super) fn entry_of<'m>(manifest: &'m Manifest, path: &str) -> Option<&'m FileEntry> {
    let at = manifest.files.binary_search_by(|file| file.path.as_str().cmp(path));
    Some(&manifest.files[at.ok()?])
}
