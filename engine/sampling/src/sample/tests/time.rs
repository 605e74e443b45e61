//! Draws that are limited by time, compared with a slow sampler that looks at every edge.

use grappa_formats::{
    EdgePart,
    chunks::ChunkMap,
    random::draw_at,
    time_axis::{TimeAxis, TimeUnit},
};
use grappa_storage::writer::AdjacencyWriter;

use super::{apart, statistics::assert_uniform, *};
use crate::{
    partition::Owned,
    sample::{TimeHops, TimeOptions, TimeStrategy},
    shape::GraphShape,
    view::{
        GraphLists, ViewOptions,
        tests::{
            KINDS,
            graph::{TestStore, store_of},
        },
    },
};

/// A graph as lists of (time, source) of the in-edges of each node, ascending.
struct Timed {
    lists: Vec<Vec<(i64, u64)>>,
}

impl Timed {
    fn new(nodes: u64, edges_of: impl Fn(u64) -> Vec<(i64, u64)>) -> Self {
        let lists = (0..nodes).map(|node| {
            let mut list = edges_of(node);
            list.sort_unstable();
            list
        });
        Self { lists: lists.collect() }
    }

    /// Lists of all lengths, with parallel edges, self-loops, and many equal times.
    fn mixed(nodes: u64) -> Self {
        Self::new(nodes, |node| {
            let length = match node % 16 {
                0 => 0,
                3 => 700,
                kind => kind * 3,
            };
            let draw = |k: u64, end: u64| draw_at(node, k) % end;
            let time = |k: u64| if node % 5 == 0 { 50 } else { draw(2 * k, 100) as i64 - 20 };
            (0..length).map(|k| (time(k), if k % 9 == 8 { node } else { draw(2 * k + 1, nodes) })).collect()
        })
    }

    fn axis(&self) -> TimeAxis {
        let mut times: Vec<i64> = self.lists.iter().flatten().map(|edge| edge.0).collect();
        let edges = times.len() as u64;
        times.sort_unstable();
        times.dedup();
        TimeAxis::of_times(TimeUnit::Integer, edges, &times)
    }

    fn store(&self, chunks: u32) -> TestStore {
        let (map, axis) = (ChunkMap::uniform(self.lists.len() as u64, chunks), self.axis());
        store_of(&map, false, Some(&axis), |store, chunk| {
            let positions = axis.positions();
            let mut writer =
                AdjacencyWriter::create_timed(store, &map, chunk, EdgePart::Graph, false, None, positions).unwrap();
            for node in map.range(chunk) {
                let list = self.lists[node as usize].iter();
                let (times, sources): (Vec<_>, Vec<_>) =
                    list.map(|&(time, source)| (axis.position(time).unwrap(), source)).unzip();
                writer.push_timed(&times, &sources, &[], &[]).unwrap();
            }
            writer.finish().unwrap()
        })
    }

    /// The edges of a node within a limit.
    fn eligible(&self, node: u64, limit: i64, options: &TimeOptions) -> Vec<(i64, u64)> {
        let is_eligible = |&&(time, _): &&(i64, u64)| {
            let age = i128::from(limit) - i128::from(time);
            age >= i128::from(!options.equal) && options.window.is_none_or(|window| age <= i128::from(window))
        };
        self.lists[node as usize].iter().filter(is_eligible).copied().collect()
    }

    /// The edges of each block of a seed, if all eligible ones are taken: destination, source, time.
    fn all(&self, seed: u64, time: i64, options: &TimeOptions, hops: usize) -> Vec<Vec<(u64, u64, i64)>> {
        self.all_of(|_| true, seed, time, options, hops)
    }

    /// As [`Timed::all`], if only some nodes are owned. The others have no edges.
    fn all_of(
        &self,
        is_owned: impl Fn(u64) -> bool,
        seed: u64,
        time: i64,
        options: &TimeOptions,
        hops: usize,
    ) -> Vec<Vec<(u64, u64, i64)>> {
        let mut nodes = vec![(seed, time)];
        let hops = (0..hops).map(|_| {
            let mut block = Vec::new();
            for (node, limit) in nodes.clone().into_iter().filter(|&(node, _)| is_owned(node)) {
                for (time, source) in self.eligible(node, limit, options) {
                    block.push((node, source, time));
                    if nodes.iter().all(|known| known.0 != source) {
                        nodes.push((source, if options.hops == TimeHops::Edge { time } else { limit }));
                    }
                }
            }
            block
        });
        hops.collect()
    }
}

