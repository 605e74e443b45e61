//! Aggregation against a loop over all edges, in any memory.

mod node_rows;
mod stream;
mod whole_graph;

use std::{ops::Range, path::Path, sync::Mutex, thread};

use grappa_formats::{
    NodeId,
    manifest::{FeatureDtype, FeatureSource},
};
use grappa_ingestion::generate::store::{FeatureOptions, StoreOptions, generate_store};
use grappa_io::{Error, Result, progress::Silent};
use grappa_sampling::{EdgeValues, InNeighbors, List, ListScratch, NeighborSample, NodeSet};
use grappa_storage::{MappedChunks, Store};
use grappa_synthetic::{Model, Recipe, Rmat};

use super::{reduce::PART, *};
use crate::tests::sample::in_folder;

const DIM: usize = 11;

fn store(folder: &Path, source: FeatureSource, dtype: FeatureDtype) -> Store {
    store_of(Rmat::graph500(9, 8.0), DIM, folder, source, dtype)
}

fn store_of(rmat: Rmat, dim: usize, folder: &Path, source: FeatureSource, dtype: FeatureDtype) -> Store {
    store_of_model(Model::Rmat(rmat), dim, folder, source, dtype)
}

fn store_of_model(model: Model, dim: usize, folder: &Path, source: FeatureSource, dtype: FeatureDtype) -> Store {
    let out = folder.join("graph.grappa");
    generate_store(
        &StoreOptions {
            chunks: Some(5),
            features: Some(FeatureOptions::new(dim as u32, dtype, source)),
            ..StoreOptions::new(Recipe::new(model, 3), &out)
        },
        &Silent,
    )
    .unwrap();
    Store::open(&out).unwrap()
}

/// Sources of each node, and all rows.
fn whole(store: &Store, rows: &dyn NodeRows) -> (Vec<Vec<u64>>, Vec<Vec<f32>>) {
    let mut sources = Vec::new();
    for chunk in store.present_chunks() {
        let chunk = store.chunk(chunk).unwrap();
        sources.extend(chunk.rows().range(0..chunk.rows().rows()).map(|row| row.unwrap().iter().collect::<Vec<_>>()));
    }
    let mut values = vec![0.0; sources.len() * rows.width()];
    rows.read(0..sources.len() as u64, &mut values).unwrap();
    let values = values.chunks_exact(rows.width()).map(<[f32]>::to_vec).collect();
    (sources, values)
}

/// Aggregates over the whole graph. Rows that are read many times are copied to the store's folder.
fn aggregate<R: Reduce>(
    store: &Store,
    rows: &dyn NodeRows,
    reduce: &R,
    first: u64,
    budget: Budget,
    sink: &mut Sink<'_>,
) -> Result<()> {
    let scratch = Some(store.path());
    let graph = WholeGraph { relation: store.into(), rows, edge_values: EdgeValues::Nothing, budget, scratch };
    graph.run(reduce, first, &Silent, sink).map(drop)
}

fn aggregated<R: Reduce>(
    store: &Store,
    rows: &dyn NodeRows,
    reduce: &R,
    memory: u64,
    threads: usize,
) -> (Vec<f32>, usize) {
    let (mut all, mut tiles) = (Vec::new(), 0);
    aggregate(store, rows, reduce, 0, Budget { memory, threads }, &mut |nodes, states| {
        assert_eq!(nodes.start as usize * reduce.state_width(), all.len());
        all.extend_from_slice(states);
        tiles += 1;
        Ok(())
    })
    .unwrap();
    (all, tiles)
}

/// Reduces each list part by part.
fn naive(sources: &[Vec<u64>], rows: &[Vec<f32>], reduce: &impl Reduce) -> Vec<f32> {
    sources
        .iter()
        .flat_map(|sources| {
            let mut state = vec![0.0; reduce.state_width()];
            reduce.begin(&[], &mut state);
            for (i, part) in sources.chunks(PART as usize).enumerate() {
                let mut of_part = vec![0.0; reduce.state_width()];
                reduce.begin_part(&[], &mut of_part);
                let target = if i == 0 { &mut state } else { &mut of_part };
                part.iter().for_each(|&source| reduce.add(target, &rows[source as usize]));
                if i > 0 {
                    reduce.merge(&mut state, &of_part);
                }
            }
            reduce.finish(ListSize::whole(sources.len() as u64), &mut state);
            state
        })
        .collect()
}

