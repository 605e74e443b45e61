//! Facts about a run for its readers: the dataset, the machine, the command, and what options that are `auto` became.

use std::collections::BTreeMap;

/// Facts about a run. All of them are text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFacts {
    /// Names and values of the store's properties.
    pub dataset: Vec<Fact>,
    /// Names and values of the properties of the process that wrote them.
    pub process: Vec<Fact>,
    /// The values that options had which are `auto`, by the names of the options.
    pub chosen: BTreeMap<&'static str, String>,
}

/// A name and a value.
pub type Fact = (&'static str, String);
