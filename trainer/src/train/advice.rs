//! Hints for a user whose data suggest other options, before the first epoch.

use grappa_engine::aggregate::{NodeRows, StoreFeatures};
use grappa_formats::manifest::LabelKind;
use grappa_run::{
    config::TrainConfig,
    model::{FeatureNorm, Task},
    scores::ScoreReport,
};
use grappa_storage::Store;

use crate::Result;

/// Features whose largest values differ by this factor are worth a warning.
const SCALES_NOTED: f32 = 1000.0;
/// Bytes of features that are looked at.
const LOOKED_AT_BYTES: usize = 1 << 20;

/// Warnings about labels and features of a store that hardly let a model learn.
///
/// # Errors
/// If features cannot be read.
pub(super) fn of_data(store: &Store, config: &TrainConfig) -> Result<Vec<String>> {
    let labels = store.manifest().labels;
    let has_one_class = labels.is_some_and(|labels| labels.kind == LabelKind::Single && labels.classes == 1);
    let one_class = has_one_class.then(|| {
        "all labels are of one class, so every model is right about every node: are these the labels that you mean?"
            .to_owned()
    });
    let scales = match config.normalize_features {
        FeatureNorm::None => scales_of(store)?,
        _ => None,
    };
    Ok(one_class.into_iter().chain(scales).collect())
}

/// A warning if features of the first nodes have very different scales.
fn scales_of(store: &Store) -> Result<Option<String>> {
    let Some(chunk) = store.present_chunks().next() else {
        return Ok(None);
    };
    let features = StoreFeatures::open(store)?;
    let width = features.width();
    let range = store.chunks().range(chunk);
    let rows = (LOOKED_AT_BYTES / (4 * width)).max(1) as u64;
    let range = range.start..range.end.min(range.start + rows);
    let mut values = vec![0.0; (range.end - range.start) as usize * width];
    features.read(range, &mut values)?;
    Ok(warning_about_scales(&store.schema()?.feature_names(), width, &values))
}

/// The warning about rows of `width` values. `names`: a name for each feature, or none.
fn warning_about_scales(names: &[String], width: usize, rows: &[f32]) -> Option<String> {
    let mut largest = vec![0.0f32; width];
    for row in rows.chunks_exact(width) {
        for (largest, value) in largest.iter_mut().zip(row).filter(|(_, value)| value.is_finite()) {
            *largest = largest.max(value.abs());
        }
    }
    // A feature that is always 0 has no scale.
    let scales = || largest.iter().enumerate().filter(|(_, scale)| **scale > 0.0);
    let (most, high) = scales().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let (least, low) = scales().min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let name = |feature: usize| match names.get(feature) {
        Some(name) => name.clone(),
        None => format!("feature {feature} (counted from 0)"),
    };
    (high / low >= SCALES_NOTED).then(|| {
        format!(
            "features differ by orders of magnitude: {} goes up to {high:.3e} and {} up to {low:.3e}, so the model hardly sees the second; \
             try --normalize-features standard",
            name(most),
            name(least)
        )
    })
}

/// The accuracy of a model that predicts the largest class for every node. None for sets of classes, and without nodes.
pub(super) fn majority_baseline(task: Task, report: &ScoreReport) -> Option<f64> {
    let largest = report.per_class.iter().map(|class| class.support).max()?;
    (task == Task::MultiClass && report.nodes > 0).then(|| largest as f64 / report.nodes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_very_different_scales_are_named() {
        let rows = [[0.5, 2e5, 0.0, f32::NAN], [-0.25, -1e5, 0.0, 3.0]].concat();
        let names = ["age", "income", "zip", "visits"].map(str::to_owned);
        for (names, parts) in [
            (&names[..], ["income goes up to 2.000e5", "age up to 5.000e-1"]),
            (
                &[],
                [
                    "feature 1 (counted from 0) goes up to 2.000e5",
                    "feature 0 (counted from 0) up to 5.000e-1",
                ],
            ),
        ] {
            let warning = warning_about_scales(names, 4, &rows).expect("the second is large");
            for part in parts.into_iter().chain(["--normalize-features"]) {
                assert!(warning.contains(part), "{warning}");
            }
        }
        // Words: most of them are rare, and all have the same scale.
        assert_eq!(warning_about_scales(&[], 3, &[1.0, 0.0, 0.0, 0.0, 0.0, 1.0]), None);
        assert_eq!(warning_about_scales(&[], 1, &[]), None);
    }
}
