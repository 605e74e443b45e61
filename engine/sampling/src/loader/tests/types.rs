//! Minibatches of graphs with types, next to a naive sampler.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use grappa_formats::{
    EdgePart, PartitionId,
    assignment::{Assignment, Owners},
};
use grappa_io::Error;

use super::*;
use crate::{
    feed::Batch,
    links::{
        Candidates, EndTimes, ExcludedEdges, KnownEdges, LinkRelation, LinkTask, Negatives, PartEdges, Positives,
        WithoutNegative,
    },
    sample::Join,
    sample::{Fanouts, tests::statistics::assert_uniform},
    view::{HaloLists, shape_of, tests::types::TypedGraph},
};

fn typed_options(fanouts: &[&[i64]], view: ViewKind, memory: u64) -> LoaderOptions {
    let fanouts: Vec<_> = fanouts.iter().map(|fanouts| Fanouts::new(fanouts).unwrap()).collect();
    let sampler = Sampler::uniform(fanouts[0].clone(), false).drawing_once().with_relation_fanouts(fanouts).unwrap();
    LoaderOptions {
        memory,
        threads: 2,
        view,
        ..LoaderOptions::new(MinibatchOptions { batch: 50, ..MinibatchOptions::new(sampler) })
    }
}

/// The whole graph as one partition.
fn one(graph: &grappa_storage::Graph) -> Assignment {
    Assignment::whole(graph.positions().chunks().chunks())
}

/// The nodes of each type and the blocks of the relations into it, as lists: sources by destination, for each relation and hop.
type Sampled = (Vec<Vec<NodeId>>, BTreeMap<(usize, usize), Vec<Vec<NodeId>>>);

fn sampled_types((graph, opened): (&TypedGraph, &grappa_storage::Graph), batch: &Batch, hops: usize) -> Sampled {
    let types = batch.minibatches();
    let nodes = types.iter().map(|minibatch| minibatch.nodes.clone()).collect();
    let mut lists = BTreeMap::new();
    let shape = shape_of(opened);
    assert_eq!(shape.hops(types), hops);
    for (number, relation) in graph.relations.iter().enumerate() {
        for hop in 0..hops {
            let block = shape.block(types, number, hop);
            let sources = &types[relation.source].nodes[..block.sources];
            let of = |destination| block.edges_of(destination).map(|edge| sources[block.indices[edge] as usize]);
            lists.insert((hop, number), (0..block.destinations).map(|at| of(at).collect()).collect());
        }
    }
    (nodes, lists)
}

/// All in-neighbors, hop by hop. A node draws at the hop after the one that added it.
fn all_neighbors(graph: &TypedGraph, seeds: &[Vec<NodeId>], hops: usize) -> Sampled {
    let mut nodes = seeds.to_vec();
    let mut lists = BTreeMap::new();
    let mut before = vec![0; nodes.len()];
    for hop in 0..hops {
        let reached: Vec<usize> = nodes.iter().map(Vec::len).collect();
        for (number, relation) in graph.relations.iter().enumerate() {
            let (first, end) = (before[relation.destination], reached[relation.destination]);
            let mut of_relation = vec![Vec::new(); first];
            for at in first..end {
                let node = nodes[relation.destination][at];
                let list: Vec<_> = relation.lists[node.0 as usize].iter().copied().map(NodeId).collect();
                for &source in &list {
                    if !nodes[relation.source].contains(&source) {
                        nodes[relation.source].push(source);
                    }
                }
                of_relation.push(list);
            }
            lists.insert((hop, number), of_relation);
        }
        before = reached;
    }
    (nodes, lists)
}

/// The seeds of each type of a batch.
fn seeds(batch: &Batch) -> Vec<Vec<NodeId>> {
    batch.minibatches().iter().map(|minibatch| minibatch.nodes[..minibatch.seeds].to_vec()).collect()
}

fn assert_features(graph: &TypedGraph, batch: &Batch) {
    let features = batch.features().unwrap();
    for (node_type, (shape, minibatch)) in graph.types.iter().zip(batch.minibatches()).enumerate() {
        let Some(dim) = shape.dim else {
            assert!(features.of_type(node_type).is_none());
            continue;
        };
        let (bytes, found) = features.of_type(node_type).unwrap();
        assert_eq!(found, dim as usize);
        let expected =
            minibatch.nodes.iter().flat_map(|node| (0..dim).map(|at| TypedGraph::value(node_type, node.0, at)));
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|value| f32::from_le_bytes(value.try_into().unwrap())).collect();
        assert_eq!(values, expected.collect::<Vec<_>>());
    }
}

