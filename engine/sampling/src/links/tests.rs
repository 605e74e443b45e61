//! Link minibatches against plain sets of edges.

mod candidates;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use grappa_formats::{EdgePart, NodeId, PartitionId};
use grappa_io::progress::Silent;
use grappa_storage::Store;

use super::*;
use crate::{
    Loader, LoaderOptions, NodeSet, Seeds,
    feed::{BatchSource, MinibatchOptions, PartitionBatches, RowOptions},
    partition::{Owned, Schedule, assignment, chunk_sizes},
    sample::{BatchKey, Join, Minibatch, Sampler, Scratch, SeedParts},
    shape::GraphShape,
    view::{
        GraphLists, PartitionView, ViewKind, ViewOptions,
        tests::graph::{Graph, TestStore},
    },
};

const NODES: u64 = 300;

/// A sparse graph with self-loops, parallel edges, edges in both directions, isolated nodes and a hub.
fn graph() -> Graph {
    Graph::new(NODES, |node| match node % 8 {
        0 => vec![],
        1 => vec![node, (node + 1) % NODES, (node + 1) % NODES],
        2 => vec![node - 1, (node * 7) % NODES],
        3 if node == 3 => (0..NODES / 2).collect(),
        kind => (0..kind).map(|k| (node * 31 + k * k * 17) % NODES).collect(),
    })
}

/// All pairs of a node and one of some targets.
fn pairs_to(targets: std::ops::Range<u64>) -> impl Iterator<Item = (NodeId, NodeId)> {
    (0..NODES).flat_map(move |source| targets.clone().map(move |target| (NodeId(source), NodeId(target))))
}

fn edges_of(graph: &Graph) -> BTreeSet<(NodeId, NodeId)> {
    let edges = (0..NODES).flat_map(|target| graph.sources(target).map(move |source| (NodeId(source), NodeId(target))));
    edges.collect()
}

struct Fixture {
    graph: Graph,
    store: Arc<Store>,
    _folder: TestStore,
}

impl Fixture {
    fn new() -> Self {
        let graph = graph();
        let folder = graph.store(4);
        let store = Arc::new(Store::open(folder.store.path()).unwrap());
        Self { graph, store, _folder: folder }
    }

    fn positives(&self, sample: Option<(u64, u64)>) -> Positives {
        Positives::of_part(PartEdges::all(&self.store, EdgePart::Graph), sample, 1 << 20, &Silent).unwrap()
    }

    fn task(&self, negatives: Negatives) -> LinkTask {
        LinkTask {
            store: self.store.clone(),
            relation: LinkRelation::default(),
            negatives,
            candidates: Candidates::Uniform,
            destinations: None,
            without_negative: WithoutNegative::Refused("take others"),
            known: Some(KnownEdges::default()),
            excluded: ExcludedEdges::WithReverses,
            ends: EndTimes::default(),
        }
    }

    fn batches(&self, fanouts: &str, task: LinkTask, view: ViewKind) -> Arc<PartitionBatches> {
        let options = LoaderOptions {
            rows: RowOptions::default(),
            memory: 64 << 20,
            threads: 1,
            view,
            ..LoaderOptions::new(MinibatchOptions {
                batch: 20,
                seed: 5,
                links: Some(Arc::new(task)),
                ..MinibatchOptions::new(Sampler::uniform(fanouts.parse().unwrap(), false))
            })
        };
        let mut loader = Loader::new(&self.store, options);
        let whole = assignment(Schedule::Fixed, &[chunk_sizes(self.store.manifest())], 1, 0, 0, 0).unwrap();
        loader.partition(&whole, &Seeds::All, &Silent).unwrap();
        let positives = self.positives(None);
        let count = positives.len();
        loader.set_positives(vec![Arc::new(positives)], &[count]);
        loader.batches(3, |batches| batches).unwrap()
    }

    /// The error of a minibatch with the edge from node 1 to node 2.
    fn refused(&self, task: &LinkTask) -> String {
        let key = BatchKey { seed: 5, epoch: 0, partition: PartitionId(0), batch: 0 };
        let view = PartitionView::open(&self.store, Owned::whole(&self.store), &ViewOptions::default()).unwrap();
        let graph = GraphLists { shape: &GraphShape::untyped(NODES), views: vec![&view] };
        let (mut scratch, mut ends) = (LinkScratch::default(), SeedParts::default());
        let listed = task.list_ends(&graph, &[(NodeId(1), NodeId(2))], key, &mut scratch, &mut ends);
        listed.unwrap_err().to_string()
    }
}

