//! Errors of the engine. Each says what went wrong, in which file and where in it, and how to fix it.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use grappa_formats::FormatError;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::size::ByteSize;

/// The result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of the engine failed. Every message names the file and says how to fix the problem.
#[derive(Debug, Error)]
pub enum Error {
    /// A call of the operating system failed.
    #[error("cannot {action} {}: {source}{}", .path.display(), remedy(.source))]
    Io {
        /// A verb phrase: `open`, `read`, `create`, ...
        action: &'static str,
        /// File or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file of a store is damaged, truncated, foreign or too new.
    #[error("{}: {source}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The problem with its bytes.
        source: FormatError,
    },
    /// An input file of the user has invalid content.
    #[error("{}{position}: {problem}", .path.display())]
    Input {
        /// The file.
        path: PathBuf,
        /// Place in the file.
        position: Position,
        /// The problem, and what is expected instead.
        problem: String,
    },
    /// A long run failed, and kept its finished work. It can be resumed after the cause is fixed.
    #[error("{source}; what is finished is kept in {kept}: fix the cause, then rerun with --resume")]
    Interrupted {
        /// The folder of the unfinished store, and its scratch folder if that is elsewhere.
        kept: String,
        /// The cause. Its message is part of this one's.
        #[source]
        source: Box<Error>,
    },
    /// A piece of a file could not be read.
    #[error("cannot read {} at offset {offset}: {source}{}", .path.display(), remedy(.source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Start of the piece, in bytes.
        offset: u64,
        /// The error of the operating system, or that the file ends too early.
        source: io::Error,
    },
    /// A file changed after it was opened.
    #[error(
        "{}: {change} since it was opened; files of a store must not change while they are read: restore it and run again",
        .path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// The change: `its length changed from 10 to 9 bytes`.
        change: String,
    },
    /// The kernel refuses memory.
    #[error(
        "cannot get {bytes} bytes of memory for {purpose}: {source}; give a smaller --memory, or raise the limit (`ulimit \
         -v`, the container's)"
    )]
    Memory {
        /// Requested bytes.
        bytes: u64,
        /// Its purpose: a noun phrase.
        purpose: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The system refuses to start a thread.
    #[error("cannot start a thread: {source}; give fewer --threads, or raise the limit (`ulimit -u`, `ulimit -v`)")]
    Thread {
        /// The error of the operating system.
        source: io::Error,
    },
    /// A memory budget is too small.
    #[error(
        "{} of memory are too little for {operation}: at least {} is needed; {remedy}",
        ByteSize(*.given),
        ByteSize(*.least).rounded_up()
    )]
    Budget {
        /// The operation that needs more.
        operation: String,
        /// The budget, in bytes.
        given: u64,
        /// A sufficient budget, in bytes.
        least: u64,
        /// Other ways to reduce the memory.
        remedy: &'static str,
    },
    /// The caller asked the operation to stop ([`Progress::is_stopped`](crate::progress::Progress::is_stopped)).
    #[error("stopped")]
    Stopped,
    /// A value is outside the range that the operation accepts.
    #[error("{quantity}: expected {expected}, found {found}")]
    OutOfRange {
        /// The option or quantity, as its user names it.
        quantity: String,
        /// The accepted values.
        expected: String,
        /// The value that was given.
        found: String,
    },
    /// A name is unknown.
    #[error("no {kind} is named {name:?}; there are {known}")]
    UnknownName {
        /// The kind of thing that the name should identify.
        kind: &'static str,
        /// The unknown name.
        name: String,
        /// The known names.
        known: &'static str,
    },
    /// Two requests contradict each other, or one contradicts the input or an earlier run.
    #[error("{contradiction}; {remedy}")]
    Conflict {
        /// Both sides of the contradiction.
        contradiction: String,
        /// How to change the request.
        remedy: String,
    },
    /// A request exceeds a limit of the file formats or of the program.
    #[error("{request}, but the limit is {limit}; {remedy}")]
    Limit {
        /// The request with its size: a clause.
        request: String,
        /// The largest size that is possible.
        limit: String,
        /// How to change the request.
        remedy: String,
    },
    /// A store lacks data that the operation needs.
    #[error("{} has no {data}; {remedy}", .place.display())]
    Missing {
        /// The missing data: a noun phrase.
        data: String,
        /// The store.
        place: PathBuf,
        /// How to add the data, or how to work without it.
        remedy: String,
    },
    /// The kernel or the container refuses a capability that was asked for by name.
    #[error("{capability} is refused: {cause}; {remedy}")]
    Unsupported {
        /// The capability.
        capability: &'static str,
        /// Why it is refused.
        cause: String,
        /// The alternative.
        remedy: &'static str,
    },
    /// The type of stored values cannot hold a computed one.
    #[error("value {column} of the computed row of {node} is {value}, which {dtype} cannot hold; {remedy}")]
    Unstorable {
        /// The node, as its user names it.
        node: String,
        /// Index of the value in the row, from 0.
        column: usize,
        /// The value.
        value: f32,
        /// The type.
        dtype: &'static str,
        /// The types that can hold the value.
        remedy: &'static str,
    },
    /// The recipe of a generated graph cannot be used.
    #[error("the recipe of the generated graph {problem}; {remedy}")]
    Recipe {
        /// The problem: a verb phrase.
        problem: String,
        /// How to proceed.
        remedy: &'static str,
    },
    /// A file of an unfinished store is damaged, and what it had cannot be made again from the others.
    #[error("{source}; {remedy}")]
    Unfinished {
        /// The damage. Its message is part of this one's.
        #[source]
        source: Box<Error>,
        /// How to start again.
        remedy: String,
    },
    /// An error about a node type or relation of a graph. Options in its message belong to this member.
    #[error("{source}")]
    Member {
        /// The name of the type, or `source:name:destination`.
        member: String,
        /// The error. Its message is this one's.
        source: Box<Error>,
    },
    /// A folder was removed or replaced while this process worked in it.
    #[error(
        "{}: this folder was removed or replaced while this process worked in it, so the process stopped; start again, and \
         remove the folder only when its process has ended",
        .path.display()
    )]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// The name of an output is taken.
    #[error("{} exists; replace it with --force, or choose another name", .path.display())]
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
        /// The room that is needed, or how to need less.
        remedy: String,
    },
}

