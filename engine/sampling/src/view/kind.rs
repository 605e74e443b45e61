//! Where a view holds its adjacency lists.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};
use serde::Serialize;

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
}

impl ViewKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Memory, Self::InTurn, Self::Mapped];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
            Self::InTurn => "in-turn",
            Self::Mapped => "mapped",
        }
    }
}

impl fmt::Display for ViewKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ViewKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| Error::UnknownName {
            kind: "kind of view",
            name: name.to_owned(),
            known: "auto, memory, in-turn and mapped",
        })
    }
}
