//! Errors about payloads.

use grappa_formats::FormatError;
use grappa_io::{Error, container::ContainerFile};

/// The error about a payload, with the offset in the file.
pub(super) fn in_payload(file: &ContainerFile, error: &FormatError) -> Error {
    let problem = match error {
        FormatError::Invalid { problem, .. } => problem.clone(),
        other => other.to_string(),
    };
    let offset = file.header().payload_offset + error.offset();
    Error::format(file.path())(FormatError::invalid(offset, problem))
}
