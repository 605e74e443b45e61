//! The first hop of a store, aggregated once for all runs that want it.

use std::{path::Path, process::Command};

use anyhow::Result;
use grappa_engine::store::{Store, aggregates::Aggregates};
use grappa_formats::aggregates::AggregateKind;

use crate::child;

/// Adds the means of in-neighbours' features to a store, which has features, unless they are there; `programs` has grappa-store.
///
/// # Errors
/// If the store can't be opened, or they can't be made.
pub fn preaggregate(programs: &Path, store: &Path) -> Result<()> {
    if Aggregates::open(&Store::open(store)?, AggregateKind::Mean)?.is_some() {
        return Ok(());
    }
    let mut command = Command::new(programs.join("grappa-store"));
    command.arg("preaggregate").arg(store);
    child::run(command.args(["--kind", "mean", "--memory", "4GiB", "--quiet"])).map(drop)
}
