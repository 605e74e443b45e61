//! Edge features: they follow their edges through ingest, whatever the options, the memory, the threads and the kills.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path, sync::Arc};

use grappa_formats::{
    ChunkId, EdgePart, PartitionId,
    assignment::{Assignment, Owners},
    manifest::{EdgeOptions, ExternalIds, FeatureDtype, SelfLoops},
};
use grappa_ingestion::ingest::{EdgeSplit, IngestOptions, ingest};
use grappa_io::{npy, progress::Silent};
use grappa_sampling::{
    Loader, LoaderOptions, Seeds,
    feed::{MinibatchOptions, RowOptions},
    sample::{Fanouts, Join, Minibatch, Sampler},
    view::{Halo, ViewKind},
};
use grappa_storage::Store;

use crate::common::{files_of, interrupted, options};

/// Source, destination, and values: the weight and two features.
type Edge = (u64, u64, [f32; 3]);

const NODES: u64 = 300;

/// Edges with many parallel ones and self-loops. Values differ, and sums of them are exact.
fn edges(count: u64) -> Vec<Edge> {
    let number = |k: u64, factor: u64| k.wrapping_mul(factor) >> 7;
    (0..count)
        .map(|k| {
            let source = number(k, 0x9e37_79b9_7f4a_7c15) % 40;
            let target = number(k, 0xd6e8_feb8_6659_fd93) % if k % 3 == 0 { 20 } else { NODES };
            let value = |scale: u64| ((k * scale) % 512) as f32 - 128.0;
            (source, target, [value(7) + 200.0, value(13), value(31) / 4.0])
        })
        .collect()
}

fn write_text(path: &Path, edges: &[Edge], id: impl Fn(u64) -> String) {
    let mut text = "src,amount,dst,weight,hour\n".to_owned();
    for (source, target, [weight, amount, hour]) in edges {
        writeln!(text, "{},{amount},{},{weight},{hour}", id(*source), id(*target)).unwrap();
    }
    fs::write(path, text).unwrap();
}

fn with_columns(options: IngestOptions) -> IngestOptions {
    let mut options = options;
    options.edges.form.columns.features = vec!["amount".into(), "hour".into()];
    options
}

/// All edges of a store in external ids, in the order of the store, with their values.
fn edges_of(path: &Path) -> Vec<(String, String, Vec<f32>)> {
    edges_of_part(path, EdgePart::Graph)
}

fn edges_of_part(path: &Path, part: EdgePart) -> Vec<(String, String, Vec<f32>)> {
    let store = Store::open(path).unwrap();
    let dim = store.edge_features().unwrap().dim as usize;
    let mut found = Vec::new();
    for chunk in (0..store.chunks().chunks()).map(ChunkId) {
        let files = store.part_in_order(part, chunk).unwrap();
        let (rows, features) = (files.rows(), files.edge_features().unwrap());
        for row in 0..rows.rows() {
            let target = store.external_id((files.span().first_node.0 + row).into_node()).unwrap();
            let range = features.range(row, &rows).unwrap();
            let sources: Vec<u64> = rows.row(row).unwrap().iter().collect();
            let mut values = vec![0.0; sources.len() * dim];
            features.copy(range.clone(), &mut values).unwrap();
            let mut weights = vec![0.0; sources.len()];
            if let Some(file) = files.weights() {
                assert_eq!(file.range(row, &rows).unwrap(), range);
                file.copy(range, &mut weights).unwrap();
            }
            for (at, source) in sources.into_iter().enumerate() {
                let source = store.external_id(source.into_node()).unwrap();
                let features = &values[at * dim..][..dim];
                let weight = files.weights().map(|_| weights[at]);
                let values = weight.into_iter().chain(features.iter().copied()).collect();
                found.push((source.to_string(), target.to_string(), values));
            }
        }
    }
    found
}

trait IntoNode {
    fn into_node(self) -> grappa_formats::NodeId;
}

impl IntoNode for u64 {
    fn into_node(self) -> grappa_formats::NodeId {
        grappa_formats::NodeId(self)
    }
}

