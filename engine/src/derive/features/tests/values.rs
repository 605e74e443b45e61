//! Against a naive count and a dense computation, in any memory, by any number of threads.

use grappa_formats::{DenseId, NodeId, manifest::ExternalIds, random::scale};
use grappa_ingestion::ingest::{IngestOptions, ingest};
use grappa_synthetic::random::{Purpose, Source};

use super::*;

/// The sources of each node.
fn sources(store: &Store) -> Vec<Vec<u64>> {
    let mut sources = Vec::new();
    for chunk in store.present_chunks() {
        let chunk = store.chunk(chunk).unwrap();
        let rows = chunk.rows();
        sources.extend(rows.range(0..rows.rows()).map(|row| row.unwrap().iter().collect::<Vec<_>>()));
    }
    sources
}

#[test]
fn degrees_are_those_of_a_naive_count() {
    let (_folder, store) = in_folder(store);
    let sources = sources(&store);
    let mut out_degrees = vec![0usize; sources.len()];
    sources.iter().flatten().for_each(|&source| out_degrees[source as usize] += 1);
    let added = add_features(&store, &degrees(), &Silent).unwrap();
    assert_eq!((added.nodes, added.dim, added.chunks_kept), (512, 36, 0));
    let values = |degree: usize| {
        let mut values = vec![(1.0 + degree as f32).ln(), (1.0 + degree as f32).sqrt().recip()];
        // 0, 1, 2 to 3, 4 to 7, ..., 2^14 and more.
        values.extend((0..16u32).map(|size| {
            let (low, high) = match size {
                0 => (0, 0),
                15 => (1 << 14, usize::MAX),
                _ => (1 << (size - 1), (1 << size) - 1),
            };
            f32::from(u8::from((low..=high).contains(&degree)))
        }));
        values
    };
    for (node, row) in features(store.path()).iter().enumerate() {
        let expected = [values(sources[node].len()), values(out_degrees[node])].concat();
        let near = row.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(near, "node {node}: {row:?} for {expected:?}");
    }
    assert_sound(store.path());
}

#[test]
fn embeddings_are_those_of_the_dense_algorithm() {
    let (_folder, store) = in_folder(store);
    let sources = sources(&store);
    let options = fastrp(9);
    add_features(&store, &options, &Silent).unwrap();

    let random = Source::new(9, Purpose::Projection);
    let mut rows: Vec<Vec<f64>> = (0..512)
        .map(|node| {
            let mut stream = random.stream(store.ids().integer(NodeId(node)).unwrap());
            let factor = (sources[node as usize].len() as f64 + 1.0).sqrt().recip();
            let draws = (0..DIM).map(|_| scale(stream.next_number(), 6));
            draws.map(|draw| [1.0, -1.0, 0.0, 0.0, 0.0, 0.0][draw as usize] * factor).collect()
        })
        .collect();
    let length = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
    let mut sums = vec![vec![0.0; DIM as usize]; 512];
    for weight in [1.0, 0.0, 0.5] {
        let mean = |sources: &Vec<u64>, i| {
            let sum: f64 = sources.iter().map(|&source| rows[source as usize][i]).sum();
            sum / sources.len().max(1) as f64
        };
        rows = sources.iter().map(|sources| (0..DIM as usize).map(|i| mean(sources, i)).collect()).collect();
        for (sum, row) in sums.iter_mut().zip(&rows).filter(|(_, row)| length(row) > 0.0) {
            for (sum, value) in sum.iter_mut().zip(row) {
                *sum += weight * value / length(row);
            }
        }
    }
    let found = features(store.path());
    for (node, (row, sum)) in found.iter().zip(&sums).enumerate() {
        let factor = f64::from(DIM).sqrt() / length(sum).max(1e-9);
        let near = row.iter().zip(sum).all(|(a, b)| (f64::from(*a) - b * factor).abs() < 1e-4);
        assert!(near, "node {node}: {row:?} for {sum:?} times {factor}");
    }
    let zeros = found.iter().filter(|row| row.iter().all(|&value| value == 0.0)).count();
    assert!(zeros > 0 && zeros < 200, "{zeros} nodes are reached by none");
    assert_sound(store.path());
}

#[test]
fn any_memory_and_any_threads_give_the_same_bytes() {
    for options in [fastrp(1), degrees()] {
        let mut first = None;
        for (memory, threads) in [(64 << 20, 1), (OVERHEAD + 20_000, 1), (OVERHEAD, 2), (OVERHEAD + 5_000, 3)] {
            let (_folder, store) = in_folder(store);
            let options = AddFeatures { budget: Budget { memory, threads }, ..options.clone() };
            add_features(&store, &options, &Silent).unwrap();
            let files = added_files(store.path());
            let first = first.get_or_insert_with(|| files.clone());
            assert!(files == *first, "{} in {memory} bytes by {threads} threads", options.kind);
        }
    }
}

