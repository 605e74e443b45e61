//! `grappa-store`: look into a graph store, and repartition it.

use std::process::ExitCode;

fn main() -> ExitCode {
    grappa_store::main()
}
