//! Where a view holds its adjacency lists.

use serde::Serialize;

use crate::names::parse_names;

/// Where a view holds its adjacency lists. Samples do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewKind {
    /// In memory if the budget allows, otherwise in memory in turn, otherwise mapped.
    #[default]
    Auto,
    /// In memory, as plain CSR. This is the fastest kind. It takes 4 bytes per edge (8 in graphs of more than 2^32
    /// nodes), 8 to 16 bytes per node, and the time to decode all lists.
    Memory,
    /// In memory, for the partitions of the current steps and of the next ones only. If fewer partitions than all take
    /// part in a step, the lists of the graph are so read from front to back in every epoch.
    InTurn,
    /// Mapped from the store's files and decoded when sampled. It opens at once and takes only memory of the page
    /// cache, where the files are about half as large as plain CSR.
    Mapped,
    /// Mapped, for minibatches of the whole graph that are sampled many at once, by passes over the lists from front to back. They wait in
    /// scratch files until they are used.
    Sweep,
}

impl ViewKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Auto, Self::Memory, Self::InTurn, Self::Mapped, Self::Sweep];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::InTurn => "in-turn",
            Self::Mapped => "mapped",
            Self::Sweep => "sweep",
        }
    }
}

parse_names!(ViewKind, "kind of view", "auto, memory, in-turn, mapped and sweep");
