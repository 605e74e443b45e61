//! A place in an input, for errors.

use std::path::Path;

use grappa_io::{Error, Position};

/// A place in an input file, which may be a part of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The file.
    pub path: &'a Path,
    /// The line, row or offset in it.
    pub position: Position,
}

impl Place<'_> {
    /// The error about what is there.
    pub fn error(self, what: impl Into<String>) -> Error {
        Error::input(self.path, self.position, what)
    }
}
