//! The graphs, as stores of 64 chunks: one for each job, because training notes partitions in its store.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use anyhow::{Context, Result};
use grappa_benches::{cache::files_below, child};

use crate::grid::Dataset;

/// Only one store is made at a time.
static MAKING: Mutex<()> = Mutex::new(());

pub struct Stores<'a> {
    pub programs: &'a Path,
    pub work: &'a Path,
    /// Where stores are that were made before.
    pub ready: Option<&'a Path>,
    /// Where the files of the datasets are.
    pub data: &'a Path,
}

impl Stores<'_> {
    /// What belongs to a job.
    pub fn job_folder(&self, job: usize) -> PathBuf {
        self.work.join(format!("job-{job}"))
    }

    /// The store of a dataset for a job, with its first hop aggregated; none if there is nothing to make it of.
    pub fn of_job(&self, dataset: Dataset, job: usize) -> Result<Option<PathBuf>> {
        let store = self.job_folder(job).join(format!("{dataset}.grappa"));
        if store.exists() {
            return Ok(Some(store));
        }
        let _one = MAKING.lock().expect("no job panics");
        let Some(made) = self.store(dataset)? else {
            return Ok(None);
        };
        let partial = store.with_extension("copy");
        if partial.exists() {
            fs::remove_dir_all(&partial)?;
        }
        copy(&made, &partial).with_context(|| format!("cannot copy {} to {}", made.display(), partial.display()))?;
        let mut preaggregate = Command::new(self.programs.join("grappa-store"));
        preaggregate
            .arg("preaggregate")
            .arg(&partial)
            .args(["--kind", "mean", "--quiet"]);
        child::run(&mut preaggregate)?;
        fs::rename(&partial, &store)?;
        Ok(Some(store))
    }

    /// The store that jobs have copies of.
    fn store(&self, dataset: Dataset) -> Result<Option<PathBuf>> {
        let name = format!("{dataset}.grappa");
        if let Some(ready) = self.ready.map(|ready| ready.join(&name)).filter(|ready| ready.exists()) {
            return Ok(Some(ready));
        }
        let store = self.work.join(&name);
        let data = self.data.join(dataset.name());
        if store.exists() {
            return Ok(Some(store));
        }
        if !data.exists() {
            return Ok(None);
        }
        let mut ingest = Command::new(self.programs.join("grappa-ingest"));
        ingest.args([
            "--undirected",
            "--dedup",
            "--self-loops",
            "drop",
            "--chunks",
            "64",
            "--quiet",
        ]);
        for name in ["edges", "features", "labels", "train", "val", "test"] {
            ingest.arg(format!("--{name}")).arg(data.join(format!("{name}.npy")));
        }
        child::run(ingest.arg("--out").arg(&store))?;
        Ok(Some(store))
    }
}

/// Copies a folder, but for first hops that it may have.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in files_below(from)? {
        let inside = file.strip_prefix(from).expect("a file below a folder is below it");
        if inside.starts_with("aggregates") {
            continue;
        }
        let target = to.join(inside);
        fs::create_dir_all(target.parent().expect("a file is in a folder"))?;
        fs::copy(&file, &target)?;
    }
    Ok(())
}
