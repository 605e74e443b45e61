//! What can go wrong, with the file, the place in it, and what to do about it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use grappa_formats::FormatError;
use rustix::io::Errno;
use thiserror::Error;

use crate::size::ByteSize;

/// The result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the engine failed. Every message names the file and says what would help.
#[derive(Debug, Error)]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}{}", .path.display(), remedy(.source))]
    Io {
        /// A verb phrase: `open`, `read`, `create`, ...
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A file of a store is damaged, truncated, foreign or too new.
    #[error("{}: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with its bytes.
        source: FormatError,
    },
    /// A user's input file holds something it must not.
    #[error("{}{position}: {what}", .path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Where in it.
        position: Position,
        /// What is wrong and what would be right.
        what: String,
    },
    /// A long run failed for a reason that can be mended, and kept what it had finished.
    #[error("{source}; what is finished is kept in {}: mend the cause and go on with --resume", .partial.display())]
    Interrupted {
        /// The folder of the unfinished store.
        partial: PathBuf,
        /// Why it failed. Its message is part of this one's.
        #[source]
        source: Box<Error>,
    },
    /// A piece of a file could not be read.
    #[error("cannot read {} at offset {offset}: {source}{}", .path.display(), remedy(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Where the piece starts, in bytes.
        offset: u64,
        /// What the operating system said, or that the file ends before.
        source: io::Error,
    },
    /// A file is no longer what it was when it was opened.
    #[error(
        "{}: {what} since it was opened; files of a store must not change while they are read: restore it and run again",
        .path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// What is different: `its length changed from 10 to 9 bytes`.
        what: String,
    },
    /// The kernel gives no memory.
    #[error(
        "cannot get {bytes} bytes of memory for {what}: {source}; give a smaller --memory, or raise the limit (`ulimit \
         -v`, the container's)"
    )]
    Memory {
        /// How much was asked for.
        bytes: u64,
        /// What it is for: a noun phrase.
        what: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// The system starts no more threads.
    #[error("cannot start a thread: {source}; give fewer --threads, or raise the limit (`ulimit -u`, `ulimit -v`)")]
    Thread {
        /// What the operating system said.
        source: io::Error,
    },
    /// A memory budget is too small.
    #[error(
        "{} of memory are too little for {what}: at least {} is needed; {remedy}",
        ByteSize(*.given),
        ByteSize(*.least).rounded_up()
    )]
    Budget {
        /// What it is too small for.
        what: String,
        /// The budget, in bytes.
        given: u64,
        /// A budget that would do, in bytes.
        least: u64,
        /// What else would help.
        remedy: &'static str,
    },
    /// The caller asked the operation to stop ([`Progress::is_stopped`](crate::progress::Progress::is_stopped)).
    #[error("stopped")]
    Stopped,
    /// A value is outside the range that the operation accepts.
    #[error("{what}: expected {expected}, found {found}")]
    OutOfRange {
        /// The option or quantity, as its user names it.
        what: String,
        /// The accepted values.
        expected: String,
        /// The value that was given.
        found: String,
    },
    /// A name stands for nothing that the program has.
    #[error("no {kind} is named {name:?}; there are {known}")]
    UnknownName {
        /// The kind of thing that is named.
        kind: &'static str,
        /// The unknown name.
        name: String,
        /// The known names.
        known: &'static str,
    },
    /// Two requests contradict each other, or one contradicts the input or an earlier run.
    #[error("{what}; {remedy}")]
    Conflict {
        /// Both sides of the contradiction.
        what: String,
        /// What to change.
        remedy: String,
    },
    /// A request exceeds a limit of the file formats or of the program.
    #[error("{what}, but the limit is {limit}; {remedy}")]
    Limit {
        /// The request with its size: a clause.
        what: String,
        /// The largest size that is possible.
        limit: String,
        /// What to change.
        remedy: String,
    },
    /// A store lacks data that the operation needs.
    #[error("{} has no {what}; {remedy}", .place.display())]
    Missing {
        /// The missing data: a noun phrase.
        what: String,
        /// The store.
        place: PathBuf,
        /// How to add the data, or do without.
        remedy: String,
    },
    /// The kernel or the container refuses a capability that was asked for by name.
    #[error("{what} is refused: {cause}; {remedy}")]
    Unsupported {
        /// The capability.
        what: &'static str,
        /// Why it is refused.
        cause: String,
        /// What to use instead.
        remedy: &'static str,
    },
    /// The recipe of a generated graph cannot be used.
    #[error("the recipe of the generated graph {what}; {remedy}")]
    Recipe {
        /// What is wrong with it: a verb phrase.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// The name of an output is taken.
    #[error("{} exists; remove it or choose another name", .path.display())]
    Exists {
        /// The existing file.
        path: PathBuf,
    },
    /// The disk has no room for the result of an operation, whose unfinished files were removed.
    #[error("{source}; {remedy}")]
    DiskFull {
        /// The write that failed. Its message is part of this one's.
        #[source]
        source: Box<Error>,
        /// How much room is needed, or what needs less.
        remedy: String,
    },
}