/// The pairs of a minibatch, as nodes.
struct Samples {
    positives: Vec<(NodeId, NodeId)>,
    negatives: Vec<(NodeId, NodeId)>,
    is_negative: Vec<bool>,
}

fn sampled(batches: &PartitionBatches, index: u64) -> (Minibatch, Samples) {
    let (mut minibatch, mut scratch) = (Minibatch::default(), Default::default());
    batches.sample(index, &mut scratch, std::slice::from_mut(&mut minibatch)).unwrap();
    let [positives, negatives] = [&minibatch.links.positives, &minibatch.links.negatives].map(|pairs| {
        let ends = pairs.iter().map(|pair| pair.map(|end| minibatch.nodes[end as usize]));
        ends.map(|[source, target]| (source, target)).collect()
    });
    let is_negative = minibatch.links.is_negative.clone();
    let samples = Samples { positives, negatives, is_negative };
    (minibatch, samples)
}

/// The negatives of all minibatches.
fn negatives(batches: &PartitionBatches) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
    (0..batches.batches()).flat_map(|index| sampled(batches, index).1.negatives)
}

/// The edges of each block, as nodes, with the number of copies.
fn messages(minibatch: &Minibatch) -> Vec<BTreeMap<(NodeId, NodeId), usize>> {
    let edges = minibatch.blocks.iter().map(|block| {
        let mut edges = BTreeMap::new();
        for target in 0..block.destinations {
            for &source in &block.indices[block.edges_of(target)] {
                let edge = (minibatch.nodes[source as usize], minibatch.nodes[target]);
                *edges.entry(edge).or_default() += 1;
            }
        }
        edges
    });
    edges.collect()
}

#[test]
fn an_epoch_has_each_edge_once_in_batches_of_even_size() {
    let fixture = Fixture::new();
    let batches = fixture.batches("2,2", fixture.task(Negatives::None), ViewKind::Auto);
    let mut edges = Vec::new();
    let mut sizes = BTreeSet::new();
    for index in 0..batches.batches() {
        let (_, samples) = sampled(&batches, index);
        sizes.insert(samples.positives.len());
        edges.extend(samples.positives);
    }
    assert!(sizes.len() <= 2 && sizes.iter().all(|&size| size <= 20), "{sizes:?}");
    let in_order: Vec<_> = (0..NODES)
        .flat_map(|target| fixture.graph.sources(target).map(move |source| (NodeId(source), NodeId(target))))
        .collect();
    assert_ne!(edges, in_order);
    edges.sort_by_key(|&(source, target)| (target, source));
    assert_eq!(edges, in_order);
}

#[test]
fn messages_are_the_sampled_edges_without_the_positives_and_their_reverses() {
    let fixture = Fixture::new();
    for (fanouts, view) in [("-1,-1", ViewKind::Auto), ("3,2", ViewKind::Mapped)] {
        let with = |excluded| {
            let task = fixture.task(Negatives::Pairs(1.0));
            fixture.batches(fanouts, LinkTask { excluded, ..task }, view)
        };
        let (all, without) = (with(ExcludedEdges::None), with(ExcludedEdges::WithReverses));
        let forward = with(ExcludedEdges::Positives);
        let mut leaks = [0, 0];
        for index in 0..all.batches() {
            let ((all, samples), (without, _)) = (sampled(&all, index), sampled(&without, index));
            assert_eq!((&all.links, &all.nodes), (&without.links, &without.nodes));
            let positives: BTreeSet<_> = samples.positives.iter().copied().collect();
            let reverses: BTreeSet<_> = positives.iter().map(|&(source, target)| (target, source)).collect();
            for (number, mut expected) in messages(&all).into_iter().enumerate() {
                leaks[0] += expected.keys().filter(|edge| positives.contains(edge)).count();
                expected.retain(|edge, _| !positives.contains(edge));
                assert_eq!(messages(&sampled(&forward, index).0)[number], expected);
                leaks[1] += expected.keys().filter(|edge| reverses.contains(edge)).count();
                expected.retain(|edge, _| !reverses.contains(edge));
                assert_eq!(messages(&without)[number], expected);
            }
        }
        assert!(leaks.iter().all(|&leaks| leaks > 10), "the test has nothing to find: {leaks:?}");
    }
}

