//! How a view treats sources that it does not own.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// How sampling treats *halo nodes*: sources in a view's adjacency lists that the view does not own. The view has their
/// features but not their in-edges. A view of the whole graph has no halo nodes, so all modes are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Halo {
    /// Every hop draws from all in-neighbors. A halo node that is drawn before the last hop is a destination without
    /// edges in the blocks that follow. So halo nodes contribute their features and nothing else.
    #[default]
    Stop,
    /// Every hop draws from all in-neighbors, and halo nodes have sampled in-neighbors of their own, drawn again at
    /// each repartition.
    Neighbors,
    /// Every hop draws from owned in-neighbors only.
    None,
}

impl Halo {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Stop, Self::Neighbors, Self::None];

    /// The name in options and output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Neighbors => "neighbors",
            Self::None => "none",
        }
    }
}

impl fmt::Display for Halo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Halo {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|halo| halo.name() == name);
        found.ok_or_else(|| Error::UnknownName {
            kind: "halo mode",
            name: name.to_owned(),
            known: "stop, neighbors and none",
        })
    }
}
