//! What can be wrong with bytes that claim to be part of a store.

use thiserror::Error;

/// The result of decoding or checking bytes.
pub type Result<T> = std::result::Result<T, FormatError>;

/// Why bytes are not what they should be.
///
/// Offsets count from the start of the bytes that were given, which for a container file is the start of the file. The
/// name of the file is added by whoever read it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormatError {
    /// The first bytes are not those of a Grappa file.
    #[error("not a Grappa file: expected the magic bytes {expected:02x?} at offset 0, found {found:02x?}")]
    Magic {
        /// What every container file starts with.
        expected: [u8; 8],
        /// What these bytes start with.
        found: [u8; 8],
    },
    /// Written by a later program in a format this one does not know.
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
    /// A container file of another kind than the place it stands in calls for.
    #[error("expected a file of kind {expected}, found kind {found}")]
    Kind {
        /// The kind the reader asked for.
        expected: String,
        /// The kind the header names.
        found: String,
    },
    /// Fewer or more bytes than the header announces.
    #[error("{what}: expected {expected} bytes, found {found}; the file is truncated or was appended to")]
    Length {
        /// What has the wrong length.
        what: &'static str,
        /// The announced length in bytes.
        expected: u64,
        /// The actual length in bytes.
        found: u64,
    },
    /// Bytes whose checksum does not match.
    #[error("{what} at offset {offset}: checksum is {found:016x}, expected {expected:016x}; the bytes are damaged")]
    Checksum {
        /// What was checked.
        what: &'static str,
        /// Where the checked bytes start.
        offset: u64,
        /// The recorded checksum (XXH3-64).
        expected: u64,
        /// The checksum of the bytes as they are.
        found: u64,
    },
    /// Bytes that pass their checksum and still make no sense.
    #[error("at offset {offset}: {what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
        /// Where, as near as is known.
        offset: u64,
    },
}

impl FormatError {
    /// An [`FormatError::Invalid`] at `offset`.
    pub fn invalid(offset: u64, what: impl Into<String>) -> Self {
        Self::Invalid {
            what: what.into(),
            offset,
        }
    }

    /// The offset of what is wrong, in bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        match self {
            Self::Magic { .. } => 0,
            Self::Kind { .. } | Self::NewerVersion { .. } => 8,
            Self::Length { expected, found, .. } => *expected.min(found),
            Self::Checksum { offset, .. } | Self::Invalid { offset, .. } => *offset,
        }
    }
}