/// Compares aggregations with a loop over all edges. Each memory comes with the least number of tiles that it needs.
fn check<R: Reduce>(store: &Store, reduce: &R, memories: &[(u64, usize)]) {
    let features = store_features(store).unwrap();
    let (sources, rows) = whole(store, &*features);
    let expected = naive(&sources, &rows, reduce);
    for &(memory, tiles_min) in memories {
        for threads in [1, 2, 3] {
            let (found, tiles) = aggregated(store, &*features, reduce, memory, threads);
            assert!(found == expected, "{memory} bytes, {threads} threads");
            assert!(tiles >= tiles_min, "{tiles} tiles in {memory} bytes");
        }
    }
}

fn lengths(store: &Store) -> Vec<usize> {
    whole(store, &*store_features(store).unwrap()).0.iter().map(Vec::len).collect()
}

#[test]
fn any_memory_and_any_threads_give_the_same_bits() {
    const MEMORIES: [(u64, usize); 3] = [(1 << 20, 1), (40_000, 2), (20_000, 3)];
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Int8] {
        let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, dtype));
        let lengths = lengths(&store);
        assert!(lengths.contains(&0) && lengths.iter().any(|&length| length > 50));
        check(&store, &Mean { width: DIM }, &MEMORIES);
        check(&store, &Sum { width: DIM }, &MEMORIES);
        check(&store, &Max { width: DIM }, &MEMORIES);
    }
}

#[test]
fn lists_of_hubs_in_parts_and_pieces_give_the_same_bits() {
    // The rows exceed the smaller memory, so they are streamed.
    const MEMORIES: [(u64, usize); 2] = [(500_000, 2), (16 << 20, 1)];
    let (dim, rmat) = (256, Rmat::graph500(9, 600.0));
    let (_folder, store) = in_folder(|folder| store_of(rmat, dim, folder, FeatureSource::Stored, FeatureDtype::F32));
    assert!(lengths(&store).into_iter().any(|length| length > 20_000));
    check(&store, &Mean { width: dim }, &MEMORIES);
    check(&store, &Max { width: dim }, &MEMORIES);
}

#[test]
fn the_error_of_a_long_sum_is_that_of_a_part() {
    let folder = tempfile::tempdir().unwrap();
    let rmat = Rmat::graph500(3, 50_000.0);
    let store = store_of(rmat, 1, folder.path(), FeatureSource::Stored, FeatureDtype::F32);
    let mut rows = StateRows::new(8, 1).unwrap();
    rows.values_mut().fill(0.1);
    let (means, _) = aggregated(&store, &rows, &Mean { width: 1 }, 1 << 20, 1);
    let (lists, _) = whole(&store, &rows);
    let longest = lists.iter().map(Vec::len).max().unwrap();
    let naive = std::iter::repeat_n(0.1, longest).sum::<f32>() / longest as f32;
    assert!((naive - 0.1).abs() > 1e-4, "{naive} is the mean of a sum of {longest} rows");
    for (mean, list) in means.iter().zip(&lists) {
        assert!((mean - 0.1).abs() < 1e-5, "{mean} of {} rows", list.len());
    }
}

#[test]
fn reductions_do_what_their_names_say() {
    let rows: [&[f32]; 3] = [&[1.0, -5.0], &[2.0, -7.0], &[6.0, -6.0]];
    fn reduced(reduce: &impl Reduce, rows: &[&[f32]]) -> Vec<f32> {
        let mut state = vec![9.0; 2];
        reduce.begin(&[], &mut state);
        rows.iter().for_each(|row| reduce.add(&mut state, row));
        reduce.finish(ListSize::whole(rows.len() as u64), &mut state);
        state
    }
    assert_eq!(reduced(&Sum { width: 2 }, &rows), [9.0, -18.0]);
    assert_eq!(reduced(&Mean { width: 2 }, &rows), [3.0, -6.0]);
    assert_eq!(reduced(&Max { width: 2 }, &rows), [6.0, -5.0]);
    for reduce in [reduced(&Sum { width: 2 }, &[]), reduced(&Mean { width: 2 }, &[]), reduced(&Max { width: 2 }, &[])] {
        assert_eq!(reduce, [0.0, 0.0]);
    }
}

