//! Stores whose edges have times, and damage to them.

use std::{fs, path::PathBuf, sync::Arc};

use grappa_engine::{
    EdgePart, Loader, NodeId, Silent, Store,
    export::{
        Budget,
        edges::{EdgeColumns, export_edges},
    },
    ingest::{Assign, IngestOptions, TimeColumn, TimeUnit, ingest},
    sample::{LoaderOptions, Minibatch, Sampler, SeedTimes, Seeds, TimeHops, TimeOptions, feed::MinibatchOptions},
    verify::verify,
};
use grappa_sampling::links::{
    Candidates, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, Negatives, PartEdges, Positives,
    TimeRange, WithoutNegative,
};
use tempfile::TempDir;

/// A store with these lines of source, destination and time. Its nodes are the ids.
pub fn store_of(lines: &str) -> (TempDir, PathBuf) {
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
    loader.set_seed_times(SeedTimes::Listed(vec![Arc::new((0..40).map(|seed| seed * 130).collect())])).unwrap();
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
        loader.set_seed_times(SeedTimes::Listed(vec![Arc::new((0..200).map(|seed| seed * 25).collect())])).unwrap();
        let mut batches = Vec::new();
        loader.epoch(3).unwrap().for_each(|batch| batches.push(batch.unwrap().minibatch().clone()));
        batches
    };
    for hops in TimeHops::ALL {
        let expected = drawn(1, "memory", hops);
        assert!(expected.iter().map(|batch| batch.edges()).sum::<usize>() > 500);
        for (threads, view) in [(3, "memory"), (2, "mapped"), (2, "sweep")] {
            assert!(drawn(threads, view, hops) == expected, "{hops}, {view}");
        }
    }
}

/// The edges of a minibatch by hop: destination, source and time, with the index of the part.
fn edges_by_part(batch: &Minibatch) -> Vec<(usize, u64, u64, i64)> {
    let mut found = Vec::new();
    for block in &batch.blocks {
        for destination in 0..block.destinations {
            for edge in block.edges_of(destination) {
                let part = batch.parts.get(destination).map_or(0, |&part| part as usize);
                let source = batch.nodes[block.indices[edge] as usize];
                found.push((part, batch.nodes[destination].0, source.0, block.edge_times[edge]));
            }
        }
    }
    found
}

#[test]
fn the_ends_of_a_link_see_no_edge_after_its_time_and_not_the_link_itself() {
    let (_folder, path) = store_of(&events());
    let store = Arc::new(Store::open(&path).unwrap());
    let positives = Positives::of_part(PartEdges::timed(&store, EdgePart::Graph), None, 1 << 20, &Silent).unwrap();
    assert_eq!((positives.times().len(), positives.len()), (1200, 1200));
    let sample = Positives::of_part(PartEdges::timed(&store, EdgePart::Graph), Some((100, 5)), 1 << 20, &Silent);
    for index in 0..100 {
        let sample = sample.as_ref().unwrap();
        let number = sample.number(index);
        assert_eq!(
            (sample.edges()[index as usize], sample.time(index)),
            (positives.edges()[number as usize], positives.time(number))
        );
    }
    let early =
        PartEdges { times: Some(TimeRange { first: 1000, last: 2000 }), ..PartEdges::timed(&store, EdgePart::Graph) };
    let early = Positives::of_part(early, Some((1 << 40, 5)), 1 << 20, &Silent).unwrap();
    assert!(early.times().iter().all(|time| (1000..=2000).contains(time)) && early.len() > 100);
    let all: Vec<_> = positives.edges().iter().copied().zip(positives.times().iter().copied()).collect();
    let asked_for = positives.at((0..1200).step_by(8));

    for (equal, excluded) in
        [(true, ExcludedEdges::Positives), (true, ExcludedEdges::None), (false, ExcludedEdges::Positives)]
    {
        let options = TimeOptions { equal, ..TimeOptions::default() };
        let sampler = Sampler::uniform("-1".parse().unwrap(), false).with_times(options).unwrap().with_edge_times();
        let task = LinkTask {
            store: store.clone(),
            relation: LinkRelation::default(),
            negatives: Negatives::Destinations(2),
            candidates: Candidates::Uniform,
            destinations: None,
            without_negative: WithoutNegative::Marked,
            known: Some(KnownEdges::default()),
            excluded,
            ends: EndTimes::default(),
        };
        let minibatches = MinibatchOptions {
            batch: 16,
            disjoint: true,
            links: Some(Arc::new(task)),
            ..MinibatchOptions::new(sampler)
        };
        let options = LoaderOptions { memory: 256 << 20, threads: 2, ..LoaderOptions::new(minibatches) };
        let mut loader = Loader::new(&store, LoaderOptions { rows: Default::default(), ..options });
        loader.partition(store.assignment(), &Seeds::List(Arc::new(Vec::new())), &Silent).unwrap();
        loader.set_positives(vec![Arc::new(asked_for.clone())], &[asked_for.len()]);
        let batches = loader.batches(1, |batches| batches).unwrap();
        let (mut asked, mut seen) = (Vec::new(), 0);
        for batch in loader.deliver(&batches) {
            let batch = batch.unwrap();
            batches.seed_indices(batch.index(), &mut asked);
            let minibatch = batch.minibatch();
            assert_eq!(minibatch.part_times.len(), asked.len());
            assert_eq!(
                (minibatch.links.positives.len(), minibatch.links.negatives.len()),
                (asked.len(), 2 * asked.len())
            );
            let found = edges_by_part(minibatch);
            seen += found.len();
            for (part, &index) in asked.iter().enumerate() {
                let ((source, target), time) = all[asked_for.number(index) as usize];
                assert_eq!(minibatch.part_times[part], time);
                let ends = minibatch.links.positives[part].map(|row| minibatch.nodes[row as usize]);
                assert_eq!(ends, [source, target]);
                for negative in &minibatch.links.negatives[2 * part..2 * part + 2] {
                    assert_eq!(minibatch.nodes[negative[0] as usize], source);
                    assert_eq!(minibatch.parts[negative[1] as usize], part as u32);
                }
                // All edges up to the time, into the ends of the link.
                for end in [source, target] {
                    let mut expected: Vec<_> = all
                        .iter()
                        .filter(|(edge, at)| {
                            let is_itself = excluded != ExcludedEdges::None && *edge == (source, target) && *at == time;
                            edge.1 == end && if equal { *at <= time } else { *at < time } && !is_itself
                        })
                        .map(|&((from, to), at)| (part, to.0, from.0, at))
                        .collect();
                    let mut of_end: Vec<_> =
                        found.iter().copied().filter(|edge| (edge.0, edge.1) == (part, end.0)).collect();
                    expected.sort_unstable();
                    of_end.sort_unstable();
                    assert_eq!(of_end, expected, "{equal} {excluded:?} {source} {target} at {time}");
                }
            }
        }
        assert!(seen > 2000, "{seen}");
    }
}