/// The edges that the store must have, by the definition of the options. `merge` makes one value of the values of parallel
/// edges, in the order of the input, for each column.
fn expected(edges: &[Edge], options: EdgeOptions, merge: [fn(&[f32]) -> f32; 3]) -> Vec<(u64, u64, Vec<f32>)> {
    let mut all = Vec::new();
    for &(source, target, values) in edges {
        if source == target && options.self_loops != SelfLoops::Keep {
            continue;
        }
        all.push((source, target, values.to_vec()));
        if options.undirected && source != target {
            all.push((target, source, values.to_vec()));
        }
    }
    if options.dedup {
        let mut merged: BTreeMap<(u64, u64), Vec<Vec<f32>>> = BTreeMap::new();
        for (source, target, values) in all {
            merged.entry((source, target)).or_default().push(values);
        }
        let column = |all: &[Vec<f32>], at: usize| merge[at](&all.iter().map(|v| v[at]).collect::<Vec<_>>());
        all = merged
            .into_iter()
            .map(|((source, target), all)| (source, target, (0..3).map(|at| column(&all, at)).collect()))
            .collect();
    }
    if options.self_loops == SelfLoops::Add {
        all.extend((0..NODES).map(|node| (node, node, vec![1.0, 0.0, 0.0])));
    }
    all
}

