//! Blocks, budgets and threads against plain loops over all pairs.

use std::{collections::BTreeSet, fs, sync::Arc};

use grappa_engine::{
    aggregate::StateRows,
    ingest::{EdgeSplit, IngestOptions, ingest},
};
use grappa_formats::{EdgePart, NodeId, manifest::FeatureDtype, random::SplitMix64};
use grappa_io::progress::Silent;
use grappa_run::{
    model::{Decoder, LayerKind, ModelOptions},
    scores::{LinkCandidates, LinkReport, LinkScores, SourceReport, SourceScores},
};
use grappa_sampling::{
    NodeSet,
    links::{Candidates, EndTimes, KnownEdges, ListedPairs, RankCandidates},
};
use grappa_storage::Store;
use tch::{Device, Tensor};
use tempfile::TempDir;

use super::{EndRows, LinkEmbeddings, RankedEdges};
use crate::nn::Model;

const NODES: u64 = 120;
const WIDTH: usize = 4;

/// A model, the rows of all nodes, and a graph whose edges are split.
struct Fixture {
    model: Model,
    table: Vec<f32>,
    rows: StateRows,
    all: NodeSet,
    folder: TempDir,
}

impl Fixture {
    fn new(decoder: Decoder) -> Self {
        let options = ModelOptions {
            layer: LayerKind::Sage,
            layers: 1,
            inputs: 3,
            hidden: WIDTH,
            outputs: WIDTH,
            heads: 1,
            decoder: Some(decoder),
            ..ModelOptions::default()
        };
        let mut draws = SplitMix64::new(3);
        // Products of few values are exact, and scores are equal. Other decoders round, so their scores should not be equal.
        let table: Vec<f32> = (0..NODES as usize * WIDTH)
            .map(|_| match decoder {
                Decoder::Dot => (draws.draw() % 5) as f32 - 1.5,
                _ => (draws.draw() >> 40) as f32 / (1 << 23) as f32 - 1.0,
            })
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let mut rows = StateRows::in_file(folder.path(), NODES, WIDTH, FeatureDtype::F32).unwrap();
        rows.write(0, &table).unwrap();
        Self { model: Model::new(options, 1, Device::Cpu).unwrap(), table, rows, all: NodeSet::all(NODES), folder }
    }

    fn embeddings(&self, memory: u64, threads: usize) -> LinkEmbeddings<'_> {
        LinkEmbeddings {
            decoder: self.model.decoder().unwrap(),
            rows: &self.rows,
            sources: EndRows { nodes: &self.all, first: 0 },
            targets: EndRows { nodes: &self.all, first: 0 },
            destinations: &self.all,
            memory,
            threads,
            device: Device::Cpu,
        }
    }

    /// The score of a pair, alone.
    fn score(&self, source: NodeId, destination: NodeId) -> f32 {
        let row = |node: NodeId| Tensor::from_slice(&self.table[node.0 as usize * WIDTH..][..WIDTH]).view([1, -1]);
        let score = self.model.decoder().unwrap().score(&row(source), &row(destination));
        score.double_value(&[0]) as f32
    }

    fn store(&self) -> Arc<Store> {
        self.store_of(false)
    }

    fn store_of(&self, undirected: bool) -> Arc<Store> {
        let (edges, out) = (self.folder.path().join("edges.txt"), self.folder.path().join("g.grappa"));
        let mut draws = SplitMix64::new(9);
        let lines: BTreeSet<_> = (0..700).map(|_| (draws.draw() % NODES, draws.draw() % NODES)).collect();
        let chain = (0..NODES - 1).map(|node| (node, node + 1));
        let lines: Vec<String> = lines.into_iter().chain(chain).map(|(s, d)| format!("{s} {d}")).collect();
        fs::write(&edges, lines.join("\n")).unwrap();
        let mut options = IngestOptions::new(vec![edges], out.clone());
        options.edges.options.undirected = undirected;
        options.edges.split = Some(EdgeSplit::random("70/15/15".parse().unwrap(), 1).unwrap());
        ingest(&options, &Silent).unwrap();
        Arc::new(Store::open(&out).unwrap())
    }
}

/// All edges of a store, of all parts.
fn edges_of(store: &Store, parts: &[EdgePart]) -> Vec<(NodeId, NodeId)> {
    let of_part = |&part: &EdgePart| {
        let of_chunk = |chunk| {
            let lists = store.part(part, chunk).unwrap();
            let first = lists.span().first_node.0;
            let rows = (0..lists.rows().rows()).flat_map(|row| {
                let sources: Vec<u64> = lists.rows().row(row).unwrap().iter().collect();
                sources.into_iter().map(move |source| (NodeId(source), NodeId(first + row)))
            });
            rows.collect::<Vec<_>>()
        };
        store.present_chunks().flat_map(of_chunk).collect::<Vec<_>>()
    };
    parts.iter().flat_map(of_part).collect()
}