fn view_of(store: &TestStore, kind: ViewKind) -> PartitionView {
    view_owning(store, Owned::whole(&store.store), kind)
}

fn view_owning(store: &TestStore, owned: Owned, kind: ViewKind) -> PartitionView {
    let sampler = sampler("1", TimeOptions::default());
    let mapped_bytes_max = (kind == ViewKind::Mapped).then_some(u64::MAX);
    let options = ViewOptions { edge_data: sampler.edge_data(), mapped_bytes_max, threads: 2, ..Default::default() };
    PartitionView::open(&store.store, owned, &options).unwrap()
}

fn sampler(text: &str, options: TimeOptions) -> Sampler {
    Sampler::uniform(fanouts(text), false).with_times(options).unwrap().with_edge_times()
}

fn sample_at(sampler: &Sampler, view: &PartitionView, seed: u64, time: i64, batch: u64) -> Minibatch {
    let mut out = Minibatch::default();
    sampler.sample_at(view, (NodeId(seed), time), key(batch), &mut Scratch::default(), &mut out).unwrap();
    out
}

/// The edges of each block: destination, source, time.
fn edges(minibatch: &Minibatch) -> Vec<Vec<(u64, u64, i64)>> {
    let blocks = minibatch.blocks.iter().map(|block| {
        assert_eq!(block.edge_times.len(), block.indices.len());
        let of = |destination: usize| {
            let edges = block.edges_of(destination);
            let node = minibatch.nodes[destination].0;
            edges.map(move |edge| (node, minibatch.nodes[block.indices[edge] as usize].0, block.edge_times[edge]))
        };
        (0..block.destinations).flat_map(of).collect()
    });
    blocks.collect()
}

fn all_options() -> Vec<TimeOptions> {
    let mut all = Vec::new();
    for equal in [true, false] {
        for hops in TimeHops::ALL {
            for window in [None, Some(0), Some(7), Some(i64::MAX)] {
                all.push(TimeOptions { equal, hops, window, strategy: TimeStrategy::Uniform });
            }
        }
    }
    all
}

#[test]
fn all_eligible_neighbors_equal_those_of_the_naive_sampler() {
    let graph = Timed::mixed(300);
    let store = graph.store(3);
    for kind in KINDS {
        let view = view_of(&store, kind);
        for options in all_options() {
            for (number, seed) in [0, 3, 5, 7, 19, 44, 299].into_iter().enumerate() {
                for time in [i64::MIN, -21, -20, 0, 49, 50, 51, 79, 80, i64::MAX] {
                    let found = sample_at(&sampler("-1,-1", options), &view, seed, time, number as u64);
                    let expected = graph.all(seed, time, &options, 2);
                    assert_eq!(edges(&found), expected, "{seed} at {time}, {options:?}, {kind}");
                }
            }
        }
    }
}

#[test]
fn seeds_at_a_time_are_the_same_together_and_one_by_one() {
    let graph = Timed::mixed(300);
    let store = graph.store(3);
    let shape = GraphShape::untyped(300);
    let seeds = |number| vec![(0..1 + number % 3).map(|k| draw_at(5 * number, k) % 300).collect()];
    let parts: Vec<apart::Part> =
        (0..200).map(|number| (seeds(number), Some(draw_at(3, number) as i64 % 120))).collect();
    for kind in KINDS {
        let view = view_of(&store, kind);
        let lists = GraphLists { shape: &shape, views: vec![&view] };
        for options in all_options() {
            for strategy in TimeStrategy::ALL {
                let sampler = sampler("5,3,4", TimeOptions { strategy, ..options });
                for sampler in [sampler.clone().drawing_once(), sampler] {
                    apart::check_parts(&sampler, &lists, &parts, &format!("{sampler:?}, {kind}"));
                }
            }
        }
    }
}