fn sorted<S: ToString>(edges: impl IntoIterator<Item = (S, S, Vec<f32>)>) -> Vec<(String, String, Vec<u32>)> {
    let mut all: Vec<_> = edges
        .into_iter()
        .map(|(source, target, values)| {
            let bits = values.iter().map(|value| value.to_bits()).collect();
            (source.to_string(), target.to_string(), bits)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn features_follow_their_edges_whatever_becomes_of_them() {
    let sum = |values: &[f32]| values.iter().sum();
    let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
    let first = |values: &[f32]| values[0];
    let last = |values: &[f32]| values[values.len() - 1];
    let min = |values: &[f32]| values.iter().copied().fold(f32::MAX, f32::min);
    let max = |values: &[f32]| values.iter().copied().fold(f32::MIN, f32::max);
    let folder = tempfile::tempdir().unwrap();
    let edges = edges(9000);
    let input = folder.path().join("edges.csv");
    write_text(&input, &edges, |id| id.to_string());
    type Rule = fn(&[f32]) -> f32;
    let cases: [(bool, SelfLoops, &str, [Rule; 3]); 6] = [
        (false, SelfLoops::Keep, "", [sum, sum, sum]),
        (true, SelfLoops::Add, "", [sum, sum, sum]),
        (true, SelfLoops::Drop, "sum", [sum, sum, sum]),
        (false, SelfLoops::Add, "amount=first,hour=last", [sum, first, last]),
        (true, SelfLoops::Keep, "hour=mean,weight=max,last", [max, last, mean]),
        (false, SelfLoops::Keep, "min,hour=max", [min, min, max]),
    ];
    for (case, (undirected, self_loops, merge, rules)) in cases.into_iter().enumerate() {
        let edge_options = EdgeOptions { undirected, dedup: !merge.is_empty(), self_loops };
        let mut options = with_columns(options(folder.path(), &input));
        options.edges.options = edge_options;
        options.nodes.number = Some(NODES);
        options.edges.merge = merge.split_terminator(',').map(|text| text.parse().unwrap()).collect();
        let wanted = sorted(expected(&edges, edge_options, rules));
        let mut stores = Vec::new();
        // In the smallest memory, shards are divided.
        for (memory, threads) in [(1 << 20, 1), (64 << 20, 3)] {
            options.out = folder.path().join(format!("{case}-{threads}.grappa"));
            (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) =
                (memory, threads, Some(3));
            ingest(&options, &Silent).unwrap();
            assert!(sorted(edges_of(&options.out)) == wanted, "{merge} {edge_options:?}");
            stores.push(files_of(&options.out));
        }
        assert!(stores[0] == stores[1], "the budget shows with {merge} {edge_options:?}");
    }
}

#[test]
fn edges_that_are_held_out_keep_their_features() {
    let folder = tempfile::tempdir().unwrap();
    let edges = edges(3000);
    let input = folder.path().join("edges.csv");
    write_text(&input, &edges, |id| id.to_string());
    let mut options = with_columns(options(folder.path(), &input));
    options.edges.split = Some(EdgeSplit::random("60/20/20".parse().unwrap(), 3).unwrap());
    ingest(&options, &Silent).unwrap();
    let mut all = Vec::new();
    for part in EdgePart::ALL {
        let found = edges_of_part(&options.out, part);
        assert!(found.len() > 200, "{} edges of {part}", found.len());
        all.extend(found);
    }
    let no_merge: [fn(&[f32]) -> f32; 3] = [|values| values[0]; 3];
    assert!(sorted(all) == sorted(expected(&edges, EdgeOptions::default(), no_merge)));
}

#[test]
fn ids_that_do_not_fit_in_memory_carry_features_through_the_join() {
    let folder = tempfile::tempdir().unwrap();
    let edges = edges(60_000);
    let input = folder.path().join("edges.csv");
    // Many ids, so that their table exceeds half of the smaller memory.
    let id = |node: u64| format!("n{node}");
    let mut with_ids: Vec<Edge> = edges.clone();
    with_ids.extend((0..60_000).map(|k| (1000 + k, 1000 + (k + 1) % 60_000, [1.0, k as f32, 0.5])));
    write_text(&input, &with_ids, id);
    let mut stores = Vec::new();
    for (memory, threads) in [(5 << 20, 2), (256 << 20, 1)] {
        let mut options = with_columns(options(folder.path(), &input));
        options.nodes.ids = ExternalIds::String;
        options.edges.options.dedup = true;
        options.edges.merge = vec!["amount=first".parse().unwrap(), "hour=last".parse().unwrap()];
        options.out = folder.path().join(format!("{threads}.grappa"));
        (options.resources.memory, options.resources.threads, options.nodes.layout.chunks) = (memory, threads, Some(2));
        ingest(&options, &Silent).unwrap();
        stores.push(files_of(&options.out));
    }
    assert!(stores[0] == stores[1], "the join shows");
    let rules: [fn(&[f32]) -> f32; 3] =
        [|values| values.iter().sum(), |values| values[0], |values| values[values.len() - 1]];
    let dedup = EdgeOptions { dedup: true, ..EdgeOptions::default() };
    let wanted = expected(&with_ids, dedup, rules);
    let wanted = wanted.into_iter().map(|(source, target, values)| (id(source), id(target), values));
    assert!(sorted(edges_of(&folder.path().join("1.grappa"))) == sorted(wanted));
}

#[test]
fn a_killed_ingest_of_edge_features_is_continued_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.csv");
    write_text(&input, &edges(20_000), |id| id.to_string());
    let mut options = with_columns(options(folder.path(), &input));
    options.edges.options.dedup = true;
    options.edges.merge = vec!["last".parse().unwrap()];
    (options.resources.memory, options.nodes.layout.chunks) = (1 << 20, Some(4));
    options.out = folder.path().join("whole.grappa");
    ingest(&options, &Silent).unwrap();
    let whole = files_of(&options.out);
    let mut kills = 0;
    for steps in [1, 3, 6, 10, 15] {
        options.out = folder.path().join(format!("{steps}.grappa"));
        options.resume = false;
        if interrupted(steps, |progress| ingest(&options, progress)) {
            kills += 1;
            options.resume = folder.path().join(format!("{steps}.grappa.partial")).exists();
            options.resources.threads = 1;
            ingest(&options, &Silent).unwrap();
        }
        assert!(files_of(&options.out) == whole, "killed at step {steps}");
    }
    assert!(kills > 2, "{kills} kills");
}

#[test]
fn arrays_of_features_have_the_type_of_the_file_or_of_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, descr: &str, shape: &[u64], data: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, [npy::header(descr, shape).to_vec(), data].concat()).unwrap();
        path
    };
    let edges =
        write("edges.npy", "<i8", &[3, 2], [0i64, 1, 1, 2, 2, 2].iter().flat_map(|id| id.to_le_bytes()).collect());
    // 1, 2, 0.5, -3, 4, 65504 in binary16.
    let halves = [0x3c00u16, 0x4000, 0x3800, 0xc200, 0x4400, 0x7bff];
    let halves = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
    let features = write("features.npy", "<f2", &[3, 2], halves);
    let mut options = options(folder.path(), &edges);
    options.edges.form.features = Some(features.into());
    let rows = [[1.0, 2.0], [0.5, -3.0], [4.0, 65504.0]];
    for (dtype, expected) in [
        (None, FeatureDtype::F16),
        (Some(FeatureDtype::F32), FeatureDtype::F32),
        (Some(FeatureDtype::Bf16), FeatureDtype::Bf16),
        (Some(FeatureDtype::Int8), FeatureDtype::Int8),
    ] {
        options.edges.form.feature_dtype = dtype;
        options.out = folder.path().join(format!("{}.grappa", expected.name()));
        ingest(&options, &Silent).unwrap();
        let store = Store::open(&options.out).unwrap();
        let layout = store.edge_features().unwrap();
        assert_eq!((layout.dtype, layout.dim), (expected, 2));
        let mut found = edges_of(&options.out);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        for ((source, target, values), (node, row)) in found.iter().zip((0..).zip(rows)) {
            assert_eq!((source, target), (&node.to_string(), &(node + 1).min(2).to_string()));
            let error = if expected == FeatureDtype::Int8 { 300.0 } else { 150.0 };
            assert!(values.iter().zip(row).all(|(a, b)| (a - b).abs() < error), "{values:?}");
        }
        if expected != FeatureDtype::Int8 {
            assert_eq!(found[0].2, rows[0]);
        }
    }
}

