//! `cargo xtask fuzz`: runs the fuzz targets of tests/fuzz on stable Rust.
//!
//! Inputs with new outcomes are kept in `target/fuzz`; the next run starts with them. Inputs that break a promise are
//! saved beside the targets, and a test runs them from then on.

use std::ffi::OsString;

use anyhow::Result;

use crate::{
    command::{cargo, program, root, run, target_folder},
    setup,
};

/// Fuzzes one target, or all, for `seconds` each.
pub fn fuzz(target: Option<&str>, seconds: u64) -> Result<()> {
    setup::setup(false)?;
    // Building the test `targets` also builds the program, with the features of `cargo xtask test`.
    run(&mut cargo(&["build", "--workspace", "--test", "targets"]))?;
    run(program(target_folder().join("debug/grappa-fuzz"))
        .args(target)
        .args(["--seconds", &seconds.to_string()])
        .args([OsString::from("--found"), root().join("tests/fuzz/found").into()])
        .args([OsString::from("--corpus"), target_folder().join("fuzz").into()]))
}
