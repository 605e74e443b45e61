//! Generated stores: their files, and that these depend on the graph only.

use std::{fs, ops::RangeInclusive, path::Path};

use grappa_engine::verify::verify;
use grappa_formats::{
    NodeId,
    container::{self, FileKind},
    features::{FeatureLayout, FeaturesMeta},
    labels::Labels,
    manifest::{EdgeOptions, FeatureDtype, FeatureSource, Manifest, PermutationSpec, SelfLoops},
    permutation::Feistel,
    splits,
};
use grappa_ingestion::{
    generate::{
        EdgeListFormat,
        graph::{GraphOptions, generate_graph},
        store::{FeatureOptions, StoreOptions, generate_store},
        write_classes, write_edge_list, write_features, write_split,
    },
    ingest::{Assign, IngestOptions, NodeData, NodeIngest, NodeSplits, SplitFile, StoreLayout, ingest},
};
use grappa_io::progress::Silent;
use grappa_storage::Graph;
use grappa_synthetic::{
    BlockModel, Degrees, ErdosRenyi, Generator, GraphRecipe, Model, NodeTypeRecipe, Recipe, RelationRecipe, Rmat,
    RmatClasses, Split, SplitShares,
};

use crate::common::{self, files_of, interrupted};

const SPLITS: [Split; 3] = [Split::Train, Split::Val, Split::Test];

fn rmat(scale: u32) -> Model {
    Model::Rmat(Rmat::graph500(scale, 16.0))
}

fn rmat_with_classes(scale: u32) -> Model {
    Model::Rmat(Rmat { classes: Some(RmatClasses::new(5)), ..Rmat::graph500(scale, 16.0) })
}

/// Few nodes are in a split.
const FEW: SplitShares = SplitShares { train: 0.1, val: 0.05, test: 0.2 };

fn options(model: Model, out: &Path) -> StoreOptions {
    StoreOptions { chunks: Some(5), ..StoreOptions::new(Recipe::new(model, 7), out) }
}

fn stored(dim: u32, dtype: FeatureDtype) -> Option<FeatureOptions> {
    Some(FeatureOptions::new(dim, dtype, FeatureSource::Stored))
}

fn manifest(store: &Path) -> Manifest {
    Manifest::decode(&fs::read(store.join("manifest")).unwrap()).unwrap()
}

#[test]
fn a_generated_store_is_the_one_that_ingest_makes_of_its_edges() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (generated, ingested) = (path("g.grappa"), path("i.grappa"));
    let er = Model::Er(ErdosRenyi::new(1001, 40.0));
    let sbm = Model::Sbm(BlockModel::new(3000, 9.0));
    let cases = [
        (rmat(12), true, false, SelfLoops::Keep),
        (rmat(12), false, true, SelfLoops::Drop),
        (er.clone(), true, true, SelfLoops::Add),
        (er, false, false, SelfLoops::Add),
        (sbm, true, true, SelfLoops::Drop),
        (rmat_with_classes(12), true, false, SelfLoops::Keep),
    ];
    for (model, random_permutation, dedup, self_loops) in cases {
        let edge_options = EdgeOptions { undirected: false, dedup, self_loops };
        let generate = StoreOptions {
            random_permutation,
            edge_options,
            features: stored(9, FeatureDtype::F16),
            recipe: Recipe::new(model.clone(), 7).with_splits(FEW),
            ..options(model.clone(), &generated)
        };
        let summary = generate_store(&generate, &Silent).unwrap();

        let generator = Generator::new(generate.recipe.clone()).unwrap();
        let (edges, features, labels) = (path("edges.npy"), path("features.npy"), path("labels.npy"));
        write_edge_list(&generator, &edges, EdgeListFormat::Npy, &Silent).unwrap();
        write_features(&generator, 9, &features, &Silent).unwrap();
        let has_classes = generator.classes() > 0;
        if has_classes {
            write_classes(&generator, &labels, &Silent).unwrap();
        }
        let splits = SPLITS.into_iter().filter(|_| has_classes).map(|split| {
            let (name, path) = (split.name(), path(split.name()));
            write_split(&generator, split, &path, &Silent).unwrap();
            SplitFile { name, ids: path.into() }
        });
        let mut ingest_options = IngestOptions { out: ingested.clone(), ..common::options(folder.path(), &edges) };
        ingest_options.edges.options = edge_options;
        ingest_options.nodes = NodeIngest {
            number: Some(model.nodes()),
            data: NodeData {
                features: Some(features.into()),
                feature_dtype: Some(FeatureDtype::F16),
                labels: has_classes.then_some(labels.into()),
                ..NodeData::default()
            },
            splits: NodeSplits { files: splits.collect(), ..NodeSplits::default() },
            layout: StoreLayout {
                chunks: Some(5),
                assign: if random_permutation { Assign::Random } else { Assign::Range },
                seed: generate.recipe.seed,
            },
            ..NodeIngest::default()
        };
        let read = ingest(&ingest_options, &Silent).unwrap();
        assert_eq!((summary.nodes, summary.edges), (read.nodes, read.edges));
        assert_eq!(summary.edges_drawn, read.edges_read);

        let (mut generated_files, ingested_files) = (files_of(&generated), files_of(&ingested));
        let bytes: usize = generated_files.values().map(Vec::len).sum();
        assert_eq!(summary.bytes_on_disk, bytes as u64);
        let mut manifest = manifest(&generated);
        assert_eq!(Recipe::from_json(&manifest.generator).unwrap(), generate.recipe);
        // The only difference.
        manifest.generator.clear();
        generated_files.insert("manifest".to_owned(), manifest.encode());
        assert!(generated_files.keys().eq(ingested_files.keys()), "{model:?}");
        for (name, bytes) in &ingested_files {
            assert!(generated_files[name] == *bytes, "{name} of {model:?}");
        }
        for file in fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                fs::remove_file(file).unwrap();
            }
        }
        fs::remove_dir_all(&generated).unwrap();
        fs::remove_dir_all(&ingested).unwrap();
    }
}