fn close(a: f32, b: f32) -> bool {
    (a - b).abs() < 1e-4
}

#[test]
fn scores_of_pairs_do_not_depend_on_memory() {
    for decoder in Decoder::of_embeddings() {
        let fixture = Fixture::new(decoder);
        let pairs: Vec<_> = (0..300).map(|i| (NodeId(i * 7 % NODES), NodeId(i * i % NODES))).collect();
        for (memory, threads) in [(1, 1), (2000, 2), (1 << 20, 2)] {
            let scores = fixture.embeddings(memory, threads).score(&pairs, &Silent).unwrap();
            for (&(source, destination), score) in pairs.iter().zip(scores) {
                let expected = fixture.score(source, destination);
                assert!(close(score, expected), "{decoder} {memory}: {score} {expected}");
            }
        }
    }
}

#[test]
fn the_best_destinations_are_the_first_of_all_sorted_ones() {
    for decoder in Decoder::of_embeddings() {
        let fixture = Fixture::new(decoder);
        let sources: Vec<_> = [5, 0, 119, 5].map(NodeId).to_vec();
        let known: Vec<_> = (0..40).map(|node| (NodeId(5), NodeId(node * 3))).collect();
        for (memory, threads, k) in [(1, 1, 3), (4000, 2, 10), (1 << 20, 2, 1), (1 << 20, 2, 1000)] {
            let best = fixture.embeddings(memory, threads).top_k(&sources, k, &known, &Silent).unwrap();
            for (&source, best) in sources.iter().zip(best) {
                let is_candidate = |&node: &NodeId| node != source && known.binary_search(&(source, node)).is_err();
                let mut expected: Vec<f32> =
                    (0..NODES).map(NodeId).filter(is_candidate).map(|node| fixture.score(source, node)).collect();
                expected.sort_unstable_by(|a, b| b.total_cmp(a));
                assert_eq!(best.len(), k.min(expected.len()), "{decoder} {k}");
                let nodes: BTreeSet<_> = best.iter().map(|(node, _)| *node).collect();
                assert_eq!(nodes.len(), best.len(), "each once");
                for ((node, score), expected) in best.into_iter().zip(expected) {
                    assert!(is_candidate(&node) && close(score, fixture.score(source, node)));
                    assert!(close(score, expected), "{decoder}: {score} {expected}");
                }
            }
        }
    }
}

#[test]
fn of_equal_scores_the_first_nodes_are_the_best() {
    let mut fixture = Fixture::new(Decoder::Dot);
    fixture.rows.write(0, &vec![1.0; NODES as usize * WIDTH]).unwrap();
    let best = fixture.embeddings(3000, 2).top_k(&[NodeId(1)], 3, &[], &Silent).unwrap();
    let nodes: Vec<_> = best[0].iter().map(|(node, _)| node.0).collect();
    assert_eq!(nodes, [0, 2, 3]);
}

#[test]
fn only_nodes_of_the_set_are_destinations() {
    let fixture = Fixture::new(Decoder::Dot);
    let set = NodeSet::from_members(NODES, [3, 50, 51, 100].map(NodeId));
    let mut rows = StateRows::new(4, WIDTH).unwrap();
    for (position, node) in (0..).zip([3, 50, 51, 100]) {
        rows.write(position, &fixture.table[node * WIDTH..][..WIDTH]).unwrap();
    }
    let [sources, targets] = EndRows::one_type(&set);
    let embeddings =
        LinkEmbeddings { rows: &rows, sources, targets, destinations: &set, ..fixture.embeddings(1 << 20, 2) };
    let best = embeddings.top_k(&[NodeId(50)], 10, &[], &Silent).unwrap();
    let nodes: BTreeSet<_> = best[0].iter().map(|(node, _)| node.0).collect();
    assert_eq!(nodes, BTreeSet::from([3, 51, 100]));
    let listed = NodeSet::from_members(NODES, [3, 100].map(NodeId));
    let embeddings = LinkEmbeddings { destinations: &listed, ..embeddings };
    let best = embeddings.top_k(&[NodeId(50)], 10, &[(NodeId(50), NodeId(51))], &Silent).unwrap();
    let found: BTreeSet<_> = best[0].iter().map(|(node, _)| node.0).collect();
    assert_eq!(found, BTreeSet::from([3, 100]));
    assert!(best[0].iter().all(|&(node, score)| close(score, fixture.score(NodeId(50), node))));
}

