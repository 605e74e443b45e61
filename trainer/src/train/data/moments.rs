//! The mean and the standard deviation of each feature, for models that standardize features, and of each target.
//!
//! One pass over the features of all nodes, or over the targets of the training nodes, before the first step. The sums are of differences to the first row, so that columns
//! with a small deviation around a large mean lose no digits.

use std::ops::Range;

use grappa_engine::aggregate::{NodeRows, store_features};
use grappa_formats::{ChunkId, NodeId};
use grappa_io::progress::{Progress, check_stopped};
use grappa_run::class_names;
use grappa_storage::Graph;
use serde::{Deserialize, Serialize};
use tch::{Tensor, no_grad};

use super::training_data::TrainingData;
use crate::train::ranks::Processes;
use crate::{Error, Result, nn::Model};

/// Memory for the rows that are read at once.
const READ_BYTES: usize = 8 << 20;

/// Gives a model the means and deviations of the features of each type, if it standardizes them. A column with a single value has
/// deviation 1.
pub(crate) fn measure_features(
    model: &Model,
    graph: &Graph,
    processes: &Processes,
    progress: &dyn Progress,
) -> Result<()> {
    (0..graph.node_types().len()).try_for_each(|node_type| measure_type(model, graph, node_type, processes, progress))
}

fn measure_type(
    model: &Model,
    graph: &Graph,
    node_type: usize,
    processes: &Processes,
    progress: &dyn Progress,
) -> Result<()> {
    let Some((mean, deviation)) = model.feature_moments(node_type) else {
        return Ok(());
    };
    let store = &graph.node_types()[node_type];
    if store.manifest().features.is_none() {
        // Embeddings are not normalized.
        return Ok(());
    }
    let features = store_features(store)?;
    let first_chunk = graph.positions().chunks_of(node_type).start;
    // The first rank of each host measures its chunks. On one host, each rank measures all.
    let chunks = store.present_chunks().filter(|&chunk| match processes.hosts.count() {
        1 => true,
        _ => processes.share_within().worker() == 0 && processes.trains(ChunkId(first_chunk + chunk.0)),
    });
    let chunks = chunks.map(|chunk| store.chunks().range(chunk));
    let mut moments = moments(&*features, chunks, progress)?;
    if let Some(column) = moments.mean.iter().chain(&moments.variance).position(|value| !value.is_finite()) {
        return Err(Error::NotFinite(format!(
            "--normalize-features standard: feature {} has values that are not finite; ingest without --allow-nan to get a list \
             of all such nodes",
            column % moments.mean.len()
        )));
    }
    if let Some(group) = processes.with_slices() {
        let all_moments = group.gather_all("moments of features", moments)?;
        moments = all_moments.into_iter().reduce(Moments::merged).expect("there is a rank");
    }
    no_grad(|| {
        mean.shallow_clone().copy_(&Tensor::from_slice(&moments.means()));
        deviation.shallow_clone().copy_(&Tensor::from_slice(&moments.deviations()));
    });
    Ok(())
}

/// Gives a model of targets the means and deviations of the training nodes' targets. A target with a single value has deviation 1.
pub(crate) fn measure_targets(model: &Model, data: &TrainingData, processes: &Processes) -> Result<()> {
    let Some((mean, deviation)) = model.target_moments() else {
        return Ok(());
    };
    let mut columns = vec![TargetMoments::default(); data.labels().spec().classes as usize];
    // As of features.
    if processes.hosts.count() == 1 || processes.share_within().worker() == 0 {
        for node in data.splits.train().iter().map(NodeId) {
            let values = data.labels().values(node)?;
            for (column, value) in columns.iter_mut().zip(values).filter(|(_, value)| !value.is_nan()) {
                column.add(value.into());
            }
        }
    }
    let mut moments: Vec<Moments> = columns.iter().map(TargetMoments::moments).collect();
    if let Some(group) = processes.with_slices() {
        let all_moments = group.gather_all("moments of targets", moments)?;
        moments = all_moments
            .into_iter()
            .reduce(|all, other| all.into_iter().zip(other).map(|(own, other)| own.merged(other)).collect())
            .expect("there is a rank");
    }
    if let Some(target) = moments.iter().position(|moments| moments.rows == 0) {
        return Err(Error::NoLabels(format!(
            "no training node has target {}: leave it out of --label, or add nodes that have it to --train",
            class_names::name(&data.store.schema()?.classes, target as u64)
        )));
    }
    let means: Vec<f32> = moments.iter().flat_map(Moments::means).collect();
    let deviations: Vec<f32> = moments.iter().flat_map(Moments::deviations).collect();
    let deviations: Vec<f32> = deviations.into_iter().map(|value| value.max(f32::MIN_POSITIVE)).collect();
    no_grad(|| {
        mean.shallow_clone().copy_(&Tensor::from_slice(&means));
        deviation.shallow_clone().copy_(&Tensor::from_slice(&deviations));
    });
    Ok(())
}

/// Sums of the values of a target, as differences to the first one.
#[derive(Debug, Clone, Copy, Default)]
struct TargetMoments {
    first: Option<f64>,
    rows: u64,
    sum: f64,
    squares: f64,
}

impl TargetMoments {
    fn add(&mut self, value: f64) {
        let difference = value - *self.first.get_or_insert(value);
        self.rows += 1;
        self.sum += difference;
        self.squares += difference * difference;
    }

