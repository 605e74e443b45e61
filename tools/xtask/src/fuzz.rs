//! `cargo xtask fuzz`: the fuzz targets of tests/fuzz, which stable Rust runs.
//!
//! Inputs that bring new outcomes are kept in `target/fuzz`, for the next run to start with. Those that break a promise are
//! saved beside the targets, where a test runs them from then on.

use std::ffi::OsString;

use anyhow::Result;

use crate::{
    command::{cargo, program, root, run, target_folder},
    setup,
};

/// Fuzzes one target, or all of them, for so many seconds each.
pub fn fuzz(target: Option<&str>, seconds: u64) -> Result<()> {
    setup::setup(false)?;
    // The test `targets` has the program built, with the features that `cargo xtask test` uses.
    run(&mut cargo(&["build", "--workspace", "--test", "targets"]))?;
    run(program(target_folder().join("debug/grappa-fuzz"))
        .args(target)
        .args(["--seconds", &seconds.to_string()])
        .args([OsString::from("--found"), root().join("tests/fuzz/found").into()])
        .args([OsString::from("--corpus"), target_folder().join("fuzz").into()]))
}
