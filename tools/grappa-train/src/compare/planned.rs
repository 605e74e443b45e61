//! The runs of a comparison.

use std::{collections::BTreeSet, path::PathBuf};

use grappa_run::{
    Error, Result,
    config::{Compress, Method, TrainConfig, TrainOption},
};

use super::{args::CompareArgs, spec::MethodSpec};

#[derive(Debug)]
pub struct PlannedRun {
    /// The name of [`MethodSpec`].
    pub method: String,
    pub partitions: u32,
    pub folder: PathBuf,
    pub config: TrainConfig,
}

/// The runs of a comparison: for each method, number of partitions and seed.
///
/// # Errors
/// If options contradict each other, for one of the methods, or two runs would have the same folder.
pub(super) fn planned(options: &CompareArgs) -> Result<Vec<PlannedRun>> {
    let first = options.first_seed()?;
    let (mut runs, mut folders) = (Vec::new(), BTreeSet::new());
    for spec in &options.methods {
        let partitions = match spec.method {
            Method::Gern => &[1],
            _ => &*options.partitions,
        };
        for &partitions in partitions {
            for seed in 0..options.seeds {
                let folder = format!("{}-{partitions}-{}", spec.folder(), first.wrapping_add(seed));
                if !folders.insert(folder.clone()) {
                    return Err(Error::Options(format!(
                        "two runs would be in {folder}: name each method and each number of partitions once"
                    )));
                }
                let folder = options.out.join(folder);
                runs.push(PlannedRun {
                    method: spec.name.clone(),
                    partitions,
                    config: configuration(options, spec, partitions, first.wrapping_add(seed), &folder)?,
                    folder,
                });
            }
        }
    }
    Ok(runs)
}

fn configuration(
    options: &CompareArgs,
    spec: &MethodSpec,
    partitions: u32,
    seed: u64,
    folder: &std::path::Path,
) -> Result<TrainConfig> {
    let mut own = spec.options.clone();
    for (name, text) in [
        ("method", spec.method.to_string()),
        ("partitions", partitions.to_string()),
        ("seed", seed.to_string()),
        ("out", folder.to_string_lossy().into_owned()),
    ] {
        let option = TrainOption::named(name).expect("an option of training");
        own.insert(name.to_owned(), (option.read)(&text).map_err(Error::Options)?);
    }
    let config = options.configuration(own).map_err(|error| {
        Error::Options(format!(
            "{}: {error} (an option that only one method has is written as grappa+batch=512)",
            spec.name
        ))
    })?;
    if config.method == Method::Grappa && config.compress != Compress::None {
        return Err(Error::Options(format!(
            "{}: compress is {}, and a comparison trains in one process, which sends no minibatch gradients: use `grappa-train --workers`",
            spec.name, config.compress
        )));
    }
    Ok(config)
}
