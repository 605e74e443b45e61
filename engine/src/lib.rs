//! The out-of-core graph engine.

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod derive;
pub mod export;
pub mod info;
pub mod node_list;
pub mod plan;
#[cfg(test)]
mod tests;
pub mod verify;