#[test]
fn all_neighbors_of_each_relation_come_in_the_order_of_hops() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    for kind in [ViewKind::Memory, ViewKind::Mapped] {
        let mut loader = Loader::of_graph(&opened, typed_options(&[&[-1, -1][..]; 5], kind, 64 << 20));
        loader.partition(&one(&opened), &Seeds::All, &Silent).unwrap();
        let mut count = 0;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            assert_eq!(sampled_types((&graph, &opened), &batch, 2), all_neighbors(&graph, &seeds(&batch), 2));
            assert_features(&graph, &batch);
            count += seeds(&batch).iter().map(Vec::len).sum::<usize>();
        }
        assert_eq!(count, 1040);
    }
}

#[test]
fn each_relation_has_its_fanouts_and_draws_uniformly() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    let fanouts: [&[i64]; 5] = [&[4, 2], &[0, 3], &[2, -1], &[6, 0], &[1, 1]];
    let mut loader = Loader::of_graph(&opened, typed_options(&fanouts, ViewKind::Memory, 64 << 20));
    loader.partition(&one(&opened), &Seeds::All, &Silent).unwrap();
    // Node 1 of type 0 has many sources by relations 0 and 3.
    let mut drawn: HashMap<(usize, NodeId), u64> = HashMap::new();
    for epoch in 0..400 {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap();
            let (nodes, lists) = sampled_types((&graph, &opened), &batch, 2);
            for (&(hop, number), of_relation) in &lists {
                let relation = &graph.relations[number];
                for (at, list) in of_relation.iter().enumerate() {
                    let node = nodes[relation.destination][at];
                    let all = &relation.lists[node.0 as usize];
                    assert!(list.iter().all(|source| all.contains(&source.0)), "an edge that the graph does not have");
                    assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "drawn twice");
                    let is_new = if hop == 0 { true } else { at >= lists[&(0, number)].len() };
                    let fanout = fanouts[number][hop];
                    let expected = if !is_new {
                        0
                    } else if fanout < 0 {
                        all.len()
                    } else {
                        all.len().min(fanout as usize)
                    };
                    assert_eq!(list.len(), expected, "relation {number}, hop {hop}");
                    if node == NodeId(1) && hop == 0 && (number == 0 || number == 3) {
                        list.iter().for_each(|&source| *drawn.entry((number, source)).or_default() += 1);
                    }
                }
            }
        }
    }
    for (number, relation) in [(0, &graph.relations[0]), (3, &graph.relations[3])] {
        let counts: Vec<u64> = drawn.iter().filter(|((of, _), _)| *of == number).map(|(_, &count)| count).collect();
        assert_eq!(counts.len(), relation.lists[1].len());
        assert_uniform(&counts, &format!("relation {number}"));
    }
}

