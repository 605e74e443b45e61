//! `grappa-ingest`: edge lists in, a compressed graph store out, under a memory budget.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ExitCode::from(grappa_ingest::main(env::args_os()))
}