#[test]
fn the_normalized_sum_is_that_of_the_paper() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F16));
    let features = store_features(&store).unwrap();
    let (sources, rows) = whole(&store, &*features);
    let scaled = ScaledRows::new(&*features, &store).unwrap();
    let (found, _) = aggregated(&store, &scaled, &GcnSum { width: DIM }, 30_000, 2);
    let weight = |u: u64, v: usize| {
        let degree = |node: usize| sources[node].len() as f64 + 1.0;
        1.0 / (degree(u as usize) * degree(v)).sqrt()
    };
    for (v, found) in found.chunks_exact(DIM).enumerate() {
        for (i, &found) in found.iter().enumerate() {
            let neighbors = sources[v].iter().copied();
            let expected: f64 = neighbors.map(|u| weight(u, v) * f64::from(rows[u as usize][i])).sum();
            assert!((f64::from(found) - expected).abs() < 1e-5, "node {v}: {found} for {expected}");
        }
    }
}

#[test]
fn samples_of_in_neighbors_give_the_same_bits_in_any_memory() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let nodes = store.manifest().nodes;
    let features = store_features(&store).unwrap();
    let (sources, rows) = whole(&store, &*features);
    let chunks = MappedChunks::open(&store).unwrap();
    let all = NodeSet::all(nodes);
    let sample = |per_node, replace| NeighborSample { per_node, replace, seed: 9 };
    fn states<R: Reduce>(aggregation: &Aggregation<'_>, reduce: &R) -> Vec<f32> {
        let mut states = Vec::new();
        let mut sink = |_: Range<u64>, of_tile: &mut Vec<f32>| {
            states.extend_from_slice(of_tile);
            Ok(())
        };
        aggregation.run(reduce, 0, None, &Silent, &mut sink).unwrap();
        states
    }
    for (per_node, replace) in [(3, false), (3, true), (1000, false)] {
        let lists = InNeighbors::sampled(&chunks, Some(sample(per_node, replace)));
        let mut drawn: Vec<(u64, Vec<u64>)> = Vec::new();
        let members: Vec<NodeId> = (0..nodes).map(NodeId).collect();
        let mut take = |_: usize, list: List<'_>| {
            let mut found = Vec::new();
            list.decode_into(&mut found);
            assert_eq!(found.len() as u64, list.len());
            drawn.push((list.degree(), found));
            Ok(())
        };
        lists.each(&members, &mut ListScratch::default(), &mut take).unwrap();
        for (node, (degree, drawn)) in drawn.iter().enumerate() {
            let of_node = &sources[node];
            assert_eq!(*degree, of_node.len() as u64);
            let expected = match replace && *degree > 0 {
                true => per_node as usize,
                false => of_node.len().min(per_node as usize),
            };
            assert_eq!(drawn.len(), expected);
            assert!(drawn.is_sorted() && drawn.iter().all(|source| of_node.contains(source)));
        }
        let naive = |reduce: &dyn Fn(ListSize, &[u64]) -> Vec<f32>| -> Vec<f32> {
            let state = |(degree, drawn): &(u64, Vec<u64>)| {
                let size = ListSize { degree: *degree, added: drawn.len() as u64 };
                reduce(size, drawn)
            };
            drawn.iter().flat_map(state).collect()
        };
        let sum_of = |drawn: &[u64]| {
            let mut sum = vec![0.0; DIM];
            drawn.iter().for_each(|&source| Sum { width: DIM }.add(&mut sum, &rows[source as usize]));
            sum
        };
        let means = naive(&|size, drawn| {
            let factor = 1.0 / size.added.max(1) as f32;
            sum_of(drawn).into_iter().map(|sum| sum * factor).collect()
        });
        let sums = naive(&|size, drawn| {
            let scale = match size.added {
                0 => 1.0,
                added => (size.degree as f64 / added as f64) as f32,
            };
            sum_of(drawn).into_iter().map(|sum| sum * scale).collect()
        });
        for memory in [1 << 20, 40_000, 20_000] {
            for threads in [1, 3] {
                let aggregation = Aggregation {
                    store: &store,
                    lists,
                    sources: &all,
                    rows: &*features,
                    destinations: &all,
                    budget: Budget { memory, threads },
                };
                assert!(states(&aggregation, &Mean { width: DIM }) == means, "{memory} bytes");
                assert!(states(&aggregation, &Sum { width: DIM }) == sums, "{memory} bytes");
            }
        }
    }
}

