//! Placeholder.

pub mod source;