#[test]
fn batches_do_not_depend_on_threads_memory_or_the_kind_of_view() {
    let mut graph = TypedGraph::library();
    // Features are much larger than a minibatch.
    (graph.types[0].dim, graph.types[2].dim) = (Some(700), Some(1500));
    let (_folder, opened) = graph.write();
    let fanouts: [&[i64]; 5] = [&[4, 2], &[3, 3], &[2, 2], &[6, 1], &[1, 1]];
    let options = |view, threads, memory| {
        let mut options = LoaderOptions { threads, ..typed_options(&fanouts, view, memory) };
        options.minibatches.batch = 3;
        options
    };
    let run = |view, threads, memory| {
        let mut loader = Loader::of_graph(&opened, options(view, threads, memory));
        loader.partition(&one(&opened), &Seeds::All, &Silent).unwrap();
        let mut batches = Vec::new();
        for batch in loader.epoch(3).unwrap() {
            let batch = batch.unwrap();
            assert_features(&graph, &batch);
            batches.push(sampled_types((&graph, &opened), &batch, 2));
        }
        (batches, loader.feed().unwrap().is_resident())
    };
    let (expected, is_resident) = run(ViewKind::Memory, 1, 64 << 20);
    assert!(is_resident);
    // With the least memory that is not refused, rows are read on demand.
    let (mut least, mut enough) = (1u64 << 20, 64u64 << 20);
    let fits = |memory| {
        let mut loader = Loader::of_graph(&opened, options(ViewKind::Mapped, 2, memory));
        let opened = loader.partition(&one(&opened), &Seeds::All, &Silent);
        match opened.and_then(|()| loader.epoch(3).map(drop)) {
            Ok(()) => true,
            Err(Error::Budget { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    };
    while enough - least > 1 << 10 {
        let middle = (least + enough) / 2;
        if fits(middle) { enough = middle } else { least = middle }
    }
    let (batches, is_resident) = run(ViewKind::Mapped, 2, enough);
    assert!(!is_resident, "{enough} bytes");
    assert!(batches == expected);
}

#[test]
fn partitions_own_chunks_of_all_types() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    // Chunks 0 to 2 are of type 0, 3 and 4 of type 1, and 5 of type 2.
    let owners = [0, 1, 0, 1, 0, 1].map(|partition| Owners { base: PartitionId(partition), variable: None });
    let assignment = Assignment::from_owners(1, 2, "fixed", &owners);
    for (view, halo) in [(ViewKind::Memory, Halo::Stop), (ViewKind::Mapped, Halo::Stop), (ViewKind::Memory, Halo::None)]
    {
        let options = LoaderOptions { halo, ..typed_options(&[&[-1, -1][..]; 5], view, 64 << 20) };
        let mut loader = Loader::of_graph(&opened, options);
        loader.partition(&assignment, &Seeds::All, &Silent).unwrap();
        let owns = |partition: u32, node_type: usize, node: NodeId| {
            let position = opened.positions().range(node_type).start + node.0;
            let chunk = opened.positions().chunks().chunk_of(NodeId(position));
            owners[chunk.0 as usize].base == PartitionId(partition)
        };
        let batches = loader.batches(0, |batches| batches).unwrap();
        for batch in loader.deliver(&batches) {
            let batch = batch.unwrap();
            let partition = batches.places(batch.index())[0].partition.0;
            let (nodes, lists) = sampled_types((&graph, &opened), &batch, 2);
            for ((_, number), of_relation) in &lists {
                let relation = &graph.relations[*number];
                for (at, list) in of_relation.iter().enumerate() {
                    let node = nodes[relation.destination][at];
                    let all = relation.lists[node.0 as usize].iter().copied().map(NodeId);
                    let expected: Vec<_> = match halo {
                        Halo::None => all.filter(|&source| owns(partition, relation.source, source)).collect(),
                        _ => all.collect(),
                    };
                    // A node draws once, and a halo node never.
                    let mut list = list.clone();
                    list.sort_unstable();
                    assert!(list.is_empty() || list == expected);
                    assert!(list.is_empty() || owns(partition, relation.destination, node));
                }
            }
            for (node_type, seeds) in seeds(&batch).iter().enumerate() {
                assert!(seeds.iter().all(|&seed| owns(partition, node_type, seed)));
            }
        }
    }
}

/// Opens three partitions whose halo nodes have in-neighbors.
fn halo_loader(opened: &grappa_storage::Graph, options: LoaderOptions, super_epoch: u64) -> Result<Loader> {
    let repartition =
        RepartitionOptions { partitions: 3, schedule: Schedule::Shuffle, seed: 5, super_epoch: Some(super_epoch) };
    let mut loader = Loader::of_graph(opened, LoaderOptions { halo: Halo::Neighbors, ..options });
    loader.partition(&assign(opened, &repartition, super_epoch + 1)?, &Seeds::All, &Silent)?;
    Ok(loader)
}

/// The sources of each node that drew some, ascending, by hop and relation.
fn by_node(graph: &TypedGraph, (nodes, lists): Sampled) -> BTreeMap<(usize, usize, NodeId), Vec<NodeId>> {
    let of_hop = lists.into_iter().flat_map(|((hop, number), lists)| {
        let destinations = &nodes[graph.relations[number].destination];
        let lists = destinations.iter().zip(lists).filter(|(_, list)| !list.is_empty());
        lists.map(move |(&node, mut list)| {
            list.sort_unstable();
            ((hop, number, node), list)
        })
    });
    of_hop.collect()
}

#[test]
fn with_all_in_neighbors_of_halo_nodes_minibatches_are_those_of_the_whole_graph() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    for view in [ViewKind::Memory, ViewKind::Mapped] {
        let options =
            LoaderOptions { halo_neighbors: Some(u32::MAX), ..typed_options(&[&[-1, -1, -1][..]; 5], view, 64 << 20) };
        let mut loader = halo_loader(&opened, options, 0).unwrap();
        let mut count = 0;
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            let sampled = sampled_types((&graph, &opened), &batch, 3);
            let all = all_neighbors(&graph, &seeds(&batch), 3);
            // A partition lists the sources that it owns before others.
            let [found, expected] = [sampled, all].map(|sampled| by_node(&graph, sampled));
            for (key, expected) in expected {
                assert_eq!(found.get(&key), Some(&expected), "hop, relation and node {key:?}, {view:?}");
            }
            assert_features(&graph, &batch);
            count += seeds(&batch).iter().map(Vec::len).sum::<usize>();
        }
        assert_eq!(count, 1040);
    }
}

