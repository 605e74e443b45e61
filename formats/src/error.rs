//! Errors of decoding and checking the bytes of a store.

use thiserror::Error;

/// The result of decoding or checking bytes.
pub type Result<T> = std::result::Result<T, FormatError>;

/// The reason why bytes were rejected.
///
/// Offsets count from the start of the decoded bytes, which for a container file is the start of the file. The caller,
/// which read the file, adds its name.
///
/// ```
/// use grappa_formats::{FormatError, container::{FileKind, decode_file}};
///
/// let error = decode_file(&[0; 100], FileKind::ROWS).unwrap_err();
/// assert!(matches!(error, FormatError::Magic { .. }));
/// assert_eq!(error.offset(), 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The file does not start with the magic bytes of Grappa.
    #[error("not a Grappa file: expected the magic bytes {expected:02x?} at offset 0, found {found:02x?}")]
    Magic {
        /// The magic bytes of container files.
        expected: [u8; 8],
        /// The first bytes that were found.
        found: [u8; 8],
    },
    /// The file has a format version that this program does not know.
    #[error(
        "format version {found} is newer than the newest this program reads ({supported}); use the Grappa that wrote \
         the store, or a later one"
    )]
    NewerVersion {
        /// The version in the file.
        found: u32,
        /// The newest version this code decodes.
        supported: u32,
    },
    /// The file is a container of another kind than expected.
    #[error("expected a file of kind {expected}, found kind {found}")]
    Kind {
        /// The kind that the reader asked for.
        expected: String,
        /// The kind in the header.
        found: String,
    },
    /// The number of bytes differs from the one that the header states.
    #[error("{part}: expected {expected} bytes, found {found}; the file is truncated or was appended to")]
    Length {
        /// The part with the wrong length.
        part: &'static str,
        /// The stated length in bytes.
        expected: u64,
        /// The actual length in bytes.
        found: u64,
    },
    /// A checksum does not match.
    #[error("{part} at offset {offset}: checksum is {found:016x}, expected {expected:016x}; the bytes are damaged")]
    Checksum {
        /// The part that was checked.
        part: &'static str,
        /// Offset of the checked bytes.
        offset: u64,
        /// The recorded checksum (XXH3-64).
        expected: u64,
        /// The checksum of the bytes that were found.
        found: u64,
    },
    /// The bytes pass their checksum but are not valid.
    #[error("at offset {offset}: {problem}")]
    Invalid {
        /// The problem, and the valid values.
        problem: String,
        /// Offset of the problem, as precisely as it is known.
        offset: u64,
    },
}

/// Returns [`FormatError::invalid`] from the function if the condition holds: condition, offset, message.
macro_rules! invalid_if {
    ($condition:expr, $offset:expr, $($message:tt)+) => {
        if $condition {
            return Err(crate::FormatError::invalid($offset, format!($($message)+)));
        }
    };
}
pub(crate) use invalid_if;

impl FormatError {
    /// An [`FormatError::Invalid`] at `offset`.
    pub fn invalid(offset: u64, problem: impl Into<String>) -> Self {
        Self::Invalid { problem: problem.into(), offset }
    }

    /// Offset of the problem, in bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Magic { .. } => 0,
            Self::Kind { .. } | Self::NewerVersion { .. } => 8,
            Self::Length { expected, found, .. } => *expected.min(found),
            Self::Checksum { offset, .. } | Self::Invalid { offset, .. } => *offset,
        }
    }

    /// An [`FormatError::Invalid`] at `offset` instead of its own offset. Other errors stay.
    pub(crate) fn moved_to(self, offset: u64) -> Self {
        match self {
            Self::Invalid { problem, .. } => Self::Invalid { problem, offset },
            other => other,
        }
    }

    /// Fails if the checksum of `part`, which starts at `offset`, is another one.
    pub(crate) fn expect_checksum(part: &'static str, offset: u64, expected: u64, found: u64) -> Result<()> {
        match found == expected {
            true => Ok(()),
            false => Err(Self::Checksum { part, offset, expected, found }),
        }
    }

    /// Fails if the length of `part` is another one.
    pub(crate) fn expect_length(part: &'static str, expected: u64, found: u64) -> Result<()> {
        match found == expected {
            true => Ok(()),
            false => Err(Self::Length { part, expected, found }),
        }
    }
}