#[test]
fn the_store_does_not_depend_on_threads_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let made_with = |model: &Model, threads: usize, memory: u64| {
        let path = folder.path().join("store");
        let options = StoreOptions {
            chunks: Some(2),
            threads,
            memory,
            features: stored(100, FeatureDtype::Bf16),
            ..options(model.clone(), &path)
        };
        generate_store(&options, &Silent).unwrap();
        let found = files_of(&path);
        fs::remove_dir_all(path).unwrap();
        found
    };
    // Its longest adjacency list has 2.5 million edges, more than the window of a team.
    let hubs = Model::Rmat(Rmat { scale: 6, edge_factor: 150_000.0, a: 0.7, b: 0.2, c: 0.09, d: 0.01, classes: None });
    for model in [hubs, Model::Sbm(BlockModel::new(70_000, 12.0))] {
        let one = made_with(&model, 1, 1 << 30);
        assert!(one == made_with(&model, 3, 1 << 30), "3 threads");
        assert!(one == made_with(&model, 8, 128 << 20), "8 threads");
    }
}

#[test]
fn a_slice_has_the_chunks_of_the_whole_store() {
    for model in [Model::Sbm(BlockModel::new(20_000, 10.0)), rmat_with_classes(14)] {
        assert_slice_is_part_of_the_whole(&model);
    }
}

