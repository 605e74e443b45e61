//! `grappa-ingest`: edge lists in, a compressed graph store out, under a memory budget.

use std::process::ExitCode;

fn main() -> ExitCode {
    grappa_ingest::main()
}