#[test]
fn the_relations_into_a_type_divide_the_in_neighbors_of_its_halo_nodes() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    let shape = shape_of(&opened);
    let drawn = |threads, super_epoch| {
        let options = LoaderOptions {
            halo_neighbors: Some(5),
            threads,
            ..typed_options(&[&[3, 3, 3][..]; 5], ViewKind::Memory, 64 << 20)
        };
        halo_loader(&opened, options, super_epoch).unwrap().halo_lists().unwrap().clone()
    };
    let (first, again, later) = (drawn(1, 0), drawn(3, 0), drawn(1, 1));
    let mut differ = 0;
    for (number, relation) in graph.relations.iter().enumerate() {
        let per_node = 5usize.div_ceil(shape.blocks_per_hop(relation.destination));
        let [lists, same, others] = [&first, &again, &later].map(|drawn| &drawn.relations[number]);
        for node in lists.nodes().iter() {
            let sources = |lists: &HaloLists| lists.sources(node).map(|source| source.0).collect::<Vec<_>>();
            let (found, all) = (sources(lists), &relation.lists[node.0 as usize]);
            assert_eq!(found.len(), all.len().min(per_node), "relation {number}, {node:?}");
            let mut left = all.iter();
            assert!(found.iter().all(|source| left.any(|other| other == source)), "{found:?} of {all:?}");
            assert_eq!(found, sources(same), "for any number of threads");
            differ += u64::from(others.nodes().contains(node) && found != sources(others));
        }
    }
    assert!(differ > 50, "{differ} lists are others after a repartition");
    let small = typed_options(&[&[3, 3, 3][..]; 5], ViewKind::Memory, 16 << 10);
    let error = halo_loader(&opened, small, 0).map(drop).unwrap_err().to_string();
    assert!(error.contains("in-neighbors of halo nodes"), "{error}");
}

#[test]
fn fanouts_of_different_hops_are_refused() {
    let fanouts = [vec![2], vec![2, 2]].map(|fanouts| Fanouts::new(&fanouts).unwrap());
    let sampler = Sampler::uniform(fanouts[0].clone(), false).with_relation_fanouts(fanouts.to_vec());
    assert!(sampler.unwrap_err().to_string().contains("for 1 hops, another relation for 2"));
}

/// The edges of a relation, each as source and destination.
fn edges_of(graph: &TypedGraph, relation: usize) -> BTreeSet<(NodeId, NodeId)> {
    let lists = (0..).map(NodeId).zip(&graph.relations[relation].lists);
    lists.flat_map(|(target, list)| list.iter().map(move |&source| (NodeId(source), target))).collect()
}

/// A loader of the edges of a relation.
fn link_loader(opened: &grappa_storage::Graph, view: ViewKind, relation: LinkRelation, negatives: Negatives) -> Loader {
    let store = opened.relations()[relation.number].clone();
    let task = LinkTask {
        store: store.clone(),
        relation,
        negatives,
        candidates: Candidates::Uniform,
        destinations: None,
        without_negative: WithoutNegative::Refused("list fewer edges"),
        known: Some(KnownEdges::default()),
        excluded: ExcludedEdges::WithReverses,
        ends: EndTimes::default(),
    };
    let mut options = typed_options(&[&[-1, -1][..]; 5], view, 64 << 20);
    options.minibatches.links = Some(Arc::new(task));
    options.minibatches.batch = 1000;
    let mut loader = Loader::of_graph(opened, options);
    loader.partition(&one(opened), &Seeds::All, &Silent).unwrap();
    let edges = PartEdges::all(&store, EdgePart::Graph);
    let positives = Positives::of_part(edges, None, 1 << 20, &Silent).unwrap();
    let count = positives.len();
    loader.set_positives(vec![Arc::new(positives)], &[count]);
    loader
}

