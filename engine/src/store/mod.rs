//! Stores on disk: writing, opening, verifying, describing and exporting them.

pub mod writer;
