//! A run: epochs with evaluations, records, reports and checkpoints, from its first epoch or its last checkpoint to its summary.
//!
//! The checkpoint of a run has the rows of relations, and names the generations of the rows of entities, which are files of their own
//! (see [`Generations`](crate::rows::Generations)).

mod facts;
mod files;
mod memory;
mod run;
mod start;

pub(crate) use self::files::relations_of;
pub use self::start::train;
