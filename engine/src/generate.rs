//! Stores and files of random graphs: recipes of graphs, and the functions that write them.
//!
//! A [`Recipe`] is a model and a seed. It determines the graph:
//!
//! ```
//! use grappa_engine::generate::{Generator, Model, Recipe, Rmat};
//!
//! let generator = Generator::new(Recipe::new(Model::Rmat(Rmat::graph500(10, 8.0)), 1))?;
//! assert_eq!((generator.nodes(), generator.expected_edges()), (1024, 8192.0));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Any adjacency list can be generated alone:
//!
//! ```
//! use grappa_engine::generate::{AdjacencyBuffer, Generator, Model, Recipe, Rmat};
//!
//! // 2^36 nodes and 10^12 edges; this computes one list.
//! let generator = Generator::new(Recipe::new(Model::Rmat(Rmat::graph500(36, 16.0)), 1))?;
//! let mut buffer = AdjacencyBuffer::default();
//! let sources = generator.adjacency_list(12_345, None, &mut buffer);
//! assert_eq!(sources.len() as u64, generator.degree(12_345));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`generate_store`] writes a store:
//!
//! ```
//! use grappa_engine::{Silent, Store, generate::{EdgeOptions, Model, Recipe, Rmat, StoreOptions, generate_store}};
//! # let folder = tempfile::tempdir().unwrap();
//!
//! let options = StoreOptions {
//!     chunks: Some(4),
//!     edge_options: EdgeOptions { dedup: true, ..EdgeOptions::default() },
//!     ..StoreOptions::new(Recipe::new(Model::Rmat(Rmat::graph500(10, 8.0)), 1), folder.path().join("rmat.grappa"))
//! };
//! let summary = generate_store(&options, &Silent)?;
//! assert!(summary.edges < summary.edges_drawn); // parallel edges were merged
//!
//! // A slice has some chunks of the same graph.
//! let out = folder.path().join("slice.grappa");
//! let slice = StoreOptions { only_chunks: Some(vec![0..=0, 3..=3]), out, ..options };
//! assert_eq!(generate_store(&slice, &Silent)?.chunks_present, 2);
//! assert!(!Store::open(&slice.out)?.manifest().is_whole());
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! The stochastic block model has classes, splits and features. Procedural features take no space:
//!
//! ```
//! use grappa_engine::{
//!     Silent, Store,
//!     generate::{
//!         BlockModel, FeatureDtype, FeatureOptions, FeatureSource, Model, Recipe, SplitShares, StoreOptions,
//!         generate_store,
//!     },
//! };
//! # let folder = tempfile::tempdir().unwrap();
//!
//! let recipe = Recipe::new(Model::Sbm(BlockModel::new(1000, 10.0)), 1)
//!     .with_splits(SplitShares { train: 0.6, val: 0.2, test: 0.2 });
//! let options = StoreOptions {
//!     features: Some(FeatureOptions { dim: 16, dtype: FeatureDtype::F32, source: FeatureSource::Procedural }),
//!     ..StoreOptions::new(recipe, folder.path().join("sbm.grappa"))
//! };
//! generate_store(&options, &Silent)?;
//! let store = Store::open(&options.out)?;
//! assert_eq!(store.manifest().labels.unwrap().classes, 10);
//! assert!(store.split("train")?.is_some());
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Edge lists are for other programs:
//!
//! ```
//! use grappa_engine::{Silent, generate::{EdgeListFormat, ErdosRenyi, Generator, Model, Recipe, write_edge_list}};
//! # let folder = tempfile::tempdir().unwrap();
//!
//! let model = Model::Er(ErdosRenyi { nodes: 100, edge_factor: 4.0 });
//! let (generator, path) = (Generator::new(Recipe::new(model, 7))?, folder.path().join("edges.tsv"));
//! let summary = write_edge_list(&generator, &path, EdgeListFormat::Tsv, &Silent)?;
//! assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count() as u64, summary.edges);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! The manifest of a generated store has its recipe, as JSON:
//!
//! ```
//! use grappa_engine::generate::{Model, Recipe, Rmat};
//!
//! let recipe = Recipe::new(Model::Rmat(Rmat::graph500(20, 16.0)), 3);
//! assert_eq!(Recipe::from_json(&recipe.to_json())?, recipe);
//! # Ok::<(), grappa_engine::Error>(())
//! ```

pub use grappa_formats::manifest::{EdgeOptions, FeatureDtype, FeatureSource, SelfLoops};
pub use grappa_ingestion::generate::{
    EdgeListFormat, EdgeListSummary, check_features_memory,
    graph::{GeneratedGraph, GraphOptions, generate_graph},
    print_edge_list,
    store::{FeatureOptions, StoreOptions, StoreSummary, generate_store},
    write_classes, write_edge_list, write_features, write_split,
};
pub use grappa_storage::writer::partial_folder;
pub use grappa_synthetic::{
    AdjacencyBuffer, AdjacencyLists, BlockModel, Degrees, ErdosRenyi, Features, Generator, GraphRecipe, Model,
    NodeTypeRecipe, Recipe, RelationModel, RelationRecipe, Rmat, RmatClasses, Split, SplitShares,
};
