//! Recipes: the model, parameters and seed of a graph.

use grappa_formats::NODES_MAX;
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::{BlockModel, RelationModel, Rmat, poisson::MEAN_MAX};

/// Everything that determines a graph. Manifests record it as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// [`Recipe::VERSION`] of the program that made the graph.
    pub version: u32,
    /// The distribution of graphs.
    pub model: Model,
    /// Selects a graph of the distribution.
    pub seed: u64,
    /// The shares of the splits, unless they are [`SplitShares::default`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<SplitShares>,
}

/// A distribution of graphs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Recursive matrix: skewed degrees, communities within communities, with or without classes.
    Rmat(Rmat),
    /// Erdős–Rényi: all edges are equally likely.
    Er(ErdosRenyi),
    /// Stochastic block model: has classes, and features from which they can be learned.
    Sbm(BlockModel),
    /// A relation of a graph with types: edges from the nodes of one type to those of another.
    Relation(RelationModel),
}

/// The Erdős–Rényi model: in-degrees are Poisson-distributed with mean `edge_factor`, and all sources are equally likely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErdosRenyi {
    /// Number of nodes.
    pub nodes: u64,
    /// Expected number of edges per node.
    pub edge_factor: f64,
}

impl ErdosRenyi {
    /// A graph of `nodes` nodes with `edge_factor` edges per node.
    pub const fn new(nodes: u64, edge_factor: f64) -> Self {
        Self { nodes, edge_factor }
    }
}

/// A set of nodes for training, validation or testing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Nodes to train on.
    Train,
    /// Nodes to compare models by.
    Val,
    /// Nodes to test the best model on.
    Test,
}

/// Probabilities that a node is in each split. It is in one split or in none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitShares {
    /// That it is in [`Split::Train`].
    pub train: f64,
    /// That it is in [`Split::Val`].
    pub val: f64,
    /// That it is in [`Split::Test`].
    pub test: f64,
}

impl Default for SplitShares {
    fn default() -> Self {
        Self { train: 0.6, val: 0.2, test: 0.2 }
    }
}

impl SplitShares {
    /// A hash of 53 bits is below this with the probability that a node is in a split.
    const UNIT: f64 = (1u64 << Self::HASH_BITS) as f64;
    const HASH_BITS: u32 = 53;

    fn check(self) -> Result<()> {
        let Self { train, val, test } = self;
        // Shares such as 0.7, 0.2 and 0.1 may add up to a little more than 1.
        let sum = train + val + test;
        if [train, val, test].iter().all(|share| (0.0..=1.0).contains(share)) && sum <= 1.0 + 1e-9 {
            return Ok(());
        }
        Err(Error::out_of_range(
            "the shares of the splits",
            "numbers from 0 to 1 that add up to at most 1",
            format!("train {train}, val {val} and test {test}, which add up to {sum}"),
        ))
    }

    pub(crate) fn split(self, hash: u64) -> Option<Split> {
        let at = hash >> (u64::BITS - Self::HASH_BITS);
        let ends = [
            (Split::Train, self.train),
            (Split::Val, self.train + self.val),
            (Split::Test, self.train + self.val + self.test),
        ];
        let mut ends = ends.into_iter();
        ends.find_map(|(split, end)| (at < (end * Self::UNIT).round() as u64).then_some(split))
    }
}

impl Recipe {
    /// Version of the algorithm that generates graphs from recipes.
    pub const VERSION: u32 = 1;

    /// The recipe of the graph of `model` that `seed` selects.
    pub fn new(model: Model, seed: u64) -> Self {
        Self { version: Self::VERSION, model, seed, splits: None }
    }

    /// The same recipe with other splits.
    #[must_use]
    pub fn with_splits(self, shares: SplitShares) -> Self {
        Self { splits: Self::splits_of(shares), ..self }
    }

    /// The splits of a recipe with these shares. Recipes of equal graphs are equal.
    pub fn splits_of(shares: SplitShares) -> Option<SplitShares> {
        (shares != SplitShares::default()).then_some(shares)
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.model.check()?;
        self.splits.map_or(Ok(()), SplitShares::check)
    }

    /// The recipe as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a recipe is plain data, which always serializes")
    }

    /// Reads the JSON of [`Recipe::to_json`]. [`Generator::new`](crate::Generator::new) checks the values.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| Error::Recipe {
            problem: format!("cannot be read: {e}, in {json:?}"),
            remedy: "restore the store, or generate it again",
        })
    }
}

impl Model {
    /// Number of nodes. Of a relation, those of its destinations.
    pub fn nodes(&self) -> u64 {
        match self {
            // `check` rejects a scale that is too large.
            Self::Rmat(rmat) => 1u64.checked_shl(rmat.scale).unwrap_or(u64::MAX),
            Self::Er(er) => er.nodes,
            Self::Sbm(block) => block.nodes,
            Self::Relation(relation) => relation.nodes,
        }
    }

    /// Expected number of edges per node.
    pub fn edge_factor(&self) -> f64 {
        match self {
            Self::Rmat(rmat) => rmat.edge_factor,
            Self::Er(er) => er.edge_factor,
            Self::Sbm(block) => block.edge_factor,
            Self::Relation(relation) => relation.edges as f64 / relation.nodes as f64,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        if let Self::Relation(relation) = self {
            return relation.check();
        }
        let (nodes, edge_factor) = (self.nodes(), self.edge_factor());
        if !(0.0..=MEAN_MAX).contains(&edge_factor) {
            return Err(Error::out_of_range("the edge factor", format!("0 to {MEAN_MAX}"), edge_factor));
        }
        if let Self::Rmat(rmat) = self {
            rmat.check()?;
        }
        if nodes == 0 || nodes > NODES_MAX {
            return Err(Error::out_of_range("the graph", format!("1 to {NODES_MAX} nodes (2^40)"), nodes));
        }
        if let Self::Sbm(block) = self {
            block.check()?;
        }
        Ok(())
    }
}

impl Split {
    /// `train`, `val` or `test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
            Self::Test => "test",
        }
    }
}
