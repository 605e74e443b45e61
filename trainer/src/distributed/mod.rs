//! Several processes that train one model.
//!
//! A launcher starts W processes, the *ranks* 0 to W-1, and tells each its place by environment variables ([`Place`]). They meet in a
//! key-value store, which rank 0 or the launcher serves (`store`), and form a [`ProcessGroup`] on Gloo, of PyTorch's distributed engine.
//!
//! ```text
//! each step            parts of the gradient, and their sums (`sum`)                      Gloo
//! each evaluation      counts of right and wrong predictions to rank 0 (`collect`)         Gloo
//! each repartition     which halo nodes are in reach, and the work that depends on them    Gloo
//! the first epoch      where ranks of one machine find the feature rows that they share     store
//! each epoch           metrics to rank 0, the score of the evaluation from it             store
//! twice a second       a sign of life, and a look at the others' signs                    store
//! ```
//!
//! A rank may take its time: while it shows signs of life, the others wait. A rank that ends, or shows no sign of life for the
//! timeout, ends the job: every other rank returns an error that names it.
//!
//! No call blocks the trainer for ever, because a peer that is stopped would block it. Requests to the store have a timeout, and an
//! operation of Gloo is awaited in slices.

mod attempts;
mod collect;
mod group;
mod join;
mod join_error;
mod keys;
mod local;
mod place;
mod secret;
mod store;
mod sum;
mod watch;

pub(crate) use self::sum::slices;
pub use self::{
    group::{LENGTH_BYTES, ProcessGroup},
    join::{Waits, join},
    join_error::Hello,
    local::LocalRanks,
    place::{LAUNCHER, Place, StoreOf},
    secret::Secret,
    store::StoreServer,
};