#[test]
fn memory_that_is_too_small_is_refused_with_one_that_suffices() {
    for (options, budgets) in [(degrees(), &[0, 1 << 20][..]), (fastrp(1), &[0, 1 << 20, (1 << 20) + 20_000, 2 << 20])]
    {
        for &memory in budgets {
            let (_folder, store) = in_folder(store);
            let run = |memory| {
                let budget = Budget { memory, threads: 2 };
                add_features(&store, &AddFeatures { budget, ..options.clone() }, &Silent)
            };
            let Err(Error::Budget { given, least, .. }) = run(memory) else {
                panic!("{memory} bytes suffice");
            };
            assert_eq!(given, memory);
            run(least).unwrap_or_else(|error| panic!("{error}: {least} after {memory}"));
        }
    }
}

#[test]
fn few_counters_count_the_same_degrees() {
    let (folder, store) = in_folder(store);
    let layout = FeatureLayout::new(FeatureDtype::F32, 36);
    let made = |name: &str, counters, threads| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        let mut rows = FeatureRowsWriter::new(&store, &path, layout);
        degrees::make_by(&store, &mut rows, 0, counters, threads, &Silent).unwrap();
        rows.finished().to_vec()
    };
    let expected = made("all", 1 << 20, 1);
    assert_eq!(expected.len(), CHUNKS as usize);
    for (counters, threads) in [(512, 3), (511, 2), (100, 1), (7, 2)] {
        assert_eq!(made(&format!("{counters}"), counters, threads), expected, "{counters} counters");
    }
}

#[test]
fn another_dtype_rounds_the_same_values() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [exact, rounded] = folders.each_ref().map(|folder| store(folder.path()));
    add_features(&exact, &fastrp(1), &Silent).unwrap();
    let options = AddFeatures { dtype: FeatureDtype::F16, ..fastrp(1) };
    add_features(&rounded, &options, &Silent).unwrap();
    let (exact, rounded) = (features(exact.path()), features(rounded.path()));
    for (exact, rounded) in exact.iter().flatten().zip(rounded.iter().flatten()) {
        assert!((exact - rounded).abs() <= exact.abs() / 1024.0, "{exact} {rounded}");
    }
}

/// A graph of nodes with names, whose edges were entered in both directions: a path, and one node more at its end if
/// `grown`, before all others by name.
fn named(folder: &Path, grown: bool) -> Store {
    fs::create_dir(folder).unwrap();
    let mut edges: String = (0..40).map(|node| format!("n{node:02}\tn{:02}\n", node + 1)).collect();
    if grown {
        edges += "n40\ta\n";
    }
    let input = folder.join("edges.tsv");
    fs::write(&input, edges).unwrap();
    let out = folder.join("graph.grappa");
    let mut options = IngestOptions::new(vec![input], out.clone());
    options.resources.memory = 64 << 20;
    options.nodes.ids = ExternalIds::String;
    options.nodes.layout.chunks = Some(3);
    options.edges.options.undirected = true;
    ingest(&options, &Silent).unwrap();
    Store::open(&out).unwrap()
}

#[test]
fn a_grown_graph_has_the_same_embeddings_where_nothing_changed() {
    let (_folder, stores) =
        in_folder(|folder| [("before", false), ("after", true)].map(|(name, grown)| named(&folder.join(name), grown)));
    let rows = stores.each_ref().map(|store| {
        add_features(store, &fastrp(1), &Silent).unwrap();
        features(store.path())
    });
    let row = |which: usize, id: u64| &rows[which][stores[which].ids().node_of(DenseId(id)).unwrap().0 as usize];
    let same: Vec<bool> = (0..41)
        .map(|id| {
            let pairs = row(0, id).iter().zip(row(1, id + 1));
            pairs.map(|(before, after)| (before - after).abs()).fold(0.0, f32::max) < 1e-5
        })
        .collect();
    // Three hops from the new node.
    assert!(same[..37].iter().all(|&same| same), "{same:?}");
    assert!(!same[40], "its neighbor sees it");
}

#[test]
fn degrees_of_both_directions_are_told_once() {
    let (_folder, store) = in_folder(|folder| named(&folder.join("path"), false));
    let added = add_features(&store, &degrees(), &Silent).unwrap();
    assert_eq!((added.nodes, added.dim), (41, 18));
    let ends = features(store.path()).iter().filter(|row| row[3] == 1.0).count();
    assert_eq!(ends, 2, "of a path, two nodes have one edge");
}
