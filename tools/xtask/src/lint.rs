//! `cargo xtask lint`: static checks, cheapest first.

use anyhow::Result;

use crate::{
    command::{cargo, run},
    setup, tidy,
};

pub fn lint() -> Result<()> {
    text()?;
    code()
}

/// Checks that need no compiler.
pub fn text() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::tidy()
}

/// Checks by the compiler. They include the trainer, so they need libtorch's headers.
pub fn code() -> Result<()> {
    setup::setup(false)?;
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--features",
        "grappa-fuzz/libfuzzer",
        "--",
        "--deny",
        "warnings",
    ]))?;
    run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}
