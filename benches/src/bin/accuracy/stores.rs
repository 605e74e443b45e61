//! The graphs, as stores of 64 chunks: one each, which all runs on it share.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use grappa_benches::{child, training};

use crate::grid::Dataset;

pub struct Stores<'a> {
    pub programs: &'a Path,
    pub work: &'a Path,
    /// Where stores are that were made before.
    pub ready: Option<&'a Path>,
    /// Where the files of the datasets are.
    pub data: &'a Path,
}

impl Stores<'_> {
    /// The store of a dataset, made if it is not there, with its first hop aggregated if that is wanted; none if there is
    /// nothing to make it of.
    pub fn of(&self, dataset: Dataset, wants_first_hop: bool) -> Result<Option<PathBuf>> {
        let name = format!("{dataset}.grappa");
        let ready = self.ready.map(|ready| ready.join(&name)).filter(|ready| ready.exists());
        let store = ready.unwrap_or_else(|| self.work.join(&name));
        let data = self.data.join(dataset.name());
        if !store.exists() {
            if !data.exists() {
                return Ok(None);
            }
            self.ingest(&data, &store)?;
        }
        if wants_first_hop {
            training::preaggregate(self.programs, &store)?;
        }
        Ok(Some(store))
    }

    fn ingest(&self, data: &Path, store: &Path) -> Result<()> {
        let mut ingest = Command::new(self.programs.join("grappa-ingest"));
        ingest.args(["--undirected", "--dedup", "--self-loops", "drop"]);
        ingest.args(["--chunks", "64", "--quiet"]);
        for name in ["edges", "features", "labels", "train", "val", "test"] {
            ingest.arg(format!("--{name}")).arg(data.join(format!("{name}.npy")));
        }
        child::run(ingest.arg("--out").arg(store)).map(drop)
    }
}
