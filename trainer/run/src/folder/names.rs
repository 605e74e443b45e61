//! The names of a run's files.

use std::{ffi::OsStr, fs, path::Path};

use grappa_io::Error as EngineError;

use crate::{
    Error, Result,
    journal::{EVENTS, METRICS},
};

/// The file of the configuration.
pub const CONFIG: &str = "config.toml";
/// The file of the result.
pub const SUMMARY: &str = "summary.json";
/// The file of the report.
pub const REPORT: &str = "report.html";
/// A report contains this text if its run is not finished.
pub const RUNNING: &str = "<strong>running</strong>";
/// The file of the names of classes.
pub const CLASSES: &str = "classes.txt";
/// The file of the names of features and classes in the store.
pub const SCHEMA: &str = grappa_formats::schema::FILE;
/// The folder of the assignments of chunks to partitions. It has the same files as the folder of a store.
pub const ASSIGNMENTS: &str = "assignments";
/// The folder of checkpoints.
pub const CHECKPOINTS: &str = "checkpoints";
/// The folder of learned rows.
pub const ROWS: &str = "rows";

/// The folder of the replaced run, in the folder of the new run.
pub(super) const REPLACED: &str = "replaced";

/// The file of the messages of a rank.
pub fn log_of_rank(rank: u32) -> String {
    format!("{LOG}{rank}{LOG_END}")
}

const LOG: &str = "rank-";
const LOG_END: &str = ".log";

pub(super) fn is_log(name: &OsStr) -> bool {
    let rank = name.to_str().and_then(|name| name.strip_prefix(LOG)?.strip_suffix(LOG_END));
    rank.is_some_and(|rank| rank.parse::<u32>().is_ok())
}
/// Refuses symbolic links in place of a run's files and folders: what is written there would go to files of somebody else. The folder
/// itself may be a link.
pub(super) fn refuse_links(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(EngineError::io("read", folder))? {
        let entry = entry.map_err(EngineError::io("read", folder))?;
        let kind = entry.file_type().map_err(EngineError::io("read", folder))?;
        if kind.is_symlink() && is_of_run(&entry.file_name()) {
            let problem = "this is a symbolic link, and a run writes to files of its own only: remove the link; to keep a run on another \
                        disk, make its whole folder a link";
            return Err(Error::run_file(&entry.path(), problem));
        }
    }
    Ok(())
}

/// Whether a run writes a file or folder of this name.
pub(super) fn is_of_run(name: &OsStr) -> bool {
    let names = [CONFIG, METRICS, CHECKPOINTS, ASSIGNMENTS, ROWS, CLASSES, SCHEMA, REPORT, SUMMARY, REPLACED];
    names.iter().any(|own| name == *own) || is_log(name) || name.as_encoded_bytes().starts_with(EVENTS.as_bytes())
}
