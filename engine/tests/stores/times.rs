//! Stores whose edges have times, and damage to them.

use std::{fs, path::PathBuf, sync::Arc};

use grappa_engine::{
    EdgePart, Loader, NodeId, Silent, Store,
    export::{
        Budget,
        edges::{EdgeColumns, export_edges},
    },
    ingest::{Assign, IngestOptions, TimeColumn, TimeUnit, ingest},
    sample::{LoaderOptions, Sampler, Seeds, TimeHops, TimeOptions, feed::MinibatchOptions},
    verify::verify,
};
use tempfile::TempDir;

/// A store with these lines of source, destination and time. Its nodes are the ids.
fn store_of(lines: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (edges, out) = (folder.path().join("edges.csv"), folder.path().join("out.grappa"));
    fs::write(&edges, format!("src,dst,at\n{lines}")).unwrap();
    let mut options = IngestOptions::new(vec![edges], out.clone());
    options.edges.form.columns.time = Some(TimeColumn { column: "at".into(), unit: Some(TimeUnit::Integer) });
    options.nodes.layout.assign = Assign::Range;
    options.nodes.layout.chunks = Some(1);
    ingest(&options, &Silent).unwrap();
    (folder, out)
}

fn problems(path: &std::path::Path) -> Vec<String> {
    let found = verify(path, 1, &Silent).unwrap().problems;
    found.into_iter().map(|problem| format!("{}: {}", problem.file, problem.description)).collect()
}

/// Lists of up to 400 edges.
fn events() -> String {
    let line =
        |k: u64| format!("{},{},{}\n", k * k % 61, if k.is_multiple_of(3) { 7 } else { k % 40 }, k * 7919 % 5000);
    (0..1200).map(line).collect()
}

#[test]
fn any_flipped_byte_of_times_is_reported() {
    let (_folder, path) = store_of(&events());
    assert_eq!(problems(&path), [""; 0]);
    for name in ["time-axis", "chunk-0/times", "chunk-0/time-degrees", "chunk-0/edges"] {
        let sound = fs::read(path.join(name)).unwrap();
        for at in (0..sound.len()).filter(|at| !(200..4000).contains(at) || at % 97 == 0) {
            let mut bytes = sound.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(path.join(name), bytes).unwrap();
            assert!(problems(&path).iter().any(|problem| problem.starts_with(name)), "byte {at} of {name}");
        }
        fs::write(path.join(name), sound).unwrap();
    }
}

#[test]
fn edges_in_another_order_than_their_times_are_reported() {
    let (_folder, path) = store_of("1,0,5\n2,0,5\n3,0,5\n");
    // Sources 1, 2 and 3 in two bits each become 2, 1 and 3.
    grappa_forge::rewrite(&path, "chunk-0/edges", None, |payload| {
        assert_eq!(payload[0], 0b11_10_01);
        payload[0] = 0b11_01_10;
    });
    let found = problems(&path);
    assert!(found.len() == 1 && found[0].contains("sources of row 0 with one time do not ascend"), "{found:?}");
}

#[test]
fn times_that_are_no_code_are_errors_or_other_times_but_no_panic() {
    let (_folder, path) = store_of(&events());
    for name in ["chunk-0/times", "chunk-0/time-degrees", "chunk-0/edges", "chunk-0/degrees"] {
        let sound = fs::read(path.join(name)).unwrap();
        let manifest = fs::read(path.join("manifest")).unwrap();
        for round in 0..60_u64 {
            grappa_forge::rewrite(&path, name, None, |payload| {
                let at = (round * 7919 + 13) as usize % payload.len();
                payload[at] ^= [0xff, 1, 0x80, 0x3c][round as usize % 4];
            });
            let store = Arc::new(Store::open(&path).unwrap());
            let out = path.parent().unwrap().join("edges.csv.out");
            let budget = Budget { threads: 1, memory: 64 << 20 };
            let out = grappa_engine::io::durable::Destination { path: &out, replaces: true };
            let _ = export_edges(&store, EdgePart::Graph, EdgeColumns::All, out, &budget, &Silent);
            let _ = draw(&store);
            fs::write(path.join(name), &sound).unwrap();
            fs::write(path.join("manifest"), &manifest).unwrap();
        }
    }
    draw(&Arc::new(Store::open(&path).unwrap())).unwrap();
}

fn draw(store: &Arc<Store>) -> grappa_engine::Result<()> {
    let options = TimeOptions { hops: TimeHops::Edge, window: Some(3000), ..TimeOptions::default() };
    let sampler = Sampler::uniform("20,5".parse()?, false).with_times(options)?.with_edge_times();
    let minibatches = MinibatchOptions { batch: 20, disjoint: true, ..MinibatchOptions::new(sampler) };
    let options = LoaderOptions { memory: 256 << 20, threads: 1, ..LoaderOptions::new(minibatches) };
    let mut loader = Loader::new(store, LoaderOptions { rows: Default::default(), ..options });
    let seeds: Vec<NodeId> = (0..40).map(NodeId).collect();
    loader.partition(store.assignment(), &Seeds::List(Arc::new(seeds)), &Silent)?;
    loader.set_seed_times(Arc::new((0..40).map(|seed| seed * 130).collect()));
    loader.epoch(0)?.try_for_each(|batch| batch.map(drop))
}

#[test]
fn draws_do_not_depend_on_threads_batches_and_views() {
    let (_folder, path) = store_of(&events());
    let store = Arc::new(Store::open(&path).unwrap());
    let drawn = |threads, view: &str, hops| {
        let options = TimeOptions { hops, ..TimeOptions::default() };
        let sampler = Sampler::uniform("5,5".parse().unwrap(), false).with_times(options).unwrap().with_edge_times();
        let minibatches = MinibatchOptions { batch: 7, disjoint: true, ..MinibatchOptions::new(sampler) };
        let view = view.parse().unwrap();
        let options = LoaderOptions { memory: 256 << 20, threads, view, ..LoaderOptions::new(minibatches) };
        let mut loader = Loader::new(&store, LoaderOptions { rows: Default::default(), ..options });
        let seeds: Vec<NodeId> = (0..200).map(|seed| NodeId(seed % 40)).collect();
        loader.partition(store.assignment(), &Seeds::List(Arc::new(seeds)), &Silent).unwrap();
        loader.set_seed_times(Arc::new((0..200).map(|seed| seed * 25).collect()));
        let mut batches = Vec::new();
        loader.epoch(3).unwrap().for_each(|batch| batches.push(batch.unwrap().minibatch().clone()));
        batches
    };
    for hops in TimeHops::ALL {
        let expected = drawn(1, "memory", hops);
        assert!(expected.iter().map(|batch| batch.edges()).sum::<usize>() > 500);
        assert!(drawn(3, "memory", hops) == expected && drawn(2, "mapped", hops) == expected);
    }
}