fn report(scores: LinkScores) -> LinkReport {
    scores.report(LinkCandidates { count: None, kind: "uniform".to_owned(), among: None })
}

#[test]
fn ranks_equal_a_plain_loop_and_depend_on_nothing_but_the_seed() {
    for decoder in Decoder::of_embeddings() {
        let fixture = Fixture::new(decoder);
        let store = fixture.store();
        let known = KnownEdges::new(&store, &EdgePart::ALL, Vec::new()).unwrap();
        let is_edge: BTreeSet<_> = edges_of(&store, &EdgePart::ALL).into_iter().collect();
        let edges = edges_of(&store, &[EdgePart::Test]);
        assert!(edges.len() > 50);
        let pairs = (0..NODES).flat_map(|source| (0..NODES).map(move |target| (NodeId(source), NodeId(target))));
        let listed = Arc::new(ListedPairs::new(pairs.step_by(7).collect()));
        for (count, nodes) in
            [(Some(20), Candidates::Uniform), (Some(18), Candidates::Listed(listed)), (None, Candidates::Uniform)]
        {
            let candidates = RankCandidates {
                joins_one_type: true,
                count,
                nodes,
                destinations: None,
                ends: EndTimes::default(),
                seed: 4,
            };
            let ranked = RankedEdges {
                store: &store,
                parts: &EdgePart::ALL,
                candidates: &candidates,
                edges: &edges,
                times: &[],
                first: 0,
                drawn: None,
            };
            let drawn = ranked.draw_all(&known, 2).unwrap();
            let mut expected = LinkScores::default();
            for (number, &(source, destination)) in (0..).zip(&edges) {
                let drawn = candidates.draw(&store, &known, number, (source, destination), None).unwrap();
                let nodes = || (0..NODES).map(NodeId).filter(|&node| node != destination);
                let (filtered, raw): (Vec<_>, Vec<_>) = match count {
                    Some(_) => (drawn.filtered, drawn.raw),
                    None => {
                        let is_other = |node: &NodeId| *node != source && !is_edge.contains(&(source, *node));
                        (nodes().filter(is_other).collect(), nodes().collect())
                    }
                };
                let edge = fixture.score(source, destination);
                let score = |&node: &NodeId| fixture.score(source, node);
                expected.filtered.add_scores(edge, filtered.iter().map(score));
                expected.raw.add_scores(edge, raw.iter().map(score));
                let (source, destination) = drawn.pair.unwrap();
                expected.add_pair(edge, fixture.score(source, destination));
            }
            let expected = report(expected);
            assert_ne!(expected.filtered, expected.raw, "there is nothing to filter");
            for (memory, threads) in [(120_000, 1), (400_000, 2)] {
                let embeddings = fixture.embeddings(memory, threads);
                let found = report(embeddings.rank(&ranked, &Silent).unwrap());
                let differences = [
                    (found.filtered.mrr, expected.filtered.mrr),
                    (found.raw.mrr, expected.raw.mrr),
                    (found.filtered.hits_at_10, expected.filtered.hits_at_10),
                    (found.auc, expected.auc),
                    (found.average_precision, expected.average_precision),
                ];
                for (found, expected) in differences {
                    let difference = (found.unwrap() - expected.unwrap()).abs();
                    assert!(difference < 1e-6, "{decoder} {count:?} {memory}: {found:?} {expected:?}");
                }
                // Processes score parts.
                let (one, other) = edges.split_at(edges.len() / 3);
                let part = |edges, first| {
                    let part = RankedEdges { edges, first, ..ranked };
                    embeddings.rank(&part, &Silent).unwrap()
                };
                let mut parts = part(one, 0);
                parts.merge(part(other, one.len() as u64));
                assert_eq!(report(parts), found);
                // A later evaluation has the candidates.
                let again = RankedEdges { drawn: Some(&drawn), ..ranked };
                assert_eq!(report(embeddings.rank(&again, &Silent).unwrap()), found);
            }
        }
    }
}

