//! Features of node types: means of neighbors' features, stopped anywhere, also between the two manifests.

use grappa_formats::manifest::FeatureSource;
use grappa_ingestion::generate::{
    graph::{GraphOptions, generate_graph},
    store::FeatureOptions,
};
use grappa_synthetic::{Degrees, GraphRecipe, NodeTypeRecipe, RelationRecipe};

use super::*;

/// Users buy items and have friends; sellers sell items. Items and sellers have features.
fn shop(folder: &Path) -> Graph {
    let node_type = |name: &str, nodes| NodeTypeRecipe { name: name.to_owned(), nodes, classes: 0, splits: None };
    let relation = |source, name: &str, destination, edges| RelationRecipe {
        source,
        name: name.to_owned(),
        destination,
        edges,
        degrees: Degrees::Skewed,
        reverse: Some(format!("rev_{name}")),
    };
    let recipe = GraphRecipe {
        version: Recipe::VERSION,
        seed: 5,
        node_types: vec![node_type("user", 300), node_type("item", 500), node_type("seller", 40)],
        relations: vec![relation(0, "buys", 1, 900), relation(2, "sells", 1, 500), relation(2, "serves", 0, 200)],
    };
    let stored = |dim| Some(FeatureOptions::new(dim, FeatureDtype::F32, FeatureSource::Stored));
    let path = folder.join("shop.grappa");
    let options = GraphOptions { features: vec![None, stored(5), stored(3)], ..GraphOptions::new(recipe, &path) };
    generate_graph(&options, &Silent).unwrap();
    Graph::open(&path).unwrap()
}

/// The number of the relation with this name.
fn number_of(graph: &Graph, name: &str) -> usize {
    (0..graph.relations().len()).find(|&number| graph.manifest().relation_name(number) == name).unwrap()
}

fn means(graph: &Graph, relations: &[&str]) -> AddFeatures {
    let numbers: Vec<usize> = relations.iter().map(|name| number_of(graph, name)).collect();
    let means = NeighborMeans::new(graph, 0, &numbers).unwrap();
    AddFeatures { kind: FeatureKind::Mean(means), ..degrees() }
}

/// The rows of all nodes of a type.
fn rows_of(graph: &Graph, node_type: usize) -> Vec<Vec<f32>> {
    let store = &graph.node_types()[node_type];
    let rows = store_features(store).unwrap();
    let mut values = vec![0.0; store.manifest().nodes as usize * rows.width()];
    rows.read(0..store.manifest().nodes, &mut values).unwrap();
    values.chunks_exact(rows.width()).map(<[f32]>::to_vec).collect()
}

/// The mean rows of each node's sources, by a relation.
fn naive(graph: &Graph, relation: &str) -> Vec<Vec<f32>> {
    let number = number_of(graph, relation);
    let rows = rows_of(graph, graph.manifest().relations[number].source as usize);
    let lists = &graph.relations()[number];
    let mut means = Vec::new();
    for chunk in lists.present_chunks() {
        let chunk = lists.chunk(chunk).unwrap();
        for row in chunk.rows().range(0..chunk.rows().rows()) {
            let sources: Vec<u64> = row.unwrap().iter().collect();
            let mut mean = vec![0.0; rows[0].len()];
            for source in &sources {
                mean.iter_mut().zip(&rows[*source as usize]).for_each(|(sum, value)| *sum += value);
            }
            mean.iter_mut().for_each(|sum| *sum /= sources.len().max(1) as f32);
            means.push(mean);
        }
    }
    means
}

fn assert_near(found: &[Vec<f32>], expected: &[Vec<f32>]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let near = found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
        assert!(near, "{found:?} for {expected:?}");
    }
}

