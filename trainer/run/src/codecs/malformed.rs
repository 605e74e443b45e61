//! The error of decoding.

use thiserror::Error;

/// A message that is not what the sender of a gradient makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Malformed(pub(crate) &'static str);