#[test]
fn links_of_a_group_share_their_neighborhoods_and_shared_negatives_have_no_time() {
    let (_folder, path) = store_of(&events());
    let store = Arc::new(Store::open(&path).unwrap());
    let edges: Vec<_> = [(1, 2), (1, 3), (4, 7), (5, 7)].map(|(from, to)| (NodeId(from), NodeId(to))).to_vec();
    let positives = Positives::at_times(edges, vec![4000, 4000, 100, 200]).in_groups(vec![0, 2, 3]);
    let drawn = |negatives| {
        let sampler = Sampler::uniform("3,3".parse().unwrap(), false).with_times(TimeOptions::default()).unwrap();
        let task = LinkTask {
            store: store.clone(),
            relation: LinkRelation::default(),
            negatives,
            candidates: Candidates::Uniform,
            destinations: None,
            without_negative: WithoutNegative::Marked,
            known: None,
            excluded: ExcludedEdges::None,
            ends: EndTimes::default(),
        };
        let links = Some(Arc::new(task));
        let minibatches =
            MinibatchOptions { batch: 4, disjoint: true, shuffle: false, links, ..MinibatchOptions::new(sampler) };
        let options = LoaderOptions { memory: 256 << 20, threads: 1, ..LoaderOptions::new(minibatches) };
        let mut loader = Loader::new(&store, LoaderOptions { rows: Default::default(), ..options });
        loader.partition(store.assignment(), &Seeds::List(Arc::new(Vec::new())), &Silent).unwrap();
        loader.set_positives(vec![Arc::new(positives.clone())], &[positives.len()]);
        loader.epoch(0)?.next().unwrap().map(|batch| batch.minibatch().clone())
    };
    let batch = drawn(Negatives::None).unwrap();
    assert_eq!(batch.part_times, [4000, 100, 200]);
    // Nodes 1, 2 and 3 once; node 7 once for each of its links.
    assert_eq!(batch.seeds, 7);
    assert_eq!(batch.links.positives[0][0], batch.links.positives[1][0]);
    assert_ne!(batch.links.positives[2][1], batch.links.positives[3][1]);
    let pairs = drawn(Negatives::Pairs(0.5)).unwrap();
    assert_eq!(pairs.links.negatives.len(), 2);
    let error = drawn(Negatives::Shared(3)).unwrap_err().to_string();
    assert!(error.contains("cannot share their negatives"), "{error}");
}
