//! Links of relations without times between nodes that have times: each is there from its later end on, and so are its candidates.

use std::{collections::BTreeSet, sync::Arc};

use grappa_engine::{
    EdgePart, Graph, Loader, NodeId, Silent,
    sample::{
        Assignment, LoaderOptions, Minibatch, Sampler, Seeds, TimeOptions, feed::MinibatchOptions, view::shape_of,
    },
};
use grappa_sampling::links::{
    Candidates, EdgeBank, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, Negatives, PartEdges, Positives,
    RankCandidates, TimeRange, WithoutNegative, split_by_time,
};

use crate::node_times::{Known, Shop, USERS};

/// The number of a relation.
fn number_of(graph: &Graph, name: &str) -> usize {
    graph.manifest().relations.iter().position(|entry| entry.name == name).unwrap()
}

/// The later end of a link, as a slow reader of the input knows it; `i64::MIN` stands for no time.
fn time_of_link(known: &Known, relation: usize, (source, target): (NodeId, NodeId)) -> i64 {
    let [from, to] = known.ends[relation];
    let time = |node_type: usize, node: NodeId| {
        known.times[node_type].as_ref().map_or(i64::MIN, |times| times[node.0 as usize])
    };
    time(from, source).max(time(to, target))
}

fn all_links(graph: &Graph, ends: &EndTimes, relation: usize) -> Positives {
    let store = &graph.relations()[relation];
    let edges = PartEdges { times: Some(TimeRange::ALL), ends: Some(ends), ..PartEdges::all(store, EdgePart::Graph) };
    Positives::of_part(edges, None, 1 << 20, &Silent).unwrap()
}

#[test]
fn links_are_there_from_their_later_end_on_and_are_divided_by_that_time() {
    let shop = Shop::new(60, 25, 300);
    let graph = shop.ingested("g.grappa");
    let known = Known::new(&shop, &graph);
    for name in ["by", "of", "rev_of", "follows"] {
        let relation = number_of(&graph, name);
        let (store, ends) = (&graph.relations()[relation], EndTimes::open(&graph, relation).unwrap());
        assert!(!ends.is_empty() && EdgeBank::open(store).unwrap().is_none());
        let links = all_links(&graph, &ends, relation);
        assert_eq!(links.len(), store.manifest().edges);
        for (&link, &time) in links.edges().iter().zip(links.times()) {
            assert_eq!(time, time_of_link(&known, relation, link), "{name}");
        }
        let parts = split_by_time(store, &ends, [0.7, 0.15], &Silent).unwrap();
        let mut sorted = links.times().to_vec();
        sorted.sort_unstable();
        let rank = |share: f64| sorted[(sorted.len() as f64 * share).round() as usize - 1];
        assert_eq!([parts[0].last, parts[1].last], [rank(0.7), rank(0.85)], "{name}");
        // Some of the links, by their numbers.
        let within = PartEdges { times: Some(parts[1]), ends: Some(&ends), ..PartEdges::all(store, EdgePart::Graph) };
        for edges in [within, PartEdges { times: Some(TimeRange::ALL), ..within }] {
            let some = Positives::of_part(edges, Some((9, 3)), 1 << 20, &Silent).unwrap();
            assert_eq!(some.len(), 9);
            for (&link, &time) in some.edges().iter().zip(some.times()) {
                assert_eq!(time, time_of_link(&known, relation, link), "{name}");
                assert!(edges.times.unwrap().contains(time));
            }
        }
    }
    let none = number_of(&graph, "follows");
    assert!(EndTimes::default().of_link(NodeId(0), NodeId(1)).is_none() && EndTimes::open(&graph, none).is_ok());
}

/// Calls `each` with the minibatches of a batch and its pairs as nodes: positives, then for each negative its positive and whether it counts.
fn each_batch(
    graph: &Graph,
    (task, equal): (LinkTask, bool),
    asked: &Positives,
    mut each: impl FnMut(&[Minibatch], usize, (NodeId, NodeId), i64, &[(NodeId, NodeId)]),
) {
    let options = TimeOptions { equal, ..TimeOptions::default() };
    let sampler = Sampler::uniform("-1".parse().unwrap(), false).drawing_once();
    let sampler = sampler.with_relation_fanouts(vec!["-1".parse().unwrap(); graph.relations().len()]).unwrap();
    let sampler = sampler.with_times(options).unwrap().with_edge_times();
    let (relation, negatives) = (task.relation.number, task.negatives);
    let minibatches = MinibatchOptions {
        batch: 1,
        disjoint: true,
        shuffle: false,
        links: Some(Arc::new(task)),
        ..MinibatchOptions::new(sampler)
    };
    let options = LoaderOptions { memory: 256 << 20, threads: 2, ..LoaderOptions::new(minibatches) };
    let mut loader = Loader::of_graph(graph, LoaderOptions { rows: Default::default(), ..options });
    let whole = Assignment::whole(graph.positions().chunks().chunks());
    loader.partition(&whole, &Seeds::List(Arc::new(Vec::new())), &Silent).unwrap();
    loader.set_positives(vec![Arc::new(asked.clone())], &[asked.len()]);
    let shape = shape_of(graph);
    let ends = shape.relations[relation];
    for (index, batch) in loader.epoch(1).unwrap().enumerate() {
        let batch = batch.unwrap();
        let types = batch.minibatches();
        let links = &types[ends.destination].links;
        let node = |pair: &[u32; 2]| {
            (types[ends.source].nodes[pair[0] as usize], types[ends.destination].nodes[pair[1] as usize])
        };
        let counted =
            links.negatives.iter().enumerate().filter(|(at, _)| links.is_negative.get(*at).is_none_or(|is| *is));
        let drawn: Vec<_> = counted.map(|(_, pair)| node(pair)).collect();
        assert!(negatives == Negatives::None || links.negatives.len() as u64 == 4);
        each(types, index, node(&links.positives[0]), types[ends.destination].part_times[0], &drawn);
    }
}

