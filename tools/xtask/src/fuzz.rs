//! `cargo xtask fuzz`: the fuzz targets of tests/fuzz, which stable Rust runs.
//!
//! Inputs that bring new outcomes are kept in `target/fuzz`, for the next run to start with. Those that break a promise are
//! saved beside the targets, where a test runs them from then on.

use std::{ffi::OsString, path::PathBuf};

use anyhow::{Result, ensure};

use crate::{
    command::{cargo, output, program, root, run, target_folder},
    setup,
};

/// The programs with targets, and where each keeps what was found. The second one links libtorch.
const PROGRAMS: [(&str, &str); 2] = [
    ("grappa-fuzz", "tests/fuzz/found"),
    ("grappa-trainer-fuzz", "tests/fuzz/trainer/found"),
];

/// Fuzzes one target, or all of them, for so many seconds each.
pub fn fuzz(target: Option<&str>, seconds: u64) -> Result<()> {
    setup::setup(false)?;
    // The test `targets` of both packages has their programs built, with the features that `cargo xtask test` uses.
    run(&mut cargo(&["build", "--workspace", "--test", "targets"]))?;
    let mut is_known = false;
    let mut result = Ok(());
    for (name, found) in PROGRAMS {
        let binary: PathBuf = target_folder().join("debug").join(name);
        let has = |target: &str| -> Result<bool> {
            Ok(output(program(&binary).arg("--list"))?
                .lines()
                .any(|line| line == target))
        };
        if let Some(target) = target
            && !has(target)?
        {
            continue;
        }
        is_known = true;
        let ran = run(program(&binary)
            .args(target)
            .args(["--seconds", &seconds.to_string()])
            .args([OsString::from("--found"), root().join(found).into()])
            .args([OsString::from("--corpus"), target_folder().join("fuzz").into()]));
        // The other program's targets are run all the same.
        result = result.and(ran);
    }
    ensure!(is_known, "no fuzz target is called {}", target.unwrap_or_default());
    result
}
