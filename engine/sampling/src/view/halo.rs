//! What becomes of sources that a view does not own.

use std::{fmt, str::FromStr};

use grappa_io::{Error, Result};

/// What becomes of *halo nodes*: sources of a view's rows that the view does not own, so that it has their features but not
/// their in-edges. In a view of the whole graph there are none, and all modes do the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Halo {
    /// The last hop, furthest from the seeds, draws among all in-neighbours; the hops before it, whose nodes must be
    /// expanded, draw among those that the view owns. Halo nodes lend their features and nothing else.
    Features,
    /// Every hop draws among all in-neighbours. A halo node that is drawn before the last hop is a destination without
    /// edges of the blocks that follow.
    #[default]
    Stop,
    /// Every hop draws among in-neighbours that the view owns, as if the others were not there.
    None,
}

impl Halo {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Features, Self::Stop, Self::None];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Features => "features",
            Self::Stop => "stop",
            Self::None => "none",
        }
    }

    /// Whether hop `hop` of `hops` draws halo nodes, too.
    pub(crate) fn is_drawn(self, hop: usize, hops: usize) -> bool {
        match self {
            Self::Features => hop + 1 == hops,
            Self::Stop => true,
            Self::None => false,
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
            known: "features, stop and none",
        })
    }
}
