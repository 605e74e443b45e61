//! Whether the validation nodes have what the monitored number is computed from.

use grappa_formats::manifest::LabelKind;
use grappa_io::size::count as shown;
use grappa_run::{class_names, config::Monitor};

use super::{class_weights::count, training_data::TrainingData};
use crate::train::ranks::Processes;
use crate::{Error, Result};

/// Checks that areas under curves can be computed: they compare nodes inside of a class with nodes outside. All ranks must call it.
///
/// # Errors
/// If there are validation nodes, and for no class there are both.
pub(crate) fn check_monitor(monitor: Monitor, data: &TrainingData, processes: &Processes) -> Result<()> {
    if !matches!(monitor, Monitor::Auc | Monitor::AveragePrecision) || data.links().is_some() {
        return Ok(());
    }
    let [inside, outside] = count(data.splits.val(), data, processes)?;
    let nodes: u64 = inside.iter().chain(&outside).sum();
    let (is_defined, are) = match data.labels().spec().kind {
        LabelKind::Single => {
            let largest = (0..inside.len()).max_by_key(|&class| inside[class]).unwrap_or_default();
            let name = class_names::name(&data.store.schema()?.classes, largest as u64);
            let others = inside.iter().sum::<u64>() - inside[largest];
            (others > 0, format!("all {} validation nodes are of class {name}", shown(inside[largest])))
        }
        _ => {
            let mut sides = inside.iter().zip(&outside);
            let is_defined = sides.any(|(&inside, &outside)| inside > 0 && outside > 0);
            (is_defined, "no class has validation nodes both inside and outside of it".to_owned())
        }
    };
    match is_defined || nodes == 0 {
        true => Ok(()),
        false => Err(Error::Options(format!(
            "monitor is {monitor}, and {are}, so it has no value: use --monitor loss, or ingest the graph with validation nodes of several \
             classes (--val, or --split with --stratify, of grappa-ingest)"
        ))),
    }
}