    fn moments(&self) -> Moments {
        let count = self.rows.max(1) as f64;
        let variance = self.squares / count - (self.sum / count).powi(2);
        Moments {
            rows: self.rows,
            mean: vec![self.first.unwrap_or_default() + self.sum / count],
            variance: vec![variance.max(0.0)],
        }
    }
}

/// The mean and the variance of each column of some rows.
#[derive(Debug, Serialize, Deserialize)]
struct Moments {
    rows: u64,
    mean: Vec<f64>,
    variance: Vec<f64>,
}

impl Moments {
    /// The moments of the rows of both.
    fn merged(self, other: Self) -> Self {
        let rows = self.rows + other.rows;
        if self.rows == 0 || other.rows == 0 {
            return if self.rows == 0 { other } else { self };
        }
        let (own, others) = (self.rows as f64 / rows as f64, other.rows as f64 / rows as f64);
        let distances = self.mean.iter().zip(&other.mean).map(|(mean, other)| other - mean);
        let mean = self.mean.iter().zip(distances.clone()).map(|(mean, distance)| mean + distance * others);
        let variances = self.variance.iter().zip(&other.variance);
        let variance = variances
            .zip(distances)
            .map(|((variance, other), distance)| variance * own + other * others + distance * distance * own * others);
        Self { rows, mean: mean.collect(), variance: variance.collect() }
    }

    fn means(&self) -> Vec<f32> {
        self.mean.iter().map(|&mean| mean as f32).collect()
    }

    fn deviations(&self) -> Vec<f32> {
        self.variance
            .iter()
            // NaN stays.
            .map(|&variance| if variance == 0.0 { 1.0 } else { variance.sqrt() as f32 })
            .collect()
    }
}

/// The moments of the features of some ranges of nodes.
fn moments(
    features: &dyn NodeRows,
    ranges: impl Iterator<Item = Range<u64>>,
    progress: &dyn Progress,
) -> Result<Moments> {
    let width = features.width();
    let rows_max = (READ_BYTES / 4 / width).max(1) as u64;
    let (mut sums, mut squares) = (vec![0.0f64; width], vec![0.0f64; width]);
    let (mut first, mut rows) = (Vec::new(), Vec::new());
    let mut nodes = 0;
    let pieces = ranges.flat_map(|range| {
        let pieces = range.clone().step_by(rows_max as usize);
        pieces.map(move |start| start..(start + rows_max).min(range.end))
    });
    for range in pieces {
        check_stopped(progress)?;
        nodes += range.end - range.start;
        rows.resize((range.end - range.start) as usize * width, 0.0);
        features.read(range, &mut rows)?;
        if first.is_empty() {
            first = rows[..width].to_vec();
        }
        for row in rows.chunks_exact(width) {
            for (column, (value, first)) in row.iter().zip(&first).enumerate() {
                let difference = f64::from(*value) - f64::from(*first);
                sums[column] += difference;
                squares[column] += difference * difference;
            }
        }
    }
    let count = nodes as f64;
    let means = sums.iter().zip(&first);
    let variances = sums.iter().zip(&squares);
    Ok(Moments {
        rows: nodes,
        mean: means.map(|(sum, first)| f64::from(*first) + sum / count).collect(),
        variance: variances.map(|(sum, square)| (square / count - (sum / count).powi(2)).max(0.0)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use grappa_io::progress::Silent;

    use super::*;

    struct Rows(Vec<[f32; 3]>);

    impl NodeRows for Rows {
        fn width(&self) -> usize {
            3
        }

        fn read(&self, positions: Range<u64>, out: &mut [f32]) -> grappa_io::Result<()> {
            let rows = &self.0[positions.start as usize..positions.end as usize];
            out.copy_from_slice(rows.as_flattened());
            Ok(())
        }
    }

    #[test]
    fn moments_are_those_of_the_population_and_a_constant_column_has_deviation_one() {
        let rows = Rows(vec![[1.0, 5.0, 1e6], [3.0, 5.0, 1e6 + 1.0], [5.0, 5.0, 1e6 + 2.0]]);
        let together = moments(&rows, [0..2, 2..3].into_iter(), &Silent).unwrap();
        // Of several hosts; some have no nodes.
        let host_moments = |range: Range<u64>| {
            moments(&rows, std::iter::once(range).filter(|range| !range.is_empty()), &Silent).unwrap()
        };
        let apart = [0..0, 1..3, 0..0, 0..1].map(host_moments).into_iter().reduce(Moments::merged).unwrap();
        for moments in [together, apart] {
            assert_eq!(moments.rows, 3);
            assert_eq!(moments.means(), [3.0, 5.0, 1e6 + 1.0]);
            let expected = [(8.0f32 / 3.0).sqrt(), 1.0, (2.0f32 / 3.0).sqrt()];
            for (actual, expected) in moments.deviations().iter().zip(expected) {
                assert!((actual - expected).abs() < 1e-6, "{moments:?}");
            }
        }
        let nan = Rows(vec![[1.0, f32::NAN, 0.0], [1.0, 2.0, 3.0]]);
        assert!(moments(&nan, std::iter::once(0..2), &Silent).unwrap().mean[1].is_nan());
    }
}
