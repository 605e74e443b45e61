//! The mapped files of adjacency lists, as the store has them.
//!
//! - [`chunks`] has the mappings, and the limit for their pages;
//! - [`disk_reads`] tells when reads should be started for a group of lists before the first is touched;
//! - [`lists`] locates lists, prefetches them and checks their blocks.

mod chunks;
mod disk_reads;
mod lists;

pub(super) use self::{
    chunks::Mapped,
    disk_reads::GroupsSeen,
    lists::{FileHead, FilePlace},
};
pub(crate) use self::{chunks::MappedMemory, lists::MappedFiles};
