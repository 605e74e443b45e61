//! Tests of the candidates that evaluations rank an edge among.

use super::*;

#[test]
fn candidates_of_an_evaluation_are_no_edges_and_follow_from_the_number_of_the_edge() {
    let fixture = Fixture::new();
    let edges = edges_of(&fixture.graph);
    let known = KnownEdges::new(&fixture.store, &[EdgePart::Graph], Vec::new()).unwrap();
    for nodes in [Candidates::Uniform, Candidates::by_degree(&fixture.store, None).unwrap()] {
        let candidates = RankCandidates {
            joins_one_type: true,
            count: Some(40),
            nodes,
            destinations: None,
            ends: EndTimes::default(),
            seed: 8,
        };
        let (mut true_edges, mut drawn) = (0, BTreeSet::new());
        for (number, &(source, target)) in (0..).zip(edges.iter().take(200)) {
            let ranked = candidates.draw(&fixture.store, &known, number, (source, target), None).unwrap();
            assert_eq!((ranked.filtered.len(), ranked.raw.len()), (40, 40));
            for &node in &ranked.filtered {
                assert!(node != source && !edges.contains(&(source, node)));
            }
            let pair = ranked.pair.unwrap();
            assert!(!edges.contains(&pair) && pair.0 != pair.1);
            assert!(!ranked.raw.contains(&target));
            true_edges += ranked.raw.iter().filter(|&&node| edges.contains(&(source, node))).count();
            let again = candidates.draw(&fixture.store, &known, number, (source, target), None).unwrap();
            assert_eq!(ranked, again);
            drawn.insert(ranked.filtered);
        }
        assert!(true_edges > 20, "there is nothing to filter: {true_edges}");
        assert_eq!(drawn.len(), 200, "each edge has candidates of its own");
    }
}

#[test]
fn listed_candidates_are_all_of_the_source_and_filtered_without_known_ones() {
    let graph = Graph::new(20, |node| if node == 5 { vec![1, 2] } else { vec![] });
    let folder = graph.store(2);
    let known = KnownEdges::new(&folder.store, &[EdgePart::Graph], Vec::new()).unwrap();
    let listed = [(1, 5), (1, 7), (1, 1), (1, 9), (2, 5), (3, 4)];
    let pairs = listed.map(|(source, target)| (NodeId(source), NodeId(target)));
    let candidates = RankCandidates {
        joins_one_type: true,
        count: Some(4),
        nodes: Candidates::Listed(Arc::new(ListedPairs::new(pairs.to_vec()))),
        destinations: None,
        ends: EndTimes::default(),
        seed: 8,
    };
    let draw = |source, target| candidates.draw(&folder.store, &known, 0, (NodeId(source), NodeId(target)), None);
    let ranked = draw(1, 9).unwrap();
    assert_eq!(ranked.filtered, [NodeId(7)]);
    assert_eq!(ranked.raw, [7, 1, 5].map(NodeId));
    for source in [2, 8] {
        let error = draw(source, 9).unwrap_err().to_string();
        assert!(error.contains(&format!("no node without an edge from node {source}")), "{error}");
    }
}

#[test]
fn a_source_with_edges_to_all_nodes_has_no_candidates() {
    let graph = Graph::new(20, |_| vec![0]);
    let folder = graph.store(2);
    let known = KnownEdges::new(&folder.store, &[EdgePart::Graph], Vec::new()).unwrap();
    let candidates = RankCandidates {
        joins_one_type: true,
        count: Some(2),
        nodes: Candidates::Uniform,
        destinations: None,
        ends: EndTimes::default(),
        seed: 8,
    };
    let draw = |source| candidates.draw(&folder.store, &known, 0, (NodeId(source), NodeId(7)), None).unwrap();
    assert_eq!(draw(1).filtered.len(), 2);
    let none = draw(0);
    assert!(none.filtered.is_empty() && none.raw.len() == 1, "{none:?}");
}

#[test]
fn an_edge_whose_source_has_no_negative_is_marked() {
    let fixture = Fixture::new();
    // Node 1 has edges to all nodes, node 8 to half of them.
    let listed = pairs_to(0..NODES).filter(|&(source, target)| source.0 == 1 || (source.0 == 8 && target.0 % 2 == 0));
    let listed: Vec<_> = listed.collect();
    for (negatives, each) in [(Negatives::Destinations(3), 3), (Negatives::Shared(40), 40)] {
        let known = KnownEdges::new(&fixture.store, &[], listed.clone()).unwrap();
        let without_negative = WithoutNegative::Marked;
        let task = LinkTask { known: Some(known), without_negative, ..fixture.task(negatives) };
        let batches = fixture.batches("2", task, ViewKind::Auto);
        let mut marked = 0;
        for index in 0..batches.batches() {
            let (_, samples) = sampled(&batches, index);
            assert_eq!(samples.is_negative.len(), each * samples.positives.len());
            for (positive, marks) in samples.positives.iter().zip(samples.is_negative.chunks(each)) {
                let has_negatives = marks.contains(&true);
                assert_eq!(has_negatives, positive.0.0 != 1, "{positive:?}");
                marked += usize::from(!has_negatives);
            }
        }
        assert!(marked > 0);
    }
}