#[test]
fn no_negative_is_an_edge_unless_that_is_wished() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    for negatives in [Negatives::Pairs(1.5), Negatives::Destinations(7), Negatives::Shared(30)] {
        for candidates in
            [Candidates::Uniform, Candidates::InBatch, Candidates::by_degree(&fixture.store, None).unwrap()]
        {
            let mut drawn_edges = 0;
            for known in [None, Some(KnownEdges::default())] {
                let excludes = known.is_some();
                let task = LinkTask { known, candidates: candidates.clone(), ..fixture.task(negatives) };
                let batches = fixture.batches("2", task, ViewKind::Auto);
                for index in 0..batches.batches() {
                    let (_, samples) = sampled(&batches, index);
                    let positives = samples.positives.len();
                    let pairs: Vec<_> = match negatives {
                        Negatives::Shared(count) => {
                            assert_eq!(samples.negatives.len(), count as usize);
                            let all = samples.positives.iter().flat_map(|&(source, _)| {
                                samples.negatives.iter().map(move |&(_, target)| (source, target))
                            });
                            let all = all.zip(&samples.is_negative);
                            all.filter(|&(_, is_negative)| *is_negative).map(|(pair, _)| pair).collect()
                        }
                        Negatives::Destinations(each) => {
                            assert_eq!(samples.negatives.len(), positives * each as usize);
                            for (at, (source, _)) in samples.negatives.iter().enumerate() {
                                assert_eq!(*source, samples.positives[at / each as usize].0);
                            }
                            samples.negatives.clone()
                        }
                        _ => {
                            assert_eq!(samples.negatives.len(), (positives * 3).div_ceil(2));
                            samples.negatives.clone()
                        }
                    };
                    let wrong = pairs.iter().filter(|pair| edges.contains(pair) || pair.0 == pair.1).count();
                    match excludes {
                        true => assert_eq!(wrong, 0, "{negatives:?} {candidates:?}"),
                        false => drawn_edges += wrong,
                    }
                }
            }
            assert!(drawn_edges > 0, "the test has nothing to find: {negatives:?} {candidates:?}");
        }
    }
}

#[test]
fn known_edges_of_a_list_are_no_negatives() {
    let fixture = Fixture::new();
    let known = KnownEdges::new(&fixture.store, &[], pairs_to(5..NODES).collect()).unwrap();
    let task = LinkTask { known: Some(known), ..fixture.task(Negatives::Pairs(1.0)) };
    let batches = fixture.batches("2", task, ViewKind::Auto);
    let (_, samples) = sampled(&batches, 0);
    assert!(samples.negatives.iter().all(|&(_, target)| target.0 < 5));
}

#[test]
fn listed_negatives_are_destinations_of_their_source_and_no_edges() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    // The edges, and a negative of each source.
    let negative_of = |source| {
        let mut targets = (0..NODES).map(|step| (source * 7 + step) % NODES);
        let target = targets.find(|&target| target != source && !edges.contains(&(NodeId(source), NodeId(target))));
        (NodeId(source), NodeId(target.unwrap()))
    };
    let mut listed = edges.clone();
    listed.extend((0..NODES).map(negative_of));
    let task = |listed: Vec<(NodeId, NodeId)>, negatives| LinkTask {
        candidates: Candidates::Listed(Arc::new(ListedPairs::new(listed))),
        ..fixture.task(negatives)
    };
    for negatives in [Negatives::Destinations(3), Negatives::Pairs(1.0), Negatives::Shared(9)] {
        let batches = fixture.batches("2", task(listed.iter().copied().collect(), negatives), ViewKind::Auto);
        let targets: BTreeSet<_> = listed.iter().map(|pair| pair.1).collect();
        for pair in self::negatives(&batches) {
            match negatives {
                Negatives::Destinations(_) => assert!(listed.contains(&pair) && !edges.contains(&pair), "{pair:?}"),
                _ => assert!(targets.contains(&pair.1)),
            }
        }
    }
    let error = |listed| fixture.refused(&task(listed, Negatives::Destinations(1)));
    assert!(error(edges.iter().copied().collect()).contains("found no node without an edge from"));
    assert!(error(vec![(NodeId(0), NodeId(1))]).contains("the list of negatives has no pair of"));
}

