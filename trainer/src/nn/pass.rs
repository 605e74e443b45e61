//! The mode of one pass through a model, and what its rows belong to.

use std::sync::Arc;

use grappa_sampling::sample::Minibatch;

use super::{aggregate_kind::Scaling, linear::RowNames};

/// The mode of one pass through a model.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pass {
    /// In training, the seed of dropout for this pass. None: no dropout.
    pub training: Option<u64>,
    /// On a processor, dropout of a node depends on its name; without names, on its place.
    pub names: Option<Names>,
    /// The scaling of sampled sums.
    pub scaling: Scaling,
}

/// The names of the nodes of a minibatch.
#[derive(Debug, Clone, PartialEq)]
pub struct Names {
    /// Of [`Minibatch::nodes`].
    pub(super) inputs: RowNames,
    /// Of destinations.
    pub(super) destinations: RowNames,
}

impl Names {
    /// Names that are functions of the nodes, so a node has the same name in all minibatches.
    pub fn from_minibatch(minibatch: &Minibatch) -> Self {
        let inputs: RowNames = minibatch.nodes.iter().map(|node| node.0).collect();
        let own = minibatch.blocks.last().map_or(&[][..], |last| &last.own);
        let destinations = match own {
            // They are the first nodes.
            [] => Arc::clone(&inputs),
            own => own.iter().map(|&place| inputs[place as usize]).collect(),
        };
        Self { inputs, destinations }
    }

    /// Names of rows that are inputs and destinations alike, and of inputs that follow them.
    pub fn of_rows(rows: Vec<u64>, others: impl Iterator<Item = u64>) -> Self {
        Self { inputs: rows.iter().copied().chain(others).collect(), destinations: rows.into() }
    }
}

/// Which nodes rows belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsOf {
    /// To the nodes of the minibatch, each once.
    Inputs,
    /// To destinations.
    Destinations,
}
