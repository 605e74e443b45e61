//! `cargo xtask lint`: everything that is wrong without running it, cheapest check first.

use anyhow::Result;

use crate::{
    command::{cargo, run},
    rust_version, setup, tidy,
};

pub fn lint() -> Result<()> {
    text()?;
    code()
}

/// What takes no compiler.
pub fn text() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::tidy()?;
    rust_version::check()
}

/// What compilers find. The trainer is looked at too, which needs libtorch's headers.
pub fn code() -> Result<()> {
    setup::setup(false)?;
    run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    run(cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
}
