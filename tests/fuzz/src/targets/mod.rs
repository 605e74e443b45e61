//! Every parser and decoder that does not need libtorch.

mod edges;
mod nodes;
mod rows;
mod state;
mod store;

use crate::Target;

/// All targets, in the order in which they are run.
pub fn all() -> Vec<Target> {
    [
        store::targets(),
        rows::targets(),
        edges::targets(),
        nodes::targets(),
        state::targets(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What came of a result: the error, or what `accepted` says.
fn outcome<T, E: std::fmt::Display>(result: Result<T, E>, accepted: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => accepted(value),
        Err(error) => format!("error: {error}"),
    }
}
