//! How a view treats sources that it does not own.

use crate::names::parse_names;

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

parse_names!(Halo, "halo mode", "stop, neighbors and none");
