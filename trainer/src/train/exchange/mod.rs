//! The exchange of gradients between partitions.
//!
//! Its types are its contract: a flat gradient and two numbers go in, and their sums come out. Features and activations have
//! no place in it.
//!
//! ```text
//! InProcess     one process: nothing is sent
//! Encoded       one process, which computes what several machines would encode
//! AllReduce     several: f32, summed on the way
//! Compressed    several: encoded gradients, decoded and summed in the order of ranks
//! ```

mod compressed;
mod encoded;
mod gradient;
pub(super) mod gradient_exchange;
mod uncompressed;

pub(super) use self::{compressed::Compressed, encoded::Encoded};
pub use self::{
    gradient::{Exchange, LossWeights, Summed, Unsent, exchanged_bytes},
    uncompressed::{AllReduce, InProcess},
};
