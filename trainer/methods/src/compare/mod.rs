//! Comparisons of methods: a run for each method, number of partitions and seed, all on one page.

mod planned;
mod spec;

pub use self::{
    planned::{Comparison, PlannedRun},
    spec::{MethodSpec, NOT_SHARED},
};