#[test]
fn sources_without_a_listed_negative_have_uniform_ones_if_that_is_wished() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    // Even sources have two listed negatives.
    let mut listed = Vec::new();
    for source in (0..NODES).step_by(2) {
        let pairs = (0..NODES).map(|target| (NodeId(source), NodeId(target)));
        let negatives = pairs.filter(|pair| pair.0 != pair.1 && !edges.contains(pair));
        listed.extend(negatives.take(2));
    }
    let of_source = ListedPairs::new(listed.clone());
    assert_eq!(of_source.of_source_max(), 2);
    let task = LinkTask {
        candidates: Candidates::Listed(Arc::new(ListedPairs::new(listed.clone()).or_uniform())),
        ..fixture.task(Negatives::Destinations(4))
    };
    let batches = fixture.batches("2", task, ViewKind::Auto);
    let mut others = BTreeSet::new();
    for pair in negatives(&batches) {
        match of_source.pairs_of_source(pair.0) {
            [] => {
                others.insert(pair.1);
            }
            listed => assert!(listed.contains(&pair), "{pair:?}"),
        }
    }
    assert!(others.len() > 100, "{}", others.len());
}

#[test]
fn a_source_with_edges_to_all_nodes_is_an_error() {
    let fixture = Fixture::new();
    let known = KnownEdges::new(&fixture.store, &[], pairs_to(0..NODES).collect()).unwrap();
    let task = LinkTask { known: Some(known), ..fixture.task(Negatives::Destinations(1)) };
    let error = fixture.refused(&task);
    assert!(error.contains("found no node without an edge from"), "{error}");
}

#[test]
fn negatives_by_degree_have_the_frequencies_of_degree_to_the_power_of_three_quarters() {
    let fixture = Fixture::new();
    let task = LinkTask {
        known: None,
        candidates: Candidates::by_degree(&fixture.store, None).unwrap(),
        ..fixture.task(Negatives::Destinations(40))
    };
    let batches = fixture.batches("2", task, ViewKind::Auto);
    let mut counts = vec![0.0; NODES as usize];
    let mut drawn = 0.0;
    for (_, target) in negatives(&batches) {
        counts[target.0 as usize] += 1.0;
        drawn += 1.0;
    }
    let weights: Vec<f64> = (0..NODES).map(|node| (fixture.graph.sources(node).count() as f64).powf(0.75)).collect();
    let sum: f64 = weights.iter().sum();
    for (count, weight) in counts.iter().zip(weights) {
        let expected = drawn * weight / sum;
        assert!((count - expected).abs() <= 6.0 * expected.sqrt(), "{count} of {expected}");
    }
}

#[test]
fn samples_of_edges_are_distinct_differ_by_key_and_keep_their_numbers() {
    let fixture = Fixture::new();
    let all = fixture.positives(None);
    let samples: Vec<_> = [1, 2].map(|key| fixture.positives(Some((100, key)))).to_vec();
    for sample in &samples {
        assert_eq!(sample.len(), 100);
        let numbers: BTreeSet<_> = (0..100).map(|index| sample.number(index)).collect();
        assert_eq!(numbers.len(), 100);
        for index in 0..100 {
            assert_eq!(sample.edges()[index as usize], all.edges()[sample.number(index) as usize]);
        }
    }
    assert_ne!(samples[0], samples[1]);
    let error = Positives::of_part(PartEdges::all(&fixture.store, EdgePart::Graph), None, 1000, &Silent).unwrap_err();
    assert!(error.to_string().contains("sample fewer edges"), "{error}");
    let error = Positives::of_part(PartEdges::all(&fixture.store, EdgePart::Val), None, 1000, &Silent).unwrap_err();
    assert!(error.to_string().contains("--edge-split"), "{error}");
}

