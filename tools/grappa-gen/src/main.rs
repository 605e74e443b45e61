//! `grappa-gen`: synthetic graphs of any size, straight into a store or as edge lists.

use std::process::ExitCode;

fn main() -> ExitCode {
    grappa_gen::main()
}