#[test]
fn means_are_those_of_each_relation_side_by_side() {
    for relations in [&["item:rev_buys:user"][..], &["seller:serves:user", "item:rev_buys:user"], &[]] {
        let folder = tempfile::tempdir().unwrap();
        let graph = shop(folder.path());
        let options = means(&graph, relations);
        let added = add_features(FeatureTarget::node_type(&graph, 0), &options, &Silent).unwrap();
        let wanted = if relations.is_empty() { &["item:rev_buys:user", "seller:serves:user"] } else { relations };
        let reopened = Graph::open(graph.path()).unwrap();
        let parts: Vec<Vec<Vec<f32>>> = wanted.iter().map(|relation| naive(&reopened, relation)).collect();
        let expected: Vec<Vec<f32>> =
            (0..300).map(|node| parts.iter().flat_map(|part| part[node].clone()).collect()).collect();
        assert_eq!((added.nodes, added.dim as usize), (300, expected[0].len()));
        assert_near(&rows_of(&reopened, 0), &expected);
        assert_sound(graph.path());
    }
}

#[test]
fn what_cannot_be_averaged_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    let refused = |node_type, name: &str| {
        NeighborMeans::new(&graph, node_type, &[number_of(&graph, name)]).unwrap_err().to_string()
    };
    assert!(refused(0, "user:buys:item").contains("does not lead to user"));
    let error = refused(1, "user:buys:item");
    assert!(error.contains("have no features") && error.contains("give features to user first"), "{error}");
    let target = FeatureTarget::node_type(&graph, 0);
    assert!(add_features(target, &degrees(), &Silent).unwrap_err().to_string().contains("--kind mean"));
    let options = means(&graph, &[]);
    let item = FeatureTarget::node_type(&graph, 1);
    assert!(add_features(item, &options, &Silent).unwrap_err().to_string().contains("features already"));
}

#[test]
fn a_run_that_is_killed_at_its_end_leaves_a_graph_that_has_the_features() {
    let folder = tempfile::tempdir().unwrap();
    let graph = shop(folder.path());
    let (member, before) = (graph.node_types()[0].path().to_owned(), graph.path().join(files::MANIFEST));
    let (old_member, old_graph) = (fs::read(member.join(files::MANIFEST)).unwrap(), fs::read(&before).unwrap());
    let options = means(&graph, &[]);
    add_features(FeatureTarget::node_type(&graph, 0), &options, &Silent).unwrap();
    let expected = rows_of(&Graph::open(graph.path()).unwrap(), 0);
    let partial = member.join(files::FEATURES_PARTIAL);
    let next = fs::read(member.join(files::MANIFEST)).unwrap();

    // Killed after the manifest of the graph was replaced.
    fs::create_dir(&partial).unwrap();
    fs::rename(member.join(files::MANIFEST), partial.join(files::MANIFEST)).unwrap();
    fs::write(member.join(files::MANIFEST), &old_member).unwrap();
    let reopened = Graph::open(graph.path()).unwrap();
    assert!(rows_of(&reopened, 0) == expected);
    assert_sound(graph.path());
    let error = add_features(FeatureTarget::node_type(&reopened, 0), &options, &Silent).unwrap_err().to_string();
    assert!(error.contains("features already"), "{error}");
    assert!(fs::read(member.join(files::MANIFEST)).unwrap() == next && !partial.exists());
    assert!(rows_of(&Graph::open(graph.path()).unwrap(), 0) == expected);

    // Killed before.
    fs::write(member.join(files::MANIFEST), &old_member).unwrap();
    fs::write(&before, &old_graph).unwrap();
    fs::create_dir(&partial).unwrap();
    fs::write(partial.join(files::MANIFEST), &next).unwrap();
    let reopened = Graph::open(graph.path()).unwrap();
    assert!(reopened.node_types()[0].manifest().features.is_none());
    add_features(FeatureTarget::node_type(&reopened, 0), &options, &Silent).unwrap();
    assert!(rows_of(&Graph::open(graph.path()).unwrap(), 0) == expected);
    assert_sound(graph.path());
}
