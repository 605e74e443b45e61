//! A store of Cora in a folder of its own, for the examples in documentation.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use grappa_ingestion::ingest::{IngestOptions, SplitFile, ingest};
use grappa_io::progress::Silent;
use grappa_storage::Store;
use tempfile::TempDir;

/// A temporary folder with the store `cora.grappa`. The folder is removed when this value is dropped.
pub struct Cora(TempDir);

impl Cora {
    /// The folder of the files of Cora in this repository.
    pub fn files() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/cora"))
    }

    /// Ingests these files: 2708 papers, 10556 edges, 1433 features, 7 classes and 3 splits, in 16 chunks. Returns the
    /// folder and the open store.
    pub fn ingest() -> (Self, Arc<Store>) {
        let cora = Self(tempfile::tempdir().unwrap());
        let file = |name: &str| Self::files().join(name);
        let mut options = IngestOptions::new(vec![file("edges.tsv")], cora.path("cora.grappa"));
        options.edges.options.undirected = true;
        options.nodes.data.features = Some(file("features.npz").into());
        options.nodes.data.labels = Some(file("labels.npy").into());
        options.nodes.splits.files =
            ["train", "val", "test"].map(|name| SplitFile { name, ids: file(&format!("{name}.npy")).into() }).into();
        options.nodes.layout.chunks = Some(16);
        options.resources.memory = 256 << 20;
        ingest(&options, &Silent).unwrap();
        let store = Arc::new(Store::open(&options.out).unwrap());
        (cora, store)
    }

    /// A path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}
