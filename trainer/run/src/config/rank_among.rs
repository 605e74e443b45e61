//! The candidates of ranks.

use std::{fmt, num::NonZeroU32, path::PathBuf, str::FromStr};

use crate::{Error, Result};

/// The nodes that the destination of an edge is ranked among.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RankAmong {
    /// 100 drawn nodes for edges, all entities for triples.
    #[default]
    Auto,
    /// This many nodes, drawn for each edge.
    Drawn(NonZeroU32),
    /// All nodes.
    All,
    /// The destinations that a file lists for the source.
    Listed(PathBuf),
}

impl RankAmong {
    /// Candidates of an edge with `auto`.
    pub const DRAWN: NonZeroU32 = NonZeroU32::new(100).expect("it is not 0");
}

impl FromStr for RankAmong {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::All),
            _ if is_number => match text.parse() {
                Ok(count) => Ok(Self::Drawn(count)),
                Err(_) => Err(Error::Options(format!("`{text}` candidates: give 1 to {}, or all", u32::MAX))),
            },
            "" => Err(Error::Options("give a number of candidates, all, or a file".to_owned())),
            path => Ok(Self::Listed(path.into())),
        }
    }
}

impl fmt::Display for RankAmong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Drawn(count) => count.fmt(f),
            Self::All => f.write_str("all"),
            Self::Listed(path) => path.display().fmt(f),
        }
    }
}
