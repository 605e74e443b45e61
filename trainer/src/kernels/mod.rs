//! Loops over the values of tensors in memory, for what libtorch's operators do slowly or not at all on a processor.
//!
//! They know nothing of layers or autograd: slices in, slices out, on libtorch's threads. Results do not depend on the
//! number of threads. What each is measured against stands with it; `nn` has the same in libtorch's operators, for other
//! devices and as the twin that these must equal.

pub(crate) mod attention;
pub(crate) mod epilogue;
pub(crate) mod gather;
mod layout;
pub(crate) mod linear;
pub(crate) mod max;
mod multiply;
mod parallel;
pub(crate) mod transpose;

pub(crate) use self::{multiply::Instructions, parallel::for_each};
