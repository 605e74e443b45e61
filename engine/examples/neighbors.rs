//! Prints the in-neighbors of a node by its id in the user's files.
//!
//! ```text
//! cargo run --example neighbors -- cora.grappa 35
//! ```

use std::path::Path;

use anyhow::{Context, Result};
use grappa_engine::{ExternalId, Store};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, id] = arguments.as_slice() else {
        anyhow::bail!("usage: neighbors STORE ID");
    };
    let store = Store::open(Path::new(store))?;
    let id = match id.parse() {
        Ok(number) => ExternalId::Integer(number),
        Err(_) => ExternalId::String(id.clone().into_bytes()),
    };
    let node = store.node(&id)?.with_context(|| format!("no node has the id {id}"))?;
    for neighbor in store.neighbors().of(node)? {
        println!("{}", store.external_id(neighbor)?);
    }
    Ok(())
}
