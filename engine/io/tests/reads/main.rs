//! Tests of the contract of read engines. Each runs on every engine: on intact files, on machines that refuse system calls,
//! and with injected faults.
//!
//! ```text
//! bytes     reads return the bytes of the files, in any order, or an error
//! limits    an engine works without the features that the machine refuses, and logs that once
//! ```

mod bytes;
mod common;
mod limits;