/// What helps against an error of the operating system, where that is not plain from what it says.
fn remedy(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => {
            "; the process has as many files open as it may: raise the limit (`ulimit -n`), or use fewer files: stores of \
             fewer --chunks, input in fewer parts"
        }
        Some(Errno::NFILE) => {
            "; the system has as many files open as it may: close other programs, or raise the limit (`sysctl fs.file-max`)"
        }
        Some(Errno::NOMEM) => {
            "; the process has as much memory, or as many mappings, as it may: raise the limit (`ulimit -v`, `sysctl \
             vm.max_map_count`), or use stores of fewer --chunks"
        }
        _ => "",
    }
}

/// Where in an input file something is wrong. Displays as what follows the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// The file as a whole.
    Whole,
    /// A line, counted from 1.
    Line(u64),
    /// A byte offset.
    Offset(u64),
    /// A row of an array or table, counted from 0.
    Row(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Line(line) => write!(f, ":{line}"),
            Self::Offset(offset) => write!(f, " at offset {offset}"),
            Self::Row(row) => write!(f, " at row {row}"),
        }
    }
}

impl Error {
    /// For `map_err`: an I/O error met while doing `action` to `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// Whether the disk is full, or the user may not write more to it, or not so much to one file.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            _ => false,
        }
    }

    /// Whether a file that was read is damaged, changed meanwhile, or lies on a disk that cannot read it.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Format { .. } | Self::Read { .. } | Self::Changed { .. } => true,
            Self::Interrupted { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    /// For `map_err`: a format error in `path`.
    pub fn format(path: impl AsRef<Path>) -> impl FnOnce(FormatError) -> Self {
        move |source| Self::Format {
            path: path.as_ref().to_owned(),
            source,
        }
    }

    /// A value is outside the range that the operation accepts.
    pub fn out_of_range(what: impl Into<String>, expected: impl Into<String>, found: impl fmt::Display) -> Self {
        Self::OutOfRange {
            what: what.into(),
            expected: expected.into(),
            found: found.to_string(),
        }
    }

    /// Two requests contradict each other, or one contradicts the input or an earlier run.
    pub fn conflict(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Conflict {
            what: what.into(),
            remedy: remedy.into(),
        }
    }

    /// A request exceeds a limit of the file formats or of the program.
    pub fn limit(what: impl Into<String>, limit: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Self::Limit {
            what: what.into(),
            limit: limit.to_string(),
            remedy: remedy.into(),
        }
    }

    /// A store lacks data that the operation needs.
    pub fn missing(what: impl Into<String>, place: impl AsRef<Path>, remedy: impl Into<String>) -> Self {
        Self::Missing {
            what: what.into(),
            place: place.as_ref().to_owned(),
            remedy: remedy.into(),
        }
    }

    /// A user's input file is wrong at `position`.
    pub fn input(path: impl AsRef<Path>, position: Position, what: impl Into<String>) -> Self {
        Self::Input {
            path: path.as_ref().to_owned(),
            position,
            what: what.into(),
        }
    }
}