#[test]
fn one_in_neighbor_is_drawn_with_equal_chances() {
    const SEEDS: usize = 2000;
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let nodes = store.manifest().nodes;
    let (sources, _) = whole(&store, &*store_features(&store).unwrap());
    // Rows that tell the node.
    let mut ids = StateRows::new(nodes, 1).unwrap();
    let numbers: Vec<f32> = (0..nodes).map(|node| node as f32).collect();
    ids.write(0, &numbers).unwrap();
    let all = NodeSet::all(nodes);
    let drawn = |seed, threads| {
        let drawn = DrawnNeighbors::draw(&MappedChunks::open(&store).unwrap(), &all, seed, threads, &Silent).unwrap();
        let mut rows = StateRows::new(nodes, 1).unwrap();
        drawn.gather(&ids, &all, threads, &mut rows).unwrap();
        rows.values_mut().to_vec()
    };
    let draws: Vec<Vec<f32>> = (0..SEEDS as u64).map(|seed| drawn(seed, 1)).collect();
    assert!(drawn(3, 2) == draws[3] && drawn(3, 3) == draws[3]);
    for (node, sources) in sources.iter().enumerate() {
        let of_node = || draws.iter().map(|draw| draw[node] as u64);
        if sources.is_empty() {
            assert!(of_node().all(|source| source == 0));
            continue;
        }
        for source in sources {
            let times = of_node().filter(|drawn| drawn == source).count() as f64;
            let parallel = sources.iter().filter(|other| *other == source).count();
            let chance = parallel as f64 / sources.len() as f64;
            let mean = SEEDS as f64 * chance;
            // Six standard deviations: one in half a billion, of some thousand edges.
            let bound = 6.0 * (mean * (1.0 - chance)).sqrt() + 1e-9;
            assert!((times - mean).abs() <= bound, "{source} of {node}: {times} of {mean}");
        }
    }
}

#[test]
fn draws_of_a_set_are_those_of_the_same_nodes_in_any_other() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let nodes = store.manifest().nodes;
    let features = store_features(&store).unwrap();
    let rows = |nodes: &NodeSet, rows: &dyn NodeRows, rows_of: &NodeSet| {
        let mut out = StateRows::new(nodes.len(), DIM).unwrap();
        let drawn = DrawnNeighbors::draw(&MappedChunks::open(&store).unwrap(), nodes, 5, 2, &Silent).unwrap();
        drawn.gather(rows, rows_of, 2, &mut out).unwrap();
        (drawn, out)
    };
    let all = NodeSet::all(nodes);
    let (_, mut of_all) = rows(&all, &*features, &all);
    let some = NodeSet::from_members(nodes, (0..nodes).filter(|node| node % 3 == 1).map(NodeId));
    let drawn = DrawnNeighbors::draw(&MappedChunks::open(&store).unwrap(), &some, 5, 1, &Silent).unwrap();
    // Rows of the neighbors alone are enough.
    let neighbors = NodeSet::from_members(nodes, drawn.nodes());
    assert!(neighbors.len() < nodes);
    let selected = SelectedRows { rows: &*features, set: &neighbors };
    let (_, mut of_some) = rows(&some, &selected, &neighbors);
    let expected: Vec<f32> = of_all.values_mut().chunks(DIM).skip(1).step_by(3).flatten().copied().collect();
    assert_eq!(of_some.values_mut(), expected);
}

#[test]
fn memory_too_small_for_a_row_names_what_suffices() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let mean = Mean { width: DIM };
    for threads in [1, 3] {
        let run = |memory| {
            let budget = Budget { memory, threads };
            aggregate(&store, &*features, &mean, 0, budget, &mut |_, _| Ok(()))
        };
        let mut refused = 0;
        for memory in (500..20_000).step_by(2000) {
            let Err(error) = run(memory) else { continue };
            let Error::Budget { given, least, .. } = error else {
                panic!("{error}");
            };
            assert_eq!(given, memory);
            for more in [0, 1000, least / 3] {
                run(least + more).unwrap_or_else(|error| panic!("{error}: {least} + {more} after {memory}"));
            }
            refused += 1;
        }
        assert!((2..10).contains(&refused), "{refused} budgets were refused");
    }
}

#[test]
fn a_failing_sink_ends_it() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let calls = Mutex::new(0);
    let budget = Budget::new(8_000, 2);
    let result = aggregate(&store, &*features, &Mean { width: DIM }, 0, budget, &mut |_, _| {
        *calls.lock().unwrap() += 1;
        Err(Error::Stopped)
    });
    assert!(matches!(result, Err(Error::Stopped)));
    assert_eq!(calls.into_inner().unwrap(), 1);
}

#[test]
fn a_part_of_the_nodes_is_aggregated_alone() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let mean = Mean { width: DIM };
    let (whole, _) = aggregated(&store, &*features, &mean, 1 << 20, 2);
    for first in [0, 100, 511, 512] {
        let (mut part, budget) = (Vec::new(), Budget::new(20_000, 2));
        aggregate(&store, &*features, &mean, first, budget, &mut |_, states| {
            part.extend_from_slice(states);
            Ok(())
        })
        .unwrap();
        assert!(part == whole[first as usize * DIM..], "from {first}");
    }
}

