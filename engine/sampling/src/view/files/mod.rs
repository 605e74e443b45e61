//! The mapped files of adjacency lists, as the store has them.
//!
//! - [`chunks`] has the mappings, and the limit for their pages;
//! - [`disk_reads`] tells when reads should be started for a group of lists before the first is touched;
//! - [`lists`] locates lists, prefetches them and checks their blocks.

mod chunks;
mod disk_reads;
mod lists;

pub(crate) use self::lists::MappedFiles;
pub(super) use self::{
    chunks::{Mapped, MappedMemory},
    lists::{FileHead, FilePlace},
};