#[test]
fn with_destinations_positives_negatives_and_candidates_end_at_them() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    let among = Arc::new(NodeSet::from_members(NODES, (0..NODES).step_by(3).map(NodeId)));
    let part =
        PartEdges { store: &fixture.store, part: EdgePart::Graph, destinations: Some(&among), times: None, ends: None };
    let positives = Positives::of_part(part, None, 1 << 20, &Silent).unwrap();
    let expected = fixture.positives(None).edges().iter().copied().filter(|edge| among.contains(edge.1)).collect();
    assert_eq!(positives, Positives::list(expected));
    let sample = Positives::of_part(part, Some((20, 7)), 1 << 20, &Silent).unwrap();
    assert_eq!(sample.len(), 20);
    for index in 0..20 {
        assert_eq!(sample.edges()[index as usize], positives.edges()[sample.number(index) as usize]);
    }
    let listed = pairs_to(0..NODES).filter(|pair| pair.0.0 % 2 == 0 && !edges.contains(pair) && among.contains(pair.1));
    let listed = Arc::new(ListedPairs::new(listed.collect()).or_uniform());
    let by_degree = Candidates::by_degree(&fixture.store, Some(among.clone())).unwrap();
    for (negatives, candidates) in [
        (Negatives::Pairs(2.0), Candidates::Uniform),
        (Negatives::Destinations(2), Candidates::Uniform),
        (Negatives::Shared(20), Candidates::Uniform),
        (Negatives::Destinations(2), by_degree.clone()),
        (Negatives::Destinations(2), Candidates::Listed(listed)),
    ] {
        let task = LinkTask { candidates, destinations: Some(among.clone()), ..fixture.task(negatives) };
        let mut view = BatchedView::new(&fixture.store);
        let found = view.negatives(&task, &positives.edges()[..40]);
        assert!(found.len() >= 20 && found.iter().all(|pair| among.contains(pair.1)), "{negatives:?} {found:?}");
        let distinct: BTreeSet<_> = found.iter().map(|pair| pair.1).collect();
        assert!(distinct.len() > 10, "{negatives:?} {distinct:?}");
    }
    let known = KnownEdges::new(&fixture.store, &[EdgePart::Graph], Vec::new()).unwrap();
    for nodes in [Candidates::Uniform, by_degree] {
        let candidates = RankCandidates {
            joins_one_type: true,
            count: Some(30),
            nodes,
            destinations: Some(among.clone()),
            ends: EndTimes::default(),
            seed: 8,
        };
        let edge = positives.edges()[5];
        let Ranked { filtered, raw, pair } = candidates.draw(&fixture.store, &known, 5, edge, None).unwrap();
        assert!(filtered.iter().chain(&raw).all(|&node| among.contains(node)));
        assert_eq!((filtered.len(), raw.len()), (30, 30));
        let (source, destination) = pair.unwrap();
        assert!(source == edge.0 && among.contains(destination));
    }
}

/// Samples single minibatches.
struct BatchedView {
    view: PartitionView,
    sampler: Sampler,
}

impl BatchedView {
    fn new(store: &Arc<Store>) -> Self {
        let view = PartitionView::open(store, Owned::whole(store), &ViewOptions::default()).unwrap();
        Self { view, sampler: Sampler::uniform("2".parse().unwrap(), false) }
    }

    /// The negatives of a minibatch of these positives.
    fn negatives(&mut self, task: &LinkTask, positives: &[(NodeId, NodeId)]) -> Vec<(NodeId, NodeId)> {
        let key = BatchKey { seed: 5, epoch: 0, partition: PartitionId(0), batch: 0 };
        let (mut scratch, mut sampling, mut out) = (LinkScratch::default(), Scratch::default(), Minibatch::default());
        let shape = GraphShape::untyped(NODES);
        let graph = GraphLists { shape: &shape, views: vec![&self.view] };
        let (out_of_types, mut ends) = (std::slice::from_mut(&mut out), SeedParts::default());
        task.list_ends(&graph, positives, key, &mut scratch, &mut ends).unwrap();
        self.sampler.sample_types(&graph, ends.seeds(), key, &mut sampling, out_of_types).unwrap();
        task.put_pairs(&self.sampler, &shape, &mut scratch, out_of_types).unwrap();
        let node = |row: u32| out.nodes[row as usize];
        out.links.negatives.iter().map(|&[source, target]| (node(source), node(target))).collect()
    }
}

