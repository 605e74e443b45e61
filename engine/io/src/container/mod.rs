//! Container files on disk: streaming writer, cheap open, and reads that verify checksums.
//!
//! Every byte of a payload is verified once, before its first use. [`ContainerFile::read_at`] does it for reads,
//! [`MappedPayload`] for mappings, and [`Checksums`] for other ways to read.

mod checksums;
mod file;
mod mapped;
#[cfg(test)]
mod tests;
mod writer;

pub use self::{
    checksums::Checksums,
    file::{ClosedFile, ContainerFile},
    mapped::MappedPayload,
    writer::{ContainerWriter, WrittenFile},
};
