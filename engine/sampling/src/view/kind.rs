//! Where a view has its rows.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// Where a view has its rows. Its samples are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ViewKind {
    /// In memory if the budget allows, else mapped.
    #[default]
    Auto,
    /// In memory, as plain CSR: sampling is fastest. Takes 4 bytes an edge (8 in graphs of more than 2^32 nodes) and 8 to
    /// 16 a node, and the time to decode all rows.
    Memory,
    /// In the store's files, which are mapped: rows are decoded as they are sampled. Takes no memory but that of the page
    /// cache, where files take about half as much as plain CSR would; and no time to open.
    Mapped,
}

impl ViewKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Memory, Self::Mapped];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Memory => "memory",
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
            known: "auto, memory and mapped",
        })
    }
}
