//! Fuzzes the files of runs: see the library.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    grappa_fuzz::program::main(&grappa_trainer_fuzz::all())
}
