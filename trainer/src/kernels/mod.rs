//! CPU kernels, for operations in which libtorch's operators are slow on a processor, or which they lack.
//!
//! Kernels know nothing of layers or autograd. They take slices and fill slices, on libtorch's threads. Results do not depend on the
//! number of threads. Each kernel says what it was measured against. `nn` has the same operations as libtorch operators, for other
//! devices and as the oracle of the tests.

mod aligned;
pub(crate) mod attention;
pub(crate) mod csr;
pub(crate) mod epilogue;
pub(crate) mod gather;
mod layout;
pub(crate) mod linear;
pub(crate) mod max;
mod multiply;
pub(crate) mod norm;
pub(crate) mod parallel;
pub(crate) mod sparse;
pub(crate) mod sum;
pub(crate) mod update;

pub(crate) use self::{multiply::Instructions, parallel::for_each};
