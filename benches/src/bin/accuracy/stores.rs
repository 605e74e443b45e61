//! One store of 64 chunks per dataset, shared by all runs on it.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;
use grappa_benches::{child, training};
use grappa_formats::aggregates::AggregateKind;

use crate::grid::Dataset;

pub struct Stores<'a> {
    pub programs: &'a Path,
    pub work: &'a Path,
    /// A folder with ready stores.
    pub ready: Option<&'a Path>,
    /// The folder with the files of the datasets.
    pub data: &'a Path,
}

impl Stores<'_> {
    /// The store of a dataset, with pre-aggregated features if wanted. It is made if it does not exist. `None` if the
    /// dataset is missing too.
    pub fn of(&self, dataset: Dataset, wants_first_hop: bool) -> Result<Option<PathBuf>> {
        let name = format!("{dataset}.grappa");
        let ready = self.ready.map(|ready| ready.join(&name)).filter(|ready| ready.exists());
        let store = ready.unwrap_or_else(|| self.work.join(&name));
        let data = self.data.join(dataset.name());
        if !store.exists() {
            if !data.exists() {
                return Ok(None);
            }
            self.ingest(dataset, &data, &store)?;
        }
        if wants_first_hop {
            training::preaggregate(self.programs, &store, AggregateKind::Mean, false)?;
        }
        Ok(Some(store))
    }

    fn ingest(&self, dataset: Dataset, data: &Path, store: &Path) -> Result<()> {
        let mut ingest = Command::new(self.programs.join("grappa-ingest"));
        ingest.args(["--undirected", "--dedup", "--self-loops", "drop"]);
        ingest.args(["--chunks", "64", "--quiet"]);
        ingest.arg("--features").arg(data.join(dataset.features()));
        for name in ["edges", "labels", "train", "val", "test"] {
            ingest.arg(format!("--{name}")).arg(data.join(format!("{name}.npy")));
        }
        child::run(ingest.arg("--out").arg(store)).map(drop)
    }
}