/// Relation 0 leads from type 1 to type 0, relation 1 back, and relation 2 from type 0 to itself.
#[test]
fn links_of_a_relation_leave_its_messages_and_those_of_its_reverse() {
    let mut graph = TypedGraph::library();
    for (source, target) in edges_of(&graph, 0) {
        let list = &mut graph.relations[1].lists[source.0 as usize];
        list.push(target.0);
        list.sort_unstable();
        list.dedup();
    }
    let (_folder, opened) = graph.write();
    let with_reverse = LinkRelation { number: 0, reverse: Some(1) };
    let alone = LinkRelation { number: 2, reverse: None };
    for (relation, view) in
        [(with_reverse, ViewKind::Memory), (with_reverse, ViewKind::Mapped), (alone, ViewKind::Memory)]
    {
        for negatives in [Negatives::Pairs(1.0), Negatives::Destinations(2)] {
            let mut loader = link_loader(&opened, view, relation, negatives);
            let ends = &graph.relations[relation.number];
            let edges = edges_of(&graph, relation.number);
            let mut positives = BTreeSet::new();
            let mut left_out = [0; 2];
            for batch in loader.epoch(1).unwrap() {
                let batch = batch.unwrap();
                let types = batch.minibatches();
                let links = &types[ends.destination].links;
                assert_eq!(links.source_type, ends.source);
                let pairs = |pairs: &[[u32; 2]]| -> Vec<(NodeId, NodeId)> {
                    let nodes = |node_type: usize, at: u32| types[node_type].nodes[at as usize];
                    pairs.iter().map(|pair| (nodes(ends.source, pair[0]), nodes(ends.destination, pair[1]))).collect()
                };
                let of_batch: BTreeSet<_> = pairs(&links.positives).into_iter().collect();
                let drawn = pairs(&links.negatives);
                assert_eq!(drawn.len(), links.positives.len() * if negatives == Negatives::Pairs(1.0) { 1 } else { 2 });
                assert!(drawn.iter().all(|pair| !edges.contains(pair)), "a negative is an edge");
                assert!(ends.source != ends.destination || drawn.iter().all(|(source, target)| source != target));
                // All in-neighbors are drawn, so messages have all edges but those that are left out.
                let (nodes, lists) = sampled_types((&graph, &opened), &batch, 2);
                for (number, other) in graph.relations.iter().enumerate() {
                    let mut messages: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
                    let mut expected = messages.clone();
                    for (at, list) in lists[&(1, number)].iter().enumerate() {
                        let node = nodes[other.destination][at];
                        messages.extend(list.iter().map(|&source| (source, node)));
                        messages
                            .extend(lists[&(0, number)].get(at).into_iter().flatten().map(|&source| (source, node)));
                        expected.extend(other.lists[node.0 as usize].iter().map(|&source| (NodeId(source), node)));
                    }
                    let before = expected.len();
                    if number == relation.number {
                        expected.retain(|edge| !of_batch.contains(edge));
                    }
                    if Some(number) == relation.reverse.or((ends.source == ends.destination).then_some(relation.number))
                    {
                        expected.retain(|&(source, target)| !of_batch.contains(&(target, source)));
                        left_out[1] += before - expected.len();
                    }
                    left_out[0] += before - expected.len();
                    assert!(messages == expected, "relation {number}");
                }
                positives.extend(of_batch);
            }
            assert_eq!(positives, edges);
            assert!(left_out[0] >= left_out[1] && left_out[1] > 0, "{left_out:?}");
        }
    }
}

#[test]
fn negatives_of_a_relation_are_uniform_among_the_nodes_of_each_type() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    let mut loader =
        link_loader(&opened, ViewKind::Memory, LinkRelation { number: 3, reverse: None }, Negatives::Pairs(1.0));
    let mut sources = vec![0; 40];
    for epoch in 0..40 {
        for batch in loader.epoch(epoch).unwrap() {
            let batch = batch.unwrap();
            let types = batch.minibatches();
            for pair in &types[0].links.negatives {
                let (source, target) = (types[2].nodes[pair[0] as usize], types[0].nodes[pair[1] as usize]);
                if graph.relations[3].lists[target.0 as usize].is_empty() {
                    sources[source.0 as usize] += 1;
                }
            }
        }
    }
    assert_uniform(&sources, "sources of negatives");
}

