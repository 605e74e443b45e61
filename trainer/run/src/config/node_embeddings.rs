//! The node types whose nodes have learnable embeddings among their inputs.

use std::{fmt, num::NonZeroUsize, str::FromStr};

use crate::{Error, Result};

const NONE: &str = "none";

/// Node types, and the number of values of the embeddings that their nodes have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeEmbeddings(Vec<(String, NonZeroUsize)>);

impl NodeEmbeddings {
    /// The types and the numbers of values, in the order of the option.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(node_type, values)| (node_type.as_str(), values.get()))
    }

    /// The number of values for a type. 0 if its nodes have no embeddings.
    pub fn values(&self, node_type: &str) -> usize {
        self.iter().find(|(name, _)| *name == node_type).map_or(0, |(_, values)| values)
    }

    /// Whether no type has embeddings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for NodeEmbeddings {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == NONE {
            return Ok(Self::default());
        }
        let mut found: Vec<(String, NonZeroUsize)> = Vec::new();
        for part in text.split(',') {
            let parsed = part.trim().rsplit_once('=').and_then(|(name, values)| Some((name, values.parse().ok()?)));
            let Some((name, values)) = parsed.filter(|(name, _)| !name.is_empty()) else {
                return Err(Error::Options(format!(
                    "`{part}`: give a node type and a number of values, at least 1, such as user=64,item=64, or none"
                )));
            };
            if found.iter().any(|(other, _)| other == name) {
                return Err(Error::Options(format!("the node type {name} is there twice: give it once")));
            }
            found.push((name.to_owned(), values));
        }
        Ok(Self(found))
    }
}

impl fmt::Display for NodeEmbeddings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str(NONE);
        }
        let parts: Vec<String> = self.iter().map(|(name, values)| format!("{name}={values}")).collect();
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_as_they_are_written() {
        let embeddings: NodeEmbeddings = "user=64, item=8".parse().unwrap();
        assert_eq!(embeddings.to_string(), "user=64,item=8");
        assert_eq!([embeddings.values("item"), embeddings.values("seller")], [8, 0]);
        assert_eq!("none".parse::<NodeEmbeddings>().unwrap(), NodeEmbeddings::default());
        for wrong in ["user", "user=0", "=4", "user=4,user=5", "user=4,", ""] {
            assert!(wrong.parse::<NodeEmbeddings>().is_err(), "{wrong}");
        }
    }
}
