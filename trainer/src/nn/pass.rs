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

/// The names of the nodes of a minibatch, for each node type.
#[derive(Debug, Clone, PartialEq)]
pub struct Names(Vec<TypeNames>);

/// The names of the nodes of a type.
#[derive(Debug, Clone, PartialEq)]
struct TypeNames {
    /// Of [`Minibatch::nodes`].
    inputs: RowNames,
    destinations: RowNames,
}

impl Names {
    /// Names that are functions of the nodes, so a node has the same name in all minibatches. `first` is the name of the first node of a type.
    pub fn from_minibatches(minibatches: &[Minibatch], first: impl Fn(usize) -> u64) -> Self {
        let of_type = |(node_type, minibatch): (usize, &Minibatch)| {
            let first = first(node_type);
            let inputs: RowNames = minibatch.nodes.iter().map(|node| first + node.0).collect();
            let own = minibatch.blocks.last().map_or(&[][..], |last| &last.own);
            let destinations = match own {
                // They are the first nodes.
                [] => Arc::clone(&inputs),
                own => own.iter().map(|&place| inputs[place as usize]).collect(),
            };
            TypeNames { inputs, destinations }
        };
        Self(minibatches.iter().enumerate().map(of_type).collect())
    }

    /// Names of rows of one type that are inputs and destinations alike, and of inputs that follow them.
    pub fn of_rows(rows: Vec<u64>, others: impl Iterator<Item = u64>) -> Self {
        Self(vec![TypeNames { inputs: rows.iter().copied().chain(others).collect(), destinations: rows.into() }])
    }

    /// The names of rows of a type.
    pub(super) fn of(&self, node_type: usize, rows_of: RowsOf) -> RowNames {
        let TypeNames { inputs, destinations } = &self.0[node_type];
        Arc::clone(match rows_of {
            RowsOf::Inputs => inputs,
            RowsOf::Destinations => destinations,
        })
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
