//! `cargo xtask fuzz`: runs the fuzz targets of tests/fuzz on stable Rust.
//!
//! Inputs with new outcomes are kept in `target/fuzz`; the next run starts with them. Inputs that break a promise are
//! saved beside the targets, and a test runs them from then on.

use std::{ffi::OsString, path::PathBuf};

use anyhow::Result;

use crate::{
    command::{cargo, program, root, run, target_folder},
    setup,
};

/// Counts edges of the control flow. The fuzzer reads the counters (tests/fuzz/src/coverage.rs). These flags replace those of
/// .cargo/config.toml, so they repeat its processor.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=3 \
                        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Ctarget-cpu=x86-64-v3";

/// Build scripts and macros of the host link no counters, so programs with counters are built for a target by name.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Fuzzes one target, or all, for `seconds` each.
pub fn fuzz(target: Option<&str>, seconds: u64, with_coverage: bool) -> Result<()> {
    let fuzzer = match with_coverage {
        true => build_with_coverage()?,
        false => build()?,
    };
    run(program(fuzzer)
        .args(target)
        .args(with_coverage.then_some("--coverage"))
        .args(["--seconds", &seconds.to_string()])
        .args([OsString::from("--found"), root().join("tests/fuzz/found").into()])
        .args([OsString::from("--corpus"), target_folder().join("fuzz").into()]))
}

/// Builds the fuzzer in the profile of the tests, and returns its path.
fn build() -> Result<PathBuf> {
    setup::setup(false)?;
    // Building the test `targets` also builds the program, with the features of `cargo xtask test`.
    run(&mut cargo(&["build", "--workspace", "--test", "targets"]))?;
    Ok(target_folder().join("debug/grappa-fuzz"))
}

/// Builds the fuzzer and its dependencies with optimization, assertions and counters of edges, and returns its path.
fn build_with_coverage() -> Result<PathBuf> {
    let folder = target_folder().join("coverage");
    run(
        cargo(&["build", "--release", "--package", "grappa-fuzz", "--target", TARGET])
            .env("CARGO_TARGET_DIR", &folder)
            .env("RUSTFLAGS", COVERAGE)
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
            .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    )?;
    Ok(folder.join(TARGET).join("release/grappa-fuzz"))
}
