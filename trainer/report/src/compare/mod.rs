//! The comparison of several runs: one page with their scores, their curves, and the options in which they differ.

mod checks;
mod comparison;
mod run;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub use self::comparison::Comparison;
pub(crate) use self::run::ComparedRun;