/// The edges of each relation at the last of two hops, with the number of copies.
fn edge_counts(
    (graph, opened): (&TypedGraph, &grappa_storage::Graph),
    batch: &Batch,
) -> BTreeMap<(usize, NodeId, NodeId), usize> {
    let shape = shape_of(opened);
    let types = batch.minibatches();
    let mut counts = BTreeMap::new();
    for (number, relation) in graph.relations.iter().enumerate() {
        let block = shape.block(types, number, 1);
        for destination in 0..block.destinations {
            let row = block.own.get(destination).map_or(destination, |&row| row as usize);
            for edge in block.edges_of(destination) {
                let source = types[relation.source].nodes[block.indices[edge] as usize];
                *counts.entry((number, source, types[relation.destination].nodes[row])).or_default() += 1;
            }
        }
    }
    counts
}

#[test]
fn minibatches_of_a_step_are_joined_for_each_type() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    let owners = [0, 1, 0, 1, 0, 1].map(|partition| Owners { base: PartitionId(partition), variable: None });
    let assignment = Assignment::from_owners(1, 2, "fixed", &owners);
    let run = |join_steps| {
        let mut options = typed_options(&[&[-1, -1][..]; 5], ViewKind::Memory, 256 << 20);
        options.minibatches.join_steps = join_steps;
        let mut loader = Loader::of_graph(&opened, options);
        loader.partition(&assignment, &Seeds::All, &Silent).unwrap();
        let (mut counts, mut batches, mut nodes) = (BTreeMap::new(), 0, 0);
        for batch in loader.epoch(0).unwrap() {
            let batch = batch.unwrap();
            assert_features(&graph, &batch);
            for (edge, count) in edge_counts((&graph, &opened), &batch) {
                *counts.entry(edge).or_insert(0) += count;
            }
            batches += 1;
            nodes += batch.minibatches().iter().map(|minibatch| minibatch.nodes.len()).sum::<usize>();
        }
        (counts, batches, nodes)
    };
    let (separate, of_parts, nodes) = run(None);
    for join in [Join::Apart, Join::SharedInput] {
        let (joined, of_steps, joined_nodes) = run(Some(join));
        assert!(joined == separate, "{join:?}");
        assert!(2 * of_steps == of_parts && !joined.is_empty());
        assert_eq!(joined_nodes == nodes, join == Join::Apart, "nodes are shared in a shared input alone");
    }
}

/// Each seed of a batch, with the nodes of its part, against a batch of this seed alone.
#[test]
fn disjoint_seeds_of_several_types_have_neighborhoods_of_their_own() {
    let graph = TypedGraph::library();
    let (_folder, opened) = graph.write();
    let mut options = typed_options(&[&[-1, -1][..]; 5], ViewKind::Memory, 256 << 20);
    options.minibatches =
        MinibatchOptions { batch: 7, disjoint: true, join_steps: Some(Join::Apart), ..options.minibatches };
    let mut loader = Loader::of_graph(&opened, options);
    let list: Vec<NodeId> = [0, 1, 3, 640, 700, 701, 999, 1000, 1039].map(NodeId).to_vec();
    loader.partition(&one(&opened), &Seeds::List(list.into()), &Silent).unwrap();
    for batch in loader.epoch(0).unwrap() {
        let batch = batch.unwrap();
        assert_features(&graph, &batch);
        let (nodes, lists) = sampled_types((&graph, &opened), &batch, 2);
        let of_seeds: Vec<(usize, NodeId)> = seeds(&batch)
            .into_iter()
            .enumerate()
            .flat_map(|(node_type, seeds)| seeds.into_iter().map(move |seed| (node_type, seed)))
            .collect();
        let mut all = vec![0; nodes.len()];
        let mut edges = 0;
        for (node_type, seed) in of_seeds {
            let mut alone = vec![Vec::new(); nodes.len()];
            alone[node_type].push(seed);
            let (of_seed, lists_of_seed) = all_neighbors(&graph, &alone, 2);
            for (count, nodes) in all.iter_mut().zip(of_seed) {
                *count += nodes.len();
            }
            edges += lists_of_seed.values().flatten().map(Vec::len).sum::<usize>();
        }
        assert_eq!(nodes.iter().map(Vec::len).collect::<Vec<_>>(), all);
        assert_eq!(lists.values().flatten().map(Vec::len).sum::<usize>(), edges);
        // Every edge of the batch is an edge of the graph.
        for ((_, number), of_relation) in &lists {
            let relation = &graph.relations[*number];
            for (at, list) in of_relation.iter().enumerate() {
                let sources = &relation.lists[nodes[relation.destination][at].0 as usize];
                assert!(list.iter().all(|source| sources.contains(&source.0)));
            }
        }
    }
}
