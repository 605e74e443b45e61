//! The out-of-core graph engine: stores on disk, and minibatches from them.
//!
//! Start here:
//!
//! - [`ingest()`] builds a store from edge lists, features, labels and splits; [`generate`] builds one from a random
//!   graph model;
//! - [`Store`] opens it, translates ids ([`Store::node`], [`Store::external_id`]) and reads in-neighbors
//!   ([`Store::neighbors`]);
//! - [`Loader`] samples minibatches with features under a memory budget.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//! use std::sync::Arc;
//!
//! use grappa_engine::{IngestOptions, Loader, Silent, Store, ingest, sample::Seeds};
//!
//! std::fs::write(&edges, "0 1\n1 2\n2 0\n").unwrap();
//! ingest(&IngestOptions::new(vec![edges], out.clone()), &Silent)?;
//!
//! let store = Arc::new(Store::open(&out)?);
//! let mut loader = Loader::open(&store).seeds(Seeds::All).fanouts([10, 5]).batch(2).memory(64 << 20).start()?;
//! for batch in loader.epoch(0)? {
//!     let batch = batch?;
//!     println!("{} nodes, {} edges", batch.minibatch().nodes.len(), batch.minibatch().edges());
//! }
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Nothing here links libtorch or prints. Long operations report to a [`Progress`] and stop when it says so:
//!
//! ```
//! use std::sync::Mutex;
//!
//! use grappa_engine::{IngestOptions, Progress, ingest};
//! # use grappa_cora::Cora;
//! # let folder = tempfile::tempdir().unwrap();
//!
//! #[derive(Default)]
//! struct Stages(Mutex<Vec<String>>);
//!
//! impl Progress for Stages {
//!     fn stage(&self, name: &str, _bytes: Option<u64>) {
//!         self.0.lock().unwrap().push(name.to_owned());
//!     }
//!     fn advance(&self, _bytes: u64, _edges: u64) {}
//! }
//!
//! let (stages, edges) = (Stages::default(), Cora::files().join("edges.tsv"));
//! ingest(&IngestOptions::new(vec![edges], folder.path().join("cora.grappa")), &stages)?;
//! assert!(stages.0.into_inner().unwrap().iter().any(|name| name.contains("edges")));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! Failures are [`Error`]s that name the file, the place in it and a remedy:
//!
//! ```
//! use std::path::Path;
//!
//! use grappa_engine::Store;
//!
//! let error = Store::open(Path::new("missing.grappa")).unwrap_err().to_string();
//! assert!(error.contains("missing.grappa") && error.contains("no such store"), "{error}");
//! ```
//!
//! # This crate is the front door
//!
//! Programs and bindings need no other crate of the engine. [`mod@ingest`], [`generate`], [`store`] and [`sample`] have
//! the functions of these subjects with the types of all their arguments and results. [`formats`] and [`io`] are the
//! two layers whose types appear everywhere: ids, the manifest and encodings; errors, progress, sizes and durable
//! files. `grappa-console`, `grappa-run` and the trainer also import from the layers, because they are built beside
//! this crate.
//!
//! # Operations on stores
//!
//! [`verify`] checks every byte of a store, and lists each problem with file and offset:
//!
//! ```
//! # let (cora, _) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Silent, verify::verify};
//!
//! let report = verify(&cora.path("cora.grappa"), 2, &Silent)?;
//! assert!(report.is_ok() && report.files > 60);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`info`] describes it:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Silent, info::info};
//!
//! let info = info(&store, 2, &Silent)?;
//! assert_eq!((info.degree_max, info.classes, info.splits.test), (168, Some(7), Some(1000)));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`export`] writes edges, features, labels and ids in the ids of the user:
//!
//! ```
//! # let (cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{EdgePart, Silent, export::{Budget, edges::{EdgeColumns, export_edges}}};
//!
//! let (path, budget) = (cora.path("edges.tsv"), Budget { threads: 2, memory: 64 << 20 });
//! let exported = export_edges(&store, EdgePart::Graph, EdgeColumns::All, &path, &budget, &Silent)?;
//! assert_eq!(exported.rows, 10_556);
//! assert!(std::fs::read_to_string(&path).unwrap().lines().any(|line| line == "633\t0"));
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! The ending of a file is its format: `.npy`, `.parquet` or `.csv`:
//!
//! ```
//! # let (cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{EdgePart, Silent, export::{Budget, columns::export_labels, ids::export_ids}};
//!
//! let budget = Budget { threads: 2, memory: 64 << 20 };
//! assert_eq!(export_labels(&store, &cora.path("labels.csv"), &budget, &Silent)?.rows, 2708);
//! assert_eq!(export_ids(&store, Some("train"), &cora.path("train.npy"), &Silent)?.rows, 140);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`node_list`] reads such a list of ids back:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! # use grappa_cora::Cora;
//! use grappa_engine::node_list::read_nodes;
//!
//! assert_eq!(read_nodes(&store, &Cora::files().join("val.npy"))?.len(), 500);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`place`] makes a slice, for one of several hosts:
//!
//! ```
//! # let (cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Graph, Silent, Store, place::{PlaceOptions, SliceEdges, place}};
//!
//! let options = PlaceOptions {
//!     chunks: vec![0..=3],
//!     edges: SliceEdges::Inside,
//!     halo_features: false,
//!     out: cora.path("part.grappa"),
//!     copy: false,
//!     threads: 1,
//!     resume: false,
//!     replace: false,
//! };
//! let placed = place(&Graph::open(store.path())?, &options, &Silent)?;
//! assert_eq!(placed.chunks_present, 4);
//! assert_eq!(Store::open(&options.out)?.present_nodes(), placed.nodes_present);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`plan`] estimates bytes and time before anything is built:
//!
//! ```
//! use grappa_engine::{ingest::FeatureDtype, plan::{Degrees, PlanOptions, Rates, plan}};
//!
//! let plan = plan(&PlanOptions {
//!     nodes: 100_000_000,
//!     edges: 2_000_000_000,
//!     degrees: Degrees::Rmat,
//!     features: Some((128, FeatureDtype::F16)),
//!     classes: Some(47),
//!     split: None,
//!     weighted: false,
//!     edge_features: None,
//!     held_out_parts: 0,
//!     chunks: None,
//!     memory: 8 << 30,
//!     disk_bandwidth: 2e9,
//!     free_memory: 16 << 30,
//!     threads: 16,
//!     rates: Rates::default(),
//! })?;
//! assert_eq!(plan.bytes.features >> 30, 23);
//! assert!(plan.bits_per_edge.unwrap() < 32.0);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`derive::features`] adds features to a store that has none:
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let (edges, out) = (folder.path().join("edges.txt"), folder.path().join("graph.grappa"));
//! use grappa_engine::{
//!     IngestOptions, Silent, Store,
//!     aggregate::Budget,
//!     derive::features::{AddFeatures, FastRp, FeatureKind, add_features},
//!     ingest,
//!     ingest::FeatureDtype,
//! };
//!
//! std::fs::write(&edges, "0 1\n1 2\n2 0\n").unwrap();
//! ingest(&IngestOptions::new(vec![edges], out.clone()), &Silent)?;
//! let options = AddFeatures {
//!     kind: FeatureKind::FastRp(FastRp { dim: 8, hop_weights: vec![1.0, 1.0], seed: 1 }),
//!     dtype: FeatureDtype::F32,
//!     budget: Budget { memory: 64 << 20, threads: 1 },
//!     writer: "example 1.0".into(),
//! };
//! add_features(&Store::open(&out)?, &options, &Silent)?;
//! assert_eq!(Store::open(&out)?.manifest().features.as_ref().unwrap().dim, 8);
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`derive::preaggregate`] aggregates the first hop of all nodes once:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{
//!     Silent,
//!     aggregate::Budget,
//!     derive::preaggregate::{AggregateOptions, preaggregate},
//!     formats::aggregates::AggregateKind,
//!     store::aggregates::Aggregates,
//! };
//!
//! let options = AggregateOptions {
//!     kind: AggregateKind::Mean,
//!     dtype: None,
//!     budget: Budget { memory: 64 << 20, threads: 2 },
//!     with_features: false,
//!     replace: false,
//! };
//! assert_eq!(preaggregate(&store, &options, &Silent)?.nodes, 2708);
//! assert!(Aggregates::open(&store, AggregateKind::Mean)?.is_some());
//! # Ok::<(), grappa_engine::Error>(())
//! ```
//!
//! [`aggregate`] is the sparse product behind both. It streams what memory does not hold:
//!
//! ```
//! # let (_cora, store) = grappa_cora::Cora::ingest();
//! use grappa_engine::{Silent, aggregate::{Budget, store_features, Sum, WholeGraph}, sample::EdgeValues};
//!
//! let rows = store_features(&store)?;
//! let budget = Budget { memory: 64 << 20, threads: 2 };
//! let relation = (&store).into();
//! let graph = WholeGraph { relation, rows: &*rows, edge_values: EdgeValues::Nothing, budget, scratch: None };
//! let mut words = 0.0;
//! graph.run(&Sum { width: 1433 }, 0, &Silent, &mut |_nodes, states| {
//!     words += states.iter().map(|&count| f64::from(count)).sum::<f64>();
//!     Ok(())
//! })?;
//! assert_eq!(words, 192_885.0);
//! # Ok::<(), grappa_engine::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod aggregate;
pub mod derive;
pub mod export;
pub mod generate;
pub mod info;
pub mod ingest;
pub mod node_list;
pub mod pair_list;
pub mod place;
pub mod plan;
pub mod sample;
pub mod store;
#[cfg(test)]
mod tests;
pub mod verify;

pub use grappa_formats::{self as formats, ChunkId, EdgePart, NodeId, PartitionId};
pub use grappa_input::{TableColumn, read_table};
pub use grappa_io::{
    self as io, Error, Result,
    progress::{Progress, Silent},
};

pub use self::{
    ingest::{IngestOptions, SplitFile, ingest},
    sample::{Block, Loader, LoaderBuilder, Minibatch, feed::Batch},
    store::{ExternalId, Graph, Neighbors, Store, is_graph},
};
