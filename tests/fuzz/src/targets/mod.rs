//! All targets: every parser and decoder.

mod edges;
mod nodes;
mod rows;
mod run;
mod shared;
mod state;
mod store;

use crate::Target;

/// All targets, in the order in which they are run.
pub fn all() -> Vec<Target> {
    [store::targets(), rows::targets(), edges::targets(), nodes::targets(), state::targets(), run::targets()]
        .into_iter()
        .flatten()
        .collect()
}