/// Advice for an error of the operating system whose message does not say how to fix it. Empty for other errors.
fn remedy(source: &io::Error) -> &'static str {
    match Errno::from_io_error(source) {
        Some(Errno::MFILE) => {
            "; the process has reached its limit of open files: raise the limit (`ulimit -n`), or use fewer files: stores \
             with fewer --chunks, input in fewer parts"
        }
        Some(Errno::NFILE) => {
            "; the system has reached its limit of open files: close other programs, or raise the limit (`sysctl \
             fs.file-max`)"
        }
        Some(Errno::NOMEM) => {
            "; the process has reached its limit of memory or of mappings: raise the limit (`ulimit -v`, `sysctl \
             vm.max_map_count`), or use stores with fewer --chunks"
        }
        Some(Errno::FBIG) => {
            "; the process has reached its limit of the length of a file, or the file system's limit: raise the limit (`ulimit -f`)"
        }
        _ => "",
    }
}

/// The parts of an error's message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ErrorFields {
    /// Name of the option, without hyphens before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// The values that are possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The value that is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// How to change the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Place of a problem in an input file. Displays as a suffix of the file's name.
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
    /// The parts of the message that are fields.
    pub fn fields(&self) -> ErrorFields {
        let remedy = |remedy: &str| Some(remedy.to_owned());
        match self {
            Self::OutOfRange { quantity, expected, found } => ErrorFields {
                option: quantity.strip_prefix("--").map(str::to_owned),
                expected: Some(expected.clone()),
                found: Some(found.clone()),
                remedy: None,
            },
            Self::UnknownName { name, known, .. } => {
                ErrorFields { expected: Some((*known).to_owned()), found: Some(name.clone()), ..ErrorFields::default() }
            }
            Self::Budget { given, least, remedy: other, .. } => ErrorFields {
                option: Some("memory".to_owned()),
                expected: Some(least.to_string()),
                found: Some(given.to_string()),
                remedy: remedy(other),
            },
            Self::Limit { limit, remedy: other, .. } => {
                ErrorFields { expected: Some(limit.clone()), remedy: remedy(other), ..ErrorFields::default() }
            }
            Self::Conflict { remedy: other, .. } | Self::Missing { remedy: other, .. } => {
                ErrorFields { remedy: remedy(other), ..ErrorFields::default() }
            }
            Self::Unsupported { remedy: other, .. } => ErrorFields { remedy: remedy(other), ..ErrorFields::default() },
            Self::Member { source, .. } => source.fields(),
            _ => ErrorFields::default(),
        }
    }

    /// For `map_err`: an I/O error of doing `action` to `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.as_ref().to_owned(), source }
    }

    /// Whether the disk is full, or a quota or the limit of a file's length is reached.
    pub fn is_disk_full(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            Self::DiskFull { .. } => true,
            _ => false,
        }
    }

    /// Whether a file is damaged, changed while it was read, or cannot be read from its disk.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Format { .. } | Self::Read { .. } | Self::Changed { .. } => true,
            Self::Interrupted { source, .. } | Self::Unfinished { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    /// For `map_err`, where an operation gets a part of a budget of `given` bytes: an error about the part becomes one about the whole
    /// budget. `whole` gives the budget that leaves a part of a size.
    pub fn in_budget(given: u64, whole: impl FnOnce(u64) -> u64) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Budget { operation, least, remedy, .. } => {
                Self::Budget { operation, given, least: whole(least), remedy }
            }
            error => error,
        }
    }

    /// For `map_err`: an error about input or options becomes one about a node type or relation.
    pub fn of_member(member: impl Into<String>) -> impl FnOnce(Self) -> Self {
        move |error| match error {
            Self::Input { .. }
            | Self::Conflict { .. }
            | Self::Limit { .. }
            | Self::Missing { .. }
            | Self::OutOfRange { .. } => Self::Member { member: member.into(), source: Box::new(error) },
            error => error,
        }
    }

    /// For `map_err`: a format error in `path`.
    pub fn format(path: impl AsRef<Path>) -> impl FnOnce(FormatError) -> Self {
        move |source| Self::Format { path: path.as_ref().to_owned(), source }
    }

    /// A value is outside the range that the operation accepts.
    pub fn out_of_range(quantity: impl Into<String>, expected: impl Into<String>, found: impl fmt::Display) -> Self {
        Self::OutOfRange { quantity: quantity.into(), expected: expected.into(), found: found.to_string() }
    }

    /// Two requests contradict each other, or one contradicts the input or an earlier run.
    pub fn conflict(contradiction: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Conflict { contradiction: contradiction.into(), remedy: remedy.into() }
    }

    /// A request exceeds a limit of the file formats or of the program.
    pub fn limit(request: impl Into<String>, limit: impl fmt::Display, remedy: impl Into<String>) -> Self {
        Self::Limit { request: request.into(), limit: limit.to_string(), remedy: remedy.into() }
    }

    /// A store lacks data that the operation needs.
    pub fn missing(data: impl Into<String>, place: impl AsRef<Path>, remedy: impl Into<String>) -> Self {
        Self::Missing { data: data.into(), place: place.as_ref().to_owned(), remedy: remedy.into() }
    }

    /// A user's input file is wrong at `position`.
    pub fn input(path: impl AsRef<Path>, position: Position, problem: impl Into<String>) -> Self {
        Self::Input { path: path.as_ref().to_owned(), position, problem: problem.into() }
    }
}
