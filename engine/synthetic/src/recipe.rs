//! Recipes: the model, parameters and seed of a graph.

use grappa_formats::NODES_MAX;
use grappa_io::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::{BlockModel, Rmat, poisson::MEAN_MAX};

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
}

/// A distribution of graphs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Recursive matrix: skewed degrees, communities within communities, no classes.
    Rmat(Rmat),
    /// Erdős–Rényi: all edges are equally likely.
    Er(ErdosRenyi),
    /// Stochastic block model: has classes, and features from which they can be learned.
    Sbm(BlockModel),
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

/// A set of nodes for training, validation or testing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Split {
    /// Three fifths of the nodes.
    Train,
    /// One fifth of the nodes.
    Val,
    /// One fifth of the nodes.
    Test,
}

impl Recipe {
    /// Version of the algorithm that generates graphs from recipes.
    pub const VERSION: u32 = 1;

    /// The recipe of the graph of `model` that `seed` selects.
    pub fn new(model: Model, seed: u64) -> Self {
        Self {
            version: Self::VERSION,
            model,
            seed,
        }
    }

    /// The recipe as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a recipe is plain data, which always serialises")
    }

    /// Reads the JSON of [`Recipe::to_json`]. [`Generator::new`](crate::Generator::new) checks the values.
    pub fn from_json(json: &str) -> Result<Self> {
        serde_json::from_str(json).map_err(|e| Error::Recipe {
            what: format!("cannot be read: {e}, in {json:?}"),
            remedy: "restore the store, or generate it again",
        })
    }
}

impl Model {
    /// Number of nodes.
    pub fn nodes(&self) -> u64 {
        match self {
            // `check` rejects a scale that is too large.
            Self::Rmat(rmat) => 1u64.checked_shl(rmat.scale).unwrap_or(u64::MAX),
            Self::Er(er) => er.nodes,
            Self::Sbm(block) => block.nodes,
        }
    }

    /// Expected number of edges per node.
    pub fn edge_factor(&self) -> f64 {
        match self {
            Self::Rmat(rmat) => rmat.edge_factor,
            Self::Er(er) => er.edge_factor,
            Self::Sbm(block) => block.edge_factor,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let (nodes, edge_factor) = (self.nodes(), self.edge_factor());
        if !(0.0..=MEAN_MAX).contains(&edge_factor) {
            return Err(Error::out_of_range(
                "the edge factor",
                format!("0 to {MEAN_MAX}"),
                edge_factor,
            ));
        }
        if let Self::Rmat(rmat) = self {
            rmat.check()?;
        }
        if nodes == 0 || nodes > NODES_MAX {
            return Err(Error::out_of_range(
                "the graph",
                format!("1 to {NODES_MAX} nodes (2^40)"),
                nodes,
            ));
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