#[test]
fn the_known_edges_of_sources_are_read_from_all_lists() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    let sources = [3, 8, 14, 299].map(NodeId);
    let found = known_edges_of(&fixture.store, &[EdgePart::Graph], &sources, 1 << 20, &Silent).unwrap();
    let expected: Vec<_> = edges.iter().copied().filter(|(source, _)| sources.contains(source)).collect();
    assert!(expected.len() > 4);
    assert_eq!(found, expected);
    let error = known_edges_of(&fixture.store, &[EdgePart::Graph], &sources, 48, &Silent).unwrap_err();
    assert!(error.to_string().contains("known edges of 4 sources"), "{error}");
}

#[test]
fn partitions_have_the_edges_to_their_nodes_and_draw_negatives_from_them() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    let listed = pairs_to(0..NODES).filter(|pair| pair.0 != pair.1 && !edges.contains(pair)).step_by(3);
    for candidates in [
        Candidates::by_degree(&fixture.store, None).unwrap(),
        Candidates::Listed(Arc::new(ListedPairs::new(listed.collect()).or_uniform())),
    ] {
        assert_partitions_draw(&fixture, candidates);
    }
}

fn assert_partitions_draw(fixture: &Fixture, candidates: Candidates) {
    let task = LinkTask { candidates, ..fixture.task(Negatives::Destinations(2)) };
    let options = LoaderOptions {
        rows: RowOptions::default(),
        memory: 64 << 20,
        threads: 1,
        ..LoaderOptions::new(MinibatchOptions {
            batch: 20,
            links: Some(Arc::new(task)),
            join_steps: Some(Join::SharedInput),
            ..MinibatchOptions::new(Sampler::uniform("2,2".parse().unwrap(), false))
        })
    };
    let mut loader = Loader::new(&fixture.store, options);
    let parts = assignment(Schedule::Sweep, &[chunk_sizes(fixture.store.manifest())], 4, 0, 0, 0).unwrap();
    loader.partition(&parts, &Seeds::All, &Silent).unwrap();
    let owned: Vec<Owned> = loader.served().map(|part| part.view.owned().clone()).collect();
    let positives = owned.iter().map(|owned| {
        let (edges, chunks) = (PartEdges::all(&fixture.store, EdgePart::Graph), owned.base());
        let count = Positives::count(edges, chunks, &Silent).unwrap();
        Positives::of_chunks(edges, chunks, count, None, 1 << 20, &Silent).unwrap()
    });
    let positives: Vec<_> = positives.map(Arc::new).collect();
    let counts: Vec<u64> = positives.iter().map(|positives| positives.len()).collect();
    loader.set_positives(positives, &counts);
    let lists = loader.sample_halo_neighbors(0, &Silent).unwrap().unwrap();
    loader.set_halo_lists(lists);
    let batches = loader.batches(3, |batches| batches).unwrap();
    let (mut edges, mut halo_sources) = (Vec::new(), 0);
    for index in 0..batches.batches() {
        let mut minibatch = Minibatch::default();
        batches.sample(index, &mut Default::default(), std::slice::from_mut(&mut minibatch)).unwrap();
        // Rows of a model are the destinations of the first block.
        let node = |row: u32| minibatch.destination(row as usize);
        let (mut first, mut first_negative) = (0, 0);
        for &place in batches.places(index) {
            let owned = &owned[place.partition.0 as usize];
            let count = batches.seeds_of(place);
            for &[source, target] in &minibatch.links.positives[first..first + count] {
                assert!(owned.has_seed(node(target)));
                halo_sources += usize::from(!owned.contains(node(source)));
                edges.push((node(source), node(target)));
            }
            for &[source, target] in &minibatch.links.negatives[first_negative..first_negative + 2 * count] {
                assert!(owned.contains(node(target)));
                assert!(!edges_of(&fixture.graph).contains(&(node(source), node(target))));
            }
            (first, first_negative) = (first + count, first_negative + 2 * count);
        }
        assert_eq!(first, minibatch.links.positives.len());
    }
    assert!(halo_sources > 100, "{halo_sources}");
    let mut all = fixture.positives(None).edges().to_vec();
    all.sort_unstable();
    edges.sort_unstable();
    assert_eq!(edges, all);
}
