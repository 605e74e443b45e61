//! `cargo xtask lint`: everything that is wrong without running it, cheapest check first.

use anyhow::Result;

use crate::{
    command::{cargo, run},
    setup, tidy,
};

pub fn lint() -> Result<()> {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    tidy::tidy()?;
    // The trainer is looked at too, which needs libtorch's headers.
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
