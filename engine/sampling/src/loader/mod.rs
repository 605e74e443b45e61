//! Minibatches of a store under one memory budget.
//!
//! A [`Loader`] owns the views of the open partitions and the feed that delivers their minibatches. It divides one
//! budget between them:
//!
//! ```text
//! memory = adjacency lists (views) + feature rows, buffers and samplers (feed)
//! ```
//!
//! [`placement`](crate::placement) decides where the adjacency lists are. Lists in memory that leave too little to the
//! feed are mapped.
//!
//! Of several workers that divide the partitions of each step, each has a loader with its
//! [`Share`](crate::partition::Share). It opens the views of the partitions that it serves, and its budget is for these
//! alone. Of the others it knows the number of seeds, which the division into steps depends on. So all workers count
//! the same steps, and the minibatches do not depend on the number of workers.

mod builder;
mod minibatches;
mod numbers;
mod open;
mod options;
mod seed_times;
#[cfg(test)]
mod tests;

pub use self::{
    builder::LoaderBuilder,
    numbers::NumberOptions,
    open::Loader,
    options::{LoaderOptions, ScratchOptions, Seeds},
    seed_times::SeedTimes,
};
