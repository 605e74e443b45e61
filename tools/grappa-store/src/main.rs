//! `grappa-store`: look into a graph store, and repartition it.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ExitCode::from(grappa_store::main(env::args_os()))
}
