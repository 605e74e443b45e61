//! The runs of a comparison.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use grappa_report::{MethodComparison, MethodRuns};
use grappa_run::{
    Error, Result,
    config::{Compress, TrainConfig, shown},
    folder::{CONFIG, RunFolder, config_of},
};
use toml::Table;

use super::spec::MethodSpec;
use crate::config::{Method, MethodConfig, option_named};

/// A run of a method.
#[derive(Debug)]
pub struct PlannedRun {
    /// The name of [`MethodSpec`].
    pub method: String,
    /// Number of partitions.
    pub partitions: u32,
    /// Its folder.
    pub folder: PathBuf,
    /// Its options.
    pub config: TrainConfig,
}

/// Methods to compare.
pub struct Comparison<'a> {
    /// The methods.
    pub methods: &'a [MethodSpec],
    /// Numbers of partitions; a method that needs none is trained once.
    pub partitions: &'a [u32],
    /// The seeds of the runs.
    pub seeds: Vec<u64>,
    /// The folder of the runs and of the page.
    pub out: &'a Path,
    /// Configures a run that has these options of its own.
    pub configure: &'a dyn Fn(Table) -> Result<TrainConfig>,
}

impl Comparison<'_> {
    /// A run for each method, number of partitions and seed.
    ///
    /// # Errors
    /// If options contradict each other, for one of the methods, or two runs would have the same folder.
    pub fn planned(&self) -> Result<Vec<PlannedRun>> {
        let (mut runs, mut folders) = (Vec::new(), BTreeSet::new());
        for spec in self.methods {
            let partitions = match spec.method {
                Method::Gern => &[1],
                _ => self.partitions,
            };
            for &partitions in partitions {
                for &seed in &self.seeds {
                    let folder = format!("{}-{partitions}-{seed}", spec.folder());
                    if !folders.insert(folder.clone()) {
                        return Err(Error::Options(format!(
                            "two runs would be in {folder}: name each method and each number of partitions once"
                        )));
                    }
                    let folder = self.out.join(folder);
                    let config = self.configuration(spec, partitions, seed, &folder)?;
                    runs.push(PlannedRun { method: spec.name.clone(), partitions, config, folder });
                }
            }
        }
        Ok(runs)
    }

    fn configuration(&self, spec: &MethodSpec, partitions: u32, seed: u64, folder: &Path) -> Result<TrainConfig> {
        let mut own = spec.options.clone();
        for (name, text) in [
            ("method", spec.method.to_string()),
            ("partitions", partitions.to_string()),
            ("seed", seed.to_string()),
            ("out", folder.to_string_lossy().into_owned()),
        ] {
            let option = option_named(name).expect("an option of training");
            own.insert(name.to_owned(), (option.read)(&text).map_err(Error::Options)?);
        }
        let config = (self.configure)(own).map_err(|error| {
            Error::Options(format!(
                "{}: {error} (an option that only one method has is written as grappa+batch=512)",
                spec.name
            ))
        })?;
        if spec.method == Method::Grappa && config.compress != Compress::None {
            return Err(Error::Options(format!(
                "{}: compress is {}, and a comparison trains in one process, which sends no minibatch gradients: use `grappa-train \
                 --workers`",
                spec.name, config.compress
            )));
        }
        Ok(config)
    }
}

impl PlannedRun {
    /// Whether its folder contains a run.
    pub fn exists(&self) -> bool {
        self.folder.join(CONFIG).exists()
    }

    /// Refuses a folder whose run has other options, before anything is trained.
    ///
    /// # Errors
    /// The message has the option and both values.
    pub fn check_before(&self) -> Result<()> {
        if !self.exists() {
            return Ok(());
        }
        let before = MethodConfig::checked(config_of(&self.folder)?)?;
        if let Some((option, values)) = before.fixed_difference(&self.config) {
            let [before, after] = values.map(|value| value.as_ref().map_or_else(|| "none".to_owned(), shown));
            return Err(Error::Options(format!(
                "{}: its run has {option} {before}, and not {after}: give the same options, train it anew with --force, or give another \
                 folder with --out",
                self.folder.display()
            )));
        }
        Ok(())
    }

    /// The folder of the run, to continue or to begin it.
    ///
    /// # Errors
    /// If the folder contains other files, or cannot be written.
    pub fn open_folder(&self, resumes: bool) -> Result<RunFolder> {
        match resumes {
            true => {
                let folder = RunFolder::resume(&self.folder)?;
                folder.write_config(&self.config)?;
                Ok(folder)
            }
            // Nothing is there without --force.
            false => RunFolder::replace(&self.folder, &self.config),
        }
    }

    /// Refuses the pages of another comparison, before anything is trained. A comparison that continues replaces its own.
    ///
    /// # Errors
    /// The message names the page.
    pub fn check_pages(runs: &[Self], out: &Path) -> Result<()> {
        if runs.iter().any(Self::exists) {
            return Ok(());
        }
        match MethodComparison::FILES.iter().map(|name| out.join(name)).find(|path| path.exists()) {
            Some(path) => Err(Error::Options(format!(
                "{} exists, and none of the runs to compare is in {}: replace it with --force, or give another folder with --out",
                path.display(),
                out.display()
            ))),
            None => Ok(()),
        }
    }

    /// Reads the runs for a page, each method and number of partitions together.
    ///
    /// # Errors
    /// If a run cannot be read, or the runs cannot be compared.
    pub fn compared(runs: &[Self], store: &str) -> Result<MethodComparison> {
        let groups = runs.chunk_by(|one, other| (&one.method, one.partitions) == (&other.method, other.partitions));
        let methods = groups.map(|runs| MethodRuns {
            name: runs[0].method.clone(),
            partitions: runs[0].partitions,
            folders: runs.iter().map(|run| run.folder.clone()).collect(),
        });
        MethodComparison::read(store, &methods.collect::<Vec<_>>())
    }
}
