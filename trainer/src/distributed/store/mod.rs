//! The key-value store in which ranks find each other.
//!
//! ```text
//! rank 0, or the launcher of --workers     serves it (`server`)
//! each rank                                has a connection to it (`client`)
//! torchrun                                 serves a TCPStore of PyTorch instead (`torchrun`)
//! ```
//!
//! A connection begins with a greeting (`greeting`), by which both ends show that they are of this program and know the same secret. A
//! stranger gets no further. It cannot delay others either: each connection has a thread of its own.
//!
//! No call waits longer than its time for the other end, which may be stopped, cut off, or another program.

mod client;
mod greeting;
mod handle;
mod request;
mod server;
#[cfg(test)]
mod tests;
mod timed;
mod torchrun;

pub use self::server::StoreServer;
pub(super) use self::{handle::Store, timed::aside};
