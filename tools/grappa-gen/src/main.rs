//! `grappa-gen`: synthetic graphs of any size, straight into a store or as edge lists.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    ExitCode::from(grappa_gen::main(env::args_os()))
}