#[test]
fn features_without_a_meaning_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.csv");
    fs::write(&input, "src,dst,a,b\n0,1,2,70000\n1,2,3,4\n").unwrap();
    let base = |features: &[&str]| {
        let mut options = options(folder.path(), &input);
        options.edges.form.columns.source = Some("src".into());
        options.edges.form.columns.target = Some("dst".into());
        options.edges.form.columns.features = features.iter().map(|&name| name.to_owned()).collect();
        options
    };
    let refused = |options: &IngestOptions, parts: &[&str]| {
        let error = ingest(options, &Silent).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let mut options = base(&["a", "b"]);
    options.edges.options.dedup = true;
    refused(&options, &["a, b", "--merge a=sum", "for all features"]);
    options.edges.merge = vec!["a=sum".parse().unwrap()];
    refused(&options, &["features b", "--merge b=sum"]);
    options.edges.merge = vec!["c=sum".parse().unwrap()];
    refused(&options, &["called c", "a, b"]);
    options.edges.options.dedup = false;
    refused(&options, &["--merge c=sum", "add --dedup"]);
    let mut options = base(&["a", "b"]);
    options.edges.form.feature_dtype = Some(FeatureDtype::F16);
    refused(&options, &["b of the edge from 0 to 1 is 70000", "f16", "--edge-feature-dtype bf16 or f32"]);
    let mut options = base(&[]);
    options.edges.form.feature_dtype = Some(FeatureDtype::F16);
    refused(&options, &["no features", "--edge-features-from"]);
}

/// Deals chunks to partitions in turn.
fn assignment(store: &Store, partitions: u32) -> Assignment {
    let owners =
        (0..store.chunks().chunks()).map(|chunk| Owners { base: PartitionId(chunk % partitions), variable: None });
    Assignment::from_owners(1, partitions, "fixed", &owners.collect::<Vec<_>>())
}

