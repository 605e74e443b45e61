//! Where the adjacency lists of a view are.

use super::{files::Mapped, memory::Csr};

/// Where the adjacency lists are.
#[derive(Debug)]
pub(super) enum Storage {
    Memory(Csr),
    Mapped(Mapped),
}
