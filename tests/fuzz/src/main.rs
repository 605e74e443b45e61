//! Fuzzes every parser and decoder; see the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    grappa_fuzz::program::main(&grappa_fuzz::targets::all())
}