/// All chunks of nodes with a certain remainder, and their in-neighbors: sets with gaps and runs.
fn some_nodes(store: &Store) -> NodeSet {
    let nodes = store.manifest().nodes;
    NodeSet::from_members(nodes, (0..nodes).filter(|node| node % 7 < 2).map(NodeId))
}

#[test]
fn in_neighbors_of_a_set_are_those_of_its_adjacency_lists() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let (sources, _) = whole(&store, &*store_features(&store).unwrap());
    let set = some_nodes(&store);
    let chunks = MappedChunks::open(&store).unwrap();
    for threads in [1, 3] {
        let (reached, edges) = InNeighbors::all(&chunks).with_sources(&set, threads, &Silent).unwrap();
        let mut expected: Vec<bool> = (0..sources.len()).map(|node| node % 7 < 2).collect();
        let mut listed = 0;
        for (_, list) in sources.iter().enumerate().filter(|(node, _)| node % 7 < 2) {
            list.iter().for_each(|&source| expected[source as usize] = true);
            listed += list.len() as u64;
        }
        let found: Vec<bool> = (0..sources.len() as u64).map(|node| reached.contains(NodeId(node))).collect();
        assert!(found == expected && !reached.is_all());
        assert_eq!(edges, listed);
    }
    let all = NodeSet::all(store.manifest().nodes);
    let (reached, edges) = InNeighbors::all(&chunks).with_sources(&all, 2, &Silent).unwrap();
    assert!(reached.is_all());
    assert_eq!(edges, store.manifest().edges);
}

#[test]
fn a_set_of_destinations_gets_the_bits_of_the_whole_graph() {
    let (_folder, store) = in_folder(|folder| store(folder, FeatureSource::Stored, FeatureDtype::F32));
    let features = store_features(&store).unwrap();
    let (_, own) = whole(&store, &*features);
    let mean = Mean { width: DIM };
    let (all, _) = aggregated(&store, &*features, &mean, 1 << 20, 2);
    let destinations = some_nodes(&store);
    let chunks = MappedChunks::open(&store).unwrap();
    let (sources, _) = InNeighbors::all(&chunks).with_sources(&destinations, 2, &Silent).unwrap();
    let mut nodes = Vec::new();
    destinations.nodes_at(0..destinations.len(), &mut nodes);
    let expected: Vec<f32> = nodes.iter().flat_map(|node| &all[node.0 as usize * DIM..][..DIM]).copied().collect();
    for (memory, threads) in [(1 << 20, 1), (1 << 20, 3), (20_000, 2), (9_000, 1)] {
        let aggregation = Aggregation {
            store: &store,
            lists: InNeighbors::all(&chunks),
            sources: &sources,
            rows: &SelectedRows { rows: &*features, set: &sources },
            destinations: &destinations,
            budget: Budget { memory, threads },
        };
        for first in [0, 33] {
            let (mut found, mut next) = (Vec::new(), first);
            let sink = &mut |positions: Range<u64>, states: &mut Vec<f32>| {
                assert_eq!(positions.start, next);
                next = positions.end;
                found.extend_from_slice(states);
                Ok(())
            };
            aggregation.run(&mean, first, None, &Silent, sink).unwrap();
            assert!(found == expected[first as usize * DIM..], "{memory} bytes, from {first}");
        }
        let (mut found, mut rows) = (Vec::new(), Vec::new());
        let layout = aggregation.rows.layout();
        let sink = &mut |positions: Range<u64>, states: &mut Vec<f32>, of_tile: Option<&[u8]>| {
            found.extend_from_slice(states);
            if let Some(of_tile) = of_tile {
                let mut values = vec![0.0; (positions.end - positions.start) as usize * DIM];
                layout.decode_rows(of_tile, &mut values);
                rows.extend(values);
            }
            Ok(())
        };
        aggregation.run_with_rows(&mean, &Silent, sink).unwrap();
        assert!(found == expected, "{memory} bytes");
        let is_streamed = memory < 1 << 20;
        let expected: Vec<f32> = nodes.iter().flat_map(|node| &own[node.0 as usize]).copied().collect();
        assert_eq!(rows, if is_streamed { expected } else { Vec::new() }, "{memory} bytes");
    }
}