fn assert_slice_is_part_of_the_whole(model: &Model) {
    let folder = tempfile::tempdir().unwrap();
    let (whole, slice) = (folder.path().join("whole"), folder.path().join("slice"));
    let nodes = model.nodes();
    let with = |out: &Path, only_chunks: Option<Vec<RangeInclusive<u32>>>| StoreOptions {
        only_chunks,
        features: stored(3, FeatureDtype::F32),
        ..options(model.clone(), out)
    };
    generate_store(&with(&whole, None), &Silent).unwrap();
    let error = generate_store(&with(&slice, Some(vec![0..=0, 4..=5])), &Silent).unwrap_err();
    assert!(error.to_string().contains("chunks 0 to 4"), "{error}");
    let summary = generate_store(&with(&slice, Some(vec![3..=4, 1..=1, 4..=4])), &Silent).unwrap();
    assert_eq!((summary.chunks, summary.chunks_present), (5, 3));

    let (whole_files, slice_files) = (files_of(&whole), files_of(&slice));
    let (whole_manifest, slice_manifest) = (manifest(&whole), manifest(&slice));
    for (name, bytes) in slice_files.iter().filter(|(name, _)| name.starts_with("chunk-")) {
        assert!(whole_files[name] == *bytes, "{name}");
    }
    let mut edges = 0;
    for chunk in 0..5 {
        let present = [1, 3, 4].contains(&chunk);
        for file in ["edges", "degrees", "features", "labels"] {
            let name = format!("chunk-{chunk}/{file}");
            assert_eq!(slice_files.contains_key(&name), present, "{name}");
        }
        let entry = &slice_manifest.chunks[chunk];
        assert_eq!(entry.present, present);
        if present {
            assert_eq!(*entry, whole_manifest.chunks[chunk]);
            edges += entry.edges;
        }
    }
    assert_eq!((slice_manifest.edges, summary.edges), (edges, edges));
    let chunks = slice_manifest.chunk_map();
    let is_present = |node: &u64| slice_manifest.chunks[chunks.chunk_of(NodeId(*node)).0 as usize].present;
    for name in SPLITS.map(Split::name) {
        let file = format!("splits/{name}.roaring");
        let of_whole = splits::decode(&whole_files[&file], name, nodes).unwrap();
        let of_slice = splits::decode(&slice_files[&file], name, nodes).unwrap();
        assert!(of_slice.iter().eq(of_whole.iter().filter(is_present)), "{name}");
    }
}

#[test]
fn classes_features_and_splits_are_those_of_the_generator() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sbm");
    let (nodes, dim) = (5000u64, 17u32);
    let options = StoreOptions {
        features: stored(dim, FeatureDtype::F32),
        ..options(Model::Sbm(BlockModel::new(nodes, 6.0)), &path)
    };
    generate_store(&options, &Silent).unwrap();
    let (manifest, files) = (manifest(&path), files_of(&path));
    assert_eq!(manifest.ids.permutation, PermutationSpec::Feistel(7));
    let (generator, permutation) = (Generator::new(options.recipe).unwrap(), Feistel::new(nodes, 7));
    let sets = SPLITS.map(|split| {
        let name = split.name();
        let set = splits::decode(&files[&format!("splits/{name}.roaring")], name, nodes).unwrap();
        let entry = manifest.splits.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(entry.nodes, set.len());
        (split, set)
    });
    let features = generator.features(dim as usize);
    let (mut expected, mut found) = (vec![0.0; dim as usize], vec![0.0; dim as usize]);
    for (chunk, pair) in manifest.chunk_starts.windows(2).enumerate() {
        let file = |name: &str, kind| container::decode_file(&files[&format!("chunk-{chunk}/{name}")], kind).unwrap();
        let (header, payload) = file("labels", FileKind::LABELS);
        let labels = Labels::new(&header, payload).unwrap();
        labels.check().unwrap();
        assert_eq!(Some(labels.meta.spec), manifest.labels);
        let (header, payload) = file("features", FileKind::FEATURES);
        let FeaturesMeta { layout, .. } = FeaturesMeta::decode(&header).unwrap();
        assert_eq!(layout, FeatureLayout::new(FeatureDtype::F32, dim));
        layout.check_rows(payload, header.payload_offset, false).unwrap();
        for (row, node) in (pair[0]..pair[1]).enumerate() {
            let label = permutation.inverse(node);
            assert_eq!(labels.single(row as u64).unwrap(), generator.class(label));
            features.row(label, &mut expected);
            layout.decode_row(&payload[row * layout.stride as usize..], &mut found);
            assert_eq!(found, expected, "node {node}");
            for (split, set) in &sets {
                assert_eq!(set.contains(node), generator.split(label) == Some(*split), "node {node}");
            }
        }
    }
}

#[test]
fn procedural_features_take_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rmat");
    let options = StoreOptions {
        features: Some(FeatureOptions::new(768, FeatureDtype::F16, FeatureSource::Procedural)),
        ..options(rmat(8), &path)
    };
    generate_store(&options, &Silent).unwrap();
    let spec = manifest(&path).features.unwrap();
    assert_eq!((spec.dim, spec.dtype, spec.source), (768, FeatureDtype::F16, FeatureSource::Procedural));
    assert!(!path.join("chunk-0/features").exists());
}

