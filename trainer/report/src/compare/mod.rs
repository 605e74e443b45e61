//! The comparison of several runs: one page with their scores, their curves, and the options in which they differ.

mod checks;
mod comparison;
mod run;
mod tables;
#[cfg(test)]
mod tests;

pub use self::comparison::Comparison;