#[test]
fn negatives_are_there_at_the_time_of_their_link_and_messages_have_earlier_links() {
    let shop = Shop::new(60, 25, 300);
    let graph = shop.ingested("g.grappa");
    let known = Known::new(&shop, &graph);
    let shape = shape_of(&graph);
    for name in ["by", "rev_by", "of", "follows"] {
        let relation = number_of(&graph, name);
        let (ends, reverse) = (EndTimes::open(&graph, relation).unwrap(), graph.reverse_of(relation));
        let asked = all_links(&graph, &ends, relation);
        let asked = asked.at((0..asked.len()).step_by(7));
        let is_edge: BTreeSet<_> = all_links(&graph, &ends, relation).edges().iter().copied().collect();
        let is_within_type = known.ends[relation][0] == known.ends[relation][1];
        let (mut drawn_count, mut seen, mut later) = (0, 0, 0);
        for (equal, negatives, excludes) in [
            (false, Negatives::Destinations(4), true),
            (true, Negatives::Destinations(4), true),
            (false, Negatives::Pairs(4.0), false),
        ] {
            let task = LinkTask {
                store: graph.relations()[relation].clone(),
                relation: LinkRelation { number: relation, reverse },
                negatives,
                candidates: Candidates::Uniform,
                destinations: None,
                without_negative: WithoutNegative::Marked,
                known: excludes.then(KnownEdges::default),
                excluded: ExcludedEdges::WithReverses,
                ends: ends.clone(),
            };
            each_batch(&graph, (task, equal), &asked, |types, index, link, time, drawn| {
                assert_eq!((link, Some(time)), (asked.edges()[index], asked.time(index as u64)));
                for &pair in drawn {
                    assert!(time_of_link(&known, relation, pair) <= time, "{name}: {pair:?} at {time}");
                    assert!(!excludes || !is_edge.contains(&pair));
                    drawn_count += 1;
                }
                // All links up to the time, into the ends of the link and of negatives, and never the link itself.
                for (number, is_reverse) in [(relation, false)].into_iter().chain(reverse.map(|number| (number, true)))
                {
                    let ends_of = shape.relations[number];
                    let block = shape.block(types, number, 0);
                    for at in 0..types[ends_of.destination].seeds {
                        let target = types[ends_of.destination].nodes[at];
                        let found: BTreeSet<_> = block
                            .edges_of(at)
                            .map(|edge| types[ends_of.source].nodes[block.indices[edge] as usize])
                            .collect();
                        let all = known.lists[number].get(&target).cloned().unwrap_or_default();
                        let is_seen = |source: &NodeId| {
                            let at = time_of_link(&known, number, (*source, target));
                            let pair = if is_reverse { (target, *source) } else { (*source, target) };
                            later += u64::from(at > time);
                            // Of a type with itself, the reverse of a link is a link of the same relation.
                            let is_link = pair == link || is_within_type && (pair.1, pair.0) == link;
                            if equal { at <= time && !is_link } else { at < time }
                        };
                        let expected: BTreeSet<_> = all.into_iter().filter(is_seen).collect();
                        assert_eq!(found, expected, "{name}, {number} into {target} at {time}, {equal}");
                        seen += found.len();
                    }
                }
            });
        }
        assert!(drawn_count > 300 && later > 50, "{name}: {drawn_count} negatives, {later} later links");
        assert!(seen > 50, "{name}: {seen}");
    }
}

#[test]
fn candidates_are_there_at_the_time_of_their_link() {
    let shop = Shop::new(60, 25, 300);
    let graph = shop.ingested("g.grappa");
    let known = Known::new(&shop, &graph);
    let relation = number_of(&graph, "by");
    let store = &graph.relations()[relation];
    let users = known.times[USERS].as_ref().unwrap();
    let ends = EndTimes::open(&graph, relation).unwrap();
    let edges = KnownEdges::new(store, &[EdgePart::Graph], Vec::new()).unwrap();
    let draw = |ends: &EndTimes, number: u64, link, time| {
        let candidates = RankCandidates {
            joins_one_type: false,
            count: Some(20),
            nodes: Candidates::Uniform,
            destinations: None,
            ends: ends.clone(),
            seed: 3,
        };
        candidates.draw(store, &edges, number, link, Some(time)).unwrap()
    };
    let links = all_links(&graph, &ends, relation);
    let (mut later, mut some) = (0, 0);
    for (number, (&link, &time)) in (0..).zip(links.edges().iter().zip(links.times())) {
        let ranked = draw(&ends, number, link, time);
        let all = ranked.filtered.iter().chain(&ranked.raw).chain(ranked.pair.as_ref().map(|pair| &pair.1));
        for user in all {
            assert!(users[user.0 as usize] <= time, "{user} at {time}");
            some += 1;
        }
        let unlimited = draw(&EndTimes::default(), number, link, time);
        later += unlimited.filtered.iter().filter(|user| users[user.0 as usize] > time).count();
    }
    assert!(some > 5000 && later > 1000, "{some} candidates, and {later} later ones without limits");
}