#[test]
fn a_run_that_died_is_resumed_to_the_same_store() {
    let folder = tempfile::tempdir().unwrap();
    let (path, again) = (folder.path().join("whole"), folder.path().join("again"));
    let with = |out: &Path, chunks: u32, resume: bool| StoreOptions {
        chunks: Some(chunks),
        resume,
        ..options(Model::Sbm(BlockModel::new(40_000, 10.0)), out)
    };
    generate_store(&with(&path, 40, false), &Silent).unwrap();
    let whole = files_of(&path);
    // There are two progress reports per chunk.
    for after in [1, 2, 36, 80] {
        assert!(interrupted(after, |progress| generate_store(&with(&again, 40, false), progress)));
        assert!(!again.exists());
        let error = generate_store(&with(&again, 40, false), &Silent).unwrap_err();
        assert!(error.to_string().contains("--resume"), "{error}");
        let error = generate_store(&with(&again, 41, true), &Silent).unwrap_err();
        assert!(error.to_string().contains("--chunks 40"), "{error}");
        generate_store(&with(&again, 40, true), &Silent).unwrap();
        assert!(files_of(&again) == whole, "died after {after} reports");
        fs::remove_dir_all(&again).unwrap();
    }
}

fn graph_options(out: &Path) -> GraphOptions {
    let node_type = |name: &str, nodes, classes| NodeTypeRecipe { name: name.to_owned(), nodes, classes, splits: None };
    let relation = |source, name: &str, destination, edges, degrees| {
        let reverse = Some(format!("rev_{name}"));
        RelationRecipe { source, name: name.to_owned(), destination, edges, degrees, reverse }
    };
    let recipe = GraphRecipe {
        version: Recipe::VERSION,
        seed: 5,
        node_types: vec![node_type("user", 3000, 0), node_type("item", 5000, 4)],
        relations: vec![relation(0, "buys", 1, 20_000, Degrees::Skewed), relation(1, "like", 1, 7000, Degrees::Even)],
    };
    GraphOptions { features: vec![None, stored(6, FeatureDtype::F16)], ..GraphOptions::new(recipe, out) }
}

#[test]
fn a_generated_graph_depends_on_its_recipe_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("graph");
    let make = |threads, memory| {
        let made = generate_graph(&GraphOptions { threads, memory, ..graph_options(&path) }, &Silent).unwrap();
        assert_eq!(made.relations.iter().map(|(_, edges)| *edges).collect::<Vec<_>>(), [20_000, 20_000, 7000, 7000]);
        let files = files_of(&path);
        assert_eq!(made.bytes_on_disk, files.values().map(|bytes| bytes.len() as u64).sum::<u64>());
        assert!(verify(&path, 2, &Silent).unwrap().is_ok());
        fs::remove_dir_all(&path).unwrap();
        files
    };
    let whole = make(1, 1 << 30);
    assert!(whole == make(3, 16 << 20), "more threads and less memory");
    for after in [1, 7, 20, 90, 200, 300] {
        assert!(interrupted(after, |progress| generate_graph(&graph_options(&path), progress)), "after {after}");
        assert!(!path.exists());
        let other = GraphOptions { random_permutation: false, resume: true, ..graph_options(&path) };
        let error = generate_graph(&other, &Silent).unwrap_err().to_string();
        assert!(error.contains("--assign random"), "{error}");
        generate_graph(&GraphOptions { resume: true, ..graph_options(&path) }, &Silent).unwrap();
        assert!(files_of(&path) == whole, "died after {after} reports");
        fs::remove_dir_all(&path).unwrap();
    }
}

