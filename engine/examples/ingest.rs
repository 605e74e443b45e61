//! Builds a store from a program.
//!
//! ```text
//! cargo run --example ingest -- tests/data/cora cora.grappa
//! ```

use std::path::PathBuf;

use anyhow::{Context, Result};
use grappa_engine::{IngestOptions, Silent, SplitFile, ingest};

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().context("usage: ingest FOLDER STORE")?;
    let store = arguments.next().context("usage: ingest FOLDER STORE")?;

    let mut options = IngestOptions::new(vec![folder.join("edges.tsv")], store);
    options.nodes.data.features = Some(folder.join("features.npz").into());
    options.nodes.data.labels = Some(folder.join("labels.npy").into());
    options.nodes.splits.files =
        ["train", "val", "test"].map(|name| SplitFile { name, ids: folder.join(format!("{name}.npy")).into() }).into();
    options.edges.options.undirected = true;
    options.edges.options.dedup = true;
    options.resources.memory = 256 << 20;

    let summary = ingest(&options, &Silent)?;
    println!("{} nodes, {} edges, {} bytes", summary.nodes, summary.edges, summary.bytes_on_disk);
    Ok(())
}
