//! The command line of a comparison.

use std::path::PathBuf;

use clap::Args;
use grappa_run::{
    Result,
    config::{Method, Preset, TrainConfig},
};
use toml::Table;

use super::spec::MethodSpec;
use crate::args::Given;

/// A store, methods to compare on it, and the options of training that all of them have.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Store to train on
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Methods of training, with options of their own after a plus sign: varco+rate-schedule=fixed:4; by default all methods
    #[arg(long, value_name = "METHOD,METHOD,...", value_delimiter = ',', default_values = Method::ALL.iter().map(|method| method.name()))]
    pub methods: Vec<MethodSpec>,
    /// Numbers of partitions; a method that needs none is trained once
    #[arg(long, value_name = "P,P,...", value_delimiter = ',', default_value = "4", value_parser = clap::value_parser!(u32).range(2..))]
    pub partitions: Vec<u32>,
    /// Number of seeds: each method is trained with --seed and the numbers that follow it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: u64,
    /// Folder of the runs, and of compare.html, compare.md, compare.csv and compare.svg
    ///
    /// Runs that are finished there are kept, and others continue: repeat the command after a kill, or with more methods.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Train anew all runs that --out contains, and replace its pages; each run stays in its folder `replaced` until the new one has finished
    #[arg(long)]
    pub force: bool,
    /// Options of a published setting; --config and flags override them
    #[arg(long, value_name = "NAME")]
    preset: Option<String>,
    /// TOML file with options, named like the flags; flags override it
    #[arg(long, value_name = "RUN.toml")]
    config: Option<PathBuf>,
    #[command(flatten)]
    shared: Given<true>,
}

impl CompareArgs {
    /// The configuration of a run with these options, and the options that all runs share.
    pub(super) fn configuration(&self, own: Table) -> Result<TrainConfig> {
        let mut flags = self.shared.0.clone();
        flags.extend(own);
        TrainConfig::layered(self.preset()?, self.config.as_deref(), &flags)
    }

    /// The first seed.
    pub(super) fn first_seed(&self) -> Result<u64> {
        Ok(TrainConfig::unchecked(self.preset()?, self.config.as_deref(), &self.shared.0)?.seed)
    }

    fn preset(&self) -> Result<Option<&'static Preset>> {
        self.preset.as_deref().map(Preset::named).transpose()
    }
}
