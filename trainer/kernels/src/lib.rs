//! CPU kernels, for operations in which libtorch's operators are slow on a processor, or which they lack.
//!
//! Kernels know nothing of layers or autograd. They take slices and fill slices, on threads that the program registers
//! ([`use_threads`]). Results do not depend on the number of threads. Each kernel says what it was measured against. `nn` of the trainer has
//! the same operations as libtorch operators, for other devices and as the oracle of the tests. The Python package has PyTorch's.

mod aligned;
pub mod attention;
pub mod csr;
mod element;
pub mod epilogue;
pub mod gather;
pub mod keys;
mod layout;
pub mod linear;
pub mod max;
mod multiply;
pub mod norm;
pub mod pairs;
mod parallel;
pub mod sparse;
pub mod sum;
pub mod transformed;
pub mod update;

pub use self::{
    attention::exp_of_negative,
    element::Element,
    multiply::{Factors, Instructions, LANES, multiply, padded},
    parallel::{OnEachThread, for_each, use_threads},
};