/// The scores of the rankings of all destinations by a plain loop: every destination of a source, sorted by score.
fn ranked_plainly(
    fixture: &Fixture,
    destinations: &NodeSet,
    is_known: &BTreeSet<(NodeId, NodeId)>,
    held_out: &[(NodeId, NodeId)],
) -> SourceScores {
    let mut scores = SourceScores::default();
    for source in (0..NODES).map(NodeId) {
        let is_held_out = |node: NodeId| node != source && held_out.binary_search(&(source, node)).is_ok();
        let is_candidate =
            |node: &NodeId| *node != source && (is_held_out(*node) || !is_known.contains(&(source, *node)));
        let mut ranked: Vec<_> =
            destinations.iter().filter(is_candidate).map(|node| (fixture.score(source, node), node)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let count = ranked.iter().filter(|(_, node)| is_held_out(*node)).count();
        let are_held_out: Vec<bool> = ranked.iter().map(|(_, node)| is_held_out(*node)).collect();
        scores.add(&are_held_out, count as u64);
    }
    scores
}

#[test]
fn rankings_of_sources_equal_a_plain_loop_for_any_memory_and_division() {
    for (decoder, undirected) in Decoder::of_embeddings().zip([false, true].into_iter().cycle()) {
        let fixture = Fixture::new(decoder);
        let store = fixture.store_of(undirected);
        let all = edges_of(&store, &EdgePart::ALL);
        let reverses = all.iter().filter(|_| undirected).map(|&(source, destination)| (destination, source));
        let is_known: BTreeSet<_> = all.iter().copied().chain(reverses).collect();
        let among = NodeSet::from_members(NODES, (0..NODES).filter(|node| node % 3 > 0).map(NodeId));
        for destinations in [&fixture.all, &among] {
            let mut held_out = edges_of(&store, &[EdgePart::Val]);
            held_out.retain(|edge| destinations.contains(edge.1));
            held_out.sort_unstable();
            held_out.dedup();
            let expected = source_report(ranked_plainly(&fixture, destinations, &is_known, &held_out));
            assert!(expected.recall_at_20.unwrap() > 0.05 && expected.recall_at_20 < expected.recall_at_50);
            for (memory, threads) in [(30_000, 1), (1 << 22, 2)] {
                let embeddings = LinkEmbeddings { destinations, ..fixture.embeddings(memory, threads) };
                let rank = |edges| embeddings.rank_destinations(&store, &EdgePart::ALL, edges, &Silent).unwrap();
                let found = rank(&held_out[..]);
                assert_eq!(source_report(found.clone()), expected, "{decoder} {memory}");
                // Processes rank sources of their own.
                let middle = held_out[held_out.len() / 2].0;
                let (some, others) = held_out.split_at(held_out.partition_point(|edge| edge.0 < middle));
                let mut parts = rank(some);
                parts.merge(&rank(others));
                assert_eq!(source_report(parts), expected);
            }
        }
    }
}

fn source_report(by_source: SourceScores) -> SourceReport {
    let mut scores = LinkScores::default();
    scores.by_source = by_source;
    report(scores).by_source.unwrap()
}

/// Rows of sources and rows of destinations are rows of the same nodes with other numbers.
#[test]
fn nodes_of_two_types_are_ranked_as_plain_loops_do() {
    const SOURCES: u64 = 40;
    let targets = NODES - SOURCES;
    for decoder in Decoder::of_embeddings() {
        let fixture = Fixture::new(decoder);
        let [sources, destinations] = [NodeSet::all(SOURCES), NodeSet::all(targets)];
        let [from, to] = EndRows::two_types([&sources, &destinations]);
        for (memory, threads) in [(1 << 12, 2), (1 << 20, 1)] {
            let embeddings = LinkEmbeddings {
                sources: from,
                targets: to,
                destinations: &destinations,
                ..fixture.embeddings(memory, threads)
            };
            let score = |source: u64, target: u64| fixture.score(NodeId(source), NodeId(SOURCES + target));
            let pairs = [(3, 3), (39, 79), (0, 0), (17, 5)].map(|(source, target)| (NodeId(source), NodeId(target)));
            for ((source, target), found) in pairs.iter().zip(embeddings.score(&pairs, &Silent).unwrap()) {
                assert!(close(found, score(source.0, target.0)), "{decoder}");
            }
            // The destination with the number of the source is one like the others. A known one is not.
            let known = [(NodeId(3), NodeId(7))];
            let best = &embeddings.top_k(&[NodeId(3)], targets as usize, &known, &Silent).unwrap()[0];
            let found: BTreeSet<u64> = best.iter().map(|(node, _)| node.0).collect();
            assert_eq!(found, (0..targets).filter(|&node| node != 7).collect(), "{decoder}");
            assert!(best.iter().all(|&(node, found)| close(found, score(3, node.0))), "{decoder}");
            assert!(best.is_sorted_by(|a, b| a.1 >= b.1), "{decoder}");
        }
    }
}
