//! The command line of a comparison.

use std::path::PathBuf;

use clap::Args;
use grappa_methods::{Comparison, Method, MethodConfig, MethodSpec, PlannedRun};
use grappa_run::{Result, config::Preset};

use crate::args::{OptionFlags, defaults};

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
    shared: OptionFlags<true>,
}

impl CompareArgs {
    /// The runs.
    pub(super) fn comparison(&self) -> Result<Vec<PlannedRun>> {
        let (preset, file) = (self.preset()?, self.config.as_deref());
        let first = defaults().unchecked(preset, file, &self.shared.0)?.seed;
        let comparison = Comparison {
            methods: &self.methods,
            partitions: &self.partitions,
            seeds: (0..self.seeds).map(|seed| first.wrapping_add(seed)).collect(),
            out: &self.out,
            configure: &|own| {
                let mut flags = self.shared.0.clone();
                flags.extend(own);
                MethodConfig::checked(defaults().layered(preset, file, &flags)?)
            },
        };
        comparison.planned()
    }

    fn preset(&self) -> Result<Option<&'static Preset>> {
        self.preset.as_deref().map(Preset::named).transpose()
    }
}
