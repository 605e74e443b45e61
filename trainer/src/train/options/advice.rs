//! Hints for a user whose data suggest other options, before the first epoch.

use std::sync::Arc;

use grappa_engine::aggregate::store_features;
use grappa_formats::{aggregates::AggregateKind, manifest::LabelKind};
use grappa_io::{
    machine::{MemoryLimit, free_memory_bytes},
    size::ByteSize,
};
use grappa_run::{
    config::TrainConfig,
    model::{FeatureNorm, Task},
    scores::ScoreReport,
};
use grappa_sampling::{
    partition::Owned,
    view::{EdgeData, GraphView, Halo},
};
use grappa_storage::{Graph, Store, aggregates::Aggregates};

use super::first_hop;

use crate::Result;

/// Features whose largest values differ by this factor are worth a warning.
const SCALES_NOTED: f32 = 1000.0;
/// Bytes of features that are looked at.
const LOOKED_AT_BYTES: usize = 1 << 20;

const GIB: u64 = 1 << 30;
/// Memory that is advised for minibatches, besides an eighth of what stays in memory.
const ADVICE_BUFFERS: u64 = GIB;

/// Memory of a process besides `--memory`: code, libtorch, and a small model. R-MAT 21 with 256 MiB was killed in a container of 512 MiB,
/// and was not with 640 MiB.
const PROCESS_BYTES: u64 = 350 << 20;

/// Warnings about the labels of a node type, and about features of the graph, that hardly let a model learn.
pub(crate) fn of_data(graph: &Graph, target: usize, normalize: FeatureNorm) -> Result<Vec<String>> {
    let labels = graph.node_types()[target].manifest().labels;
    let has_one_class = labels.is_some_and(|labels| labels.kind == LabelKind::Single && labels.classes == 1);
    let one_class = has_one_class.then(|| {
        "all labels are of one class, so every model is right about every node: are these the labels that you mean?"
            .to_owned()
    });
    let mut warnings = Vec::from_iter(one_class);
    if normalize == FeatureNorm::None {
        for (entry, store) in graph.manifest().node_types.iter().zip(graph.node_types()) {
            let warning = scales_of(store)?;
            warnings.extend(warning.map(|warning| match graph.has_types() {
                true => format!("nodes of type {}: {warning}", entry.name),
                false => warning,
            }));
        }
    }
    Ok(warnings)
}

/// A warning if features of the first nodes have very different scales.
fn scales_of(store: &Store) -> Result<Option<String>> {
    let (Some(chunk), Some(_)) = (store.present_chunks().next(), &store.manifest().features) else {
        return Ok(None);
    };
    let features = store_features(store)?;
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
    let scales = largest.iter().enumerate().filter(|(_, scale)| **scale > 0.0);
    let (most, high) = scales.clone().max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let (least, low) = scales.min_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let [most, least] = [most, least].map(|feature| match names.get(feature) {
        Some(name) => name.clone(),
        None => format!("feature {feature} (counted from 0)"),
    });
    (high / low >= SCALES_NOTED).then(|| {
        format!(
            "features differ by orders of magnitude: {most} goes up to {high:.3e} and {least} up to {low:.3e}, so the model hardly sees the second; \
             try --normalize-features standard"
        )
    })
}

/// Advice to give more memory than the default, if the graph and its features exceed that, and fit into what is free. None for a budget
/// that the user chose.
pub(crate) fn memory_advice(
    graph: &Graph,
    aggregates: Option<AggregateKind>,
    memory: ByteSize,
) -> Result<Option<String>> {
    let default = TrainConfig::default().memory;
    if memory != default {
        return Ok(None);
    }
    let lists = GraphView::bytes_in_memory(graph, &Owned::whole_graph(graph), Halo::Stop, EdgeData::default());
    let aggregates = aggregates.map(|kind| first_hop::opened(graph, kind)).transpose()?.flatten().unwrap_or_default();
    let has_features_beside = aggregates.iter().any(Aggregates::with_features);
    let of_type = |store: &Arc<Store>| match store.manifest().stored_features() {
        Some(spec) if !has_features_beside => store.feature_nodes().saturating_mul(u64::from(spec.row_stride)),
        _ => 0,
    };
    let features = graph.node_types().iter().map(of_type).fold(0, u64::saturating_add);
    let rows = aggregates.iter().map(Aggregates::bytes).fold(features, u64::saturating_add);
    Ok(larger_memory(lists.saturating_add(rows), default.0, free_memory_bytes()))
}

