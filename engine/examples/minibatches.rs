//! Minibatches with features, from a store of Cora.

use std::{path::Path, sync::Arc};

use grappa_engine::{Loader, Store};

fn main() -> grappa_engine::Result<()> {
    let store = Arc::new(Store::open(Path::new("cora.grappa"))?);
    let mut loader = Loader::open(&store).fanouts([15, 10]).batch(64).memory(1 << 30).start()?;
    for batch in loader.epoch(0)? {
        let batch = batch?;
        let nodes = &batch.minibatch().nodes;
        let values = batch.features().map_or(0, |features| features.f32s().len());
        println!("{} nodes, {values} feature values", nodes.len());
    }
    Ok(())
}
