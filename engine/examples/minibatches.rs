//! Samples minibatches with features.
//!
//! ```text
//! cargo run --example minibatches -- cora.grappa
//! ```

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use grappa_engine::{Loader, Store};

fn main() -> Result<()> {
    let path = std::env::args_os().nth(1).context("usage: minibatches STORE")?;
    let store = Arc::new(Store::open(Path::new(&path))?);
    let mut loader = Loader::open(&store)
        .fanouts([10, 5])
        .batch(64)
        .memory(256 << 20)
        .start()?;
    for epoch in 0..2 {
        let (mut batches, mut edges, mut values) = (0, 0, 0);
        for batch in loader.epoch(epoch)? {
            let batch = batch?;
            batches += 1;
            edges += batch.minibatch().edges();
            // One feature row for each node, in the order of the minibatch.
            values += batch.features().map_or(0, |features| features.f32s().len());
        }
        println!("epoch {epoch}: {batches} minibatches, {edges} edges, {values} feature values");
    }
    Ok(())
}