/// A warning about budgets of `processes` processes of this host that leave no room for libtorch in its memory, or in the memory of a container
/// or job.
pub(crate) fn limit_warning(memory: ByteSize, processes: u32, limit: Option<MemoryLimit>) -> Option<String> {
    let (bytes, owner) = match limit? {
        MemoryLimit::OfMachine(bytes) => (bytes, "memory of this machine"),
        MemoryLimit::OfGroup(bytes) => (bytes, "memory limit of this container or job"),
    };
    if (memory.0.saturating_add(PROCESS_BYTES)).saturating_mul(u64::from(processes)) <= bytes {
        return None;
    }
    let each = match processes {
        1 => String::new(),
        _ => format!(" for each of the {processes} processes of this host,"),
    };
    Some(format!(
        "--memory {memory}, and about {} for libtorch and a small model,{each} exceed {}, the {owner}: the kernel may end training \
         without a word; give a smaller --memory",
        ByteSize(PROCESS_BYTES),
        ByteSize(bytes)
    ))
}

fn larger_memory(bytes: u64, default: u64, free: Option<u64>) -> Option<String> {
    let buffers = bytes / 8 + ADVICE_BUFFERS;
    let needed = bytes.saturating_add(buffers).div_ceil(GIB).saturating_mul(GIB);
    let is_more = bytes.saturating_add(bytes / 16) > default;
    let free = free.filter(|&free| is_more && needed <= free / 4 * 3)?;
    Some(format!(
        "adjacency lists and features take {} and exceed the default of --memory, {}: with --memory {}GiB they stay in memory, and \
         epochs need no disk; {} are free",
        ByteSize(bytes),
        ByteSize(default),
        needed / GIB,
        ByteSize(free)
    ))
}

/// The accuracy of a model that predicts the largest class for every node. None for sets of classes, and without nodes.
pub(crate) fn majority_baseline(task: Task, report: &ScoreReport) -> Option<f64> {
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
        for (names, parts) in grappa_skip::cases![
            &names[..], ["income goes up to 2.000e5", "age up to 5.000e-1"];
            &[], ["feature 1 (counted from 0) goes up to 2.000e5", "feature 0 (counted from 0) up to 5.000e-1"];
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

    #[test]
    fn budgets_beyond_the_memory_of_a_machine_or_container_are_a_warning() {
        let warning = |processes, limit| limit_warning(ByteSize(4 * GIB), processes, limit);
        let container = warning(1, Some(MemoryLimit::OfGroup(2 * GIB))).expect("it exceeds the limit");
        assert!(container.contains("small model, exceed 2.0 GiB, the memory limit of this container"), "{container}");
        let machine = warning(3, Some(MemoryLimit::OfMachine(8 * GIB))).expect("12 GiB exceed 8");
        assert!(
            machine.contains("for each of the 3 processes of this host, exceed 8.0 GiB, the memory of this machine"),
            "{machine}"
        );
        assert_eq!(warning(2, Some(MemoryLimit::OfMachine(9 * GIB))), None);
        assert!(warning(1, Some(MemoryLimit::OfGroup(4 * GIB + GIB / 4))).is_some());
        assert_eq!(warning(1, None), None);
    }

    #[test]
    fn more_memory_is_advised_where_it_is_free_and_helps() {
        let advice = |bytes, free| larger_memory(bytes * GIB, 4 * GIB, free);
        let given = advice(8, Some(64 * GIB)).expect("8 GiB exceed 4, and 64 are free");
        assert!(given.contains("take 8.0 GiB") && given.contains("--memory 10GiB"), "{given}");
        assert_eq!(advice(3, Some(64 * GIB)), None);
        assert_eq!(advice(8, Some(12 * GIB)), None);
        assert_eq!(advice(8, None), None);
        assert_eq!(larger_memory(u64::MAX, 4 * GIB, Some(64 * GIB)), None);
    }
}