#[test]
fn a_reverse_relation_has_the_edges_of_its_relation() {
    let folder = tempfile::tempdir().unwrap();
    for random_permutation in [true, false] {
        let path = folder.path().join(format!("graph-{random_permutation}"));
        generate_graph(&GraphOptions { random_permutation, ..graph_options(&path) }, &Silent).unwrap();
        let graph = Graph::open(&path).unwrap();
        let edges = |number: usize| {
            let relation = &graph.relations()[number];
            let mut edges = Vec::new();
            for chunk in relation.present_chunks() {
                let chunk = relation.chunk_in_order(chunk).unwrap();
                let first = chunk.span().first_node.0;
                for (node, row) in (first..).zip(chunk.rows().range(0..chunk.rows().rows())) {
                    edges.extend(row.unwrap().iter().map(|source| (source, node)));
                }
            }
            edges
        };
        for number in [0, 2] {
            let mut turned: Vec<_> = edges(number + 1).into_iter().map(|(source, node)| (node, source)).collect();
            let mut forward = edges(number);
            forward.sort_unstable();
            turned.sort_unstable();
            assert_eq!(forward, turned);
            assert_eq!(graph.manifest().relations[number + 1].reverse_of, Some(number as u32));
        }
        // The labels, splits and features of a type are those of its recipe.
        let items = &graph.node_types()[1];
        let recipe = graph_options(&path).recipe.node_type(1);
        let generator = Generator::new(recipe).unwrap();
        let label = items.external_id(NodeId(17)).unwrap().to_string().parse().unwrap();
        let found = items.split("train").unwrap().unwrap().contains(17);
        assert_eq!(found, generator.split(label) == Some(Split::Train));
    }
}

#[test]
fn a_budget_that_is_too_small_for_a_row_names_one_that_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("star");
    // All 8 million edges go to label 0.
    let star = Model::Rmat(Rmat { scale: 4, edge_factor: 500_000.0, a: 0.5, b: 0.0, c: 0.5, d: 0.0, classes: None });
    let make = |memory: u64, only_chunks: Option<Vec<RangeInclusive<u32>>>| {
        let options = StoreOptions { memory, only_chunks, chunks: Some(4), ..options(star.clone(), &path) };
        generate_store(&options, &Silent)
    };
    let error = make(64 << 20, None).unwrap_err().to_string();
    let named = error.split("at least ").nth(1).unwrap().split(" MiB").next().unwrap();
    let named: u64 = named.parse().unwrap();
    assert!((160..300).contains(&named), "{error}");
    assert!(make((named - 1) << 20, None).is_err());
    assert!(!path.exists());

    // Slices without that adjacency list need less memory.
    let chunk_of_list = Feistel::new(16, 7).forward(0) as u32 / 4;
    for chunk in 0..4 {
        let made = make(64 << 20, Some(vec![chunk..=chunk]));
        assert_eq!(made.is_ok(), chunk != chunk_of_list, "chunk {chunk}");
        if made.is_ok() {
            fs::remove_dir_all(&path).unwrap();
        }
    }
    let summary = make(named << 20, None).unwrap();
    assert!(summary.edges > 7_900_000);
}

/// The MiB of memory that an error names.
fn named(error: &str) -> u64 {
    let named = error.split("at least ").nth(1).and_then(|rest| rest.split(" MiB").next());
    named.and_then(|named| named.parse().ok()).unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn the_directories_of_large_chunks_count() {
    let folder = tempfile::tempdir().unwrap();
    let empty = Model::Er(ErdosRenyi::new(1 << 22, 0.0));
    let mut options =
        StoreOptions { chunks: Some(1), memory: 4 << 20, threads: 1, ..options(empty, &folder.path().join("out")) };
    let error = generate_store(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("more --chunks"), "{error}");
    let directory = (1 << 22) / 54 * 64;
    assert!(named(&error) << 20 > directory, "{error}");
    options.memory = named(&error) << 20;
    generate_store(&options, &Silent).unwrap();
    // Smaller chunks have smaller directories.
    options.out = folder.path().join("more");
    (options.memory, options.chunks) = (4 << 20, Some(64));
    generate_store(&options, &Silent).unwrap();
}

#[test]
fn the_mean_features_of_classes_count() {
    let folder = tempfile::tempdir().unwrap();
    let classes = Model::Sbm(BlockModel { classes: 2048, ..BlockModel::new(2048, 1.0) });
    let mut options = StoreOptions {
        features: stored(1024, FeatureDtype::F16),
        memory: 6 << 20,
        ..options(classes, &folder.path().join("out"))
    };
    let error = generate_store(&options, &Silent).unwrap_err().to_string();
    assert!(error.contains("fewer --classes"), "{error}");
    // 2048 means of 1024 values of 4 bytes.
    assert!(named(&error) > 8, "{error}");
    options.memory = named(&error) << 20;
    generate_store(&options, &Silent).unwrap();
}