/// Batches of all nodes. Checks that the features of each edge are its ends.
fn batches_of(store: &Arc<Store>, loading: &LoaderOptions, partitions: u32) -> Vec<Minibatch> {
    let external = |node| store.external_id(node).unwrap().to_string().parse::<f32>().unwrap();
    let mut loader = Loader::new(store, loading.clone());
    loader.partition(&assignment(store, partitions), &Seeds::All, &Silent).unwrap();
    let (mut minibatches, mut edges) = (Vec::new(), 0);
    for batch in loader.epoch(0).unwrap() {
        let minibatch = batch.unwrap().minibatch().clone();
        for (hop, block) in minibatch.blocks.iter().enumerate() {
            assert_eq!(block.edge_ids.len(), block.indices.len());
            for target in 0..block.destinations {
                for edge in block.edges_of(target) {
                    let source = block.indices[edge] as usize;
                    // The sources of a block are the destinations of the next one.
                    let source = match hop + 1 == minibatch.blocks.len() {
                        true => minibatch.nodes[source],
                        false => minibatch.destination(source),
                    };
                    let ends = [external(source), external(minibatch.destination(target))];
                    assert_eq!(block.edge_features[2 * edge..][..2], ends);
                }
            }
            edges += block.indices.len();
        }
        minibatches.push(minibatch);
    }
    assert!(edges > 1000, "{edges} edges");
    minibatches
}

#[test]
fn sampled_edges_bring_their_features_from_any_view_in_any_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut edges = edges(9000);
    for (source, target, values) in &mut edges {
        values[1..].copy_from_slice(&[*source as f32, *target as f32]);
    }
    let input = folder.path().join("edges.csv");
    write_text(&input, &edges, |id| id.to_string());
    let mut options = with_columns(options(folder.path(), &input));
    options.nodes.layout.chunks = Some(6);
    ingest(&options, &Silent).unwrap();
    let store = Arc::new(Store::open(&options.out).unwrap());
    let fanouts: Fanouts = "4,-1".parse().unwrap();
    let by_weight = Sampler::by_weight(fanouts.clone(), false).with_edge_weights();
    for sampler in [
        Sampler::uniform(fanouts.clone(), false).drawing_once(),
        Sampler::uniform(fanouts, false).with_edge_weights(),
        by_weight.clone(),
    ] {
        for (partitions, halo, join_steps) in [
            (1, Halo::Stop, None),
            (3, Halo::Stop, Some(Join::SharedInput)),
            (2, Halo::None, Some(Join::Apart)),
            (3, Halo::Neighbors, Some(Join::Apart)),
        ] {
            // In-neighbors of halo nodes are not drawn by weight.
            if halo == Halo::Neighbors && sampler == by_weight {
                continue;
            }
            let mut loading = LoaderOptions {
                halo,
                rows: RowOptions::default(),
                edge_features: true,
                memory: 64 << 20,
                ..LoaderOptions::new(MinibatchOptions {
                    batch: 64,
                    join_steps,
                    ..MinibatchOptions::new(sampler.clone().with_edge_ids())
                })
            };
            let expected = batches_of(&store, &loading, partitions);
            for (view, concurrent, memory) in [
                (ViewKind::Mapped, None, 64 << 20),
                (ViewKind::InTurn, Some(1), 64 << 20),
                (ViewKind::Mapped, None, 4 << 20),
            ] {
                (loading.view, loading.concurrent, loading.memory) = (view, concurrent, memory);
                let found = batches_of(&store, &loading, partitions);
                assert!(concurrent.is_some() || found == expected, "{view} {halo:?}");
            }
        }
    }
}

#[test]
fn stores_without_features_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("edges.csv");
    write_text(&input, &edges(3000), |id| id.to_string());
    let mut without = options(folder.path(), &input);
    without.out = folder.path().join("without.grappa");
    (without.edges.form.columns.source, without.edges.form.columns.target) = (Some("src".into()), Some("dst".into()));
    ingest(&without, &Silent).unwrap();
    let store = Arc::new(Store::open(&without.out).unwrap());
    let loading = LoaderOptions {
        rows: RowOptions::default(),
        edge_features: true,
        memory: 64 << 20,
        ..LoaderOptions::new(MinibatchOptions::new(Sampler::uniform("4,4".parse().unwrap(), false).with_edge_ids()))
    };
    let opened = Loader::new(&store, loading).partition(&assignment(&store, 1), &Seeds::All, &Silent);
    let error = opened.unwrap_err().to_string();
    assert!(error.contains("edge features") && error.contains("--edge-features-from"), "{error}");
}
