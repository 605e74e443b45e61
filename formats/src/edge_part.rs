//! Parts of the edges: the graph, and the edges that are held out of it for validation and test.

use std::{fmt, str::FromStr};

/// A part of the edges of a store.
///
/// ```
/// use grappa_formats::EdgePart;
///
/// assert_eq!("val".parse(), Ok(EdgePart::Val));
/// assert_eq!(EdgePart::Val.file("edges"), "val-edges");
/// assert_eq!(EdgePart::Graph.file("edges"), "edges");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgePart {
    /// The edges of the graph: messages use them, and they are the positives of training.
    Graph,
    /// Edges for validation, which are not in the graph.
    Val,
    /// Edges for test, which are not in the graph.
    Test,
}

impl EdgePart {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Graph, Self::Val, Self::Test];
    /// The parts that are not in the graph.
    pub const HELD_OUT: [Self; 2] = [Self::Val, Self::Test];

    /// The name of the part: `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Graph => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }

    /// The file of a chunk that has for this part what the file `name` has for the graph: `edges`, `degrees`, `weights`
    /// or `edge-features`.
    pub fn file(self, name: &str) -> String {
        match self {
            Self::Graph => name.to_owned(),
            Self::Val | Self::Test => format!("{}-{name}", self.name()),
        }
    }
}

impl fmt::Display for EdgePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EdgePart {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let part = Self::ALL.into_iter().find(|part| part.name() == name);
        part.ok_or_else(|| format!("no part of the edges is called {name:?}; give train, val or test"))
    }
}