#[test]
fn the_last_edges_are_drawn() {
    let graph = Timed::mixed(300);
    let store = graph.store(2);
    for options in all_options() {
        let options = TimeOptions { strategy: TimeStrategy::Last, ..options };
        let view = view_of(&store, ViewKind::Memory);
        for (seed, time) in [(3, 40), (5, 50), (7, 90), (0, 10)] {
            let found = edges(&sample_at(&sampler("6", options), &view, seed, time, 0));
            let eligible = graph.eligible(seed, time, &options);
            let last = &eligible[eligible.len().saturating_sub(6)..];
            assert_eq!(found[0], last.iter().map(|&(time, source)| (seed, source, time)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn no_edge_is_later_than_its_seed() {
    let graph = Timed::mixed(2000);
    let store = graph.store(7);
    let mut drawn = 0;
    for kind in KINDS {
        let view = view_of(&store, kind);
        for options in all_options() {
            let sampler = sampler("8,8", options);
            for number in 0..2500 {
                let (seed, time) = (draw_at(1, number) % 2000, draw_at(2, number) as i64 % 60 + 20);
                for (destination, source, found) in edges(&sample_at(&sampler, &view, seed, time, number)).concat() {
                    assert!(if options.equal { found <= time } else { found < time });
                    if let (Some(window), TimeHops::Seed) = (options.window, options.hops) {
                        assert!(found >= time.saturating_sub(window));
                    }
                    assert!(graph.lists[destination as usize].binary_search(&(found, source)).is_ok());
                    drawn += 1;
                }
            }
        }
    }
    assert!(drawn > 1_000_000, "{drawn}");
}

#[test]
fn every_eligible_edge_is_as_likely_as_any_other() {
    // 400 edges, of which 37, 63 and 200 are eligible at some times.
    let graph = Timed::new(500, |node| match node {
        0 => (1..=400).map(|source| ((source / 10) as i64, source)).collect(),
        _ => vec![],
    });
    let view = view_of(&graph.store(2), ViewKind::Memory);
    for (fanout, time, window) in [("3", 3, None), ("10", 20, None), ("5", 39, Some(5)), ("20", 6, None)] {
        let options = TimeOptions { window, ..TimeOptions::default() };
        let eligible = graph.eligible(0, time, &options);
        let mut counts = vec![0; eligible.len()];
        for batch in 0..20_000 {
            for (_, source, found) in edges(&sample_at(&sampler(fanout, options), &view, 0, time, batch)).concat() {
                counts[eligible.binary_search(&(found, source)).expect("an eligible edge")] += 1;
            }
        }
        assert_uniform(&counts, &format!("{fanout} of {} at {time}", eligible.len()));
    }
}

#[test]
fn equal_times_in_bulk_are_all_in_or_all_out() {
    let graph = Timed::new(3000, |node| if node == 7 { (0..3000).map(|source| (5, source)).collect() } else { vec![] });
    for kind in KINDS {
        let view = view_of(&graph.store(4), kind);
        for (equal, time, expected) in [(true, 5, 3000), (false, 5, 0), (true, 4, 0), (false, 6, 3000)] {
            let options = TimeOptions { equal, ..TimeOptions::default() };
            let found = sample_at(&sampler("-1", options), &view, 7, time, 0);
            assert_eq!((found.edges(), found.blocks[0].global[0]), (expected, expected as u64));
        }
    }
}

#[test]
fn a_seed_without_eligible_edges_is_alone() {
    let graph = Timed::new(9, |node| if node == 7 { vec![(i64::MIN, 1), (i64::MAX - 1, 2)] } else { vec![] });
    let view = view_of(&graph.store(1), ViewKind::Mapped);
    let options = TimeOptions { equal: false, ..TimeOptions::default() };
    let found = sample_at(&sampler("5,5", options), &view, 7, i64::MIN, 0);
    assert_eq!((found.nodes.len(), found.edges(), found.blocks.len()), (1, 0, 2));
    let found = sample_at(&sampler("5", TimeOptions::default()), &view, 7, i64::MAX, 0);
    assert_eq!(found.edges(), 2);
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    let refusal = |sampler: Sampler, options| sampler.with_times(options).unwrap_err().to_string();
    let (default, last) = (TimeOptions::default(), TimeStrategy::Last);
    assert!(refusal(Sampler::by_weight(fanouts("3"), false), default).contains("draws by edge weight"));
    let last = TimeOptions { strategy: last, ..default };
    assert!(refusal(Sampler::uniform(fanouts("3"), true), last).contains("not with replacement"));
    let window = TimeOptions { window: Some(-1), ..default };
    assert!(refusal(Sampler::uniform(fanouts("3"), false), window).contains("time_window"));
}

#[test]
fn a_partition_sees_the_eligible_edges_of_the_nodes_that_it_owns() {
    let graph = Timed::mixed(300);
    let store = graph.store(5);
    let shape = GraphShape::untyped(300);
    for (chunks, kind) in
        [&[1][..], &[0, 3], &[4, 2, 1]].into_iter().flat_map(|chunks| KINDS.map(|kind| (chunks, kind)))
    {
        let owned = view::tests::owning(&store.store, chunks);
        let view = view_owning(&store, owned.clone(), kind);
        let seeds: Vec<u64> = owned.runs().iter().cloned().flatten().step_by(17).collect();
        for options in all_options() {
            for (seed, time) in seeds.iter().flat_map(|&seed| [-20, 0, 50, 61, i64::MAX].map(|time| (seed, time))) {
                let found = sample_at(&sampler("-1,-1", options), &view, seed, time, 0);
                let expected = graph.all_of(|node| owned.contains(NodeId(node)), seed, time, &options, 2);
                assert_eq!(edges(&found), expected, "{seed} at {time}, {options:?}, {kind}");
                let block = &found.blocks[0];
                let eligible = graph.eligible(seed, time, &options);
                let visible = eligible.iter().filter(|(_, source)| owned.contains(NodeId(*source))).count();
                assert_eq!((block.visible[0], block.global[0]), (visible as u64, eligible.len() as u64));
                let block = &found.blocks[1];
                for (destination, node) in found.nodes[..block.destinations].iter().enumerate() {
                    assert_eq!(block.halo[destination], !owned.contains(*node));
                }
            }
        }
        // Seeds together draw as one by one, and fanouts are kept.
        let lists = GraphLists { shape: &shape, views: vec![&view] };
        let parts: Vec<apart::Part> =
            seeds.iter().map(|&seed| (vec![vec![seed]], Some(draw_at(3, seed) as i64 % 120))).collect();
        for strategy in TimeStrategy::ALL {
            let sampler = sampler("5,3,4", TimeOptions { strategy, ..TimeOptions::default() });
            apart::check_parts(&sampler, &lists, &parts, &format!("{sampler:?}, {kind}"));
        }
    }
}

#[test]
fn views_of_a_partition_in_memory_and_mapped_draw_the_same() {
    let graph = Timed::mixed(500);
    let store = graph.store(6);
    let owned = view::tests::owning(&store.store, &[1, 4]);
    let [memory, mapped] = [ViewKind::Memory, ViewKind::Mapped].map(|kind| view_owning(&store, owned.clone(), kind));
    for number in 0..300 {
        let seed = owned.runs()[number as usize % 2].start + draw_at(1, number) % 50;
        let time = draw_at(2, number) as i64 % 100;
        let [one, other] =
            [&memory, &mapped].map(|view| sample_at(&sampler("6,4", TimeOptions::default()), view, seed, time, number));
        assert!(one == other, "{seed} at {time}");
    }
}

#[test]
fn partitions_of_graphs_with_times_have_no_other_lists() {
    let store = Timed::mixed(100).store(4);
    for halo in [Halo::None, Halo::Neighbors] {
        let owned = view::tests::owning(&store.store, &[1]);
        let options = ViewOptions { halo, ..ViewOptions::default() };
        let refused = PartitionView::open(&store.store, owned, &options).unwrap_err();
        assert!(refused.to_string().contains("use halo stop"), "{refused}");
    }
}
